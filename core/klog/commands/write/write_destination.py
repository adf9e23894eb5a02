"""The options of a write, and its destination: facts about topics, and their effect on the batches of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from klog.base.errors import KlogError, UsageError
from klog.cluster.metadata.topic_config import SettingOrigin, TopicConfig
from klog.formats.batch import CODEC_NAMES
from klog.formats.java_text import parse_uuid
from klog.formats.names import topic_is_legal
from klog.kernel import BatchBuilder, Window
from klog.partition.append.appender import AppendSettings, AppendTarget, LogState
from klog.partition.start.metadata_behind import FIRST_SHIFTED_ID

PARTITIONER_NAMES: Final = (
    "java", "round_robin", "consistent_random", "consistent", "murmur2_random", "murmur2", "fnv1a_random", "fnv1a",
    "random",
)  # fmt: skip
"""How partitions are chosen: as the Java producer does, in turn, and by librdkafka's names for its own partitioners."""
PRODUCERS: Final = ("shift", "keep", "drop")
SHIFT: Final = FIRST_SHIFTED_ID
"""The number added to producer ids: no cluster ever assigns ids so high."""
_RESERVED_IDS: Final = ("AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ")
"""Kafka: Uuid.RESERVED."""
_SOME_ID: Final = "PzrBv7lLQpWSVOmKqE-xgg"
LEVELS: Final[Mapping[str, tuple[int, int]]] = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}
"""The levels of each codec that has some.  Kafka: CompressionType."""
WRITE_SETTINGS: Final = (
    "segment.bytes", "segment.ms", "index.interval.bytes", "segment.index.bytes", "max.message.bytes",
    "message.timestamp.type", "compression.type", "cleanup.policy", "preallocate", "retention.ms", "retention.bytes",
)  # fmt: skip
"""The settings of a topic that affect writing and retention."""


