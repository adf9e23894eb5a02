"""Values of records in `__remote_log_metadata`, written byte by byte; nothing is shared with klog's schemas."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from typing import NamedTuple

from tests.oracles.plain.encode import unsigned_varint


def uuid_bytes(text: str) -> bytes:
    """Return the bytes of an id in its 22 letters."""
    return base64.urlsafe_b64decode(text + "==")


def uuid(number: int) -> str:
    """Return an id in its 22 letters."""
    return base64.urlsafe_b64encode(number.to_bytes(16, "big")).decode().rstrip("=")


def _bytes(data: bytes | None) -> bytes:
    return b"\0" if data is None else unsigned_varint(len(data) + 1) + data


class Whose(NamedTuple):
    """The partition of a segment."""

    topic: str = "orders"
    number: int = 0
    topic_id: str = uuid(7)

    def encoded(self) -> bytes:
        return _bytes(self.topic.encode()) + uuid_bytes(self.topic_id) + struct.pack(">i", self.number) + b"\0"


def started(
    segment_id: str,
    start: int,
    end: int,
    epochs: Mapping[int, int],
    *,
    whose: Whose = Whose(),  # noqa: B008
    size: int = 1000,
    broker: int = 1,
    max_timestamp: int = 5,
    at: int = 6,
    custom: bytes | None = None,
    state: int = 0,
    txn_index_empty: bool = True,
) -> bytes:
    """Return a RemoteLogSegmentMetadataRecord; *epochs*: the start offset of each."""
    value = b"\1\0\0" + whose.encoded() + uuid_bytes(segment_id) + b"\0"
    value += struct.pack(">qqiqq", start, end, broker, max_timestamp, at)
    value += unsigned_varint(len(epochs) + 1)
    value += b"".join(struct.pack(">iq", epoch, offset) + b"\0" for epoch, offset in epochs.items())
    value += struct.pack(">i", size) + _bytes(custom) + struct.pack(">b", state)
    return value + (b"\1\0\1\1" if txn_index_empty else b"\0")


def updated(
    segment_id: str,
    state: int,
    *,
    whose: Whose = Whose(),  # noqa: B008
    broker: int = 1,
    at: int = 7,
    custom: bytes | None = None,
) -> bytes:
    """Return a RemoteLogSegmentMetadataUpdateRecord."""
    value = b"\1\1\0" + whose.encoded() + uuid_bytes(segment_id) + b"\0"
    return value + struct.pack(">iq", broker, at) + _bytes(custom) + struct.pack(">b", state) + b"\0"


def partition_deleted(state: int, *, whose: Whose = Whose(), broker: int = 1, at: int = 8) -> bytes:  # noqa: B008
    """Return a RemotePartitionDeleteMetadataRecord."""
    return b"\1\2\0" + whose.encoded() + struct.pack(">iqb", broker, at, state) + b"\0"
