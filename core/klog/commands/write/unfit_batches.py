"""Batches of another log that their new topic does not take: too large ones, and in a compacted topic records without
a key, which its cleaner would remove.

They are refused, or left out and counted.  A batch without some of its records is as a cleaner leaves it: offsets,
sequence numbers and timestamps stay.  Kafka: LogValidator, MemoryRecords.buildRetainedRecordsInto.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from klog.base.errors import counted
from klog.change.partition_plan.null_keys import null_keys
from klog.commands.write.write_destination import TopicPlace
from klog.commands.write.write_options import BadRecordError
from klog.formats.batch import BATCH, CODEC_BITS, BatchHead, write_batch
from klog.formats.codec import Compressor, Decompressor
from klog.kernel import DONE, Window, crc32c, stamp
from klog.log.windows import window_of

Run = tuple[Window, int, int]
"""Batches of a window: the first, and the one behind the last."""
_ADVICE: Final = "nothing was written (--skip-bad leaves such records out)"
_MAGIC: Final = 2


class UnfitBatches:
    """Passes on the batches that fit *place*, the new topic.

    *skips*: leave other batches out; otherwise they are refused.  *left_out*: counts the records; *reasons*: why.
    """

    def __init__(self, place: TopicPlace, skips: bool) -> None:
        self._topic, self._most, self._is_compacted = place.name, place.most_bytes, place.is_compacted
        self._skips = skips
        self._read, self._write = Decompressor().functions, Compressor().functions
        self.left_out = 0
        self.reasons: dict[str, int] = {}

    def fitting(self, window: Window, first: int, end: int, file: str) -> Iterator[Run]:
        """Yield the fitting ones of intact batches *first* to *end* of *window*; *file* has them.

        Raises BadRecordError for a refused batch, DamagedError for records that cannot be decoded.
        """
        for start, stop in self._small_enough(window, first, end, file):
            keyless = null_keys(window, start, stop, file, self._read) if self._is_compacted else {}
            if keyless:
                yield from self._with_keys(window, start, stop, keyless, file)
            else:
                yield window, start, stop

    def _small_enough(self, window: Window, first: int, end: int, file: str) -> Iterator[tuple[int, int]]:
        _, largest = stamp(window, first, end, -1, -1, 0)  # changes nothing
        for i in range(first, end) if largest > self._most else ():
            facts = window.batch(i)
            if facts.size > self._most:
                why = f"{self._topic} takes at most {self._most}"
                self._leave_out(f"batches of more than {self._most} bytes", facts.records_count, (
                    f"{file}: a batch of {facts.size} bytes (offset {facts.base_offset}), and {why}"
                ))  # fmt: skip
                if first < i:
                    yield first, i
                first = i + 1
        if first < end:
            yield first, end

    def _with_keys(
        self, window: Window, first: int, end: int, keyless: dict[int, set[int]], file: str
    ) -> Iterator[Run]:
        content = b""
        for i in range(first, end):
            facts, at = window.batch(i), window.at(i)
            batch = window.copy(at, at + facts.size)
            if i in keyless:
                offset = min(keyless[i])
                why = f"{file}: the record at offset {offset} has a null key, but {self._topic} is compacted"
                self._leave_out("null keys", len(keyless[i]), why)
                batch = self._without(batch, {one - facts.base_offset for one in keyless[i]})
            content += batch
        if content:
            rest = window_of(content, window.position)
            assert rest.scan(0) == DONE, "as many batches as before, or fewer"
            rest.check(0, rest.count)
            yield rest, 0, rest.count

    def _leave_out(self, reason: str, records: int, why: str) -> None:
        if not self._skips:
            raise BadRecordError(f"{why}; {_ADVICE}")
        self.left_out += records
        self.reasons[reason] = self.reasons.get(reason, 0) + records

    def _without(self, batch: bytes, deltas: Collection[int]) -> bytes:
        """Return *batch* without the records of these offset deltas; nothing if none is left."""
        fields = dict(zip(BATCH.names, BATCH.read(batch), strict=True))
        codec = fields["attributes"] & CODEC_BITS
        plain = bytes(self._read[codec](memoryview(batch)[BATCH.size :], _MAGIC))
        kept = [record for record, delta in _records(plain) if delta not in deltas]
        if not kept:
            return b""
        fields["records_count"] = len(kept)
        head = BatchHead(**{name: fields[name] for name in BatchHead._fields})
        return write_batch(head, self._write[codec](b"".join(kept), _MAGIC), crc32c)

    @property
    def summary(self) -> str:
        """The batches and records that were left out, in words."""
        return ", ".join(f"{counted(count, 'record')} ({why})" for why, count in self.reasons.items())


def _records(plain: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the bytes of each record of a batch that was decoded before, and its offset delta."""
    at = 0
    while at < len(plain):
        length, body = _varint(plain, at)
        _, behind_time = _varint(plain, body + 1)
        delta, _ = _varint(plain, behind_time)
        yield plain[at : body + length], delta
        at = body + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the zig-zag number at *at*, and the position of the next field."""
    found = shift = 0
    while True:
        byte = data[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return found >> 1 ^ -(found & 1), at
