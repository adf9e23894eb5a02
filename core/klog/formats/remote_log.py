"""Records of `__remote_log_metadata` as text: segments that were copied to remote storage.

Kafka builds an object from each record, whose constructor may refuse the data, and prints that object.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from klog.formats.structs.read import StructError
from klog.formats.structs.schema import Data

SEGMENT, SEGMENT_UPDATE, PARTITION_DELETE = 0, 1, 2


class SegmentState(IntEnum):
    """The state of a segment in remote storage.  Kafka: RemoteLogSegmentState."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


_DELETE_STATES: Final = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


def remote_log_text(record_type: int, data: Data) -> str:
    """Return the record as Java prints its object.

    Raises StructError, with the exception's message, if Kafka's classes refuse the data.
    Kafka: RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, RemotePartitionDeleteMetadata,
    RemoteLogSegmentMetadataSnapshot.
    """
    if record_type == SEGMENT:
        return _segment(data)
    if record_type == SEGMENT_UPDATE:
        return _segment_update(data)
    if record_type == PARTITION_DELETE:
        return _partition_delete(data)
    return _snapshot(data)


def _partition(data: Data) -> str:
    return f"{data['id']}:{data['name']}-{data['partition']}"


def _segment_id(data: Data) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={_partition(data['topicIdPartition'])}, id={data['id']}}}"


def _state(data: Data) -> str:
    state = data["remoteLogSegmentState"]
    if not 0 <= state < len(SegmentState):
        raise StructError("java.lang.NullPointerException", "state can not be null")
    return SegmentState(state).name


def _epochs(data: Data) -> str:
    """The map from leader epochs to start offsets: the last entry of an epoch counts."""
    if not data["segmentLeaderEpochs"]:
        raise StructError("java.lang.IllegalArgumentException", "segmentLeaderEpochs can not be null or empty")
    epochs = {entry["leaderEpoch"]: entry["offset"] for entry in data["segmentLeaderEpochs"]}
    return "{" + ", ".join(f"{epoch}={epochs[epoch]}" for epoch in sorted(epochs)) + "}"


def _custom(data: Data) -> str:
    custom = data["customMetadata"]
    return "Optional.empty" if custom is None else f"Optional[CustomMetadata{{{len(custom)} bytes}}]"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _segment(data: Data) -> str:
    start, end = data["startOffset"], data["endOffset"]
    refused, remote = "java.lang.IllegalArgumentException", "for a remote segment cannot be"
    if start < 0:
        raise StructError(refused, f"Unexpected start offset = {start}. StartOffset {remote} negative")
    if end < start:
        text = f"Unexpected end offset = {end}. EndOffset {remote} less than startOffset = {start}"
        raise StructError(refused, text)
    epochs = _epochs(data)
    return (
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(data['remoteLogSegmentId'])}, startOffset={start},"
        f" endOffset={end}, brokerId={data['brokerId']}, maxTimestampMs={data['maxTimestampMs']},"
        f" eventTimestampMs={data['eventTimestampMs']}, segmentLeaderEpochs={epochs},"
        f" segmentSizeInBytes={data['segmentSizeInBytes']}, customMetadata={_custom(data)}, state={_state(data)},"
        f" txnIdxEmpty={_flag(data['txnIndexEmpty'])}}}"
    )


def _segment_update(data: Data) -> str:
    return (
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(data['remoteLogSegmentId'])},"
        f" customMetadata={_custom(data)}, state={_state(data)}, eventTimestampMs={data['eventTimestampMs']},"
        f" brokerId={data['brokerId']}}}"
    )


def _partition_delete(data: Data) -> str:
    state = data["remotePartitionDeleteState"]
    if not 0 <= state < len(_DELETE_STATES):
        raise StructError("java.lang.NullPointerException")
    return (
        f"RemotePartitionDeleteMetadata{{topicPartition={_partition(data['topicIdPartition'])},"
        f" state={_DELETE_STATES[state]}, eventTimestampMs={data['eventTimestampMs']}, brokerId={data['brokerId']}}}"
    )


def _snapshot(data: Data) -> str:
    state, epochs = _state(data), _epochs(data)
    return (
        f"RemoteLogSegmentMetadataSnapshot{{segmentId={data['segmentId']}, startOffset={data['startOffset']},"
        f" endOffset={data['endOffset']}, maxTimestampMs={data['maxTimestampMs']}, segmentLeaderEpochs={epochs},"
        f" segmentSizeInBytes={data['segmentSizeInBytes']}, customMetadata={_custom(data)}, state={state},"
        f" txnIdxEmpty={_flag(data['txnIndexEmpty'])}}}"
    )
