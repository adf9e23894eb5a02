"""Everything that brokers serve, fetched as bytes and read by the plain decoder: a consumer that seeks past damage."""

from __future__ import annotations

import bisect
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.brokers import clients
from tests.brokers.raw import _NOT_YET, Raw, _string
from tests.oracles.plain.decode import Batch, scan
from tests.proof.ledger import Content

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicMetadata

LIMIT = 1 << 20
LEADERS_S = 6
SETTLES_S = 1
_FIND_COORDINATOR, _END_TXN = 10, 26


@dataclass
class Served:
    """A partition as consumers see it: *records* of both kinds of isolation, by offset.  *leader*: -1 for none."""

    leader: int
    log_start: int = -1
    log_end: int = -1
    uncommitted: dict[int, Content] = field(default_factory=dict)
    committed: dict[int, Content] = field(default_factory=dict)
    error: str = ""


class Connection(Raw):
    """The connections of a round besides."""

    def bound(self, topic: str, number: int, timestamp: int) -> int:
        """Return the log start (-2) or the high watermark (-1)."""
        end = time.monotonic() + SETTLES_S
        while (answer := self._list_offset(topic, number, timestamp, False))[0] in _NOT_YET and time.monotonic() < end:
            time.sleep(0.1)
        assert answer[0] == 0, f"error {answer[0]}"
        return answer[2]

    def coordinator(self, transaction: str) -> tuple[int, int]:
        """Return error code and node of a transactional id's coordinator."""
        reader = self._ask(_FIND_COORDINATOR, 1, _string(transaction) + b"\1")
        _, error = reader.take("ih")
        reader.bytes(reader.take("h")[0])
        return error, reader.take("i")[0]

    def end_transaction(self, transaction: str, producer: int, epoch: int, *, is_commit: bool) -> int:
        """End a transaction as its producer would; return the error code."""
        body = _string(transaction) + struct.pack(">qhb", producer, epoch, is_commit)
        return self._ask(_END_TXN, 1, body).take("ih")[1]


def leaders(bootstrap: str, seconds: float = LEADERS_S) -> dict[tuple[str, int], int] | None:
    """Return the leader of each partition as soon as all have one, or when the time is over: -1 for none.

    None if no broker answers.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client, end = AdminClient({"bootstrap.servers": bootstrap, **clients.SILENT}), time.monotonic() + seconds
    while True:
        topics: Mapping[str, TopicMetadata] | None = None
        with suppress(KafkaException):
            topics = client.list_topics(timeout=seconds).topics
        found = (
            None
            if topics is None
            else {(name, one.id): one.leader for name, topic in topics.items() for one in topic.partitions.values()}
        )
        if (found and min(found.values()) >= 0) or time.monotonic() > end:
            return found
        time.sleep(0.1)


def read(bootstrap: str, port: int, wanted: dict[tuple[str, int], list[int]]) -> dict[tuple[str, int], Served] | None:
    """Read partitions, None if no broker answers.  *wanted*: the offsets to seek to behind what cannot be read."""
    led = leaders(bootstrap)
    if led is None:
        return None
    connections: dict[int, Connection] = {}
    found = {}
    for place, offsets in wanted.items():
        leader = led.get(place, -1)
        one = found[place] = Served(leader)
        if leader < 0:
            continue
        try:
            if leader not in connections:
                connections[leader] = Connection(f"localhost:{port + leader}")
            _read(connections[leader], *place, sorted(offsets), one)
        except (OSError, AssertionError, struct.error) as problem:
            one.error = f"{type(problem).__name__} {problem}"
            if not isinstance(problem, AssertionError):
                connections.pop(leader, None)
    for connection in connections.values():
        connection.__exit__()
    return found


def _read(broker: Connection, topic: str, number: int, offsets: list[int], into: Served) -> None:
    into.log_start = broker.bound(topic, number, -2)
    into.log_end = broker.bound(topic, number, -1)
    for batch in _batches(broker, topic, number, offsets, into, committed=False):
        into.uncommitted |= {record.offset: (record.key, record.value) for record in batch.records}
    aborted: set[int] = set()
    pending: list[tuple[int, int]] = []
    for batch in _batches(broker, topic, number, offsets, into, committed=True, pending=pending):
        aborted |= {producer for first, producer in pending if first <= batch.last_offset}
        pending[:] = [pair for pair in pending if pair[0] > batch.last_offset]
        if batch.control:
            if batch.records and struct.unpack_from(">hh", batch.records[0].key or b"\0\0\0\1")[1] == 0:
                aborted.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in aborted):
            into.committed |= {record.offset: (record.key, record.value) for record in batch.records}


def _batches(
    broker: Connection,
    topic: str,
    number: int,
    offsets: list[int],
    into: Served,
    *,
    committed: bool,
    pending: list[tuple[int, int]] | None = None,
) -> Iterator[Batch]:
    """Yield the batches of a partition in their order, data batches without markers where *pending* is None.

    *pending* receives a broker's aborted transactions, as (first offset, producer id).
    """
    at = into.log_start
    while True:
        (answer,) = broker.fetch(topic, [(number, at, LIMIT)], committed=committed)
        before = at
        if answer.error == 0:
            if pending is not None:
                pending += [
                    (first, producer) for producer, first in answer.aborted or () if (first, producer) not in pending
                ]
            for entry in scan(answer.records):
                if not isinstance(entry, Batch) or entry.last_offset >= into.log_end:  # no checksum covers an offset
                    break
                if entry.last_offset >= at:
                    at = entry.last_offset + 1
                    if pending is not None or not entry.control:
                        yield entry
            if at == before and not answer.records:
                return
        if at == before:  # damage, or an error: seek to the next record that one would look for
            place = bisect.bisect_right(offsets, at)
            if place == len(offsets):
                return
            at = offsets[place]


def end_transaction(port: int, nodes: tuple[int, ...], transaction: str, producer: int, epoch: int) -> bool:
    """Commit a transaction as its producer would; return whether its coordinator confirms the commit."""
    end = time.monotonic() + 8
    while time.monotonic() < end:
        with suppress(OSError, AssertionError), Connection(f"localhost:{port + nodes[0]}") as broker:
            error, node = broker.coordinator(transaction)
            if error == 0:
                with Connection(f"localhost:{port + node}") as coordinator:
                    error = coordinator.end_transaction(transaction, producer, epoch, is_commit=True)
                if error not in (14, 15, 16, 51):  # loading, not available, not the coordinator, concurrent
                    return error == 0
        time.sleep(0.2)
    return False
