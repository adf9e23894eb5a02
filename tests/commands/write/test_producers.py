"""`--producers drop`: the records for a consumer of committed data, without a trace of their producers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.write.sources import SOURCE, lines, topic
from tests.conftest import Ran, writable_copy
from tests.support.power import tree

Klog = Callable[..., Ran]
OF_PRODUCERS = {"producer_id", "producer_epoch", "sequence", "transactional", "control", "coordinator_epoch"}


def plain(records: list[dict[str, Any]], *without: str) -> list[dict[str, Any]]:
    """Return records without what their producers, and another batch, decide."""
    gone = {"position", *OF_PRODUCERS, *without}
    return [{name: value for name, value in one.items() if name not in gone} for one in records]


def given(klog: Klog, sources: list[Path], form: str, folder: Path) -> list[Path]:
    """Return the inputs of a write: the logs themselves, or a file of their records."""
    if form == "log":
        return sources
    file = folder / f"records.{form}"
    assert klog("dump", *sources, "--output", form, "--to", file).exit_code == 0
    return [file]


@pytest.mark.corpora
@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "log"])
@pytest.mark.parametrize("word", ["tx", "idem", "lz4"])
@pytest.mark.parametrize("keep", [True, False])
def test_committed_data_alone_is_written(
    word: str, form: str, keep: bool, klog: Klog, image: Callable[[str], Path], tmp_path: Path
) -> None:
    """The records that the broker's consumers received; aborted data and markers are dropped, and so is every
    producer."""
    found = topic(word)
    sources = found.directories(image(SOURCE) / "data")
    inputs = given(klog, sources, form, tmp_path)
    words = [*found.options, "--producers", "drop", *(["--keep-offsets"] if keep else [])]
    done = klog("write", *inputs, "--to", tmp_path / "out", *words)
    assert done.exit_code == 0, done.stderr
    ours = lines(klog, found.directories(tmp_path / "out"))
    committed = lines(klog, sources, "--isolation", "read_committed", "--no-control")
    without = () if keep else ("offset",)
    assert plain(ours, *without) == plain(committed, *without)
    assert not [one for one in ours if OF_PRODUCERS & one.keys()]
    assert word != "tx" or 0 < len(ours) < len(lines(klog, sources, "--no-control")), "some were aborted"
    assert not list((tmp_path / "out").glob("*/*.txnindex"))
    assert klog("verify", "--deep", tmp_path / "out").exit_code in (0, 4 * keep), "offsets that are not there"


def record(producer: int | None, value: str, **more: object) -> dict[str, object]:
    """Return a record of a transaction; without a producer, of none."""
    own: dict[str, object] = {"topic": "t", "partition": 0, "key": "k", "value": value, "timestamp": 5}
    if producer is not None:
        own |= {"producer_id": producer, "producer_epoch": 0, "transactional": True}
    return own | more


def marker(producer: int, control: str) -> dict[str, object]:
    return record(producer, "") | {"control": control}


def as_lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(one) + "\n" for one in records)


def test_transactions_that_interleave_are_told_apart(klog: Klog, tmp_path: Path) -> None:
    """Each by its own markers: in turn, side by side, over two files, and markers of nothing."""
    (tmp_path / "a.jsonl").write_text(
        as_lines(
            marker(8, "ABORT"), record(7, "7 commits"), record(8, "8 aborts"), record(None, "plain"),
            marker(7, "COMMIT"), record(7, "7 aborts"), marker(8, "ABORT"), record(8, "8 commits"),
        )
    )  # fmt: skip
    (tmp_path / "b.jsonl").write_text(
        as_lines(
            record(7, "elsewhere", topic="u"), marker(8, "COMMIT"), marker(7, "ABORT"), record(9, "idempotent",
            transactional=False, sequence=0), marker(7, "COMMIT") | {"topic": "u"},
        )
    )  # fmt: skip
    inputs = (tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    done = klog("write", *inputs, "--to", tmp_path / "out", "--producers", "drop")
    assert done.exit_code == 0, done.stderr
    values = [one["value"] for one in lines(klog, [tmp_path / "out/t-0"])]
    assert values == ["7 commits", "plain", "8 commits", "idempotent"]
    assert [one["value"] for one in lines(klog, [tmp_path / "out/u-0"])] == ["elsewhere"]


def test_undecided_data_is_refused(klog: Klog, tmp_path: Path) -> None:
    """It is unknown whether it was aborted: the line names its first offset, and nothing is written."""
    file = tmp_path / "in.jsonl"
    file.write_text(as_lines(record(None, "plain"), record(7, "open"), record(8, "done"), marker(8, "COMMIT")))
    words = ("write", file, "--to", tmp_path / "out", "--producers", "drop")
    done = klog(*words)
    assert (done.exit_code, done.stderr.count(b"\n")) == (8, 1), done.stderr
    assert f"{file}, line 2: of a transaction without an end in the input".encode() in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    assert klog(*words, "--skip-bad").exit_code == 4
    assert [one["value"] for one in lines(klog, [tmp_path / "out/t-0"])] == ["plain", "done"]


@pytest.mark.corpora
def test_a_log_with_an_open_transaction_is_refused(klog: Klog, image: Callable[[str], Path], tmp_path: Path) -> None:
    """The message names its producer and its first offset; the log dir is as before."""
    source = writable_copy(image(SOURCE) / "data" / "order.tx-0", tmp_path / "data" / "order.tx-0")
    rows = lines(klog, [source])
    last = max(one["offset"] for one in rows if "control" in one)
    assert klog("truncate", source, "--to-offset", str(last), "--apply").exit_code == 0
    owner = next(one["producer_id"] for one in rows if one["offset"] == last)
    begun = next(
        one["offset"]
        for one in rows
        if one.get("producer_id") == owner
        and "control" not in one
        and not any(r["offset"] > one["offset"] and r["offset"] < last and r.get("producer_id") == owner
                    and "control" in r for r in rows)
    )  # fmt: skip
    before = tree(tmp_path / "data")
    done = klog("write", source, "--to", tmp_path / "out", "--producers", "drop")
    assert (done.exit_code, done.stderr.count(b"\n")) == (8, 1), done.stderr
    assert f"the transaction of producer {owner} from offset {begun} on is open".encode() in done.stderr
    assert not (tmp_path / "out").exists()
    assert tree(tmp_path / "data") == before


def test_stdin_is_read_once(klog_process: Callable[..., Ran], tmp_path: Path) -> None:
    """The end of a transaction is therefore not known in time; records of none, and idempotent ones, are written."""
    words = ("write", "-", "--to", str(tmp_path / "out"), "--producers", "drop")
    done = klog_process(*words, stdin=as_lines(record(7, "v"), marker(7, "COMMIT")).encode())
    assert done.exit_code == 8
    assert b"-, line 1: of a transaction" in done.stderr
    assert b"put it into a file" in done.stderr
    done = klog_process(*words, stdin=as_lines(record(7, "v", transactional=False), record(None, "w")).encode())
    assert done.exit_code == 0, done.stderr
    assert subprocess.run(["find", tmp_path / "out", "-name", "*.log"], check=True, capture_output=True).stdout
