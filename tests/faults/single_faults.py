"""One fault in one file of a log dir: what Kafka alone makes of it, and what after `klog verify` and `klog recover`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.conftest import FIXTURES, Ran, run_klog, writable_copy
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
    logs = [path.read_bytes() for path in data.glob(f"{PARTITION}*/*.log")]
    return sum(len(one.records) for log in logs for one in scan(log) if isinstance(one, Batch))


@dataclass(frozen=True)
class Cell:
    """What came of one fault.

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
    recovered: Ran
    is_set_aside: tuple[bool, bool]


def play(folder: Path, pattern: str, fault: str, stop: str) -> Cell:
    """Damage a log dir in *folder*, and let Kafka start on it, and on a copy that klog has repaired."""
    alone = log_dir(folder / "alone", stop)
    whole = records(alone)
    file = max(alone.glob(pattern), key=lambda path: path.stat().st_size)
    before = file.read_bytes()
    assert before, file
    file.write_bytes(FAULTS[fault](before))
    assert file.read_bytes() != before
    helped = writable_copy(alone, folder / "helped")
    verified = run_klog("verify", helped)
    recovered = run_klog("recover", helped, f"--now={EARLY_MS}", "--apply")
    with Loader() as loader:
        did, did_helped = (loader.load(one, now_ms=EARLY_MS) for one in (alone, helped))
    aside = bool(list(alone.glob("*-stray"))), bool(list(helped.glob("*-stray")))
    return Cell(file.name, whole, records(alone), records(helped), did, did_helped, verified, recovered, aside)
