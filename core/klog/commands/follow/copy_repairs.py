"""Opens the copies of a run's partitions, and gives a copy a history that its leader has.

A copy is cut where its disk lost something, and removed with a deleted topic.  All removed data is kept in the backup.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Lock

from klog.base.errors import DamagedError, ExitCode, UnreadableError
from klog.cluster.leader_epoch_cache import UNDEFINED
from klog.commands.follow.client.client_requests import (
    PASSING,
    ForeignAnswerError,
    LostConnectionError,
    RefusedRequestError,
)
from klog.commands.follow.client.cluster import EARLIEST, LATEST, Cluster, ClusterTopics
from klog.commands.follow.copied_history import ANEW, LeaderLog, find_parting
from klog.commands.follow.copied_partition import CopiedPartition
from klog.commands.follow.copy_dir import CopyDir
from klog.commands.follow.fetch_session import FollowedPlace
from klog.commands.follow.follow_options import FollowOptions
from klog.commands.follow.followed_partition import CLEANED, FollowedPartition, FollowReporter
from klog.commands.follow.reactions import (
    Cut,
    Decision,
    EpochEnd,
    Leave,
    Look,
    Part,
    Renew,
    Skip,
    Trust,
    Wait,
    locate,
    refusal,
)
from klog.commands.follow.side_file import SideFile
from klog.formats.java_text import ZERO_UUID
from klog.partition.append.log_resumption import CutShortError


def carry_out(
    partition: FollowedPartition, decision: Decision, cluster: Cluster, options: FollowOptions, reporter: FollowReporter
) -> Wait | Leave | None:
    """Carry out *decision*; return the reason to wait, None when the partition can be fetched again.

    Raises KlogError, OSError.
    """
    if isinstance(decision, Look | Part):
        decision = _asked(partition, cluster, _located if isinstance(decision, Look) else _parted)
    if isinstance(decision, Cut):
        if options.trace and decision.epoch != UNDEFINED:
            reporter.trace(f"{partition.name} diverging epoch={decision.epoch} end={decision.end}")
        parted = decision.to, partition.leader_epoch
        if options.on_divergence == "stop" or parted in partition.parted:
            again = " again after a cut there" if parted in partition.parted else ""
            return Leave(f"{_parting(partition, decision)}{again}: the copy stays unchanged", ExitCode.PROBLEMS_LEFT)
        partition.parted.add(parted)
        _cut(partition, decision, options, reporter)
    elif isinstance(decision, Skip):
        _skip(partition, decision, reporter)
    elif isinstance(decision, Trust):
        partition.is_trusted = True
    elif isinstance(decision, Renew):
        begin_anew(partition, reporter)
    elif isinstance(decision, Wait | Leave):
        return decision
    return None


def _asked(
    partition: FollowedPartition, cluster: Cluster, ask: Callable[[FollowedPartition, Cluster], Decision]
) -> Decision:
    try:
        return ask(partition, cluster)
    except RefusedRequestError as error:
        return refusal(error.code)
    except (LostConnectionError, ForeignAnswerError) as error:
        return Wait(str(error))


def _located(partition: FollowedPartition, cluster: Cluster) -> Cut | Skip | Trust | Wait:
    key = partition.place.topic, partition.place.number

    def epoch_end(epoch: int) -> EpochEnd:
        answer = cluster.epoch_ends({key: epoch})[key]
        if answer.error:
            raise RefusedRequestError(answer.error.name, answer.error)
        return answer.epoch, answer.end_offset

    last = partition.unseen.facts.last_offset if partition.unseen is not None else None
    bounds = partial(_bounds, partition, cluster)
    return locate(partition.copy.epochs, partition.copy.end, epoch_end, bounds, last)


def _bounds(partition: FollowedPartition, cluster: Cluster) -> tuple[int, int]:
    """Return the leader's log start and its high watermark."""
    key = partition.place.topic, partition.place.number
    start, end = (cluster.offsets([key], which)[key] for which in (EARLIEST, LATEST))
    for one in (start, end):
        if one.error:
            raise RefusedRequestError(one.error.name, one.error)
    return start.offset, end.offset


def _parted(partition: FollowedPartition, cluster: Cluster) -> Cut | Wait:
    """Find the first difference between the leader's batches and the copy's."""
    place, start = partition.place, _bounds(partition, cluster)[0]

    def fetch(offset: int) -> memoryview:
        return cluster.fetch(partition.leader, place.topic, place.topic_id, place.number, offset)

    try:
        to = find_parting(partition.copy, LeaderLog(start, fetch))
    except DamagedError as error:
        return Wait(str(error))
    return Cut(to, UNDEFINED, UNDEFINED, has_others=True) if to is not None else Wait("the leader's log has changed")


