"""Records as files, from many tasks: each record once, in its topic-partition's directory, whatever tasks do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from klog.base.errors import UsageError
from klog.jobs.export import MANIFEST
from klog.jobs.output_commit import RUN, OutputAttempt
from klog.jobs.output_files import folder
from klog.log.records import RecordFilter

from tests.conftest import FIXTURES, writable_copy
from tests.jobs.pieces import Export, bytes_of, dumped, folder_of, lines, names, partitions, parts_of, pieces_of, rows

LOG_DIRS = [FIXTURES / name for name in ("modern", "legacy", "v39/data")]


def split(*log_dirs: Path, split_bytes: int = 20_000) -> list[Any]:
    """Return pieces of a slice each."""
    return pieces_of([[part] for some in parts_of(partitions(*log_dirs), split_bytes) for part in some])


@pytest.mark.parametrize("log_dir", LOG_DIRS, ids=[path.name for path in LOG_DIRS])
def test_lines_are_those_of_a_dump(log_dir: Path, tmp_path: Path) -> None:
    manifest = Export(tmp_path / "out", split(log_dir), form="jsonl").run()
    expected = {one.directory: dumped(one) for one in partitions(log_dir)}
    written = {one.directory: lines(folder_of(tmp_path / "out", one)) for one in partitions(log_dir)}
    assert written == expected
    assert manifest["records"] == sum(map(len, expected.values())) > 100


@pytest.mark.parametrize("log_dir", LOG_DIRS, ids=[path.name for path in LOG_DIRS])
def test_tables_have_what_lines_have(log_dir: Path, tmp_path: Path) -> None:
    """Key, value, offset and time of each record, in the order of the log; topic and partition are the directories'."""
    Export(tmp_path / "out", split(log_dir)).run()
    for one in partitions(log_dir):
        found = rows(folder_of(tmp_path / "out", one))
        expected = dumped(one)
        assert [row["offset"] for row in found] == [line["offset"] for line in expected]
        assert [row["value"] for row in found] == [bytes_of(line, "value") for line in expected]
        assert [row["key"] for row in found] == [bytes_of(line, "key") for line in expected]
        assert [row["position"] for row in found] == [line["position"] for line in expected]
        assert not found or not {"topic", "partition"} & set(found[0])


def test_the_whole_is_read_as_one_table(tmp_path: Path) -> None:
    """As Spark reads it: partition columns from the names of directories, the manifest and hidden names not at all."""
    import pyarrow.dataset as ds

    manifest = Export(tmp_path / "out", split(LOG_DIRS[0])).run()
    table = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    assert table.num_rows == manifest["records"]
    assert set(table.column("topic").to_pylist()) == {file["topic"] for file in manifest["files"]}


def test_the_manifest_has_files_with_their_offsets_and_counts(tmp_path: Path) -> None:
    manifest = Export(tmp_path / "out", split(LOG_DIRS[0])).run()
    for file in manifest["files"]:
        found = pq.read_table(tmp_path / "out" / file["file"], partitioning=None)
        offsets = found.column("offset").to_pylist()
        assert (min(offsets), max(offsets)) == (file["first_offset"], file["last_offset"])
        assert found.num_rows == file["records"]
        assert os.path.basename(file["file"]).startswith(f"{file['first_offset']:020}-")


def test_files_end_where_they_are_large_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klog.log.arrow.ROW_GROUP_ROWS", 1)
    pieces = pieces_of(parts_of(partitions(LOG_DIRS[0])))
    large = Export(tmp_path / "large", pieces).run()
    small = Export(tmp_path / "small", pieces, file_bytes=1).run()
    assert len(small["files"]) > len(large["files"])
    assert small["records"] == large["records"]
    for one in partitions(LOG_DIRS[0]):
        assert rows(folder_of(tmp_path / "small", one)) == rows(folder_of(tmp_path / "large", one))


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_tasks_done_twice_killed_and_doubled_leave_one_file_set(form: str, tmp_path: Path) -> None:
    pieces = split(LOG_DIRS[0])
    assert len(pieces) > 20
    expected = Export(tmp_path / "expected", pieces, form=form).run()
    run = Export(tmp_path / "out", pieces, form=form)
    one, other = run.start(pieces[:9]), run.start(pieces[5:12])
    for task in (one, other, one, other, one, one):
        next(task)
    one.close()  # type: ignore[attr-defined]  # it is a generator
    left = OutputAttempt(run.output.run, 3)
    left.__enter__()  # of a worker that was shot
    for _ in other:
        pass
    again = Export(tmp_path / "out", pieces, form=form)
    assert again.output.done == {0, 1, 2, 3, *range(5, 12)}
    again.do(pieces[::-1])
    again.do(pieces[:3])
    assert again.finish() == expected
    assert names(tmp_path / "out") == names(tmp_path / "expected")


