"""The output of `klog space` as JSON, CSV, metrics or text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import ExitCode
from klog.commands.space.disk_usage import ContentQuery, DiskUsage, LogDirUsage, OtherUsage, SegmentUsage, SpaceSettings
from klog.commands.space.kept_reasons import RECLAIMABLE, Reason
from klog.commands.space.totals import SpaceTotals, Sum, add_up, sum_of
from klog.data_dir.disk.refused_outputs import check_output
from klog.data_dir.selection import PartitionQuery

from klog_cli import output
from klog_cli.views.prometheus import Metric, emit_metrics
from klog_cli.views.space.text import TextRequest, show, sort_key
from klog_cli.views.topic_settings import settings_json

if TYPE_CHECKING:
    from klog.tier.tier import Tier

    from klog_cli.views.space.answers import Answers
    from klog_cli.views.space.remote import RemoteSpace

MOST_TOPICS: Final = 10_000
"""The number of topics of a log dir with metrics of their own, the largest ones; the others are one, without a name."""


class SpaceRequest(NamedTuple):
    """The command line.  *by*, *sort*: None for the level and the order that suit the output.

    *tier*: remote storage; None for the log dirs alone.
    """

    query: PartitionQuery
    settings: SpaceSettings
    now_ms: int
    by: str | None
    sort: str | None
    to: str | None
    what_if: ContentQuery
    tier: Tier | None = None


Row = dict[str, object]
_NO_ANSWERS: Final[Row] = {"codecs": [], "compaction": [], "keys": [], "plan": [], "missing": None}


def space(asked: SpaceRequest, form: str) -> int:
    """Print what occupies the disk, and return the exit code.  Raises UsageError, UnreadableError."""
    if asked.to is not None:
        check_output(asked.to, asked.query.paths)
    usage = DiskUsage(asked.query, asked.settings, asked.now_ms)
    answers = _answers(usage, asked.what_if)
    remote = _remote(asked)
    if form == "text":
        _show(usage, answers, asked)
        if remote is not None:
            remote.show()
    elif form == "json":
        _emit_document(_document(usage, asked.sort, answers, remote))
    elif form == "prometheus":
        emit_metrics(_metrics(add_up(usage)), asked.to)
    else:
        _emit_rows(_with_remote(rows(usage, asked.by or "topic", asked.sort), remote), form)
    for problem in (*usage.problems, *usage.damage):
        output.error(problem)
    is_left = usage.damage or (answers is not None and answers.is_unmet)
    return (ExitCode.PROBLEMS_LEFT if is_left else ExitCode.CLEAN) | (
        ExitCode.OPERATIONAL_ERROR if usage.problems else ExitCode.CLEAN
    )


def _remote(asked: SpaceRequest) -> RemoteSpace | None:
    if asked.tier is None:
        return None
    from klog_cli.views.space.remote import RemoteSpace

    return RemoteSpace(asked.query, asked.tier)


def _with_remote(found: Iterable[Row], remote: RemoteSpace | None) -> Iterator[Row]:
    """Add the bytes in remote storage to rows of topics and partitions."""
    for row in found:
        size = None if remote is None else remote.of(row)
        yield row if size is None else {**row, "remote_bytes": size}


def _show(usage: DiskUsage, answers: Answers | None, asked: SpaceRequest) -> None:
    """Print the plan if one was requested, and the tree unless only a plan was."""
    is_plan = answers is not None and answers.plan is not None
    if answers is not None and answers.plan is not None:
        from klog_cli.views.space.answers import plan_lines

        *steps, verdict = plan_lines(answers.plan)
        output.lines(steps, hang=7)
        output.lines([verdict])
    if not is_plan or asked.by is not None:
        if is_plan:
            output.text("\n")
        show(usage, add_up(usage), TextRequest(asked.by or "topic", asked.sort or "bytes"))
    if answers is not None:
        answers.show()


def _answers(usage: DiskUsage, asked: ContentQuery) -> Answers | None:
    if not asked.is_asked:
        return None
    from klog_cli.views.space.answers import answer  # most runs do not read log content

    return answer(usage, asked)


# the document


def _document(
    usage: DiskUsage, sort: str | None, answers: Answers | None, remote: RemoteSpace | None
) -> Iterator[tuple[str, object]]:
    """Yield the members of the document; an iterator is a list that is never whole in memory."""
    totals = add_up(usage)
    yield "now", usage.now_ms
    yield "bytes", totals.all.bytes
    yield "disk_bytes", totals.all.disk_bytes
    yield "log_dirs", log_dir_rows(totals, sort)
    yield "topics", list(_with_remote(topic_rows(usage, totals, sort), remote))
    yield "segments", _segment_rows(usage, sort)
    yield "other", (_other(one) for one in usage.others())
    yield "reasons", in_words(totals.all)
    yield "imbalance", None if totals.imbalance is None else totals.imbalance._asdict()
    yield from (_NO_ANSWERS if answers is None else answers.members()).items()
    if remote is not None:
        yield "remote", remote.json()
    yield "problems", (*usage.problems, *usage.damage)


def _emit_document(members: Iterator[tuple[str, object]]) -> None:
    head = "{"
    for name, value in members:
        output.text(f"{head}\n  {json.dumps(name)}: ")
        head = ","
        if isinstance(value, Iterator):
            _emit_list(value)
        else:
            output.text(json.dumps(value, indent=2).replace("\n", "\n  "))
    output.text("\n}\n")


def _emit_list(values: Iterator[object]) -> None:
    buffer, size, head = ["["], 0, "\n    "
    for value in values:
        buffer.append(head + json.dumps(value))
        size, head = size + 1, ",\n    "
        if size == 1000:
            output.text("".join(buffer))
            buffer, size = [], 0
    buffer.append("\n  ]" if head[0] == "," else "]")
    output.text("".join(buffer))


def _emit_rows(found: Iterable[Row], form: str) -> None:
    if form == "jsonl":
        output.emit_jsonl(found)
        return
    header = None
    for row in found:
        cells = [json.dumps(cell) if isinstance(cell, dict) else cell for cell in row.values()]
        output.emit_csv(list(row) if header is None else None, cells)
        header = list(row)


# rows of each kind


def rows(usage: DiskUsage, by: str, sort: str | None) -> Iterable[Row]:
    """Return the rows of one level."""
    if by == "segment":
        return _segment_rows(usage, sort)
    if by == "partition":
        return _partition_rows(usage, sort)
    totals = add_up(usage)
    if by == "log-dir":
        return log_dir_rows(totals, sort)
    if by == "topic":
        return topic_rows(usage, totals, sort)
    return [{"reason": reason, "bytes": size} for reason, size in in_words(totals.all).items()]


def in_words(total: Sum) -> dict[str, int]:
    """Return the bytes by reason, in the order of the reasons."""
    return {reason.value: total.reasons[reason] for reason in Reason if reason in total.reasons}


def log_dir_rows(totals: SpaceTotals, sort: str | None) -> list[Row]:
    """Return a row for each log dir."""
    found = []
    for path, total in totals.log_dirs.items():
        system = totals.file_systems[path]
        row = {"path": path, "bytes": total.bytes, "disk_bytes": total.disk_bytes}
        free = {"free": system.free, "capacity": system.capacity} if system else {"free": None, "capacity": None}
        found.append((path, total, {**row, **free, "segments": total.segments, "reasons": in_words(total)}))
    return _sorted(found, sort)


def topic_rows(usage: DiskUsage, totals: SpaceTotals, sort: str | None) -> list[Row]:
    """Return a row for each topic."""
    homes: dict[str | None, LogDirUsage] = {}
    for log_dir in usage.log_dirs:
        for partition in log_dir.partitions:
            homes.setdefault(partition.partition.topic, log_dir)
    found = []
    for topic, total in totals.by_topic.items():
        row = {"topic": topic, **_sums(total), "partitions": total.partitions}
        settings = usage.rules_of(homes[topic], topic).settings
        found.append((topic or "", total, {**row, "settings": settings_json(settings)}))
    return _sorted(found, sort)


def _partition_rows(usage: DiskUsage, sort: str | None) -> list[Row]:
    found = []
    for log_dir in usage.log_dirs:
        for partition in log_dir.partitions:
            total = sum_of(usage, log_dir, partition)
            of = partition.partition
            where = {"topic": of.topic, "partition": of.number, "log_dir": log_dir.log_dir.path}
            found.append((of.directory, total, {**where, "directory": of.directory, **_sums(total)}))
    return _sorted(found, sort)


def _sums(total: Sum) -> Row:
    return {
        "bytes": total.bytes,
        "disk_bytes": total.disk_bytes,
        "segments": total.segments,
        "oldest": total.oldest,
        "due": total.due,
        "reasons": in_words(total),
    }


def _sorted(found: list[tuple[str, Sum, Row]], sort: str | None) -> list[Row]:
    if sort is not None:
        found.sort(key=lambda one: sort_key(sort, one[0], one[1].bytes, one[1].oldest))
    return [row for _, _, row in found]


def _segment_rows(usage: DiskUsage, sort: str | None) -> Iterator[Row]:
    segments: Iterable[SegmentUsage] = usage.segments()
    if sort is not None:
        segments = sorted(segments, key=lambda one: (*_segment_key(sort, one), one.base_offset))
    for one in segments:
        yield {**one._asdict(), "reason": one.reason.value}


def _segment_key(sort: str, one: SegmentUsage) -> tuple[object, ...]:
    return sort_key(sort, one.directory, one.bytes + one.index_bytes, one.last_timestamp)


def _other(one: OtherUsage) -> Row:
    return {**one._asdict(), "reason": None if one.reason is None else one.reason.value}


# metrics


def _metrics(totals: SpaceTotals) -> Iterator[Metric]:
    topics = list(_largest(totals))
    in_words = [({"log_dir": log_dir, "topic": topic}, total) for log_dir, topic, total in topics]
    yield Metric(
        "klog_bytes", "Bytes of a topic's logs and indexes.", [(labels, total.bytes) for labels, total in in_words]
    )
    yield Metric("klog_segments", "Segments of a topic.", [(labels, total.segments) for labels, total in in_words])
    yield Metric(
        "klog_reclaimable_bytes",
        "Bytes that a broker removes by itself, or that nobody needs.",
        [
            ({"log_dir": path, "reason": reason.value}, total.reasons.get(reason, 0))
            for path, total in totals.log_dirs.items()
            for reason in RECLAIMABLE
        ],
    )
    free = [({"log_dir": path}, one.free) for path, one in totals.file_systems.items() if one is not None]
    yield Metric("klog_log_dir_free_bytes", "Bytes that are free on the file system of a log dir.", free)


def _largest(totals: SpaceTotals) -> Iterator[tuple[str, str, Sum]]:
    """Yield the topics of each log dir, the smallest beyond `MOST_TOPICS` as one."""
    for path in totals.log_dirs:
        found = [(topic or "", total) for (log_dir, topic), total in totals.topics.items() if log_dir == path]
        found.sort(key=lambda one: (-one[1].bytes, one[0]))
        rest = Sum()
        for topic, total in found[:MOST_TOPICS]:
            yield path, topic, total
        for _, total in found[MOST_TOPICS:]:
            rest.add(total)
        if rest.partitions:
            yield path, "", rest
