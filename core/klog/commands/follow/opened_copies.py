"""The copies of a run's partitions: opened, cut where their disk lost something, taken away with a deleted topic."""

from __future__ import annotations

from threading import Lock

from klog.base.errors import DamagedError, ExitCode, UnreadableError
from klog.commands.follow.client.client_failures import ForeignAnswerError, LostConnectionError, RefusedRequestError
from klog.commands.follow.client.cluster import EARLIEST, Cluster, ClusterTopics
from klog.commands.follow.copied_partition import CopiedPartition
from klog.commands.follow.copy_dir import CopyDir
from klog.commands.follow.copy_repairs import begin_anew, replace
from klog.commands.follow.fetch_session import FollowedPlace
from klog.commands.follow.follow_options import FollowOptions
from klog.commands.follow.followed_partition import CLEANED, FollowedPartition, FollowReporter
from klog.commands.follow.side_file import SideFile
from klog.formats.java_text import ZERO_UUID
from klog.partition.append.log_resumption import CutShortError


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
            self._reporter.error(f"{partition.name}: from {offset} on, as an earlier run has found: {CLEANED}")
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
        except (LostConnectionError, ForeignAnswerError, RefusedRequestError) as error:
            why, has_rest = str(error), False
        if not has_rest:
            raise DamagedError(f"{cut}, for what is missing from {cut.end} on cannot be fetched again: {why}")

    def _tell_lost(self, partition: FollowedPartition, first: int, end: int) -> None:
        kept = (
            f"; {partition.copy.torn} bytes that were cut are in {partition.backups[-1]}" if partition.backups else ""
        )
        where = f"its copy ends at {first}, below the offset {end} up to which it had been on the disk"
        self._reporter.error(f"{partition.name}: {where}: what is missing is fetched again{kept}")
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
