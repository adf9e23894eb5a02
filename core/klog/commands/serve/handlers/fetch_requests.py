"""Handlers of requests about logs: Fetch, ListOffsets, OffsetForLeaderEpoch.

Fetch follows a broker's rules, which are implemented in `klog.partition.fetch`.  The differences: there are no fetch
sessions, and a client that requests one continues with full requests; replication is refused; a client's leader epoch
is not compared with the disk's, because the client may have a later one from the old cluster, but the epoch of a
reader's last batch is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from klog.cluster.leader_epoch_cache import UNDEFINED
from klog.commands.serve.handlers.context import ZERO_ID, Answer, RequestContext, ServerContext
from klog.commands.serve.view import PartitionView
from klog.formats.error_codes import ErrorCode
from klog.formats.structs.schema import Data
from klog.formats.structs.write import Hole

if TYPE_CHECKING:
    from klog.partition.transactions.isolation import Isolation

MOST_BYTES: Final = 55 << 20
"""fetch.max.bytes of a broker."""
LONGEST_WAIT_MS: Final = 5000
"""No record can be added; a client therefore waits only shortly."""
_DEBUGGING_CONSUMER: Final = -2
_BY_ID, _STATE = 13, 15
"""The versions of Fetch from which on topics are named by ids, and a follower's id is in a tagged field."""
_READ_COMMITTED: Final = 1
_GONE: Final = object()
_NOT_FETCHED: Final[Data] = {"highWatermark": -1, "lastStableOffset": -1, "logStartOffset": -1, "records": b""}


def fetch(server: ServerContext, request: RequestContext) -> Answer:
    """Return batches of each partition, within the limits; the very first batch is returned whole, however large."""
    body = request.body
    if body["sessionEpoch"] > 0:
        return {"errorCode": ErrorCode.FETCH_SESSION_ID_NOT_FOUND}
    replica = body["replicaState"]["replicaId"] if request.version >= _STATE else body["replicaId"]
    committed, to_log_end = body["isolationLevel"] == _READ_COMMITTED, replica == _DEBUGGING_CONSUMER
    left, found_any, topics = min(body["maxBytes"], MOST_BYTES), False, []
    for wanted in _each_once(body["topics"]):
        rows = []
        for one in wanted["partitions"]:
            partition = _partition(server, wanted, one["partition"], request.version)
            limit = max(0, min(one["partitionMaxBytes"], left))
            if isinstance(partition, ErrorCode):
                row = {**_NOT_FETCHED, "errorCode": partition}
            elif replica >= 0:
                row = {**_NOT_FETCHED, "errorCode": ErrorCode.NOT_LEADER_OR_FOLLOWER}
            else:
                rules = _FetchRules(committed, to_log_end, not found_any)
                row, size = _unless_diverging(partition, one, limit, rules)
                left, found_any = left - size, found_any or size > 0
            row["partitionIndex"] = one["partition"]
            rows.append(row)
        topics.append({"topic": wanted["topic"], "topicId": wanted["topicId"], "partitions": rows})
    return {"responses": topics}


def _each_once(topics: list[Data]) -> list[Data]:
    """Return *topics* without repeated partitions: each response could be as large as the limit."""
    if len(topics) == 1 and len(topics[0]["partitions"]) == 1:
        return topics
    places = [(topic["topic"], topic["topicId"], one["partition"]) for topic in topics for one in topic["partitions"]]
    if len(set(places)) == len(places):
        return topics
    left = dict.fromkeys(places)
    return [
        topic | {"partitions": [one for one in topic["partitions"] if _taken(left, topic, one)]} for topic in topics
    ]


def _taken(left: dict[tuple[str, str, int], None], topic: Data, one: Data) -> bool:
    """Return whether this partition is still *left*, and take it out."""
    return left.pop((topic["topic"], topic["topicId"], one["partition"]), _GONE) is not _GONE


def _partition(server: ServerContext, wanted: Data, index: int, version: int) -> PartitionView | ErrorCode:
    by_id = version >= _BY_ID
    topic = server.topic(None if by_id else wanted["topic"], wanted["topicId"] if by_id else ZERO_ID)
    if topic is None and by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = None if topic is None else server.view.partition(topic.name, index)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition is None else partition


