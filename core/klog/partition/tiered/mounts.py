"""Lays the segments in remote storage over partition directories, so that every reader finds both tiers in one log.

with mounted(MountRequest(tier, ["house/broker-1/data"])) as found:
    read(found.paths)
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import KlogError, UsageError, near_misses, offsets_text
from klog.base.overlays import Overlay, OverlayFile, add_overlay, clear_overlays
from klog.base.read_only import ReadableLog
from klog.cluster.remote_log.cache import RemoteLogCache
from klog.cluster.remote_log.events import TopicIdPartition
from klog.cluster.remote_log.lineage import history_of
from klog.cluster.remote_log.remote_log import RemoteLog, metadata_of, read_remote_log
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import PartitionChoice, is_selected, open_path
from klog.formats.checkpoint import EpochEntry, epochs_in_force
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import SEGMENT_KINDS, FileKind, PartitionState
from klog.formats.remote_log import SegmentState
from klog.partition.tiered.remote_files import BytesInMemory, PartFacts, RemoteFiles
from klog.partition.tiered.tiered_log import TieredLog
from klog.tier.tier import Tier, TierPartition
from klog.tier.tier_layout import TOPIC

if TYPE_CHECKING:
    from klog.cluster.metadata.metadata_loader import ClusterMetadata

BOTH, LOCAL, REMOTE = TIERS = ("both", "local", "remote")
_SEGMENT_KINDS: Final = frozenset((*SEGMENT_KINDS, FileKind.SNAPSHOT))


class MountRequest(NamedTuple):
    """*paths*: log dirs and partition directories; without any, *topics* and *numbers* are read from the tier alone.

    *part*: one of TIERS.  *cache_bytes*: the memory for blocks of logs that are read again; 0 if they are read once.
    """

    tier: Tier
    paths: Sequence[str] = ()
    topics: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()
    part: str = BOTH
    cache_bytes: int = 0


class Mounted:
    """The directories to read, and the logs over two tiers by the paths of their directories.

    *local_only*: the logs of tiered topics that begin above their log start offsets, and have no remote segment.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        self.logs: dict[str, TieredLog] = {}
        self.local_only: dict[str, TieredLog] = {}


def gaps(logs: Mapping[str, TieredLog]) -> Iterator[str]:
    """Yield a sentence for each range of offsets that no segment with an entry has; *logs*: by their directories."""
    for path, log in logs.items():
        for first, last in log.holes():
            lost = log.lost_entries_text(first, last)
            yield f"{path}: {lost or f'{offsets_text(first, last)}: in neither tier'}"


_requests: list[MountRequest] = []


def requested() -> MountRequest | None:
    """Return the request of the block that is being carried out, for processes that have to do the same."""
    return _requests[-1] if _requests else None


def tier_words() -> list[str]:
    """Return the options of a command that name the tier of that request; none without one."""
    found = requested()
    return [] if found is None else found.tier.address.words


@contextmanager
def mounted(request: MountRequest) -> Iterator[Mounted]:
    """Lay remote segments over directories while the block lasts.

    Raises KlogError if the tier or `__remote_log_metadata` cannot be read, UsageError for a topic that neither has.
    """
    try:
        add_overlay(request.tier.uri, Overlay({}))  # there is one, even if no partition has a remote segment
        found = _Mounts(request).mount()
        _requests.append(request)
        yield found
    finally:
        _requests.clear()
        clear_overlays()


