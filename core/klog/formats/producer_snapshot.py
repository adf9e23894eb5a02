"""Producer snapshots, `.snapshot`: a partition's producers at the offset in the file's name.

    version   int16    1
    crc       uint32   CRC-32C of everything after it
    count     int32
    entries   46 bytes each, in no order

The number in the name is exclusive: `00000000000000001052.snapshot` includes the effect of every batch below 1052.  It
contains only the last batch of each producer.  A broker deletes a file that breaks a rule, and takes the next older
one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from klog.formats.batch import Crc, decrement_sequence
from klog.formats.layout import Layout

HEADER = Layout(
    "producer snapshot",
    ("version", "int16", "1"),
    ("crc", "uint32", "CRC-32C of everything after it"),
    ("count", "int32", "number of producer entries"),
)

PRODUCER = Layout(
    "producer entry",
    ("producer_id", "int64", "whose state it is"),
    ("producer_epoch", "int16", "highest epoch seen"),
    ("last_sequence", "int32", "of the last record of the last data batch; -1: none"),
    ("last_offset", "int64", "of that record; -1: none"),
    ("offset_delta", "int32", "last offset of that batch less its first"),
    ("timestamp", "int64", "ms since the epoch: of the last data batch or of the last marker"),
    ("coordinator_epoch", "int32", "of the last transaction marker; -1: none"),
    ("current_txn_first_offset", "int64", "where the open transaction began; -1: none is open"),
)

VERSION: Final = 1

PRODUCER_ID_EXPIRATION_MS: Final = 86_400_000
"""Kafka's default of `producer.id.expiration.ms`: a producer that was idle for a day is forgotten."""
CRC_START: Final = HEADER.offsets["count"]
"""The first byte of the checksummed part, which ends with the file."""

_VERSION_BYTES = HEADER.offsets["crc"]


class Producer(NamedTuple):
    """One producer's state; fields as in `PRODUCER`."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of the last batch's first record; means nothing when there is no last batch."""
        return decrement_sequence(self.last_sequence, self.offset_delta)


class Snapshot(NamedTuple):
    """A producer snapshot as read.

    *problem* is the dump tool's message on stderr about a file that a broker would delete, None for a valid one.
    If it is set, *producers* are those that could still be read: display them, do not rely on them.
    The checksums are None if reading ended before them.
    """

    producers: tuple[Producer, ...]
    problem: str | None = None
    stored_crc: int | None = None
    computed_crc: int | None = None


def read_snapshot(content: bytes, crc32c: Crc) -> Snapshot:
    """Read a whole snapshot file.  The order of the checks is Kafka's: ProducerStateManager.readSnapshot."""
    if len(content) < _VERSION_BYTES:
        return _against_schema("null")
    version = int.from_bytes(content[:_VERSION_BYTES], "big", signed=True)
    if version != VERSION:
        return _against_schema(f"Snapshot contained an unknown file version {version}")
    if len(content) < HEADER.size:
        return _against_schema("null")
    _, stored_crc, count = HEADER.read(content)
    entries = content[HEADER.size :]
    producers = tuple(map(Producer._make, PRODUCER.read_all(entries[: max(count, 0) * PRODUCER.size])))
    if count < 0:
        return _against_schema("non-nullable field producerEntries was serialized as null")
    if count > len(entries):
        reason = f"Tried to allocate a collection of size {count}, but there are only {len(entries)} bytes remaining."
        return _against_schema(reason, producers)
    if count > len(producers):
        return _against_schema("null", producers)
    computed_crc = crc32c(content[CRC_START:])
    problem = None
    if stored_crc != computed_crc:
        problem = "Snapshot is corrupt (CRC is no longer valid). "
        problem += f"Stored crc: {stored_crc}. Computed crc: {computed_crc}"
    return Snapshot(producers, problem, stored_crc, computed_crc)


def _against_schema(reason: str, producers: tuple[Producer, ...] = ()) -> Snapshot:
    # "null" is Java's message for a buffer that ends too early.
    return Snapshot(producers, f"Snapshot failed schema validation: {reason}")


def write_snapshot(producers: Iterable[Producer], crc32c: Crc) -> bytes:
    """Return the content of a snapshot of *producers*, in their order.  Kafka: ProducerStateManager.writeSnapshot."""
    entries = [PRODUCER.write(*producer) for producer in producers]
    unchecked = HEADER.write(VERSION, 0, len(entries)) + b"".join(entries)
    return HEADER.write(VERSION, crc32c(unchecked[CRC_START:]), len(entries)) + unchecked[HEADER.size :]
