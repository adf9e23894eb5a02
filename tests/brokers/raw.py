"""Requests as bytes, for facts that clients hide: partial batches, error codes, the other fields of a response.

with Raw("localhost:9092") as broker:
    broker.fetch("orders", [(0, 17, 3500)])
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.brokers.clients import WAIT_S

_NOT_YET = (3, 5, 6, 9, 78)
"""Error codes of a broker that listens and does not lead its partitions yet: clients ask again."""

_PRODUCE, _FETCH, _LIST_OFFSETS, _COMMIT, _EPOCHS = 0, 1, 2, 8, 23


class Answer(NamedTuple):
    """A partition of a Fetch response; *aborted*: (producer id, first offset), None if not requested."""

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] | None
    records: bytes


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, layout: str) -> tuple[int, ...]:
        found = struct.unpack_from(f">{layout}", self.data, self.at)
        self.at += struct.calcsize(f">{layout}")
        return found

    def bytes(self, size: int) -> bytes:
        self.at += max(size, 0)
        return self.data[self.at - max(size, 0) : self.at]

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take("B")
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value


def _settled(ask: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
    """Return the first answer, error code first, of a broker that leads the partition."""
    until = time.monotonic() + WAIT_S
    while (answer := ask())[0] in _NOT_YET and time.monotonic() < until:
        time.sleep(0.1)
    return answer


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class Raw:
    """A connection.  Versions are the last before the flexible ones, which have the same content in fewer bytes."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._count = 0

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def _ask(self, api: int, version: int, body: bytes, flexible: bool = False) -> _Reader:
        self._count += 1
        head = struct.pack(">hhi", api, version, self._count) + _string("raw") + b"\0" * flexible
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", self._exactly(4))
        reader = _Reader(self._exactly(size))
        assert reader.take("i") == (self._count,)
        return reader

    def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            part = self._socket.recv(min(size - len(got), 1 << 20))
            assert part, f"closed after {len(got)} of {size} bytes"
            got += part
        return bytes(got)

    def fetch(
        self,
        topic: str,
        parts: Sequence[tuple[int, int, int]],
        *,
        max_bytes: int = 50 << 20,
        committed: bool = False,
        replica: int = -1,
    ) -> list[Answer]:
        """Fetch partitions, each with an offset and a limit."""
        rows = b"".join(struct.pack(">iqqi", number, offset, -1, limit) for number, offset, limit in parts)
        body = struct.pack(">iiiibi", replica, 0, 1, max_bytes, committed, 1)
        reader = self._ask(_FETCH, 5, body + _string(topic) + struct.pack(">i", len(parts)) + rows)
        reader.take("i")  # throttled for so many ms
        assert reader.take("i") == (1,)
        reader.bytes(reader.take("h")[0])
        (count,) = reader.take("i")
        return [self._partition(reader) for _ in range(count)]

    def _partition(self, reader: _Reader) -> Answer:
        _, error, high, stable, start, count = reader.take("ihqqqi")
        pairs = [reader.take("qq") for _ in range(max(count, 0))]
        aborted = None if count < 0 else tuple((producer, first) for producer, first in pairs)
        return Answer(error, high, stable, start, aborted, reader.bytes(reader.take("i")[0]))

    def list_offset(self, topic: str, number: int, timestamp: int, committed: bool = False) -> tuple[int, int, int]:
        """Return offset, timestamp and leader epoch."""
        error, at_ms, offset, epoch = _settled(lambda: self._list_offset(topic, number, timestamp, committed))
        assert error == 0, error
        return offset, at_ms, epoch

    def _list_offset(self, topic: str, number: int, timestamp: int, committed: bool) -> tuple[int, ...]:
        name = topic.encode()
        topics = b"\2" + bytes([len(name) + 1]) + name + b"\2" + struct.pack(">iiq", number, -1, timestamp) + b"\0\0"
        reader = self._ask(_LIST_OFFSETS, 9, struct.pack(">ib", -1, committed) + topics + b"\0", flexible=True)
        reader.varint()  # no tags
        reader.take("i")
        assert reader.varint() == 2
        reader.bytes(reader.varint() - 1)
        assert reader.varint() == 2
        return reader.take("ihqqi")[1:]

    def epoch_end(self, topic: str, number: int, epoch: int) -> tuple[int, int]:
        """Return epoch and end offset."""
        error, _, found, end = _settled(lambda: self._epoch_end(topic, number, epoch))
        assert error == 0, error
        return found, end

    def _epoch_end(self, topic: str, number: int, epoch: int) -> tuple[int, ...]:
        rows = struct.pack(">i", 1) + struct.pack(">iii", number, -1, epoch)
        reader = self._ask(_EPOCHS, 3, struct.pack(">ii", -2, 1) + _string(topic) + rows)
        reader.take("i")
        assert reader.take("i") == (1,)
        reader.bytes(reader.take("h")[0])
        assert reader.take("i") == (1,)
        return reader.take("hiiq")

    def commit(self, group: str, topic: str, number: int, offset: int, retention_ms: int) -> int:
        """Commit an offset that expires; return the error code."""
        row = _string(topic) + struct.pack(">iiq", 1, number, offset) + _string("")
        head = _string(group) + struct.pack(">i", -1) + _string("") + struct.pack(">q", retention_ms)
        reader = self._ask(_COMMIT, 2, head + struct.pack(">i", 1) + row)
        assert reader.take("i") == (1,)
        reader.bytes(reader.take("h")[0])
        return reader.take("iih")[2]

    def produce(self, topic: str, number: int, batch: bytes, transactional_id: str) -> int:
        """Append a batch as it is; return the error code."""
        return self.produce_at(topic, number, batch, transactional_id)[0]

    def produce_at(self, topic: str, number: int, batch: bytes, transactional_id: str | None = None) -> tuple[int, int]:
        """Do the same; return the error code and the base offset."""
        error, offset = _settled(lambda: self._produce(topic, number, batch, transactional_id))
        return error, offset

    def _produce(self, topic: str, number: int, batch: bytes, transactional_id: str | None) -> tuple[int, ...]:
        rows = _string(topic) + struct.pack(">iii", 1, number, len(batch)) + batch
        name = struct.pack(">h", -1) if transactional_id is None else _string(transactional_id)
        reader = self._ask(_PRODUCE, 3, name + struct.pack(">hii", -1, 30_000, 1) + rows)
        assert reader.take("i") == (1,)
        reader.bytes(reader.take("h")[0])
        return reader.take("iihq")[2:]
