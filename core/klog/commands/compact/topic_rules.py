"""The rules of compaction: a topic's settings, each with its origin, and the reasons to refuse a partition."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from shlex import quote
from typing import NamedTuple

from klog.cluster.metadata.topic_config import Setting, SettingOrigin, TopicConfig
from klog.data_dir.partition import Partition
from klog.formats.names import CLUSTER_METADATA, FileName, PartitionState, Stage, belongs, parse_file
from klog.log.log_end import find_log_end


class TopicRules(NamedTuple):
    """The settings of one topic for compaction, times in ms."""

    policy: Setting
    segment_bytes: Setting
    index_bytes: Setting
    index_interval_bytes: Setting
    delete_retention_ms: Setting
    min_lag_ms: Setting
    max_lag_ms: Setting
    min_dirty_ratio: Setting
    max_message_bytes: Setting
    producer_expiration_ms: Setting
    remote_storage: Setting

    @classmethod
    def of(cls, settings: TopicConfig, topic: str | None) -> TopicRules:
        """Return the rules of *topic*; None: of one without settings."""
        return cls(*(settings.value(topic, name) for name in _NAMES))

    @property
    def by_name(self) -> dict[str, Setting]:
        """The settings by the names that topics have for them, wherever they were found."""
        return dict(zip(_NAMES, self, strict=True))

    @property
    def compacts(self) -> bool:
        """Whether the topic is compacted; that it may be deleted from as well changes nothing."""
        return "compact" in self.policy.words

    @property
    def is_told(self) -> bool:
        """Whether a setting contains the policy; otherwise it is assumed."""
        return self.policy.origin is not SettingOrigin.DEFAULT or self.compacts


_NAMES = (
    "cleanup.policy",
    "segment.bytes",
    "segment.index.bytes",
    "index.interval.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "max.message.bytes",
    "producer.id.expiration.ms",
    "remote.storage.enable",
)


class RefusalReason(StrEnum):
    """Why a partition is not compacted: the closed set."""

    METADATA_LOG = "metadata log"
    NOT_CURRENT = "not in use"
    TIERED = "tiered"
    POLICY = "policy"
    NO_SEGMENT = "no segment"
    NAMES = "names"
    UNFINISHED = "unfinished operation"
    OVERLAP = "overlapping segments"
    DAMAGED = "damaged"


class Refusal(NamedTuple):
    """A partition that is not compacted.  *what*: the obstacle; *advice*: the remedy."""

    path: str
    ground: RefusalReason
    what: str
    advice: str

    @property
    def needs_recover(self) -> bool:
        """Whether `klog recover` has to run first."""
        return self.ground in (RefusalReason.UNFINISHED, RefusalReason.OVERLAP, RefusalReason.DAMAGED)

    def __str__(self) -> str:
        return f"{self.path}: {self.what}; {self.advice}"


def damaged(partition: Partition, what: str, ground: RefusalReason = RefusalReason.DAMAGED) -> Refusal:
    """Return the refusal of a partition that `klog recover` has to repair first."""
    what = what.removeprefix(os.path.join(partition.path, ""))  # the place of the damage
    return Refusal(partition.path, ground, what, f"first: klog recover {quote(partition.path)}")


def refusal(partition: Partition, rules: TopicRules) -> Refusal | None:
    """Return why *partition* is not compacted; None if it can be.

    Only headers of the content are read, a few per segment.  Raises UnreadableError.
    """
    return _by_topic(partition, rules) or _by_files(partition) or _by_chain(partition)


def _by_topic(partition: Partition, rules: TopicRules) -> Refusal | None:
    if partition.topic == CLUSTER_METADATA:
        return _refuse(
            partition, RefusalReason.METADATA_LOG, "the metadata log has no keys", "nodes keep it small by snapshots"
        )
    if partition.state is not PartitionState.CURRENT:
        what = f"this directory is not in use (-{partition.state.value})"
        return _refuse(partition, RefusalReason.NOT_CURRENT, what, "leave it to the broker")
    if rules.remote_storage.flag:
        what = "remote.storage.enable=true: a part of the log is in remote storage"
        return _refuse(partition, RefusalReason.TIERED, what, "brokers do not compact such topics either")
    if rules.compacts:
        return None
    if rules.policy.origin is SettingOrigin.DEFAULT:
        what = "the topic's cleanup.policy is unknown here"
        advice = "--metadata DIR names the log dir with the metadata log; --policy compact if you know it"
        return _refuse(partition, RefusalReason.POLICY, what, advice)
    what = f"cleanup.policy={','.join(rules.policy.words)}"
    return _refuse(partition, RefusalReason.POLICY, what, "--policy compact compacts it anyway, once")


def _by_files(partition: Partition) -> Refusal | None:
    partition.check_listed()
    of_log = partition.log_files
    for file in of_log:
        if file.stage is not Stage.IN_USE:
            return damaged(partition, f"{file.name}: left by an interrupted operation", RefusalReason.UNFINISHED)
    for file in of_log:
        if not file.canonical:
            what, advice = f"{file.name}: no broker writes such a name", "rename it, or move it away"
            return _refuse(partition, RefusalReason.NAMES, what, advice)
    strange = next(
        (name for name in (*partition.others, *_links(partition, of_log)) if belongs(parse_file(name))), None
    )
    if strange is not None:
        # The target of the link may return, beside the output that was made without it.
        what, advice = f"{strange}: not a regular file", "replace it with the file itself, or move it away"
        return _refuse(partition, RefusalReason.NAMES, what, advice)
    if not partition.segments:
        return _refuse(partition, RefusalReason.NO_SEGMENT, "there is no segment", "there is nothing to compact")
    return None


def _links(partition: Partition, files: Sequence[FileName]) -> Iterator[str]:
    """Yield the names that are only links."""
    return (file.name for file in files if os.path.islink(partition.file(file.name)))


def _by_chain(partition: Partition) -> Refusal | None:
    """Compare the ends of segments with the beginnings of the next ones."""
    for files, following in pairwise(partition.segments):
        index = partition.file(files.offset_index) if files.offset_index else None
        end = find_log_end(partition.file(files.log), index, files.base_offset)
        if end.damage is not None:
            return damaged(partition, str(end.damage))
        if end.offset > following.base_offset:
            what = f"{files.log} reaches to offset {end.offset - 1}, and {following.log} begins there or below"
            return damaged(partition, what, RefusalReason.OVERLAP)
    log_end, start = partition.log_end, partition.log_start_offset
    assert log_end is not None
    assert start is not None
    # A torn tail is no reason: the active segment is not compacted, and brokers cut it.
    if log_end.damage is not None and not log_end.damage.is_unfinished:
        return damaged(partition, str(log_end.damage))
    if start > log_end.offset:
        what = f"the log starts at offset {start} by log-start-offset-checkpoint, and ends at {log_end.offset}"
        return damaged(partition, what)
    return None


def _refuse(partition: Partition, ground: RefusalReason, what: str, advice: str) -> Refusal:
    return Refusal(partition.path, ground, what, advice)
