"""The events in `__remote_log_metadata`: a copy of a segment began, ended, its deletion began, ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klog.formats.checkpoint import EpochEntry
from klog.formats.internal_topics import MetadataRecord, Undecodable, metadata_value, remote_log_record
from klog.formats.java_text import uuid_bytes
from klog.formats.remote_log import PARTITION_DELETE, SEGMENT, SEGMENT_UPDATE, SegmentState, remote_log_text
from klog.formats.structs.read import StructError
from klog.formats.structs.schema import Data

_MASK = 0xFFFFFFFF
DELETE_PARTITION_FINISHED = 2


class TopicIdPartition(NamedTuple):
    """A partition of one topic; a topic that was deleted and created again has another id."""

    topic: str
    number: int
    topic_id: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class RemoteSegment(NamedTuple):
    """A segment in remote storage; *start_offset* and *end_offset* are both inclusive.

    *epochs*: the leader epochs with data in the segment, each with its first offset there.  *size*: bytes of its log.
    *custom_metadata* is the storage manager's own.  *txn_index_empty*: before 4.0 always False, which then tells
    nothing.  *event_timestamp*: of the last event.  Kafka: RemoteLogSegmentMetadata.
    """

    segment_id: str
    start_offset: int
    end_offset: int
    epochs: tuple[EpochEntry, ...]
    size: int
    max_timestamp: int
    broker: int
    event_timestamp: int
    state: SegmentState
    custom_metadata: bytes | None
    txn_index_empty: bool

    def end_of(self, epoch: int) -> int:
        """Return the last offset of *epoch*, one of the segment's.  Kafka: highestOffsetForEpoch."""
        return next((one.start_offset - 1 for one in self.epochs if one.epoch > epoch), self.end_offset)

    def epoch_ends(self) -> Iterator[int]:
        """Yield the last offset of each of the epochs, in their order: `end_of` for all of them, in one pass."""
        yield from (after.start_offset - 1 for after in self.epochs[1:])
        yield self.end_offset


class RemoteLogEvent(NamedTuple):
    """A record of the topic: a segment (*segment*), an update of one, or the deletion of a partition.

    *segment_id*: None in the deletion of a partition.  *state*: the number of a SegmentState, or of the state of that
    deletion.
    """

    partition: TopicIdPartition
    segment_id: str | None
    state: int
    broker: int
    event_timestamp: int
    custom_metadata: bytes | None = None
    segment: RemoteSegment | None = None


def read_event(value: bytes) -> RemoteLogEvent | Undecodable:
    """Return the event in a record's value, or why Kafka's classes refuse it."""
    record = remote_log_record(value)
    if isinstance(record, Undecodable):
        return record
    try:
        remote_log_text(record.type, record.data)
    except StructError as error:
        return Undecodable(error.message)
    return _event(record)


def _event(record: MetadataRecord) -> RemoteLogEvent | Undecodable:
    data = record.data
    if record.type == PARTITION_DELETE:
        state = data["remotePartitionDeleteState"]
        return RemoteLogEvent(
            _partition(data["topicIdPartition"]), None, state, data["brokerId"], data["eventTimestampMs"]
        )
    if record.type not in (SEGMENT, SEGMENT_UPDATE):
        return Undecodable(f"no broker handles {record.name}")
    whose = data["remoteLogSegmentId"]
    event = RemoteLogEvent(
        _partition(whose["topicIdPartition"]),
        whose["id"],
        data["remoteLogSegmentState"],
        data["brokerId"],
        data["eventTimestampMs"],
        data["customMetadata"],
    )
    if record.type == SEGMENT_UPDATE:
        return event
    if event.state != SegmentState.COPY_SEGMENT_STARTED:
        return Undecodable(f"{record.name} cannot have the state {SegmentState(event.state).name}")
    return event._replace(segment=_segment(data, event))


def _partition(data: Data) -> TopicIdPartition:
    return TopicIdPartition(data["name"], data["partition"], data["id"])


def _segment(data: Data, event: RemoteLogEvent) -> RemoteSegment:
    assert event.segment_id is not None
    epochs = {one["leaderEpoch"]: one["offset"] for one in data["segmentLeaderEpochs"]}
    return RemoteSegment(
        segment_id=event.segment_id,
        start_offset=data["startOffset"],
        end_offset=data["endOffset"],
        epochs=tuple(EpochEntry(*one) for one in sorted(epochs.items())),
        size=data["segmentSizeInBytes"],
        max_timestamp=data["maxTimestampMs"],
        broker=event.broker,
        event_timestamp=event.event_timestamp,
        state=SegmentState.COPY_SEGMENT_STARTED,
        custom_metadata=event.custom_metadata,
        txn_index_empty=data["txnIndexEmpty"],
    )


def copy_events(whose: TopicIdPartition, segment: RemoteSegment) -> list[bytes]:
    """Return the values of the records by which a broker learns of a segment: its copy began, and ended."""
    partition = {"name": whose.topic, "id": whose.topic_id, "partition": whose.number}
    common = {
        "remoteLogSegmentId": {"topicIdPartition": partition, "id": segment.segment_id},
        "brokerId": segment.broker,
        "eventTimestampMs": segment.event_timestamp,
    }
    began = {
        "startOffset": segment.start_offset,
        "endOffset": segment.end_offset,
        "maxTimestampMs": segment.max_timestamp,
        "segmentLeaderEpochs": [{"leaderEpoch": epoch, "offset": start} for epoch, start in segment.epochs],
        "segmentSizeInBytes": segment.size,
        "customMetadata": None,
        "remoteLogSegmentState": int(SegmentState.COPY_SEGMENT_STARTED),
        "txnIndexEmpty": segment.txn_index_empty,
    }
    ended = {
        "customMetadata": segment.custom_metadata,
        "remoteLogSegmentState": int(SegmentState.COPY_SEGMENT_FINISHED),
    }
    return [
        metadata_value(MetadataRecord(SEGMENT, "", 0, common | began), "remote_log"),
        metadata_value(MetadataRecord(SEGMENT_UPDATE, "", 0, common | ended), "remote_log"),
    ]


def metadata_partition(topic_id: str, number: int, count: int) -> int:
    """Return the partition of `__remote_log_metadata`, of *count*, that has the events of a partition.

    Kafka: RemoteLogMetadataTopicPartitioner.
    """
    from klog.kernel import key_partitions  # a part of its own: a tier without a metadata log needs no hash

    raw = uuid_bytes(topic_id)
    halves = (int.from_bytes(raw[8:], "big"), int.from_bytes(raw[:8], "big"))
    hashed = _java_hash([*(half >> 32 ^ half & _MASK for half in halves), number])
    return key_partitions(hashed.to_bytes(4, "big"), count)[0]


def _java_hash(values: Iterable[int]) -> int:
    """Kafka: java.util.Objects.hash, as 32 bits."""
    result = 1
    for value in values:
        result = (31 * result + value) & _MASK
    return result
