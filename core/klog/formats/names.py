"""Names of directories and files: how a broker parses and writes them.

    orders-3                                        partition 3 of topic orders
    orders-3.0f8fad5bd9cb469fa16570867728950e-delete    … waiting for its removal; also -future, -stray
    00000000000000001841.log                        the segment from offset 1841 on; .index, .timeindex, .txnindex
    00000000000000001900.snapshot                   producers as of offset 1900
    00000000000000001841.log.swap                   of an interrupted operation: .deleted, .cleaned, .swap, .tmp
    00000000000000000312-0000000007.checkpoint      KRaft: everything below offset 312, written in epoch 7

Brokers read more than they write: `x-+1` is partition 1, `5.log` is offset 5.  Such names are read here as a broker
reads them and are not `canonical`.  Names are `str` as `os.fsdecode` makes them, so undecodable bytes survive.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from klog.formats.java_integers import LONG_MAX
from klog.formats.java_text import parse_int, parse_long

CLUSTER_METADATA: Final = "__cluster_metadata"
"""Topic of the KRaft metadata log: in a log dir it belongs to the Raft layer, not to the log manager."""

INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
"""Topics in which the coordinators of a cluster keep their state.  Kafka: Topic.isInternal."""

REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
"""Directory in a log dir with copies of the indexes of tiered segments."""

_OFFSET_DIGITS = 20
_EPOCH_DIGITS = 10
_UNIQUE_DIGITS = 32
_INT_DIGITS = 10
_TOPIC_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_MAX_CLUSTER_ID = 255
_MAX_TOPIC = 249


class PartitionState(StrEnum):
    """The purpose of a partition directory."""

    CURRENT = "current"
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class PartitionName(NamedTuple):
    """A partition directory's name, taken apart.

    *unique_id* sets apart several leftovers of one partition; None for a current one.  *canonical*: a broker would
    have written exactly this.
    """

    name: str
    topic: str
    partition: int
    state: PartitionState
    unique_id: str | None
    canonical: bool


_STATES = {f"-{state.value}": state for state in PartitionState if state is not PartitionState.CURRENT}


@lru_cache(4096)
def parse_partition(name: str) -> PartitionName | None:
    """Parse the name of a partition directory; None if a broker would not start because of it.

    Kafka: LocalLog.parseTopicPartitionName.
    """
    state, unique_id, rest = PartitionState.CURRENT, None, name
    for suffix, marked in _STATES.items():
        if name.endswith(suffix):
            if not _is_marked_name(name[: -len(suffix)]):
                return None
            rest, _, unique_id = name[: -len(suffix)].rpartition(".")
            state = marked
    topic, _, number = rest.rpartition("-")
    is_usual = len(number) < _INT_DIGITS and number.isascii() and number.isdecimal()
    partition = int(number) if is_usual else parse_int(number)
    if not topic or partition is None:
        return None
    canonical = number == str(partition) and (unique_id is None or _is_unique_id(unique_id))
    return PartitionName(name, topic, partition, state, unique_id, canonical)


def _is_marked_name(text: str) -> bool:
    """Whether *text* reads `a-b.c`, no part empty and no blank anywhere: `^(\\S+)-(\\S+)\\.(\\S+)`."""
    if any(blank in text for blank in " \t\n\x0b\f\r"):
        return False
    dash = text.find("-", 1)
    return dash > 0 and text.rfind(".", dash + 2, len(text) - 1) > 0


def _is_unique_id(text: str) -> bool:
    return len(text) == _UNIQUE_DIGITS and set("0123456789abcdef").issuperset(text)


def topic_is_legal(topic: str) -> bool:
    """Whether a broker would create *topic*; it loads any other name too.  Kafka: Topic.validate."""
    return 0 < len(topic) <= _MAX_TOPIC and topic not in (".", "..") and _TOPIC_LETTERS.issuperset(topic)


def cluster_id_is_legal(cluster_id: str) -> bool:
    """Whether a line of `meta.properties` can contain *cluster_id* unchanged; brokers accept any text."""
    return len(cluster_id) <= _MAX_CLUSTER_ID and all("!" <= letter <= "~" for letter in cluster_id.replace("\\", " "))


class FileKind(StrEnum):
    """The kinds of files, by their names."""

    LOG = "log"
    INDEX = "index"
    TIME_INDEX = "timeindex"
    TXN_INDEX = "txnindex"
    SNAPSHOT = "snapshot"
    KRAFT_SNAPSHOT = "checkpoint"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    QUORUM_STATE = "quorum-state"
    RECOVERY_POINTS = "recovery-point-offset-checkpoint"
    HIGH_WATERMARKS = "replication-offset-checkpoint"
    LOG_STARTS = "log-start-offset-checkpoint"
    CLEANER_OFFSETS = "cleaner-offset-checkpoint"
    META_PROPERTIES = "meta.properties"
    BOOTSTRAP = "bootstrap.checkpoint"
    CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
    LOCK = ".lock"
    OTHER = "other"


class Stage(StrEnum):
    """Whether a file is in use, or part of an operation that adds or removes it.  The value is the suffix."""

    IN_USE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"
    SWAP = ".swap"
    PART = ".part"
    TMP = ".tmp"


class FileName(NamedTuple):
    """A file's name, taken apart.

    *offset*: a segment's base offset, a snapshot's end (exclusive); None if there is none or it is not a number,
    which in a partition's `.log` or `.snapshot` prevents a broker's start.  *epoch* is a KRaft snapshot's.
    *canonical*: a broker would have written exactly this.
    """

    name: str
    kind: FileKind
    stage: Stage = Stage.IN_USE
    offset: int | None = None
    epoch: int | None = None
    canonical: bool = True


SEGMENT_KINDS: Final = (FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)
"""The files of one segment, in the order in which brokers rename them."""

ROOT_CHECKPOINTS: Final = (
    FileKind.RECOVERY_POINTS,
    FileKind.HIGH_WATERMARKS,
    FileKind.LOG_STARTS,
    FileKind.CLEANER_OFFSETS,
)
"""The four text files of a log dir that give one offset for each partition."""

ROOT_KINDS: Final = frozenset(
    {*ROOT_CHECKPOINTS, FileKind.META_PROPERTIES, FileKind.BOOTSTRAP, FileKind.CLEAN_SHUTDOWN, FileKind.LOCK}
)
"""Files in a log dir itself."""

_NUMBERED = (*SEGMENT_KINDS, FileKind.SNAPSHOT)
_SEGMENT_STAGES = (Stage.IN_USE, Stage.DELETED, Stage.CLEANED, Stage.SWAP)
_WRITTEN = [(kind, stage) for kind in SEGMENT_KINDS for stage in _SEGMENT_STAGES]
_WRITTEN += [(FileKind.SNAPSHOT, Stage.IN_USE), (FileKind.SNAPSHOT, Stage.DELETED)]
_USUAL = {f".{kind.value}{stage.value}": (kind, stage) for kind, stage in _WRITTEN}
_SUFFIXES = [(stage.value, stage) for stage in Stage if stage is not Stage.IN_USE]
_FIXED = {kind.value: kind for kind in FileKind if kind not in (*_NUMBERED, FileKind.KRAFT_SNAPSHOT, FileKind.OTHER)}


@lru_cache(4096)  # most callers ask for the names of one directory, again and again
def parse_file(name: str) -> FileName:
    """Parse a file's name; kind OTHER for a name that no broker knows.  Kafka: LogFileUtils, Snapshots.parse."""
    usual, digits = _USUAL.get(name[_OFFSET_DIGITS:]), name[:_OFFSET_DIGITS]
    if usual and digits.isascii() and digits.isdigit() and int(digits) <= LONG_MAX:
        return FileName(name, *usual, int(digits))
    if name in _FIXED:
        return FileName(name, _FIXED[name])
    stage = next((stage for suffix, stage in _SUFFIXES if name.endswith(suffix)), Stage.IN_USE)
    stem = name[: len(name) - len(stage.value)]
    if stem in _FIXED:
        return FileName(name, _FIXED[stem], stage, canonical=stage is Stage.TMP)
    if stem.endswith(".checkpoint"):
        return _parse_kraft_snapshot(name, stem, stage)
    kind = next((kind for kind in _NUMBERED if stem.endswith(f".{kind.value}")), FileKind.OTHER)
    number, dot, _ = name.partition(".")
    return FileName(name, kind, stage, parse_long(number) if dot else None, canonical=False)