class _FetchRules(NamedTuple):
    committed: bool
    to_log_end: bool
    at_least_one: bool

    @property
    def isolation(self) -> Isolation:
        return "read_committed" if self.committed else "read_uncommitted"


def _unless_diverging(partition: PartitionView, wanted: Data, limit: int, rules: _FetchRules) -> tuple[Data, int]:
    """Return the result of `_fetched`, but no records if the histories diverge.  Kafka: Partition.readRecords."""
    offset, last_epoch = wanted["fetchOffset"], wanted["lastFetchedEpoch"]
    parting = partition.divergence(last_epoch, offset) if last_epoch >= 0 else None
    if parting is None:
        return _fetched(partition, offset, limit, rules)
    row, _ = _fetched(partition, partition.log_start_offset, 0, rules._replace(at_least_one=False))
    epoch, end = parting
    if offset < row["logStartOffset"] or UNDEFINED in parting:
        return {**_NOT_FETCHED, "errorCode": ErrorCode.OFFSET_OUT_OF_RANGE, "abortedTransactions": None}, 0
    return row | {"divergingEpoch": {"epoch": epoch, "endOffset": end}}, 0


def _fetched(partition: PartitionView, offset: int, limit: int, rules: _FetchRules) -> tuple[Data, int]:
    """Return the row of a partition and how many bytes of records it has."""
    got = partition.fetch(
        offset, limit, isolation=rules.isolation, at_least_one=rules.at_least_one, to_log_end=rules.to_log_end
    )
    row: Data = {
        "errorCode": got.error,
        "highWatermark": got.high_watermark,
        "lastStableOffset": got.last_stable_offset,
        "logStartOffset": got.log_start_offset,
        "abortedTransactions": None,
        "records": b"",
    }
    if got.error:
        return row, 0
    if rules.committed:
        aborted = [{"producerId": one.producer_id, "firstOffset": one.first_offset} for one in got.aborted]
        row["abortedTransactions"] = aborted
    size = got.size
    if size:
        row["records"] = Hole(size, got.pieces)
    return row, size


def fetch_wait_ms(request: Data, answer: Answer) -> int:
    """Return how long a broker would wait for more records before this answer."""
    if answer.get("errorCode") or not request["topics"]:
        return 0
    rows = [row for topic in answer["responses"] for row in topic["partitions"]]
    size: int = sum(row["records"].size for row in rows if isinstance(row["records"], Hole))
    if size >= request["minBytes"] or any(row["errorCode"] for row in rows):
        return 0
    wanted_ms: int = request["maxWaitMs"]
    return max(0, min(wanted_ms, LONGEST_WAIT_MS))


def list_offsets(server: ServerContext, request: RequestContext) -> Answer:
    """Return the first, the last, the one with the largest timestamp, or the first at or after a time."""
    committed = request.body["isolationLevel"] == _READ_COMMITTED
    level: Isolation = "read_committed" if committed else "read_uncommitted"
    topics = []
    for wanted in request.body["topics"]:
        rows = []
        for one in wanted["partitions"]:
            row: Data = {"partitionIndex": one["partitionIndex"]}
            partition = server.view.partition(wanted["name"], one["partitionIndex"])
            if partition is None:
                row["errorCode"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition.is_unreadable:
                row["errorCode"] = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                offset, timestamp_ms, epoch = partition.list_offset(one["timestamp"], level)
                row |= {"offset": offset, "timestamp": timestamp_ms, "leaderEpoch": epoch}
            rows.append(row)
        topics.append({"name": wanted["name"], "partitions": rows})
    return {"topics": topics}


def offset_for_leader_epoch(server: ServerContext, request: RequestContext) -> Answer:
    """Return the end offsets of leader epochs."""
    topics = []
    for wanted in request.body["topics"]:
        rows = []
        for one in wanted["partitions"]:
            row: Data = {"partition": one["partition"]}
            partition = server.view.partition(wanted["topic"], one["partition"])
            if partition is None:
                row["errorCode"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                row["leaderEpoch"], row["endOffset"] = partition.epoch_end(one["leaderEpoch"])
            rows.append(row)
        topics.append({"topic": wanted["topic"], "partitions": rows})
    return {"topics": topics}
