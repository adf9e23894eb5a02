"""`klog lookup`: which partition, one answer or many, and how they are shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import ExitCode, UsageError, counted, offsets_text, range_text
from klog.base.overlays import remote_object
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.formats.record import Record
from klog.partition.lookup import Lookup, Trail, TrailDetail
from klog.partition.lookup.lookup_trail import IndexTrail, LookupOutcome, TimeIndexTrail

from klog_cli import output
from klog_cli.input_lines import input_lines
from klog_cli.style import bad, columns_of, faint, good, strong, warning
from klog_cli.views.bytes import see_bytes

if TYPE_CHECKING:
    from klog.data_dir.selection import KafkaFile
    from klog.partition.tiered.tiered_log import TieredLog

_LABEL = 10
_MOST_KEY = 60
_CHUNK = 100_000
_LONGEST_LINE = 1024


class LookupArguments(NamedTuple):
    """The place of a search, and the form of the output: *form* is text, json or jsonl."""

    path: str
    topics: tuple[str, ...]
    partitions: tuple[int, ...]
    form: str
    position_only: bool
    logs: Mapping[str, TieredLog] | None = None


class TierStep(NamedTuple):
    """The tier of an answer; *name*: remote or local.  The other fields are those of the remote segment.

    *chain*: how many remote segments are read, one after the other.
    """

    name: str
    segment_id: str | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    epoch: int | None = None
    chain: int = 0

    @property
    def text(self) -> str:
        """The step as a line of the trail."""
        if self.name == "local":
            return "tier      local"
        which = f"segment {self.segment_id} ({range_text(self.start_offset or 0, self.end_offset or 0)})"
        return f"tier      remote, {which}, epoch {self.epoch} → chain of {counted(self.chain, 'segment')}"

    @property
    def json(self) -> dict[str, object]:
        """The step as a member of the trail."""
        return {name: value for name, value in self._asdict().items() if name != "chain"}


def _tier_steps(asked: LookupArguments, partition: Partition) -> Callable[[Trail], TierStep | None]:
    """Return a function for the tier of an answer; it returns None without remote storage."""
    log = None if asked.logs is None else asked.logs.get(partition.path)
    parts = () if log is None else log.parts(without_local=True)
    segments = {one.segment.start_offset: one.segment for one in parts}
    chain = 0 if log is None else len(log.parts())

    def step(trail: Trail) -> TierStep | None:
        if asked.logs is None or trail.segment is None:
            return None
        if remote_object(partition.file(trail.segment.file)) is None:
            return TierStep("local")
        segment = segments[trail.segment.base_offset]
        at = trail.target if trail.offset is None else trail.offset
        epoch = max((one.epoch for one in segment.epochs if one.start_offset <= at), default=None)
        return TierStep("remote", segment.segment_id, segment.start_offset, segment.end_offset, epoch, chain)

    return step


def look_up(asked: LookupArguments, target: int, by_time: bool) -> int:
    """Look up one offset or time (ms), and show the trail; return the exit code."""
    partition, segments = _resolve(asked)
    with Lookup(
        partition, segments, TrailDetail(origin=None if asked.form == "text" else _origin(partition))
    ) as lookup:
        target = max(LONG_MIN, min(target, LONG_MAX))
        trail = lookup.timestamp(target) if by_time else lookup.offset(target)
        if (due := _first_record(asked, lookup, trail)) is not None and due.offset is not None:
            output.error(f"the first record that is not earlier has offset {due.offset}: a broker does not find it")
        line = None if asked.form == "text" else _json_lines(asked, partition, lookup)(trail)
    if asked.position_only:
        for problem in trail.problems:
            output.error(problem)
        output.text("\n" if trail.position is None else f"{trail.position}\n")
        if not trail.found and trail.notes:
            output.note(f"{asked.path}: {trail.notes[0]}")
    elif line is None:
        if (step := _tier_steps(asked, partition)(trail)) is not None:
            output.lines([step.text], hang=_LABEL)
        output.lines(trail_lines(trail, output.width() if output.is_terminal() else None), hang=_LABEL)
        if trail.outcome is LookupOutcome.DAMAGED and asked.logs is None:
            output.lines(["", "next: look at its bytes", f"  {see_bytes(partition.path, offset=target)}"])
    elif asked.form == "jsonl":
        output.text(f"{line}\n")
    else:
        from json import loads

        output.emit_json(loads(line))
    return ExitCode.CLEAN if trail.found and not trail.problems else ExitCode.PROBLEMS_LEFT


def _first_record(asked: LookupArguments, lookup: Lookup, trail: Trail) -> Trail | None:
    """Return the first record at or after a time, if that is not a broker's answer over both tiers."""
    if asked.logs is None or not trail.by_time:
        return None
    due = lookup.first_record(trail.target)
    return None if due is None or due.offset == trail.offset else due


