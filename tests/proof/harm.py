"""Harm to disks: bits, cuts, losses, and files of an older copy."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

CHECKPOINTS = ("recovery-point", "replication", "log-start", "cleaner")
MARKER = ".kafka_cleanshutdown"
METADATA = "__cluster_metadata-0"


def flip(path: Path, chance: random.Random) -> str:
    """Flip a bit of a file that has content."""
    content = bytearray(path.read_bytes())
    if not content:
        return ""
    at = chance.randrange(len(content))
    content[at] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return f"bit flipped in {path.parent.name}/{path.name} @ {at}"


def _segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def _remove(directory: Path, base: str) -> None:
    for path in directory.glob(f"{base}.*"):
        path.unlink()


# of a partition


def bit_of_log(directory: Path, chance: random.Random) -> str:
    return flip(chance.choice(_segments(directory)), chance)


def bit_beside(directory: Path, chance: random.Random) -> str:
    beside = [path for path in directory.iterdir() if path.suffix != ".log" and path.name != "partition.metadata"]
    return flip(chance.choice(sorted(beside)), chance) if beside else ""


def tail_cut(directory: Path, chance: random.Random) -> str:
    path = _segments(directory)[-1]
    content = path.read_bytes()
    kept = chance.randrange(len(content) + 1)
    path.write_bytes(content[:kept])
    return f"{path.parent.name}/{path.name} cut to {kept} of {len(content)} bytes"


def segment_cut(directory: Path, chance: random.Random) -> str:
    path = chance.choice(_segments(directory))
    content = path.read_bytes()
    kept = chance.randrange(len(content) + 1)
    path.write_bytes(content[:kept])
    return f"{path.parent.name}/{path.name} cut to {kept} of {len(content)} bytes"


def tail_zeroed(directory: Path, chance: random.Random) -> str:
    path = _segments(directory)[-1]
    content = path.read_bytes()
    kept = chance.randrange(len(content) + 1)
    path.write_bytes(content[:kept].ljust(len(content), b"\0"))
    return f"{path.parent.name}/{path.name} is zeros from {kept} on"


def head_lost(directory: Path, chance: random.Random) -> str:
    names = [path.stem for path in _segments(directory)]
    if len(names) < 2:
        return ""
    lost = names[: chance.randrange(1, len(names))]
    for base in lost:
        _remove(directory, base)
    return f"{directory.name} has lost its segments up to {int(lost[-1])}"


def segment_lost(directory: Path, chance: random.Random) -> str:
    names = [path.stem for path in _segments(directory)]
    if len(names) < 2:
        return ""
    base = chance.choice(names)
    _remove(directory, base)
    return f"{directory.name} has lost segment {int(base)}"


def indexes_lost(directory: Path, chance: random.Random) -> str:
    for path in directory.glob(chance.choice(("*.index", "*.timeindex", "*.txnindex", "*index"))):
        path.unlink()
    return f"{directory.name} has lost indexes"


def snapshots_lost(directory: Path, chance: random.Random) -> str:
    for path in directory.glob("*.snapshot"):
        path.unlink()
    return f"{directory.name} has lost its producer snapshots"


def epochs_lost(directory: Path, chance: random.Random) -> str:
    (directory / "leader-epoch-checkpoint").unlink(missing_ok=True)
    return f"{directory.name} has lost leader-epoch-checkpoint"


def topic_id_lost(directory: Path, chance: random.Random) -> str:
    (directory / "partition.metadata").unlink(missing_ok=True)
    return f"{directory.name} has lost partition.metadata"


def directory_lost(directory: Path, chance: random.Random) -> str:
    shutil.rmtree(directory)
    return f"{directory.name} is gone"


Harm = Callable[[Path, random.Random], str]
OF_PARTITION: tuple[Harm, ...] = (
    *(
        bit_of_log,
        bit_of_log,
        bit_of_log,
        bit_beside,
        tail_cut,
        tail_cut,
        segment_cut,
        tail_zeroed,
        head_lost,
        head_lost,
    ),
    *(segment_lost, indexes_lost, snapshots_lost, epochs_lost, topic_id_lost, directory_lost),
)


# of a log dir


def marker_lost(disk: Path, chance: random.Random) -> str:
    if not (disk / MARKER).exists():
        return ""
    (disk / MARKER).unlink()
    return f"{disk.parent.name}/{disk.name} has lost its clean-shutdown marker"


def checkpoint_lost(disk: Path, chance: random.Random) -> str:
    name = f"{chance.choice(CHECKPOINTS)}-offset-checkpoint"
    (disk / name).unlink(missing_ok=True)
    return f"{disk.parent.name}/{disk.name} has lost {name}"


def checkpoint_bit(disk: Path, chance: random.Random) -> str:
    return flip(disk / f"{chance.choice(CHECKPOINTS)}-offset-checkpoint", chance)


def checkpoint_old(disk: Path, chance: random.Random, early: Path) -> str:
    name = f"{chance.choice(CHECKPOINTS)}-offset-checkpoint"
    shutil.copy2(early / name, disk / name)
    return f"{disk.parent.name}/{disk.name} has an old {name}"


OF_LOG_DIR: tuple[Harm, ...] = (marker_lost, marker_lost, checkpoint_lost, checkpoint_bit)


# of a metadata log


def metadata_lost(disk: Path, chance: random.Random, early: Path) -> str:
    shutil.rmtree(disk / METADATA)
    return f"{disk.parent.name} has lost its metadata log"


def metadata_old(disk: Path, chance: random.Random, early: Path) -> str:
    shutil.rmtree(disk / METADATA)
    shutil.copytree(early / METADATA, disk / METADATA)
    return f"{disk.parent.name} has a metadata log of before"


def metadata_bit(disk: Path, chance: random.Random, early: Path) -> str:
    return flip(max((disk / METADATA).glob("*.log")), chance)


def metadata_cut(disk: Path, chance: random.Random, early: Path) -> str:
    return tail_cut(disk / METADATA, chance)


MetadataHarm = Callable[[Path, random.Random, Path], str]
OF_METADATA: tuple[MetadataHarm, ...] = (metadata_lost, metadata_old, metadata_old, metadata_bit, metadata_cut)
