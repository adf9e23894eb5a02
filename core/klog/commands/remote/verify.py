"""Checks everything between the metadata, a tier and the local logs: `klog remote verify`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from klog.base.errors import KlogError, UsageError, are, counted, offsets_text
from klog.base.progress import Sink
from klog.base.unusable import UNUSABLE, Unusable
from klog.cluster.metadata.topic_config import TopicConfig
from klog.cluster.remote_log.events import TopicIdPartition
from klog.cluster.remote_log.lineage import ChainLink, chain, history_of
from klog.cluster.remote_log.remote_log import IdleEvent, RemoteLog
from klog.commands.remote.local_twin import differing_offset
from klog.commands.remote.partition_listing import LocalLog, PartitionListing, RemoteFacts, list_partition
from klog.commands.remote.remote_findings import RemoteFinding, kind_of
from klog.commands.remote.segment_check import SegmentCheck
from klog.commands.remote.segment_checks import check_segment
from klog.commands.remote.sources import KAFKA_4, RemoteQuery, RemoteSources
from klog.formats.damage import UNFINISHED, DamageKind
from klog.formats.internal_topics import REMOTE_LOG_METADATA
from klog.formats.producer_snapshot import write_snapshot
from klog.formats.remote_log import SegmentState
from klog.jobs.runner import Job, TaskResult, Threads, pickled_result
from klog.kernel import crc32c
from klog.partition.retention.event_retention import expiring_events
from klog.partition.verify.findings import Severity
from klog.partition.verify.log_checks import IDS
from klog.partition.verify.segment_pass import SurveyOptions
from klog.tier.tier_layout import LOG, SNAPSHOT

_ROLES = {
    "unfinished": ("remote-copy-unfinished", "COPY_SEGMENT_STARTED"),
    "deleting": ("remote-delete-unfinished", "DELETE_SEGMENT_STARTED"),
    "dead": ("remote-dead-lineage", "its epochs are not in the history of the partition"),
    "overlapped": ("remote-overlapped", "another segment is found for each of its offsets"),
    "below-start": ("remote-below-start", "it ends below the log start"),
    "orphan": ("remote-orphan", "no entry owns its objects"),
    "entry-lost": ("remote-entry-lost", "no entry owns its objects, and its events can be among those that are gone"),
}
_MOST_UNITS: Final = 1024
"""Units of partitions are collected up to about this number, and then checked together: memory stays bounded."""


@dataclass
class RemoteTotals:
    """How much was checked; *bytes*: of objects, as stored."""

    partitions: int = 0
    segments: int = 0
    objects: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0

    def add(self, other: RemoteTotals) -> None:
        """Add what else was checked."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


def verify_remote(
    query: RemoteQuery, options: SurveyOptions | None, sink: Sink
) -> tuple[list[RemoteFinding], RemoteTotals]:
    """Return the findings, partition by partition.

    *options*: how logs are read, its *jobs* at once; None: names and sizes alone.

    If a broker runs on a log dir, problems are looked at twice: it may have been copying or deleting.  Raises
    UsageError without log dirs or a tier, KlogError for a tier that cannot be listed.
    """
    if not query.paths or query.tier is None:
        raise UsageError("verify compares log dirs with a tier: name log dirs and --remote TIER")
    sources = RemoteSources(query)
    found, totals = _verify(sources, query, options, sink)
    is_live = any(one.lock.held for one in sources.log_dirs)
    if is_live and any(one.severity is not Severity.NOTE for one in found):
        known = {(one.id, one.file, one.segment_id, one.position) for one in found}
        again, totals = _verify(RemoteSources(query), query, options, sink)
        found = [one for one in again if (one.id, one.file, one.segment_id, one.position) in known]
    return found, totals


