"""The effects of a start on the part of a partition that is in remote storage.

A leader deletes a segment whose epochs are all below those of its log: a leader with an empty log deletes everything.
It moves the log start up to the first segment in its metadata, and to its local log if there is none.  Kafka:
RemoteLogManager.findLogStartOffset, RLMExpirationTask.deleteLogSegmentsDueToLeaderEpochCacheTruncation.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import KlogError, are, counted, offsets_text
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.metadata.topic_config import TopicConfig
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.cluster.remote_log.cache import RemoteLogCache
from klog.cluster.remote_log.events import RemoteSegment, TopicIdPartition, metadata_partition
from klog.cluster.remote_log.lineage import ChainLink, chain, holes
from klog.cluster.remote_log.remote_log import RemoteLog, read_remote_log
from klog.commands.doctor.diagnosis import Fate, PartitionFate
from klog.commands.doctor.partition_loader import LoadedPartition
from klog.data_dir.log_dir import LogDir
from klog.formats.checkpoint import EpochEntry
from klog.formats.internal_topics import REMOTE_LOG_METADATA
from klog.formats.names import FileKind
from klog.formats.remote_log import SegmentState
from klog.partition.retention.event_retention import expiring_events
from klog.partition.start.start_reasons import StartNote
from klog.tier.tier import Tier

if TYPE_CHECKING:
    from klog.commands.doctor.tier_notes import ObjectSpan, TierNotes

ENABLED: Final = "remote.log.storage.system.enable"
LOCAL_GONE: Final = "remote-local-gone"
METADATA_LOST: Final = "remote-metadata-lost"
TIERING_OFF: Final = "tiering-off"
_MOST_NAMED: Final = 3
_KEPT: Final = (Fate.SERVES, Fate.PROMOTES)
"""The fates of a directory whose log is the partition afterwards."""


class TieredStart(NamedTuple):
    """A start, as far as it is about remote storage.

    *loaded*: by the paths of directories.  *file*: the content of `server.properties`, empty if it was not given.
    """

    cluster: ClusterMetadata
    node_id: int
    log_dirs: Sequence[LogDir]
    loaded: Mapping[str, LoadedPartition]
    file: Mapping[str, str]


class TieredFates:
    """The rows of tiered partitions, with their part in remote storage; *tier*: its objects, None if unknown."""

    def __init__(self, start: TieredStart, rows: Sequence[PartitionFate], tier: Tier | None = None) -> None:
        self._start, self._rows, self._tier = start, rows, tier
        self._is_off = bool(start.file) and start.file.get(ENABLED, "").lower() != "true"
        self._emptied: set[tuple[str, int]] = set()

    def rows(self) -> Iterator[PartitionFate]:
        """Yield all rows; those of other partitions are unchanged."""
        yield from map(self._row, self._rows)

    def notes(self) -> Iterator[StartNote]:
        """Yield what concerns all tiered partitions."""
        topics = [topic for topic in self._start.cluster.topic_ids if self._start.cluster.is_tiered(topic)]
        if self._is_off and topics:
            some = counted(len(topics), "topic")
            message = (
                f"{some} with remote.storage.enable=true, and the broker's file does not have {ENABLED}=true: it starts"
                ", reads their local logs alone, and moves their log starts there"
            )
            yield StartNote(TIERING_OFF, message)
        elif topics and (damage := self._damage()) is not None:
            yield StartNote("rlmm-damaged", f"{damage}: the broker copies, finds and deletes no more segments")
        elif self._tier is None and (
            names := [f"{row.topic}-{row.partition}" for row in self._rows if self._asks(row)]
        ):
            some = ", ".join(names[:_MOST_NAMED]) + (
                f" and {len(names) - _MOST_NAMED} more" * (len(names) > _MOST_NAMED)
            )
            message = f"{some}: created empty, and no record of {REMOTE_LOG_METADATA} is left: --remote TIER"
            yield StartNote(METADATA_LOST, f"{message} shows whether remote storage has older records")
        if not self._is_off and (expiring := self._expiring(topics)) is not None:
            yield StartNote("remote-events-expire", f"{REMOTE_LOG_METADATA}: {expiring}")

    def _expiring(self, topics: Sequence[str]) -> str | None:
        """Return the settings that delete events of these topics' segments; None if none does."""
        log_dir = self._start.log_dirs[0] if self._start.log_dirs else None
        return expiring_events(TopicConfig(log_dir, file=self._start.file, cluster=self._start.cluster), topics)

    @cached_property
    def _objects(self) -> TierNotes | None:
        """The objects in the tier; None without one."""
        if self._tier is None:
            return None
        from klog.commands.doctor.tier_notes import TierNotes

        return TierNotes(self._tier)

    def _asks(self, row: PartitionFate) -> bool:
        """Whether only a tier shows the records of a partition that this broker begins anew."""
        cluster = self._start.cluster
        known = cluster.partition(row.topic, row.partition) if cluster.is_tiered(row.topic) else None
        if known is None or row.fate is not Fate.CREATES or not _leads_alone(known, self._start.node_id):
            return False
        return self._is_lost(TopicIdPartition(row.topic, row.partition, cluster.topic_ids[row.topic]))

    def tier_notes(self) -> Iterator[StartNote]:
        """Yield the facts that objects in the tier show about the partitions and the index files of the broker."""
        notes, cluster = self._objects, self._start.cluster
        if notes is None or self._is_off:
            return
        for row in self._rows:
            if row.fate in _KEPT and cluster.is_tiered(row.topic):
                whose = TopicIdPartition(row.topic, row.partition, cluster.topic_ids[row.topic])
                if (cache := self._cache(whose)) is not None:
                    end = self._loaded(row).outcome.log_start
                    yield from notes.missing(whose, cache, self._epochs(row), self._log_start(row), end)
        for one in self._start.log_dirs[:1]:
            yield from notes.stale(one)

    def _damage(self) -> str | None:
        """Return the first fault of `__remote_log_metadata` over which a broker stops reading it."""
        found = self._remote_log
        if found is None or not found.refused.count:
            return None
        first = found.refused.named[0]
        place = f"{REMOTE_LOG_METADATA}-{first.place.metadata_partition}, offset {first.place.offset}"
        return f"{place}: {first.reason}"

    # one partition

    def _row(self, row: PartitionFate) -> PartitionFate:
        cluster, key = self._start.cluster, (row.topic, row.partition)
        known = cluster.partition(*key) if cluster.is_tiered(row.topic) else None
        if known is None or self._start.node_id not in known.replicas:
            return row
        is_kept = row.fate in _KEPT
        is_empty = row.becomes == "empty" or row.fate in (Fate.CREATES, Fate.EMPTIES)
        if is_kept:
            row = row._replace(log_start=self._log_start(row))
        if not (is_kept or is_empty) or not _leads_alone(known, self._start.node_id) or key in self._emptied:
            return row
        if is_empty:
            self._emptied.add(key)
        return self._judged(row, cluster.topic_ids[row.topic])

    def _judged(self, row: PartitionFate, topic_id: str) -> PartitionFate:
        log_start = self._log_start(row)
        cache = self._cache(TopicIdPartition(row.topic, row.partition, topic_id))
        epochs = self._epochs(row)
        start = self._first_found(row, cache, epochs)
        doomed = _doomed(cache, epochs, log_start)
        if doomed and log_start > 0 and epochs and cache is not None:
            doomed = self._lost_with(doomed, row, list(chain(cache, epochs, log_start)))
        if doomed and not self._is_off:
            found = _forgets(row, doomed, log_start)
            return found if start is None else found._replace(log_start=max(start, log_start))
        if (left := self._left_behind(row, topic_id, cache)) is not None:
            return _begins_anew(row, left, log_start)
        if start is None or start <= log_start:
            return row
        lost = start - log_start
        hidden = offsets_text(log_start, start - 1)
        message = f"the log start moves from {log_start} to {start}: {hidden} {are(log_start, start - 1)} hidden"
        if self._start.cluster.topic_config(row.topic).get("remote.log.copy.disable") == "true" and not self._is_off:
            # The task that copies moves the log start, and there is none.
            message, start = f"consumers at {hidden} get OFFSET_OUT_OF_RANGE", log_start
        return _hides(row, TIERING_OFF if self._is_off else METADATA_LOST, start, message, lost)

    def _lost_with(
        self, doomed: Sequence[RemoteSegment], row: PartitionFate, links: Sequence[ChainLink]
    ) -> list[RemoteSegment]:
        """Return those of the segments that have offsets of their own, above the log start.

        After an unclean election, others have the offsets in the history of the partition: the deletion costs nothing.
        """
        local_start, end = self._loaded(row).outcome.log_start, row.log_end or 0

        def is_only_one(one: RemoteSegment) -> bool:
            missing = holes(links, max(one.start_offset, self._log_start(row)), one.end_offset + 1)
            return any(first < local_start or last >= end for first, last in missing)

        return list(filter(is_only_one, doomed))

    def _left_behind(self, row: PartitionFate, topic_id: str, cache: RemoteLogCache | None) -> ObjectSpan | None:
        """Return the part of a partition of which only objects are left; None if there is none, or more is left."""
        is_kept = row.fate in _KEPT and bool(row.log_end)
        if is_kept or self._objects is None or cache is None or cache.segments or cache.deleted:
            return None
        return self._objects.part(topic_id, row.partition)

    def _log_start(self, row: PartitionFate) -> int:
        """Return the log start offset over both tiers; of a partition without a directory that of any checkpoint."""
        found = [
            one.checkpoints.offset(FileKind.LOG_STARTS, row.topic, row.partition)
            for one in self._start.log_dirs
            if row.log_dir in (None, one.path)
        ]
        return max((one for one in found if one is not None), default=0)

    def _epochs(self, row: PartitionFate) -> Sequence[EpochEntry]:
        if row.fate not in _KEPT:
            return ()
        return self._loaded(row).epochs

    def _loaded(self, row: PartitionFate) -> LoadedPartition:
        return self._start.loaded[os.path.join(row.log_dir or "", row.directory or "")]

    def _first_found(
        self, row: PartitionFate, cache: RemoteLogCache | None, epochs: Sequence[EpochEntry]
    ) -> int | None:
        """Return the log start that a leader computes; None if these log dirs do not show it."""
        if row.fate not in _KEPT:
            return None
        local = self._loaded(row).outcome.log_start
        if self._is_off:
            return local
        if cache is None:
            return None
        for one in epochs:
            listed = cache.epochs.get(one.epoch)
            ids = set() if listed is None else {segment_id for _, segment_id in listed} | listed.unreferenced
            starts = [cache.segments[each].start_offset for each in ids if each in cache.segments]
            if starts:
                return min(starts)
        return local

    # the metadata

    @cached_property
    def _remote_log(self) -> RemoteLog | None:
        """The content of `__remote_log_metadata` in these log dirs; None if it cannot be read."""
        try:
            return read_remote_log(self._start.log_dirs, cluster=self._start.cluster)
        except KlogError:
            return None

    @cached_property
    def _served(self) -> set[int]:
        """The numbers of its partitions whose logs are read after the start."""
        return {one.partition for one in self._rows if one.topic == REMOTE_LOG_METADATA and one.fate in _KEPT}

    def _cache(self, whose: TopicIdPartition) -> RemoteLogCache | None:
        """Return the segments that the broker will know; None if these log dirs do not show it."""
        found = self._remote_log
        if not self._metadata_partitions:
            return RemoteLogCache()  # the broker creates the topic
        if found is None or found.refused.count or found.faults:
            return None
        if self._is_lost(whose):
            return RemoteLogCache()
        return found.cache(whose) if self._metadata_number(whose) in self._served else None

    @property
    def _metadata_partitions(self) -> Mapping[int, PartitionRegistration]:
        """The partitions of `__remote_log_metadata` in the cluster."""
        cluster = self._start.cluster
        return cluster.partitions.get(cluster.topic_ids.get(REMOTE_LOG_METADATA, ""), {})

    def _metadata_number(self, whose: TopicIdPartition) -> int:
        return metadata_partition(whose.topic_id, whose.number, len(self._metadata_partitions))

    def _is_lost(self, whose: TopicIdPartition) -> bool:
        """Whether the start makes the partition with the events of *whose* anew, and no other broker has it."""
        known = self._metadata_partitions
        number = self._metadata_number(whose) if known else None
        if number is None or number in self._served or number not in known:
            return False
        return _leads_alone(known[number], self._start.node_id)


