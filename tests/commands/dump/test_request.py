"""The files of a dump: files themselves, directories by their content."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from klog.base.errors import KlogError, NotKafkaError, UsageError
from klog.base.read_only import ReadOnlyFile
from klog.commands.dump.dump_files import kind_of
from klog.commands.dump.dump_request import DumpRequest, DumpTarget, LogStyle, expand, with_surroundings
from klog.kernel import TEXT_BARE, TEXT_CONTENT, TEXT_RECORDS
from klog.log.records import RecordFilter

from tests.data_dir.test_log_dir import held
from tests.oracles.plain import encode
from tests.oracles.plain.encode import batch
from tests.oracles.plain.shapes import some_records


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir with orders-0, orders-10, orders-2 and payments-0, each of three segments with all their files."""
    root = tmp_path / "data"
    root.mkdir()
    (root / "meta.properties").write_bytes(b"version=1\nnode.id=1\ncluster.id=abc\n")
    for name in ("orders-10", "orders-2", "orders-0", "payments-0"):
        folder = root / name
        folder.mkdir()
        for base in (0, 3, 6):
            (folder / f"{base:020}.log").write_bytes(batch(some_records(base)))
            (folder / f"{base:020}.index").write_bytes(b"")
            (folder / f"{base:020}.timeindex").write_bytes(b"")
        (folder / f"{6:020}.snapshot").write_bytes(encode.snapshot([]))
        (folder / f"{3:020}.txnindex").write_bytes(b"")
        (folder / f"{0:020}.log.deleted").write_bytes(b"left over")
        (folder / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    return root


def names(targets: list[DumpTarget], root: Path) -> list[str]:
    return [str(Path(target.path).relative_to(root)) for target in targets]


def expanded(
    paths: list[Path],
    *topics: str,
    numbers: tuple[int, ...] = (),
    indexes: bool = False,
    wanted: RecordFilter | None = None,
) -> list[DumpTarget]:
    return list(expand([str(path) for path in paths], topics, numbers, indexes, wanted or RecordFilter()))


def test_a_partition_gives_its_segments_in_order(log_dir: Path) -> None:
    assert names(expanded([log_dir / "orders-2"]), log_dir / "orders-2") == [f"{base:020}.log" for base in (0, 3, 6)]


def test_a_log_dir_gives_its_partitions_by_topic_and_number(log_dir: Path) -> None:
    found = names(expanded([log_dir]), log_dir)
    assert [name.split("/")[0] for name in found[::3]] == ["orders-0", "orders-2", "orders-10", "payments-0"]
    assert len(found) == 12


def test_topics_and_partitions_narrow_a_log_dir(log_dir: Path) -> None:
    for topics, numbers, folders in (
        (("orders",), (), ["orders-0", "orders-2", "orders-10"]),
        (("ord*", "pay*"), (0,), ["orders-0", "payments-0"]),
        ((), (2, 10), ["orders-2", "orders-10"]),
    ):
        found = names(expanded([log_dir], *topics, numbers=numbers), log_dir)
        assert [name.split("/")[0] for name in found[::3]] == folders


def test_files_are_taken_as_they_are_and_in_the_order_given(log_dir: Path) -> None:
    paths = [log_dir / "orders-2" / f"{3:020}.log", log_dir / "nowhere.log", log_dir / "orders-2" / f"{0:020}.index"]
    found = expanded(paths)
    assert [target.path for target in found] == [str(path) for path in paths]
    assert all(target.segments == () for target in found)


def test_with_indexes_each_segment_s_files_follow_it(log_dir: Path) -> None:
    found = names(expanded([log_dir / "orders-2"], indexes=True), log_dir / "orders-2")
    assert found == [
        f"{0:020}.log", f"{0:020}.index", f"{0:020}.timeindex",
        f"{3:020}.log", f"{3:020}.index", f"{3:020}.timeindex", f"{3:020}.txnindex",
        f"{6:020}.log", f"{6:020}.index", f"{6:020}.timeindex", f"{6:020}.snapshot",
    ]  # fmt: skip


def test_the_newest_are_in_the_last_segment(log_dir: Path) -> None:
    found = names(expanded([log_dir], "orders", wanted=RecordFilter(tail=True)), log_dir)
    assert found == [f"{name}/{6:020}.log" for name in ("orders-0", "orders-2", "orders-10")]


def test_segments_outside_the_range_are_left_out(log_dir: Path) -> None:
    found = names(expanded([log_dir / "orders-2"], wanted=RecordFilter(3, 6)), log_dir / "orders-2")
    assert found == [f"{3:020}.log"]


def test_paths_and_topics_have_to_exist(log_dir: Path) -> None:
    (log_dir.parent / "empty").mkdir()
    with pytest.raises(UsageError):
        expanded([log_dir], "ordres")
    with pytest.raises(NotKafkaError):
        expanded([log_dir.parent / "empty"])


def test_nothing_is_open_in_a_dead_broker_s_directory(log_dir: Path) -> None:
    """Then an unfinished batch is damage."""
    assert not any(target.live for target in expanded([log_dir]))


def test_a_running_broker_writes_only_the_last_segment(log_dir: Path) -> None:
    """In any other, half a batch is damage that will not be completed."""
    (log_dir / ".lock").touch()
    with held(log_dir / ".lock"):
        live = [target.path for target in expanded([log_dir]) if target.live]
    last = f"{6:020}.log"
    assert [os.path.relpath(path, log_dir) for path in live] == [
        f"{name}/{last}" for name in ("orders-0", "orders-2", "orders-10", "payments-0")
    ]


def test_a_file_is_seen_among_its_partition_s_segments(log_dir: Path) -> None:
    target = with_surroundings(DumpTarget(str(log_dir / "orders-2" / f"{3:020}.log")))
    assert target.segment is not None
    assert target.segment.base_offset == 3
    assert [segment.base_offset for segment in target.segments] == [0, 3, 6]
    index = DumpTarget(str(log_dir / "orders-2" / f"{3:020}.index"))
    assert with_surroundings(index) == index


@pytest.mark.parametrize(
    ("directory", "origin"),
    [
        ("orders-3", ("orders", 3)),
        ("a-b-0", ("a-b", 0)),
        ("orders-3.0f8fad5bd9cb469fa16570867728950e-future", ("orders", 3)),
        ("data", (None, None)),
        ("orders-", (None, None)),
    ],
)
def test_a_file_s_directory_says_whose_it_is(directory: str, origin: tuple[object, object]) -> None:
    assert DumpTarget(f"/somewhere/{directory}/{0:020}.log").origin == origin


def test_the_current_directory_says_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders-3").mkdir()
    monkeypatch.chdir(tmp_path / "orders-3")
    assert DumpTarget(f"{0:020}.log").origin == ("orders", 3)
    assert DumpTarget(f"./{0:020}.log").origin == ("orders", 3)
    assert DumpTarget(f"{0:020}.log").directory == "."


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        ("00000000000000000000.log", None, "log"),
        ("00000000000000000000.index", None, "index"),
        ("00000000000000000000.timeindex", None, "timeindex"),
        ("00000000000000000000.txnindex", None, "txnindex"),
        ("00000000000000000000.snapshot", None, "snapshot"),
        ("00000000000000000312-0000000007.checkpoint", None, "checkpoint"),
        ("copy.log", "index", "log"),
        ("copy.bin", "index", "index"),
        ("copy", "log", "log"),
        ("copy.bin", None, None),
        ("log", None, None),
        ("x.LOG", None, None),
    ],
)
def test_a_file_is_what_its_name_says_else_what_it_is_said_to_be(
    name: str, kind: str | None, found: str | None
) -> None:
    assert kind_of(DumpTarget(f"/d/{name}"), DumpRequest(kind=kind)) == found


def test_styles_become_the_kernel_s_flags() -> None:
    assert LogStyle().flags == 0
    assert LogStyle(deep=True).flags == TEXT_RECORDS
    assert LogStyle(True, True, True).flags == TEXT_RECORDS | TEXT_CONTENT | TEXT_BARE


def test_a_link_to_nothing_is_no_directory(tmp_path: Path) -> None:
    """It is treated as a file, and the reader reports its fault."""
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert [target.path for target in expanded([tmp_path / "dangling"])] == [str(tmp_path / "dangling")]


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = expanded([tmp_path / "pipe"])
    with pytest.raises(KlogError, match="a FIFO"):
        ReadOnlyFile(found[0].path)
