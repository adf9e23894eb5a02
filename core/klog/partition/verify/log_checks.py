"""Checks the logs: damage, contradictions between batches, and the reaction of a broker's next start to either.

`klog.partition.start` plays the start; this module describes in words how that treats one place in a log.
"""

from __future__ import annotations

from collections.abc import Iterator

from klog.base.errors import KlogError, are, offsets_text
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.zeroed_tail import held_records
from klog.formats.batch import BATCH, ENTRY
from klog.formats.damage import Damage, DamageKind
from klog.formats.index import OFFSET_ENTRY
from klog.log.header_walk import header_at
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.segment import MAX_SEGMENT_BYTES
from klog.partition.start.start_files import SegmentCut, StartOutcome
from klog.partition.verify.findings import CUTS_OUT, KINDS, SALVAGE, Findings, PartitionFacts
from klog.partition.verify.segment_pass import NO_NEXT, ByteRange, SegmentFacts


def reaction_to_damage(facts: PartitionFacts, segment: SegmentFacts, position: int) -> str | None:
    """Return the effect of the start on bytes at *position* of a segment's log that are no intact batch.

    None when the start was not played, because the pass skipped segments.
    """
    start = facts.next_start
    if start is None:
        return None
    kept = "does not check this; a consumer or follower that reads it fails"
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
        return "recovers the segment, and accepts the batch"
    return "does not check this: keeps the batch and serves it as it is"


def _removal(start: StartOutcome, segment: SegmentFacts, position: int) -> str | None:
    """Return how the start fails, or how the bytes at *position* are removed; None if they stay."""
    base, log = segment.files.base_offset, segment.files.log
    if start.fails is not None:
        return f"fails: {start.fails}"
    if base in start.dropped:
        return "deletes this segment, like every segment after the first damage"
    # A segment that is split becomes several logs, each of one piece of it.
    pieces = [(piece, int(name[:20])) for name, pieces in start.logs.items() for piece in pieces if piece.name == log]
    if not pieces:
        return "replaces this segment with the .swap files of a completed compaction"
    piece, base = max(one for one in pieces if one[0].start <= position)
    cut = next((cut for cut in start.cuts if cut.base == base), None)
    if position < piece.end or cut is None:
        return None
    if piece.end < position:
        return f"truncates the segment earlier, at offset {cut.offset}"
    return f"truncates the log here, at offset {cut.offset}{_deleted_after(start, cut)}"


def _deleted_after(start: StartOutcome, cut: SegmentCut) -> str:
    """Return the part that recovery deletes because it ended with *cut*; nothing if it did not."""
    ended_here = start.dropped and all(base > cut.base for base in start.dropped)
    # A segment that is truncated because its index is missing does not end recovery: others may follow it.
    bases = (int(name[:20]) for name in start.logs)
    if not ended_here or any(cut.base < base < min(start.dropped) for base in bases):
        return ""
    return f", and deletes the {f'{len(start.dropped)} segments' if len(start.dropped) > 1 else 'segment'} after it"


IDS = {
    DamageKind.BAD_CRC: "bad-crc",
    DamageKind.BAD_LENGTH: "bad-length",
    DamageKind.BAD_MAGIC: "bad-magic",
    DamageKind.SHORT_HEADER: "short-header",
    DamageKind.BAD_COMPRESSION: "bad-compression",
    DamageKind.BAD_RECORD: "bad-record",
    DamageKind.UNREADABLE: "unreadable",
    DamageKind.ZEROED_TAIL: "zeroed",
    DamageKind.TORN_TAIL: "torn-tail",
}
BIT_REPAIR = "; klog recover --repair-bits repairs it"
"""Ends the message about a batch that one flipped bit explains."""
_MOST_OFFERS = 100
"""Looked into for a flipped bit; who has more than this has another problem."""
_ZERO_BYTES = 512
"""Zeros at the end of a batch may be its own; so many are a block that was never written."""


def damages(facts: PartitionFacts) -> Findings:
    """Damaged stretches and batches, with the intact part behind them."""
    for segment in facts.segments:
        log = segment.files.log
        for stretch, kind, message in damaged_places(facts, segment):
            position = stretch.damage.place.position or 0
            broker = reaction_to_damage(facts, segment, position) if kind != "unfinished-append" else None
            fix = _fix(facts, kind, segment, stretch)
            yield facts.finding(kind, message, log, position, stretch.offset, broker, fix)
        if segment.more_damages:
            position = segment.damages[-1].end
            yield facts.finding(
                "more-damage", f"{segment.more_damages} more damaged places from here on", log, position
            )


