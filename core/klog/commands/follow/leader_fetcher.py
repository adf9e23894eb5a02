"""Fetches from one leader: a connection and a thread of its own.

    fetcher = LeaderFetcher(connection, options, limit, released, reporter)
    fetcher.assign(partition)
    fetcher.run()                  # until `stop` is set, or the connection is lost

A partition that needs more than records leaves the fetcher: it is put into *released* with the decision, and returns by
`assign` when that is carried out.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from math import inf
from threading import Event, Lock
from typing import Final, NamedTuple

from klog.base.errors import DamagedError, ExitCode, KlogError
from klog.base.rate_limit import RateLimit
from klog.commands.follow.client.broker_connection import BrokerConnection
from klog.commands.follow.client.client_requests import PASSING, LargeAnswerError, RefusedRequestError, StoppedError
from klog.commands.follow.copied_history import LeaderClock
from klog.commands.follow.fetch_session import FetchPosition, FetchSession, FollowedPlace, LeaderMarks, SessionRequest
from klog.commands.follow.follow_options import FollowOptions
from klog.commands.follow.followed_partition import FollowedPartition, FollowReporter
from klog.commands.follow.reactions import Decision, FetchAnswer, Leave, Renew, Take, Wait, judge
from klog.formats.error_codes import ErrorCode, error_code
from klog.formats.structs.schema import Data
from klog.kernel import last_batch_end

BY_ID: Final = 13
"""The version of Fetch from which on topics are named by their ids."""
ROOM_BYTES: Final = 32 << 20
"""The possible excess of an answer over the requested size: its first batch is sent whole, however large it is."""
_SPARE_ELEMENTS: Final = 1000
"""How many elements the arrays of an answer may have besides our partitions and their topics: brokers above all."""
_CONSUMER: Final = -1
_TRIES: Final = 4
"""How often a batch that cannot be appended is fetched."""
_IDLE_S: Final = 0.2
_LARGEST_BATCH: Final = 1 << 30
"""The largest answer without --fetch-bytes: it needs twice its size in memory."""
_LONGEST_THROTTLE_S: Final = 60.0
"""After a longer throttle the request is repeated."""
_ALONE: Final = -1
"""The session epoch of a request that has no session."""
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
_Key = tuple[str, int]


class Released(NamedTuple):
    """A partition that a fetcher releases.  *decision* None: it continues, and has reached the leader's high watermark.

    *since*: when the request was sent (monotonic seconds).
    """

    partition: FollowedPartition
    decision: Decision | None
    since: float


class LeaderFetcher:
    """Fetches its assigned partitions; *fetch_bytes*: at most so many at a time.

    *released* receives partitions.
    """

    def __init__(
        self,
        connection: BrokerConnection,
        options: FollowOptions,
        limit: RateLimit,
        released: Callable[[Released], None],
        reporter: FollowReporter,
        stop: Event,
    ) -> None:
        self._connection, self._options, self._limit = connection, options, limit
        self._released, self._reporter, self._stop = released, reporter, stop
        self._lock, self._ended = Lock(), False
        self._inbox: deque[FollowedPartition] = deque()
        self._revoked: deque[FollowedPlace] = deque()
        self._alone: deque[_Key] = deque()  # partitions one of which has a batch that is too large
        self._session = FetchSession()
        self._partitions: dict[_Key, FollowedPartition] = {}
        self._by_id, self._connections = False, 0
        self._clock, self._answered_ms = LeaderClock(), 0
        self._resume_at = self._sent_at = 0.0
        self._silent_since = inf  # the time of the request for the first of the latest answers without records
        self._unwritten: list[tuple[FollowedPartition, FetchAnswer]] = []
        self.fetch_bytes = options.fetch_bytes

    def assign(self, partition: FollowedPartition) -> bool:
        """Follow *partition*; return False if it is too late."""
        with self._lock:
            if not self._ended:
                self._inbox.append(partition)
            return not self._ended

    def revoke(self, place: FollowedPlace) -> None:
        """Release a partition soon: it has another leader, or another topic id."""
        self._revoked.append(place)

    # ------------------------------------------------------------ the loop

    def run(self) -> None:
        """Fetch until `stop` is set or the connection is lost.  Raises OSError if a copy cannot be written."""
        try:
            self._follow()
        except PASSING as error:
            self._end(Wait(str(error)))
        except KlogError as error:
            self._end(Leave(str(error), ExitCode.OPERATIONAL_ERROR))
        finally:
            self._connection.close()
            self._end(Wait("the connection was closed"))

    def _follow(self) -> None:
        """Fetch until `stop` is set.  Raises KlogError, OSError."""
        try:
            self._by_id = self._connection.version("Fetch") >= BY_ID
            self._connections = self._connection.connections
            while not self._stop.is_set():
                self._admit()
                if self._partitions:
                    self._fetch()
                else:
                    self._stop.wait(_IDLE_S)
        except StoppedError:
            pass
        self._write()

    def _end(self, why: Wait | Leave) -> None:
        with self._lock:
            self._ended = True
        for partition in (*self._partitions.values(), *self._inbox):
            self._released(Released(partition, why, self._sent_at or time.monotonic()))
        self._partitions.clear()
        self._inbox.clear()

    def _admit(self) -> None:
        """Add assigned partitions, and release revoked ones."""
        if self._revoked:
            self._write()  # the next owner of the partition finds all received batches
        while self._inbox:
            self._silent_since = inf
            partition = self._inbox.popleft()
            self._partitions[self._key(partition.place)] = partition
            partition.cleaning.clock = self._clock
            self._session.follow(partition.place, partition.position())
        while self._revoked:
            place = self._revoked.popleft()
            revoked = self._partitions.get(self._key(place))
            if revoked is not None and revoked.place == place:
                self._release(revoked, Wait("it has another leader"))

    def _key(self, place: FollowedPlace) -> _Key:
        return (place.topic_id if self._by_id else place.topic, place.number)

    def _release(self, partition: FollowedPartition, decision: Decision) -> None:
        # Unwritten batches are fetched again, if the partition is still followed.
        self._unwritten = [one for one in self._unwritten if one[0] is not partition]
        self._session.forget(partition.place)
        del self._partitions[self._key(partition.place)]
        self._released(Released(partition, decision, self._sent_at))

    def _fetch(self) -> None:
        if (pause := self._resume_at - time.monotonic()) > 0:
            self._write()
            self._stop.wait(pause)
            return
        self._connect()
        request = self._alone_request() or self._session.request()
        self._trace_fetches(request)
        self._sent_at, sent_ms = time.monotonic(), time.time_ns() // 1_000_000
        self._connection.send("Fetch", self._body(request))
        self._write()
        elements = _SPARE_ELEMENTS + 2 * len(self._partitions)
        largest = max((one.largest_batch for one in self._partitions.values()), default=0)
        most_bytes = max(self.fetch_bytes, min(largest, _LARGEST_BATCH)) + ROOM_BYTES
        try:
            answer = self._connection.receive(most_bytes=most_bytes, elements=elements)
        except LargeAnswerError as error:
            self._single_out(request, error, most_bytes)
            return
        self._connection.keep_answer()
        self._answered_ms = sent_ms
        self._take(answer, request)

    def _single_out(self, request: SessionRequest, error: LargeAnswerError, most_bytes: int) -> None:
        """Release the partition with a batch that is too large; one of many is found by a request for each."""
        self._session.lost()
        asked = [self._key(place) for place, _ in request.positions] if request.epoch == _ALONE else [*self._partitions]
        if len(asked) > 1:
            self._alone.extend(asked)
            return
        why = (
            f"{error.size} bytes are in one answer, because a batch is sent complete; at most {most_bytes} are accepted"
        )
        for key in asked:
            leave = Leave(f"{why}: --fetch-bytes {error.size} takes more", ExitCode.OPERATIONAL_ERROR)
            self._release(self._partitions[key], leave)

    def _alone_request(self) -> SessionRequest | None:
        """Return a request for the next partition that needs one of its own; None if there is none."""
        while self._alone:
            partition = self._partitions.get(self._alone.popleft())
            if partition is not None:
                return SessionRequest(0, _ALONE, [(partition.place, partition.position())], [])
        return None

    def _connect(self) -> None:
        """Connect, unless connected.  Another connection may lead to a leader with another history."""
        self._connection.connect()
        if self._connection.connections == self._connections:
            return
        if self._connections:
            self._write()
            self._session.lost()
            for partition in self._partitions.values():
                partition.look_again()
                self._session.follow(partition.place, partition.position())
        self._connections = self._connection.connections

    def _trace_fetches(self, request: SessionRequest) -> None:
        if self._options.trace:
            for place, at in request.positions:
                line = f"fetch offset={at.offset} epoch={at.leader_epoch} last={at.last_epoch}"
                self._reporter.trace(f"{place.topic}-{place.number} {line}")

    def _body(self, request: SessionRequest) -> Data:
        """Return a Fetch request.  The leader must not wait if a partition has had no answer so far."""
        options, topics, forgotten = self._options, list[Data](), list[Data]()
        unknown = False
        for place, at in request.positions:
            if not topics or topics[-1]["topic"] != place.topic or topics[-1]["topicId"] != place.topic_id:
                topics.append({"topic": place.topic, "topicId": place.topic_id, "partitions": []})
            row = {"partition": place.number, "currentLeaderEpoch": at.leader_epoch, "fetchOffset": at.offset}
            row |= {"lastFetchedEpoch": at.last_epoch, "partitionMaxBytes": options.partition_bytes}
            topics[-1]["partitions"].append(row)
            unknown = unknown or self._partitions[self._key(place)].high_watermark < 0
        for place in request.forgotten:
            forgotten.append({"topic": place.topic, "topicId": place.topic_id, "partitions": [place.number]})
        return {
            "replicaId": _CONSUMER,
            "maxWaitMs": 0 if request.epoch == _ALONE or (unknown and not options.continuous) else options.max_wait_ms,
            "minBytes": options.min_bytes,
            "maxBytes": self.fetch_bytes,
            "sessionId": request.session_id,
            "sessionEpoch": request.epoch,
            "topics": topics,
            "forgottenTopicsData": forgotten,
        }

    # ------------------------------------------------------------ answers

    def _take(self, answer: Data, request: SessionRequest) -> None:
        rows = [(topic, row) for topic in answer["responses"] for row in topic["partitions"]]
        self._session.answered(answer["sessionId"], not rows, answer["errorCode"])
        self._silent_since = min(self._silent_since, self._sent_at)
        if answer["errorCode"] in _SESSION_ERRORS:
            self._resume_at = time.monotonic() + _IDLE_S
            return
        if answer["errorCode"]:
            name = error_code(answer["errorCode"]).name
            raise RefusedRequestError(f"{self._connection.name}: Fetch: {name}", answer["errorCode"])
        taken, seen = 0, set[_Key]()
        with_records: list[FollowedPlace] = []
        named = set[FollowedPlace]()
        for topic, row in rows:
            key = (topic["topicId"] if self._by_id else topic["topic"], row["partitionIndex"])
            partition = self._partitions.get(key)
            if partition is None or key in seen:  # it was not requested
                continue
            seen.add(key)
            got = _fetch_answer(row)
            if not got.error and got.high_watermark >= 0:
                self._session.note(partition.place, LeaderMarks(got.high_watermark, got.log_start))
            named.add(partition.place)
            taken += len(got.records)
            if len(got.records):
                with_records.append(partition.place)
            self._take_one(partition, got)
        for place, marks in self._session.left_out(request, named):
            known = self._partitions.get(self._key(place))
            if known is not None and known.place == place:
                self._take_one(known, FetchAnswer(0, *marks, None, memoryview(b"")))
        self._session.let_others_go_first(with_records)
        self._resume_at = self._limit.take(taken)
        if taken:
            self._silent_since = inf
        if answer["throttleTimeMs"] > 0:
            self._throttled(
                answer["throttleTimeMs"], [self._partitions[key] for key in seen if key in self._partitions]
            )

    def _throttled(self, ms: int, partitions: list[FollowedPartition]) -> None:
        """Wait for the broker's throttle time: it does not read from this connection earlier.  Kafka: KIP-219."""
        longest_s = _LONGEST_THROTTLE_S if self._options.continuous else self._options.timeout_ms / 1000
        pause_s = min(ms / 1000, longest_s, _LONGEST_THROTTLE_S)
        self._resume_at = max(self._resume_at, time.monotonic() + pause_s)
        if self._options.trace:
            for partition in partitions or self._partitions.values():
                self._reporter.trace(f"{partition.name} throttled ms={ms}")

    def _take_one(self, partition: FollowedPartition, got: FetchAnswer) -> None:
        decision: Decision | None = judge(got, partition.copy.epochs, partition.copy.end)
        if isinstance(decision, Take):
            try:
                decision, got = partition.meet(got)
            except DamagedError as error:
                self._ask_again(partition, error)
                return
        if decision is None:
            return
        if not isinstance(decision, Take):
            self._release(partition, decision)
            return
        self._unwritten.append((partition, got))
        end, epoch = last_batch_end(got.records)
        if end >= 0:
            # The headers are checked here; faults of the batches are found when they are written.
            self._session.follow(partition.place, FetchPosition(partition.leader_epoch, end, epoch))
        else:
            self._session.follow(partition.place, partition.position())

    def _write(self) -> None:
        """Write the records of the last answer, while the leader prepares the next one."""
        for partition, got in self._unwritten:
            self._write_one(partition, got)
        self._unwritten.clear()
        self._clock.asked_ms = self._answered_ms
        silent_s = max(self._resume_at, time.monotonic()) - self._silent_since
        if silent_s * 1000 > self._options.timeout_ms and not self._options.continuous:
            self._give_up(silent_s)

    def _give_up(self, silent_s: float) -> None:
        """Release the partitions for which the leader announces more records, and sends none."""
        for partition in [one for one in self._partitions.values() if not one.reached]:
            high = f", though the high watermark is {partition.high_watermark}" if partition.high_watermark >= 0 else ""
            why = f"given up: no data arrives within {silent_s:.0f} s{high}"
            self._release(partition, Leave(why, ExitCode.OPERATIONAL_ERROR))

    def _write_one(self, partition: FollowedPartition, got: FetchAnswer) -> None:
        try:
            partition.take(got, self._options, self._reporter)
        except DamagedError as error:
            self._ask_again(partition, error)
            return
        if partition.cleaning.lost_from is not None and self._options.on_cleaned == "anew":
            self._release(partition, Renew())
            return
        self._session.follow(partition.place, partition.position())
        if not partition.reached and partition.copy.end >= partition.high_watermark >= 0:
            partition.reached = True
            self._released(Released(partition, None, self._sent_at))

    def _ask_again(self, partition: FollowedPartition, error: DamagedError) -> None:
        """Release a partition whose answer cannot be appended: it is fetched again, or given up."""
        partition.bad_answers += 1
        if partition.bad_answers < _TRIES:
            self._release(partition, Wait(str(error)))
        else:
            self._release(partition, Leave(str(error), ExitCode.PROBLEMS_LEFT))


def _fetch_answer(row: Data) -> FetchAnswer:
    told = row["divergingEpoch"]
    diverging = (told["epoch"], told["endOffset"]) if told["epoch"] >= 0 or told["endOffset"] >= 0 else None
    records = row["records"]
    return FetchAnswer(
        row["errorCode"], row["highWatermark"], row["logStartOffset"], diverging, memoryview(records or b"")
    )
