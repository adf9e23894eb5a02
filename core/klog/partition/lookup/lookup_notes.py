"""Notes on a record that was found: its place in the log, and whether a consumer can see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.formats.batch import CONTROL_BIT, BatchFacts
from klog.log.header_walk import HeaderWalk
from klog.partition.lookup.batch_body import Bodies, Body
from klog.partition.lookup.offset_search import SegmentChoice

MOST_BYTES: Final = 256 << 20
"""The number of bytes of a log that are searched for the end of a transaction."""

_ABORT = 0


class _Marker(NamedTuple):
    """The end of a transaction: the offset of its marker, and whether it aborts."""

    offset: int
    aborts: bool


def about_record(segments: SegmentChoice, number: int, body: Body, offset: int) -> Iterator[str]:
    """Yield notes about the record with *offset* in a batch of one of the segments."""
    partition = segments.partition
    if offset == segments.log_start_offset and segments.is_whole:
        yield f"the log start offset, {offset}"
    end = partition.high_watermark
    if end is not None and offset >= end:
        yield f"not below the high watermark of the checkpoint, {end}: a consumer may not have received it"
    facts = body.facts
    if body.facts.is_control:
        yield "a control batch: a marker, which consumers do not receive"
    elif facts.is_transactional:
        yield from _about_transaction(segments, number, facts)


def _about_transaction(segments: SegmentChoice, number: int, facts: BatchFacts) -> Iterator[str]:
    from klog.partition.transactions.isolation import indexed_abort  # needed for few records

    who = f"producer {facts.producer_id}"
    indexed = indexed_abort(segments.partition.path, segments.files[number:], facts.producer_id, facts.base_offset)
    if indexed is not None:
        yield f"in a transaction of {who} that was aborted at {indexed}: read_committed consumers do not receive it"
        return
    marker, walked_all = _marker(segments, number, facts)
    if marker is None:
        where = "has no end in the log" if walked_all else f"does not end within {MOST_BYTES >> 20} MiB"
        yield f"in a transaction of {who} that {where}: read_committed consumers do not receive it yet"
    elif marker.aborts:
        yield (
            f"in a transaction of {who} that was aborted at {marker.offset}, but no transaction index has this: "
            "read_committed consumers of this replica may receive it"
        )
    else:
        yield f"in a transaction of {who}, committed at {marker.offset}"


def _marker(segments: SegmentChoice, number: int, facts: BatchFacts) -> tuple[_Marker | None, bool]:
    """Return the marker that ends a batch's transaction, and whether all of the log was looked at for it."""
    position, left = facts.position, MOST_BYTES
    for files in segments.files[number:]:
        with ReadOnlyFile(segments.partition.file(files.log)) as log:
            walk, bodies = HeaderWalk(log), Bodies(log, segments.codecs)
            walk.go(position, position)
            while True:
                marker = _marker_in(walk, bodies, facts)
                if marker is not None:
                    return marker, True
                if walk.next_position - position > left:
                    return None, False
                if not walk.more():
                    break
            left -= walk.next_position - position
        position = 0
    return None, True


def _marker_in(walk: HeaderWalk, bodies: Bodies, facts: BatchFacts) -> _Marker | None:
    for row in walk.window.transactional(0, walk.window.count):
        found = walk.window.batch(row)
        is_end = found.attributes & CONTROL_BIT and found.producer_id == facts.producer_id
        if not is_end or found.base_offset <= facts.base_offset:
            continue
        body = bodies.of(walk.window, row)
        record = body.first(found.base_offset) if body is not None and body.holds else None
        if record is not None and record.key is not None and len(record.key) >= 4:
            return _Marker(record.offset, int.from_bytes(record.key[2:4], "big") == _ABORT)
    return None
