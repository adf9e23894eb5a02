"""A copy ends at its broker's end after its next start, and records that are lost by that can be rescued."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.change.plan.test_executor import end, other_process, said
from tests.oracles.plain.encode import Record, batch

Run = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("hasty")
BASES = (0, 20, 40)
END = 60
"""A log has three segments of 20 records, a batch for each record."""


def log(first: int, end: int) -> list[bytes]:
    return [batch([Record(offset, 1, b"k", b"value %d" % offset)]) for offset in range(first, end)]


class Disks:
    """The log dirs of several nodes; each has t-0 with the records of offsets 0 to 59."""

    def __init__(self, root: Path, nodes: int = 2) -> None:
        self.paths = {node: root / f"broker-{node}" for node in range(1, nodes + 1)}
        for node, path in self.paths.items():
            (path / "t-0").mkdir(parents=True)
            (path / "meta.properties").write_text(f"version=1\ncluster.id=x\nnode.id={node}\n")
            (path / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n")
            (path / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
            for base in BASES:
                (path / "t-0" / f"{base:020}.log").write_bytes(b"".join(log(base, base + 20)))
                (path / "t-0" / f"{base:020}.index").touch()
                (path / "t-0" / f"{base:020}.timeindex").touch()
            self.stop(node, clean=True)

    def stop(self, node: int, *, clean: bool, recovery_point: int = END) -> None:
        path = self.paths[node]
        (path / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {recovery_point}\n")
        (path / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {END}\n")
        marker = path / ".kafka_cleanshutdown"
        marker.write_text('{"version":0,"brokerEpoch":1}') if clean else marker.unlink(missing_ok=True)

    def segment(self, node: int, offset: int) -> Path:
        return self.paths[node] / "t-0" / f"{max(base for base in BASES if base <= offset):020}.log"

    def flip(self, node: int, offset: int) -> None:
        """Flip a bit in the batch of an offset."""
        path = self.segment(node, offset)
        content, at = bytearray(path.read_bytes()), 0
        while int.from_bytes(content[at : at + 8], "big") < offset:
            at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
        content[at + 70] ^= 4
        path.write_bytes(content)

    def tear(self, node: int, offset: int) -> None:
        """Leave half of the batch of an offset at the end of its segment."""
        base = max(base for base in BASES if base <= offset)
        self.segment(node, offset).write_bytes(b"".join([*log(base, offset), log(offset, offset + 1)[0][:30]]))

    def compared(self, klog: Run, code: int | None = 4) -> dict[str, Any]:
        done = klog("replicas", "diff", *self.paths.values(), "--output", "json")
        assert code is None or done.exit_code == code, (done.exit_code, done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)["partitions"][0]
        return found

    def rescued(self, klog: Run, leader: int) -> dict[int, list[int]]:
        """Return who holds what would be lost, by offset."""
        done = klog("replicas", "rescue", *self.paths.values(), "--if-leads", str(leader), "--to", "-")
        assert done.exit_code == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert all(row["value"] == f"value {row['offset']}" for row in rows)
        return {row["offset"]: row["held_by"] for row in rows}


def ends(found: Mapping[str, Any]) -> list[int]:
    return [copy["log_end"] for copy in found["copies"].values()]


FLIPS: Sequence[tuple[int, int, int]] = [
    # (damage at, recovery point, the end that a start leaves)
    (5, 0, 5),
    (5, 10, 5),
    (5, 19, 5),
    (5, 20, 60),
    (5, 45, 60),
    (25, 0, 25),
    (25, 10, 25),
    (25, 20, 25),
    (25, 35, 25),
    (25, 40, 60),
    (25, 60, 60),
    (50, 0, 50),
    (50, 30, 50),
    (50, 45, 50),
    (50, 60, 50),
    (50, 99, 50),
    (40, 60, 40),
    (59, 60, 59),
]


@pytest.mark.parametrize(("damage", "recovery_point", "end"), FLIPS)
def test_recovery_cuts_at_the_first_damage_behind_the_recovery_point(
    damage: int, recovery_point: int, end: int, klog: Run, tmp_path: Path
) -> None:
    """The segment of the recovery point is read from its beginning, also where that is the log end."""
    disks = Disks(tmp_path)
    disks.stop(1, clean=False, recovery_point=recovery_point)
    disks.flip(1, damage)
    found = disks.compared(klog)
    assert (found["verdict"], ends(found)) == ("damaged", [end, END])
    lost = [damage] if end == END else list(range(end, END))
    assert found["lost_if_leads"]["1"]["records"] == len(lost)
    assert found["lost_if_leads"]["2"]["records"] == 0
    assert found["copies"]["1"]["truncated_at_start"] == (end < END - 1)
    assert found["copies"]["2"]["cut_if_leads"] == {"1": end}
    assert list(disks.rescued(klog, 1)) == lost
    assert disks.rescued(klog, 2) == {}


def test_after_a_clean_stop_nothing_is_cut(klog: Run, tmp_path: Path) -> None:
    """A broker does not notice the batch; the records that it cannot serve are lost, and nothing else."""
    disks = Disks(tmp_path)
    disks.flip(1, 25)
    found = disks.compared(klog)
    assert (ends(found), found["lost_if_leads"]["1"]["ranges"]) == ([END, END], [[25, 25]])
    assert found["copies"]["1"]["truncated_at_start"] is False


@pytest.mark.parametrize("clean", [True, False])
def test_an_intact_log_is_equal_however_its_broker_stopped(clean: bool, klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    disks.stop(1, clean=clean, recovery_point=0)
    disks.stop(2, clean=clean)
    found = disks.compared(klog, 0)
    assert (found["verdict"], ends(found)) == ("same", [END, END])
    assert klog("replicas", "plan", *disks.paths.values()).exit_code == 0


@pytest.mark.parametrize(("at", "recovery_point", "end"), [(50, 60, 50), (30, 20, 30), (30, 40, 60)])
def test_a_torn_tail_is_cut_and_takes_the_later_segments_with_it(
    at: int, recovery_point: int, end: int, klog: Run, tmp_path: Path
) -> None:
    disks = Disks(tmp_path)
    disks.stop(1, clean=False, recovery_point=recovery_point)
    disks.tear(1, at)
    found = disks.compared(klog)
    assert ends(found) == [end, END]
    lost = range(30, 40) if end == END else range(end, END)
    assert disks.rescued(klog, 1) == {
        offset: [2] if end == END or offset < (at // 20 + 1) * 20 else [1, 2] for offset in lost
    }


@pytest.mark.parametrize("lack", ["head", "gap", "end"])
def test_a_damaged_batch_that_the_leader_lacks_is_named(lack: str, klog: Run, tmp_path: Path) -> None:
    """The end of the leader's log alone does not show that it has the records."""
    disks = Disks(tmp_path)
    offset = {"head": 5, "gap": 25, "end": 45}[lack]
    disks.flip(1, offset)
    segment = disks.segment(2, offset)
    for file in segment.parent.glob(f"{segment.stem}.*"):
        file.unlink()
    words = ("--if-leads", "2", "--to", "-")
    done = klog("replicas", "rescue", *disks.paths.values(), *words)
    assert done.exit_code == 4
    assert f"t-0: node 1: the batch at offset {offset} cannot be read" in done.stderr.decode()


