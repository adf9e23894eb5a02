"""`klog remote ls`: a row for each partition in remote storage, or for each segment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from klog.base.errors import ExitCode, UsageError, counted
from klog.cluster.remote_log.events import TopicIdPartition
from klog.commands.remote import (
    PartitionListing,
    RemoteListing,
    RemoteQuery,
    RemoteVerdict,
    SegmentListing,
    list_remote,
)

from klog_cli import output
from klog_cli.style import bad, faint, good, strong, warning
from klog_cli.views.nothing_found import nothing_found

_MARKS = {
    RemoteVerdict.DAMAGED: bad,
    RemoteVerdict.HOLE: bad,
    RemoteVerdict.ORPHANS: warning,
    RemoteVerdict.UNKNOWN: warning,
    RemoteVerdict.WHOLE: good,
}
_COLUMNS = ("partition", "log start", "remote", "local from", "log end", "segments", "bytes", "verdict")
_SEGMENT_COLUMNS = ("partition", "start", "end", "segment", "state", "bytes", "objects", "role")
_ROLES = {
    "serves": good,
    "orphan": warning,
    "entry-lost": warning,
    "dead": warning,
    "unfinished": faint,
    "below-start": faint,
}


def ls(query: RemoteQuery, with_segments: bool, form: str) -> int:
    """Print the partitions and return the exit code.  Raises UsageError, KlogError."""
    if not query.paths and query.tier is None:
        raise UsageError("name log dirs, --remote TIER, or both")
    listing = list_remote(query)
    _note_idle_events(query, listing)
    if form == "json":
        output.emit_json(_as_object(query, listing, with_segments))
    elif form == "jsonl":
        output.emit_jsonl(_partition_object(one, with_segments) for one in listing.partitions)
    elif form == "csv":
        output.emit_csv_rows(_csv_rows(listing, with_segments), _csv_columns(with_segments))
    elif listing.partitions:
        _text(listing, with_segments)
    if not listing.partitions:
        return nothing_found("no partition in remote storage")
    is_bad = any(one.verdict.is_problem for one in listing.partitions)
    return ExitCode.PROBLEMS_LEFT if is_bad else ExitCode.CLEAN


def _note_idle_events(query: RemoteQuery, listing: RemoteListing) -> None:
    """Print what is wrong with the metadata themselves."""
    found = listing.metadata
    if found is None:
        if query.paths:
            output.note("the log dirs have no partition of __remote_log_metadata: its events are unknown")
        return
    for events, what in (
        (found.refused, "that brokers refuse: their consumer of the topic ends at the first one"),
        (found.misplaced, "in partitions where brokers do not look for them"),
    ):
        if events.count:
            place = events.named[0].place
            first = f"the first in partition {place.metadata_partition} at offset {place.offset}"
            output.note(f"{counted(events.count, 'record')} of __remote_log_metadata {what}; {first}")
    unknown = [
        one
        for one in listing.partitions
        if found.cache(TopicIdPartition(one.topic, one.partition, one.topic_id)) is None
    ]
    if unknown:
        names = f"{unknown[0].topic}-{unknown[0].partition}" + (f" and {len(unknown) - 1} more" if unknown[1:] else "")
        output.note(f"{names}: the partition of __remote_log_metadata with the events is not in these log dirs")


# as data


def _as_object(query: RemoteQuery, listing: RemoteListing, with_segments: bool) -> dict[str, object]:
    tier, objects, metadata = None, listing.objects, listing.metadata
    if query.tier is not None and objects is not None:
        layout = query.tier.layout.name if query.tier.layout is not None else None
        tier = {"uri": query.tier.uri, "layout": layout, "objects": objects.objects, "bytes": objects.bytes}
    facts = None
    if metadata is not None:
        facts = {"partitions": len(metadata.read), "events": metadata.events, "dropped": metadata.dropped.count}
    rows = [_partition_object(one, with_segments) for one in listing.partitions]
    return {"tier": tier, "metadata": facts, "partitions": rows}


def _partition_object(one: PartitionListing, with_segments: bool) -> dict[str, object]:
    row = {name.name: getattr(one, name.name) for name in fields(one) if name.name != "segment_list"}
    row["verdict"] = one.verdict.value
    return row | {"segment_list": [_segment_object(each) for each in one.segment_list]} if with_segments else row


def _segment_object(one: SegmentListing) -> dict[str, object]:
    return {name.name: getattr(one, name.name) for name in fields(one)}


def _csv_rows(listing: RemoteListing, with_segments: bool) -> Iterator[dict[str, object]]:
    for one in listing.partitions:
        if with_segments:
            whose = {"topic": one.topic, "partition": one.partition, "topic_id": one.topic_id}
            yield from (whose | _flat(_segment_object(each)) for each in one.segment_list)
        else:
            yield _flat(_partition_object(one, with_segments=False))


def _csv_columns(with_segments: bool) -> tuple[str, ...]:
    if with_segments:
        return ("topic", "partition", "topic_id", *(name.name for name in fields(SegmentListing)))
    return tuple(name.name for name in fields(PartitionListing) if name.name != "segment_list")


def _flat(row: dict[str, object]) -> dict[str, object]:
    """Return *row* with texts in place of lists and maps: `0:12 2:60`."""
    return {
        name: " ".join(f"{one}:{each}" for one, each in (value.items() if isinstance(value, dict) else value))
        if isinstance(value, dict | tuple)
        else value
        for name, value in row.items()
    }


# for people


def _text(listing: RemoteListing, with_segments: bool) -> None:
    if with_segments:
        rows = [_segment_cells(one, each) for one in listing.partitions for each in one.segment_list]
        filled = [i for i in range(len(_SEGMENT_COLUMNS)) if any(row[i] is not None for row in rows)]
        output.emit_table((), [_SEGMENT_COLUMNS[i] for i in filled], [[row[i] for i in filled] for row in rows])
    else:
        output.emit_table((), _COLUMNS, [_cells(one) for one in listing.partitions])
    reasons = [line for one in listing.partitions for line in _reasons(one)]
    if reasons:
        output.emit_table([""], (), ())
        output.lines(reasons)


def _cells(one: PartitionListing) -> Sequence[str | int | None]:
    mark = _MARKS.get(one.verdict, str)
    is_known = one.verdict is not RemoteVerdict.UNKNOWN or bool(one.entries_lost)
    return (
        strong(f"{one.topic}-{one.partition}"),
        one.log_start_offset,
        _remote_range(one),
        one.local_log_start_offset,
        one.log_end_offset,
        one.segments if is_known else None,
        output.human_size(one.remote_bytes) if is_known else None,
        mark(one.verdict.value),
    )


def _remote_range(one: PartitionListing) -> str | None:
    return None if one.remote_start_offset is None else f"{one.remote_start_offset} to {one.remote_end_offset}"


def _segment_cells(whose: PartitionListing, one: SegmentListing) -> Sequence[str | int | None]:
    stored = None if one.objects is None else f"{len(one.objects)}, {output.human_size(sum(one.objects.values()))}"
    return (
        strong(f"{whose.topic}-{whose.partition}"),
        one.start_offset,
        one.end_offset,
        one.segment_id,
        one.state,
        None if one.bytes is None else output.human_size(one.bytes),
        stored,
        _ROLES.get(one.role, str)(one.role),
    )


def _reasons(one: PartitionListing) -> Iterator[str]:
    """Yield a line for each thing that is wrong with a partition."""
    name = strong(f"{one.topic}-{one.partition}")
    if one.damaged:
        some = ", ".join(one.damaged[:3]) + ("…" if len(one.damaged) > 3 else "")
        verb = "has" if len(one.damaged) == 1 else "have"
        what = f"{verb} no log or index, or a log of another size than in the metadata"
        yield f"{name}  {bad('damaged')}: {counted(len(one.damaged), 'segment')} {what}: {some}"
    for first, last in one.holes[:3]:
        yield f"{name}  {bad('hole')}: {one.hole_text(first, last)}"
    if len(one.holes) > 3:
        yield f"{name}  and {counted(len(one.holes) - 3, 'more hole')}"
    if one.orphans:
        yield f"{name}  {warning('orphans')}: {counted(one.orphans, 'segment')} with objects, but without an entry"
    if one.entries_lost:
        some = counted(one.entries_lost, "segment")
        yield (
            f"{name}  {warning('unknown')}: {some} with objects, whose entries may be lost: records of"
            " __remote_log_metadata are deleted or unreadable; klog remote attach writes entries"
        )