class _Mounts:
    """The directories of a request."""

    def __init__(self, request: MountRequest) -> None:
        self._request, self._tier = request, request.tier
        self._listing = request.tier.list_segments()
        self._tells_txns = True  # in objects; a segment without a transaction index has no such object
        self._cache = None
        if request.cache_bytes and not request.tier.has_plain_files:
            from klog.partition.tiered.block_cache import BlockCache

            self._cache = BlockCache(request.cache_bytes)

    def mount(self) -> Mounted:
        found = Mounted(self._request.paths)
        if not found.paths:
            for whose, objects in self._chosen():
                path = os.path.join(self._tier.uri, str(whose))
                found.paths.append(path)
                found.logs[path] = self._mount_alone(path, whose, *_shown(self._tier, objects))
            names = frozenset(map(os.path.basename, found.paths))
            add_overlay(self._tier.uri, Overlay({}, is_alone=True, directories=names))
            return found
        if self._request.part == LOCAL:
            return found
        log_dirs, partitions = _opened(found.paths)
        cluster = metadata_of(log_dirs)
        remote_log = read_remote_log(log_dirs, watched=self._listing.ids(), cluster=cluster)
        every = (one for cache in remote_log.caches.values() for one in cache.segments.values())
        self._tells_txns = any(one.txn_index_empty for one in every)
        for partition in filter(self._selects, partitions):
            if (log := self._log_of(partition, remote_log, cluster)) is not None:
                self._mount_beside(partition, _topic_id(partition, cluster), log)
                found.logs[partition.path] = log
            elif cluster is not None and partition.topic is not None and cluster.is_tiered(partition.topic):
                start = partition.segments[0].base_offset if partition.segments else 0
                found.local_only[partition.path] = TieredLog(RemoteLogCache(), (), partition.tiered_log_start(), start)
        here = {(one.topic, one.number) for log_dir in log_dirs for one in log_dir.partitions}
        for path in found.paths:
            if isinstance(opened := open_path(path), LogDir):
                # No file names the log dir of a partition that is gone: all of them appear in the first one.
                found.logs |= self._mount_missing(opened, here, cluster, remote_log)
                break
        return found

    def _selects(self, one: Partition | TopicIdPartition) -> bool:
        return is_selected(one.topic, one.number, self._request.topics, self._request.numbers)

    # beside local logs

    def _log_of(self, partition: Partition, remote_log: RemoteLog, cluster: ClusterMetadata | None) -> TieredLog | None:
        """Return the log of a local partition over both tiers; None if it has no remote segment."""
        topic_id = _topic_id(partition, cluster)
        if partition.topic is None or partition.number is None or topic_id is None:
            return None
        whose = TopicIdPartition(partition.topic, partition.number, topic_id)
        cache, objects = remote_log.caches.get(whose), self._listing.partitions.get(whose[:0:-1])
        if cache is None and objects is not None:
            cache, _ = _shown(self._tier, objects)
        if cache is None or not cache.segments:
            return None
        epochs = partition.epochs
        kept = epochs_in_force(epochs.entries) if epochs is not None and not epochs.malformed else []
        local_start = partition.segments[0].base_offset if partition.segments else None
        history = kept or history_of(cache.segments.values())
        is_deleted = cluster is not None and whose.topic_id not in cluster.topic_ids.values()
        segments = {} if objects is None or is_deleted else objects.segments
        lost = [segments[one].start_offset for one in remote_log.lost_entries(whose, segments)]
        return TieredLog(cache, tuple(history), partition.tiered_log_start(), local_start, lost)

    def _mount_beside(self, partition: Partition, topic_id: str | None, log: TieredLog) -> None:
        on_disk = {file.name for file in partition.files if file.kind in _SEGMENT_KINDS}
        is_remote_only = self._request.part == REMOTE
        assert topic_id is not None
        end = partition.log_end.offset if partition.log_end is not None else LONG_MAX
        files = self._files(log, (topic_id, partition.number or 0), end, without_local=is_remote_only)
        if is_remote_only:
            add_overlay(partition.path, Overlay(files, frozenset(on_disk - files.keys())))
        else:
            add_overlay(partition.path, Overlay({name: file for name, file in files.items() if name not in on_disk}))

    def _files(
        self, log: TieredLog, key: tuple[str, int], log_end: int, *, without_local: bool
    ) -> dict[str, OverlayFile]:
        objects = self._listing.partitions.get(key, TierPartition("")).segments
        asked = {one.segment_id for one in log.segments_by_time(log_end)}
        files: dict[str, OverlayFile] = {}
        near = next((key for one in objects.values() for key in one.keys.values()), "")
        folder = near[: near.rfind("/") + 1]
        for part in log.parts(without_local=without_local):
            found = objects.get(part.segment.segment_id)
            facts = PartFacts(part, part.segment.segment_id in asked, self._tells_txns, self._cache, folder)
            files.update(RemoteFiles(self._tier, facts, found).files())
        return files

    # no local log

    def _mount_missing(
        self,
        log_dir: LogDir,
        here: Container[tuple[str | None, int | None]],
        cluster: ClusterMetadata | None,
        remote_log: RemoteLog,
    ) -> dict[str, TieredLog]:
        """Lay the partitions that have no directory, but are in remote storage, over *log_dir*; return them by path."""
        found: dict[str, TieredLog] = {}
        for whose in sorted(filter(self._selects, self._in_remote_storage(cluster, remote_log))):
            if (whose.topic, whose.number) in here:
                continue
            objects = self._listing.partitions.get(whose[:0:-1], TierPartition(whose.topic))
            cache, epochs = _shown(self._tier, objects, remote_log.caches.get(whose))
            if any(one.state is SegmentState.COPY_SEGMENT_FINISHED for one in cache.segments.values()):
                path = os.path.join(log_dir.path, str(whose))
                start = log_dir.checkpoints.offset(FileKind.LOG_STARTS, whose.topic, whose.number)
                found[path] = self._mount_alone(path, whose, cache, epochs, start)
        if found:
            add_overlay(log_dir.path, Overlay({}, directories=frozenset(map(os.path.basename, found))))
        return found

    def _in_remote_storage(self, cluster: ClusterMetadata | None, remote_log: RemoteLog) -> set[TopicIdPartition]:
        """Return the partitions of existing topics that have entries or objects."""
        known = {} if cluster is None else {topic_id: name for name, topic_id in cluster.topic_ids.items()}
        found = {one for one in remote_log.caches if cluster is None or known.get(one.topic_id) == one.topic}
        found |= {
            TopicIdPartition(known[key[0]], key[1], key[0]) for key in self._listing.partitions if key[0] in known
        }
        return {one for one in found if re.fullmatch(TOPIC, one.topic) and one.topic not in (os.curdir, os.pardir)}

    def _chosen(self) -> list[tuple[TopicIdPartition, TierPartition]]:
        """Return the partitions that the request names.  Raises KlogError for one that is two things."""
        request = self._request
        found: dict[str, tuple[TopicIdPartition, TierPartition]] = {}
        for (topic_id, number), partition in sorted(self._listing.partitions.items()):
            whose = TopicIdPartition(partition.topic, number, topic_id)
            if is_selected(whose.topic, number, request.topics, request.numbers):
                if str(whose) in found:
                    ids = f"{found[str(whose)][0].topic_id} and {topic_id}"
                    raise KlogError(f"{whose} is two things in {self._tier.uri}: topics {ids}; name a log dir of one")
                found[str(whose)] = (whose, partition)
        if not found:
            known = {one.topic for one in self._listing.partitions.values()}
            named = ", ".join(request.topics) or "any topic"
            is_topic = any(is_selected(topic, None, request.topics, ()) for topic in known)
            which = f" {_shown_number(request.numbers[0])}" if request.numbers and is_topic else ""
            near = "" if is_topic else near_misses(named, known)
            raise UsageError(f"{self._tier.uri}: no partition{which} of {named}{near}")
        return list(found.values())

    def _mount_alone(
        self,
        path: str,
        whose: TopicIdPartition,
        cache: RemoteLogCache,
        epochs: Sequence[EpochEntry],
        start: int | None = None,
    ) -> TieredLog:
        if start is None:
            start = min((one.start_offset for one in cache.segments.values()), default=0)
        log = TieredLog(cache, tuple(epochs or history_of(cache.segments.values())), start, None)
        files = self._files(log, (whose.topic_id, whose.number), LONG_MAX, without_local=True)
        epoch_lines = "".join(f"{one.epoch} {one.start_offset}\n" for one in log.epochs)
        for kind, text in (
            (FileKind.LEADER_EPOCHS, f"0\n{len(log.epochs)}\n{epoch_lines}"),
            (FileKind.PARTITION_METADATA, f"version: 0\ntopic_id: {whose.topic_id}"),
        ):
            open_it = partial(_in_memory, os.path.join(path, kind.value), text.encode())
            files[kind.value] = OverlayFile(len(text), open_it)
        add_overlay(path, Overlay(files, is_alone=True))
        return log


