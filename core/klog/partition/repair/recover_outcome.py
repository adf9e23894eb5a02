"""The options of a repair and of salvage, and the results: for a partition, and for each dropped range of a log."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from klog.change.plan.model import NOTHING, Amount, Loss
from klog.cluster.metadata.topic_config import Setting
from klog.data_dir.partition import Partition
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage, DamageKind
from klog.formats.names import FileKind
from klog.formats.producer_snapshot import PRODUCER_ID_EXPIRATION_MS
from klog.log.reader import MAX_BATCH_BYTES
from klog.partition.start.start_files import ReadSettings
from klog.partition.verify.findings import Finding
from klog.partition.verify.log_checks import IDS


class RecoverMode(StrEnum):
    """The rule about damage of a log: which part is kept."""

    DEFAULT = "default"
    """Everything: where that would cost an intact batch nothing is changed."""
    LIKE_BROKER = "like-broker"
    """Keep the part that a broker of 4.x keeps at its next start."""
    SALVAGE = "salvage"
    """Every intact batch, on either side of damage."""


class RecoverOptions(NamedTuple):
    """The options of a repair.

    *now_ms*, *expiration_ms*: producers idle for so long are forgotten, as in a broker.  *interval*, *index_bytes*:
    index.interval.bytes and segment.index.bytes.  *from_recovery_point*: the part below it is not read.
    *indexes_only*: logs are not changed.  *repair_bits*: repair single flipped bits.  *jobs*: threads.  *mark_clean*:
    write the clean-shutdown marker into log dirs; *registered*: with the broker's own epoch in it.
    """

    mode: RecoverMode
    now_ms: int
    expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    interval: int = 4096
    index_bytes: int = 10 << 20
    from_recovery_point: bool = False
    indexes_only: bool = False
    repair_bits: bool = False
    jobs: int = 1
    mark_clean: bool = False
    registered: bool = False

    @property
    def reading(self) -> ReadSettings:
        """The settings for playing a broker's start."""
        return ReadSettings(self.interval, self.index_bytes, self.jobs)


class OtherMode(NamedTuple):
    """The outcome of another mode of repair, for a partition."""

    losses: list[Loss]
    kept: Amount


class RecoverResult:
    """The result for a partition.

    *findings*: all of them; *left*: those that remain after the repair, and need action.  *losses*: the lost parts.
    *kept*, *broker_would_keep*: of its logs; the latter None if a broker would not start.  *fails*: the reason why
    this way of repair changes nothing here; *could_not*: the system refused something.  *offsets*: new values in the
    log dir's checkpoints; None removes a line.  *choices*: if damage is left, the costs of the other ways.
    *bit_repairs*: the costs of the ways that also repair bits, if that repairs one.  *settings*: the topic's settings
    that affect the content of an index.
    """

    def __init__(
        self,
        partition: Partition,
        findings: list[Finding] | None = None,
        fails: str | None = None,
        could_not: bool = False,
    ) -> None:
        self.partition, self.findings = partition, [] if findings is None else findings
        self.fails, self.could_not = fails, could_not
        self.left: list[Finding] = []
        self.losses: list[Loss] = []
        self.kept = NOTHING
        self.broker_would_keep: Amount | None = None
        self.offsets: Mapping[FileKind, int | None] = {}
        self.choices: Mapping[RecoverMode, OtherMode] = {}
        self.bit_repairs: Mapping[RecoverMode, OtherMode] = {}
        self.notes: list[str] = []
        self.settings: Mapping[str, Setting] = {}


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
    if damage.kind is DamageKind.ZEROED_TAIL and is_last and damage.end >= size:
        return "zero-tail"
    return IDS[damage.kind]