def _leads_alone(known: PartitionRegistration, node_id: int) -> bool:
    """Whether only this broker can become leader: no replica that may lead is elsewhere."""
    return {*known.isr, *known.elr, *known.last_known_elr} <= {node_id} or set(known.replicas) == {node_id}


def _doomed(cache: RemoteLogCache | None, epochs: Sequence[EpochEntry], log_start: int) -> list[RemoteSegment]:
    """Return the segments that a leader deletes because all of their epochs are below those of its log.

    Those below the log start are due anyway.
    """
    every = cache.segments.values() if cache is not None else ()
    return [
        one
        for one in every
        if one.state is SegmentState.COPY_SEGMENT_FINISHED
        and one.end_offset >= log_start
        and (not epochs or one.epochs[-1].epoch < epochs[0].epoch)
    ]


def _forgets(row: PartitionFate, doomed: Sequence[RemoteSegment], log_start: int) -> PartitionFate:
    first, last = max(min(one.start_offset for one in doomed), log_start), max(one.end_offset for one in doomed)
    some = counted(len(doomed), "segment")
    span = offsets_text(first, last)
    message = f"the leader deletes {some} in remote storage, {span}, because its log has none of their leader epochs"
    lost = sum(max(0, end - start + 1) for start, end in _united(doomed, log_start))
    found = row._replace(
        lost_records=row.lost_records + lost, lost_bytes=row.lost_bytes + sum(one.size for one in doomed)
    )
    if row.becomes == "empty":  # the directory itself is set aside, or deleted
        return found._replace(message="; ".join(filter(None, (row.message, message))))
    return found._replace(fate=Fate.FORGETS_REMOTE, reason=LOCAL_GONE, message=message)


def _hides(row: PartitionFate, reason: str, log_start: int, message: str, lost: int) -> PartitionFate:
    lost += row.lost_records
    return row._replace(fate=Fate.HIDES_REMOTE, reason=reason, log_start=log_start, lost_records=lost, message=message)


def _begins_anew(row: PartitionFate, left: ObjectSpan, log_start: int) -> PartitionFate:
    """Return the fate of a partition that begins at offset 0 beside objects without an entry."""
    first = max(left.first, log_start)
    if left.last < first:
        return row
    there = f"{offsets_text(first, left.last)} {are(first, left.last)} in remote storage"
    message = f"begins at offset 0; {there} without an entry: no broker reads or deletes them"
    found = _hides(row, METADATA_LOST, 0, message, left.last - first + 1)
    return found._replace(lost_bytes=row.lost_bytes + left.bytes)


def _united(segments: Iterable[RemoteSegment], log_start: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets of *segments*, both ends inclusive, each offset once."""
    at = log_start
    for one in sorted(segments, key=lambda one: (one.start_offset, one.end_offset)):
        yield max(one.start_offset, at), one.end_offset
        at = max(at, one.end_offset + 1)
