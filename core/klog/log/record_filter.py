"""Selects records: by range, by key, by number."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.kernel import KeySet, Window

if TYPE_CHECKING:
    from klog.base.read_only import ReadOnlyFile


class RecordFilter(NamedTuple):
    """The requested records: offsets and times from … up to, not including, to; *keys* None for all; *controls*:
    include markers.

    *limit*: the largest number of records (or batches), None for all.  *tail*: only the newest batches.
    """

    from_offset: int = LONG_MIN
    to_offset: int = LONG_MAX
    from_time: int = LONG_MIN
    to_time: int = LONG_MAX
    keys: KeySet | None = None
    controls: bool = True
    limit: int | None = None
    tail: bool = False

    @property
    def in_range(self) -> bool:
        """Whether offsets or times are limited."""
        return (self.from_offset, self.to_offset, self.from_time, self.to_time) != (
            LONG_MIN,
            LONG_MAX,
            LONG_MIN,
            LONG_MAX,
        )

    @property
    def all_records(self) -> bool:
        """Whether all records are selected."""
        return not self.in_range and self.keys is None and self.controls and self.limit is None

    def skip(self, window: Window) -> bool:
        """Skip the batches that cannot have a selected record; True if no later one can either."""
        return self.in_range and window.skip_outside(self.from_offset, self.to_offset, self.from_time)

    def keep(self, window: Window) -> None:
        """Keep only the matching ones of the decoded records."""
        if self.in_range or self.keys is not None or not self.controls:
            window.keep(self.from_offset, self.to_offset, self.from_time, self.to_time, self.controls, self.keys)


class RecordLimit:
    """Counts down the number of records that may still be returned."""

    def __init__(self, limit: int | None) -> None:
        self.left = limit

    def take(self, window: Window) -> bool:
        """Cut the decoded records to that number; True when none remains."""
        if self.left is None:
            return False
        window.cut_records(self.left)
        self.left -= window.records
        return self.left == 0


def start_position(
    log: ReadOnlyFile, index: str | None, time_index: str | None, base_offset: int, wanted: RecordFilter
) -> int:
    """Return the position in the log from which reading may begin: at or before the first matching record.

    An index entry is used only if the log confirms it.
    """
    from klog.log.index import position_by_time, position_of_offset

    start = 0
    if wanted.from_offset > base_offset and index:
        start = position_of_offset(log, index, base_offset, wanted.from_offset)
    if wanted.from_time > LONG_MIN and index and time_index:
        start = max(start, position_by_time(log, index, time_index, base_offset, wanted.from_time))
    return start
