"""The output of `klog search`: matching records, and damage."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from klog.base.errors import ExitCode
from klog.data_dir.partition import Partition
from klog.jobs.runner import Runner, TaskResult
from klog.jobs.search import SearchQuery, search_partitions
from klog.jobs.search_hits import Excerpt
from klog.partition.transactions.isolation import Isolation

from klog_cli import output, schema_options
from klog_cli.control_characters import printable
from klog_cli.display import time_text
from klog_cli.layout import cut
from klog_cli.style import columns_of, faint, strong
from klog_cli.views.json_array import JsonArray
from klog_cli.views.nothing_found import Conditions, no_record_in

_VALUE_COLUMNS, _KEY_COLUMNS, _NAME_COLUMNS = 80, 40, 40
_LEAST_VALUE, _COLUMNS_WITH_TIME = 24, 80


class SearchJob(NamedTuple):
    """A search: *query*, at an *isolation*; *conditions*: the same in words; *form*: of the output."""

    query: SearchQuery
    isolation: Isolation
    conditions: Conditions
    form: str


def search(partitions: Sequence[Partition], job: SearchJob, runner: AbstractContextManager[Runner]) -> int:
    """Print the records that are found and return the exit code."""
    damages = read = 0
    with output.Results() as results, runner as running:
        lines = _FORMS[job.form](results, partitions, job.query.schemas is not None)
        lines.begin()

        def take(result: TaskResult) -> None:
            nonlocal damages, read
            if result.kind == "lines":
                lines.take(result.content)
            elif result.kind == "read":
                read += result.facts["records"]
            else:
                results.report(output.printable(result.facts["message"]))
                damages += 1

        search_partitions(partitions, job.query, job.isolation, running, results, take)
        lines.end()
    code = ExitCode.PROBLEMS_LEFT if damages else ExitCode.CLEAN
    code |= schema_options.tell_errors(job.query.schemas)
    if lines.found:
        return code
    return code | no_record_in(partitions, job.conditions, read)


class _Lines:
    """JSON lines, as they are."""

    def __init__(self, results: output.Results, partitions: Sequence[Partition], is_decoded: bool) -> None:
        self._results, self._partitions, self._is_decoded = results, partitions, is_decoded
        self.found = False

    def begin(self) -> None:
        """Write the text before the first record."""

    def take(self, content: bytes) -> None:
        """Write lines, which may begin and end within a line."""
        self.found = self.found or bool(content)
        self._results.write(content)

    def end(self) -> None:
        """Write the text behind the last record."""


class _Csv(_Lines):
    """CSV with a header."""

    def begin(self) -> None:
        from klog.commands.dump.log_lines import csv_header
        from klog.log.json_lines import LineStyle

        self._results.write(csv_header(LineStyle(csv=True, decoded=self._is_decoded)))


class _Json(_Lines):
    """One JSON document: the lines are members of an array."""

    def begin(self) -> None:
        self._array = JsonArray("records", self._results.write)

    def take(self, content: bytes) -> None:
        self.found = self.found or bool(content)
        self._array.take(content)

    def end(self) -> None:
        self._array.close()


class _Text(_Lines):
    """A line a record.  In a terminal it fits the width: the value is shortened, the place or the time is left out."""

    def begin(self) -> None:
        names = [f"{one.topic}-{one.number}" for one in self._partitions if one.topic is not None]
        self._columns = output.screen_columns()
        most = _NAME_COLUMNS if self._columns is None else self._columns // 6
        self._name_columns = min(max(map(len, names), default=0), most)

    def take(self, content: bytes) -> None:
        for line in content.splitlines():
            self.found = True
            self._results.write_line(self._line(json.loads(line)))

    def _line(self, hit: dict[str, Any]) -> str:
        head = f"{hit['partition']:{self._name_columns}}  {hit['offset']:>8}  "
        if self._columns is None or self._columns >= _COLUMNS_WITH_TIME:
            head += f"{time_text(hit['timestamp']) if hit['timestamp'] != -1 else '-':24}  "
        most = _KEY_COLUMNS if self._columns is None else min(_KEY_COLUMNS, (self._columns - columns_of(head)) // 2)
        key = _fitted(hit["key"], most) + "  "
        header = "" if hit["header"] is None else _fitted(hit["header"], most) + "  "
        place = f"{hit['file']}:{hit['position']}"
        room, used = _VALUE_COLUMNS, columns_of(head + key + header)
        if self._columns is not None:
            room = self._columns - used - len(place) - 2
            if room < _LEAST_VALUE:
                room, place = max(self._columns - used, 0), ""
        value = _fitted(hit["value"], room)
        return (f"{head}{key}{header}{value}" + (f"  {faint(place)}" if place else "")).rstrip(" ")


def _fitted(found: object, room: int) -> str:
    """Return an excerpt in at most *room* columns, with its hit marked, and shortened last."""
    if found is None:
        return faint("null")
    assert isinstance(found, list)
    before, hit, after = map(printable, Excerpt(*found))
    hit = cut(hit, room)
    left = room - columns_of(hit)
    before = cut(before[::-1], max(left - columns_of(after), left // 3))[::-1]
    return before + (strong(hit) if hit else "") + cut(after, left - columns_of(before))


_FORMS: dict[str, Callable[[output.Results, Sequence[Partition], bool], _Lines]] = {
    "text": _Text,
    "json": _Json,
    "jsonl": _Lines,
    "csv": _Csv,
}
