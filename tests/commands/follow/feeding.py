"""Logs as a leader sends them: batches in pieces, and copies that are fed with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from klog.commands.follow.copied_partition import CopiedPartition
from klog.commands.follow.copy_dir import CopyDir
from klog.data_dir.disk.disk_changes import Disk
from klog.partition.append.appender import AppendSettings

CLUSTER = "fXeC61JOQie3q2pvw8VSPQ"
TOPIC_ID = "PzrBv7lIQ9uTBvXnC8d4AA"


def logs_of(directory: Path) -> list[bytes]:
    """Return the content of each log of a partition, in order."""
    return [path.read_bytes() for path in sorted(directory.glob("*.log"))]


def answers(directory: Path, piece: Callable[[], int]) -> Iterator[bytes]:
    """Yield the batches of a partition as a leader answers one that takes up all whole batches: at most a piece.

    Answers never cross a segment; a first batch that is larger than the piece comes whole.
    """
    for log in logs_of(directory):
        position = 0
        while position < len(log):
            first = 12 + int.from_bytes(log[position + 8 : position + 12], "big")
            answer = log[position : position + max(piece(), first)]
            yield answer
            position += whole_bytes(answer)


def whole_bytes(answer: bytes) -> int:
    """Return the bytes of the whole batches that an answer begins with."""
    position = 0
    while position + 12 <= len(answer):
        size = 12 + int.from_bytes(answer[position + 8 : position + 12], "big")
        if position + size > len(answer):
            break
        position += size
    return position


def feed(copied: CopiedPartition, directory: Path, piece: Callable[[], int] = lambda: 1 << 20) -> None:
    """Append a whole log to a partition."""
    for answer in answers(directory, piece):
        assert copied.append(answer) == whole_bytes(answer)
    copied.set_high_watermark(copied.end)


@contextmanager
def open_copy(
    path: Path, directory: str, settings: AppendSettings, disk: Disk | None = None
) -> Iterator[tuple[CopyDir, CopiedPartition]]:
    """Yield a copy, and a partition of it."""
    with CopyDir(str(path), disk) as copy:
        copy.claim(CLUSTER, "broker:9092")
        topic, _, number = directory.rpartition("-")
        yield copy, copy.partition(topic, int(number), TOPIC_ID, settings)


def copy_of(
    source: Path, target: Path, settings: AppendSettings | None = None, piece: Callable[[], int] = lambda: 1 << 20
) -> Path:
    """Copy the partition directory *source* into the copy at *target*; return the directory of the copy."""
    with open_copy(target, source.name, settings or AppendSettings()) as (_, copied):
        feed(copied, source, piece)
    return target / source.name
