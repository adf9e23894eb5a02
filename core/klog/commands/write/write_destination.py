"""The destination of records: its facts about topics, and their effect on the batches of each partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from klog.base.errors import KlogError
from klog.cluster.metadata.topic_config import SettingOrigin, TopicConfig
from klog.commands.write.write_options import SHIFT, WriteOptions
from klog.formats.batch import CODEC_NAMES
from klog.kernel import BatchBuilder, Window
from klog.partition.append.appender import AppendSettings, AppendTarget, LogState

_OUTPUT_BYTES = 1 << 20
_MANY = 64
_OWN_PRODUCERS = SHIFT + (1 << 61)


@dataclass
class TopicPlace:
    """A topic at a destination.

    *topic_id*: None if unknown.  *count*: the number of its partitions.  *epochs*: by partition, the leader epoch in
    force, none without metadata.  *is_broker*: it is in a broker's log dir.
    """

    name: str
    topic_id: str | None
    count: int
    config: TopicConfig
    is_broker: bool = False
    epochs: Mapping[int, int] = field(default_factory=dict)

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
