"""The followed partitions, and Fetch sessions: a leader remembers partitions, and receives only changes.

Kafka: FetchSessionHandler, KIP-227.

A leader without sessions receives full requests, in which partitions that returned records are moved to the end: the
first ones have the byte limit of a request to themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from klog.commands.follow.client.cluster import ClusterTopics, LeaderOfPartition, TopicPartition
from klog.commands.follow.follow_options import FollowOptions
from klog.formats.error_codes import ErrorCode
from klog.formats.names import topic_is_legal

_HIGHEST_EPOCH: Final = 2**31 - 1


class FollowedPlace(NamedTuple):
    """A partition as requests name it.  A topic created again is another place: it has another id."""

    topic: str
    topic_id: str
    number: int


class FetchPosition(NamedTuple):
    """The position from which a partition is fetched.  *leader_epoch*: from the metadata.  *last_epoch*: the copy's."""

    leader_epoch: int
    offset: int
    last_epoch: int


class LeaderMarks(NamedTuple):
    """The high watermark and the log start in a leader's answer."""

    high_watermark: int
    log_start: int


class SessionRequest(NamedTuple):
    """The part of a Fetch request that a session decides.  *epoch* 0: all partitions are in *positions*."""

    session_id: int
    epoch: int
    positions: list[tuple[FollowedPlace, FetchPosition]]
    forgotten: list[FollowedPlace]


class FetchSession:
    """A leader's state about a client's partitions.  Each request has to be `answered`, or the session is `lost`."""

    def __init__(self) -> None:
        self._id = self._epoch = 0
        self._positions: OrderedDict[FollowedPlace, FetchPosition] = OrderedDict()
        self._changed: dict[FollowedPlace, None] = {}
        self._forgotten: dict[FollowedPlace, None] = {}
        self._marks: dict[FollowedPlace, LeaderMarks] = {}  # the leader's last answers in this session

    def follow(self, place: FollowedPlace, position: FetchPosition) -> None:
        """Fetch *place* from *position* on."""
        if self._positions.get(place) != position:
            self._positions[place] = position
            self._changed[place] = None
            self._forgotten.pop(place, None)

    def forget(self, place: FollowedPlace) -> None:
        """Fetch *place* no longer."""
        if self._positions.pop(place, None) is not None:
            self._changed.pop(place, None)
            self._forgotten[place] = None

    def request(self) -> SessionRequest:
        """Return the next request."""
        if not self._epoch:
            self._marks.clear()
            made = SessionRequest(self._id, 0, list(self._positions.items()), [])
        else:
            changed = [(place, self._positions[place]) for place in self._changed]
            made = SessionRequest(self._id, self._epoch, changed, list(self._forgotten))
            for place in self._forgotten:
                self._marks.pop(place, None)
        self._changed, self._forgotten = {}, {}
        return made

    def answered(self, session_id: int, is_empty: bool, error: int = 0) -> None:
        """Take note of an answer; *is_empty*: it names no partition, as a throttled one to a full request does.

        An error ends the session: the next request is full.
        """
        if error:
            # A session that the leader has forgotten cannot be ended; any other one is ended by the request for a new
            # one.
            self._id, self._epoch = 0 if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND else self._id, 0
        elif not session_id or (not self._epoch and is_empty):
            self._id = self._epoch = 0
        else:
            self._id, self._epoch = session_id, self._epoch % _HIGHEST_EPOCH + 1

    def note(self, place: FollowedPlace, marks: LeaderMarks) -> None:
        """Note the marks of *place* in an answer without an error."""
        self._marks[place] = marks

    def left_out(
        self, request: SessionRequest, named: Container[FollowedPlace]
    ) -> list[tuple[FollowedPlace, LeaderMarks]]:
        """Return the partitions of *request* that the answer to it omits, with their last marks.

        In a session an omission means: no records, and unchanged marks.  Kafka: FetchSession.maybeUpdateResponse.
        """
        asked = [place for place, _ in request.positions if request.epoch > 0 and place not in named]
        return [(place, self._marks[place]) for place in asked if place in self._marks]

    def lost(self) -> None:
        """Start over: the connection is lost."""
        self._id = self._epoch = 0

    def let_others_go_first(self, places: Iterable[FollowedPlace]) -> None:
        """Move *places*, which received records, behind all others; in a session the leader does so."""
        for place in places:
            if place in self._positions:
                self._positions.move_to_end(place)


class WantedPartitions(NamedTuple):
    """The partitions to follow.  *refused*: topics that are not followed, each with a message."""

    leaders: dict[FollowedPlace, LeaderOfPartition]
    refused: dict[str, str]


def wanted_partitions(cluster: ClusterTopics, options: FollowOptions) -> WantedPartitions:
    """Return the partitions to follow, with their leaders.

    A name that no broker gives to a topic never becomes a directory.
    """
    found = WantedPartitions({}, {})
    for topic in cluster.topics:
        if not options.wants(topic.name, topic.internal):
            continue
        if not topic_is_legal(topic.name):
            found.refused[topic.name] = f"{topic.name[:249]!r} is no name of a topic"
        elif topic.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            found.refused[topic.name] = f"{topic.name}: not authorized ({topic.error.name})"
        for one in topic.partitions if topic.name not in found.refused else ():
            if one.partition >= 0 and options.wants_partition(topic.name, one.partition):
                found.leaders[FollowedPlace(topic.name, topic.topic_id, one.partition)] = one
    return found


def unmatched_globs(cluster: ClusterTopics, options: FollowOptions) -> list[str]:
    """Return the names and globs of the options that no topic fits."""
    names = [topic.name for topic in cluster.topics if options.wants(topic.name, topic.internal)]
    return [glob for glob in options.topics if not any(fnmatchcase(name, glob) for name in names)]


class TopicChanges(NamedTuple):
    """The changes.  *new*: places not followed yet; *renewed*: the old place of each topic created again, with the new
    one; *gone*: deleted ones."""

    new: list[FollowedPlace]
    renewed: dict[FollowedPlace, FollowedPlace]
    gone: list[FollowedPlace]


def changes(followed: Iterable[FollowedPlace], leaders: Mapping[FollowedPlace, LeaderOfPartition]) -> TopicChanges:
    """Return the differences between the followed partitions and those of the cluster."""
    before: dict[TopicPartition, FollowedPlace] = {(place.topic, place.number): place for place in followed}
    now: dict[TopicPartition, FollowedPlace] = {(place.topic, place.number): place for place in leaders}
    return TopicChanges(
        [place for key, place in now.items() if key not in before],
        {before[key]: place for key, place in now.items() if key in before and before[key] != place},
        [place for key, place in before.items() if key not in now],
    )
