"""The result of `klog stats`, as a table, JSON or CSV."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from contextlib import AbstractContextManager

from klog.base.errors import ExitCode
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import IdentityChoice, choose_identity
from klog.data_dir.selection import PartitionQuery, open_path, select
from klog.jobs.runner import Runner
from klog.jobs.stats import FrequentKey, LargeRecord, Stats, count_records
from klog.kernel import is_utf8

from klog_cli import output
from klog_cli.style import strong
from klog_cli.views.nothing_found import nothing_found

_COLUMNS = ("topic", "partition", "records", "bytes", "keys", "null keys", "null values", "codecs", "first", "last")
_SHOWN_KEYS = 3


def stats(
    query: PartitionQuery,
    choice: IdentityChoice,
    max_batch_bytes: int,
    form: str,
    runner: AbstractContextManager[Runner],
) -> int:
    """Count the records that *query* and *choice* select, and return the exit code."""
    partitions = _partitions(query, choice)
    with output.Results() as results, runner as running:
        found = count_records(partitions, max_batch_bytes, running, results)
    for line in (line for one in found for line in one.damage):
        output.plain(output.printable(line))
    if form == "json":
        output.emit_json([_json(one) for one in found])
    elif form == "jsonl":
        output.emit_jsonl(_json(one) for one in found)
    elif form == "csv":
        output.emit_csv_rows(map(_json, found), _FIELDS)
    elif found:
        _table(found)
    if not found:
        return nothing_found(f"no partition in {', '.join(query.paths)}")
    return ExitCode.PROBLEMS_LEFT if any(one.damages for one in found) else 0


def _partitions(query: PartitionQuery, choice: IdentityChoice) -> list[Partition]:
    """Return the selected partitions.  Raises UsageError for a path that is none of Kafka's."""
    found: list[Partition] = []
    for path in query.paths:
        thing = open_path(path)
        if isinstance(thing, LogDir):
            found += thing.partitions
        else:
            found.append(thing if isinstance(thing, Partition) else _refuse(path))
    found, sentence = choose_identity(found, choice)
    if sentence is not None:
        output.note(sentence)
    return select(found, query.topics, query.numbers) if query.topics or query.numbers else found


def _refuse(path: str) -> Partition:
    from klog.base.errors import UsageError

    raise UsageError(f"{path}: a file; name its partition directory")


_FIELDS = (
    *("topic", "partition", "records", "markers", "bytes", "keys", "null_keys", "null_values", "codecs"),
    *("first_timestamp", "last_timestamp", "first_offset", "last_offset"),
    *("top_keys", "largest_records", "damages", "path", "topic_id", "cluster_id"),
)
"""The members of a row, in the order of the contract."""


def _json(one: Stats) -> dict[str, object]:
    """Return *one* as the members of a JSON object."""
    return {
        **{name: getattr(one, name) for name in _FIELDS[:13]},
        "top_keys": [_key(key) for key in one.top_keys],
        "largest_records": [LargeRecord(*large)._asdict() for large in one.largest],
        "damages": one.damages,
        "path": one.path,
        "topic_id": one.topic_id,
        "cluster_id": one.cluster_id,
    }


def _key(key: FrequentKey) -> dict[str, object]:
    """Return a key as in a dump; `length` if only its start is known, `at_most` if the count may be too low."""
    facts = key_json(key.start)
    if key.length > len(key.start):
        facts["length"] = key.length
    facts["records"] = key.records
    return facts | ({"at_most": key.records + key.more} if key.more else {})


def key_json(start: bytes) -> dict[str, object]:
    """Return a key, or the start of one, as a member of a JSON object."""
    return {"key": start.decode()} if is_utf8(start) else {"key_base64": b64encode(start).decode()}


def _table(found: Sequence[Stats]) -> None:
    """Print a row for each of *found*, with their ids if the names are ambiguous."""
    named = {(one.topic, one.partition, one.topic_id, one.cluster_id) for one in found}
    if len({name[:2] for name in named}) == len(named):
        output.emit_table((), (*_COLUMNS, "top keys"), [_cells(one) for one in found])
    else:
        rows = [(*_cells(one), one.topic_id, one.cluster_id) for one in found]
        output.emit_table((), (*_COLUMNS, "top keys", "topic id", "cluster id"), rows)


def _cells(one: Stats) -> tuple[output.Cell, ...]:
    first, last = (
        output.time_text(time) if time is not None else None for time in (one.first_timestamp, one.last_timestamp)
    )
    keys = " ".join(
        f"{key.start.decode('utf-8', 'backslashreplace')}×{key.records}" for key in one.top_keys[:_SHOWN_KEYS]
    )
    counts = (one.records, output.human_size(one.bytes), one.keys, one.null_keys, one.null_values)
    return (
        None if one.topic is None else strong(one.topic),
        one.partition,
        *counts,
        " ".join(one.codecs),
        first,
        last,
        keys,
    )
