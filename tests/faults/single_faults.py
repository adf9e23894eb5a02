"""One fault in one file of a log dir: what Kafka alone makes of it, and what after `klog verify` and `klog recover`."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.conftest import FIXTURES, Ran, run_klog, writable_copy
from tests.faults.lossy_mount import Unreadable, mounted
from tests.oracles.broker_load import MARKER, Loader, Outcome
from tests.oracles.plain.decode import Batch, scan
from tests.support.damage import EARLY_MS

STOPS = ("killed", "clean")
PARTITION = "tx-0"
BLOCK = 512
FILES = (
    f"{PARTITION}/*.log",
    f"{PARTITION}/*.index",
    f"{PARTITION}/*.timeindex",
    f"{PARTITION}/*.txnindex",
    f"{PARTITION}/*.snapshot",
    f"{PARTITION}/leader-epoch-checkpoint",
    f"{PARTITION}/partition.metadata",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
FAULTS: dict[str, Callable[[bytes], bytes]] = {
    "bit": lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 0x10]) + data[len(data) // 2 + 1 :],
    "zeros": lambda data: _block(data, bytes),
    "junk": lambda data: _block(data, Random(7).randbytes),
    "cut": lambda data: data[: len(data) * 2 // 3],
}
UNREADABLE = "unreadable"
"""The block at the middle cannot be read (EIO) as long as the file is this one: on a file system of the tests' own."""
PAGE = 4096


def _block(data: bytes, content: Callable[[int], bytes]) -> bytes:
    """Return a file in which the block at its middle has another content."""
    start = len(data) // 2 // BLOCK * BLOCK
    return data[:start] + content(min(BLOCK, len(data) - start)) + data[start + BLOCK :]


def log_dir(folder: Path, stop: str) -> Path:
    """Return the files of a log dir that has one partition, as a kind of stop left it."""
    folder.mkdir()
    for path in (FIXTURES / "modern").iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    if stop == "killed":
        (folder / MARKER).unlink()
        (folder / "recovery-point-offset-checkpoint").write_text(f"0\n1\n{PARTITION[:-2]} 0 0\n")
    (folder / "cleaner-offset-checkpoint").write_text(f"0\n1\n{PARTITION[:-2]} 0 0\n")
    writable_copy(FIXTURES / "modern" / PARTITION, folder / PARTITION)
    return folder


def records(data: Path) -> int:
    """Return how many records of the partition can be read, also where it was set aside."""
    logs = [_readable(path) for path in data.glob(f"{PARTITION}*/*.log")]
    return sum(len(one.records) for log in logs for one in scan(log) if isinstance(one, Batch))


def _readable(path: Path) -> bytes:
    """Return what can be read of a file, with zeros for the rest; the system reads it in pages."""
    pages = []
    with open(path, "rb", buffering=0) as file:
        for start in range(0, os.fstat(file.fileno()).st_size, PAGE):
            try:
                pages.append(os.pread(file.fileno(), PAGE, start))
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                pages.append(bytes(PAGE))
    return b"".join(pages)


@dataclass(frozen=True)
class Cell:
    """The result of one fault.

    *whole*, *alone*, *helped*: records before, after Kafka's start, and after its start on what klog has repaired.
    *did*, *did_helped*: how these starts ended.  *is_set_aside*: whether Kafka renamed the partition, and after klog.
    """

    file: str
    whole: int
    alone: int
    helped: int
    did: Outcome
    did_helped: Outcome
    verified: Ran
    planned: Ran
    recovered: Ran
    is_set_aside: tuple[bool, bool]


def play(folder: Path, pattern: str, fault: str, stop: str) -> Cell:
    """Damage a log dir in *folder*, and start Kafka on it, and on a copy that klog has repaired."""
    disks = [folder / "alone", folder / "helped"]
    if fault != UNREADABLE:
        file, whole = _damaged(disks[0], pattern, FAULTS[fault], stop)
        writable_copy(*disks)
        return _start(file, whole, *disks)
    sources = [folder / "alone's", folder / "helped's"]
    file, whole = _damaged(sources[0], pattern, lambda data: data, stop)
    writable_copy(*sources)
    start = file.stat().st_size // 2 // BLOCK * BLOCK
    bad = [Unreadable(str(file.relative_to(sources[0])), start, BLOCK)]
    with ExitStack() as mounts:
        for disk, source in zip(disks, sources, strict=True):
            disk.mkdir()
            mounts.enter_context(mounted(disk, source, folder / f"{disk.name}.calls", unreadable=bad))
        return _start(file, whole, *disks)


def _damaged(disk: Path, pattern: str, fault: Callable[[bytes], bytes], stop: str) -> tuple[Path, int]:
    """Make a log dir on an empty disk, with a fault in its largest file of a kind; return that, and all records."""
    disk.mkdir()
    data = log_dir(disk / "data", stop)
    whole = records(data)
    file = max(data.glob(pattern), key=lambda path: path.stat().st_size)
    before = file.read_bytes()
    assert before, file
    file.write_bytes(fault(before))
    return file, whole


def _start(file: Path, whole: int, *disks: Path) -> Cell:
    alone, helped = (disk / "data" for disk in disks)
    verified = run_klog("verify", helped)
    planned = run_klog("recover", helped, f"--now={EARLY_MS}")
    recovered = run_klog("recover", helped, f"--now={EARLY_MS}", "--apply")
    with Loader() as loader:
        did, did_helped = (loader.load(one, now_ms=EARLY_MS) for one in (alone, helped))
    aside = bool(list(alone.glob("*-stray"))), bool(list(helped.glob("*-stray")))
    return Cell(file.name, whole, records(alone), records(helped), did, did_helped, verified, planned, recovered, aside)
