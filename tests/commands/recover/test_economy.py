"""The work that a repair avoids when there is no need: operators run it over thousands of partitions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.change.plan.model import Plan
from klog.change.plan.plan_document import plan_pieces, read_plan
from klog.commands.recover import like_broker
from klog.formats.producer_snapshot import write_snapshot
from klog.kernel import crc32c
from klog.log import reader
from klog.log.segment import Batch, Segment

from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch, marker
from tests.support.reads import count_reads


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log dir with an intact log that has lost its indexes."""
    folder = tmp_path / "data" / "orders-0"
    folder.mkdir(parents=True)
    (folder.parent / "meta.properties").write_text("version=0\nbroker.id=1\n")
    batches = (
        batch([Record(i, 1_750_000_000_000 + i, b"k", b"v" * 100) for i in range(at, at + 10)]) for at in (0, 10)
    )
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    return folder.parent


def test_a_log_without_indexes_is_read_once(
    data: Path, klog: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker would keep all of an intact log, which needs no second reading."""

    def read_again(*_: object) -> None:
        raise AssertionError("a broker's start was played")

    monkeypatch.setattr(like_broker, "play", read_again)
    planned = klog("recover", data, "--output=json")
    assert planned.exit_code == 4
    assert json.loads(planned.stdout)["broker_would_keep"]["records"] == 20


MS = 1_750_000_000_000


def segments_of(kind: str) -> list[bytes]:
    """Return five segments of 100 batches with 3 offsets each, but for markers: plain, idempotent or transactional."""
    content = []
    for base in range(0, 1500, 300):
        batches = []
        for at in range(base, base + 300, 3):
            records = [Record(at + i, MS + at, b"k", b"v" * 300) for i in range(3)]
            if kind == "plain":
                batches.append(batch(records))
            elif kind == "idempotent":
                batches.append(batch(records, producer=(7, 0, at)))
            elif at % 90 == 60:  # the transaction that is open at the end of each segment continues in the next one
                many = [
                    marker(
                        at + i, commit=i == 1, timestamp=MS, producer_id=7 + i, producer_epoch=0, coordinator_epoch=1
                    )
                    for i in range(3)
                ]
                batches += many
            else:
                batches.append(batch(records, producer=(7 + at % 2, 0, at // 2), transactional=True))
        content.append(b"".join(batches))
    return content


def sound_log_dir(tmp_path: Path, klog: Callable[..., Ran], kind: str) -> list[Path]:
    """Return five logs with sound indexes of a log dir."""
    folder = tmp_path / "data" / "orders-0"
    folder.mkdir(parents=True)
    (folder.parent / "meta.properties").write_text("version=0\nbroker.id=1\n")
    logs = [folder / f"{base:020}.log" for base in range(0, 1500, 300)]
    for log, content in zip(logs, segments_of(kind), strict=True):
        log.write_bytes(content)
    assert klog("recover", folder.parent, "--apply", "--quiet").exit_code == 1
    return logs


@pytest.mark.parametrize("kind", ["plain", "idempotent", "transactional"])
def test_each_segment_of_a_torn_log_is_read_once(
    tmp_path: Path, klog: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """One pass yields the survey, the broker's start and the amounts; only the cut end is read further."""
    logs = sound_log_dir(tmp_path, klog, kind)
    folder = logs[0].parent
    torn = logs[-1].stat().st_size - 100
    os.truncate(logs[-1], torn)
    with monkeypatch.context() as patches:
        reads = count_reads(patches)
        planned = klog("recover", folder.parent, "--output=json")
    found = json.loads(planned.stdout)
    assert planned.exit_code == 4
    assert found["broker_would_keep"] == found["kept"]
    assert len(found["lost"]) == 1
    for log in logs[:-1]:
        opens, size = reads.of(log)
        # A batch that does not fit a window is read with the next one again.
        assert (opens, size <= 1.02 * log.stat().st_size) == (1, True), log
    # Once more for the producers at the new end, once for the digest of the cut part.
    assert reads.of(logs[-1])[1] < 3.5 * torn


def test_like_broker_judges_nothing_below_the_recovery_point(tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """As a broker does, but for a segment there that has lost its index: it reads that one."""
    logs = damaged_log_dir(tmp_path, klog, "plain", "bad-crc")
    folder = logs[0].parent
    (folder.parent / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 1250\n")
    (folder / f"{1200:020}.snapshot").write_bytes(write_snapshot((), crc32c))
    os.truncate(logs[-1], logs[-1].stat().st_size - 100)
    planned = json.loads(klog("recover", folder.parent, "--like-broker", "--output=json").stdout)
    assert [finding["id"] for finding in planned["findings"]] == ["torn-tail"]
    assert sum(one["records"] for one in planned["lost"]) == 3
    (folder / f"{300:020}.index").unlink()
    planned = json.loads(klog("recover", folder.parent, "--like-broker", "--output=json").stdout)
    assert [finding["id"] for finding in planned["left"]] == ["bad-crc"]
    assert sum(one["records"] for one in planned["lost"]) == 3
    (folder / f"{600:020}.index").unlink()
    planned = json.loads(klog("recover", folder.parent, "--like-broker", "--output=json").stdout)
    assert {"bad-crc", "torn-tail"} <= {finding["id"] for finding in planned["findings"]}
    assert planned["left"] == []
    assert sum(one["records"] for one in planned["lost"]) == 3 * (50 + 1)


def damaged_log_dir(tmp_path: Path, klog: Callable[..., Ran], kind: str, damage: str) -> list[Path]:
    """Return five logs with sound indexes of a log dir, the third of which is damaged in its middle."""
    logs = sound_log_dir(tmp_path, klog, kind)
    content = bytearray(logs[2].read_bytes())
    batches = [one for one in Segment(str(logs[2])).batches() if isinstance(one, Batch)]
    middle = batches[50]
    if damage == "bad-crc":
        content[middle.position + 70] ^= 0xFF
    elif damage == "zeros":
        content[middle.position : middle.position + 4096] = bytes(4096)
    else:
        content[middle.position + 8] ^= 0x40  # a length that leads out of the file
    logs[2].write_bytes(content)
    return logs


DAMAGES = ("bad-crc", "zeros", "bad-length")
WINDOW = 16 << 10
AROUND = 4 * WINDOW
"""Bytes that may be read once more around damage: the rest of the window, and the search behind it."""
ONCE = 1.08
"""A batch that does not fit the end of a window is read with the next one again."""


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["plain", "idempotent", "transactional"])
def test_a_log_with_damage_in_the_middle_is_read_again_for_the_choice_of_salvage(
    tmp_path: Path, klog: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, kind: str, damage: str
) -> None:
    """The broker's result is known from the pass that finds the damage; salvage reads the damaged segment again.

    It is read once more if one flipped bit explains the damage, for the price of its repair.
    """
    logs = damaged_log_dir(tmp_path, klog, kind, damage)
    with monkeypatch.context() as patches:
        for name in ("FIRST_WINDOW_BYTES", "WINDOW_BYTES", "REACH_BYTES"):
            patches.setattr(reader, name, WINDOW)
        reads = count_reads(patches)
        planned = klog("recover", logs[0].parent, "--output=json")
    assert planned.exit_code == 4
    assert b"salvage" in planned.stdout
    for log in logs[:2] + logs[3:]:
        opens, size = reads.of(log)
        assert (opens, size <= ONCE * log.stat().st_size) == (1, True), log
    has_bit = b"--repair-bits" in planned.stdout
    assert has_bit == (damage == "bad-length")
    times = 3 if has_bit else 2
    assert reads.of(logs[2])[1] <= times * (logs[2].stat().st_size + AROUND)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["plain", "idempotent", "transactional"])
@pytest.mark.parametrize("options", [(), ("--apply",), ("--repair-bits",)], ids=["plan", "apply", "repair-bits"])
def test_salvage_reads_damaged_segments_again_and_others_only_for_their_producers(
    tmp_path: Path,
    klog: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    damage: str,
    options: tuple[str, ...],
) -> None:
    """A damaged segment is read by the survey, for the choice, for its indexes, and to be copied.

    Those of the others with transactions are read again, and the producers behind the last snapshot.
    """
    logs = damaged_log_dir(tmp_path, klog, kind, damage)
    size = logs[2].stat().st_size
    with monkeypatch.context() as patches:
        for name in ("FIRST_WINDOW_BYTES", "WINDOW_BYTES", "REACH_BYTES"):
            patches.setattr(reader, name, WINDOW)
        reads = count_reads(patches)
        done = klog("recover", logs[0].parent, "--salvage", "--output=json", *options)
    assert done.exit_code == (1 if "--apply" in options else 4)
    has_snapshot = (logs[-1].parent / f"{1200:020}.snapshot").exists()
    for log in logs[:2] + logs[3:]:
        opens, read = reads.of(log)
        is_followed = kind == "transactional" or (kind == "idempotent" and (log == logs[-1] or not has_snapshot))
        assert (opens, read <= opens * ONCE * log.stat().st_size) == (1 + is_followed, True), log
    # An application compares the replaced files with the plan first.
    assert reads.of(logs[2])[1] <= (5 if "--apply" in options else 4) * size + 2 * AROUND


def test_a_plan_for_an_intact_log_loads_nothing_that_changes_or_salvages(data: Path, klog: Callable[..., Ran]) -> None:
    """Loading it all took a fifth of what reading a gigabyte does."""
    assert klog("recover", data, "--apply", "--quiet").exit_code == 1
    shutil.rmtree(data.parent / "klog-backup")
    unwanted = (
        "klog.change.plan.executor",
        "klog.commands.recover.salvage",
        "klog.commands.recover.like_broker",
        "klog.commands.recover.mark_clean",
        "json",
    )
    code = f"""
import sys
from klog_cli.app import main
sys.argv = ["klog", "recover", {str(data)!r}]
print(main(), *sorted(set({unwanted!r}) & set(sys.modules)))
"""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True)
    assert done.stdout.decode().splitlines()[-1] == "0", done.stderr


def test_a_plan_is_written_in_pieces_that_are_small() -> None:
    """In one piece a plan of a hundred thousand findings would be several hundred megabytes."""
    findings = tuple({"id": "index-missing", "file": f"orders-0/{number:020}.log"} for number in range(1000))
    plan = Plan("p", "now", "klog", ("/data",), ("/backup",), (), findings=findings)
    pieces = list(plan_pieces(plan))
    assert read_plan(b"".join(pieces)) == plan
    assert max(map(len, pieces)) < 100
