"""The kinds of damage in random cases, each a function of chance and a partition directory."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import crc32c

LOGS, INDEXES = ("*.log",), ("*.index", "*.timeindex", "*.txnindex")
RECOVERY_POINTS, LOG_STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"
CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, "replication-offset-checkpoint", "cleaner-offset-checkpoint")
# Header fields of batches by position and size.  The first four of a v2 batch are outside its CRC.
FIELDS = {
    "base offset": (0, 8), "length": (8, 4), "leader epoch": (12, 4), "magic": (16, 1), "crc": (17, 4),
    "attributes": (21, 2), "last offset delta": (23, 4), "first timestamp": (27, 8), "max timestamp": (35, 8),
    "producer id": (43, 8), "producer epoch": (51, 2), "sequence": (53, 4), "count": (57, 4),
}  # fmt: skip
LEGACY_FIELDS = {"offset": (0, 8), "size": (8, 4), "crc": (12, 4), "magic": (16, 1), "attributes": (17, 1)}


# where things are


def logs(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def within(chance: random.Random, partition: Path) -> int:
    """Return an offset of the partition's, often the base of a segment."""
    bases = [int(log.stem) for log in logs(partition)]
    return chance.choice(bases) + chance.choice((0, 0, 1, 7))


def _batches(log: Path) -> list[tuple[int, int]]:
    """Return position and size of the batches, as far as their lengths make sense."""
    data, at, found = log.read_bytes(), 0, []
    while at + 17 <= len(data) and 14 <= (length := struct.unpack_from(">i", data, at + 8)[0]) <= len(data) - at - 12:
        found.append((at, length + 12))
        at += length + 12
    return found


def _any_log(chance: random.Random, partition: Path) -> Path:
    """Return a log, the last one more often than others."""
    found = logs(partition)
    return chance.choice((found[-1], chance.choice(found)))


def _any(chance: random.Random, partition: Path, patterns: Sequence[str]) -> Path:
    """Return a file of these kinds; the epoch checkpoint where there is none."""
    found = sorted(path for pattern in patterns for path in partition.glob(pattern))
    return chance.choice(found) if found else partition / "leader-epoch-checkpoint"


def _edit(path: Path, change: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes() if path.exists() else b"")
    change(content)
    path.write_bytes(content)


def _flip(chance: random.Random, path: Path, start: int = 0, end: int | None = None) -> None:
    content = bytearray(path.read_bytes())
    if content[start:end]:
        content[chance.randrange(start, len(content) if end is None else end)] ^= 1 << chance.randrange(8)
        path.write_bytes(content)


def set_entry(checkpoint: Path, partition: Path, value: int | None) -> None:
    """Write a partition's entry into a checkpoint of the log dir; None leaves it as it is."""
    if value is None:
        return
    topic, number = partition.name.rsplit("-", 1)
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    lines = [line for line in lines if not line.startswith(f"{topic} {number} ")]
    lines.append(f"{topic} {number} {value}")
    checkpoint.write_text("".join(f"{line}\n" for line in ("0", len(lines), *lines)))


# logs


def flipped_bit(chance: random.Random, partition: Path) -> None:
    _flip(chance, _any_log(chance, partition))


def flipped_field(chance: random.Random, partition: Path) -> None:
    """One bit of one header field; of a v2 batch half of the time with a CRC that holds again."""
    log = _any_log(chance, partition)
    if not (found := _batches(log)):
        return
    at, size = chance.choice(found)
    new = log.read_bytes()[at + 16] == 2
    start, width = chance.choice(list((FIELDS if new else LEGACY_FIELDS).values()))
    _flip(chance, log, at + start, at + start + width)
    if new and chance.random() < 0.5:
        _edit(log, lambda data: _seal(data, at, size))


def _seal(data: bytearray, at: int, size: int) -> None:
    struct.pack_into(">I", data, at + 17, crc32c.crc32c(bytes(data[at + 21 : at + size])))


def cut(chance: random.Random, partition: Path) -> None:
    """The cut is at a batch, near one, or anywhere."""
    log = _any_log(chance, partition)
    size = log.stat().st_size
    ends = [at + chance.choice((0, 5, 12, 17, 30)) for at, _ in _batches(log)] or [0]
    _edit(
        log,
        lambda data: data.__delitem__(
            slice(min(chance.choice((chance.choice(ends), chance.randint(0, size))), size), None)
        ),
    )


def zeroed_range(chance: random.Random, partition: Path) -> None:
    _overwritten(chance, partition, lambda size: bytes(size))


def garbage_range(chance: random.Random, partition: Path) -> None:
    _overwritten(chance, partition, chance.randbytes)


