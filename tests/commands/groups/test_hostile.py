"""Names with any bytes, and logs of any length: the output stays one line a row, and memory stays small."""

from __future__ import annotations

import csv
import io
import json
import struct
from pathlib import Path

import pytest
from klog.commands.groups.group_details import GroupQuery, describe_groups

from tests.commands.serve.coordinator_logs import T, write_batches
from tests.conftest import run_klog
from tests.oracles.plain.encode import Record, batch

NAMES = (
    "</script>",
    'a,"b"',
    "line\nbreak\r",
    "\x1b[31mred\x00",
    "=1+1",
    "\u202eevil\u2028",
    "x" * 20_000,
    "日本",
    " ",
)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def commit(group: str, topic: str, number: int, offset: int, metadata: str) -> tuple[bytes, bytes]:
    key = b"\0\1" + text(group) + text(topic) + struct.pack(">i", number)
    return key, struct.pack(">hqi", 3, offset, 0) + text(metadata) + struct.pack(">q", T)


def member(group: str, name: str) -> tuple[bytes, bytes]:
    """A classic group with one member, all of whose strings are *name*, and an assignment that cannot be decoded."""
    head = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", 1) + text(name) * 2 + struct.pack(">qi", T, 1)
    of_bytes = struct.pack(">i", 3) + b"\0\xff\xff"
    return b"\0\2" + text(group), head + text(name) * 4 + struct.pack(">ii", 1, 1) + of_bytes * 2


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    rows = [commit(name, name, i, i, name[:4000]) for i, name in enumerate(NAMES)]
    rows += [member(name, name) for name in NAMES]
    where = tmp_path / "data" / "__consumer_offsets-0"
    write_batches(where, *(batch([Record(i, T, *row)]) for i, row in enumerate(rows)))
    return tmp_path / "data"


def test_names_come_back_whole_from_json_and_csv(hostile: Path) -> None:
    done = run_klog("groups", hostile, "--output", "json")
    assert (done.exit_code, done.stderr) == (0, b"")
    found = {one["group"]: one for one in json.loads(done.stdout)["groups"]}
    assert set(found) == set(NAMES)
    for i, name in enumerate(NAMES):
        (row,) = found[name]["offsets"]
        assert (row["topic"], row["partition"], row["offset"], row["metadata"]) == (name, i, i, name[:4000])
        (one,) = found[name]["members"]
        assert (one["member_id"], one["instance_id"], one["client_id"], one["host"]) == (name,) * 4
        assert one["partitions"] == []
    done = run_klog("groups", hostile, "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode(), newline="")))
    assert [(row["group"], row["topic"], row["metadata"]) for row in rows] == [(n, n, n[:4000]) for n in sorted(NAMES)]


def test_text_has_no_control_characters(hostile: Path) -> None:
    shown = run_klog("groups", hostile).stdout.decode()
    assert not [char for char in shown if not char.isprintable() and char != "\n"]
    assert len(shown.splitlines()) == len(NAMES) * 5 + len(NAMES) - 1


def test_the_export_is_quoted(hostile: Path) -> None:
    done = run_klog("groups", hostile, "--output", "reset-offsets", "--to", "-", "--group", "a,*", "--group", "=*")
    assert list(csv.reader(io.StringIO(done.stdout.decode()))) == [
        ["=1+1", "=1+1", "4", "4"],
        ['a,"b"', 'a,"b"', "1", "1"],
    ]


def test_memory_is_that_of_the_groups_that_live(tmp_path: Path) -> None:
    """Ten thousand commits of one group, and as many groups that were deleted, leave one row."""
    import tracemalloc

    where, at = tmp_path / "data" / "__consumer_offsets-0", 0
    batches = []
    for i in range(10_000):
        key, value = commit("lives", "t", 0, i, "m" * 500)
        gone, other = commit(f"gone-{i}", "t", 0, i, "m" * 500)
        batches.append(
            batch([Record(at, T, key, value), Record(at + 1, T, gone, other), Record(at + 2, T, gone, None)])
        )
        at += 3
    write_batches(where, *batches)
    batches.clear()
    tracemalloc.start()
    found = describe_groups([str(tmp_path / "data")], GroupQuery())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None
    assert [(one.image.group, one.offsets[0].offset) for one in found] == [("lives", 9_999)]
    assert peak < 8 << 20, f"{peak} bytes for a log of {(where / f'{0:020}.log').stat().st_size}"