def test_other_slices_or_options_begin_anew(tmp_path: Path) -> None:
    pieces = split(LOG_DIRS[0])
    Export(tmp_path / "out", pieces).do(pieces[:2])
    assert Export(tmp_path / "out", pieces).output.done == {0, 1}
    assert Export(tmp_path / "out", pieces[1:]).output.done == frozenset()
    Export(tmp_path / "out", pieces[1:]).do(pieces[1:3])
    assert Export(tmp_path / "out", pieces[1:], form="jsonl").output.done == frozenset()


def test_a_finished_export_is_not_written_over(tmp_path: Path) -> None:
    pieces = split(LOG_DIRS[0])
    Export(tmp_path / "out", pieces).run()
    with pytest.raises(UsageError, match="exists, and is not an empty directory"):
        Export(tmp_path / "out", pieces)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_records_before_and_after_damage_are_there(form: str, tmp_path: Path) -> None:
    """A broken batch costs its own records and is reported; in lines it is in its place."""
    data = FIXTURES / "crash" / "flip-middle"
    found = partitions(data)
    manifest = Export(tmp_path / "out", pieces_of(parts_of(found)), form=form).run()
    expected = [line for one in found for line in dumped(one)]
    records = [line["offset"] for line in expected if "damage" not in line]
    damages = [line for line in expected if "damage" in line]
    assert damages
    read = [row for one in found for row in (lines if form == "jsonl" else rows)(folder_of(tmp_path / "out", one))]
    assert [row["offset"] for row in read if "damage" not in row] == records
    assert [(one["file"], one["position"]) for one in manifest["damage"]] == [
        (one["file"], one["position"]) for one in damages
    ]
    if form == "jsonl":
        assert read == expected


def test_what_vanished_shrank_or_cannot_be_read_is_told(tmp_path: Path) -> None:
    data = writable_copy(FIXTURES / "modern", tmp_path / "data")
    pieces = split(data)
    of_dense = sorted({piece.slices[0].path for piece in pieces if piece.slices[0].topic == "dense"})
    of_plain = sorted({piece.slices[0].path for piece in pieces if piece.slices[0].topic == "plain"})
    os.unlink(of_plain[0])
    size = os.path.getsize(of_dense[-1])
    os.truncate(of_dense[-1], size // 2)
    manifest = Export(tmp_path / "out", pieces).run()
    told = {one["file"] for one in manifest["damage"]}
    assert (
        {of_plain[0], of_dense[-1]}
        <= told
        <= {of_plain[0], of_dense[-1]}
        | {one["file"] for one in Export(tmp_path / "before", split(FIXTURES / "modern")).run()["damage"]}
    )
    assert any("the log ends here" in one["message"] for one in manifest["damage"])
    expected = dumped(next(one for one in partitions(data) if one.topic == "dense"))
    assert [row["offset"] for row in rows(tmp_path / "out/topic=dense/partition=0")] == [
        line["offset"] for line in expected if "damage" not in line
    ]


def test_a_full_disk_fails_the_task_and_leaves_no_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Export(tmp_path / "out", split(LOG_DIRS[0]), form="jsonl")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("klog.data_dir.disk.disk_changes.Disk.write", full)
        with pytest.raises(OSError, match="No space left"):
            run.do()
    assert names(tmp_path / "out") == [RUN]
    assert names(tmp_path / "out" / RUN) == ["job.json"]


def test_a_part_of_the_records_can_be_asked_for(tmp_path: Path) -> None:
    found = partitions(LOG_DIRS[0])
    manifest = Export(tmp_path / "out", pieces_of(parts_of(found)), form="jsonl", wanted=RecordFilter(5, 25)).run()
    expected = sum(5 <= line["offset"] < 25 for one in found for line in dumped(one))
    assert manifest["records"] == expected > 0


def test_committed_data_alone_is_exported(tmp_path: Path) -> None:
    """A read_committed consumer sees the same, though slices are read apart from each other's transactions."""
    found = partitions(LOG_DIRS[0])
    parts = parts_of(found, 10_000, "read_committed")
    Export(tmp_path / "out", pieces_of([[part] for some in parts for part in some]), form="jsonl").run()
    for one in found:
        assert lines(folder_of(tmp_path / "out", one)) == dumped(one, committed=True), one.directory


def test_directories_are_named_as_spark_names_them() -> None:
    null = "__HIVE_DEFAULT_PARTITION__"
    assert folder("orders", 3) == "topic=orders/partition=3"
    assert folder(None, None) == f"topic={null}/partition={null}"
    assert folder("a=b/%\udcff", 0) == "topic=a%3Db%2F%25%FF/partition=0"
    assert MANIFEST.startswith("_")
