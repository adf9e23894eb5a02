"""`klog remote orphans`: objects that nothing owns."""

from __future__ import annotations

from dataclasses import asdict, fields

from klog.base.errors import ExitCode, counted, time_text
from klog.commands.remote.orphans import Orphan, OrphanReason, Orphans, find_orphans
from klog.commands.remote.sources import RemoteQuery

from klog_cli import output
from klog_cli.style import good, strong, warning
from klog_cli.views.nothing_found import nothing_found

_COLUMNS = ("partition", "start", "segment", "objects", "size", "why")


def orphans(query: RemoteQuery, newest_ms: int, form: str) -> int:
    """Print the orphans and return the exit code.  Raises UsageError, KlogError."""
    found = find_orphans(query, newest_ms)
    if form == "json":
        output.emit_json(_as_object(found))
    elif form == "jsonl":
        output.emit_jsonl(map(_row, found.segments))
    elif form == "csv":
        rows = (_row(one) | {"keys": " ".join(one.keys)} for one in found.segments)
        output.emit_csv_rows(rows, [name.name for name in fields(Orphan)])
    elif form == "keys":
        for one in found.segments:
            for key in one.keys:
                output.text(f"{key}\n")
    elif found.partitions or not query.narrows:
        _text(found)
    if query.narrows and not found.partitions:
        return nothing_found("no partition in remote storage")
    if found.young:
        output.note(f"{counted(found.young, 'segment')} without an entry left out: the objects are too young")
    if found.later:
        some = f"{counted(found.later, 'segment')} stored after the latest event in these log dirs"
        when = f", {time_text(found.newest_ms)}" if found.newest_ms >= 0 else ""
        output.note(
            f"{some}{when}: in a copy of a tier all are; in a tier that brokers use, these log dirs are too old"
        )
    return ExitCode.PROBLEMS_LEFT if found.segments else ExitCode.CLEAN


def _row(one: Orphan) -> dict[str, object]:
    return asdict(one) | {"why": one.why.value}


def _as_object(found: Orphans) -> dict[str, object]:
    return {
        "segments": len(found.segments),
        "objects": sum(len(one.keys) for one in found.segments),
        "bytes": sum(one.bytes for one in found.segments),
        "young": found.young,
        "orphans": list(map(_row, found.segments)),
        "foreign": found.foreign,
    }


def _text(found: Orphans) -> None:
    objects = sum(len(one.keys) for one in found.segments)
    size = output.human_size(sum(one.bytes for one in found.segments))
    total = f"{counted(objects, 'object')} of {counted(len(found.segments), 'segment')}, {size}, without an owner"
    output.lines([warning(total) if found.segments else good("no orphans")])
    if found.foreign_count:
        more = "" if found.foreign_count == 1 else f" and {found.foreign_count - 1} more"
        output.lines([f"not of this layout: {found.foreign[0]}{more}"])
    rows = [
        (
            strong(f"{one.topic}-{one.partition}"),
            one.start_offset,
            one.segment_id,
            len(one.keys),
            output.human_size(one.bytes),
            one.why.value,
        )
        for one in found.segments
    ]
    if rows:
        output.emit_table([""], _COLUMNS, rows)
    if any(one.why is OrphanReason.TOPIC_DELETED for one in found.segments):
        output.lines(["", "topic-deleted: if other clusters store objects in this place, theirs are among them"])