def _parse_kraft_snapshot(name: str, stem: str, stage: Stage) -> FileName:
    # The columns are fixed: 20 digits, any letter, 10 digits.
    end = _OFFSET_DIGITS + 1 + _EPOCH_DIGITS
    offset, epoch = parse_long(name[:_OFFSET_DIGITS]), parse_int(name[_OFFSET_DIGITS + 1 : end])
    if offset is None or epoch is None:
        return FileName(name, FileKind.KRAFT_SNAPSHOT, stage, canonical=False)
    random = stem[end:].removesuffix(".checkpoint")
    whole = random[:1] == "-" and random[1:].isdecimal() if stage is Stage.PART else not random
    canonical = whole and name.startswith(kraft_snapshot_name(offset, epoch)[:end])
    return FileName(name, FileKind.KRAFT_SNAPSHOT, stage, offset, epoch, canonical and stage in _KRAFT_STAGES)


_KRAFT_STAGES = (Stage.IN_USE, Stage.PART, Stage.DELETED)


def file_name(offset: int, kind: FileKind, stage: Stage = Stage.IN_USE) -> str:
    """Return the name a broker gives a segment's file or a producer snapshot.  Kafka: filenamePrefixFromOffset."""
    return f"{offset:020d}.{kind.value}{stage.value}"


def segment_names(offset: int) -> tuple[str, ...]:
    """Return the names of a segment's log and indexes, in the order of SEGMENT_KINDS."""
    return tuple(file_name(offset, kind) for kind in SEGMENT_KINDS)


def kraft_snapshot_name(end_offset: int, epoch: int) -> str:
    """Return the name of a finished KRaft snapshot.  Kafka: Snapshots.filenameFromSnapshotId."""
    return f"{end_offset:020d}-{epoch:010d}.checkpoint"


NUMBERED = (*SEGMENT_KINDS, FileKind.SNAPSHOT)
_UNFINISHED = (Stage.DELETED, Stage.CLEANED, Stage.SWAP)


def belongs(file: FileName) -> bool:
    """Whether a broker's start may remove the file: part of the log, or a leftover."""
    return file.stage in _UNFINISHED or (file.kind in NUMBERED and file.stage is Stage.IN_USE)
