"""Slices read one after the other, with the same buffers."""

from __future__ import annotations

from collections.abc import Iterator

from klog.formats.codec import Decompressor
from klog.formats.damage import Damage
from klog.jobs.slice_reader import records
from klog.jobs.slices import LogSlice
from klog.kernel import Window
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.record_filter import RecordFilter

_ROWS = 16 << 10


class SliceScan:
    """Reads data records as *wanted*, whose limit does not count.  No batch larger than *max_batch_bytes* is read."""

    def __init__(self, wanted: RecordFilter, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self._wanted, self._max_batch_bytes = wanted, max_batch_bytes
        self._window = Window(records=_ROWS)
        self._codecs = Decompressor(max_batch_bytes).functions

    @property
    def position(self) -> int:
        """Where in its log the last window began: bytes."""
        return self._window.position

    def read(self, part: LogSlice) -> Iterator[Window | Damage]:
        """Yield the record rows of a slice, each window good until the next step, and damage in its place.

        Raises nothing: what cannot be read is damage too.
        """
        return records(part, self._wanted, self._window, self._codecs, self._max_batch_bytes)
