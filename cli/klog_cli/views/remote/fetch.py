"""`klog remote fetch`: the partitions that were fetched, and all that they lack."""

from __future__ import annotations

import os
from collections.abc import Iterator
from shlex import quote

from klog.base.errors import ExitCode, counted, offsets_text
from klog.commands.remote.fetch import fetch_remote
from klog.commands.remote.fetch_options import FetchedPartition, FetchOptions
from klog.commands.remote.sources import RemoteQuery

from klog_cli import output, style
from klog_cli.views.nothing_found import nothing_found


def fetch(query: RemoteQuery, options: FetchOptions, form: str) -> int:
    """Fetch, print the result and return the exit code.  Raises UsageError, KlogError, OSError."""
    with output.Results() as results:
        found = fetch_remote(query, options, results)
    if form == "json":
        output.emit_json({"partitions": list(map(_object, found))})
    elif form == "jsonl":
        output.emit_jsonl(map(_object, found))
    elif found:
        output.lines(_text(found, options.to))
    if not found:
        return nothing_found("no segment to fetch: klog remote ls --segments shows the part that each plays")
    is_damaged = any(one.holes or one.lost for one in found)
    return ExitCode.PROBLEMS_LEFT if is_damaged else ExitCode.CLEAN


def _object(one: FetchedPartition) -> dict[str, object]:
    return {
        "topic": one.whose.topic,
        "partition": one.whose.number,
        "topic_id": one.whose.topic_id,
        "path": one.path,
        "segments": one.segments,
        "bytes": one.bytes,
        "records": one.records,
        "remote_segments": one.remote_segments,
        "local_segments": one.local_segments,
        "first_offset": one.first_offset,
        "log_end_offset": one.log_end_offset,
        "holes": one.holes,
        "damaged": [{"segment_id": each.segment_id, "file": each.file, "message": each.message} for each in one.lost],
        "rebuilt": one.rebuilt,
        "notes": one.notes,
    }


def _text(found: list[FetchedPartition], to: str) -> Iterator[str]:
    yield _verdict(found, to)
    width = max(len(str(one.whose)) for one in found)
    for one in found:
        parts = f"{one.remote_segments} remote and {counted(one.local_segments, 'local segment')}"
        offsets = offsets_text(one.first_offset, one.log_end_offset - 1) if one.segments else "no offset"
        size = output.human_size(one.bytes)
        name = style.strong(f"{one.whose!s:{width}}")
        yield f"{name}  {offsets}: {parts}, {size}, {counted(one.records, 'record')}"
    for one in found:
        for first, last in one.holes:
            yield f"{one.whose}  {style.bad('missing')}: {offsets_text(first, last)}"
        for each in one.lost:
            yield f"{one.whose}  {style.bad('damaged')}: {each.file}: {each.message}"
        if one.rebuilt:
            names = ", ".join(one.rebuilt[:3]) + (f" and {len(one.rebuilt) - 3} more" if len(one.rebuilt) > 3 else "")
            yield f"{one.whose}  rebuilt from the log: {names}"
        yield from (f"{one.whose}  {note}" for note in one.notes)
    yield ""
    folders = dict.fromkeys(os.path.dirname(os.path.relpath(one.path, to)) for one in found if one.segments)
    log_dirs = [os.path.join(to, one) if one else to for one in folders] or [to]  # with --segment, one for each
    yield f"klog verify {' '.join(map(quote, log_dirs))} --deep"


def _verdict(found: list[FetchedPartition], to: str) -> str:
    amount = f"{counted(len(found), 'partition')}, {counted(sum(one.segments for one in found), 'segment')}"
    size = output.human_size(sum(one.bytes for one in found))
    holes = sum(len(one.holes) for one in found)
    if holes:
        return f"{style.bad('incomplete')}: {amount} ({size}) in {to}; {counted(holes, 'range')} of offsets missing"
    return f"{style.good('fetched')}: {amount} ({size}) in {to}"