def _topic_id(partition: Partition, cluster: ClusterMetadata | None) -> str | None:
    """Return the id in `partition.metadata`; without that file the id that the cluster has for the name."""
    if partition.topic_id is not None or cluster is None or partition.topic is None:
        return partition.topic_id
    return cluster.topic_ids.get(partition.topic)


def _shown_number(one: PartitionChoice) -> str:
    return str(one) if isinstance(one, int) else f"{one[0]}-{one[1]}"


def _in_memory(path: str, content: bytes) -> ReadableLog:
    return BytesInMemory(path, content)


def _shown(
    tier: Tier, objects: TierPartition, cache: RemoteLogCache | None = None
) -> tuple[RemoteLogCache, Sequence[EpochEntry]]:
    """Return the segments, and the newest history among their objects.

    *cache*: a broker's; without one the objects show themselves which segments there are.
    """
    from klog.cluster.remote_log.object_facts import cache_of, epoch_history, remote_segment

    if cache is None:
        shown = (remote_segment(tier, one) for one in objects.segments.values())
        known = {one.segment_id: one for one in shown if one is not None}
        cache = cache_of(known)
    else:
        known = {key: one for key, one in cache.segments.items() if one.state is SegmentState.COPY_SEGMENT_FINISHED}
    return cache, epoch_history(tier, objects.segments.values(), known)


def _opened(paths: Sequence[str]) -> tuple[list[LogDir], list[Partition]]:
    """Return the log dirs at or around *paths*, each once, and the current partitions that the paths name."""
    log_dirs: dict[str, LogDir] = {}
    partitions: list[Partition] = []
    for path in paths:
        opened = open_path(path)
        if isinstance(opened, LogDir):
            log_dirs[os.path.realpath(opened.path)] = opened
            partitions += [one for one in opened.partitions if one.state is PartitionState.CURRENT]
        elif isinstance(opened, Partition):
            log_dirs.setdefault(os.path.realpath(opened.log_dir), LogDir(opened.log_dir))
            partitions.append(opened)
    return list(log_dirs.values()), partitions