def damaged_places(facts: PartitionFacts, segment: SegmentFacts) -> Iterator[tuple[ByteRange, str, str]]:
    """Yield each damaged stretch of a segment, the id of its kind of finding, and the detail."""
    for stretch in segment.damages:
        kind = _kind(facts, segment, stretch)
        is_complete = stretch.expected is None or kind.endswith("tail") or kind == "unfinished-append"
        follows = "" if is_complete else _what_follows(facts, segment, stretch)
        yield stretch, kind, stretch.damage.detail + follows + _bit(segment, stretch)


def _fix(facts: PartitionFacts, kind: str, segment: SegmentFacts, stretch: ByteRange) -> str:
    """Return the repairing command: none cuts a message out of a batch, or a tail with intact batches off."""
    if stretch.expected is None:
        return ""
    after, _ = facts.batches_after(segment, stretch.batches, stretch.records)
    return SALVAGE if after and KINDS[kind].fix else KINDS[kind].fix


def _bit(segment: SegmentFacts, stretch: ByteRange) -> str:
    """Return the single wrong bit, if there is no other fault."""
    from klog.log.bit_flips import offer

    at = segment.damages.index(stretch)
    found = offer(stretch.damage, MAX_BATCH_BYTES) if at < _MOST_OFFERS and stretch.expected is not None else None
    return f"; {found}{BIT_REPAIR}" if found else ""


def _what_follows(facts: PartitionFacts, segment: SegmentFacts, stretch: ByteRange) -> str:
    after, records_after = facts.batches_after(segment, stretch.batches, stretch.records)
    if not after:
        return "; nothing intact follows"
    return f"; {after} intact batches with {records_after} records follow"


def _kind(facts: PartitionFacts, segment: SegmentFacts, stretch: ByteRange) -> str:
    damage, expected = stretch.damage, stretch.expected
    if expected is None or stretch.end < segment.size:
        return IDS[damage.kind]
    if facts.is_active(segment) and facts.log_dir.live and damage.is_unfinished:
        return "unfinished-append"
    if damage.kind is DamageKind.ZEROED_TAIL and stretch.end - (damage.place.position or 0) < ENTRY.size:
        # Offsets begin with zeros, so a batch that is cut after a few bytes is zeros too.
        return "torn-tail" if _begins_a_batch(damage, expected, segment) else "zeroed"
    if facts.is_active(segment) and damage.kind is DamageKind.ZEROED_TAIL:
        return "zeroed" if _proves_more(facts, segment, damage.place.position or 0) else "zero-tail"
    if damage.kind in (DamageKind.BAD_CRC, DamageKind.TORN_TAIL) and _ends_in_zeros(damage, segment.size):
        return "zeroed"
    if damage.kind in (DamageKind.BAD_CRC, DamageKind.ZEROED_TAIL, DamageKind.UNREADABLE):
        return IDS[damage.kind]
    return "torn-tail" if _begins_a_batch(damage, expected, segment) else "garbage-tail"


def _ends_in_zeros(damage: Damage, log_bytes: int) -> bool:
    """Whether the last batch turns into zeros that continue to the end of the log."""
    start = log_bytes - _ZERO_BYTES
    if start < (damage.place.position or 0) + BATCH.size:
        return False
    tail = _bytes(damage.place.file, start, _ZERO_BYTES)
    return len(tail) == _ZERO_BYTES and not any(tail)


def _bytes(file: str, position: int, size: int) -> bytes:
    """Return the bytes there; none if the file is missing or cannot be read there."""
    try:
        with ReadOnlyFile(file) as source:
            return source.read(position, size)
    except KlogError:
        return b""


def _proves_more(facts: PartitionFacts, segment: SegmentFacts, position: int) -> bool:
    index = segment.offset_index
    entry = None
    if index is not None and index.used:
        relative, entry_position = OFFSET_ENTRY.read(index.entries[-OFFSET_ENTRY.size :])
        entry = (segment.files.base_offset + relative, entry_position)
    return held_records(facts.partition, entry, position, segment.end_offset)


