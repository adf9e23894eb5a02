"""The options of a repair, and its result for a partition."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from klog.change.plan.model import NOTHING, Amount, Loss
from klog.cluster.metadata.topic_config import Setting
from klog.data_dir.partition import Partition
from klog.formats.names import FileKind
from klog.formats.snapshot import PRODUCER_ID_EXPIRATION_MS
from klog.partition.start.start_files import ReadSettings
from klog.partition.verify.findings import Finding


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
    log dir's checkpoints; None removes a line.  *choices*: if damage is left, the costs of the other ways.  *settings*:
    the topic's settings that affect the content of an index.
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
        self.notes: list[str] = []
        self.settings: Mapping[str, Setting] = {}
