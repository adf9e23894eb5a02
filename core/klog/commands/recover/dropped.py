"""The options of salvage, and the ranges that it drops, with their reasons."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import NamedTuple

from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage, DamageKind
from klog.log.reader import MAX_BATCH_BYTES
from klog.partition.verify.log_checks import IDS

MOST_STRETCHES = 1 << 20
"""A log with more damaged places than this is kept up to there: more would be too much to look through."""
MOST_PATCHES = 10_000
NEIGHBOURS = 64
"""The number of last batches that are remembered: more than a block of a disk, written to the wrong place, can hold."""
MOST_LEFT = 1000
"""How many are reported one by one for a segment."""
_MOST_COPIES = 1 << 20


class SalvageOptions(NamedTuple):
    """The options of salvage: *repair_bits*, repair single flipped bits.  No larger batch than *max_batch_bytes* is."""

    repair_bits: bool = False
    max_batch_bytes: int = MAX_BATCH_BYTES


@dataclass
class DroppedRange:
    """Something that is not kept, from byte *start* on.

    *reason*: the id of a finding.  *batches*, *records*: those whose checksums match.  *copies*, *copied_records*:
    how many of these are kept elsewhere.
    """

    start: int
    end: int
    reason: str
    detail: str
    batches: int = 0
    records: int = 0
    copies: int = 0
    copied_records: int = 0


class DroppedBatches:
    """Batches whose checksums match but which are not kept: enough of each to recognise a copy."""

    def __init__(self) -> None:
        self.offsets, self.keys, self.records, self.left = array("q"), array("Q"), array("q"), array("q")

    def add(self, facts: BatchFacts, left: int) -> None:
        """Add a batch of the remaining part number *left*."""
        if len(self.offsets) < _MOST_COPIES:
            self.offsets.append(facts.base_offset)
            self.keys.append(key(facts))
            self.records.append(records_in(facts))
            self.left.append(left)


def key(facts: BatchFacts) -> int:
    """Return the facts that copies of a batch share, besides their offset: checksum and size."""
    return facts.crc << 32 | facts.size


def records_in(facts: BatchFacts) -> int:
    """Return how many records a batch has according to its header; a message set counts as one."""
    return max(facts.records_count, 0) if facts.magic >= 2 else 1


def damage_id(damage: Damage, is_last: bool, size: int) -> str:
    """Return the id of the finding that *damage* is, in a log of *size* bytes; *is_last*: the partition's last one."""
    at_end = (damage.place.position or 0) + (damage.size or 0) >= size
    if damage.kind is DamageKind.ZEROED_TAIL and is_last and at_end:
        return "zero-tail"
    return IDS[damage.kind]