def _verify(
    sources: RemoteSources, query: RemoteQuery, options: SurveyOptions | None, sink: Sink
) -> tuple[list[RemoteFinding], RemoteTotals]:
    assert sources.objects is not None
    found: list[RemoteFinding] = []
    totals = RemoteTotals()
    chosen = sources.partitions()
    if sources.metadata is not None:
        is_live = any(one.lock.held for one in sources.log_dirs)
        found += _of_logs(sources.metadata, is_live=is_live)
        found += _of_metadata(sources.metadata, query)
        found += _of_settings(sources, chosen)
    units: list[_Unit] = []
    for whose in chosen:
        units += _Partition(sources, whose, query).units()
        if len(units) >= _MOST_UNITS or whose == chosen[-1]:
            _run(units, options, sink, found, totals)
            units = []
    if not query.topics and not query.numbers:
        found += [
            _object("remote-foreign-object", None, key, "not a name of this layout") for key in sources.objects.foreign
        ]
        totals.objects, totals.bytes = sources.objects.objects, sources.objects.bytes
    return found, totals


def _run(
    units: Sequence[_Unit], options: SurveyOptions | None, sink: Sink, found: list[RemoteFinding], totals: RemoteTotals
) -> None:
    """Check *units*, several at once, each on one thread; add the findings in their order."""
    jobs = 1 if options is None else options.jobs
    alone = None if options is None else options._replace(jobs=1)

    def check(unit: _Unit, options: SurveyOptions | None) -> Iterator[TaskResult]:
        yield pickled_result("checked", unit.check(options, sink))

    def take(result: TaskResult) -> None:
        checked: _Checked = result.value
        found.extend(checked.findings)
        totals.add(checked.totals)

    Threads(jobs).run(Job(check, units, alone, [0] * len(units)), sink, take)


def _of_logs(metadata: RemoteLog, *, is_live: bool) -> Iterator[RemoteFinding]:
    """Yield the damage in the logs of the topic; *is_live*: a broker may be writing the end of one."""
    for one in metadata.faults:
        kind = next((kind for kind in IDS if f": {kind}: " in one.message), DamageKind.UNREADABLE)
        if not (is_live and kind in UNFINISHED):
            file = f"{REMOTE_LOG_METADATA}-{one.metadata_partition}"
            yield RemoteFinding(
                kind_of(IDS[kind]), None, None, "metadata", None, file, None, None, one.message, file
            )  # fmt: skip


def _of_metadata(metadata: RemoteLog, query: RemoteQuery) -> Iterator[RemoteFinding]:
    """Yield the events without an effect; those of partitions that the query leaves out are none of its answer."""
    for events, finding_id in (
        (metadata.refused, "remote-metadata-malformed"),
        (metadata.misplaced, "remote-event-misplaced"),
        (metadata.dropped, "remote-event-dropped"),
    ):
        yield from (
            _event(finding_id, one) for one in events.named if one.event is None or query.selects(one.event.partition)
        )


def _event(finding_id: str, one: IdleEvent) -> RemoteFinding:
    whose = one.event.partition if one.event is not None else None
    file = f"{REMOTE_LOG_METADATA}-{one.place.metadata_partition}"
    about = one.reason if one.event is None else f"{whose} segment {one.event.segment_id}, state {one.event.state}"
    topic, number = (whose.topic, whose.number) if whose is not None else (None, None)
    segment_id = one.event.segment_id if one.event is not None else None
    return RemoteFinding(
        kind_of(finding_id), topic, number, "metadata", segment_id, file, None, one.place.offset, about, file
    )


def _of_settings(sources: RemoteSources, chosen: Sequence[TopicIdPartition]) -> Iterator[RemoteFinding]:
    """Yield the settings of the topic that delete events of the partitions' segments."""
    cluster = sources.cluster
    if cluster is None:
        return
    tiered = {one.topic for one in chosen if cluster.is_tiered(one.topic)}
    if (expiring := expiring_events(TopicConfig(sources.log_dirs[0], cluster=cluster), tiered)) is not None:
        kind, file = kind_of("remote-events-expire"), REMOTE_LOG_METADATA
        yield RemoteFinding(kind, None, None, "metadata", None, file, None, None, expiring, file)


def _object(finding_id: str, whose: TopicIdPartition | None, key: str, message: str) -> RemoteFinding:
    topic, number = (whose.topic, whose.number) if whose is not None else (None, None)
    heading = str(whose) if whose is not None else "objects of no partition"
    return RemoteFinding(kind_of(finding_id), topic, number, "remote", None, key, None, None, message, heading)