def _overwritten(chance: random.Random, partition: Path, content: Callable[[int], bytes]) -> None:
    log = _any_log(chance, partition)
    size = log.stat().st_size
    start = chance.choice((chance.randint(0, size), chance.randint(0, size) // 512 * 512))
    end = chance.choice((size, min(size, start + chance.choice((1, 40, 512, 4096)))))
    _edit(log, lambda data: data.__setitem__(slice(start, end), content(end - start)))


def appended(chance: random.Random, partition: Path) -> None:
    """Zeros, garbage, or a batch of another partition behind the last batch."""
    other = _any_log(
        chance, chance.choice(sorted(path for path in partition.parent.iterdir() if any(path.glob("*.log"))))
    )
    foreign = [other.read_bytes()[at : at + size] for at, size in _batches(other)] or [b"?"]
    tail = chance.choice(
        (bytes(chance.choice((1, 13, 4096))), chance.randbytes(chance.randint(1, 300)), chance.choice(foreign))
    )
    _edit(_any_log(chance, partition), lambda data: data.extend(tail))


def batch_dealt_anew(chance: random.Random, partition: Path) -> None:
    """A batch removed, doubled, or moved."""
    log = _any_log(chance, partition)
    data = log.read_bytes()
    found = [data[at : at + size] for at, size in _batches(log)]
    if not found:
        return
    one = chance.randrange(len(found))
    batch = found[one]
    what = chance.choice(("removed", "doubled", "moved"))
    if what != "doubled":
        del found[one]
    if what != "removed":
        found.insert(chance.randint(0, len(found)), batch)
    log.write_bytes(b"".join(found))


def segment_gone(chance: random.Random, partition: Path) -> None:
    """Remove all of its files, or its log alone."""
    log = chance.choice(logs(partition))
    for path in sorted(partition.glob(f"{log.stem}.*")) if chance.random() < 0.6 else [log]:
        path.unlink()


def segment_emptied(chance: random.Random, partition: Path) -> None:
    _any_log(chance, partition).write_bytes(b"")


def segment_begun(chance: random.Random, partition: Path) -> None:
    """A roll that had only made the log."""
    last = logs(partition)[-1]
    (partition / f"{int(last.stem) + chance.choice((1, 500)):020}.log").touch()


def offsets_overflow(chance: random.Random, partition: Path) -> None:
    """Batches from one on whose offsets are too large for the segment: it has to be split."""
    log = _any_log(chance, partition)
    found = _batches(log)
    first = chance.randrange(len(found)) if found else 0

    def raise_offsets(data: bytearray) -> None:
        for at, _ in found[first:]:
            struct.pack_into(">q", data, at, struct.unpack_from(">q", data, at)[0] % 2**62 + 2**31)

    _edit(log, raise_offsets)


# indexes


def index_flipped(chance: random.Random, partition: Path) -> None:
    _flip(chance, _any(chance, partition, INDEXES))


def index_missing(chance: random.Random, partition: Path) -> None:
    _any(chance, partition, INDEXES).unlink(missing_ok=True)


def index_cut(chance: random.Random, partition: Path) -> None:
    path = _any(chance, partition, INDEXES)
    _edit(path, lambda data: data.__delitem__(slice(chance.randint(0, len(data)), None)))


def index_replaced(chance: random.Random, partition: Path) -> None:
    """Replace an index by zeros, garbage, or another segment's of its kind."""
    path = _any(chance, partition, INDEXES)
    size = path.stat().st_size if path.exists() else 0
    other = _any(chance, partition, [f"*{path.suffix}"]) if path.suffix else path
    path.write_bytes(
        chance.choice((bytes(size), chance.randbytes(size), other.read_bytes() if other.exists() else b""))
    )


def index_longer(chance: random.Random, partition: Path) -> None:
    """Lengthen it as preallocated, by some bytes, or with its last entry twice."""
    path = _any(chance, partition, INDEXES)
    _edit(path, lambda data: data.extend(chance.choice((bytes(16384), bytes(5), bytes(data[-12:])))))


# producer snapshots, leader epochs, identity


def snapshot_spoilt(chance: random.Random, partition: Path) -> None:
    """One is flipped, cut, missing, or another offset's; or all are missing."""
    found = sorted(partition.glob("*.snapshot"))
    if not found:
        (partition / f"{within(chance, partition):020}.snapshot").write_bytes(chance.randbytes(chance.choice((0, 60))))
        return
    one = chance.choice((found[-1], chance.choice(found)))
    what = chance.choice(("flipped", "cut", "missing", "renamed", "all missing"))
    if what == "flipped":
        _flip(chance, one)
    elif what == "cut":
        _edit(one, lambda data: data.__delitem__(slice(chance.randint(0, len(data)), None)))
    elif what == "renamed":
        one.rename(partition / f"{within(chance, partition):020}.snapshot")
    else:
        for path in found if what == "all missing" else [one]:
            path.unlink()


def epochs_edited(chance: random.Random, partition: Path) -> None:
    """The checkpoint is missing, empty, or has other entries, in any order."""
    path = partition / "leader-epoch-checkpoint"
    what = chance.randrange(5)
    if what == 0:
        path.unlink(missing_ok=True)
    elif what == 1:
        path.write_bytes(b"")
    else:
        lines = [f"{chance.choice((0, 1, 2, 5, 90))} {within(chance, partition)}" for _ in range(chance.randint(0, 4))]
        count = len(lines) + (1 if what == 2 else 0)
        path.write_text("".join(f"{line}\n" for line in ("0", count, *lines)))


def epochs_flipped(chance: random.Random, partition: Path) -> None:
    path = partition / "leader-epoch-checkpoint"
    if path.exists():
        _flip(chance, path)


def identity_spoilt(chance: random.Random, partition: Path) -> None:
    path = partition / "partition.metadata"
    if chance.random() < 0.5:
        path.unlink(missing_ok=True)
    elif path.exists():
        _flip(chance, path)


# checkpoints of the log dir


def checkpoint_entry_moved(chance: random.Random, partition: Path) -> None:
    end = int(logs(partition)[-1].stem)
    value = chance.choice((0, within(chance, partition), within(chance, partition), end, end + 1, end + 10_000))
    set_entry(
        partition.parent / chance.choice((RECOVERY_POINTS, LOG_STARTS, LOG_STARTS, *CHECKPOINTS)), partition, value
    )


def checkpoint_spoilt(chance: random.Random, partition: Path) -> None:
    """Missing, empty, cut, or one bit flipped."""
    path = partition.parent / chance.choice(CHECKPOINTS)
    what = chance.randrange(4)
    if what == 0 or not path.exists():
        path.unlink(missing_ok=True)
    elif what == 1:
        path.write_bytes(b"")
    elif what == 2:
        _edit(path, lambda data: data.__delitem__(slice(chance.randint(0, len(data)), None)))
    else:
        _flip(chance, path)


# leftovers of interrupted work of a broker


def swap_left(chance: random.Random, partition: Path) -> None:
    """A segment, or two in one log, staged to replace the old ones; some of it may be `.cleaned` yet."""
    found = logs(partition)
    first = chance.randrange(len(found))
    together = found[first : first + chance.choice((1, 2))]
    content = {".log": b"".join(log.read_bytes() for log in together)}
    for suffix in (".index", ".timeindex", ".txnindex"):
        path = together[0].with_suffix(suffix)
        if path.exists() and chance.random() < 0.9:
            content[suffix] = path.read_bytes()
    stage = chance.choice((".swap", ".swap", ".swap", ".cleaned"))
    for suffix, data in content.items():
        ending = stage if chance.random() < 0.9 else chance.choice((".cleaned", ""))
        (partition / f"{found[first].stem}{suffix}{ending}").write_bytes(data)
    for log in together:
        if chance.random() < 0.3:
            log.rename(f"{log}.deleted")


def file_renamed(chance: random.Random, partition: Path) -> None:
    """Rename any file of a segment, to a name of an interrupted operation."""
    path = _any(chance, partition, (*LOGS, *INDEXES, "*.snapshot"))
    if path.exists():
        path.rename(f"{path}{chance.choice(('.deleted', '.cleaned', '.swap'))}")


def leftover_added(chance: random.Random, partition: Path) -> None:
    """Add a file that a broker deletes, or ignores."""
    base = f"{within(chance, partition):020}"
    endings = (
        "log.deleted",
        "log.cleaned",
        "index.swap",
        "txnindex",
        "timeindex",
        "snapshot.deleted",
        "index",
        "notes",
    )
    names = [f"{base}.{ending}" for ending in endings]
    (partition / chance.choice([*names, "leader-epoch-checkpoint.tmp"])).write_bytes(
        chance.randbytes(chance.choice((0, 0, 68)))
    )


def folder_marked(chance: random.Random, partition: Path) -> None:
    """A partition that was being deleted, moved in, or had been set aside."""
    identity = uuid.UUID(bytes=chance.randbytes(16)).hex
    partition.rename(partition.with_name(f"{partition.name}.{identity}-{chance.choice(('delete', 'future', 'stray'))}"))


KINDS: tuple[Callable[[random.Random, Path], None], ...] = (
    flipped_bit, flipped_field, cut, zeroed_range, garbage_range, appended, batch_dealt_anew, segment_gone,
    segment_emptied, segment_begun, offsets_overflow, index_flipped, index_missing, index_cut, index_replaced,
    index_longer, snapshot_spoilt, epochs_edited, epochs_flipped, identity_spoilt, checkpoint_entry_moved,
    checkpoint_spoilt, swap_left, file_renamed, leftover_added, folder_marked,
)  # fmt: skip
OFTEN = (
    flipped_bit, flipped_field, flipped_field, cut, batch_dealt_anew, index_missing, snapshot_spoilt,
    checkpoint_entry_moved, swap_left,
)  # fmt: skip
"""The most frequent faults of real disks, or those with the most rules: picked twice as often, or three times."""
