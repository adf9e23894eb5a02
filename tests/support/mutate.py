"""Small files of real brokers, and their damage: cut at every length, one bit flipped, bytes overwritten."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import FIXTURES


@dataclass(frozen=True)
class Source:
    """A file to mutate, with the files beside it that a dump of it needs, and the flags to dump it with."""

    label: str
    name: str
    content: bytes
    beside: tuple[tuple[str, bytes], ...]
    flags: tuple[str, ...]


def whole_batches(log: bytes, limit: int, start: int = 0) -> bytes:
    """Return the batches of *log* from number *start* on that fit into *limit* bytes together, at least one."""
    position, found = 0, b""
    for number in range(1 << 30):
        if position + 12 > len(log):
            break
        (length,) = struct.unpack_from(">i", log, position + 8)
        batch = log[position : position + 12 + length]
        position += 12 + length
        if number < start:
            continue
        if found and len(found) + len(batch) > limit:
            break
        found += batch
    return found


def _log(folder: str, name: str, limit: int, *flags: str, start: int = 0) -> Source:
    content = whole_batches((FIXTURES / folder / name).read_bytes(), limit, start)
    return Source(f"{folder.split('/')[-1]}{'+' + str(start) if start else ''}", name, content, (), flags)


def _other(folder: str, name: str, *flags: str) -> Source:
    path = FIXTURES / folder / name
    beside: list[tuple[str, bytes]] = []
    if path.suffix in (".index", ".timeindex"):
        others = sorted({".log", ".index"} - {path.suffix})
        beside = [(path.stem + suffix, path.with_suffix(suffix).read_bytes()) for suffix in others]
    return Source(f"{folder.split('/')[-1]}{path.suffix}", name, path.read_bytes(), tuple(beside), flags)


SNAPSHOT = "00000000000000000089-0000000001.checkpoint"
FIRST = "00000000000000000000.log"
PRINT = "--print-data-log"


def sources() -> list[Source]:
    """Return one small file of every kind: each magic and codec, control batches, internal topics, the other files."""
    logs = [
        _log("modern/plain-2", FIRST, 900, PRINT, start=2),
        _log("modern/tx-0", "00000000000000000016.log", 800, PRINT),
        _log("modern/tx-0", "00000000000000000016.log", 300, "--deep-iteration", start=2),
        _log("modern/gzip-0", FIRST, 1200, PRINT, start=5),
        _log("modern/snappy-1", FIRST, 1200, PRINT, start=5),
        _log("modern/lz4-broker-0", FIRST, 1200, PRINT, start=5),
        _log("modern/zstd-0", FIRST, 1200, PRINT, start=5),
        _log("modern/logappend-0", FIRST, 900, PRINT, start=1),
        *(_log(f"legacy/v0-{codec}-0", FIRST, 700, PRINT) for codec in ("none", "gzip", "snappy", "lz4")),
        *(_log(f"legacy/v1-{codec}-0", FIRST, 700, PRINT) for codec in ("none", "gzip", "snappy", "lz4")),
        *(_log(f"legacy/v1-{codec}-0", FIRST, 500, "--deep-iteration") for codec in ("none", "gzip")),
        _log("legacy/v1-none-0", FIRST, 300, "--transaction-log-decoder"),
        _log("legacy/v0-snappy-0", FIRST, 500, "--cluster-metadata-decoder"),
        _log("legacy/v0-none-0", FIRST, 500, PRINT, "--skip-record-metadata"),
        _log("modern/plain-1", FIRST, 500, PRINT, "--skip-record-metadata", start=3),
        _log("legacy/v1-append-time-0", FIRST, 900, PRINT),
        _log("compaction/after/tx-later-0", "00000000000000000044.log", 900, PRINT),
        _log("compaction/after/keys-lz4-0", "00000000000000000144.log", 900, PRINT),
        _log("modern/__consumer_offsets-2", FIRST, 900, "--offsets-decoder"),
        _log("modern/__consumer_offsets-1", FIRST, 900, "--offsets-decoder", start=2),
        _log("modern/__share_group_state-1", FIRST, 900, "--share-group-state-decoder"),
        _log("modern/__transaction_state-1", FIRST, 900, "--transaction-log-decoder"),
        _log("modern/__cluster_metadata-0", FIRST, 1000, "--cluster-metadata-decoder"),
        _log("modern/__cluster_metadata-0", SNAPSHOT, 700, "--cluster-metadata-decoder"),
    ]
    others = [
        _other("modern/dense-0", "00000000000000000098.index"),
        _other("modern/dense-0", "00000000000000000098.timeindex"),
        _other("modern/dense-0", "00000000000000000098.index", "--index-sanity-check"),
        _other("modern/dense-0", "00000000000000000098.timeindex", "--index-sanity-check"),
        _other("modern/idempotent-0", "00000000000000000110.index", "--verify-index-only"),
        _other("legacy/v1-gzip-0", "00000000000000000000.index"),
        _other("legacy/v1-gzip-0", "00000000000000000000.timeindex"),
        _other("modern/tx-0", "00000000000000000130.snapshot"),
        _other("modern/tx-0", "00000000000000000016.txnindex"),
    ]
    return logs + others


def cuts(source: Source) -> Iterator[tuple[str, bytes]]:
    """Yield the file cut at every length."""
    for length in range(len(source.content)):
        yield f"cut at {length}", source.content[:length]


def flips(source: Source, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield the file with one bit flipped; every byte of the first header, then *count* places by chance."""
    chance = random.Random(f"{source.label} {source.name} {seed}")
    size = len(source.content)
    places = list(range(min(size, 70))) + [chance.randrange(size) for _ in range(count)]
    for place in places:
        bit = 1 << chance.randrange(8)
        mutated = bytearray(source.content)
        mutated[place] ^= bit
        yield f"bit {bit:#x} flipped at {place}", bytes(mutated)


def overwritten(source: Source, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield the file with zeros, ones or garbage over up to 40 bytes, or with bytes added at the end."""
    chance = random.Random(f"over {source.label} {source.name}")
    for _ in range(count):
        place, length = chance.randrange(len(source.content)), chance.choice((1, 2, 4, 8, 40))
        filling = chance.choice((bytes(length), b"\xff" * length, chance.randbytes(length)))
        mutated = source.content[:place] + filling + source.content[place + length :]
        yield f"{filling.hex()} over {place}", mutated[: len(source.content)]
    for length in (1, 11, 12, 16, 17, 18, 30, 61, 100, 4096):
        yield f"{length} zeros added", source.content + bytes(length)
        garbage = chance.randbytes(length)
        yield f"{length} bytes of garbage added", source.content + garbage


def put(source: Source, content: bytes, folder: Path) -> Path:
    """Write the mutated file and its untouched neighbours into *folder*."""
    for name, neighbour in source.beside:
        (folder / name).write_bytes(neighbour)
    path = folder / source.name
    path.write_bytes(content)
    return path
