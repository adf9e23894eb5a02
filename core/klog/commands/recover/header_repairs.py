"""Repairs the header fields that no checksum covers: base offset, leader epoch, format version.

`DamagedBatches` has the facts of a damaged batch, and whether a flipped bit or a wrong format version explains it.

A value is proven, never guessed: by the neighbours, which allow only one value, or by the batch itself.
"""

from __future__ import annotations

from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.formats.batch import BATCH, ENTRY, OVERHEAD, Attributes, BatchFacts
from klog.log.bit_flips import BitRepair, Patch, repair_bit, whole
from klog.log.header_walk import window_of
from klog.partition.repair.recover_outcome import SalvageOptions


class ClaimedExtent(NamedTuple):
    """The extent that a damaged batch claims: its end, in bytes, and its last offset."""

    end: int
    last_offset: int


class DamagedBatches:
    """Looks at damaged batches of a log, at its bytes a few times over and no more: a hostile log is full of claims."""

    def __init__(self, source: ReadOnlyFile, request: SalvageOptions) -> None:
        self._source, self._request = source, request
        self._bytes_left = 4 * source.size + (1 << 20)

    def repair(self, start: int, end: int) -> BitRepair | None:
        """Return the repaired batch at byte *start*, None if it cannot be repaired; it ends at *end* or before."""
        if self._bytes_left <= 0:
            return None
        most = self._request.max_batch_bytes
        found = with_magic(self._source, start, end, most)
        if found is None and self._request.repair_bits:
            found = repair_bit(self._source, start, end, most)
        self._bytes_left -= found.facts.size if found is not None else min(end - start, most)
        return found

    def claim(self, start: int) -> ClaimedExtent | None:
        """Return the claim in the header of the damaged batch at byte *start*; None if it is impossible."""
        try:
            head = self._source.read(start, BATCH.size)
        except UnreadableError:
            return None
        if len(head) < BATCH.size:
            return None
        base, size, _, magic, _, _, delta, *_ = BATCH.read(head)
        if magic != 2 or size < BATCH.size - OVERHEAD:
            return None
        return ClaimedExtent(start + size + OVERHEAD, base + delta)

    def intact_offset(self, position: int) -> int | None:
        """Return the base offset of the intact batch that begins at byte *position*, None if none does."""
        try:
            head = self._source.read(position, BATCH.size)
            if len(head) < BATCH.size:
                return None
            base, size, *_ = BATCH.read(head)
            most = min(self._request.max_batch_bytes, self._source.size - position)
            if not BATCH.size <= size + OVERHEAD <= most:
                return None
            self._bytes_left -= size
            if self._bytes_left <= 0:
                return None
            return base if window_of(self._source.read(position, size + OVERHEAD), position).entry_holds(0) else None
        except UnreadableError:
            return None


_OFFSET_AT, _OFFSET_BYTES = BATCH.offsets["base_offset"], 8
_EPOCH_AT, _EPOCH_BYTES = BATCH.offsets["leader_epoch"], 4
_MAGIC_AT = BATCH.offsets["magic"]


def proven_offset(stored: int, delta: int, before: int, after: int) -> int | None:
    """Return the base offset of a batch between offsets *before* and *after*, which other batches have; None if
    unproven.

    *delta*: the difference between its last offset and its base.  An offset is proven if the batch fills the gap
    exactly, or if it is the only one of the values one flipped bit away from *stored* that fits.
    """
    room = after - before - 1
    if room <= delta + 1:
        return before + 1 if room == delta + 1 else None
    found = [value for value in _one_bit_off(stored, _OFFSET_BYTES) if before < value and value + delta < after]
    return found[0] if len(found) == 1 else None


def proven_epoch(stored: int, before: int, after: int) -> int | None:
    """Return the leader epoch of a batch between those of its neighbours; None if unproven.

    An epoch is proven if both of them have it, or if it is the only one of the values one flipped bit away from
    *stored* between them.
    """
    if before == after:
        return before
    found = [value for value in _one_bit_off(stored, _EPOCH_BYTES) if before <= value <= after]
    return found[0] if len(found) == 1 else None


def _one_bit_off(stored: int, width: int) -> list[int]:
    bits = 8 * width
    changed = [(stored ^ 1 << bit) & (1 << bits) - 1 for bit in range(bits)]
    return [value - (1 << bits) if value >> bits - 1 else value for value in changed]


def is_one_bit_off(stored: int, value: int) -> bool:
    """Whether one flipped bit turns the one into the other."""
    return (stored ^ value).bit_count() == 1 if (stored < 0) == (value < 0) else value in _one_bit_off(stored, 8)


def has_own_offset(facts: BatchFacts) -> bool:
    """Whether the batch's offset field is its first offset: not so in old wrappers, where it is the last one."""
    return facts.magic >= 2 or not facts.attributes & Attributes.CODEC


def with_offset(source: ReadOnlyFile, facts: BatchFacts, offset: int, max_bytes: int) -> BitRepair | None:
    """Return an intact batch with another base offset; None if it is not whole."""
    new = offset.to_bytes(_OFFSET_BYTES, "big", signed=True)
    what = f"base offset {facts.base_offset}, but its neighbours allow only {offset}"
    return _changed(source, facts.position, facts.size, _OFFSET_AT, new, what, max_bytes)


def with_epoch(source: ReadOnlyFile, facts: BatchFacts, epoch: int, max_bytes: int) -> BitRepair | None:
    """Return an intact batch with another leader epoch; None if it is not whole."""
    new = epoch.to_bytes(_EPOCH_BYTES, "big", signed=True)
    what = f"leader epoch {facts.leader_epoch}, but its neighbours allow only {epoch}"
    return _changed(source, facts.position, facts.size, _EPOCH_AT, new, what, max_bytes)


def with_magic(source: ReadOnlyFile, start: int, end: int, max_batch_bytes: int) -> BitRepair | None:
    """Return the batch at byte *start* as of format 2, if it is whole then and only then, and ends at *end* or before.

    Its own checksum, which does not cover the format version, is the proof.
    """
    try:
        head = source.read(start, min(BATCH.size, end - start))
        if len(head) < BATCH.size:
            return None
        _, size, _, magic = ENTRY.read(head)
        if magic == 2 or not BATCH.size - OVERHEAD <= size <= min(end - start, max_batch_bytes) - OVERHEAD:
            return None
    except UnreadableError:
        return None
    what = f"format version {magic}, but the checksum matches version 2"
    return _changed(source, start, size + OVERHEAD, _MAGIC_AT, b"\2", what, max_batch_bytes)


def _changed(
    source: ReadOnlyFile, position: int, size: int, at: int, new: bytes, what: str, max_bytes: int
) -> BitRepair | None:
    """Return the batch with *new* at its byte *at*; None if it is not whole then, or cannot be read."""
    try:
        data = bytearray(source.read(position, size))
    except UnreadableError:
        return None
    old = bytes(data[at : at + len(new)])
    data[at : at + len(new)] = new
    facts = whole(data, position, max_bytes) if len(data) == size else None
    return BitRepair(facts, Patch(position + at, old, new, what)) if facts else None
