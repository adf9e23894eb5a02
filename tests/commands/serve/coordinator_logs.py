"""The two coordinators' logs, written by hand: the states of transactions, and the commits of groups."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record, batch, unsigned_varint

T = 1_790_000_000_000
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
_V2 = 2


def _text(value: str, flexible: bool) -> bytes:
    data = value.encode()
    return (unsigned_varint(len(data) + 1) if flexible else struct.pack(">h", len(data))) + data


def state(
    status: int,
    start: int = -1,
    update: int = 0,
    named: Sequence[tuple[str, int]] = (),
    *,
    epoch: int = 0,
    producer: int = 7001,
    previous: int | None = None,
    client_version: int = 0,
    written: int | None = None,
    name: str = "app",
) -> tuple[bytes, bytes, int]:
    """Return key, value and time of a record of `__transaction_state`; times are ms after T.

    With *client_version* 2 the value is of version 1, as brokers of transactions v2 write it.
    """
    key = struct.pack(">h", 0) + _text(name, False)
    flexible = client_version >= _V2
    value = struct.pack(">hqhib", int(flexible), producer, epoch, 60_000, status)
    if flexible:
        value += unsigned_varint(len(named) + 1)
        for topic, number in named:
            value += _text(topic, True) + unsigned_varint(2) + struct.pack(">i", number) + b"\0"
    else:
        value += struct.pack(">i", len(named))
        for topic, number in named:
            value += _text(topic, False) + struct.pack(">ii", 1, number)
    value += struct.pack(">qq", T + update, -1 if start < 0 else T + start)
    if flexible:
        tags = [
            (0, struct.pack(">q", producer if previous is None else previous)),
            (2, struct.pack(">h", client_version)),
        ]
        value += unsigned_varint(len(tags))
        for tag, data in tags:
            value += unsigned_varint(tag) + unsigned_varint(len(data)) + data
    return key, value, T + (update if written is None else written)


def commit_of(
    offset: int | None, at: int, *, group: str = "g", topic: str = "t", number: int = 0, written: int | None = None
) -> tuple[bytes, bytes | None, int]:
    """Return key, value and time of a commit of a group *at* so many ms after T; *offset* None: its tombstone."""
    key = struct.pack(">h", 1) + _text(group, False) + _text(topic, False) + struct.pack(">i", number)
    value = None if offset is None else struct.pack(">hqih", 3, offset, 5, 1) + b"m" + struct.pack(">q", T + at)
    return key, value, T + (at if written is None else written)


def write_records(folder: Path, records: Sequence[tuple[bytes, bytes | None, int]]) -> None:
    """Write a coordinator's log of one record a batch."""
    write_batches(folder, *(batch([Record(at, ms, key, value)]) for at, (key, value, ms) in enumerate(records)))


def write_batches(folder: Path, *batches: bytes) -> None:
    """Write a log that begins at 0."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))


def rows(base: int, count: int, at: int, *, pid: int = -1, epoch: int = 0, sequence: int = 0, step: int = 1) -> bytes:
    """Return a batch of *count* records, the first *at* so many ms after T; of a transaction where there is a *pid*."""
    records = [Record(base + i, T + at + i * step, b"k", b"v%d" % (base + i)) for i in range(count)]
    if pid < 0:
        return batch(records)
    return batch(records, transactional=True, producer=(pid, epoch, sequence))


def ending(offset: int, at: int, *, commit: bool = True, pid: int = 7001, epoch: int = 0) -> bytes:
    """Return a marker that was written *at* so many ms after T."""
    return encode.marker(
        offset, commit=commit, timestamp=T + at, producer_id=pid, producer_epoch=epoch, coordinator_epoch=0
    )
