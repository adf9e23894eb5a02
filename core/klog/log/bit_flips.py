"""One flipped bit: its position, whether the repaired batch is intact, and how likely chance explains it.

A checksum shows the position of a single flipped bit (`kernel.flipped_bit`).  After any other damage it names a bit by
chance, once in 2^32 for each bit of the batch, and records decode whatever bytes their values contain: the larger the
batch, the weaker the evidence.  The bit is therefore repaired only if chance has few bits to choose from.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.formats.batch import BATCH, CRC_START, ENTRY, MIN_SIZE, OVERHEAD, Attributes, BatchFacts, Codec
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind
from klog.formats.message_set import CRC_START as MESSAGE_CRC_START
from klog.formats.message_set import MESSAGE_V0
from klog.kernel import DONE, crc32, crc32c, flipped_bit
from klog.log.header_walk import window_of
from klog.log.records import BatchRun, decode_run, message_damages, misplaced_records

_STEP_BYTES = 1 << 20
_ROWS = 8192
_SIZE_AT = ENTRY.offsets["size"]
_TELLING = (
    DamageKind.BAD_CRC,
    DamageKind.BAD_LENGTH,
    DamageKind.BAD_MAGIC,
    DamageKind.SHORT_HEADER,
    DamageKind.TORN_TAIL,
)


_MOST_LONE_BYTES = 100 << 10
"""A bit is not repaired if a checksum covers more bytes than this and nothing else confirms them."""
_OTHER_BITS = 64
"""Bits that may be wrong beside those that a checksum covers: its own and those of the size."""


class Patch(NamedTuple):
    """A repair of bytes of a file: from *position* on, *new* replaces *old*.  *what*: the repair in words.

    *lone_bytes*: the number of bytes that only the batch's checksum covers; None if the repair is not based on a
    checksum.
    """

    position: int
    old: bytes
    new: bytes
    what: str
    lone_bytes: int | None = None

    @property
    def odds(self) -> int | None:
        """Other damage looks like this once in so many times; None if the repair does not depend on a checksum."""
        return None if self.lone_bytes is None else _odds(self.lone_bytes)

    @property
    def is_sure(self) -> bool:
        """Whether the repair is made: chance would hardly produce the same result."""
        return self.lone_bytes is None or self.lone_bytes <= _MOST_LONE_BYTES

    @property
    def description(self) -> str:
        """Return the repair in words, with its odds, and with the bound that it exceeds, if any."""
        if self.odds is None:
            return self.what
        chance = f"chance of misdiagnosis: 1 in {_rounded(self.odds)}"
        if self.is_sure:
            return f"{self.what} ({chance})"
        bound = f"at the bound, {_MOST_LONE_BYTES >> 10} KiB: 1 in {_rounded(_odds(_MOST_LONE_BYTES))}"
        return f"not repaired, because its batch is too large: {self.what} ({chance}; {bound})"


def _odds(lone_bytes: int) -> int:
    return (1 << 32) // (8 * lone_bytes + _OTHER_BITS)


def _rounded(count: int) -> str:
    """Return the first two digits of a number and zeros, in groups of three."""
    unit = 10 ** max(len(str(count)) - 2, 0)
    return f"{count // unit * unit:,}".replace(",", " ")


class BitRepair(NamedTuple):
    """A batch that is whole once *patch* is made; *facts* are those of the batch then."""

    facts: BatchFacts
    patch: Patch


def whole(data: bytes | bytearray, position: int, max_bytes: int, needs_checksum: bool = True) -> BatchFacts | None:
    """Return the facts of the one batch that *data*, from byte *position* of a file on, is; None if it is not whole.

    It is whole if its checksum matches, all its records decode and fill it exactly, and their offsets ascend in it.
    *max_bytes*: its records may take so many when decompressed.  Without *needs_checksum* all but the checksum counts.
    """
    window = window_of(data, position, _ROWS)
    if window.scan(0) != DONE or window.count != 1 or (window.check(0, 1) and needs_checksum):
        return None
    facts = window.batch(0)
    if facts.last_offset < facts.base_offset or facts.records_count > facts.last_offset_delta + 1:
        return None
    for damage in decode_run(BatchRun(window, 0, 1), Decompressor(max_bytes).functions, ""):
        if damage or message_damages(window, "") or misplaced_records(window, ""):
            return None
    return facts


def repair_bit(source: ReadableLog, start: int, end: int, max_batch_bytes: int) -> BitRepair | None:
    """Return the batch at byte *start* with its one flipped bit repaired; None if there is no such bit.

    The search covers all bytes of the checksum, the checksum itself, and the size.  The batch may not extend beyond
    *end*, nor be larger than *max_batch_bytes*.  Takes time in proportion to the bytes from *start* to *end*.  The
    patch is a guess, and not to be made, unless it `is_sure`.
    """
    try:
        for at, bit in _suspects(source, start, min(end, start + max_batch_bytes)):
            repaired = _with_bit(source, start, end, at, bit, max_batch_bytes)
            if repaired is not None:
                return repaired
    except UnreadableError:
        pass  # an unreadable byte cannot be repaired
    return None


def _suspects(source: ReadableLog, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield bits that, flipped, make the checksum match: the byte, from the start of the batch, and the bit in it."""
    head = source.read(start, min(BATCH.size, end - start))
    if len(head) <= ENTRY.size + 4:
        return
    _, claimed, _, magic = ENTRY.read(head)
    is_batch = magic == 2
    crc, covered = (crc32c, CRC_START) if is_batch else (crc32, MESSAGE_CRC_START)
    stored = BATCH.read(head)[4] if is_batch and len(head) == BATCH.size else MESSAGE_V0.read(head)[2]
    sizes = {(claimed & 0xFFFFFFFF ^ 1 << bit) + OVERHEAD: bit for bit in range(32)} | {claimed + OVERHEAD: -1}
    computed, at = 0, start + covered
    for size in sorted(sizes):  # the checksum of a longer one continues that of a shorter one
        if size < max(covered + 1, MIN_SIZE + OVERHEAD) or size > end - start:
            continue
        while at < start + size:
            step = source.read(at, min(_STEP_BYTES, start + size - at))
            if not step:
                return  # the file has shrunk
            computed = crc(step, computed)
            at += len(step)
        bit = sizes[size]
        if bit >= 0 and computed == stored:
            yield _SIZE_AT + 3 - bit // 8, bit % 8
        elif bit < 0 and (found := flipped_bit(stored ^ computed, size - covered, not is_batch)) is not None:
            yield covered + (found >> 3), found & 7


