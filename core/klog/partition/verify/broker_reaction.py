"""Describes in words the treatment of one place in a log by a broker's next start.

`klog.partition.start` plays the start; this module predicts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.partition.verify.facts import PartitionFacts
from klog.partition.verify.segment_pass import SegmentFacts

if TYPE_CHECKING:
    from klog.partition.start.start_outcome import SegmentCut, StartOutcome


def reaction_to_damage(facts: PartitionFacts, segment: SegmentFacts, position: int) -> str | None:
    """Return the effect of the start on bytes at *position* of a segment's log that are no intact batch.

    None when the start was not played, because the pass skipped segments.
    """
    start = facts.next_start
    if start is None:
        return None
    kept = "does not look at it; a consumer or follower that reads it fails"
    return _removal(start, segment, position) or kept


def reaction_to_batch(facts: PartitionFacts, segment: SegmentFacts, position: int) -> str | None:
    """Return the effect of the start on a wrong batch whose checksum matches.  None in the same case."""
    start = facts.next_start
    if start is None:
        return None
    removal = _removal(start, segment, position)
    if removal is not None:
        return removal
    if sum(piece.name == segment.files.log for pieces in start.logs.values() for piece in pieces) > 1:
        return "splits the segment"
    if segment.files.base_offset in start.recovered:
        return "recovers the segment, and takes it as good data"
    return "is not looked at: it is kept and served as it is"


def _removal(start: StartOutcome, segment: SegmentFacts, position: int) -> str | None:
    """Return how the start fails, or how the bytes at *position* are removed; None if they stay."""
    base, log = segment.files.base_offset, segment.files.log
    if start.fails is not None:
        return f"fails: {start.fails}"
    if base in start.dropped:
        return "deletes this segment, with all others from the first damage on"
    # A segment that is split becomes several logs, each of one piece of it.
    pieces = [(piece, int(name[:20])) for name, pieces in start.logs.items() for piece in pieces if piece.name == log]
    if not pieces:
        return "deletes this segment: a compaction that had ended left .swap files, which replace it"
    piece, base = max(one for one in pieces if one[0].start <= position)
    cut = next((cut for cut in start.cuts if cut.base == base), None)
    if position < piece.end or cut is None:
        return None
    if piece.end < position:
        return f"truncates the segment before it, at offset {cut.offset}"
    return f"truncates the log here, at offset {cut.offset}{_what_follows(start, cut)}"


def _what_follows(start: StartOutcome, cut: SegmentCut) -> str:
    """Return the part that recovery deletes because it ended with *cut*; nothing if it did not."""
    ended_here = start.dropped and all(base > cut.base for base in start.dropped)
    # A segment that is truncated because its index is missing does not end recovery: others may follow it.
    if not ended_here or any(cut.base < base < min(start.dropped) for base in _bases(start)):
        return ""
    return f", and deletes the {len(start.dropped)} segment{'s' if len(start.dropped) > 1 else ''} after it"


def _bases(start: StartOutcome) -> list[int]:
    return [int(name[:20]) for name in start.logs]
