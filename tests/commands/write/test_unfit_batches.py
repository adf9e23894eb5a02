"""Batches of another log are held to what records are: a key in a compacted topic, and no more bytes than it takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch
from tests.partition.retention.disks import disk, partition
from tests.support.metadata_logs import uuid

Run = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("hasty")
THEN = 1_795_000_000_000
COMPACT = {"cleanup.policy": "compact"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def records(base: int, keys: Sequence[bytes | None]) -> list[Record]:
    return [Record(base + i, THEN + i, key, b"value %d" % (base + i), ((b"h", b"x"),)) for i, key in enumerate(keys)]


def source(folder: Path, batches: Sequence[bytes]) -> Path:
    """Write a partition of another topic."""
    path = folder / "source" / "events-0"
    path.mkdir(parents=True)
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(99)}")
    (path / f"{0:020}.log").write_bytes(b"".join(batches))
    for kind in ("index", "timeindex"):
        (path / f"{0:020}.{kind}").touch()
    return path


def target(tmp_path: Path, settings: dict[str, str]) -> Path:
    data = disk(tmp_path / "data", {"retention.ms": "-1", **settings})
    partition(data / "orders-0", ())
    return data


def write(klog: Run, given: Path, data: Path, *options: str) -> Ran:
    return klog("write", given, "--to", data, "--topic", "orders", "--output", "json", *options)


def dumped(klog: Run, path: Path) -> list[tuple[int, str | None]]:
    lines = klog("dump", path, "--output", "jsonl").stdout.splitlines()
    return [(row["offset"], row["key"]) for row in map(json.loads, lines)]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("codec", CODECS)
def test_null_keys_are_refused_as_of_json_lines(klog: Run, tmp_path: Path, codec: str, policy: str) -> None:
    """The cleaner would remove them: with a name and an offset, and nothing is written."""
    data = target(tmp_path, {"cleanup.policy": policy})
    batches = [batch(records(0, [b"a", b"b"]), codec=codec), batch(records(2, [b"c", None]), codec=codec)]
    given = source(tmp_path, batches)
    ran = write(klog, given, data, "--apply")
    assert ran.exit_code == 8
    assert b"the record at offset 3 has a null key, but orders is compacted; nothing was written" in ran.stderr
    assert dumped(klog, data / "orders-0") == []


@pytest.mark.parametrize("keep", [(), ("--keep-offsets",)])
@pytest.mark.parametrize("codec", CODECS)
def test_they_are_left_out_on_request_and_counted(klog: Run, tmp_path: Path, codec: str, keep: Sequence[str]) -> None:
    """As a cleaner leaves a batch: offsets and timestamps stay, and a batch with nothing left goes."""
    data = target(tmp_path, COMPACT)
    keys: list[list[bytes | None]] = [[b"a", None, b"c"], [None, None], [b"f"], [None, b"h"]]
    batches, base = [], 0
    for some in keys:
        batches.append(batch(records(base, some), codec=codec, producer=(5, 0, base)))
        base += len(some)
    ran = write(klog, source(tmp_path, batches), data, "--apply", "--skip-bad", *keep)
    assert ran.exit_code == 4, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["skipped"], found["records"]) == (4, 4)
    assert b"left out 4 records (null keys)" in ran.stderr
    gap = 0 if keep else 2
    assert dumped(klog, data / "orders-0") == [(0, "a"), (2, "c"), (5 - gap, "f"), (7 - gap, "h")]
    assert klog("verify", "--deep", data / "orders-0").exit_code == 0
    rows = [json.loads(line) for line in klog("dump", data / "orders-0", "--output", "jsonl").stdout.splitlines()]
    assert [row["timestamp"] - THEN for row in rows] == [0, 2, 0, 1]
    assert [row["headers"] for row in rows] == [[["h", "x"]]] * 4


def test_many_batches_with_null_keys_are_sifted(klog: Run, tmp_path: Path) -> None:
    """More than a window holds: each batch is looked at once, and none is lost."""
    data = target(tmp_path, COMPACT)
    batches = [batch(records(2 * n, [b"k%d" % n, None if n % 3 else b"x"])) for n in range(5000)]
    ran = write(klog, source(tmp_path, batches), data, "--apply", "--skip-bad")
    assert json.loads(ran.stdout)["skipped"] == sum(1 for n in range(5000) if n % 3)
    assert len(dumped(klog, data / "orders-0")) == 5000 + sum(1 for n in range(5000) if not n % 3)


def test_markers_are_no_records_and_empty_keys_are_keys(klog: Run, tmp_path: Path) -> None:
    """Nothing is wrong with transactions and with keys of no bytes: no refusal, no word."""
    data = target(tmp_path, COMPACT)
    marker = batch([Record(2, THEN, b"\0\0\0\1", bytes(6))], control=True, transactional=True, producer=(5, 0, -1))
    data_batch = batch(records(0, [b"", b"b"]), transactional=True, producer=(5, 0, 0))
    ran = write(klog, source(tmp_path, [data_batch, marker]), data)
    assert (ran.exit_code, json.loads(ran.stdout)["skipped"]) == (0, 0), ran.stderr
    assert b"null" not in ran.stderr


def test_a_topic_that_deletes_takes_null_keys(klog: Run, tmp_path: Path) -> None:
    """The policy decides."""
    data = target(tmp_path, {})
    ran = write(klog, source(tmp_path, [batch(records(0, [None, b"b"]))]), data)
    assert (ran.exit_code, json.loads(ran.stdout)["records"]) == (0, 2)


def test_null_keys_of_aborted_transactions_do_not_count(klog: Run, tmp_path: Path) -> None:
    """--producers drop leaves these records out anyway."""
    data = target(tmp_path, COMPACT)
    aborted = batch(records(0, [None, None]), transactional=True, producer=(5, 0, 0))
    marker = batch([Record(2, THEN, b"\0\0\0\0", bytes(6))], control=True, transactional=True, producer=(5, 0, -1))
    given = source(tmp_path, [aborted, marker, batch(records(3, [b"d"]))])
    ran = write(klog, given, data, "--producers", "drop")
    assert (ran.exit_code, json.loads(ran.stdout)["records"]) == (0, 1), ran.stderr


def test_batches_that_are_too_large_are_refused_or_left_out(klog: Run, tmp_path: Path) -> None:
    """A broker would not have taken them from a producer; followers and consumers have limits made for that."""
    data = target(tmp_path, {"max.message.bytes": "400"})
    large = batch([Record(2 + i, THEN, b"k", b"x" * 200) for i in range(3)])
    given = source(tmp_path, [batch(records(0, [b"a", b"b"])), large, batch(records(5, [b"f"]))])
    ran = write(klog, given, data)
    assert ran.exit_code == 8
    assert b"(offset 2), and orders takes at most 400; nothing was written" in ran.stderr
    ran = write(klog, given, data, "--skip-bad", "--apply")
    assert (ran.exit_code, json.loads(ran.stdout)["skipped"]) == (4, 3)
    assert [key for _, key in dumped(klog, data / "orders-0")] == ["a", "b", "f"]


def test_a_leader_epoch_that_the_cluster_has_not_reached_is_refused(klog: Run, tmp_path: Path) -> None:
    """With --leader-epoch keep, too: a broker would forget the history of epochs."""
    data = target(tmp_path, {})
    given = source(tmp_path, [batch(records(0, [b"a"]), leader_epoch=3)])
    ran = write(klog, given, data, "--leader-epoch", "keep")
    assert ran.exit_code == 8
    assert b"batches of leader epoch 3, which the cluster has not reached" in ran.stderr
    assert write(klog, given, data).exit_code == 0


def test_adopt_counts_them(klog: Run, tmp_path: Path) -> None:
    """The content is the cluster's own, so it is adopted; but the cleaner removes these records."""
    data = target(tmp_path, COMPACT)
    given = source(tmp_path, [batch(records(0, [b"a", None, None])), batch(records(3, [None]))])
    ran = klog("adopt", given, "--to", data, "--as", "orders-0")
    assert ran.exit_code == 0, ran.stderr
    assert b"orders-0: 3 records without a key, which the cleaner of the compacted topic removes" in ran.stderr


def test_adopt_is_silent_where_there_are_none(klog: Run, tmp_path: Path) -> None:
    """Nothing to report: all have keys."""
    data = target(tmp_path, COMPACT)
    given = source(tmp_path, [batch(records(0, [b"a", b"", b"c"]))])
    ran = klog("adopt", given, "--to", data, "--as", "orders-0")
    assert ran.exit_code == 0
    assert b"without a key" not in ran.stderr
