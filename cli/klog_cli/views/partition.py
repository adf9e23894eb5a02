"""The output of `klog partition`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from io import BufferedReader
from itertools import chain, islice
from typing import NamedTuple

from klog.cluster.partitioners import Partitioner, json_lines_of, key_of, keys_in, partitioner, write_json_lines

from klog_cli import output
from klog_cli.style import strong
from klog_cli.views.stats import key_json

_STDIN = "-"
_RANDOM = "random"
_TABLE_ROWS = 1000
"""The rows of a table on a screen: the keys of a file may be without number."""


class PartitionRequest(NamedTuple):
    """*keys* and those of the lines of *keys_from* are in *form*; *names*: of the partitioners."""

    keys: Sequence[str]
    keys_from: str | None
    null: bool
    form: str
    partitions: int
    names: Sequence[str]

    @property
    def texts(self) -> list[bytes]:
        """The keys of the command line, as the system gave them."""
        return [os.fsencode(key) for key in self.keys]

    @property
    def source(self) -> str:
        """The name of the file in messages."""
        return "stdin" if self.keys_from == _STDIN else str(self.keys_from)


def show_partitions(request: PartitionRequest, form: str) -> int:
    """Print the partitions of the keys and return the exit code.  Raises UsageError, OSError."""
    chosen = [partitioner(name) for name in request.names]
    given = [key_of(text, request.form, "KEY") for text in request.texts]
    with ExitStack() as opened:
        file = _open(request.keys_from, opened)
        if form == "jsonl":
            _json_lines(request, chosen, file)
        else:
            from_file = keys_in(file, request.form, request.source) if file is not None else ()
            nulls = (None,) if request.null else ()
            keys = chain(given, nulls, from_file)
            if form == "text":
                _text(keys, chosen, request.partitions)
            elif form == "json":
                output.emit_json_rows("keys", _rows(keys, chosen, request.partitions))
            else:
                output.emit_csv_rows(_rows(keys, chosen, request.partitions))
    return 0


def _open(path: str | None, opened: ExitStack) -> BufferedReader | None:
    if path is None:
        return None
    return opened.enter_context(open(0 if path == _STDIN else path, "rb", closefd=path != _STDIN))


def _json_lines(request: PartitionRequest, chosen: Sequence[Partitioner], file: BufferedReader | None) -> None:
    lines = json_lines_of(chosen, request.partitions, request.form)
    with output.Results() as results:
        for text in request.texts:
            lines.put(text)
            results.write(lines.output())
            lines.flushed()
        if request.null:
            found = {one.name: one.partition(None, request.partitions) for one in chosen}
            whole = {"key": None, "partitions": request.partitions, "partition": found}
            results.write(json.dumps(whole, separators=(",", ":")).encode() + b"\n")
        if file is not None:
            write_json_lines(file, lines, request.form, request.source, results.write)


def _text(keys: Iterable[bytes | None], chosen: Sequence[Partitioner], partitions: int) -> None:
    """Print the number alone for one partitioner; for several a column each, and the key at the end of the line."""
    if len(chosen) == 1:
        for key in keys:
            output.text(f"{_number(chosen[0].partition(key, partitions))}\n")
        return
    if output.is_terminal():
        _tables(keys, chosen, partitions)
        return
    widths = [max(len(one.name), len(str(partitions)), len(_RANDOM)) for one in chosen]
    output.text(_row([one.name for one in chosen], widths, "key"))
    for key, found in _found(keys, chosen, partitions):
        output.text(_row(found, widths, _shown(key)))


def _tables(keys: Iterable[bytes | None], chosen: Sequence[Partitioner], partitions: int) -> None:
    """Print the keys for a screen, which has too few columns for all partitioners, so many in a table."""
    columns = ("key", *(one.name for one in chosen))
    cells = ((strong(_shown(key)), *found) for key, found in _found(keys, chosen, partitions))
    while rows := list(islice(cells, _TABLE_ROWS)):
        output.emit_table((), columns, rows)


def _rows(keys: Iterable[bytes | None], chosen: Sequence[Partitioner], partitions: int) -> Iterator[dict[str, object]]:
    for key in keys:
        facts = {"key": None} if key is None else key_json(key)
        yield {
            **facts,
            "partitions": partitions,
            "partition": {one.name: one.partition(key, partitions) for one in chosen},
        }


def _found(
    keys: Iterable[bytes | None], chosen: Sequence[Partitioner], partitions: int
) -> Iterator[tuple[bytes | None, list[str]]]:
    for key in keys:
        yield key, [_number(one.partition(key, partitions)) for one in chosen]


def _row(cells: Sequence[str], widths: Sequence[int], key: str) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) + f"  {key}\n"


def _number(partition: int | None) -> str:
    return _RANDOM if partition is None else str(partition)


def _shown(key: bytes | None) -> str:
    if key is None:
        return "(null)"
    return output.printable(key.decode("utf-8", "backslashreplace")) if key else "(empty)"