class BadRecordError(KlogError):
    """A record that cannot be written: its place, and the reason."""


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write; None: the value of the topic, or of the record.

    *batch_bytes*: the target size of a batch.  *linger_ms*: the time that a batch may span, None for any time.
    *keep_batches*: as in the input.  *codec*: its name, *level*: its level.  *leader_epoch*: to stamp, -1 for that of
    the records.  *time_type*: CreateTime or LogAppendTime.  *producers*: one of PRODUCERS.  *seed*: of random
    partitions.  *config*: settings of topics, by their names.
    """

    now_ms: int
    topic: str | None = None
    keep_offsets: bool = False
    keep_batches: bool = False
    batch_bytes: int = 16384
    linger_ms: int | None = None
    codec: str | None = None
    level: int | None = None
    partitions: int | None = None
    partitioner: str = "java"
    seed: int = 0
    repartition: bool = False
    idempotent: bool = False
    producers: str | None = None
    time_type: str | None = None
    leader_epoch: int | None = None
    topic_id: str | None = None
    one_replica: bool = False
    ends_transactions: bool = False
    skips_bad: bool = False
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def drops_producers(self) -> bool:
        """Whether only committed data is written, without producers."""
        return self.producers == "drop"


def check_topic(topic: str | None, topic_id: str | None) -> None:
    """Raise UsageError for the name, or the id, of a topic that none can have."""
    if topic is not None and not topic_is_legal(topic):
        raise UsageError(f"--topic {topic}: no name of a topic: 1 to 249 of the letters a-z A-Z 0-9 . _ -")
    if topic_id is not None and (parse_uuid(topic_id) != topic_id or topic_id in _RESERVED_IDS):
        raise UsageError(f"--topic-id {topic_id}: expected 16 bytes as 22 letters of base64, such as {_SOME_ID}")


def check_level(codec: str | None, level: int | None) -> None:
    """Raise UsageError for a codec that is none, or a level that it does not have."""
    if codec is not None and codec not in CODEC_NAMES:
        raise UsageError(f"--codec {codec}: expected one of {', '.join(CODEC_NAMES)}")
    if level is None:
        return
    lowest, highest = LEVELS.get(codec or "", (0, -1))
    if not lowest <= level <= highest:
        known = f"from {lowest} to {highest}" if lowest <= highest else "for gzip, lz4 and zstd"
        raise UsageError(f"--level {level}: {codec or 'without --codec'}; levels are {known}")


_OUTPUT_BYTES = 1 << 20
_MANY = 64
_OWN_PRODUCERS = SHIFT + (1 << 61)


@dataclass
class TopicPlace:
    """A topic at a destination.

    *topic_id*: None if unknown.  *count*: the number of its partitions.  *epochs*: by partition, the leader epoch in
    force, none without metadata.  *is_broker*: it is in a broker's log dir.  *most*: how many partitions it may grow
    to, by those that records name; 0 if it does not grow.
    """

    name: str
    topic_id: str | None
    count: int
    config: TopicConfig
    is_broker: bool = False
    epochs: Mapping[int, int] = field(default_factory=dict)
    most: int = 0

    @property
    def settings(self) -> AppendSettings:
        """How its logs are laid out."""
        return AppendSettings.of(self.config, self.name)

    @property
    def most_bytes(self) -> int:
        """The most bytes that a batch may have."""
        return min(self._number("max.message.bytes"), self._number("segment.bytes"))

    @property
    def is_compacted(self) -> bool:
        """Whether each record must have a key."""
        return "compact" in self.config.value(self.name, "cleanup.policy").words

    def _number(self, setting: str) -> int:
        return self.config.value(self.name, setting).number

    def codec(self, options: WriteOptions) -> int:
        """Return the number of the codec of new batches."""
        name = options.codec or str(self.config.value(self.name, "compression.type").value)
        return CODEC_NAMES.index(name) if name in CODEC_NAMES else 0

    def time_type(self, options: WriteOptions) -> int:
        """Return 1 for CreateTime, 2 for LogAppendTime, 0 for the type of each record."""
        setting = self.config.value(self.name, "message.timestamp.type")
        if options.time_type is None and setting.origin is SettingOrigin.DEFAULT:
            return 0
        return 2 if (options.time_type or setting.value) == "LogAppendTime" else 1

    def stamp(self, options: WriteOptions, number: int) -> int:
        """Return the leader epoch of the batches written to a partition, -1 for that of each record.

        Raises KlogError for one that the cluster has not reached.
        """
        known = self.epochs.get(number, -1)
        if options.leader_epoch is None:
            return known
        if 0 <= known < options.leader_epoch:
            epoch = options.leader_epoch
            raise KlogError(
                f"--leader-epoch {epoch}: {self.name}-{number} is in leader epoch {known}, by the metadata; a broker"
                " that starts over a later one forgets all earlier ones"
            )
        return options.leader_epoch

    def shift(self, options: WriteOptions) -> int:
        """Return the shift of the input's producer ids."""
        return SHIFT if (options.producers or ("shift" if self.is_broker else "keep")) == "shift" else 0

    def builder(self, options: WriteOptions, number: int, log: LogState, window: Window, opened: int) -> BatchBuilder:
        """Return the builder of a partition's batches; *window* shows them; *opened*: the number of builders."""
        own = _OWN_PRODUCERS + number
        while own in log.producers.producers:
            own += self.count
        # A larger buffer saves calls; of ten thousand partitions each has only room for a batch.
        room = _OUTPUT_BYTES // (opened + 1) if opened < _MANY else 0
        return BatchBuilder(
            window, log.end, batch_size=options.batch_bytes, most=self.most_bytes,
            linger=-1 if options.linger_ms is None else options.linger_ms, codec=self.codec(options),
            keep=options.keep_batches, keep_offsets=options.keep_offsets, compacted=self.is_compacted,
            time_type=self.time_type(options), now=options.now_ms, leader_epoch=self.stamp(options, number),
            latest_epoch=log.epochs.latest, highest_epoch=self.epochs.get(number, -1),
            producer_id=own if options.idempotent else -1, shift=self.shift(options), room=room,
        )  # fmt: skip


class OpenPartition(NamedTuple):
    """A partition at a destination: its log, and the destination of its files."""

    log: LogState
    target: AppendTarget


class Destination(Protocol):
    """A log dir, new or stopped."""

    def topic(self, name: str) -> TopicPlace | None:
        """Return a topic; None for a name that no topic can have.  Raises KlogError for one that is not there."""

    def open(self, place: TopicPlace, number: int) -> OpenPartition:
        """Return a partition to write.  Raises KlogError, OSError."""