class _Checked(NamedTuple):
    """The findings of a unit, and how much was checked."""

    findings: list[RemoteFinding]
    totals: RemoteTotals


class _Unit(NamedTuple):
    """A segment that serves, with the one *before* it; without a *link* all else of a partition."""

    partition: _Partition
    link: ChainLink | None = None
    before: ChainLink | None = None

    def check(self, options: SurveyOptions | None, sink: Sink) -> _Checked:
        """Return the findings, and the amount that was read."""
        if self.link is None:
            return self.partition.check()
        return self.partition.check_link(self.link, self.before, options, sink)


class _Partition:
    """The checks of one partition."""

    def __init__(self, sources: RemoteSources, whose: TopicIdPartition, query: RemoteQuery) -> None:
        self._sources, self._whose, self._tier = sources, whose, query.tier
        self.facts: RemoteFacts = sources.facts(whose)

    def units(self) -> list[_Unit]:
        """Return the units of work: the partition without its segments, then each segment that serves."""
        links = self._links()
        return [_Unit(self), *map(_Unit, [self] * len(links), links, [None, *links])]

    def check(self) -> _Checked:
        """Check everything but the segments that serve."""
        listing = list_partition(self.facts)
        is_lost = self._is_lost(listing)
        found = [*self._of_partition(listing, is_lost=is_lost), *self._of_roles(listing, is_lost=is_lost)]
        sizes = [size for one in (self.facts.objects or {}).values() for size in one.sizes.values()]
        return _Checked(found, RemoteTotals(partitions=1, objects=len(sizes), bytes=sum(sizes)))

    def check_link(
        self, link: ChainLink, before: ChainLink | None, options: SurveyOptions | None, sink: Sink
    ) -> _Checked:
        """Check a segment that serves; *before*: the one before it."""
        found: list[RemoteFinding] = []
        check = self._segment(link)
        if link.is_dead_tail:
            first, end = link.last + 1, link.segment.end_offset
            message = f"{offsets_text(first, end)} {are(first, end)} not in the history of the partition"
            found.append(check.finding("remote-dead-tail", LOG, message, offset=first))
        producers = None if options is None else self._producers(link, before)
        result = check_segment(check, options, sink, producers)
        found += result.findings
        if options is not None and options.deep:
            found += self._against_local(check)
        return _Checked(found, RemoteTotals(segments=1, batches=result.batches, records=result.records))

    def _producers(self, link: ChainLink, before: ChainLink | None) -> bytes | None:
        """Return the producer snapshot at the start of a segment: that of the segment before; None if unknown."""
        start = link.segment.start_offset
        if before is None or before.segment.end_offset + 1 != start:
            return write_snapshot((), crc32c) if before is None and start == 0 else None
        check = self._segment(before)
        try:
            return None if check.objects is None else check.tier.reader(check.objects).read(SNAPSHOT)
        except KlogError:
            return None  # the check of that segment reports it

    def _finding(self, finding_id: str, tier: str, file: str, message: str, offset: int | None) -> RemoteFinding:
        whose = self._whose
        kind = kind_of(finding_id)
        return RemoteFinding(kind, whose.topic, whose.number, tier, None, file, None, offset, message, str(whose))

    def _is_lost(self, listing: PartitionListing) -> bool:
        """Whether the metadata have no record of the partition, and there was something in remote storage."""
        if self.facts.cache is None:
            if not self._sources.is_metadata_lost(self._whose):
                self._note_unknown()
                return False
        elif listing.segments or listing.deleted or self._sources.is_metadata_damaged(self._whose):
            return False
        start, local = listing.log_start_offset, listing.local_log_start_offset
        is_below = start is not None and local is not None and start < local and self.facts.until_ms is None
        return is_below or (bool(self.facts.stored()) and not self._sources.is_deleted_with_events(self._whose))

    def _note_unknown(self) -> None:
        """Note that the events of the partition are elsewhere: nothing shows which objects there should be."""
        path = os.path.join(self._sources.log_dirs[0].path, REMOTE_LOG_METADATA)
        message = f"{path}: the partition with the events of {self._whose} is not in these log dirs, and neither it nor"
        message += " others like it were checked; name the log dir that has it, too"
        UNUSABLE.note(Unusable(path, message, is_unreadable=True))

    def _of_partition(self, listing: PartitionListing, *, is_lost: bool) -> Iterator[RemoteFinding]:
        if is_lost:
            message = f"no record; the tier has {counted(len(self.facts.objects or ()), 'segment')} of the partition"
            yield self._finding(
                "remote-metadata-lost", "metadata", REMOTE_LOG_METADATA, message, listing.log_start_offset
            )
        for first, last in () if is_lost else listing.holes:
            yield self._finding("remote-hole", "remote", "", listing.hole_text(first, last), first)
        if listing.states.get(SegmentState.COPY_SEGMENT_FINISHED.name) and self._is_local_gone():
            message = f"{counted(listing.segments, 'segment')} in remote storage, and no local log"
            yield self._finding("remote-local-gone", "local", str(self._whose), message, listing.remote_start_offset)

    def _is_local_gone(self) -> bool:
        local: LocalLog | None = self.facts.local
        if local is not None:
            return local.local_log_start_offset == local.log_end_offset == 0
        cluster, whose = self._sources.cluster, self._whose
        if cluster is None or cluster.topic_ids.get(whose.topic) != whose.topic_id:
            return False
        known = cluster.partition(whose.topic, whose.number)
        nodes = {one.node_id for one in self._sources.log_dirs}
        return known is not None and any(replica in nodes for replica in known.replicas)

    def _of_roles(self, listing: PartitionListing, *, is_lost: bool) -> Iterator[RemoteFinding]:
        """Yield the segments that serve no reader, by their entries: objects alone do not show their states."""
        if self.facts.cache is None:
            return
        is_unsure = is_lost or self._sources.is_metadata_damaged(self._whose)
        for one in listing.segment_list:
            if one.role not in _ROLES or (is_unsure and one.role == "orphan") or (is_lost and one.role == "entry-lost"):
                continue
            finding_id, message = _ROLES[one.role]
            found = (self.facts.objects or {}).get(one.segment_id)
            file = min(found.keys.values()) if found is not None and found.keys else ""
            end = "" if one.end_offset is None else f" to {one.end_offset}"
            heading = f"{self._whose}  segment {one.segment_id}, {one.start_offset}{end}"
            finding = self._finding(finding_id, "remote", file, message, one.start_offset)
            yield finding._replace(segment_id=one.segment_id, heading=heading)

    def _links(self) -> list[ChainLink]:
        """Return the segments that serve, each once, up to the last offset that belongs to the history."""
        cache, local = self.facts.cache, self.facts.local
        if cache is None:
            return []
        epochs = local.epochs if local else history_of(cache.segments.values())
        links: dict[str, ChainLink] = {}
        for one in chain(cache, epochs, local.log_start_offset if local else 0) if epochs else ():
            before = links.get(one.segment.segment_id)
            links[one.segment.segment_id] = one if before is None else one._replace(first=before.first)
        return list(links.values())

    def _segment(self, link: ChainLink) -> SegmentCheck:
        assert self._tier is not None
        found = (self.facts.objects or {}).get(link.segment.segment_id)
        local = self.facts.local
        needs = not link.segment.txn_index_empty and self._sources.is_of_kafka_4(KAFKA_4)
        epochs = local.epochs if local else ()
        near = next((key for one in (self.facts.objects or {}).values() for key in one.keys.values()), "")
        folder = near[: near.rfind("/") + 1]
        return SegmentCheck(self._whose, self._tier, link.segment, found, link.last, epochs, needs, folder)

    def _against_local(self, check: SegmentCheck) -> Iterator[RemoteFinding]:
        """Compare the bytes with the local segment of the same offset, if there is one."""
        assert self._tier is not None
        log = self._sources.local_log(self._whose)
        if log is None or check.objects is None:
            return
        try:
            different = differing_offset(log, self._tier.reader(check.objects), check.entry.start_offset)
        except (KlogError, OSError):
            return  # the checks of the segment told
        if different is not None:
            name = os.path.join(log.directory, f"{check.entry.start_offset:020}.log")
            finding = check.finding("remote-local-differs", "log", f"{name} has other bytes from here on", different)
            yield finding._replace(tier="local", file=name)
