"""`klog metadata history`: from the path to the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klog.base.errors import ExitCode, UsageError, near_misses
from klog.cluster.metadata.change_history import (
    BrokerSubject,
    HistorySubject,
    MetadataChange,
    PartitionSubject,
    QuorumSubject,
    read_history,
)
from klog.cluster.metadata.metadata_directory import MetadataDirectory, open_metadata
from klog.cluster.metadata.metadata_replay import Problems

from klog_cli import output
from klog_cli.views.nothing_found import nothing_found

_WHEN = ("offset", "time")
_FACTS = ("offset", "epoch", "timestamp", "record", "changed", "reason")
_COLUMNS = {
    PartitionSubject: ("leader", "leader_epoch", "partition_epoch", "replicas", "isr", "elr"),
    BrokerSubject: ("epoch", "fenced", "shutting_down", "rack", "endpoints"),
    QuorumSubject: ("leader", "leader_epoch", "kraft_version", "voters"),
}


def history(
    path: str, partition: tuple[str, int] | None, broker: int | None, quorum: bool, start: int, form: str
) -> int:
    """Print the changes, and return the exit code.  Raises UsageError, UnreadableError, KlogError."""
    subject = _subject(partition, broker, quorum)
    directory = open_metadata(path)
    directory.check_content()
    problems = Problems()
    is_in_use = directory.log_dir is not None and bool(directory.log_dir.lock.held)
    change, shown = None, False
    kept = []
    for change in read_history(directory.partition, subject, problems, is_in_use):
        if change.offset < start:
            continue
        shown = True
        if form == "jsonl":
            output.emit_jsonl([_row(change, subject)])
        else:
            kept.append(change)
    rows = (_row(one, subject) for one in kept)
    for sentence in problems.sentences():
        output.error(sentence)
    if form == "json":
        output.emit_json_rows("changes", rows)
    elif form == "csv":
        output.emit_csv_rows(rows, _FACTS if change is None else tuple(_row(change, subject)))
    elif form == "text" and shown:
        _print(kept, subject)
    if not shown:
        why = (
            _unknown(directory, subject)
            if change is None
            else f"no change from offset {start}; the last is {change.offset}"
        )
        return nothing_found(f"{directory.partition.path}: {why}")
    return ExitCode.PROBLEMS_LEFT if problems.sentences(only_damage=True) else ExitCode.CLEAN


def _subject(partition: tuple[str, int] | None, broker: int | None, quorum: bool) -> HistorySubject:
    """Raises UsageError if it is not one of the three."""
    if (partition is not None) + (broker is not None) + quorum != 1:
        raise UsageError("give one of --partition TOPIC-N, --broker N and --quorum")
    if broker is not None:
        return BrokerSubject(broker)
    return QuorumSubject() if partition is None else PartitionSubject(*partition)


def _row(change: MetadataChange, subject: HistorySubject) -> dict[str, object]:
    """Return a line of JSON; a broker's own epoch is its `epoch`, and that of the quorum has its own field."""
    row: dict[str, object] = {
        "offset": change.offset,
        "epoch": change.epoch,
        "timestamp": change.timestamp,
        "record": change.record,
        "changed": change.changed,
        "reason": change.reason,
    }
    if isinstance(subject, BrokerSubject):
        row["quorum_epoch"] = change.epoch
    return {**row, **change.state}


def _unknown(directory: MetadataDirectory, subject: HistorySubject) -> str:
    if isinstance(subject, QuorumSubject):
        return "nothing about a quorum"
    state = directory.read().state
    if isinstance(subject, BrokerSubject):
        return f"no broker {subject.node}; known are {', '.join(map(str, sorted(state.cluster.brokers))) or 'none'}"
    assert isinstance(subject, PartitionSubject)
    topic_id = state.topics.ids.get(subject.topic)
    if topic_id is None:
        return f"no topic {subject.topic}{near_misses(subject.topic, state.topics.ids)}"
    numbers = sorted(state.topics.partitions[topic_id])
    return f"no partition {subject.topic}-{subject.number}; known are {_listed(numbers)}"


def _listed(numbers: Sequence[int]) -> str:
    if numbers == list(range(len(numbers))) and len(numbers) > 1:
        return output.range_text(0, numbers[-1])
    return ", ".join(map(str, numbers)) or "none"


def _print(changes: Sequence[MetadataChange], subject: HistorySubject) -> None:
    columns = _COLUMNS[type(subject)]
    ids = dict.fromkeys(str(change.state["topic_id"]) for change in changes if "topic_id" in change.state)
    shown = (*columns, "topic_id") if len(ids) > 1 else columns
    titles = [f"topic id {one}" for one in ids] if len(ids) == 1 else []
    header = (*_WHEN, *(name.replace("_", " ") for name in shown), "why")
    output.emit_table(titles, header, [tuple(_cells(change, shown)) for change in changes])


def _cells(change: MetadataChange, columns: Sequence[str]) -> Iterator[object]:
    yield change.offset
    yield output.time_text(change.timestamp) if change.timestamp >= 0 else None
    for name in columns:
        yield _cell(name, change.state.get(name))
    yield change.reason or change.record


def _cell(name: str, value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "leader" and value == -1:
        return "none"
    if isinstance(value, tuple | list):
        return ",".join(str(one["id"]) if isinstance(one, dict) else str(one) for one in value)
    return value
