"""What a broker of 4.x would do with a partition at its next start, as a prediction.

Kafka: LogManager.loadLogs, LogLoader.load.  The damage counts that its recovery stumbles over; what it would not look
at (records inside a batch whose checksum holds, everything below the recovery point) it keeps.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from klog.formats.checkpoint import Malformed
from klog.formats.names import CLUSTER_METADATA, SEGMENT_KINDS, FileKind, Stage
from klog.verify.facts import PartitionFacts
from klog.verify.segment import SegmentFacts
from klog.verify.txn_index import version_fault


class Cut(NamedTuple):
    """Where recovery cuts: the segment's base offset, the offset that becomes its end, the position in bytes."""

    segment: int
    offset: int
    position: int


class Start(NamedTuple):
    """A broker's next start, as far as this partition decides it.

    *fails*: why it does not start, or takes the log dir offline; None when it starts.  *stray*: the directory is set
    aside.  Base offsets of segments: *recovered*, those that are read and checked; *rebuilt*, those that are because
    their index is missing; *dropped*, those that are deleted.  *cuts*: where logs are cut.  *log_start*, *log_end*: the
    offsets afterwards.
    """

    fails: str | None
    stray: bool
    recovered: tuple[int, ...]
    rebuilt: tuple[int, ...]
    cuts: tuple[Cut, ...]
    dropped: tuple[int, ...]
    log_start: int
    log_end: int


def next_start(facts: PartitionFacts) -> Start | None:
    """Predict the next start; None when not all segments were looked at, so that nobody knows."""
    if len(facts.segments) != len(facts.partition.segments):
        return None
    segments = facts.segments
    rebuilt = [segment for segment in segments if segment.offset_index is None]
    recovered = [] if facts.log_dir.clean else _unflushed(facts)
    cuts = [cut for segment in rebuilt if (cut := _cut(segment))]
    dropped: list[int] = []
    for at, segment in enumerate(recovered):
        if segment in rebuilt:
            continue  # what was cut when its index was rebuilt is not found again
        if cut := _cut(segment):
            cuts.append(cut)
            dropped = [later.files.base_offset for later in recovered[at + 1 :]]
            recovered = recovered[: at + 1]
            break
    end = _end(segments, cuts, dropped)
    start = facts.partition.log_start_offset or 0
    if end < start:
        dropped, end = [segment.files.base_offset for segment in segments], start
    return Start(
        _why_not(facts),
        facts.partition.metadata is None and bool(facts.log_dir.kraft) and facts.partition.topic != CLUSTER_METADATA,
        tuple(segment.files.base_offset for segment in recovered),
        tuple(segment.files.base_offset for segment in rebuilt),
        tuple(cuts),
        tuple(dropped),
        start,
        end,
    )


def _unflushed(facts: PartitionFacts) -> list[SegmentFacts]:
    """Return the segments from the one that holds the recovery point on; at least the last."""
    bases = [segment.files.base_offset for segment in facts.segments]
    return facts.segments[max(bisect_right(bases, facts.partition.recovery_point or 0) - 1, 0) :]


def _cut(segment: SegmentFacts) -> Cut | None:
    """Return where recovery stops in a segment; None when it reads all of it.

    What is broken inside a batch whose checksum holds does not stop it.
    """
    for damage, _, _, _, expected in segment.damages:
        if expected is not None:
            return Cut(segment.files.base_offset, expected, damage.place.position or 0)
    return None


def _end(segments: list[SegmentFacts], cuts: list[Cut], dropped: list[int]) -> int:
    kept = [segment for segment in segments if segment.files.base_offset not in dropped]
    if not kept:
        return 0
    last = kept[-1]
    ends = [cut.offset for cut in cuts if cut.segment == last.files.base_offset]
    return ends[0] if ends else last.end_offset


def _why_not(facts: PartitionFacts) -> str | None:
    """Return why a broker fails over the partition; None when it does not."""
    partition = facts.partition
    for file in partition.files:
        numbered = file.kind in (*SEGMENT_KINDS, FileKind.SNAPSHOT) and file.stage is not Stage.DELETED
        if numbered and file.offset is None:
            return f"NumberFormatException: {file.name}"
    epochs = partition.epochs
    if epochs is not None and epochs.malformed is not None:
        return f"leader-epoch-checkpoint, {epochs.malformed}"
    if isinstance(partition.metadata, Malformed):
        return f"partition.metadata, {partition.metadata}"
    for segment in facts.segments:
        if segment.unreadable is not None:
            return str(segment.unreadable)
    return version_fault(facts)


def reaction(start: Start, segment: SegmentFacts, position: int) -> str:
    """Say in words what the start makes of damage at *position* of a segment's log."""
    base = segment.files.base_offset
    cut = next((cut for cut in start.cuts if cut.segment == base), None)
    if base in start.dropped:
        return "deletes this segment, with all others from the first damage on"
    if cut is None or cut.position > position:
        return "does not look at it; a consumer or follower that reads it fails"
    if cut.position < position:
        return f"cuts the segment before it, at offset {cut.offset}"
    segments = f"{len(start.dropped)} segment{'s' if len(start.dropped) > 1 else ''}"
    rest = f", and deletes the {segments} after it" if start.dropped else ""
    return f"cuts the log here, at offset {cut.offset}{rest}"
