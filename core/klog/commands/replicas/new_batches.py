"""Batches for a metadata log: created once, so that every log receives the same bytes.

Kafka: BatchAccumulator, BatchBuilder; for control records MemoryRecordsBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from klog.formats.batch import CONTROL_BIT, BatchHead, write_batch
from klog.formats.control import TYPES, kraft_control
from klog.formats.internal_topics import MetadataRecord, metadata_value
from klog.formats.record import write_record
from klog.formats.structs.schema import Data
from klog.kernel import crc32c

_MOST_RECORDS: Final = 5000
"""The number of records in a batch; Kafka accepts no batch of more than 8 MiB.  Kafka:
KafkaRaftClient.MAX_BATCH_SIZE_BYTES."""


class AppendedBatch(NamedTuple):
    """A batch of a metadata log; *records*: their names."""

    offset: int
    epoch: int
    records: tuple[str, ...]
    content: bytes


class NewBatches:
    """Batches behind offset *end*, all of one *epoch* and of one time, *now_ms*."""

    def __init__(self, end: int, epoch: int, now_ms: int) -> None:
        self.end, self._epoch, self.now_ms = end, epoch, now_ms
        self.batches: list[AppendedBatch] = []

    @property
    def content(self) -> bytes:
        """Return the bytes of all of them."""
        return b"".join(batch.content for batch in self.batches)

    def add_control(self, type_id: int, data: Data) -> None:
        """Append a control record of KRaft."""
        self._add([TYPES[type_id].removeprefix("KRAFT_")], [kraft_control(type_id, data)], CONTROL_BIT)

    def add_records(self, records: Iterable[MetadataRecord]) -> None:
        """Append metadata records, some thousands a batch."""
        left = iter(records)
        while some := list(islice(left, _MOST_RECORDS)):
            names = [record.name.removesuffix("_RECORD") for record in some]
            self._add(names, [(None, metadata_value(record)) for record in some], 0)

    def _add(self, names: Sequence[str], pairs: Sequence[tuple[bytes | None, bytes]], attributes: int) -> None:
        head = BatchHead(self.end, self._epoch, attributes, len(pairs) - 1, self.now_ms, self.now_ms, len(pairs))
        records = b"".join(write_record(0, i, key, value) for i, (key, value) in enumerate(pairs))
        self.batches.append(AppendedBatch(self.end, self._epoch, tuple(names), write_batch(head, records, crc32c)))
        self.end += len(pairs)
