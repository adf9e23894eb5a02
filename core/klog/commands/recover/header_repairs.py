"""Repairs the header fields that no checksum covers: base offset, leader epoch, format version.

A value is proven, never guessed: by the neighbours, which allow only one value, or by the batch itself.
"""

from __future__ import annotations

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.formats.batch import BATCH, ENTRY, OVERHEAD, Attributes, BatchFacts
from klog.log.bit_flips import BitRepair, Patch, whole

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
