"""`klog space` for people: a tree of log dirs, topics, partitions and segments, with bars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

from klog.base.errors import counted
from klog.commands.space.disk_usage import DiskUsage, LogDirUsage, PartitionUsage, SegmentUsage
from klog.commands.space.kept_reasons import Reason
from klog.commands.space.totals import SpaceTotals, Sum, sum_of

from klog_cli import output
from klog_cli.style import bad, faint, good, strong, warning
from klog_cli.views.finding_lines import explain_command

T = TypeVar("T")

_BAR: Final = 10
_MOST_REASONS: Final = 3
_MOST: Final = {"topic": 30, "partition": 12, "segment": 12}
_COLUMNS: Final = ("size", "share", "", "name", "due", "why")
WORDS: Final = {
    Reason.ACTIVE: "the segment that is written to",
    Reason.RETENTION_TIME: "not as old as retention.ms",
    Reason.RETENTION_SIZE: "within retention.bytes",
    Reason.RETENTION_DUE: "goes at a broker's next check",
    Reason.BEHIND: "due, but a segment before it is not",
    Reason.FUTURE_TIMESTAMP: "has a record that is dated later than now",
    Reason.UNLIMITED: "no retention",
    Reason.COMPACTED: "clean part of a compacted log",
    Reason.DIRTY: "will be cleaned",
    Reason.UNCLEANABLE: "the cleaner leaves it alone",
    Reason.OPEN_TRANSACTION: "an open transaction keeps the cleaner away",
    Reason.BELOW_LOG_START: "deleted records; goes at a broker's next check",
    Reason.DELETING: "of a deleted partition; a broker removes it",
    Reason.STRAY: "set aside by a broker; it is never removed",
    Reason.FUTURE: "copy of a partition that moves to this log dir",
    Reason.LEFTOVER: "of an unfinished operation",
    Reason.METADATA: "the cluster's metadata log",
    Reason.REMOTE: "local part of a log with remote storage",
}

_FULL, _NEARLY_FULL = 0.95, 0.85
_RECLAIMABLE: Final = {
    "can go at the next retention check": (Reason.RETENTION_DUE, Reason.BELOW_LOG_START),
    "of deleted partitions and unfinished operations": (Reason.DELETING, Reason.LEFTOVER),
    "in stray directories, which a broker never removes": (Reason.STRAY,),
}
_PINNED: Final = (Reason.FUTURE_TIMESTAMP, Reason.OPEN_TRANSACTION, Reason.UNCLEANABLE, Reason.STRAY)
"""The reasons that keep bytes longer than anybody planned."""


class TextRequest(NamedTuple):
    """*by*: the deepest level.  *sort*: the order of the rows."""

    by: str
    sort: str


class _Line(NamedTuple):
    name: str
    bytes: int
    why: str
    due: int | None
    is_heading: bool = False


def show(usage: DiskUsage, totals: SpaceTotals, asked: TextRequest) -> None:
    """Print the tree, or the reasons."""
    if asked.by == "reason":
        total = totals.all.reasons
        rows = [_Line(reason.value, total[reason], WORDS[reason], None) for reason in Reason if reason in total]
        rows.sort(key=lambda one: -one.bytes)
    else:
        rows = list(_tree(usage, totals, asked))
    whole = totals.all.bytes or 1
    output.emit_table(_titles(totals), _COLUMNS, [_cells(one, whole, usage.now_ms) for one in rows])
    if totals.all.reasons:
        output.lines(explain_command(reason.value for reason in Reason if reason in totals.all.reasons))


def _cells(one: _Line, whole: int, now_ms: int) -> tuple[str, ...]:
    due = ""
    if one.due is not None:
        due = good("now") if one.due <= now_ms else output.time_text(one.due)
    size = output.human_size(one.bytes)
    if one.is_heading:
        return size, "", "", strong(one.name), due, one.why
    bar = "#" * round(_BAR * one.bytes / whole)
    return size, f"{one.bytes / whole:.1%}", faint(bar) if bar else "", one.name, due, one.why


def _titles(totals: SpaceTotals) -> list[str]:
    total = totals.all
    log_dirs, segments = counted(len(totals.log_dirs), "log dir"), counted(total.segments, "segment")
    found = [
        _verdict(totals),
        f"{output.human_size(total.bytes)} in files, {output.human_size(total.disk_bytes)} on disk:"
        f" {log_dirs}, {counted(total.partitions, 'partition')}, {segments}",
    ]
    for path, system in totals.file_systems.items():
        if system is not None:
            free = f"{output.human_size(system.free)} of {output.human_size(system.capacity)} are free"
            found.append(f"{strong(path)}: {free}")
    uneven = totals.imbalance
    if uneven is not None and uneven.mean_bytes:
        shared = "; all are on one file system" if uneven.shared else ""
        found.append(
            f"the largest is {uneven.fullest} ({output.human_size(uneven.fullest_bytes)}), the smallest"
            f" {uneven.emptiest} ({output.human_size(uneven.emptiest_bytes)}): they differ by {uneven.spread:.0%} of"
            f" the mean{shared}"
        )
    return found


def _verdict(totals: SpaceTotals) -> str:
    """Return the use of the fullest disk, and the bytes that can go."""
    reasons = totals.all.reasons
    found = []
    for words, kinds in _RECLAIMABLE.items():
        size = sum(reasons.get(kind, 0) for kind in kinds)
        if size:
            found.append(f"{good(output.human_size(size))} {words}")
    can_go = ", ".join(found) or "nothing can go now"
    used = {
        path: 1 - system.free / system.capacity
        for path, system in totals.file_systems.items()
        if system is not None and system.capacity
    }
    if not used:
        return can_go
    fullest = max(used, key=lambda path: used[path])
    mark = bad if used[fullest] >= _FULL else warning if used[fullest] >= _NEARLY_FULL else str
    return f"the disk of {fullest} is {mark(f'{used[fullest]:.0%} full')}: {can_go}"


def _tree(usage: DiskUsage, totals: SpaceTotals, asked: TextRequest) -> Iterator[_Line]:
    """Yield the rows: log dirs are headings if they are not the requested level, and one alone has none."""
    for log_dir in usage.log_dirs:
        path = log_dir.log_dir.path
        here = totals.log_dirs[path]
        if asked.by == "log-dir":
            yield _line(path, here)
            continue
        indent = "  " if len(usage.log_dirs) > 1 else ""
        if indent:
            yield _line(path, here)._replace(is_heading=True)
        topics = [(topic or "?", total, topic) for (where, topic), total in totals.topics.items() if where == path]
        shown, rest = _cut(topics, asked.sort, "topic")
        for name, total, topic in shown:
            yield _line(f"{indent}{name}", total)
            if asked.by != "topic":
                below = _partitions(usage, log_dir, topic, asked)
                yield from (one._replace(name=f"{indent}{one.name}") for one in below)
        yield from _more(indent, rest, "topic")
        others = here.bytes - sum(total.bytes for _, total, _ in topics)
        yield _Line(f"{indent}other files", others, "snapshots, checkpoints, and whatever is of no segment", None)


def _partitions(usage: DiskUsage, log_dir: LogDirUsage, topic: str | None, asked: TextRequest) -> Iterator[_Line]:
    found = [
        (one.partition.directory, sum_of(usage, log_dir, one), one)
        for one in log_dir.partitions
        if one.partition.topic == topic
    ]
    shown, rest = _cut(found, asked.sort, "partition")
    for name, total, partition in shown:
        yield _line(f"  {name}", total)
        if asked.by == "segment":
            yield from _segments(usage, log_dir, partition, asked.sort)
    yield from _more("  ", rest, "partition")


def _segments(usage: DiskUsage, log_dir: LogDirUsage, partition: PartitionUsage, sort: str) -> Iterator[_Line]:
    found = list[tuple[str, Sum, SegmentUsage]]()
    for segment in usage.segments_of(log_dir, partition):
        total = Sum()
        total.take(segment)
        found.append((f"{segment.base_offset:020d}", total, segment))
    shown, rest = _cut(found, sort, "segment")
    for name, total, segment in shown:
        why = _reason(segment.reason) + (f": {segment.because}" if segment.because else "")
        yield _Line(f"    {name}", total.bytes, why, segment.due)
    yield from _more("    ", rest, "segment")


def _line(name: str, total: Sum) -> _Line:
    reasons = sorted(total.reasons.items(), key=lambda one: -one[1])
    told = [f"{_reason(reason)} {output.human_size(size)}" for reason, size in reasons[:_MOST_REASONS]]
    return _Line(name, total.bytes, ", ".join([*told, *["…"][: len(reasons) > _MOST_REASONS]]), total.due)


def _reason(reason: Reason) -> str:
    return warning(reason.value) if reason in _PINNED else reason.value


def _cut(found: list[tuple[str, Sum, T]], sort: str, level: str) -> tuple[list[tuple[str, Sum, T]], list[Sum]]:
    """Return the shown part of a level, sorted, and the sums of the rest."""
    found.sort(key=lambda one: sort_key(sort, one[0], one[1].bytes, one[1].oldest))
    most = _MOST[level]
    return found[:most], [total for _, total, _ in found[most:]]


def _more(indent: str, rest: list[Sum], what: str) -> Iterator[_Line]:
    if rest:
        size = sum(one.bytes for one in rest)
        yield _Line(f"{indent}… {counted(len(rest), what)} more", size, "all of them with --output json", None)


def sort_key(sort: str, name: str, size: int, oldest: int | None) -> tuple[object, ...]:
    """Return the sort key of a row: the largest, the oldest or the alphabetically first one is the first."""
    if sort == "name":
        return (name,)
    if sort == "age":
        return (oldest is None, oldest or 0, name)
    return (-size, name)
