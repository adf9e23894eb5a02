"""`klog describe`: a log dir as rows of partitions, a partition as rows of segments, a file by its header facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from klog.base.errors import ExitCode, counted
from klog.cluster.metadata.topic_config import TopicConfig, topic_configs
from klog.commands.describe import (
    FileFacts,
    LogDirSummary,
    PartitionRow,
    PartitionSummary,
    SegmentRow,
    Value,
    describe_file,
    describe_log_dir,
    describe_partition,
)
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import KafkaFile, open_path, partitions_of, select
from klog.formats.follow_file import FollowFile
from klog.formats.names import ROOT_CHECKPOINTS, FileKind

from klog_cli import output
from klog_cli.style import faint, good, strong, warning

Facts = LogDirSummary | PartitionSummary | FileFacts
Row = dict[str, Value]

_LISTS = (FileKind.SNAPSHOT, FileKind.LEADER_EPOCHS, *ROOT_CHECKPOINTS)
"""Files that are nothing but a list, so that the list is their rows; of others two entries are shown as a sample."""

_SHORT = {
    "transactional": "txn",
    "idempotent": "idem",
    "log-append-time": "append-time",
    "delete-horizon": "horizon",
    "producer_id": "producer",
    "producer_epoch": "epoch",
    "last_sequence": "last seq",
    "offset_delta": "delta",
    "coordinator_epoch": "coord",
    "current_txn_first_offset": "txn from",
    "relative_offset": "relative",
    "last_stable_offset": "last stable",
    "leader_epoch": "epoch",
}
"""Names that in full would make tables wider than a terminal."""


def describe(
    paths: Sequence[str],
    topics: Sequence[str] = (),
    partitions: Sequence[int] = (),
    deep: bool = False,
    form: str = "text",
) -> int:
    """Describe each of *paths* and return the exit code.

    *topics* (names or globs) and *partitions* narrow log dirs; *form* is text, json, jsonl or csv.
    """
    opened = [open_path(path) for path in paths]
    every = partitions_of(one for one in opened if isinstance(one, LogDir))
    every += [found for found in opened if isinstance(found, Partition)]
    chosen = select(every, topics, partitions)
    known = set(chosen)
    wanted = [found for found in opened if not isinstance(found, Partition) or found in known]
    log_dirs = [one for one in wanted if isinstance(one, LogDir)]
    settings = dict(zip(log_dirs, topic_configs(log_dirs, {}), strict=True))
    described = [_describe(found, chosen, deep, settings) for found in wanted]
    if form == "json":
        values = [_as_object(facts) for facts in described]
        output.emit_json(values[0] if len(values) == 1 else values)
    elif form == "jsonl":
        output.emit_jsonl(row for facts in described for row in _rows(facts))
    elif form == "csv":
        _emit_csv([_rows(facts) for facts in described])
    else:
        for number, facts in enumerate(described):
            if number:
                output.emit_table([""], (), ())
            _show(facts)
    return ExitCode.OPERATIONAL_ERROR if any(_is_incomplete(facts) for facts in described) else 0


def _describe(
    found: LogDir | Partition | KafkaFile,
    chosen: Sequence[Partition],
    deep: bool,
    settings: Mapping[LogDir, TopicConfig],
) -> Facts:
    if isinstance(found, KafkaFile):
        return describe_file(found, deep)
    if isinstance(found, Partition):
        return describe_partition(found, deep)
    own = set(found.partitions)
    partitions = [partition for partition in chosen if partition in own]
    return describe_log_dir(found, partitions, settings=settings[found])


def _is_incomplete(facts: Facts) -> bool:
    if isinstance(facts, LogDirSummary):
        return any(row.incomplete for row in facts.partitions)
    return isinstance(facts, PartitionSummary) and (
        facts.row.incomplete or any(row.incomplete for row in facts.segments)
    )


# as data


def _as_row(facts: object, *left_out: str) -> Row:
    return {field.name: getattr(facts, field.name) for field in fields(facts) if field.name not in left_out}  # type: ignore[arg-type]


def _as_object(facts: Facts) -> dict[str, object]:
    if isinstance(facts, LogDirSummary):
        rows = [_as_row(row, "incomplete") for row in facts.partitions]
        head: dict[str, object] = {"kind": "log dir", **_as_row(facts, "partitions", "copy")}
        return head | {"copy": _copy_object(facts.copy), "partitions": rows}
    if isinstance(facts, PartitionSummary):
        segments = [_as_row(row, "incomplete") for row in facts.segments]
        head = {"kind": "partition", "path": facts.path}
        return head | _as_row(facts.row, "incomplete") | {"segment_list": segments}
    entries = [dict(zip(facts.columns, entry, strict=True)) for entry in facts.entries]
    return {**_file_head(facts), **_fact_row(facts), "rows": entries, "notes": facts.notes}


def _copy_object(copy: FollowFile | None) -> dict[str, object] | None:
    """Return the facts about the source cluster in a copy; of groups only their number."""
    if copy is None:
        return None
    topics = {name: {**topic._asdict(), "config": dict(topic.config)} for name, topic in copy.topics.items()}
    return {**copy._asdict(), "topics": topics, "groups": len(copy.groups)}


def _file_head(facts: FileFacts) -> Row:
    return {"kind": facts.kind.value, "path": facts.path, "stage": facts.stage, "bytes": facts.size}


def _fact_row(facts: FileFacts) -> Row:
    return {name: value for name, value in facts.facts.items() if name != "notes"}


def _rows(facts: Facts) -> list[Row]:
    """Return the objects that are one line each in jsonl or csv."""
    if isinstance(facts, LogDirSummary):
        return [_as_row(row, "incomplete") | {"log_dir": facts.path} for row in facts.partitions]
    if isinstance(facts, PartitionSummary):
        whose: Row = {"topic": facts.row.topic, "partition": facts.row.partition}
        return [whose | _as_row(row, "incomplete") for row in facts.segments]
    if facts.kind in _LISTS:
        return [dict(zip(facts.columns, entry, strict=True)) for entry in facts.entries]
    return [_file_head(facts) | _fact_row(facts) | {"notes": facts.notes}]


def _emit_csv(groups: Iterable[list[Row]]) -> None:
    """Write rows of the same columns below one header."""
    columns: tuple[str, ...] = ()
    for rows in groups:
        for row in rows:
            cells = [" ".join(value) if isinstance(value, tuple) else value for value in row.values()]
            output.emit_csv(tuple(row) if tuple(row) != columns else None, cells)
            columns = tuple(row)


# for people


def _show(facts: Facts) -> None:
    if isinstance(facts, LogDirSummary):
        _show_log_dir(facts)
    elif isinstance(facts, PartitionSummary):
        _show_partition(facts)
    else:
        _show_file(facts)


def _show_log_dir(facts: LogDirSummary) -> None:
    rows = facts.partitions
    segments, size = sum(row.segments for row in rows), sum(row.bytes for row in rows)
    shutdown = good("yes") if facts.clean_shutdown else warning("no")
    if facts.broker_epoch is not None:
        shutdown += f", broker epoch {facts.broker_epoch}"
    lock = {True: f"{warning('held')} by a running process", False: "free", None: "unknown"}[facts.locked]
    if facts.lock_pid:
        lock += f", pid {facts.lock_pid}"
    titles = _titles(
        ("log dir", strong(facts.path)),
        ("cluster id", facts.cluster_id),
        *_copy_titles(facts.copy),
        ("node id", facts.node_id),
        ("directory id", facts.directory_id),
        ("version", facts.version),
        ("metadata version", facts.metadata_version),
        ("clean shutdown", shutdown),
        ("lock", lock),
        ("holds", f"{counted(len(rows), 'partition')}, {counted(segments, 'segment')}, {output.human_size(size)}"),
        *(("note", note) for note in facts.notes),
    )
    columns = (
        *("partition", "segs", "size", "log start", "local start", "high wm", "end", "recovery", "cleaned"),
        *("epoch", "notes"),
    )
    table = [
        (
            strong(row.directory if row.state == "current" else f"{row.topic}-{row.partition}"),
            row.segments,
            output.human_size(row.bytes),
            row.log_start_offset,
            _local_start(row),
            row.high_watermark,
            row.log_end_offset,
            row.recovery_point,
            row.cleaner_offset,
            row.leader_epoch,
            warning("; ".join(row.notes)) if row.notes else "",
        )
        for row in rows
    ]
    _emit(titles, columns, table)
    ids = sorted({(row.topic, row.topic_id) for row in rows if row.topic is not None and row.topic_id is not None})
    if ids and facts.copy is not None:
        known = {name: _settings(topic.config) for name, topic in facts.copy.topics.items()}
        settings = [(topic, topic_id, known.get(topic or "", "")) for topic, topic_id in ids]
        output.emit_table([""], ("topic", "topic id", "settings"), settings)
    elif ids:
        output.emit_table([""], ("topic", "topic id"), ids)


def _remote_text(row: PartitionRow) -> str | None:
    """Return the segments in remote storage in words; None if there are none, or if that is not known."""
    if not row.remote_segments:
        return None
    end = "" if row.remote_end_offset is None else f", up to offset {row.remote_end_offset}"
    return f"{counted(row.remote_segments, 'segment')}, {output.human_size(row.remote_bytes or 0)}{end}"


def _local_start(row: PartitionRow) -> int | None:
    """Return the local log start offset if the log begins below it, in remote storage."""
    local, start = row.local_log_start_offset, row.log_start_offset
    return local if local is not None and start is not None and start < local else None


def _copy_titles(copy: FollowFile | None) -> list[tuple[str, Value]]:
    if copy is None:
        return []
    groups = f"offsets of {counted(len(copy.groups), 'group')}"
    return [("copy", f"of that cluster's partitions, from {copy.bootstrap}, as of {copy.updated}; {groups}")]


def _settings(config: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(config.items()))


def _show_partition(facts: PartitionSummary) -> None:
    row = facts.row
    unknown = any(segment.records is None and not segment.incomplete for segment in facts.segments)
    titles = _titles(
        ("partition", strong(facts.path)),
        ("topic", row.topic),
        ("number", row.partition),
        ("topic id", row.topic_id),
        ("log start", row.log_start_offset),
        ("local start", _local_start(row)),
        ("in remote storage", _remote_text(row)),
        ("high watermark", row.high_watermark),
        ("log end", row.log_end_offset),
        ("recovery point", row.recovery_point),
        ("cleaned up to", row.cleaner_offset),
        ("leader epoch", row.leader_epoch),
        ("holds", f"{counted(row.segments, 'segment')}, {output.human_size(row.bytes)}; times are UTC"),
        *(("note", note) for note in row.notes),
        *([("note", "only --deep counts the records in older formats")] if unknown else []),
    )
    columns = ("base", "last", "records", "size", "index", "first time", "last time", "codecs", "flags", "notes")
    _emit(titles, columns, [_segment_cells(segment) for segment in facts.segments])


def _segment_cells(row: SegmentRow) -> tuple[Value, ...]:
    return (
        row.base_offset,
        row.last_offset,
        row.records,
        output.human_size(row.bytes),
        row.index_entries,
        _time(row.first_timestamp),
        _time(row.last_timestamp),
        " ".join(row.codecs),
        " ".join(_SHORT.get(flag, flag) for flag in row.flags),
        warning("; ".join(row.notes)) if row.notes else "",
    )


def _emit(titles: list[str], columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> None:
    """Show a table without the columns in which no row has anything."""
    filled = [i for i in range(len(columns)) if any(row[i] not in (None, "") for row in rows)]
    output.emit_table(titles, [columns[i] for i in filled], [[row[i] for i in filled] for row in rows])


def _show_file(facts: FileFacts) -> None:
    kind = facts.kind.value + (f", {facts.stage.removeprefix('.')}" if facts.stage else "")
    titles = _titles(
        ("file", strong(facts.path)),
        ("kind", kind),
        ("size", _size(facts.size)),
        *((name.replace("_", " "), _readable(name, value)) for name, value in facts.facts.items()),
        *(("note", note) for note in facts.notes),
    )
    columns = tuple(_SHORT.get(name, name.replace("_", " ")) for name in facts.columns)
    rows = [
        tuple(_readable(name, value) for name, value in zip(facts.columns, entry, strict=True))
        for entry in facts.entries
    ]
    output.emit_table(titles, columns, rows)


def _size(size: int) -> str:
    """Return the size for people, and to the byte."""
    shown = output.human_size(size)
    return shown if size < 1024 else f"{shown} ({size} bytes)"


def _titles(*facts: tuple[str, Value]) -> list[str]:
    """Return the lines above a table: a name and a value each; unknown values are omitted."""
    known = [(name, value) for name, value in facts if value is not None]
    width = max(len(name) for name, _ in known) + 3
    return [
        f"{faint(name)}{' ' * (width - len(name))}{warning(str(value)) if name == 'note' else value}"
        for name, value in known
    ]


def _readable(name: str, value: Value) -> Value:
    if isinstance(value, tuple):
        return " ".join(value) or None
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _time(value) if name.endswith("timestamp") and isinstance(value, int) else value


def _time(timestamp: int | None) -> str | None:
    return None if timestamp is None or timestamp < 0 else output.time_text(timestamp)
