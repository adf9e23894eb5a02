"""The log that batches are read from, and the facts that their fields are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.commands.bytes.byte_field import ByteSource, WrongBit
from klog.formats.batch import BatchFacts
from klog.kernel import crc32, crc32c

if TYPE_CHECKING:
    from klog.commands.bytes.framing_fields import FramedContents
    from klog.formats.codec import Decompressor

MOST_FIELDS: Final = 1 << 16
"""Fields that are shown of one batch: a kilobyte may unpack to a hundred million of them."""
_MOST_BIT_SEARCHES = 100
_STEP_BYTES: Final = 1 << 20


class LogContext:
    """An open log.  *topic*: its topic, None if unknown.  *base_offset*: of the segment, None if it has none.

    *is_full*: all fields are wanted, however many.  *problems*: faults by the position of the batch that has them,
    from a pass over the whole log.  *harmless*: positions of damage that an operator need not repair.  *schemas*: keys
    and values are decoded by these.
    """

    def __init__(
        self, source: ReadOnlyFile, topic: str | None = None, base_offset: int | None = None, is_full: bool = False
    ) -> None:
        self.source, self.topic, self.base_offset, self.is_full = source, topic, base_offset, is_full
        self.problems: dict[int, str] = {}
        self.harmless: set[int] = set()
        self.previous: BatchFacts | None = None
        self.schemas: FramedContents | None = None
        self._decompressor: Decompressor | None = None
        self._wrong_bits: dict[int, WrongBit | None] = {}

    @property
    def most_fields(self) -> int:
        """The largest number of fields to show of one batch."""
        return 1 << 62 if self.is_full else MOST_FIELDS

    def decompress(self, codec: int, content: bytes, magic: int) -> bytes | bytearray:
        """Return the decompressed *content*.  Raises CodecError if it is broken, or larger than MAX_OUTPUT."""
        from klog.formats.codec import Decompressor

        if self._decompressor is None:
            self._decompressor = Decompressor()
            self._decompressor.advice = "klog decompresses no more of a batch"
        return self._decompressor.functions[codec](content, magic)

    def wrong_bit(self, start: int, end: int) -> WrongBit | None:
        """Return the one bit that explains the wrong checksum of a batch; None if there is none."""
        if start in self._wrong_bits or len(self._wrong_bits) == _MOST_BIT_SEARCHES:
            return self._wrong_bits.get(start)
        found = self._wrong_bits[start] = self._search_bit(start, end)
        return found

    def _search_bit(self, start: int, end: int) -> WrongBit | None:
        from klog.formats.codec import MAX_OUTPUT
        from klog.log.bit_flips import repair_bit

        found = repair_bit(self.source, start, end, MAX_OUTPUT)
        if found is None:
            return None
        patch = found.patch
        repair = " (klog recover --repair-bits)" if patch.is_sure else ", but the batch is too large to be sure"
        return WrongBit(patch.position, bit_text(patch.old[0], patch.new[0]) + repair)


def bit_text(old: int, new: int) -> str:
    """Return the repair of one bit of a byte in words."""
    char = f" {chr(new)!r}" if 0x20 < new < 0x7F else ""
    return f"bit {(old ^ new).bit_length() - 1} differs: 0x{new:02x}{char} would make the checksum match"


def checksum(source: ByteSource, start: int, end: int, is_castagnoli: bool) -> int | None:
    """Return the CRC-32C or CRC-32 of bytes *start* to *end*; None if they cannot be read."""
    crc, value = crc32c if is_castagnoli else crc32, 0
    try:
        while start < end:
            step = source.read(start, min(_STEP_BYTES, end - start))
            if not step:
                return None
            value = crc(step, value)
            start += len(step)
    except UnreadableError:
        return None
    return value


class Unpacked(NamedTuple):
    """Decompressed bytes, or the reason why there are none."""

    content: bytes | bytearray | None
    problem: str | None = None


def unpack(log: LogContext, source: ByteSource, start: int, end: int, codec: int, magic: int) -> Unpacked:
    """Decompress bytes *start* to *end* of *source*."""
    from klog.formats.codec import MAX_OUTPUT, CodecError

    if end - start > MAX_OUTPUT:
        return Unpacked(None, f"cannot be decompressed: more than {MAX_OUTPUT} bytes")
    try:
        return Unpacked(log.decompress(codec, source.read(start, end - start), magic))
    except CodecError as error:
        return Unpacked(None, f"cannot be decompressed: {error}")
