"""The result of a broker's start, as plain data: steps, log dirs, partitions, losses, and next steps."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from klog.cluster.coordinator.due_offsets import DueOffsets
from klog.formats.names import FileKind
from klog.partition.retention.due_records import DueRecords
from klog.partition.start.start_reasons import CHECKPOINT_NUMBER, WATERMARK_NUMBER, StartFailure, StartNote


class KafkaVersion(StrEnum):
    """A version whose start is known: 4.3 represents all of 4.x, 3.9 KRaft before it, 2.8 brokers with ZooKeeper."""

    V4_3 = "4.3"
    V3_9 = "3.9"
    V2_8 = "2.8"

    @property
    def is_kraft(self) -> bool:
        """Whether a metadata log contains the broker's partitions."""
        return self is not KafkaVersion.V2_8


class LogDirState(StrEnum):
    """The result for a log dir: `LOADS`; `OFFLINE`: the broker continues without it; `FATAL`: it stops the broker."""

    LOADS = "loads"
    OFFLINE = "offline"
    FATAL = "fatal"
    UNREACHED = "unreached"


class Fate(StrEnum):
    """The result for a directory that names a partition, or for a partition without one."""

    SERVES = "serves"
    EMPTIES = "empties"
    STRAYS = "strays"
    CREATES = "creates"
    PROMOTES = "promotes"
    REPLACED = "replaced"
    DELETES = "deletes"
    KEEPS = "keeps"
    MOVES = "moves"
    LEADERLESS = "leaderless"
    OFFLINE = "offline"
    UNREACHED = "unreached"
    REFUSES = "refuses"
    FORGETS_REMOTE = "forgets-remote"
    HIDES_REMOTE = "hides-remote"


HARMLESS = frozenset({Fate.SERVES, Fate.CREATES, Fate.PROMOTES, Fate.REPLACED, Fate.MOVES, Fate.KEEPS})
"""The results that need no step, if nothing is lost."""

SERVED = frozenset({Fate.SERVES, Fate.LEADERLESS, Fate.EMPTIES, Fate.PROMOTES, Fate.HIDES_REMOTE})
"""Fates after which a directory is the partition."""


class LogDirFate(NamedTuple):
    """A log dir: its result and the reason.  *clean*: it has the marker.  *lock*: free, held, unknown."""

    path: str
    fate: LogDirState
    reason: str | None
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    clean: bool
    lock: str


class StartStep(NamedTuple):
    """A step of the start, in the broker's order; *fate*: `ok`, or the id of the fault."""

    step: str
    fate: str
    message: str


GOES_WITH_ITS_LOG_DIR: Final = "its log dir goes offline"
"""The message of a partition with which nothing is wrong but that."""


class PartitionFate(NamedTuple):
    """A directory that names a partition, or a partition without one (*directory* None).

    *topic_id*: from `partition.metadata`.  *becomes*: the directory with the partition's name afterwards, if not this
    one.  *log_start*, *log_end*: after the start, over both tiers.  *records*: intact data records between them in the
    log dir, None: not counted.  *lost_records*, *lost_bytes*: those that are unreadable through this partition after
    the start and its delays; in remote storage offsets are counted.
    """

    topic: str
    partition: int
    topic_id: str | None
    log_dir: str | None
    directory: str | None
    fate: Fate
    reason: str | None = None
    becomes: str | None = None
    log_start: int | None = None
    log_end: int | None = None
    records: int | None = None
    lost_records: int = 0
    lost_bytes: int = 0
    message: str = ""

    @property
    def goes_with_its_log_dir(self) -> bool:
        """Whether it goes offline, and nothing is wrong with the partition itself."""
        return self.fate is Fate.OFFLINE and self.message == GOES_WITH_ITS_LOG_DIR


class RecoveryWork(NamedTuple):
    """The data that a start reads after an unclean stop.  *seconds*: the least and the most time for it."""

    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)


class NextStep(NamedTuple):
    """A step on the way to a start that loses nothing: a *command*, or a sentence about an action outside of klog."""

    command: str | None
    manual: str | None
    why: str


INDEX_WRONG = "index-wrong"
"""The reason of a partition whose consumers and followers skip records."""

TXN_INDEX_WRONG = "txn-index-wrong"
"""The reason of a partition that serves aborted records, or hides committed ones."""

HANGING = "transaction-hanging"
"""The reason of a partition with an open transaction that nothing ends."""

TORN_TAIL = "torn-tail"
"""The reason of a partition to which new records are appended where no client can read them."""

COPY_DAMAGED = "copy-damaged"
"""The reason of an unfinished copy that replaces a partition of which it lacks records."""

_LATER_HARM = (INDEX_WRONG, TXN_INDEX_WRONG, HANGING, TORN_TAIL, "future-beside-current")
"""Reasons of partitions with which the broker starts and loses nothing, but harms them or stops later."""

UNSAFE_NOTES = frozenset({"metadata-log-damaged", "metadata-log-behind"})
"""Ids of notes that exclude the statement that nothing will be lost."""


class Diagnosis(NamedTuple):
    """The whole answer.  *is_whole_way*: after *next* it starts and loses nothing, as far as the disk shows.

    *retention*: the removals of the first retention pass after the start; *offsets*: the committed offsets that
    coordinators remove at their first check.  *notes* have a sentence about both.
    *tier*: the place of remote storage, for commands.
    """

    version: KafkaVersion
    failure: StartFailure | None
    log_dirs: tuple[LogDirFate, ...]
    steps: tuple[StartStep, ...]
    partitions: tuple[PartitionFate, ...]
    recovery: RecoveryWork
    notes: tuple[StartNote, ...] = ()
    next: tuple[NextStep, ...] = ()
    is_whole_way: bool = True
    retention: tuple[DueRecords, ...] = ()
    offsets: tuple[DueOffsets, ...] = ()
    tier: str = "TIER"

    @property
    def starts(self) -> bool:
        """Whether the broker starts."""
        return self.failure is None

    @property
    def loses(self) -> int:
        """How many records are lost in all."""
        return sum(row.lost_records for row in self.partitions)

    @property
    def unsafe(self) -> tuple[str, ...]:
        """The ids of notes about possible later losses."""
        return tuple(note.id for note in self.notes if note.id in UNSAFE_NOTES)

    @property
    def is_harmless(self) -> bool:
        """Whether it starts, loses nothing, then and as far as known later, and sets nothing aside."""
        return (
            self.starts
            and not self.loses
            and not self.unsafe
            and all(one.fate is LogDirState.LOADS for one in self.log_dirs)
            and all(row.fate in HARMLESS and row.reason not in _LATER_HARM for row in self.partitions)
        )


def as_unreached(row: PartitionFate) -> PartitionFate:
    """Return the row for a start that stops: it contains only the faults that stop it."""
    if row.fate is Fate.REFUSES:
        return row
    if row.fate is Fate.OFFLINE and not row.goes_with_its_log_dir:
        return row._replace(fate=Fate.REFUSES)
    return row._replace(
        fate=Fate.UNREACHED, reason=None, becomes=None, records=None, lost_records=0, lost_bytes=0, message=""
    )


def unread_number(kind: FileKind, message: str) -> StartNote:
    """Return the note about a checkpoint with a number that is none.

    Kafka catches the exception for all but high watermarks, which it reads when it becomes leader or follower.
    """
    if kind is FileKind.HIGH_WATERMARKS:
        return StartNote(
            WATERMARK_NUMBER, f"{message}; the broker then becomes leader or follower of hardly any partition"
        )
    return StartNote(CHECKPOINT_NUMBER, f"{message}; the broker ignores the file")
