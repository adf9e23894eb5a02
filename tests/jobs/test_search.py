"""All matches are found, in the order of the logs, as a dump shows them, and nothing else."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from klog.base.errors import UsageError
from klog.jobs.export import ExportTask
from klog.jobs.runner import TaskResult
from klog.jobs.search import LineLimit, SearchQuery, compile_pattern, search
from klog.kernel import VALUES, KeySet
from klog.log.json_lines import LineStyle
from klog.log.records import RecordFilter

from tests.conftest import FIXTURES, writable_copy
from tests.jobs.pieces import bytes_of, dumped, partitions, parts_of, pieces_of
from tests.oracles.plain.encode import Record
from tests.support.lookup_logs import of_records, write_segment

Object = dict[str, Any]
MODERN = FIXTURES / "modern"


def split(log_dir: Path, split_bytes: int = 20_000) -> list[ExportTask]:
    return pieces_of([[part] for some in parts_of(partitions(log_dir), split_bytes) for part in some])


def answers(pieces: Sequence[ExportTask], query: SearchQuery, tasks: int = 3) -> list[TaskResult]:
    """Return the results of so many tasks, the last task first."""
    units = [pieces[at::tasks] for at in range(tasks)][::-1]
    return [answer for unit in units for answer in search(unit, query)]


def found(pieces: Sequence[ExportTask], query: SearchQuery, tasks: int = 3) -> list[Object]:
    """Return the objects found, without the name of the log that holds each: it is that of the piece."""
    limit = LineLimit(query.wanted.limit)
    every = [limit.cut(one) for one in sorted(answers(pieces, query, tasks), key=lambda one: one.number)]
    lines = [json.loads(line) for one in every if one.kind == "lines" for line in one.content.splitlines()]
    logs = {os.path.join(os.path.basename(os.path.dirname(log)), os.path.basename(log)) for log in logs_of(pieces)}
    assert all(line.pop("file") in logs for line in lines)
    return lines


def logs_of(pieces: Sequence[ExportTask]) -> set[str]:
    return {part.path for piece in pieces for part in piece.slices}


def expected(log_dir: Path, wanted: Callable[[Object], object]) -> list[Object]:
    return [line for one in partitions(log_dir) for line in dumped(one) if "damage" not in line and wanted(line)]


@pytest.mark.parametrize("log_dir", ["modern", "legacy", "v39/data"])
def test_everything_is_found_in_the_order_of_the_logs(log_dir: str) -> None:
    assert found(split(FIXTURES / log_dir), SearchQuery()) == expected(FIXTURES / log_dir, bool)


def test_keys_are_found() -> None:
    wanted = {"key-3", "key-17"}
    query = SearchQuery(RecordFilter(keys=KeySet([key.encode() for key in wanted])))
    assert found(split(MODERN), query) == expected(MODERN, lambda line: line.get("key") in wanted) != []


@pytest.mark.parametrize("pattern", [b'number":1[0-9],', b'^\\{"number":5,', b'"\\}$', b'j",?.*', b"nowhere at all"])
def test_values_are_found_by_regular_expression(pattern: bytes) -> None:
    """Each value by itself: anchors are its ends, and nothing is found across two of them."""

    def holds(line: Object) -> object:
        value = bytes_of(line, "value")
        return value is not None and re.search(pattern, value)

    assert found(split(MODERN), SearchQuery(RecordFilter(pattern=re.compile(pattern)))) == expected(MODERN, holds)


def headers_log(tmp_path: Path) -> Path:
    folder = tmp_path / "data/t-0"
    folder.mkdir(parents=True)
    (tmp_path / "data/meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    kinds: list[tuple[tuple[bytes, bytes | None], ...]] = [
        (),
        ((b"trace", b"abc"),),
        ((b"trace", b"abcd"), (b"trace", b"abc")),
        ((b"trac", b"abc"), (b"tracer", b"abc")),
        ((b"trace", None),),
        ((b"trace", b""), (b"", b"x")),
    ]
    records = [
        Record(at, 10**12, b"k", None if at % 7 == 0 else b"v", kinds[at % len(kinds)]) for at in range(len(kinds) * 20)
    ]
    write_segment(folder, 0, of_records([records[at : at + 8] for at in range(0, len(records), 8)], codec="zstd"))
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("header", "kinds"),
    [
        ((b"trace", None), {1, 2, 4, 5}),
        ((b"trace", b"abc"), {1, 2}),
        ((b"trace", b""), {5}),
        ((b"", None), {5}),
        ((b"trac", b"abc"), {3}),
        ((b"absent", None), set()),
    ],
)
def test_headers_are_found(header: tuple[bytes, bytes | None], kinds: set[int], tmp_path: Path) -> None:
    """The whole name and the whole value have to match; a null is a value of its own."""
    offsets = [line["offset"] for line in found(split(headers_log(tmp_path)), SearchQuery(RecordFilter(header=header)))]
    assert offsets == [at for at in range(120) if at % 6 in kinds]


def test_all_that_is_asked_for_has_to_hold(tmp_path: Path) -> None:
    query = SearchQuery(RecordFilter(10, 100, header=(b"trace", b"abc"), pattern=re.compile(b"v")))
    offsets = [line["offset"] for line in found(split(headers_log(tmp_path)), query)]
    assert offsets == [at for at in range(10, 100) if at % 6 in (1, 2) and at % 7]


@pytest.mark.parametrize("limit", [1, 7, 100, 10**6])
def test_of_many_the_first_are_given(limit: int) -> None:
    """The order is topic, partition and offset, however tasks ended; and no task reads on when it has enough."""
    every = expected(MODERN, bool)
    query = SearchQuery(RecordFilter(limit=limit))
    assert found(split(MODERN), query) == every[:limit]
    for one in answers(split(MODERN), query):
        assert one.content.count(b"\n") <= limit


def test_what_is_before_and_after_damage_is_found_and_damage_is_told() -> None:
    data = FIXTURES / "crash/flip-middle"
    assert found(split(data), SearchQuery()) == expected(data, bool)
    damages = [one.facts for one in answers(split(data), SearchQuery()) if one.kind == "damage"]
    lines = [line for one in partitions(data) for line in dumped(one) if "damage" in line]
    assert (
        [(one["file"], one["position"]) for one in damages] == [(one["file"], one["position"]) for one in lines] != []
    )


def test_a_vanished_log_is_told_and_the_others_are_searched(tmp_path: Path) -> None:
    data = writable_copy(MODERN, tmp_path / "data")
    pieces = split(data)
    gone = pieces[0].slices[0].path
    os.unlink(gone)
    told = [one for one in answers(pieces, SearchQuery()) if one.kind == "damage"]
    assert gone in {one.facts["file"] for one in told}
    assert found(pieces, SearchQuery()) == expected(data, bool)


def test_lines_may_be_huge_and_many(tmp_path: Path) -> None:
    """They are returned in parts of whole lines."""
    folder = tmp_path / "data/t-0"
    folder.mkdir(parents=True)
    (tmp_path / "data/meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    records = [Record(at, 10**12, b"k", b"\n" * (3 << 20) if at == 5 else b"v" * 100_000) for at in range(40)]
    write_segment(folder, 0, of_records([[one] for one in records]))
    query = SearchQuery(style=LineStyle())
    assert [line["value"] for line in found(split(tmp_path / "data"), query)] == [
        (one.value or b"").decode() for one in records
    ]
    of_one = [one for one in answers(split(tmp_path / "data", 1 << 30), query, 1) if one.kind == "lines"]
    assert len(of_one) >= 3
    assert all(one.content.endswith(b"}\n") for one in of_one)


def test_values_can_be_kept_back() -> None:
    query = SearchQuery(style=LineStyle(values=VALUES.index("none")))
    assert all("value" not in line for line in found(split(MODERN), query))


def test_a_query_can_be_sent() -> None:
    query = SearchQuery(RecordFilter(keys=KeySet([b"key-3"]), header=(b"h", None), pattern=re.compile(b"x")))
    again = pickle.loads(pickle.dumps(query))
    assert again[1:] == query[1:]
    assert (again.wanted.header, again.wanted.pattern) == (query.wanted.header, query.wanted.pattern)
    assert found(split(MODERN), SearchQuery(again.wanted._replace(header=None, pattern=None)))


@pytest.mark.parametrize("pattern", [b"(", b"[z-a]", b"a{99999999999999999999}", b"(?P<n>a)(?P<n>b)"])
def test_what_is_no_regular_expression_is_said_before_anything_is_read(pattern: bytes) -> None:
    with pytest.raises(UsageError, match="not a regular expression"):
        compile_pattern(pattern)
