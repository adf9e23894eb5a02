"""Finds the next batch after damage, and classifies the damage.

A log continues at the next position where an entry's header makes sense *and* its checksum matches.  `next_entry`

1. jumps over holes, in which no entry begins;
2. reads a step: 8 KiB at first, twice as much each time, 1 MiB at most, and only up to a block that the system refuses;
3. lets the kernel find the first position in the step whose header makes sense; if the entry is whole in the step, the
   kernel has verified its checksum, and it is the result;
4. verifies an entry that exceeds the step with `_Checksums`; if it does not match, step 3 continues one byte later;
5. continues without a result at the first byte that was not searched, or at the block behind the refused one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadableLog
from klog.formats.batch import BATCH, CRC_START, ENTRY, OVERHEAD
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.message_set import CRC_START as MESSAGE_CRC_START
from klog.formats.message_set import MESSAGE_V0
from klog.kernel import (
    BAD_LENGTH,
    BAD_MAGIC,
    MORE,
    SHORT_HEADER,
    Window,
    crc32,
    crc32_shift,
    crc32c,
    crc32c_shift,
)
from klog.log.header_walk import read_window

Checksum = Callable[[bytes, int], int]

STEP_BYTES = 1 << 20
FIRST_STEP_BYTES = 1 << 13
BLOCK_BYTES = 4096
"""The smallest number of bytes that a disk fails to read."""


def next_entry(
    source: ReadableLog, start: int, end: int, min_offset: int, max_offset: int, max_batch_bytes: int
) -> int:
    """Return the position of the first intact entry from byte *start* to byte *end*, else *end*.

    Only entries with an offset from *min_offset* to *max_offset* count, and none larger than *max_batch_bytes*.
    Unreadable blocks are skipped.  The time is proportional to the number of bytes searched, whatever they contain.
    """
    window = Window(FIRST_STEP_BYTES, 1, 1)
    checksums = _Checksums(source, start)
    position, step = start, FIRST_STEP_BYTES
    while position < end:
        # an entry that begins inside a hole has a size of zero, unless it begins at its very end
        position = max(position, min(source.next_data(position), end) - ENTRY.size)
        size = min(step, end - position)
        step = min(2 * step, STEP_BYTES)  # most damage is small: the next intact entry is near
        try:
            read, is_bad = read_window(source, window, position, size), False
        except OSError:
            size = readable(source, position, size)
            read, is_bad = read_window(source, window, position, size), True
        status, at = window.find(0, end - position, min_offset, max_offset)
        while status == MORE and not checksums.hold(position + at, max_batch_bytes):
            status, at = window.find(at + 1, end - position, min_offset, max_offset)
        if status != BAD_LENGTH:
            return position + at
        if is_bad:
            position = ((position + size) // BLOCK_BYTES + 1) * BLOCK_BYTES
            checksums = _Checksums(source, position)
        elif read < size or position + read >= end:
            return end  # of the original size, or of the size to which the file has shrunk
        else:
            position += at
    return end


class _Checksums:
    """Checksums of any entry of a log, in a time that hardly depends on its length.

    It keeps the checksum of everything from *base* on for every 4 KiB, and computes a range's from those at its ends:
    in a hostile file every byte may begin an entry that claims 100 MiB.
    """

    def __init__(self, source: ReadableLog, base: int) -> None:
        self._source = source
        self._base = base
        self._running: dict[Checksum, list[int]] = {crc32: [0], crc32c: [0]}

    def hold(self, position: int, max_batch_bytes: int) -> bool:
        """Whether the entry at *position* is intact; not if it is larger than *max_batch_bytes* or unreadable."""
        try:
            head = self._source.read(position, BATCH.size)
            size, magic = ENTRY.read(head)[1] + OVERHEAD, ENTRY.read(head)[3]
            if size > max_batch_bytes or position < self._base:
                return False
            crc, shift, start = (
                (crc32c, crc32c_shift, CRC_START) if magic >= 2 else (crc32, crc32_shift, MESSAGE_CRC_START)
            )
            stored = BATCH.read(head)[4] if magic >= 2 else MESSAGE_V0.read(head)[2]
            start, end = position + start, position + size
            return stored == self._up_to(end, crc) ^ shift(self._up_to(start, crc), end - start)
        except (OSError, UnreadableError, struct.error):
            return False

    def _up_to(self, position: int, crc: Checksum) -> int:
        """Return the checksum of the log from the base up to *position*."""
        running = self._running[crc]
        block = (position - self._base) // BLOCK_BYTES
        while len(running) <= block:
            wanted = min((block + 1 - len(running)) * BLOCK_BYTES, STEP_BYTES)
            step = self._source.read(self._base + (len(running) - 1) * BLOCK_BYTES, wanted)
            for at in range(0, len(step) - BLOCK_BYTES + 1, BLOCK_BYTES):
                running.append(crc(step[at : at + BLOCK_BYTES], running[-1]))
            if len(step) < BLOCK_BYTES:
                raise UnreadableError(f"{self._source.path}: the file has shrunk")
        start = self._base + block * BLOCK_BYTES
        return crc(self._source.read(start, position - start), running[block])


def readable(source: ReadableLog, position: int, size: int) -> int:
    """Return how many of the *size* bytes from *position* on can be read before one that cannot."""
    block = memoryview(bytearray(BLOCK_BYTES))
    at = position
    while at < position + size:
        step = min(BLOCK_BYTES - at % BLOCK_BYTES, position + size - at)
        try:
            at += (read := source.read_into(at, block[:step]))
        except OSError:
            break
        if read < step:
            break
    return at - position


def is_zero(source: ReadableLog, start: int, end: int) -> bool:
    """Whether all bytes from *start* to *end* are zero; False for unreadable bytes."""
    window = Window(STEP_BYTES, 1, 1)
    position = start
    while (position := source.next_data(position)) < end:
        size = min(STEP_BYTES, end - position)
        try:
            read_window(source, window, position, size)
        except OSError:
            return False
        if not window.zeros(0):
            return False
        position += size
    return True


def describe_damage(source: ReadableLog, start: int, found: int, end: int, status: int, max_batch_bytes: int) -> Damage:
    """Return the damage of the log's bytes from *start* to *found*, the position of the next entry (or its *end*).

    *status*: the kernel's reason for the stop at *start*; DONE if only the checksum of the entry there does not match.
    """
    size = found - start
    head = source.read(start, min(size, BATCH.size))
    offset = int.from_bytes(head[:8], "big", signed=True) if len(head) >= 8 and any(head[:8]) else None
    place = Location(source.path, start, offset)
    if found >= end and not any(head) and is_zero(source, start, end):
        return Damage(
            DamageKind.ZEROED_TAIL, Location(source.path, start), f"{size} bytes of zeros to the end of the file", size
        )
    kind, detail = _kind(head, status, found >= end, size, max_batch_bytes)
    if kind is DamageKind.BAD_CRC:
        stored, computed, name = _checksum(source, start)
        if stored != computed:
            detail = f"{name} 0x{stored:08x}, computed 0x{computed:08x}"
            return Damage(kind, place, detail, size, stored, computed)
        kind = DamageKind.BAD_LENGTH
    where = "to the end of the file" if found >= end else f"up to the next intact batch at {found}"
    return Damage(kind, place, f"{detail}; {size} bytes {where}", size)


def _checksum(source: ReadableLog, position: int) -> tuple[int, int, str]:
    """Return the stored and the computed checksum of the entry at *position*, and the name of such an entry."""
    head = source.read(position, BATCH.size)
    _, size, _, magic = ENTRY.read(head)
    end = position + size + OVERHEAD
    crc, start = (crc32c, CRC_START) if magic >= 2 else (crc32, MESSAGE_CRC_START)
    computed = 0
    for at in range(position + start, end, STEP_BYTES):
        computed = crc(source.read(at, min(STEP_BYTES, end - at)), computed)
    if magic >= 2:
        return BATCH.read(head)[4], computed, "CRC-32C"
    return MESSAGE_V0.read(head)[2], computed, "CRC-32"


def _kind(head: bytes, status: int, at_end: bool, size: int, max_batch_bytes: int) -> tuple[DamageKind, str]:
    if len(head) <= ENTRY.size:
        return DamageKind.TORN_TAIL if at_end else DamageKind.BAD_LENGTH, "too few bytes for a batch"
    _, claimed, _, magic = ENTRY.read(head)
    total = claimed + OVERHEAD
    if status == BAD_MAGIC:
        return DamageKind.BAD_MAGIC, f"format version {magic}, where 0, 1 or 2 was expected"
    if status == SHORT_HEADER:
        return DamageKind.SHORT_HEADER, f"a size of {claimed} bytes, too small for a header of version {magic}"
    if status == BAD_LENGTH:
        return DamageKind.BAD_LENGTH, f"a size of {claimed} bytes, where at least 14 was expected"
    if status == MORE and at_end and total > size:
        return DamageKind.TORN_TAIL, f"a batch of {total} bytes, cut short"
    if status == MORE and total > max_batch_bytes:
        return (
            DamageKind.BAD_LENGTH,
            f"a batch of {total} bytes (--max-batch-bytes {max_batch_bytes}; raise it if the batch is real)",
        )
    if status == MORE:
        return DamageKind.BAD_LENGTH, f"a size of {claimed} bytes, which cannot be"
    return DamageKind.BAD_CRC, "bad CRC"


def bad_crc(window: Window, i: int, file: str, size: int | None = None) -> Damage:
    """Return the damage of batch *i* of the window, whose checksum does not match."""
    facts = window.batch(i)
    name = "CRC-32C" if facts.magic >= 2 else "CRC-32"
    detail = f"{name} 0x{facts.crc:08x}, computed 0x{facts.computed_crc:08x}"
    place = Location(file, facts.position, facts.base_offset)
    return Damage(DamageKind.BAD_CRC, place, detail, size or facts.size, facts.crc, facts.computed_crc)
