"""A batch that was read: its facts, and its records on request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from klog.formats.batch import CODEC_NAMES, Attributes, increment_sequence
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind
from klog.formats.record import Record
from klog.kernel import BAD_COUNT, MORE, Window
from klog.location import Location
from klog.log.windows import window_of


class Batch(NamedTuple):
    """An entry of a log: a record batch (magic 2), a message or a wrapper of messages (magic 0, 1).

    Positions and sizes are bytes, timestamps ms since the epoch.  What a format does not have is -1.  The base offset
    of a wrapper is known only once its records have been read; until then it is its last offset.
    """

    position: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    size: int
    leader_epoch: int
    crc: int
    computed_crc: int
    base_sequence: int
    last_offset_delta: int
    records_count: int
    attributes: int
    producer_epoch: int
    magic: int
    crc_checked: bool
    crc_holds: bool
    file: str
    window: Window
    row: int

    @property
    def codec(self) -> str:
        """How the records are compressed: none, gzip, snappy, lz4 or zstd."""
        number = self.attributes & Attributes.CODEC
        return CODEC_NAMES[number] if number < len(CODEC_NAMES) else f"unknown ({number})"

    @property
    def is_control(self) -> bool:
        """Whether the records are markers (COMMIT, ABORT, …), which no consumer sees."""
        return self.magic >= 2 and bool(self.attributes & Attributes.CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction; its marker does too."""
        return self.magic >= 2 and bool(self.attributes & Attributes.TRANSACTIONAL)

    @property
    def timestamp_type(self) -> str | None:
        """CreateTime or LogAppendTime; None for magic 0."""
        if self.magic == 0:
            return None
        return "LogAppendTime" if self.attributes & Attributes.LOG_APPEND_TIME else "CreateTime"

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the tombstones of this batch (ms since the epoch), None if that is not set."""
        return self.base_timestamp if self.magic >= 2 and self.attributes & Attributes.DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 when there is no producer."""
        return -1 if self.base_sequence == -1 else increment_sequence(self.base_sequence, self.last_offset_delta)

    def records(self, decompressor: Decompressor | None = None) -> Iterator[Record | Damage]:
        """Yield the records; where their structure is broken, a Damage comes last.

        Records of a batch whose checksum does not hold may be anything: `crc_holds` tells.
        """
        codecs = (decompressor or Decompressor()).functions
        own = window_of(self.content(), self.position)  # of its own, so that several batches can be read in turns
        own.scan(0)
        if own.decompress(0, 1, codecs) == 0:
            yield self._damage(DamageKind.BAD_COMPRESSION, str(own.error))
            return
        own.begin(0, 1)
        status = MORE
        while status == MORE:
            status = own.decode()
            for i in range(own.records):
                yield Record(*own.record(i)[:6])
        if status:
            reason = "more or fewer bytes than the records take" if status == BAD_COUNT else "its structure is broken"
            yield self._damage(DamageKind.BAD_RECORD, f"record {own.decoding_record} of the batch: {reason}")

    def content(self) -> bytes:
        """Return the batch as it stands in the file, header included."""
        start = self.window.at(self.row)
        return self.window.copy(start, start + self.size)

    def _damage(self, kind: DamageKind, detail: str) -> Damage:
        return Damage(kind, Location(self.file, self.position, self.base_offset), detail, self.size)
