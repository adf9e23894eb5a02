"""The plan that makes the copies of partitions on several brokers' disks equal, or leaves a partition alone.

plan = CopyPlan(disks, stagings, differ, settings)
for found in copies_on(disks):
    plan.add(found)
session.finish(plan.drafts(), losses=plan.losses, revise=partial(of_copies, plan.copies))

`of_copies` leaves the log dirs out that the plan does not change, and numbers the others anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from klog.base.errors import KlogError, UnreadableError, counted
from klog.change.partition_plan import checkpoints
from klog.change.plan.draft import Draft, staged_beside, staging_of
from klog.change.plan.model import Loss, Plan
from klog.change.plan.staging import Staging
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas import source_log
from klog.commands.replicas.catch_up import CatchUp, CatchUpPlan, CatchUpSource, CatchUpTarget, shared_end
from klog.commands.replicas.copy_choice import NO_COMPLETE_COPY, CopyChoice, LeftPartition, kept_copy
from klog.commands.replicas.diff import LostRecords, PartitionDiff, ReplicaDiffer, Verdict, diff_all
from klog.commands.replicas.disks import BrokerCopies, BrokerDisk
from klog.commands.replicas.later_removals import LaterRemovals, copied_due
from klog.commands.replicas.source_log import merged_copy
from klog.data_dir.disk.directory_tree import remove_tree
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.partition import Partition
from klog.formats.names import FileKind
from klog.partition import truncate
from klog.partition.retention.due_records import DueRecords
from klog.partition.start.kept_log import KeptLog


class CopyPlanSettings(NamedTuple):
    """*without*: nodes whose disks are not given, and that will not return.  *config*: of topics.

    *without_log_dirs*: the same by directory ids, for nodes with another log dir that is given.

    *now_ms*, *expiration_ms*: see `klog.partition.truncate`.  *only*: the one node whose copies change, a replica or
    not; None for all.  With it, missing disks of other nodes are accepted.
    """

    choice: CopyChoice
    config: TopicConfig
    now_ms: int
    expiration_ms: int
    without: frozenset[int] = frozenset()
    only: int | None = None
    without_log_dirs: frozenset[str] = frozenset()


class EqualCopies(NamedTuple):
    """A partition whose copies become equal to that of node *kept*; *targets* are those that change."""

    diff: PartitionDiff
    kept: int
    targets: tuple[CatchUp, ...]

    def json(self) -> dict[str, object]:
        """Return it as a plan has it."""
        return {
            "topic": self.diff.topic,
            "partition": self.diff.number,
            "kept": self.kept,
            "targets": [
                {
                    "node": one.node,
                    "dir": one.directory,
                    "cut_to": one.cut_to,
                    "records_lost": one.records_lost,
                    "records_added": one.records_added,
                    "bytes_copied": one.bytes_copied,
                }
                for one in self.targets
            ],
        }


class CopyPlan:
    """Collects the changes, partition by partition.

    *disks* and *stagings* have the same order; their positions are the numbers of the log dirs.  *equal*: the
    partitions that change; *left*: those that do not, although their copies differ; *same* counts those that need no
    change.
    """

    def __init__(
        self,
        disks: Sequence[BrokerDisk],
        stagings: Sequence[Staging],
        differ: ReplicaDiffer,
        settings: CopyPlanSettings,
        disk: Disk | None = None,
    ) -> None:
        self._disk = disk or Disk()
        self._disks, self._stagings = disks, stagings
        self._differ, self._settings = differ, settings
        self._drafts: dict[int, list[Draft]] = {number: [] for number in range(len(disks))}
        self._changes: dict[int, list[tuple[tuple[str, int], CatchUp]]] = {number: [] for number in range(len(disks))}
        self.equal: list[EqualCopies] = []
        self.removals = LaterRemovals(settings.config, settings.now_ms)
        self.left: list[LeftPartition] = []
        self._left_behind: list[Loss] = []
        self.same = 0

    @property
    def losses(self) -> list[Loss]:
        """The records that are deleted, and those that only former replicas have."""
        return [loss for one in self.equal for target in one.targets for loss in target.losses] + self._left_behind

    @property
    def copies(self) -> list[dict[str, object]]:
        """The partitions that change, as a plan has them."""
        return [one.json() for one in self.equal]

    def add(self, found: BrokerCopies) -> None:
        """Plan one partition.

        Raises KlogError for a replica whose disk is not given, UsageError for a chosen node that is none.
        """
        self._add(self._differ.diff(found))

    def add_all(self, wanted: Sequence[BrokerCopies], jobs: int = 1) -> None:
        """Plan partitions in their order, as `add` does; many, or large ones, are compared in *jobs* processes."""
        diff_all(self._differ, wanted, jobs, self._add)

    def _add(self, diff: PartitionDiff) -> None:
        only = self._settings.only
        for node in diff.not_given if only is None else [node for node in diff.absent_log_dirs if node == only]:
            self._check_absent(diff, node)
        is_same = diff.verdict is Verdict.SAME and only in (None, *diff.copies)
        if is_same and not (diff.is_compacted and self._is_chosen(diff)):
            reason = next(filter(None, (copy.unserved for copy in diff.copies.values())), None)
            if reason is not None:
                self.left.append(LeftPartition(diff, reason))
            else:
                self.same += 1
                self.removals.add_offsets(diff, next(iter(diff.copies.values())).partition)
            return
        kept = kept_copy(diff, self._settings.choice)
        if isinstance(kept, LeftPartition):
            self.left.append(kept)
            return
        try:
            repaired = self._equalise(diff, kept)
            if only is not None:
                self._leave_behind(diff, kept, repaired)
        except KlogError as error:
            self.left.append(LeftPartition(diff, str(error), isinstance(error, UnreadableError)))

    def _leave_behind(self, diff: PartitionDiff, kept: int, repaired: KeptLog | None) -> None:
        """Name the records that the kept copy lacks as a loss, if the other copies are unchanged and given up.

        *repaired*: the log with intact batches in place of bad ones, which lacks only records around it.
        """
        changed = [one for one in self.equal[-1:] if one.diff is diff]
        named = sum(target.records_lost for one in changed for target in one.targets)
        lost = diff.lost_if_leads.get(kept, LostRecords())
        if repaired is not None:
            lost = lost.outside(repaired.log_start, repaired.log_end)
        if lost.records > named:
            first, last = lost.ranges[0][0], lost.ranges[-1][1]
            loss = Loss(
                diff.topic, diff.number, first, last, lost.records - named, 0, "only in copies that are left out"
            )
            self._left_behind.append(loss)

    def _check_absent(self, diff: PartitionDiff, node: int) -> None:
        """Raise KlogError for a replica that is not given and may return."""
        ids = diff.absent_log_dirs.get(node, ())
        left = [one for one in ids if one not in self._settings.without_log_dirs]
        if left:
            missing = f"the log dir of node {node} with directory.id={left[0]}"
            option = left[0]
        elif not ids and node not in self._settings.without:
            missing, option = f"the disk of replica {node}", str(node)
        else:
            return
        raise KlogError(
            f"{diff.topic}-{diff.number}: {missing} is not given; its copy may be the one that counts"
            f" (--without {option} if it will not return)"
        )

    def _equalise(self, diff: PartitionDiff, kept: int) -> KeptLog | None:
        """Draft all targets of a partition, or raise KlogError and leave all unchanged.

        Returns the log of the kept copy if its bad batches are replaced by intact ones, else None.
        """
        for copy in diff.copies.values():
            copy.partition.checkpoints.check_read()
        state = diff.copies.get(kept)
        targets = self._targets(diff, kept)
        read = [state.partition] if state is not None else []
        if state is None or state.facts is None or not state.facts.bad_batches:
            if state is not None and state.is_cut:
                raise KlogError(
                    f"node {kept} was not stopped cleanly, and its start truncates the log at {state.log_end}, before"
                    f" intact batches; first: klog recover {quote(state.partition.path)} --salvage"
                )
            self._draft(diff, kept, CatchUpSource(diff.topic, diff.number, state), targets, read)
            return None
        others = [copy.partition for node, copy in diff.copies.items() if node != kept]
        if self._settings.only in (None, kept):
            targets.append(CatchUpTarget(kept, state.partition, state))
        with merged_copy(state.partition, others, self._disk) as (merged, end):
            kept_log = KeptLog(state.log_start, end)
            whole = state._replace(disk_copy=state.disk_copy._replace(partition=merged), kept=kept_log)
            self._draft(diff, kept, CatchUpSource(diff.topic, diff.number, whole), targets, [*read, *others])
            return kept_log

    def _draft(
        self,
        diff: PartitionDiff,
        kept: int,
        source: CatchUpSource,
        targets: Sequence[CatchUpTarget],
        read: Sequence[Partition],
    ) -> None:
        """Draft all *targets*; *read*: the partitions that the result rests on."""
        drafts: list[tuple[int, Draft]] = []
        done: list[tuple[int, CatchUp]] = []
        due: list[DueRecords | None] = []
        cluster, now_ms = self._settings.config.metadata, self._settings.now_ms
        try:
            for target in targets:
                part = self._from_offset(diff, source, target)
                alike = shared_end(source, target) if part is None else part
                plan = CatchUpPlan(source, target, self._truncation(diff), part, alike)
                if plan.is_equal:
                    _check_start(target, plan.records_lost)
                    continue
                if plan.records_lost and self._settings.choice.keep is None and not self._is_chosen(diff):
                    raise KlogError(NO_COMPLETE_COPY)
                number = self._number(target.partition)
                draft = Draft(self._disks[number].log_dir.path, number, self._stagings[number])
                drafts.append((number, draft))
                done.append((number, plan.draft(draft)))
                due.append(copied_due(source, target, done[-1][1], cluster, now_ms))
        except BaseException:
            for _, draft in drafts:
                draft.abandon()
            raise
        self.removals.add_offsets(diff, source.partition)
        if not done:
            self.same += 1
            return
        for number, draft in drafts:
            self._drafts[number].append(draft)
        for number, change in done:
            self._changes[number].append(((diff.topic, diff.number), change))
        for partition in read:
            self._guard(partition)
        self.equal.append(EqualCopies(diff, kept, tuple(change for _, change in done)))
        self.removals.records += [one for one in due if one is not None]

    def _is_chosen(self, diff: PartitionDiff) -> bool:
        return self._settings.choice.explicit(diff) is not None

    def _truncation(self, diff: PartitionDiff) -> truncate.TruncateOptions:
        interval = self._settings.config.value(diff.topic, "index.interval.bytes").number
        return truncate.TruncateOptions(self._settings.now_ms, self._settings.expiration_ms, interval)

    def _targets(self, diff: PartitionDiff, kept: int) -> list[CatchUpTarget]:
        """Return the copies except the kept one; a replica without a directory receives one."""
        only = self._settings.only
        wanted = {*diff.copies, *diff.missing} if only is None else {only}
        wanted.discard(kept)
        found = [
            CatchUpTarget(node, copy.partition, copy) for node, copy in sorted(diff.copies.items()) if node in wanted
        ]
        for node in sorted(wanted):
            if node not in diff.copies:
                log_dir = self._disk_for(diff, node).log_dir.path
                found.append(CatchUpTarget(node, Partition(os.path.join(log_dir, f"{diff.topic}-{diff.number}")), None))
        return found

    def _disk_for(self, diff: PartitionDiff, node: int) -> BrokerDisk:
        """Return the log dir for a missing directory: the one of the assignment.

        It is another one only if the assignment changes with it, and the log dir in it will not return.
        """
        mine = [disk for disk in self._disks if disk.node == node]
        place = self._differ.place(diff.registration, node)
        return mine[place.number if place is not None and place.number is not None else 0]

    def _number(self, partition: Partition) -> int:
        places = [os.path.realpath(disk.log_dir.path) for disk in self._disks]
        return places.index(os.path.realpath(partition.log_dir))

    def _from_offset(self, diff: PartitionDiff, source: CatchUpSource, target: CatchUpTarget) -> int | None:
        """Return where two compacted copies part, which batches do not show; None to compare batches.

        Raises KlogError if a cleaner has been beyond that.
        """
        is_whole = self._is_chosen(diff) or source.state is None or target.state is None
        if not diff.is_compacted or is_whole or target.state is None or source.state is None:
            return None
        if target.state.log_end == target.state.log_start:
            return None
        part = target.state.first_difference[source.state.node]
        lowest = min(source_log.batch_base(copy.partition, part) for copy in (source.state, target.state))
        while lowest < part:
            part = lowest
            lowest = min(source_log.batch_base(copy.partition, part) for copy in (source.state, target.state))
        cleaned = max(copy.partition.cleaner_offset or 0 for copy in diff.copies.values())
        if part < cleaned:
            raise KlogError(
                f"the copies are compacted up to {cleaned} and differ from {part} on;"
                f" --choose {diff.topic}-{diff.number}=N takes the complete copy of a node"
            )
        return part

    def _guard(self, partition: Partition) -> None:
        """Make the plan invalid if these files change, except by the plan itself."""
        number = self._number(partition)
        draft = Draft(self._disks[number].log_dir.path, number, self._stagings[number])
        for file in partition.files:
            if file.kind in (FileKind.LOG, FileKind.LEADER_EPOCHS, FileKind.PARTITION_METADATA):
                draft.rely_on(f"{partition.directory}/{file.name}")
        self._drafts[number].append(draft)

    def drafts(self) -> list[Draft]:
        """Return all drafts, by log dir: checkpoints that name less, the partitions, checkpoints that name more.

        Once, at the end.  Raises OSError (staging).
        """
        found: list[Draft] = []
        for number, drafts in self._drafts.items():
            before, after = self._checkpoints(number)
            found += [before, *drafts, after]
        return found

    def _checkpoints(self, number: int) -> tuple[Draft, Draft]:
        log_dir = self._disks[number].log_dir
        before, after = (Draft(log_dir.path, number, self._stagings[number]) for _ in range(2))
        changes = self._changes[number]
        lower = checkpoints.by_file({key: one.lower for key, one in changes})
        checkpoints.plan_around(
            log_dir, lower, checkpoints.by_file({key: one.final for key, one in changes}), before, after
        )
        return before, after


def _check_start(target: CatchUpTarget, records: int) -> None:
    """Raise KlogError if the next start of a copy that stays as it is removes records that the kept copy lacks."""
    if records:
        raise KlogError(
            f"the start of node {target.node} removes {counted(records, 'record')} behind damage that the copy to keep"
            f" does not have; first: klog recover {quote(target.partition.path)} --salvage"
        )


def of_copies(copies: Iterable[Mapping[str, object]], plan: Plan, plan_file: str | None, disk: Disk) -> Plan:
    """Return *plan*, which makes *copies* (as JSON has them) equal, without the log dirs that it does not need.

    Those that it only reads are in `reads`.  Files staged beside *plan_file* are moved to the new numbers of the log
    dirs.  Raises OSError.
    """
    changed = sorted({action.log_dir for action in plan.actions})
    read = sorted({guard.log_dir for guard in plan.guards} - {*changed})
    new = {old: number for number, old in enumerate([*changed, *read])}
    separated = plan._replace(
        copies=tuple(copies),
        log_dirs=tuple(plan.log_dirs[old] for old in changed),
        reads=tuple(plan.log_dirs[old] for old in read),
        backups=tuple(plan.backups[old] for old in changed),
        staging=tuple(plan.staging[old] for old in changed) if plan.staging else (),
        actions=tuple(one._replace(log_dir=new[one.log_dir]) for one in plan.actions),
        guards=tuple(one._replace(log_dir=new[one.log_dir]) for one in plan.guards),
        cuts=tuple(one._replace(log_dir=new[one.log_dir]) for one in plan.cuts),
        no_lock=tuple(new[old] for old in plan.no_lock if old in changed),
        directory_times={(new[old], inside): time for (old, inside), time in plan.directory_times.items()},
        new_directories=tuple((new[old], inside) for old, inside in plan.new_directories),
    )
    return separated if plan_file is None else _renumber_staged(separated, plan_file, disk)


def _renumber_staged(plan: Plan, plan_file: str, disk: Disk) -> Plan:
    if not plan.staging:
        return plan
    moved = []
    for old, new in zip(plan.staging, staging_of(staged_beside(plan_file), plan.log_dirs), strict=True):
        if old and old != new:
            remove_tree(new, disk)  # of a log dir in which nothing changes after all
            disk.rename(old, new)
        moved.append(new if old else "")
    return plan._replace(staging=tuple(moved))