def look_up_many(asked: LookupArguments, file: str, by_time: bool) -> int:
    """Look up each number of *file* (-: stdin), and show a line for each in that order; return the exit code."""
    partition, segments = _resolve(asked)
    origin = None if asked.form == "text" else _origin(partition)
    wanted = TrailDetail(records=origin is not None, origin=origin, explains=False)
    told: set[str] = set()
    code, missing = ExitCode.CLEAN, 0
    with Lookup(partition, segments, wanted) as lookup:
        if origin is not None:
            line = _json_lines(asked, partition, lookup)
        else:
            line = _position if asked.position_only else _time_row if by_time else _row
        for targets in _numbers(file):
            lines = [""] * len(targets)
            for place, trail in lookup.many(targets, by_time):
                lines[place] = line(trail)
                missing += not trail.found
                if trail.problems or not trail.found:
                    code = ExitCode.PROBLEMS_LEFT
                    told.update(trail.problems)
            output.text("\n".join(lines) + "\n")
    for problem in sorted(told):
        output.error(problem)
    if missing and asked.position_only:
        output.note(f"{asked.path}: {missing} not found, an empty line for each")
    return code


def _json_lines(asked: LookupArguments, partition: Partition, lookup: Lookup) -> Callable[[Trail], str]:
    """Return a function that makes a line of JSON, without its end."""
    from json import dumps

    from klog_cli.views.lookup.json import Lines

    of, step_of = Lines(partition.topic, partition.number).of, _tier_steps(asked, partition)

    def with_tier(trail: Trail) -> str:
        step = step_of(trail)
        tier = "null" if step is None else dumps(step.json, separators=(",", ":"))
        line = f'{of(trail)[:-1]},"tier":{tier}'
        if not trail.by_time:
            return f"{line}}}"
        due = _first_record(asked, lookup, trail)
        record = None if due is None or due.record is None else due.record
        first = "null" if record is None else f'{{"offset":{record.offset},"timestamp":{record.timestamp}}}'
        return f'{line},"first_record":{first}}}'

    return of if asked.logs is None else with_tier


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
    from klog.data_dir.selection import KafkaFile, select_one

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
    # being moved or deleted (….log.deleted): its indexes have the same suffix
    names = {file.name for file in folder.files}
    beside = [found.name.name.replace(".log", f".{kind}", 1) for kind in ("index", "timeindex", "txnindex")]
    files = [name if name in names else None for name in beside]
    return folder, [SegmentFiles(found.name.offset, os.path.getsize(found.path), found.name.name, *files)]


def trail_lines(trail: Trail, columns: int | None) -> Iterator[str]:
    """Yield the lines, with the parts in brackets aligned, or below their lines if *columns* are too few."""
    steps = list(_steps(trail))
    width = max((columns_of(text) for _, text, remark in steps if remark), default=0)
    longest = _LABEL + width + 5 + max((len(remark) for _, _, remark in steps), default=0)
    for label, text, remark in steps:
        head = f"{faint(label)}{' ' * (_LABEL - len(label))}{text}"
        if remark and (columns is None or longest <= columns):
            yield f"{head}{' ' * (width - columns_of(text))}   {faint(f'({remark})')}"
            continue
        yield head
        if remark:
            yield f"{' ' * _LABEL}{faint(f'({remark})')}"


