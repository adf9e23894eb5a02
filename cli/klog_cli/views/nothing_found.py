"""The line on stderr of a command that found nothing: the conditions, and where klog looked."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from klog.base.errors import ExitCode, KlogError, counted
from klog.data_dir.partition import Partition
from klog.data_dir.selection import PartitionChoice, PartitionQuery, open_path, partitions_of, select
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.log.records import RecordFilter

from klog_cli import output
from klog_cli.display import time_text


def nothing_found(message: str) -> int:
    """Print that there is nothing, in one line that --quiet suppresses; return the exit code."""
    output.note(message)
    return ExitCode.PROBLEMS_LEFT


def named_or_counted(names: Sequence[str], noun: str = "partition") -> str:
    """Return the words for where klog looked: `in orders-3`, `in 14 partitions`."""
    return f"in {names[0]}" if len(names) == 1 else f"in {counted(len(names), noun)}"


def where(paths: Sequence[str], topics: Sequence[str] = (), numbers: Sequence[PartitionChoice] = ()) -> str:
    """Return the words for the partitions of *paths*: `in orders-3`, `in 14 partitions`."""
    found = [one for some in PartitionQuery(paths, topics, numbers).selections() for one in some.partitions]
    return named_or_counted([os.path.basename(os.path.abspath(one.directory)) for one in found])


class Conditions(NamedTuple):
    """Conditions on records, as the options of a command have them.

    *keys_from*: the file of more keys.  *header*: NAME or NAME=VALUE.  *noun*: record or batch.  *where*: those of
    --where.
    """

    wanted: RecordFilter = RecordFilter()
    keys: Sequence[str] = ()
    keys_from: str | None = None
    header: str | None = None
    regex: str | None = None
    is_committed: bool = False
    noun: str = "record"
    where: Sequence[str] = ()

    @property
    def words(self) -> str:
        """The conditions behind their noun: `record with key "zz" from offset 5`."""
        keys = [f'"{key}"' for key in self.keys] + [f"one of {self.keys_from}"] * bool(self.keys_from)
        parts = ["committed"] * self.is_committed + [self.noun]
        parts += [f"with key {' or '.join(keys)}"] if keys else []
        parts += [f'with header "{self.header}"'] if self.header is not None else []
        parts += [f'whose value matches "{self.regex}"'] if self.regex is not None else []
        parts += [f"where {' and '.join(self.where)}"] if self.where else []
        parts += _range(self.wanted.from_offset, self.wanted.to_offset, "from offset", "below offset", str)
        return " ".join(parts + _range(self.wanted.from_time, self.wanted.to_time, "since", "before", time_text))


def no_record_in(partitions: Sequence[Partition], conditions: Conditions, read: int | None = None) -> int:
    """Print that no record of *partitions* meets *conditions*, of so many that were *read*; return the exit code."""
    edge = _edge(partitions[0], conditions.wanted) if len(partitions) == 1 else None
    names = [os.path.basename(os.path.abspath(one.directory)) for one in partitions]
    told = "" if read is None else f" ({read:,} {'record' if read == 1 else 'records'} read)".replace(",", " ")
    return nothing_found(edge or f"no {conditions.words} {named_or_counted(names)}{told}")


def nothing_in(asked: PartitionQuery, conditions: Conditions) -> int:
    """Print that no record of the files or partitions that *asked* names meets *conditions*; return the exit code."""
    if not all(map(os.path.isdir, asked.paths)):
        return nothing_found(f"no {conditions.words} {named_or_counted(asked.paths, 'file')}")
    found = [one for path in asked.paths for one in partitions_of([open_path(path)])]
    return no_record_in(select(found, asked.topics, asked.numbers), conditions)


def _range(first: int, end: int, from_: str, below: str, shown: Callable[[int], str]) -> list[str]:
    """Return the words for a range whose end is exclusive; *from_* and *below*: the words for its two ends."""
    start = [] if first == LONG_MIN else [f"{from_} {shown(first)}"]
    stop = [] if end == LONG_MAX else [f"{below} {shown(end)}"]
    return [" and ".join(start + stop)] if start or stop else []


def _edge(partition: Partition, wanted: RecordFilter) -> str | None:
    """Return where the log ends or begins, if the requested offsets are all behind that."""
    name = os.path.basename(os.path.abspath(partition.directory))
    try:
        start, end = partition.log_start_offset, partition.log_end
    except KlogError:
        return None
    if end is not None and 0 <= end.offset <= wanted.from_offset:
        return f"{name} ends at {end.offset}"
    if start is not None and LONG_MIN < wanted.to_offset <= start and wanted.to_offset >= 0:
        return f"{name} begins at {start}"
    return None
