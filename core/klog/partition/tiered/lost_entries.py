"""A hole in remote storage whose segments are there, while their entries in `__remote_log_metadata` are lost."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from klog.base.errors import counted, offsets_text


def lost_entries_text(first: int, last: int, starts: Sequence[tuple[int, bool]]) -> str | None:
    """Return a sentence about a hole, both ends inclusive, with the way out; None if no entry of a segment is lost.

    *starts*: the start offset of each known or stored segment, ascending, and whether its entry is lost.
    """
    offsets = [start for start, _ in starts]
    before = bisect_right(offsets, first)
    begin = bisect_left(offsets, offsets[before - 1]) if before else 0  # the last ones to begin before the hole
    lost = [start for start, is_lost in starts[begin : bisect_right(offsets, last)] if is_lost]
    if not lost:
        return None
    begin = max(first, lost[0])
    gone = f"no segment has {offsets_text(first, begin - 1)}, and " if begin > first else ""
    some = f"the entries of {counted(len(lost), 'segment')} are lost, and their objects are there"
    return f"{gone}no entry has {offsets_text(begin, last)}: {some}; klog remote attach writes entries"
