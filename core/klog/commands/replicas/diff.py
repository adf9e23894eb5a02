"""The differences between the copies of each partition, the leader, and the losses."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from klog.base.errors import KlogError
from klog.base.progress import Silence
from klog.cluster.assigned_log_dir import AssignedLogDir, assigned_log_dir
from klog.cluster.election import ElectionReason, ElectionRules, ReplicaSet, elect, outcomes
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.batch_comparison import ComparedCopy, Comparison, LostRecordSink
from klog.commands.replicas.compacted import CompactedComparison
from klog.commands.replicas.copy_state import CopyState, StartedCopy, compared_copy, copy_states, expected_starts
from klog.commands.replicas.disks import BrokerCopies, BrokerDisk, MetadataLog, broker_disks
from klog.commands.replicas.served_directories import ServedDirectories
from klog.jobs.runner import CHUNK, FEWEST, Job, Processes, TaskResult, may_fork, pickled_result
from klog.partition.retention.first_pass import topic_retention
from klog.partition.start.kept_log import NextStarts

ELR_VERSION: Final = "eligible.leader.replicas.version"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
_LARGE_BYTES = 64 << 20
"""Less is compared before a second process has started."""


class Verdict(StrEnum):
    """The relation of the copies of a partition, the worst first."""

    INCOMPARABLE = "incomparable"
    DAMAGED = "damaged"
    DIVERGED = "diverged"
    MISSING = "missing"
    BEHIND = "behind"
    SAME = "same"


class LostRecords(NamedTuple):
    """Data records that would be lost; *ranges* of offsets are inclusive.

    *committed_below*: how many of them lie below the highest high watermark that any copy has on disk.
    """

    records: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    committed_below: int = 0

    def outside(self, start: int, end: int) -> LostRecords:
        """Return those with offsets below *start* or from *end* on.

        How many of a range they are is known only at most: a compacted log lacks offsets.
        """
        ranges = [(first, min(last, start - 1)) for first, last in self.ranges if first < start]
        ranges += [(max(first, end), last) for first, last in self.ranges if last >= end]
        records = min(self.records, sum(last - first + 1 for first, last in ranges))
        return LostRecords(records, tuple(ranges), min(self.committed_below, records))


class Outcome(NamedTuple):
    """The outcome of an election: the leader, None without one; the cuts of the others; the losses."""

    leader: int | None
    because: ElectionReason
    log_end: int | None
    cuts: Mapping[int, int]
    lost: LostRecords


class WhatIf(NamedTuple):
    """The outcomes of a start order: groups of nodes, in each of which any node may be the first.

    *settings*: used instead of those found.
    """

    up: tuple[tuple[int, ...], ...]
    settings: Mapping[str, str]
    outcomes: tuple[Outcome, ...]


class PartitionDiff(NamedTuple):
    """A partition and its copies, by node.

    *registration*: the controller's; None if no metadata log has the partition.  *missing*: replicas whose log dir is
    given and has no directory.  *not_given*: replicas whose log dir is not given; *absent_log_dirs*: for those of them
    of whose node another log dir is given, the directory ids of the log dirs that may have the copy.  *leader*,
    *because*: those of the election once all given brokers are back.  *lost_if_leads*: for each of their replicas.
    *all_back*: every outcome of that election.  *trusts_epochs*: the cuts by leader epochs are at the first
    differences.  *is_unregistered*: there is a metadata log, which does not contain the partition.  *holes*: for
    compacted copies, the number of legally missing records, and the ranges of the others.  *knows_settings*: the
    settings of the topic itself are known.
    """

    topic: str
    number: int
    topic_id: str | None
    is_compacted: bool
    verdict: Verdict
    common_prefix_end: int
    registration: ReplicaSet | None
    leader_epoch: int | None
    unclean: bool
    copies: Mapping[int, CopyState]
    missing: tuple[int, ...]
    not_given: tuple[int, ...]
    leader: int | None = None
    because: ElectionReason | None = None
    lost_if_leads: Mapping[int, LostRecords] = {}
    all_back: tuple[Outcome, ...] = ()
    what_if: WhatIf | None = None
    trusts_epochs: bool = True
    holes: Mapping[int, tuple[int, tuple[tuple[int, int], ...]]] = {}
    problem: str | None = None
    is_unregistered: bool = False
    absent_log_dirs: Mapping[int, tuple[str, ...]] = {}
    knows_settings: bool = False

    @property
    def acks_all_safe(self) -> bool | None:
        """Whether no committed record is lost, whoever leads once all are back; None if unknown."""
        if self.registration is None or self.verdict is Verdict.INCOMPARABLE:
            return None
        return not any(outcome.lost.committed_below for outcome in self.all_back)

    @property
    def is_safe(self) -> bool:
        """Whether nothing is lost, whoever leads; False if a copy that may lead is not given."""
        is_harmless = self.verdict in (Verdict.SAME, Verdict.BEHIND) and not self.not_given
        return is_harmless and all(copy.is_served for copy in self.copies.values()) and not self.losing

    @property
    def losing(self) -> frozenset[int]:
        """The nodes that may lead, and lack records then; only replicas do, as far as these are known."""
        may_lead = self.lost_if_leads if self.registration is None else self.registration.replicas
        return frozenset(node for node, lost in self.lost_if_leads.items() if lost.records and node in may_lead)


class DiffOptions(NamedTuple):
    """The input of a diff besides the disks.

    *metadata*: None without metadata.  *config*: of topics.  *elr_version*: used instead of the metadata's.  *up*: a
    start order to play, groups of nodes; None for no order.  *settings*: those that replace the found ones, for the
    record.  *is_deep*: bytes of batches that look equal are compared, too.  *only*: the one broker that will start,
    None for all.
    """

    metadata: MetadataLog | None
    config: TopicConfig
    elr_version: int | None = None
    up: tuple[tuple[int, ...], ...] | None = None
    settings: Mapping[str, str] = {}
    is_deep: bool = False
    only: int | None = None


class ReplicaDiffer:
    """Compares the copies on *disks* of one partition after the other."""

    def __init__(self, disks: Sequence[BrokerDisk], options: DiffOptions) -> None:
        self._options = options
        self._state = options.metadata.state if options.metadata is not None else None
        self._nodes = tuple(sorted({disk.node for disk in disks}))
        self._log_dirs = {node: [disk.log_dir for disk in disks if disk.node == node] for node in self._nodes}
        self._disks = broker_disks(disks)
        self._starts, self._now_ms = NextStarts(), int(time.time() * 1000)
        self._served = ServedDirectories(disks, options.only)
        # The question is asked here: to a forked process a lock of klog's own looks like a broker's.
        self._in_use = {disk.log_dir.path for disk in disks if disk.log_dir.lock.held}

    def diff(self, found: BrokerCopies, sink: LostRecordSink | None = None) -> PartitionDiff:
        """Compare the copies of a partition.  Nothing is raised: an unreadable copy makes it incomparable.

        *sink*: receives the records that are lost if one of the replicas leads.
        """
        registration, leader_epoch = self._registration(found)
        replicas = registration.replicas if registration is not None else ()
        places = {node: self.place(registration, node) for node in replicas if node not in found.copies}
        topic_ids = {copy.partition.topic_id: None for copy in found.copies.values()}
        settings = self._options.config
        common = PartitionDiff(
            found.topic,
            found.number,
            next(filter(None, topic_ids), None),
            "compact" in settings.value(found.topic, "cleanup.policy").words,
            Verdict.INCOMPARABLE,
            0,
            registration,
            leader_epoch,
            settings.value(found.topic, UNCLEAN_ELECTION).flag,
            {},
            tuple(node for node, place in places.items() if place and place.number is not None),
            tuple(node for node, place in places.items() if place is None or place.number is None),
            is_unregistered=registration is None and self._options.metadata is not None,
            knows_settings=settings.is_known(found.topic),
            absent_log_dirs={
                node: place.absent for node, place in places.items() if place is not None and place.absent
            },
        )
        try:
            for copy in found.copies.values():
                copy.partition.check_listed()
            bounds = {node: self._bounds(found, registration, node) for node in sorted(found.copies)}
            problem = _other_topic(found) or self._served.arriving(found, registration)
            if problem is not None:
                copies = copy_states(found.copies, bounds, None, registration, leader_epoch)
                return common._replace(copies=copies, problem=problem)
            return self._compare(common, found, bounds, sink)
        except KlogError as error:
            return common._replace(problem=str(error))

    def _bounds(self, found: BrokerCopies, registration: ReplicaSet | None, node: int) -> ComparedCopy:
        copy = found.copies[node]
        is_in_use = copy.disk.log_dir.path in self._in_use
        aside = None if is_in_use else self._served.aside(found, registration, node)
        return compared_copy(copy, self._starts, self._options.config, is_in_use, aside)

    def place(self, registration: ReplicaSet | None, node: int) -> AssignedLogDir | None:
        """Return the log dir of *node* that has a partition without a directory; None: no log dir is given."""
        if node not in self._log_dirs:
            return None
        broker = self._state.brokers.get(node) if self._state is not None else None
        assigned = registration.directory_of(node) if registration is not None else None
        return assigned_log_dir(assigned, self._log_dirs[node], broker.log_dirs if broker is not None else ())

    def _registration(self, found: BrokerCopies) -> tuple[ReplicaSet | None, int | None]:
        """Return the controller's state of a partition, and its leader epoch; None, None for an unknown one."""
        state = self._state
        if state is None:
            return None, None
        ids = {copy.partition.topic_id for copy in found.copies.values()} - {None}
        known = state.partition(found.topic, found.number)
        if known is None or (ids and state.topic_ids.get(found.topic) not in ids):
            return None, None
        registration = ReplicaSet(
            known.replicas, known.isr, known.elr, known.last_known_elr, known.leader, known.directories
        )
        return registration, known.leader_epoch

    def _rules(self, unclean: bool) -> ElectionRules:
        state, version = self._state, self._options.elr_version
        if version is None:
            version = state.features.get(ELR_VERSION, 0) if state is not None else 0
        epochs = {node: broker.epoch for node, broker in state.brokers.items()} if state is not None else {}
        return ElectionRules(unclean, version, epochs, self._disks)

    def _compare(
        self,
        common: PartitionDiff,
        found: BrokerCopies,
        bounds: Mapping[int, ComparedCopy],
        sink: LostRecordSink | None,
    ) -> PartitionDiff:
        bounds = self._with_starts(found, bounds)
        every = [*bounds.values(), *(ComparedCopy(node, None, 0, 0) for node in common.missing)]
        watermark = max((copy.partition.high_watermark or 0 for copy in found.copies.values()), default=0)
        cleaned = {node: copy.partition.cleaner_offset for node, copy in found.copies.items()}
        comparison: Comparison = (
            CompactedComparison(every, watermark, cleaned, sink, self._options.is_deep)
            if common.is_compacted
            else Comparison(every, watermark, sink, self._options.is_deep)
        )
        comparison.run()
        copies = copy_states(found.copies, bounds, comparison, common.registration, common.leader_epoch)
        differences = [comparison.first_difference(one, other) for one in copies for other in copies if one < other]
        verdict = _verdict(comparison, copies, common.missing)
        diff = common._replace(
            verdict=verdict,
            common_prefix_end=min(differences, default=max((copy.log_end for copy in bounds.values()), default=0)),
            copies=copies,
            lost_if_leads={
                node: LostRecords(facts.lost.count, tuple(facts.lost.ranges), facts.lost_below)
                for node, facts in sorted(comparison.facts.items())
            },
            trusts_epochs=common.is_compacted
            or verdict is Verdict.DAMAGED
            or all(copy.cut_if_leads == copy.first_difference for copy in copies.values()),
            holes=_holes(comparison),
        )
        gap = _gap(bounds)
        if gap is not None:
            diff = diff._replace(verdict=Verdict.INCOMPARABLE, problem=gap)
        return self._elected(diff)

    def _with_starts(self, found: BrokerCopies, bounds: Mapping[int, ComparedCopy]) -> dict[int, ComparedCopy]:
        """Return *bounds* with the offsets from which on each copy should have all records."""
        config, started = self._options.config, {}
        for node, one in bounds.items():
            log_dir = found.copies[node].disk.log_dir
            retention = topic_retention(config.on(log_dir), found.topic)
            started[node] = StartedCopy(one, retention, log_dir.clean_shutdown is not None)
        starts = expected_starts(started, self._now_ms)
        return {node: one._replace(expected_from=starts[node]) for node, one in bounds.items()}

    def _elected(self, diff: PartitionDiff) -> PartitionDiff:
        """Add who leads."""
        registration = diff.registration
        if registration is None:
            return diff
        rules = self._rules(diff.unclean)
        back = [node for node in registration.replicas if node in self._nodes]
        leader, because = elect(registration, back, rules)
        all_back = outcomes(registration, [back], rules)
        diff = diff._replace(
            leader=leader, because=because, all_back=tuple(_outcome(diff, *result, back) for result in all_back)
        )
        options = self._options
        if options.up is None and not options.settings:
            return diff
        order = options.up if options.up is not None else (tuple(back),)
        groups = [[node for node in group if node in back] for group in order]
        up = [node for group in groups for node in group]
        played = outcomes(registration, groups, rules)
        what_if = WhatIf(order, options.settings, tuple(_outcome(diff, *result, up) for result in played))
        return diff._replace(what_if=what_if)


