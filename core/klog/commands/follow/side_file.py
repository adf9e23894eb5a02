"""The facts about the cluster in a copy: settings of topics, committed offsets of groups, in `klog-follow.json`."""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Timer
from typing import Final

from klog.base.errors import UsageError, counted
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.follow.client.broker_connection import refused
from klog.commands.follow.client.client_requests import PASSING, RefusedRequestError, StoppedError
from klog.commands.follow.client.cluster import Cluster, ClusterTopics
from klog.commands.follow.copied_history import DELETE_RETENTION_MS, CleaningWatch
from klog.commands.follow.copy_dir import CopyDir
from klog.commands.follow.fetch_session import FollowedPlace
from klog.commands.follow.follow_options import FollowOptions
from klog.commands.follow.followed_partition import FollowedPartition, FollowReporter
from klog.formats.error_codes import ErrorCode
from klog.formats.follow_file import FollowFile, FollowTopic, GroupOffset, is_committed, is_setting
from klog.formats.java_text import ZERO_UUID
from klog.formats.structs.schema import Data
from klog.partition.append.appender import AppendSettings
from klog.partition.retention.first_pass import RetentionLimits

_SEVERAL: Final = 100
"""How many groups one request names."""
_KEYS_AT_ONCE: Final = 4
"""The version of FindCoordinator that takes several groups."""
_GROUPS_AT_ONCE: Final = 8
"""The version of OffsetFetch that does."""
_SHARE: Final = "share"
_GONE: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID)


def committed_offsets(cluster: Cluster, known: Collection[str] = ()) -> dict[str, tuple[GroupOffset, ...] | None]:
    """Return the committed offsets of each group of *cluster*, by its name; call `Cluster.topics` before.

    Share groups commit no offsets and are left out, as are groups without any.  A broker lists only the groups that the
    caller may see, without an error: each of *known* that is not listed is therefore requested by its name, and has
    None if it may not be seen.  Raises the errors of BrokerConnection; RefusedRequestError above all while a
    coordinator moves: try again later.
    """
    names: dict[str, None] = {}
    for node in cluster.nodes():
        answer = cluster.at(node).request("ListGroups", {})
        if answer["errorCode"]:
            raise refused(cluster.at(node).name, "ListGroups", answer["errorCode"])
        shared = (_SHARE, _SHARE.capitalize())
        names |= {
            one["groupId"]: None
            for one in answer["groups"]
            if one["groupType"].lower() != _SHARE and one["protocolType"] not in shared
        }
    found: dict[str, tuple[GroupOffset, ...] | None] = {}
    for coordinator, groups in _coordinators(cluster, sorted(names)).items():
        found |= {name: offsets for name, offsets in _fetched(cluster, coordinator, groups) if offsets}
    for name in sorted({*known} - {*names}):
        try:
            for coordinator in _coordinators(cluster, [name]):
                found |= {name: offsets for name, offsets in _fetched(cluster, coordinator, [name]) if offsets}
        except RefusedRequestError as error:
            if error.code != ErrorCode.GROUP_AUTHORIZATION_FAILED:
                raise
            found[name] = None
    return found


def _coordinators(cluster: Cluster, names: Sequence[str]) -> dict[int, list[str]]:
    """Return the groups by the node that keeps them."""
    found: dict[int, list[str]] = {}
    version = cluster.any_version("FindCoordinator") if names else 0
    for start in range(0, len(names), step := _SEVERAL if version >= _KEYS_AT_ONCE else 1):
        some = names[start : start + step]
        answer = cluster.ask_any("FindCoordinator", {"key": some[0], "keyType": 0, "coordinatorKeys": some})
        for one in answer["coordinators"] or [answer | {"key": some[0]}]:
            if one["errorCode"]:
                raise refused("FindCoordinator", f"group {one['key']}", one["errorCode"])
            if one["key"] in some:
                found.setdefault(one["nodeId"], []).append(one["key"])
    return found


def _fetched(cluster: Cluster, node: int, names: Sequence[str]) -> Iterator[tuple[str, tuple[GroupOffset, ...]]]:
    connection = cluster.at(node)
    several = connection.version("OffsetFetch") >= _GROUPS_AT_ONCE
    for start in range(0, len(names), step := _SEVERAL if several else 1):
        some = names[start : start + step]
        groups = [{"groupId": name, "topics": None} for name in some]
        answer = connection.request("OffsetFetch", {"groupId": some[0], "topics": None, "groups": groups})
        for one in answer["groups"] if several else [answer | {"groupId": some[0]}]:
            if one["errorCode"] and one["errorCode"] not in _GONE:
                raise refused(connection.name, f"OffsetFetch of group {one['groupId']}", one["errorCode"])
            if one["groupId"] in some:
                yield one["groupId"], tuple(_committed(one))


def _committed(group: Data) -> Iterator[GroupOffset]:
    for topic in group["topics"]:
        for one in topic["partitions"]:
            if not one["errorCode"] and one["committedOffset"] >= 0:
                epoch, metadata = one["committedLeaderEpoch"], one["metadata"] or ""
                yield GroupOffset(topic["name"], one["partitionIndex"], one["committedOffset"], epoch, metadata)


