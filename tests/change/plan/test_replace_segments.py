"""Several segments become one: whenever it is interrupted, whoever starts then finds the old log or the new one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from klog.change.plan.executor import apply
from klog.change.plan.model import Plan
from klog.change.plan.undo import plan_undo, stage_undo
from klog.data_dir.disk.disk_changes import Disk
from klog.partition.verify.findings import Severity

from tests.oracles.broker_load import Loader, Outcome
from tests.oracles.plain.decode import Record
from tests.partition.verify.partitions import findings_in
from tests.support.merging import MERGES, NOW, Files, Merge, files_of, killed, only, plan_of, records, states, write
from tests.support.power import HastyDisk, Tree, copy_of, cut_everywhere, tree
from tests.support.samples import some_or_all

merges = pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)


@pytest.fixture
def memory() -> Iterator[Path]:
    """A directory in memory: brokers and power cuts wait for the disk, hundreds of times.  Backups lie beside it."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    (folder / "log-dir").mkdir()
    yield folder / "log-dir"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    with Loader() as one:
        yield one


class Started(NamedTuple):
    """The result of a broker's start: the records, the aborted transactions by file, and klog's findings."""

    records: list[Record]
    aborted: dict[str, bytes]
    problems: set[tuple[str, str]]


def started(loader: Loader, every: list[Files], directory: str, folder: Path) -> list[Started]:
    """Start a broker on each of these log dirs; as partitions of one, for that is one start."""
    topic = directory.rpartition("-")[0]
    for number, files in enumerate(every):
        write({name.replace(directory, f"{topic}-{number}"): content for name, content in files.items()}, folder)
    for path in folder.glob("*-checkpoint"):
        points = [line.split()[2] for line in path.read_text().splitlines()[2:]]
        lines = [f"{topic} {number} {point}" for number in range(len(every)) for point in points]
        path.write_text("".join(f"{line}\n" for line in ("0", len(lines), *lines)))
    assert loader.load(folder) == Outcome("ok")
    problems: list[set[tuple[str, str]]] = [set() for _ in every]
    for one in findings_in(folder):
        if one.severity is not Severity.NOTE:
            problems[int(str(one.partition))].add((one.id, one.file.partition("/")[2]))
    partitions = [folder / f"{topic}-{number}" for number in range(len(every))]
    return [Started(records(path), aborted(path), found) for path, found in zip(partitions, problems, strict=True)]


def aborted(partition: Path) -> dict[str, bytes]:
    """Return the entries of the transaction indexes; an empty index counts as none."""
    return {path.name: path.read_bytes() for path in partition.glob("*.txnindex") if path.stat().st_size}


def survived(loader: Loader, plan: Plan, merge: Merge, before: Files, folder: Path) -> list[str]:
    """Check the start of each intermediate state; return for each whose records it leaves."""
    every = started(loader, [state.files for state in states(plan, before)], merge.directory, folder)
    first, last = every[0], every[-1]
    shorter, longer = sorted((first.records, last.records), key=len)
    outcomes = []
    for found in every:
        offsets = [record.offset for record in found.records]
        assert offsets == sorted(set(offsets))
        problems = found.problems - first.problems - last.problems
        if found.records in (first.records, last.records):
            outcomes.append("first" if found[:2] == first[:2] else "last")
            assert found[:2] in (first[:2], last[:2])
            assert problems == set()
            continue
        # The dropped part may exist from some segment on: nothing must outlive its successor.
        assert any(found.records == _with_end(shorter, longer, base) for base in merge.bases[1:])
        assert {kind for kind, _ in problems} <= {"offset-gap", "sequence-gap"}
        # After an aborted transaction without its marker, consumers drop later commits of its producer.
        assert f"{merge.bases[0]:020}.txnindex" not in found.aborted
        outcomes.append("mixed")
    return outcomes


def _with_end(shorter: list[Record], longer: list[Record], base: int) -> list[Record]:
    return [one for one in shorter if one.offset < base] + [one for one in longer if one.offset >= base]


