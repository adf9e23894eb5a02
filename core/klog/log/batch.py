"""A batch that was read: its facts, and its records on request."""

from __future__ import annotations

from collections.abc import Iterator

from klog.formats.batch import BatchFacts
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.record import Record
from klog.kernel import BAD_COUNT, MORE, Window
from klog.log.windows import window_of


class Batch(BatchFacts):
    """An entry of a log: a record batch (magic 2), a message or a wrapper of messages (magic 0, 1).

    It is row *row* of *window*, read from *file*.  The base offset of a wrapper is known only once its records have
    been read; until then it is its last offset.
    """

    file: str
    window: Window
    row: int

    @classmethod
    def of_row(cls, window: Window, row: int, file: str) -> Batch:
        """Return batch *row* of *window*, which was read from *file*."""
        batch = tuple.__new__(cls, window.batch(row))
        batch.file, batch.window, batch.row = file, window, row
        return batch

    def records(self, decompressor: Decompressor | None = None) -> Iterator[Record | Damage]:
        """Yield the records; a Damage comes last if their structure is broken.

        Check `crc_holds`: the records of a batch whose checksum does not match are unreliable.
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
                offset, timestamp, key, value, headers, sequence, _ = own.record(i)
                if headers is None:
                    yield self._damage(DamageKind.BAD_RECORD, f"record {offset} has more headers than klog takes")
                    return
                yield Record(offset, timestamp, key, value, headers, sequence)
        if status:
            reason = "more or fewer bytes than the records take" if status == BAD_COUNT else "its structure is broken"
            yield self._damage(DamageKind.BAD_RECORD, f"record {own.decoding_record} of the batch: {reason}")

    def content(self) -> bytes:
        """Return the bytes of the batch in the file, with its header."""
        start = self.window.at(self.row)
        return self.window.copy(start, start + self.size)

    def _damage(self, kind: DamageKind, detail: str) -> Damage:
        return Damage(kind, Location(self.file, self.position, self.base_offset), detail, self.size)