_EACH_S: Final = 60.0
_LAST_S: Final = 30.0
_HURRY_S: Final = 2.0
_DIGITS: Final = 20
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_ROLL: Final = ("internal.segment.bytes", "segment.bytes", "segment.ms", "index.interval.bytes", "segment.index.bytes")
"""The settings by which a copy's segments roll; the first has precedence over the second."""


class SideFile:
    """`klog-follow.json` of *copy_dir*, in the form that this run will write.

    *partitions*: those that it follows, at any time.
    """

    def __init__(
        self,
        bootstrap: str,
        copy_dir: CopyDir,
        reporter: FollowReporter,
        options: FollowOptions,
        partitions: Mapping[FollowedPlace, FollowedPartition],
    ) -> None:
        self._partitions = partitions
        self._bootstrap, self._copy_dir, self._reporter = bootstrap, copy_dir, reporter
        self._config = options.config
        self._topics: dict[str, FollowTopic] = {}
        self._effective: dict[str, Mapping[str, str]] = {}
        self._groups: Mapping[str, Sequence[GroupOffset]] | None = None  # None: unknown
        # Copies that catch up within a minute cause one write.
        self._written_at = 0.0 if options.continuous else time.monotonic()
        self._said: set[str] = set()

    def learn(self, cluster: Cluster, found: ClusterTopics, names: Collection[str]) -> None:
        """Request the settings of topics.  If they may not be read, Kafka's defaults are assumed."""
        configs = self._configs(cluster, names)
        for topic in found.topics:
            if topic.name in names:
                topic_id = topic.topic_id if topic.topic_id != ZERO_UUID else None
                self._topics[topic.name] = FollowTopic(topic_id, len(topic.partitions), configs.get(topic.name, {}))

    def _configs(self, cluster: Cluster, names: Collection[str]) -> dict[str, dict[str, str]]:
        try:
            found = cluster.settings(names)
            self._effective |= {topic: one.effective for topic, one in found.items()}
            return {topic: self._legible(topic, one.own) for topic, one in found.items()}
        except RefusedRequestError as error:
            if len(names) > 1:  # the others may be readable
                return {name: found for one in names for name, found in self._configs(cluster, [one]).items()}
            self._say(f"{error}: Kafka's defaults are used instead")
            return {}

    def _legible(self, topic: str, config: Mapping[str, str]) -> dict[str, str]:
        found = {name: value for name, value in config.items() if is_setting(topic, name, value)}
        if len(found) < len(config):
            self._say(f"{topic}: {counted(len(config) - len(found), 'setting')} cannot be stored; left out")
        return found

    def settings(self, topic: str) -> AppendSettings:
        """Return by which settings the segments of a topic roll.  Raises UsageError for those of an option."""
        own: dict[str, str] = {}
        for name in _ROLL:
            value = self._topics[topic].config.get(name)
            if value is not None and _is_valid(name, value):
                own.setdefault(name.removeprefix("internal."), value)
        return AppendSettings.of(TopicConfig(None, {**own, **self._config}), topic)

    def watch(self, place: FollowedPlace, is_new: bool) -> CleaningWatch:
        """Return the watch of a partition's copy, from the facts of the last run; *is_new*: it had none."""
        retention_ms = max(0, self.number(place.topic, "delete.retention.ms", DELETE_RETENTION_MS))
        before = self._copy_dir.follow_file
        known = self._former(place.topic, place.topic_id)
        compacts = "compact" in self._policy(place.topic)
        if is_new or before is None or known is None:
            return CleaningWatch(time.time_ns() // 1_000_000, retention_ms, compacts=compacts)
        # Former versions recorded only their end, which is no earlier.
        updated_ms = _parsed_ms(before.updated)
        caught_up_ms = min(known.caught_up.get(place.number, updated_ms), updated_ms)
        return CleaningWatch(caught_up_ms, retention_ms, True, known.cleaned.get(place.number), compacts=compacts)

    def _former(self, topic: str, topic_id: str | None) -> FollowTopic | None:
        """Return the entry of a topic in the file of the last run; None without one, or for another topic id."""
        before = self._copy_dir.follow_file
        known = before.topics.get(topic) if before is not None else None
        return known if known is not None and (known.topic_id or ZERO_UUID) == (topic_id or ZERO_UUID) else None

    def _with_times(self) -> dict[str, FollowTopic]:
        """Return the topics of this run, with the known times of their partitions' copies."""
        found = {}
        for name, topic in self._topics.items():
            known = self._former(name, topic.topic_id)
            caught_up, cleaned = (dict(known.caught_up), dict(known.cleaned)) if known is not None else ({}, {})
            for partition in [one for one in self._partitions.values() if one.place.topic == name]:
                partition.note_caught_up()
                number, watch = partition.place.number, partition.cleaning
                caught_up[number] = watch.caught_up_ms
                cleaned.pop(number, None)
                if watch.lost_from is not None:
                    cleaned[number] = watch.lost_from
            found[name] = topic._replace(caught_up=caught_up, cleaned=cleaned)
        return found

    def number(self, topic: str, name: str, default: int) -> int:
        """Return the effective value of a setting for *topic*; *default* if unknown."""
        value = self._effective.get(topic, {}).get(name, "")
        return (
            int(value) if value.removeprefix("-").isdecimal() and len(value) < _DIGITS and value.isascii() else default
        )

    def retention(self, topic: str) -> RetentionLimits | None:
        """Return by which limits the leader deletes segments; None if its settings are not known."""
        policy = self._policy(topic)
        if not policy:
            return None
        limits = (self.number(topic, name, -1) for name in ("retention.ms", "retention.bytes"))
        return RetentionLimits("delete" in policy, *limits)

    def _policy(self, topic: str) -> list[str]:
        """Return the words of a topic's cleanup.policy; none if unknown."""
        policy = self._effective.get(topic, {}).get("cleanup.policy", "")
        return [one.strip() for one in policy.split(",") if one.strip()]

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._reporter.note(line)

    # ------------------------------------------------------------ writing

    def write_each_minute(self, new_cluster: Callable[[Event], Cluster], stop: Event) -> None:
        """Write the file if a minute has passed, in half a minute.  Raises OSError, StoppedError when *stop* is set."""
        if time.monotonic() - self._written_at < _EACH_S:
            return
        with _in_time(new_cluster, _LAST_S, stop) as cluster:
            try:
                cluster.topics([])
                for name, config in self._configs(cluster, self._topics).items():
                    self._topics[name] = self._topics[name]._replace(config=config)
            except (*PASSING, StoppedError) as error:
                self._say(f"{error}: the settings of topics are those of the last run")
            self._write(cluster)
        if stop.is_set():
            raise StoppedError("stopped")

    def write_last(self, new_cluster: Callable[[Event], Cluster], in_a_hurry: bool) -> None:
        """Write the file at the end, within two seconds if *in_a_hurry*.  Raises OSError."""
        with _in_time(new_cluster, _HURRY_S if in_a_hurry else _LAST_S) as cluster:
            self._write(cluster)

    def _write(self, cluster: Cluster) -> None:
        self._written_at = time.monotonic()
        try:
            cluster.topics([])
            self._groups = self._committed(cluster)
        except (*PASSING, StoppedError) as error:
            self._say(f"{error}: the offsets of groups are those of the last run")
        self._store()

    def _committed(self, cluster: Cluster) -> dict[str, Sequence[GroupOffset]]:
        """Return the committed offsets of groups.

        A cluster does not list the groups that this user may no longer see; they keep their former offsets.  Raises
        KlogError.
        """
        before = self._former_groups
        told = committed_offsets(cluster, before)
        found: dict[str, Sequence[GroupOffset]] = {}
        for group, offsets in told.items():
            if offsets is None:
                self._say(f"group {group}: not authorized; its offsets are those of the last run")
                found[group] = before[group]
                continue
            found[group] = tuple(one for one in offsets if is_committed(group, one))
            if len(found[group]) < len(offsets):
                self._say(f"group {group[:249]!r}: it has offsets for invalid topics or partitions; they are left out")
        return {group: offsets for group, offsets in found.items() if offsets}

    @property
    def _former_groups(self) -> Mapping[str, Sequence[GroupOffset]]:
        before = self._copy_dir.follow_file
        return before.groups if before is not None else {}

    def _store(self) -> None:
        """Write the file.  Topics of earlier runs stay in it as long as the copy has one of their directories."""
        before = self._copy_dir.follow_file
        there = {topic for topic, _ in self._copy_dir.names()}
        former = before.topics if before is not None else {}
        topics = {**{name: one for name, one in former.items() if name in there}, **self._with_times()}
        groups = self._groups if self._groups is not None else self._former_groups
        now = time.strftime(_TIME, time.gmtime())
        content = FollowFile(self._copy_dir.cluster_id or "", self._bootstrap, now, topics, groups)
        self._copy_dir.write_follow_file(content)


class _EitherEvent(Event):
    """Is set when it is, or when *other* is."""

    def __init__(self, other: Event | None) -> None:
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        """Whether one of both is set."""
        return super().is_set() or (self._other is not None and self._other.is_set())


@contextmanager
def _in_time(new_cluster: Callable[[Event], Cluster], seconds: float, stop: Event | None = None) -> Iterator[Cluster]:
    """Yield a cluster that raises StoppedError after so many seconds: the cluster decides how much it answers."""
    late = _EitherEvent(stop)
    timer = Timer(seconds, late.set)
    timer.daemon = True
    timer.start()
    cluster = new_cluster(late)
    try:
        yield cluster
    finally:
        timer.cancel()
        cluster.close()


def _parsed_ms(text: str) -> int:
    """Return the time that `_store` has written (ms); 0 if it is none, the earliest time."""
    try:
        return calendar.timegm(time.strptime(text, _TIME)) * 1000
    except ValueError:
        return 0


def _is_valid(name: str, value: str) -> bool:
    try:
        TopicConfig(None, {name.removeprefix("internal."): value})
    except UsageError:
        return False
    return True
