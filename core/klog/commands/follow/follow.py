"""`klog follow`: copies the partitions of a cluster until they have caught up, or until it is stopped.

Leaders are fetched from by threads of their own (`klog.commands.follow.fetchers`).  Everything else is done here, on
one thread: requesting topics and leaders from the cluster, repairing copies, flushing.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from queue import Empty, SimpleQueue
from threading import Event, Lock
from typing import Final, NamedTuple

from klog.base.errors import DamagedError, ExitCode, KlogError
from klog.commands.follow.client.broker_connection import BrokerConnection
from klog.commands.follow.client.client_requests import PASSING, REQUESTS, LostConnectionError, StoppedError
from klog.commands.follow.client.client_security import Security
from klog.commands.follow.client.cluster import EARLIEST, Cluster, ClusterTopics, LeaderOfPartition
from klog.commands.follow.copy_dir import CopyDir
from klog.commands.follow.copy_repairs import Copies, carry_out, replace
from klog.commands.follow.fetch_session import FollowedPlace, changes, unmatched_globs, wanted_partitions
from klog.commands.follow.fetchers import Fetchers
from klog.commands.follow.follow_options import FollowOptions
from klog.commands.follow.followed_partition import FollowedPartition, FollowReporter, Outage
from klog.commands.follow.leader_fetcher import BY_ID, Released
from klog.commands.follow.reactions import Decision, Leave, Wait, refusal
from klog.commands.follow.side_file import SideFile
from klog.formats.java_text import ZERO_UUID

_SHORTEST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_TURN_S: Final = 0.2
_METADATA_S: Final = 10.0
"""How often topics are looked for that were not there before."""
_TOLD_AFTER_TRIES: Final = 4
"""An outage that is over sooner is not worth a line."""
_GONE_AFTER: Final = 2
"""The number of answers without a partition before it counts as deleted: a new broker may lack it."""
_GONE: Final = -2
_ANSWER_MS: Final = 30_000


def _pause(tries: int) -> float:
    """Return the pause after so many tries (seconds)."""
    return min(_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S * 2.0 ** min(tries, 10))


class FollowResult(NamedTuple):
    """The partitions by name.  *backups*: the directories with cut or replaced data."""

    cluster_id: str
    partitions: list[FollowedPartition]
    backups: list[str]
    exit_code: ExitCode


class FollowRun:
    """One run of `klog follow` into *copy_dir*.  *stop* ends it; the copied data is then on the disk."""

    def __init__(
        self,
        bootstrap: str,
        security: Security,
        copy_dir: CopyDir,
        options: FollowOptions,
        reporter: FollowReporter,
        stop: Event,
    ) -> None:
        self._copy_dir, self._options, self._reporter, self._stop = copy_dir, options, reporter, stop
        self._bootstrap, self._security = bootstrap, security
        self._has_ids = True
        self._cluster = self._new_cluster(stop)
        self._released: SimpleQueue[Released | BaseException] = SimpleQueue()
        self._fetchers = Fetchers(self._cluster.connection, options, self._released, reporter, stop)
        self._partitions: dict[FollowedPlace, FollowedPartition] = {}
        self._side_file = SideFile(bootstrap, copy_dir, reporter, options, self._partitions)
        self._lock = Lock()
        self._copies = Copies(copy_dir, self._cluster, self._side_file, options, reporter, self._lock)
        self._leaders: dict[FollowedPlace, LeaderOfPartition] = {}
        self._due: dict[FollowedPartition, float] = {}  # the partitions to fetch again, and when
        self._unreached: set[FollowedPartition] = set()
        self._missing: dict[FollowedPlace, int] = {}  # how often in a row the cluster did not have it
        self._said: set[str] = set()
        self._outages: set[str] = set()  # the reported problems that persist
        self._damaged: set[FollowedPlace] = set()  # copies that have to be repaired first
        self._exit_code = ExitCode.CLEAN
        self._asked_at = self._ask_again_at = self._flushed_at = 0.0
        self._flushed_bytes = self._tries = 0

    def _new_cluster(self, stop: Event) -> Cluster:
        timeout_s = (min(self._options.timeout_ms, _ANSWER_MS) + self._options.max_wait_ms) / 1000

        def connect(host: str, port: int) -> BrokerConnection:
            fetch = REQUESTS["Fetch"]
            # Ids are used only if the cluster has some. Kafka: FetchRequest.Builder.
            highest = fetch.highest if self._has_ids else BY_ID - 1
            versions = {**REQUESTS, "Fetch": fetch._replace(highest=highest)}
            return BrokerConnection(host, port, self._security, stop=stop, timeout_s=timeout_s, versions=versions)

        return Cluster(self._bootstrap, self._security, stop=stop, connect=connect)

    # ------------------------------------------------------------ the run

    def run(self) -> FollowResult:
        """Follow.  Raises KlogError, OSError; the data copied until then is whole."""
        try:
            self._begin()
            while self._options.continuous or self._unreached:
                self._turn()
        except StoppedError:
            pass
        finally:
            was_stopped = self._stop.is_set()
            ended = self._fetchers.end()
            self._cluster.close()
        if not ended:
            raise KlogError("a fetching thread does not end; run klog follow again to check the copy")
        self._take_released()
        if self._asked_at:  # otherwise there is nothing to write
            self._copy_dir.flush()
            self._side_file.write_last(self._new_cluster, in_a_hurry=was_stopped)
        partitions = sorted(self._partitions.values(), key=lambda one: (one.place.topic, one.place.number))
        for partition in partitions:
            self._exit_code |= partition.exit_code
        self._exit_code |= self._copies.exit_code
        backups = [*self._copies.backups, *(backup for one in partitions for backup in one.backups)]
        return FollowResult(self._copy_dir.cluster_id or "", partitions, list(dict.fromkeys(backups)), self._exit_code)

    def _begin(self) -> None:
        """Request the topics for the first time, however long that takes, and open the copies."""
        since = time.monotonic()
        while True:
            try:
                found = self._ask()
                break
            except PASSING as error:
                if not self._options.continuous and time.monotonic() - since > self._options.timeout_ms / 1000:
                    raise
                self._tell_once(f"{error}; asking again")
                self._tries += 1
                self._pause(_pause(self._tries))
        self._tries = 0
        self._apply(found)
        for glob in unmatched_globs(found, self._options):
            self._reporter.error(f"--topic {glob}: the cluster has no such topic")
            self._exit_code |= ExitCode.CLEAN if self._options.continuous else ExitCode.PROBLEMS_LEFT
        there = {topic.name for topic in found.topics}
        for topic in sorted({topic for topic, _ in self._copy_dir.names()} - there):
            if self._options.wants(topic, is_internal=False):
                self._reporter.note(f"{topic}: the cluster has no such topic any more; the copy stays as it is")
        self._assign_due()

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise StoppedError("stopped")

    def _turn(self) -> None:
        """Do the pending work, or wait a moment."""
        self._take_released(_TURN_S)
        if self._stop.is_set():
            raise StoppedError("stopped")
        now = time.monotonic()
        is_due = any(due <= now for due in self._due.values())
        if now >= self._ask_again_at and (is_due or now - self._asked_at >= _METADATA_S):
            try:
                self._apply(self._ask())
                self._tries = 0
            except PASSING as error:
                self._tries += 1
                self._ask_again_at = time.monotonic() + _pause(self._tries)
                if self._tries == _TOLD_AFTER_TRIES:
                    self._tell_once(f"{error}; asking again")
                for partition in [one for one, due in self._due.items() if due <= now]:
                    self._wait(partition, Wait(str(error)), now)
        self._assign_due()
        if not self._due:
            self._outages.clear()
        self._flush()
        self._side_file.write_each_minute(self._new_cluster, self._stop)

    def _tell_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._reporter.note(line)

    def _flush(self) -> None:
        """Sync the copied data, as often as the options require."""
        options, copied = self._options, self._fetchers.received_bytes
        late = options.flush_ms is not None and time.monotonic() - self._flushed_at >= options.flush_ms / 1000
        much = options.flush_bytes is not None and copied - self._flushed_bytes >= options.flush_bytes
        if copied != self._flushed_bytes and (late or much):
            with self._lock:
                self._copy_dir.flush()
            self._flushed_at, self._flushed_bytes = time.monotonic(), copied

    # ------------------------------------------------------------ topics and leaders

    def _ask(self) -> ClusterTopics:
        """Request all topics.  Raises KlogError for another cluster than that of the copy."""
        found = self._cluster.topics()
        if not found.brokers:
            raise LostConnectionError(f"{self._bootstrap}: the broker has no list of brokers yet")
        if not self._asked_at or found.cluster_id != self._copy_dir.cluster_id:
            with self._lock:
                self._copy_dir.claim(found.cluster_id, self._bootstrap)
        self._has_ids = all(topic.topic_id != ZERO_UUID for topic in found.topics)
        self._asked_at = time.monotonic()
        return found

    def _apply(self, found: ClusterTopics) -> None:
        """Add new partitions, drop deleted ones, and update leaders."""
        wanted = wanted_partitions(found, self._options)
        for message in wanted.refused.values():
            if message not in self._said:
                self._said.add(message)
                self._reporter.error(message)
                self._exit_code |= ExitCode.OPERATIONAL_ERROR
        for place, leader in wanted.leaders.items():
            known = self._leaders.get(place)
            # A broker that lags reports leaders that others have replaced. Kafka: Metadata.updateLatestMetadata.
            if known is None or leader.leader_epoch >= known.leader_epoch:
                self._leaders[place] = leader
        changed = changes([*self._partitions, *self._damaged], wanted.leaders)
        self._open_new(changed.new, found)
        for before, place in changed.renewed.items():
            if before in self._partitions:
                self._renew(self._partitions[before], place)
        for place in [place for place in self._missing if place not in changed.gone]:
            del self._missing[place]
            self._find_again(self._partitions.get(place))
        for place in changed.gone:
            if place in self._partitions:
                self._miss(self._partitions[place])
        self._remove_old(found, wanted.leaders)
        for place, partition in self._partitions.items():
            if partition not in self._due and partition.error is None:
                leader = self._leaders[place]
                if leader.leader >= 0 and leader.leader != partition.leader:
                    self._fetchers.revoke(partition)

    def _open_new(self, places: list[FollowedPlace], found: ClusterTopics) -> None:
        if not places:
            return
        self._side_file.learn(self._cluster, found, {place.topic for place in places})
        there = set(self._copy_dir.names())
        for place in places:
            self._pause(0)
            partition = self._copies.open(place, (place.topic, place.number) not in there)
            if partition is None:
                self._damaged.add(place)
                continue
            self._partitions[place] = partition
            self._unreached.add(partition)
            self._due[partition] = 0.0

    def _renew(self, partition: FollowedPartition, place: FollowedPlace) -> None:
        """Follow a topic that was created again, as soon as its fetcher has released the old one."""
        if partition.error is None and partition not in self._due:
            self._fetchers.revoke(partition)
            return
        del self._partitions[partition.place]
        replace(partition, place, self._reporter)
        self._partitions[place] = partition
        partition.error, partition.outage, partition.reached = None, None, False
        self._unreached.add(partition)
        self._due[partition] = 0.0

    def _miss(self, partition: FollowedPartition) -> None:
        """Note that the cluster lacks a partition; drop it when that is certain."""
        place = partition.place
        self._missing[place] = self._missing.get(place, 0) + 1
        if self._missing[place] < _GONE_AFTER:
            return
        if partition not in self._due and partition.error is None:
            self._fetchers.revoke(partition)
            return
        if not self._copies.is_replaced(place.topic, place.topic_id):
            self._reporter.note(
                f"{partition.name}: the topic no longer exists; the copy stays, up to {partition.copy.end}"
            )
        self._due.pop(partition, None)
        self._unreached.discard(partition)
        partition.leader = _GONE

    def _remove_old(self, found: ClusterTopics, wanted: Collection[FollowedPlace]) -> None:
        """Take away the copies of topics that were created again, as far as no partition of the new ones needs them."""
        there = {place for place, one in self._partitions.items() if one.leader != _GONE}
        followed = frozenset((place.topic, place.number) for place in (*wanted, *self._damaged, *there))
        removed = self._copies.remove_old(found, followed)
        for place in [place for place in self._partitions if (place.topic, place.number) in removed]:
            del self._partitions[place]

    def _find_again(self, partition: FollowedPartition | None) -> None:
        """Continue a partition that was dropped as deleted, if it was."""
        if partition is not None and partition.leader == _GONE:
            partition.leader = -1
            self._unreached.add(partition)
            self._due[partition] = 0.0

    # ------------------------------------------------------------ partitions

    def _assign_due(self) -> None:
        """Assign partitions that are due and have a leader."""
        now = time.monotonic()
        due = [partition for partition, at in self._due.items() if at <= now and partition.place not in self._missing]
        self._find_starts([partition for partition in due if partition.is_new])
        for partition in due:
            leader = self._leaders[partition.place]
            if partition.is_new or self._due[partition] > now:
                continue
            if leader.leader < 0:
                self._wait(partition, Wait("there is no leader"), now)
                continue
            partition.leader, partition.leader_epoch = leader.leader, leader.leader_epoch
            partition.high_watermark = -1
            partition.largest_batch = self._side_file.number(partition.place.topic, "max.message.bytes", 0)
            partition.retention = self._side_file.retention(partition.place.topic)
            partition.look_again()
            try:
                self._fetchers.assign(partition)
            except LostConnectionError as error:
                self._wait(partition, Wait(str(error)), now)
            else:
                del self._due[partition]

    def _find_starts(self, partitions: list[FollowedPartition]) -> None:
        """Let empty copies begin at the starts of their leaders' logs."""
        if not partitions:
            return
        by_key = {(one.place.topic, one.place.number): one for one in partitions}
        now = time.monotonic()
        try:
            answers = self._cluster.offsets(by_key, EARLIEST)
        except PASSING as error:
            for partition in partitions:
                self._wait(partition, Wait(str(error)), now)
            return
        for key, answer in answers.items():
            if answer.error:
                self._judge(Released(by_key[key], refusal(answer.error), now))
                continue
            by_key[key].begin_at(answer.offset)

    def _take_released(self, patience_s: float = 0.0) -> None:
        """Take the partitions that fetchers have released; wait for the first of them."""
        try:
            released = self._released.get(timeout=patience_s) if patience_s else self._released.get_nowait()
            while True:
                if isinstance(released, BaseException):
                    raise released
                self._judge(released)
                released = self._released.get_nowait()
        except Empty:
            pass

    def _judge(self, released: Released) -> None:
        partition, decision = released.partition, released.decision
        if decision is None:
            self._unreached.discard(partition)
            return
        outcome: Decision | None = decision
        if not self._stop.is_set():
            try:
                outcome = carry_out(partition, decision, self._cluster, self._options, self._reporter)
            except DamagedError as error:
                outcome = Leave(str(error), ExitCode.PROBLEMS_LEFT)
        if isinstance(outcome, Leave):
            self._leave(partition, outcome)
        elif isinstance(outcome, Wait):
            self._wait(partition, outcome, released.since)
        else:
            self._due[partition], partition.reached = 0.0, False
            self._unreached.add(partition)

    def _wait(self, partition: FollowedPartition, wait: Wait, since: float) -> None:
        """Delay a partition, a little longer each time, or give it up."""
        now = time.monotonic()
        outage = partition.outage = partition.outage or Outage(wait.why, since)
        outage.why, outage.tries = wait.why, outage.tries + 1
        seconds = now - outage.since
        if not self._options.continuous and seconds > self._options.timeout_ms / 1000 and not self._stop.is_set():
            self._leave(partition, Leave(f"given up after {seconds:.0f} s: {wait.why}", ExitCode.OPERATIONAL_ERROR))
            return
        if outage.tries == _TOLD_AFTER_TRIES and wait.why not in self._outages:
            self._outages.add(wait.why)
            self._reporter.note(f"{partition.name}: {wait.why}; asking again")
        self._due[partition] = now + _pause(outage.tries)

    def _leave(self, partition: FollowedPartition, leave: Leave) -> None:
        """Follow a partition no longer in this run."""
        partition.error = leave.why
        partition.exit_code |= leave.exit_code
        self._due.pop(partition, None)
        self._unreached.discard(partition)
        said = leave.why.startswith(partition.name)
        self._reporter.error(leave.why if said else f"{partition.name}: {leave.why}")
