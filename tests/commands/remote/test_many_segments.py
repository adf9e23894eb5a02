"""A partition of a hundred thousand remote segments: `klog remote fetch` takes as much memory as its plan needs."""

from __future__ import annotations

import os
import shutil
import struct
import sys
from pathlib import Path

import pytest
from klog.base.progress import Silence
from klog.commands.remote import RemoteQuery
from klog.commands.remote.fetch import fetch_remote
from klog.commands.remote.fetch_dir import JOURNAL
from klog.commands.remote.fetch_options import FetchOptions
from klog.data_dir.disk.disk_changes import Disk
from klog.tier.tier import open_tier

from tests.oracles.plain.encode import Record, batch, snapshot
from tests.support.measure import measured
from tests.support.power import KilledError
from tests.support.remote_log_values import Whose, started, updated, uuid

MANY = 100_000
MOST_BYTES = 200_000_000
CODE_BYTES = 45_000_000
"""The interpreter, and klog's code."""
WHOSE = Whose("topic")
EPOCHS = b"0\n1\n4 0\n"


def made(folder: Path, count: int, *, complete: range) -> tuple[Path, Path]:
    """Make a log dir and a tier with *count* segments of one record; those in *complete* have content, others names."""
    objects = folder / f"tier/kafka-tiered-storage/topic-0-{WHOSE.topic_id}"
    objects.mkdir(parents=True)
    values: list[bytes] = []
    for base in range(count):
        segment_id = uuid(100 + base)
        stem = f"{objects}/{base:020}-{segment_id}"
        contents = {"log": b"", "index": b"", "timeindex": b""}
        size = 0
        if base in complete:
            contents |= {"leader_epoch_checkpoint": EPOCHS, "snapshot": snapshot(())}
            contents["log"] = batch([Record(base, 1000 + base, b"k", b"v")], base_offset=base, leader_epoch=4)
            contents["timeindex"] = struct.pack(">qi", 1000 + base, 0)
            size = len(contents["log"])
        for kind, content in contents.items():
            os.mknod(f"{stem}.{kind}", 0o644)  # most are empty: in a third of the time of open and close
            if content:
                Path(f"{stem}.{kind}").write_bytes(content)
        values.append(started(segment_id, base, base, {4: base}, whose=WHOSE, size=size, max_timestamp=1000 + base))
        values.append(updated(segment_id, 1, whose=WHOSE))
    return log_dir(folder / "data", values, count), folder / "tier"


def log_dir(data: Path, values: list[bytes], end: int) -> Path:
    """Make the log dir of a broker that has these values of events, and an empty local log at offset *end*."""
    events = b"".join(
        batch([Record(at + row, 1, None, value) for row, value in enumerate(values[at : at + 100])], base_offset=at)
        for at in range(0, len(values), 100)
    )
    for name, first, content in (("__remote_log_metadata-0", 0, events), ("topic-0", end, b"")):
        (data / name).mkdir(parents=True)
        (data / name / f"{first:020}.log").write_bytes(content)
    (data / "topic-0/leader-epoch-checkpoint").write_bytes(EPOCHS)
    (data / "topic-0/partition.metadata").write_text(f"version: 0\ntopic_id: {WHOSE.topic_id}")
    (data / "log-start-offset-checkpoint").write_text("0\n1\ntopic 0 0\n")
    return data


class EndlessDisk(Disk):
    """Kills the fetch when all is there, before it deletes its journal."""

    def unlink(self, path: str) -> None:
        if path.endswith(JOURNAL):
            raise KilledError(path)
        super().unlink(path)


def fetch_without_end(folder: Path) -> None:
    """Fetch all, and leave the journal."""
    query = RemoteQuery([str(folder / "data")], open_tier(str(folder / "tier")))
    with pytest.raises(KilledError):
        fetch_remote(query, FetchOptions(str(folder / "back")), Silence(), EndlessDisk())


def klog_fetch(folder: Path, *more: str) -> tuple[int, int]:
    """Run the command; return its exit code, and its largest size in bytes."""
    words = ("remote", "fetch", str(folder / "data"), "--remote", str(folder / "tier"), "--to", str(folder / "back"))
    ran = measured([sys.executable, "-m", "klog_cli.app", *words, *more], folder, seconds=900)
    return ran.exit_code, ran.rss


def test_a_range_of_a_hundred_thousand_segments(tmp_path: Path) -> None:
    made(tmp_path, MANY, complete=range(90_000, 90_010))
    code, rss = klog_fetch(tmp_path, "--from-offset", "90000", "--to-offset", "90010")
    assert (code, len(list((tmp_path / "back/topic-0").glob("*.log")))) == (0, 10)
    assert rss < MOST_BYTES


@pytest.mark.parametrize("count", [10_000, pytest.param(MANY, marks=pytest.mark.long)])
def test_all_segments_of_a_large_partition(tmp_path: Path, count: int) -> None:
    """With an open local log, whose indexes are rebuilt at the end; and once more behind a kill."""
    made(tmp_path, count, complete=range(count))
    most = CODE_BYTES + (MOST_BYTES - CODE_BYTES) * count // MANY
    for is_resumed in (False, True):
        if is_resumed:
            shutil.rmtree(tmp_path / "back")
            fetch_without_end(tmp_path)
        code, rss = klog_fetch(tmp_path)
        assert (code, sum(name.endswith(".log") for name in os.listdir(tmp_path / "back/topic-0"))) == (0, count + 1)
        assert rss < most, is_resumed
