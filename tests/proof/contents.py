"""The content of disks, read by the plain decoder: every record of every intact batch, whatever klog finds."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.oracles.plain.decode import Batch, scan
from tests.proof.ledger import Content, Ledger, Place

DIRECTORY = re.compile(r"(.+?)-(\d+)(?:\.[0-9a-f]{32}-(stray|delete|future))?(?:-(stray))?$")


@dataclass
class Found:
    """A partition's records on a disk, all but markers, by offset; a fork has the last one.

    *producers*: id and epoch of each record's.  *behind_damage*: records with damage before them in their segment; a
    flipped base offset, which no checksum covers, is damage, too.  *is_damaged*: whether a log is.
    """

    records: dict[int, Content] = field(default_factory=dict)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    behind_damage: set[int] = field(default_factory=set)
    is_damaged: bool = False

    def add(self, other: Found) -> None:
        """Take in what another file or disk has of the partition."""
        self.records |= other.records
        self.producers |= other.producers
        self.behind_damage |= other.behind_damage
        self.is_damaged = self.is_damaged or other.is_damaged


_decoded: dict[bytes, Found] = {}


def _decode(data: bytes) -> Found:
    digest = hashlib.sha256(data).digest()
    if digest not in _decoded:
        found = _decoded[digest] = Found()
        end = -1
        for batch in scan(data):
            found.is_damaged = found.is_damaged or not isinstance(batch, Batch) or batch.base_offset < end
            end = max(end, batch.last_offset + 1) if isinstance(batch, Batch) else end
            if isinstance(batch, Batch) and batch.magic == 2 and not batch.control and batch.fault is None:
                for record in batch.records:
                    found.records[record.offset] = record.key, record.value
                    found.producers[record.offset] = batch.producer_id, batch.producer_epoch
                found.behind_damage |= {record.offset for record in batch.records if found.is_damaged}
    return _decoded[digest]


def place_of(directory: Path, ledger: Ledger) -> Place | None:
    """Return the topic id and partition that a directory is of, None for those that are no topic's of the ledger."""
    match = DIRECTORY.match(directory.name)
    if match is None:
        return None
    try:
        identity = (directory / "partition.metadata").read_text().split("topic_id:")[1].strip()
    except (OSError, IndexError, UnicodeDecodeError):
        identity = next(
            (one.identity for one in ledger.topics.values() if one.name == match[1] and not one.is_deleted), ""
        )
    identity = ledger.aliases.get(identity, identity)
    return (identity, int(match[2])) if identity in ledger.topics else None


def directories(disk: Path, ledger: Ledger) -> list[tuple[Place, Path]]:
    """Return the directories of a log dir that are partitions of the ledger's topics."""
    found = ((place_of(path, ledger), path) for path in sorted(disk.glob("*-*")) if path.is_dir())
    return [(place, path) for place, path in found if place is not None]


def on_disk(disk: Path, ledger: Ledger) -> dict[Place, Found]:
    """Return the content of a log dir, by topic id and partition."""
    result: dict[Place, Found] = defaultdict(Found)
    for place, path in directories(disk, ledger):
        for log in sorted(path.glob("*.log")):
            result[place].add(_decode(log.read_bytes()))
    return result
