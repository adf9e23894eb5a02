"""The options of a write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from klog.base.errors import KlogError, UsageError
from klog.formats.batch import CODEC_NAMES
from klog.formats.java_text import parse_uuid
from klog.formats.names import topic_is_legal
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
