"""`klog lookup`: which partition, one answer or many, and how they are shown."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import ExitCode, UsageError
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.partition.lookup import Lookup, Trail, TrailDetail

from klog_cli import output
from klog_cli.input_lines import input_lines

if TYPE_CHECKING:
    from klog.data_dir.open_path import KafkaFile

_CHUNK = 100_000
_LONGEST_LINE = 1024


class LookupArguments(NamedTuple):
    """Where to search, and how to show it: *form* is text, json or jsonl."""

    path: str
    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    form: str
    position_only: bool


def look_up(asked: LookupArguments, target: int, by_time: bool) -> int:
    """Look up one offset or time (ms), and show the trail; return the exit code."""
    partition, segments = _resolve(asked)
    with Lookup(
        partition, segments, TrailDetail(origin=None if asked.form == "text" else _origin(partition))
    ) as lookup:
        target = max(LONG_MIN, min(target, LONG_MAX))
        trail = lookup.timestamp(target) if by_time else lookup.offset(target)
    if asked.position_only:
        for problem in trail.problems:
            output.error(problem)
        output.text("\n" if trail.position is None else f"{trail.position}\n")
    elif asked.form == "text":
        from klog_cli.views.lookup.text import lines

        output.text("".join(f"{output.printable(line)}\n" for line in lines(trail)))
    else:
        from klog_cli.views.lookup.json import Lines

        line = Lines(partition.topic, partition.number).of(trail)
        if asked.form == "jsonl":
            output.text(f"{line}\n")
        else:
            import json

            output.emit_json(json.loads(line))
    return ExitCode.CLEAN if trail.found and not trail.problems else ExitCode.PROBLEMS_LEFT


def look_up_many(asked: LookupArguments, file: str, by_time: bool) -> int:
    """Look up each number of *file* (-: stdin), and show a line for each in that order; return the exit code."""
    partition, segments = _resolve(asked)
    origin = None if asked.form == "text" else _origin(partition)
    wanted = TrailDetail(records=origin is not None, origin=origin, explains=False)
    if origin is not None:
        from klog_cli.views.lookup.json import Lines

        line = Lines(partition.topic, partition.number).of
    else:
        line = _position if asked.position_only else _time_row if by_time else _row
    told: set[str] = set()
    code = ExitCode.CLEAN
    with Lookup(partition, segments, wanted) as lookup:
        for targets in _numbers(file):
            lines = [""] * len(targets)
            for place, trail in lookup.many(targets, by_time):
                lines[place] = line(trail)
                if trail.problems or not trail.found:
                    code = ExitCode.PROBLEMS_LEFT
                    told.update(trail.problems)
            output.text("\n".join(lines) + "\n")
    for problem in sorted(told):
        output.error(problem)
    return code


def _position(trail: Trail) -> str:
    return "" if trail.position is None else str(trail.position)


def _row(trail: Trail) -> str:
    file = "-" if trail.segment is None else trail.segment.file
    position = trail.position
    return f"{trail.target} {file} {'-' if position is None else position} {trail.outcome.value}"


def _time_row(trail: Trail) -> str:
    target, _, rest = _row(trail).partition(" ")
    return f"{target} {'-' if trail.offset is None else trail.offset} {rest}"


def _numbers(file: str) -> Iterator[list[int]]:
    """Yield the numbers of *file*, one a line, many at a time; empty lines do not count.  Raises UsageError."""
    descriptor = 0 if file == "-" else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    with open(descriptor, "rb", closefd=file != "-") as lines:
        found: list[int] = []
        for number, line in input_lines(lines, file, _LONGEST_LINE):
            word = line.decode("ascii", "replace").strip()
            if not word:
                continue
            if not word.removeprefix("-").isdecimal() or len(word) > 20:
                raise UsageError(f"{file}, line {number}: {word[:40]!r} is not a number")
            found.append(max(LONG_MIN, min(int(word), LONG_MAX)))
            if len(found) == _CHUNK:
                yield found
                found = []
        if found:
            yield found


def _origin(partition: Partition) -> bytes:
    from klog.log.json_lines import RecordOrigin

    return RecordOrigin(partition.path, partition.topic, partition.number).json()


def _resolve(asked: LookupArguments) -> tuple[Partition, Sequence[SegmentFiles] | None]:
    """Return the selected partition, and its selected segments if not all.

    Raises UsageError if the path names none, or more than one.
    """
    from klog.data_dir.open_path import KafkaFile
    from klog.data_dir.selection import select_one

    found = select_one(asked.path, asked.topics, asked.partitions)
    return _of_file(found) if isinstance(found, KafkaFile) else (found, None)


def _of_file(found: KafkaFile) -> tuple[Partition, Sequence[SegmentFiles]]:
    from klog.formats.names import FileKind

    folder = Partition(os.path.dirname(found.path) or ".")
    own = [segment for segment in folder.segments if segment.log == found.name.name]
    if own:
        return folder, own
    if found.name.kind is not FileKind.LOG or found.name.offset is None:
        raise UsageError(f"{found.path}: a lookup needs a partition directory, or the .log of a segment")
    # on its way in or out (….log.deleted): its indexes carry the same ending
    names = {file.name for file in folder.files}
    beside = [found.name.name.replace(".log", f".{kind}", 1) for kind in ("index", "timeindex", "txnindex")]
    files = [name if name in names else None for name in beside]
    return folder, [SegmentFiles(found.name.offset, os.path.getsize(found.path), found.name.name, *files)]