@pytest.mark.kafka
@merges
@pytest.mark.parametrize("stop", ["clean", "unclean"])
def test_a_broker_may_start_at_any_moment(loader: Loader, merge: Merge, stop: str, memory: Path) -> None:
    """The power goes, and whoever brings it back has never heard of klog: no record is lost, none is there twice."""
    data = only(merge.directory, memory / "data")
    if stop == "unclean":
        (data / ".kafka_cleanshutdown").unlink()
    plan = merge.plan(data, HastyDisk())
    before = files_of(data)
    for one, folder in ((plan, memory / "forwards"), (None, memory / "backwards")):
        if one is None:
            apply(plan, HastyDisk())
            one = plan_undo(plan, NOW)
            stage_undo(plan, one, HastyDisk())
        outcomes = survived(loader, one, merge, files_of(data), folder)
        assert outcomes == sorted(outcomes, key=["first", "mixed", "last"].index), "there is no way back"
        assert merge.overhang or "mixed" not in outcomes
    apply(one, HastyDisk())
    assert files_of(data) == before


@pytest.mark.kafka
def test_groups_of_a_log_follow_each_other(loader: Loader, memory: Path) -> None:
    """All of a log is compacted by one plan: of each group of segments a start finds the old ones or the new one."""
    data = only("idempotent-0", memory / "data")
    groups = [Merge("idempotent-0", bases, lambda one: one.base_offset % 4 == 0) for bases in ((0, 45, 80), (100, 130))]
    plan = plan_of(groups, data, HastyDisk())
    every = started(loader, [state.files for state in states(plan, files_of(data))], "idempotent-0", memory / "start")
    old, new = every[0].records, every[-1].records
    found = [old, _with_end(new, old, 100), new]
    outcomes = [found.index(one.records) for one in every]
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {0, 1, 2}
    before = tree(data)
    apply(plan, HastyDisk())
    undo(plan, HastyDisk())
    assert tree(data) == before


# power cuts and kills


@merges
def test_power_cut_in_the_middle_of_a_merge(merge: Merge, tmp_path: Path) -> None:
    """Always finished or untouched in the end, and taken back to the last modification time."""
    assert cut_everywhere(only(merge.directory, tmp_path / "original"), tmp_path, merge.repair, every=37) > 10


@pytest.mark.long
@merges
def test_power_cut_before_any_call_of_a_merge(merge: Merge, tmp_path: Path) -> None:
    assert cut_everywhere(only(merge.directory, tmp_path / "original"), tmp_path, merge.repair) > 300


def undo(plan: Plan, disk: Disk) -> Plan:
    """Take *plan* back; all is ready before *disk* is used."""
    back = plan_undo(plan, NOW)
    if back.actions:
        stage_undo(plan, back, HastyDisk())
        apply(back, disk)
    return back


@some_or_all
@merges
def test_what_is_half_done_is_taken_back(merge: Merge, memory: Path, every: int) -> None:
    """Whoever has second thoughts may have them at any moment."""
    original = only(merge.directory, memory / "original")
    for at in range(0, 1000, every):
        data = copy_of(original, memory / "run")
        before = without_lock(data)
        plan = merge.plan(data, HastyDisk())
        is_killed = killed(data, lambda disk, plan=plan: apply(plan, disk), at)
        undo(plan, HastyDisk())
        assert without_lock(data) == before, at
        if not is_killed:
            break
    assert at > 50


@merges
@pytest.mark.parametrize("at", [55, 75, 1000])
def test_half_an_undo_is_taken_back(merge: Merge, at: int, memory: Path) -> None:
    """A half-done plan is restored in the same way: it is as half done as it was."""
    original = only(merge.directory, memory / "original")
    for undo_at in range(5, 1000, 11):
        data = copy_of(original, memory / "run")
        before = without_lock(data)
        plan = merge.plan(data, HastyDisk())
        killed(data, lambda disk, plan=plan: apply(plan, disk), at)
        half = without_lock(data)
        back = plan_undo(plan, NOW)
        stage_undo(plan, back, HastyDisk())
        if not killed(data, lambda disk, back=back: apply(back, disk), undo_at):
            assert without_lock(data) == before
            break
        undo(back, HastyDisk())
        assert without_lock(data) == half, undo_at


def without_lock(data: Path) -> Tree:
    return {name: entry for name, entry in tree(data, directory_times=False).items() if name != ".lock"}