def test_two_copies_that_are_damaged_in_different_places_save_each_other(klog: Run, tmp_path: Path) -> None:
    """Either of them, if it leads, loses what its own start removes."""
    disks = Disks(tmp_path)
    for node, damage in ((1, 25), (2, 45)):
        disks.stop(node, clean=False, recovery_point=0)
        disks.flip(node, damage)
    found = disks.compared(klog)
    assert ends(found) == [25, 45]
    assert {node: one["records"] for node, one in found["lost_if_leads"].items()} == {"1": 35, "2": 15}
    rescued = disks.rescued(klog, 1)
    assert (list(rescued), rescued[25], rescued[45], rescued[50]) == (list(range(25, 60)), [2], [1], [1, 2])
    # An intact batch behind the damage of the leader itself is lost as well.
    rescued = disks.rescued(klog, 2)
    assert (list(rescued), rescued[45], rescued[46]) == (list(range(45, 60)), [1], [1, 2])


def test_what_lies_only_behind_the_damage_of_one_copy_is_lost_whoever_leads(klog: Run, tmp_path: Path) -> None:
    """Salvage keeps it: so it is counted and rescued, and no plan fills the copies up without a word."""
    disks = Disks(tmp_path)
    disks.stop(1, clean=False, recovery_point=0)
    disks.flip(1, 25)
    for offset in (40,):
        for path in disks.segment(2, offset).parent.glob(f"{offset:020}.*"):
            path.unlink()
    disks.stop(2, clean=True, recovery_point=40)
    found = disks.compared(klog)
    assert ends(found) == [25, 40]
    assert list(disks.rescued(klog, 1)) == list(range(25, 60))
    assert disks.rescued(klog, 2) == {offset: [1] for offset in range(40, 60)}
    assert klog("replicas", "plan", *disks.paths.values(), "--repair", "--keep", "2").exit_code == 0
    done = klog("replicas", "plan", *disks.paths.values(), "--repair", "--keep", "2", "--output", "json")
    assert [loss["records"] for loss in json.loads(done.stdout)["losses"]] == [20]


