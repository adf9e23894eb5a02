"""The order of changes: a broker that starts between two of them finds nothing that was not so before or will be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from klog.change.partition_plan.contents import Content, FileRange, StoredContent
from klog.change.partition_plan.desired_files import DesiredFiles, draft_changes
from klog.change.plan.draft import Draft
from klog.change.plan.staging import Staging
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.partition import Partition
from klog.log.bit_flips import Patch

CONTENT = b"a log of thirty bytes, no less"
FILES = [
    *(f"{base:020}{suffix}" for base in (0, 10, 20) for suffix in (".log", ".index", ".timeindex")),
    f"{20:020}.snapshot",
    f"{30:020}.snapshot",
    "leader-epoch-checkpoint",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "orders-3"
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_bytes(CONTENT)
    os.utime(folder / f"{0:020}.log", ns=(5, 7_000_000_001))
    return folder


def short(base: int, kind: str) -> str:
    return f"{base:020}.{kind}"


def draft_of(folder: Path, target: DesiredFiles) -> Draft:
    draft = Draft(str(folder.parent), 0, Staging(str(folder.parent.parent / "staged"), Disk()))
    draft_changes(draft, Partition(str(folder)), target)
    return draft


def changes(draft: Draft) -> list[str]:
    """Return each change as `do base.kind`, with the size of a cut."""
    found = []
    for action in draft.actions:
        base, _, kind = os.path.basename(action.file).partition(".")
        size = f" {action.after.size}" if action.do == "truncate" and action.after is not None else ""
        found.append(
            f"{action.do} {int(base)}.{kind}{size}"
            if base.isdecimal()
            else f"{action.do} {os.path.basename(action.file)}"
        )
    return found


def unchanged(*bases: int) -> tuple[dict[str, tuple[FileRange, ...]], dict[str, Content]]:
    """Return the expected content of unchanged segments."""
    logs = {short(base, "log"): (FileRange(short(base, "log"), 0, 30),) for base in bases}
    files = {
        short(base, kind): StoredContent(short(base, kind), 30) for base in bases for kind in ("index", "timeindex")
    }
    return logs, {**files}


def test_nothing_changes_where_all_stays(folder: Path) -> None:
    logs, files = unchanged(0, 10, 20)
    files |= {short(base, "snapshot"): StoredContent(short(base, "snapshot"), 30) for base in (20, 30)}
    assert draft_of(folder, DesiredFiles(logs, files)).actions == []


def test_segments_go_from_the_last_one_on_each_log_first(folder: Path) -> None:
    """The log thereby only becomes shorter, in whole segments; a snapshot is deleted when its successor exists."""
    logs, files = unchanged(0)
    logs[short(0, "log")] = (FileRange(short(0, "log"), 0, 12),)
    files |= {short(0, "index"): b"new", short(5, "snapshot"): b"state"}
    (folder / "leader-epoch-checkpoint.tmp").write_bytes(b"half")
    assert changes(draft_of(folder, DesiredFiles(logs, files, b"0\n0\n"))) == [
        *(f"remove {base}.{kind}" for base in (20, 10) for kind in ("log", "index", "timeindex")),
        "put 0.index",
        "truncate 0.log 12",
        "put 5.snapshot",
        "remove 20.snapshot",
        "remove 30.snapshot",
        "put leader-epoch-checkpoint",
        "remove leader-epoch-checkpoint.tmp",
    ]


@pytest.mark.parametrize("way", ["pieces", "a patch", "a middle"])
def test_a_log_with_other_bytes_comes_while_its_index_says_nothing(folder: Path, way: str) -> None:
    """An empty index is true of the old log and of the new one; the broker reads on from its end."""
    log = short(0, "log")
    pieces = {
        "pieces": (FileRange(log, 0, 10), FileRange(log, 20, 30)),
        "a patch": (FileRange(log, 0, 30),),
        "a middle": (FileRange(log, 5, 30),),
    }[way]
    logs, files = unchanged(0, 10, 20)
    logs[log] = pieces
    files |= {short(0, "index"): b"new", short(0, "timeindex"): b"times"}
    files |= {short(base, "snapshot"): StoredContent(short(base, "snapshot"), 30) for base in (20, 30)}
    patches = {log: (Patch(3, b"o", b"0", ""),)} if way == "a patch" else {}
    draft = draft_of(folder, DesiredFiles(logs, files, None, patches))
    assert changes(draft) == [
        "truncate 0.index 0",
        "truncate 0.timeindex 0",
        "put 0.log",
        "put 0.index",
        "put 0.timeindex",
    ]
    expected = bytearray(CONTENT)
    if way == "a patch":
        expected[3:4] = b"0"
    wanted = b"".join(expected[start:end] for _, start, end in pieces)
    staged = folder.parent.parent / "staged" / "orders-3" / log
    assert staged.read_bytes() == wanted
    put = draft.actions[2].after
    assert put is not None
    assert put.modified_ns == 7_000_000_001  # retention goes by it where a log has no timestamps


@pytest.mark.parametrize("times", [(5, 9), (9, 5)])
def test_a_log_of_two_is_as_old_as_the_newer_one(folder: Path, times: tuple[int, int]) -> None:
    """Retention goes by it where a log has no timestamps: no record becomes older than it was."""
    first, second = short(0, "log"), short(10, "log")
    for name, time_ns in zip((first, second), times, strict=True):
        os.utime(folder / name, ns=(time_ns, time_ns))
    logs, files = unchanged(20)
    logs[first] = (FileRange(first, 0, 30), FileRange(second, 0, 30))
    files |= {short(0, kind): b"new" for kind in ("index", "timeindex")}
    files |= {short(base, "snapshot"): StoredContent(short(base, "snapshot"), 30) for base in (20, 30)}
    puts = [one.after for one in draft_of(folder, DesiredFiles(logs, files)).actions if one.file.endswith("0.log")]
    assert [one.modified_ns for one in puts if one is not None] == [9]


def test_what_leaves_a_segment_is_there_before_it_is_cut_the_last_first(folder: Path) -> None:
    """The log keeps its end all the while, even if one of its segments is deleted."""
    log = short(10, "log")
    logs, files = unchanged(20)
    logs |= {
        short(0, "log"): (FileRange(short(0, "log"), 0, 10),),
        short(7, "log"): (FileRange(short(0, "log"), 10, 30),),
    }
    logs |= {
        short(11, "log"): (FileRange(log, 0, 10),),
        short(15, "log"): (FileRange(log, 10, 20), FileRange(log, 25, 30)),
    }
    files |= {short(base, "index"): b"new" for base in (0, 7, 11, 15)}
    files |= {short(base, "snapshot"): StoredContent(short(base, "snapshot"), 30) for base in (20, 30)}
    assert changes(draft_of(folder, DesiredFiles(logs, files))) == [
        *(f"put {base}.{kind}" for base in (15, 11, 7) for kind in ("log", "index")),
        *(f"remove 10.{kind}" for kind in ("log", "index", "timeindex")),
        "remove 0.timeindex",
        "put 0.index",
        "truncate 0.log 10",
    ]
    staged = folder.parent.parent / "staged" / "orders-3"
    assert (staged / short(15, "log")).read_bytes() == CONTENT[10:20] + CONTENT[25:]


def test_of_a_compaction_that_did_not_end_what_looks_finished_goes_first(folder: Path) -> None:
    """A broker takes a `.swap` for finished once no `.cleaned` is left that begins where it does, or before."""
    for name in ("log.swap", "log.cleaned", "index.cleaned", "log.deleted"):
        (folder / short(10, name)).write_bytes(CONTENT)
    logs, files = unchanged(0, 10, 20)
    files |= {short(base, "snapshot"): StoredContent(short(base, "snapshot"), 30) for base in (20, 30)}
    assert changes(draft_of(folder, DesiredFiles(logs, files))) == [
        "remove 10.log.swap",
        "remove 10.index.cleaned",
        "remove 10.log.cleaned",
        "remove 10.log.deleted",
    ]


def test_what_a_finished_compaction_has_left_is_taken_over_before_it_goes(folder: Path) -> None:
    """Under its new name first; the log of the rest is deleted first then, for alone it would replace all again."""
    for kind in ("log", "index", "timeindex"):
        (folder / short(0, f"{kind}.swap")).write_bytes(CONTENT[:20])
    os.utime(folder / short(0, "log.swap"), ns=(5, 9_000_000_009))
    logs, files = unchanged(10, 20)
    logs[short(0, "log")] = (FileRange(short(0, "log.swap"), 0, 20),)
    files |= {short(0, kind): StoredContent(short(0, f"{kind}.swap"), 20) for kind in ("index", "timeindex")}
    files |= {short(base, "snapshot"): StoredContent(short(base, "snapshot"), 30) for base in (20, 30)}
    draft = draft_of(folder, DesiredFiles(logs, files))
    put = draft.actions[2].after
    assert put is not None
    assert put.modified_ns == 9_000_000_009
    assert changes(draft) == [
        "truncate 0.index 0",
        "truncate 0.timeindex 0",
        "put 0.log",
        "put 0.index",
        "put 0.timeindex",
        "remove 0.log.swap",
        "remove 0.index.swap",
        "remove 0.timeindex.swap",
    ]