def _begins_a_batch(damage: Damage, expected: int, segment: SegmentFacts) -> bool:
    """Whether the bytes at the end are the beginning of the next batch."""
    head = _bytes(damage.place.file, damage.place.position or 0, ENTRY.size)
    if len(head) < 8:
        return expected.to_bytes(8, "big").startswith(head)
    offset = int.from_bytes(head[:8], "big", signed=True)
    near = expected <= offset <= expected + (1 << 20) and offset < segment.survey.next_base
    return near and (len(head) < ENTRY.size or head[-1] <= 2)


def batches(facts: PartitionFacts) -> Findings:
    """Yield impossible contents of batches with good checksums."""
    for segment in facts.segments:
        for event, position, first, second in segment.survey.events:
            found = EVENTS.get(event)
            if found is None:
                continue
            kind, text, has_offset = found
            if event == "odd epoch" and _falls(facts.partition.file(segment.files.log), position, first, second):
                kind, text = "epochs-fall", "leader epoch {0} behind {1}"
            message = text.format(first, second)
            # Batches below their segment are among offsets that others have; batches above get a segment.
            fix = CUTS_OUT if event == "overflow" and first < segment.files.base_offset else None
            offset = first if has_offset else None
            broker = reaction_to_batch(facts, segment, position) if kind in _DECIDED_BY_START else None
            yield facts.finding(kind, message, segment.files.log, position, offset, broker, fix)
        if segment.survey.dropped:
            yield facts.finding(
                "more-damage", f"{segment.survey.dropped} more batches that cannot be as they are", segment.files.log
            )
        if segment.size > MAX_SEGMENT_BYTES:
            yield facts.finding("oversized-log", f"{segment.size} bytes", segment.files.log)


def _falls(path: str, position: int, epoch: int, before: int) -> bool:
    """Whether the epochs are lower from a batch on: the one behind it does not return to the epoch *before* it."""
    if not 0 <= epoch < before:
        return False
    try:
        with ReadOnlyFile(path) as log:
            batch = header_at(log, position)
            behind = None if batch is None else header_at(log, position + batch.size)
    except KlogError:
        return False
    return batch is not None and (behind is None or behind.leader_epoch < before)


# The finding for each event of the survey, its text, and whether its first number is an offset.
EVENTS = {
    "odd offset": ("odd-offset", "base offset {0}, where {1} was expected; the batch after it begins below", True),
    "backwards": ("offsets-backwards", "base offset {0}, though offset {1} precedes it", True),
    "overflow": ("offset-overflow", "offsets {0}–{1} are too far from the segment's base offset", True),
    "beyond next": ("segments-overlap", "its last offset is {0}, the next segment begins at {1}", True),
    "odd epoch": ("odd-epoch", "leader epoch {0} next to {1}", False),
    "bad counts": ("bad-counts", "{0} records, last offset delta {1}", False),
    "unknown codec": ("unknown-codec", "codec {0}", False),
}
_DECIDED_BY_START = frozenset({"odd-offset", "offsets-backwards", "offset-overflow", "segments-overlap"})
"""Batches at which a broker's recovery may stop, split the segment, or fail."""


def gaps(facts: PartitionFacts) -> Findings:
    """Offsets without a batch, inside segments and between them; legal if the topic was compacted.

    A part below the log start, too, which is never served: a copy has gaps there for batches that were deleted before
    the copy.
    """
    for log, position, first, found in _gaps(facts):
        if facts.is_compacted:
            return
        if found <= (facts.partition.log_start_offset or 0):
            continue
        kind = "offset-gap" if facts.is_compacted is None else "offsets-missing"
        yield facts.finding(kind, _gap(first, found), log, position, first)


def _gaps(facts: PartitionFacts) -> Iterator[tuple[str, int, int, int]]:
    """Yield log, position, the first offset that is missing and the next that is there."""
    for segment in facts.segments:
        log, survey, end = segment.files.log, segment.survey, segment.end_offset
        for event, position, first, second in survey.events:
            if event == "gap":
                yield log, position, first, second
        if not segment.damages and not segment.unreadable and end < survey.next_base < NO_NEXT:
            yield log, survey.end, end, survey.next_base


def _gap(first: int, found: int) -> str:
    return f"{offsets_text(first, found - 1)} {are(first, found - 1)} missing"


def unreadable(facts: PartitionFacts) -> Findings:
    """Logs that could not be opened or read."""
    for segment in facts.segments:
        if segment.unreadable is not None:
            yield facts.finding("unreadable", str(segment.unreadable), segment.files.log)