def _with_bit(source: ReadableLog, start: int, end: int, at: int, bit: int, max_bytes: int) -> BitRepair | None:
    head = bytearray(source.read(start, min(BATCH.size, end - start)))
    old = head[at] if at < len(head) else source.read(start + at, 1)[0]
    if at < len(head):
        head[at] ^= 1 << bit
    size = ENTRY.read(head)[1] + OVERHEAD
    data = bytearray(source.read(start, size))
    if len(data) < size:
        return None
    data[at] ^= 1 << bit
    facts = whole(data, start, max_bytes)
    if facts is None:
        return None
    what = f"one flipped bit: bit {bit} of byte {start + at} ({_field(at, facts.magic)})"
    return BitRepair(facts, Patch(start + at, bytes((old,)), bytes((old ^ 1 << bit,)), what, _lone_bytes(facts, at)))


def _lone_bytes(facts: BatchFacts, at: int) -> int:
    """Return how many bytes only the batch's checksum covers if byte *at* is repaired.

    With another size the checksum matches without a repair. gzip has a checksum of its own, of another polynomial; a
    false repair would have to satisfy both.  The old formats use one polynomial for both, and for the messages inside:
    a repair that satisfies one satisfies all.  Kafka's writers of the other codecs omit theirs.
    """
    if _SIZE_AT <= at < _SIZE_AT + 4:
        return 0
    if facts.magic < 2:
        return facts.size - MESSAGE_CRC_START
    is_gzip = int(facts.attributes & Attributes.CODEC) == Codec.GZIP
    return (BATCH.size if is_gzip else facts.size) - CRC_START


def _field(at: int, magic: int) -> str:
    """Return the name of the field at byte *at* of a batch, for people."""
    if magic < 2:
        return "the size" if at < MESSAGE_V0.offsets["crc"] else "the message"
    name = [name for name, start in BATCH.offsets.items() if start <= at][-1]
    return "the records" if at >= BATCH.size else f"the {name.replace('_', ' ')}"


def offer(damage: Damage, max_batch_bytes: int) -> str | None:
    """Return, in words, the single bit that explains the damage; None if that is not sure.

    Opens the file that *damage* names.  Takes time in proportion to the damage's size.
    """
    position, size = damage.place.position, damage.size
    if damage.kind not in _TELLING or position is None or not size:
        return None
    try:
        with ReadOnlyFile(damage.place.file) as source:
            found = repair_bit(source, position, position + size, max_batch_bytes)
    except (UnreadableError, struct.error):
        return None
    return found.patch.description if found and found.patch.is_sure else None