def _steps(trail: Trail) -> Iterator[tuple[str, str, str]]:
    """Yield for each step its label, its text and a remark (empty for none)."""
    yield from _segment(trail)
    yield from _time_index(trail)
    yield from _index(trail)
    scan, batch = trail.scan, trail.batch
    if scan is not None:
        to = (
            f": batch {range_text(batch.base_offset, batch.last_offset)} at {batch.position}"
            if batch
            else " to the end"
        )
        yield "scan", f"from position {scan.position}{to}", counted(scan.batches, "batch header") + " read"
    if batch is not None:
        crc = good("CRC holds") if batch.crc_holds else bad("CRC does not match")
        codec = "" if batch.codec == "none" else f", {batch.codec}"
        offsets = offsets_text(batch.base_offset, batch.last_offset)
        yield "batch", f"position {batch.position}, {counted(batch.size, 'byte')}, {offsets}{codec}, {crc}", ""
    if trail.record is not None:
        is_next = trail.outcome in (LookupOutcome.GAP, LookupOutcome.DAMAGED)
        yield "next" if is_next else "record", _record(trail.record), ""
    for number, note in enumerate(trail.notes):
        is_answer = number == 0 and trail.outcome is not LookupOutcome.RECORD
        yield "answer" if is_answer else "note", warning(note) if is_answer else note, ""
    for problem in trail.problems:
        yield "problem", bad(problem), ""


def _segment(trail: Trail) -> Iterator[tuple[str, str, str]]:
    found, time = trail.segment, trail.time_index
    if found is None:
        return
    count = counted(found.segments, "segment")
    following = "the last" if found.next_base_offset is None else f"next base {found.next_base_offset}"
    if time is not None:
        what = "modified" if time.by_mtime else "largest timestamp"
        text = f"{found.file}   {what} {output.time_text(time.largest)} ≥ {output.time_text(trail.target)}"
        yield "segment", text, f"{count}, the first so late"
        return
    between = "≤" if found.base_offset <= trail.target else ">"
    text = f"{found.file}   base {found.base_offset} {between} {trail.target}"
    text += ", the last" if found.next_base_offset is None else f" < {following}"
    yield "segment", text, f"{count}, floor search"


def _time_index(trail: Trail) -> Iterator[tuple[str, str, str]]:
    found = trail.time_index
    if found is None:
        return
    if found.slot is None:
        yield "time", _no_entry(found.file, found.entries) + f": offset {found.offset}", _probes(found)
        return
    entry = f"entry {found.slot} of {found.entries}: {output.time_text(found.timestamp)} → offset {found.offset}"
    yield "time", entry, _probes(found)


def _index(trail: Trail) -> Iterator[tuple[str, str, str]]:
    found, segment = trail.offset_index, trail.segment
    if found is None or segment is None:
        return
    if found.slot is None:
        yield "index", _no_entry(found.file, found.entries) + ": position 0", _probes(found)
        return
    relative = found.offset - segment.base_offset
    text = f"entry {found.slot} of {found.entries}: relative {relative} → offset {found.offset}"
    yield "index", f"{text}, position {found.position}", _probes(found)


def _no_entry(file: str | None, entries: int) -> str:
    if file is None:
        return "no file"
    if entries == 1:
        return "its entry is not used"
    return f"none of {entries} entries is used" if entries else "no entries"


def _probes(found: IndexTrail | TimeIndexTrail) -> str:
    if not found.probes:
        return ""
    warm = "" if found.warm_from is None else f", warm section from entry {found.warm_from}"
    return counted(found.probes, "probe") + warm


def _record(record: Record) -> str:
    key = "no key" if record.key is None else f"key {_quoted(record.key)}"
    value = "null" if record.value is None else counted(len(record.value), "byte")
    when = "no timestamp" if record.timestamp == -1 else output.time_text(record.timestamp)
    return f"offset {strong(str(record.offset))}, {key}, {value}, {when}"


def _quoted(key: bytes) -> str:
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    shown = f'"{text}"' if text.isprintable() and (text or not key) else f"hex:{key.hex()}"
    return shown if len(shown) <= _MOST_KEY else f"{shown[:_MOST_KEY]}… ({len(key)} bytes)"
