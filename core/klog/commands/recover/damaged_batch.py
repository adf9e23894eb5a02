"""A damaged batch: its header's facts, and whether a flipped bit or a wrong format version explains it."""

from __future__ import annotations

from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.commands.recover.dropped import SalvageOptions
from klog.commands.recover.header_repairs import with_magic
from klog.formats.batch import BATCH, OVERHEAD
from klog.log.bit_flips import BitRepair, repair_bit
from klog.log.windows import window_of


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