def diff_all(
    differ: ReplicaDiffer, wanted: Sequence[BrokerCopies], jobs: int, take: Callable[[PartitionDiff], object]
) -> None:
    """Compare one partition after the other and hand each comparison to *take*; many, or large ones, in processes.

    There are *jobs* of them.  Raises KlogError when one of them was killed.
    """
    is_many = len(wanted) >= FEWEST
    sizes = (copy.partition.size for found in wanted for copy in found.copies.values())
    if jobs == 1 or not may_fork() or not (is_many or (len(wanted) > 1 and sum(sizes) >= _LARGE_BYTES)):
        for found in wanted:
            take(differ.diff(found))
        return

    def job(numbers: range, _options: None) -> Iterator[TaskResult]:
        for number in numbers:
            found = differ.diff(wanted[number])
            # The caller adds the disks: a log dir of thousands of partitions is not sent with each of them.
            bare = {node: copy._replace(disk_copy=None) for node, copy in found.copies.items()}  # type: ignore[arg-type]
            yield pickled_result("diff", found._replace(copies=bare), number)

    def took(result: TaskResult) -> None:
        one: PartitionDiff = result.value
        found = wanted[result.number]
        copies = {node: copy._replace(disk_copy=found.copies[node]) for node, copy in one.copies.items()}
        take(one._replace(copies=copies))

    step = CHUNK if is_many else 1
    units = [range(first, min(first + step, len(wanted))) for first in range(0, len(wanted), step)]
    Processes(jobs).run(Job(job, units, None, [0] * len(units)), Silence(), took)