def _parting(partition: FollowedPartition, cut: Cut) -> str:
    if cut.has_others:
        why = f"the leader has other batches from {cut.to} on under the same leader epochs, as after a roll-back"
    elif cut.epoch != UNDEFINED:
        why = f"leader epoch {cut.epoch} ended at {cut.end}"
    elif cut.end != UNDEFINED:
        why = f"the leader's log ends at {cut.end}"
    else:
        why = "the leader has no leader epoch of the copy"
    return f"{partition.name}: {why}, and the copy continues to {partition.copy.end - 1}"


def _cut(partition: FollowedPartition, cut: Cut, options: FollowOptions, reporter: FollowReporter) -> None:
    said, start, end = _parting(partition, cut), partition.copy.log_start, partition.copy.end
    with partition.lock:
        partition.keep(partition.copy.cut(cut.to))
    # If nothing was left, the copy starts over, at the leader's log start.
    partition.is_new = not partition.copy.end
    if partition.is_new:
        partition.cleaning = partition.cleaning.begun(time.time_ns() // 1_000_000)
    now = max(start, partition.copy.end)
    if options.trace:
        reporter.trace(f"{partition.name} truncate LEO={now} kept={end - now}")
    if now < end:
        reporter.error(f"{said}: offsets {now}–{end - 1} were cut; they are in {partition.backups[-1]}")
        partition.cut.append((now, end - 1))
        partition.first_offset = min(partition.first_offset, now)
        partition.exit_code |= ExitCode.CORRECTED
        if not partition.is_new and partition.cleaning.note_cut(partition.copy):
            reporter.error(
                f"{partition.name}: compaction has removed records below {now} that later ones replaced, and of those"
                f" some were cut: keys may be missing in the copy; {ANEW}"
            )
            partition.exit_code |= ExitCode.PROBLEMS_LEFT


def _skip(partition: FollowedPartition, skip: Skip, reporter: FollowReporter) -> None:
    first, last = partition.copy.end, skip.to - 1
    with partition.lock:
        partition.copy.skip_to(skip.to)
    reporter.error(f"{partition.name}: offsets {first}–{last} were deleted before they were copied")
    partition.is_trusted, partition.skipped_to = True, skip.to
    partition.missed.append((first, last))
    partition.exit_code |= ExitCode.PROBLEMS_LEFT


def begin_anew(partition: FollowedPartition, reporter: FollowReporter) -> None:
    """Start the copy over: deletions may be missing in it.  Raises KlogError, OSError."""
    first, end = partition.copy.log_start, partition.copy.end
    with partition.lock:
        partition.keep(partition.copy.replace(partition.copy.topic_id))
    reporter.error(
        f"{partition.name}: it is copied from the start; the old copy, which ended at {end}, is in"
        f" {partition.backups[-1]}"
    )
    partition.cut.append((first, end - 1))
    partition.first_offset, partition.is_new = 0, True
    partition.cleaning = partition.cleaning.begun(time.time_ns() // 1_000_000)
    partition.exit_code = partition.exit_code & ~ExitCode.PROBLEMS_LEFT | ExitCode.CORRECTED


def replace(partition: FollowedPartition, place: FollowedPlace, reporter: FollowReporter) -> None:
    """Start the copy over: the topic was deleted, and made again with another id.  Raises KlogError, OSError."""
    before, end = partition.copy.topic_id, partition.copy.end
    with partition.lock:
        partition.keep(partition.copy.replace(place.topic_id if place.topic_id != ZERO_UUID else None))
    said = f"{partition.name}: the topic was created again, {place.topic_id} after {before}"
    kept = f"is in {partition.backups[-1]}" if end else "was empty"
    reporter.error(f"{said}: the old copy, which ended at {end}, {kept}")
    partition.place, partition.is_new = place, True
    partition.cleaning = partition.cleaning.begun(time.time_ns() // 1_000_000)
    partition.exit_code |= ExitCode.CORRECTED


class Copies:
    """Opens copies in *copy_dir*, which are used under *lock*.  *exit_code*, *backups*: the result so far."""

    def __init__(
        self,
        copy_dir: CopyDir,
        cluster: Cluster,
        side_file: SideFile,
        options: FollowOptions,
        reporter: FollowReporter,
        lock: Lock,
    ) -> None:
        self._copy_dir, self._cluster, self._side_file = copy_dir, cluster, side_file
        self._options, self._reporter, self._lock = options, reporter, lock
        self._ids: dict[str, str] = {}
        self._followed: frozenset[tuple[str, int]] = frozenset()
        self._said: set[tuple[str, int]] = set()
        self.exit_code = ExitCode.CLEAN
        self.backups: list[str] = []

    # ------------------------------------------------------------ opening

    def open(self, place: FollowedPlace, is_new: bool) -> FollowedPartition | None:
        """Return a partition that can be followed; None if its copy is damaged or unreadable, which is reported.

        *is_new*: the copy has no directory for it.  Raises KlogError, OSError.
        """
        try:
            copy = self._opened(place)
        except (DamagedError, UnreadableError) as error:
            self._reporter.error(str(error))
            self.exit_code |= error.exit_code
            return None
        partition = FollowedPartition(place, copy, self._lock, copy.end, is_new)
        partition.cleaning = self._side_file.watch(place, is_new=is_new)
        if copy.lost is not None:
            partition.cleaning.caught_up_ms = 0
        for backup in copy.backups:
            partition.keep(backup)
        if copy.lost is not None:
            self._tell_lost(partition, *copy.lost)
        elif copy.torn:
            self._reporter.note(f"{partition.name}: {copy.torn} bytes that were torn at {copy.end} were cut")
        if copy.topic_id is not None and place.topic_id not in (copy.topic_id, ZERO_UUID):
            replace(partition, place, self._reporter)
            partition.first_offset = 0
        elif partition.cleaning.lost_from is not None:
            self._tell_cleaned(partition, partition.cleaning.lost_from)
        return partition

    def _tell_cleaned(self, partition: FollowedPartition, offset: int) -> None:
        """Report the finding of an earlier run again, or remove the cause if requested."""
        if self._options.on_cleaned == "anew":
            begin_anew(partition, self._reporter)
        else:
            self._reporter.error(f"{partition.name}: from {offset} on, as an earlier run has reported: {CLEANED}")
            partition.exit_code |= ExitCode.PROBLEMS_LEFT

    def _opened(self, place: FollowedPlace) -> CopiedPartition:
        settings = self._side_file.settings(place.topic)
        topic_id = place.topic_id if place.topic_id != ZERO_UUID else None
        cut_at: int | None = None
        while True:
            try:
                with self._lock:
                    return self._copy_dir.partition(place.topic, place.number, topic_id, settings, cut_at)
            except CutShortError as error:  # once more if the batches from further back show an earlier end
                if error.end == cut_at:
                    raise
                if self._copy_dir.topic_id(place.topic, place.number) in (None, place.topic_id):
                    self._ask_for_rest(place, error)
                cut_at = error.end

    def _ask_for_rest(self, place: FollowedPlace, cut: CutShortError) -> None:
        """Raise DamagedError unless the leader has the batches that the copy has lost."""
        key = place.topic, place.number
        try:
            answer = self._cluster.offsets([key], EARLIEST)[key]
            why = answer.error.name if answer.error else f"the leader's log starts at {answer.offset}"
            has_rest = not answer.error and answer.offset <= cut.end
        except PASSING as error:
            why, has_rest = str(error), False
        if not has_rest:
            raise DamagedError(f"{cut}, because the records from {cut.end} on cannot be fetched again: {why}")

    def _tell_lost(self, partition: FollowedPartition, first: int, end: int) -> None:
        kept = (
            f"; {partition.copy.torn} bytes that were cut are in {partition.backups[-1]}" if partition.backups else ""
        )
        where = f"its copy ends at {first}, below the offset {end} up to which it had been on the disk"
        self._reporter.error(f"{partition.name}: {where}: the missing records are fetched again{kept}")
        partition.cut.append((first, end - 1))
        partition.exit_code |= ExitCode.CORRECTED

    # ------------------------------------------------------------ topics that are no more

    def is_replaced(self, topic: str, topic_id: str) -> bool:
        """Whether the cluster has another topic of this name."""
        return self._ids.get(topic, topic_id) != topic_id

    def remove_old(self, found: ClusterTopics, followed: frozenset[tuple[str, int]]) -> list[tuple[str, int]]:
        """Move directories of topics that were created again to the backup, except partitions that are *followed*.

        These are partitions that the new topic does not have, or that are not requested.  Returns the removed ones.
        Raises KlogError, OSError.
        """
        ids = {topic.name: topic.topic_id for topic in found.topics if topic.topic_id != ZERO_UUID}
        if (ids, followed) == (self._ids, self._followed):
            return []
        self._ids, self._followed, removed = ids, followed, list[tuple[str, int]]()
        for topic, number in self._copy_dir.names():
            if (topic, number) in followed or topic not in ids:
                continue
            before = self._copy_dir.topic_id(topic, number)
            if before is None and self._copy_dir.is_empty(topic, number):
                self._copy_dir.remove(topic, number)
            if before in (None, ids[topic]):
                continue
            said = f"{topic}-{number}: the topic was created again, {ids[topic]} after {before}"
            if not self._options.wants(topic, is_internal=False):
                if (topic, number) not in self._said:
                    self._said.add((topic, number))
                    self._reporter.note(f"{said}: the old copy stays, as this run does not follow the topic")
                continue
            with self._lock:
                backup = self._copy_dir.remove(topic, number)
            self._reporter.error(f"{said}: the old copy is in {backup}")
            self.backups += [backup] if backup is not None else []
            self.exit_code |= ExitCode.CORRECTED
            removed.append((topic, number))
        return removed