@pytest.mark.parametrize("keep", [(), ("--keep", "longest"), ("--keep", "newest"), ("--keep", "2"), ("--keep", "1")])
def test_a_plan_gives_back_what_recovery_would_remove(keep: tuple[str, ...], klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    disks.stop(1, clean=False, recovery_point=0)
    disks.flip(1, 25)
    done = klog("replicas", "plan", *disks.paths.values(), *keep, "--repair", "--apply", "--output", "json")
    assert done.exit_code == 0, done.stdout
    assert json.loads(done.stdout)["losses"] == []
    found = disks.compared(klog, 0)
    assert (found["verdict"], ends(found)) == ("same", [END, END])


def test_a_broker_that_runs_has_no_marker_and_is_about_to_cut_nothing(klog: Run, tmp_path: Path) -> None:
    """It appends while its disk is read: new batches are not those that a start would remove."""
    disks = Disks(tmp_path)
    disks.stop(1, clean=False, recovery_point=0)
    process = other_process(disks.paths[1] / ".lock")
    assert said(process) == b"held"
    assert disks.compared(klog, 0)["verdict"] == "same"
    disks.flip(1, 25)
    found = disks.compared(klog)
    assert (ends(found), found["lost_if_leads"]["1"]["ranges"]) == ([END, END], [[25, 25]])
    end(process)
    assert disks.compared(klog)["lost_if_leads"]["1"]["records"] == 35


def test_copies_that_only_the_start_makes_equal_are_left(klog: Run, tmp_path: Path) -> None:
    """Nothing is to be changed, and records that only one disk has are removed: that is not equal."""
    disks = Disks(tmp_path)
    disks.stop(1, clean=False, recovery_point=0)
    disks.flip(1, 25)
    for path in (disks.paths[2] / "t-0").glob(f"{40:020}.*"):
        path.unlink()
    disks.segment(2, 20).write_bytes(b"".join(log(20, 25)))
    for keep in ("2", "longest"):
        done = klog("replicas", "plan", *disks.paths.values(), "--repair", "--keep", keep, "--output", "json")
        assert done.exit_code == 4
        reason = json.loads(done.stdout)["left"][0]["reason"]
        assert reason.startswith("the start of node 1 removes 34 records behind damage")


def test_an_unclean_copy_that_is_cut_is_no_longest_one(klog: Run, tmp_path: Path) -> None:
    """Before its start it is longer than the other one."""
    disks = Disks(tmp_path)
    disks.stop(1, clean=False, recovery_point=0)
    disks.flip(1, 25)
    disks.segment(2, 40).write_bytes(b"".join(log(40, 50)))
    done = klog("replicas", "plan", *disks.paths.values(), "--repair", "--keep", "longest", "--output", "json")
    assert json.loads(done.stdout)["copies"][0]["kept"] == 2
    assert [loss["records"] for loss in json.loads(done.stdout)["losses"]] == [10]


def test_the_table_says_what_a_start_removes(klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    disks.stop(1, clean=False, recovery_point=0)
    disks.flip(1, 25)
    table = klog("replicas", "diff", *disks.paths.values()).stdout.decode()
    assert "1 truncates its log at 25 when it starts, and removes what is behind that" in table
    rows = [line.split() for line in table.splitlines() if line.startswith("t-0 ")]
    assert rows == [["t-0", "1", "0–24", "e0", "35", "records"], ["t-0", "2", "0–59", "e0", "1", "nothing"]]


def test_a_copy_with_which_no_broker_starts_is_named(klog: Run, tmp_path: Path) -> None:
    disks = Disks(tmp_path)
    (disks.paths[1] / "t-0" / "leader-epoch-checkpoint").write_text("0\nx\n")
    found = disks.compared(klog)
    assert "leader-epoch-checkpoint" in found["copies"]["1"]["start_fails"]
    assert found["copies"]["2"]["start_fails"] is None