def _other_topic(found: BrokerCopies) -> str | None:
    """Return why the directories are not copies of one partition, None if they are."""
    if found.is_one_thing:
        return None
    ids = {node: copy.partition.topic_id or "unknown" for node, copy in sorted(found.copies.items())}
    said = ", ".join(f"{topic_id} on {node}" for node, topic_id in ids.items())
    return f"they may belong to different topics: topic id {said}"


def _gap(bounds: Mapping[int, ComparedCopy]) -> str | None:
    """Return which copy begins above the end of another one, None if there is none: they have nothing in common."""
    for one in bounds.values():
        for other in bounds.values():
            if one.log_start > other.log_end and other.log_end > other.log_start:
                ends = f"where that on {other.node} ends"
                return f"the copy on {one.node} starts at {one.log_start}, above {other.log_end}, {ends}"
    return None


def _verdict(comparison: Comparison, copies: Mapping[int, CopyState], missing: Collection[int]) -> Verdict:
    if any(comparison.facts[node].bad_batches for node in copies):
        return Verdict.DAMAGED
    ends = {node: copy.log_end for node, copy in copies.items()}
    empty = {node for node, copy in copies.items() if copy.log_end == copy.log_start}
    for one in copies:
        for other in copies:
            least = min(ends[one], ends[other])
            if one < other and not {one, other} & empty and comparison.first_difference(one, other) < least:
                return Verdict.DIVERGED
    if missing or any(comparison.facts[node].lost.count for node in empty):  # otherwise emptied on purpose
        return Verdict.MISSING
    is_lacking = any(facts.lost.count for facts in comparison.facts.values())
    return Verdict.BEHIND if is_lacking or len(set(ends.values())) > 1 else Verdict.SAME


def _holes(comparison: Comparison) -> dict[int, tuple[int, tuple[tuple[int, int], ...]]]:
    if not isinstance(comparison, CompactedComparison):
        return {}
    return {node: (count, tuple(comparison.unexplained[node].ranges)) for node, count in comparison.explained.items()}


def _outcome(diff: PartitionDiff, leader: int | None, because: ElectionReason, up: Sequence[int]) -> Outcome:
    if leader is None:
        return Outcome(None, because, None, {}, LostRecords())
    copy = diff.copies.get(leader)
    cuts = {
        node: other.cut_if_leads.get(leader, 0) for node, other in diff.copies.items() if node != leader and node in up
    }
    log_end = copy.log_end if copy is not None else 0
    return Outcome(leader, because, log_end, cuts, diff.lost_if_leads.get(leader, LostRecords()))
