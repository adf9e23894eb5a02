"""Copies that have changed: of a topic that was created again, or with a tail that their disk has lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.commands.follow.copy_dir import CopyDir

from tests.commands.follow.following import Following, batches
from tests.commands.follow.scripted import ScriptedCluster, end_of, of_fixture
from tests.commands.follow.test_histories import follow, log
from tests.conftest import Ran

Klog = Callable[..., Ran]
OLD, NEW = of_fixture("plain-2"), of_fixture("lz4-broker-0")
AGAIN = "B" * 21 + "A"


def ids(copy: Path) -> dict[str, str]:
    """Return the topic id of each directory."""
    return {path.parent.name: path.read_text().split()[-1] for path in sorted(copy.glob("*/partition.metadata"))}


def originals(ran: Ran) -> set[str]:
    """Return the partitions that the backups of a run have."""
    told: dict[str, Any] = json.loads(ran.stdout)
    return {one.name for backup in told["backups"] for one in (Path(backup) / "originals").iterdir() if one.is_dir()}


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_all_partitions_of_a_deleted_topic_go_to_the_backup(klog: Klog, tmp_path: Path, count: int) -> None:
    """Also those that the new one does not have."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": OLD, "calm": OLD}) as cluster:
        cluster.counts = {"orders": 3, "calm": 2}
        assert follow(klog, cluster, copy)[0].exit_code == 0
        cluster.ids["orders"], cluster.topics["orders"], cluster.counts["orders"] = AGAIN, NEW, count
        ran, _ = follow(klog, cluster, copy)
        assert ran.exit_code == 1, ran
        assert {name: one for name, one in ids(copy).items() if name.startswith("orders")} == {
            f"orders-{number}": AGAIN for number in range(count)
        }
        assert originals(ran) == {"orders-0", "orders-1", "orders-2"}
        assert {path.name for path in copy.glob("calm-*")} == {"calm-0", "calm-1"}
        ran, _ = follow(klog, cluster, copy)
        assert (ran.exit_code, ran.stderr) == (0, b"")
    assert klog("verify", copy, "--deep").exit_code == 0


@pytest.mark.parametrize("words", [("--partition", "0"), ("--topic", "order?", "--partition", "1")])
def test_partitions_that_are_not_asked_for_go_with_their_topic(klog: Klog, tmp_path: Path, words: tuple[str]) -> None:
    """One topic id is left, whichever partitions this run follows."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": OLD}) as cluster:
        cluster.counts = {"orders": 3}
        assert follow(klog, cluster, copy)[0].exit_code == 0
        cluster.ids["orders"], cluster.topics["orders"] = AGAIN, NEW
        ran, _ = follow(klog, cluster, copy, *words)
        assert ran.exit_code == 1, ran
        assert ids(copy) == {f"orders-{words[-1]}": AGAIN}
        assert originals(ran) == {"orders-0", "orders-1", "orders-2"}
        assert follow(klog, cluster, copy)[0].exit_code == 0
        assert set(ids(copy).values()) == {AGAIN}


def test_a_topic_that_this_run_does_not_follow_is_named(klog: Klog, tmp_path: Path) -> None:
    """Its old copy stays until a run follows it."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": OLD, "bills": OLD}) as cluster:
        assert follow(klog, cluster, copy)[0].exit_code == 0
        cluster.ids["orders"], cluster.topics["orders"] = AGAIN, NEW
        ran, _ = follow(klog, cluster, copy, "--topic", "bills")
        assert ran.exit_code == 0
        assert b"orders-0: the topic was created again" in ran.stderr
        assert b"the old copy stays" in ran.stderr
    assert batches(copy / "orders-0") == b"".join(OLD)


def test_a_copy_that_is_mixed_already_is_put_right(klog: Klog, tmp_path: Path) -> None:
    """Former versions left the partitions of the old topic beside those of the new one."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": OLD}) as cluster:
        cluster.counts = {"orders": 3}
        assert follow(klog, cluster, copy)[0].exit_code == 0
        mixed = tmp_path / "orders-2"
        shutil.copytree(copy / "orders-2", mixed)
        cluster.ids["orders"], cluster.counts["orders"] = AGAIN, 1
        assert follow(klog, cluster, copy)[0].exit_code == 1
        shutil.copytree(mixed, copy / "orders-2")
        (copy / "orders-1").mkdir()
        ran, _ = follow(klog, cluster, copy)
        assert (ran.exit_code, originals(ran)) == (1, {"orders-2"})
    assert {path.name for path in copy.glob("orders-*")} == {"orders-0"}


def test_a_topic_created_again_while_it_is_followed(tmp_path: Path) -> None:
    """--continuous drops deleted partitions, and continues with the others."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": OLD}) as cluster:
        cluster.counts = {"orders": 2}
        with Following(cluster.bootstrap, copy) as running:
            running.wait_for(rf"^orders-[01] append .* LEO={end_of(OLD[-1])}$", times=2)
            cluster.ids["orders"], cluster.topics["orders"], cluster.counts["orders"] = AGAIN, NEW, 1
            running.wait_for(rf"^orders-0 append .* LEO={end_of(NEW[-1])}$")
            running.wait_for("orders-1: the topic was created again", lambda one: one.said)
            assert running.end() == 1, running.said
            assert "the copy stays" not in running.said
    assert ids(copy) == {"orders-0": AGAIN}


# ---------------------------------------------------------------- a tail that is lost

LOG = log("orders", 0, 200)
SIZES = [len(one) for one in LOG]


def cut_to(size: int, *, flipped: bool = False, small: bool = False) -> Callable[[Path], None]:
    """Return what cuts the last log to so many bytes, or flips one there."""

    def harm(directory: Path) -> None:
        path = max(directory.glob("*.log"))
        data = bytearray(path.read_bytes())
        if flipped:
            data[size] ^= 0xFF
            path.write_bytes(data)
        else:
            path.write_bytes(data[:size])

    return harm


HARMS = {
    "within a batch": cut_to(sum(SIZES[:12]) + 40),
    "between batches": cut_to(sum(SIZES[:12])),
    "of a few bytes": cut_to(sum(SIZES) - 3),
    "to nothing": cut_to(0),
    "a flipped byte in the last batch": cut_to(sum(SIZES) - 5, flipped=True),
}


@pytest.mark.parametrize("segments", [(), ("--set", "segment.bytes=900")])
@pytest.mark.parametrize("case", HARMS)
def test_a_tail_that_the_disk_lost_is_fetched_again(
    klog: Klog, tmp_path: Path, case: str, segments: tuple[str, ...]
) -> None:
    """Below its recovery point; the cut part is kept, and exit code 1 reports a correction."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": LOG, "calm": LOG}) as cluster:
        assert follow(klog, cluster, copy, *segments)[0].exit_code == 0
        last = max((copy / "orders-0").glob("*.log"))
        if segments and "flipped" not in case:
            cut_to({"to nothing": 0, "between batches": SIZES[-1]}.get(case, 40))(copy / "orders-0")
        elif segments:
            cut_to(last.stat().st_size - 5, flipped=True)(copy / "orders-0")
        else:
            HARMS[case](copy / "orders-0")
        ran, rows = follow(klog, cluster, copy, *segments)
        assert ran.exit_code == 1, ran
        assert (
            b"below the offset 200 up to which it had been on the disk: the missing records are fetched again"
            in ran.stderr
        )
        assert rows["orders"]["cut"][0][1] == 199
        assert rows["calm"]["cut"] == []
        assert batches(copy / "orders-0") == b"".join(LOG)
        if "batches" not in case and "nothing" not in case:
            assert json.loads(ran.stdout)["backups"]
        ran, _ = follow(klog, cluster, copy, *segments)
        assert (ran.exit_code, ran.stderr) == (0, b"")
    assert klog("verify", copy, "--deep").exit_code == 0


@pytest.mark.parametrize("start", [130, 200])
def test_a_tail_that_the_leader_has_no_more_stays_for_recovery(klog: Klog, tmp_path: Path, start: int) -> None:
    """The records behind the cut may be the last copies: nothing is touched, and exit code 4 reports it."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": LOG, "calm": LOG}) as cluster:
        assert follow(klog, cluster, copy)[0].exit_code == 0
        HARMS["within a batch"](copy / "orders-0")
        before = {path: path.read_bytes() for path in (copy / "orders-0").iterdir()}
        cluster.topics["orders"] = [*LOG[start // 10 :], *log("more", 200, 220)]
        ran, rows = follow(klog, cluster, copy)
        assert ran.exit_code == 4, ran
        assert b"first: klog recover" in ran.stderr
        assert f"the leader's log starts at {start}".encode() in ran.stderr
        assert set(rows) == {"calm"}
    assert {path: path.read_bytes() for path in (copy / "orders-0").iterdir()} == before


def test_a_lost_tail_of_a_deleted_topic_goes_with_it(klog: Klog, tmp_path: Path) -> None:
    """The missing part is not requested; the present part is in the backup."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": LOG}) as cluster:
        assert follow(klog, cluster, copy)[0].exit_code == 0
        HARMS["within a batch"](copy / "orders-0")
        cluster.ids["orders"], cluster.topics["orders"] = AGAIN, NEW
        ran, _ = follow(klog, cluster, copy)
        assert ran.exit_code == 1, ran
    assert batches(copy / "orders-0") == b"".join(NEW)


def test_a_partition_is_removed_with_its_lines_in_checkpoints(tmp_path: Path, klog: Klog) -> None:
    """A line without a directory would be of a topic that comes later.  `klog undo` brings both back."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": OLD, "calm": OLD}) as cluster:
        assert follow(klog, cluster, copy)[0].exit_code == 0
    before = {path.name: path.read_bytes() for path in (copy / "orders-0").iterdir()}
    with CopyDir(str(copy)) as opened:
        backup = opened.remove("orders", 0)
        assert backup is not None
        assert opened.names() == [("calm", 0)]
    for path in copy.glob("*-offset-checkpoint"):
        assert "orders" not in path.read_text()
    assert klog("undo", backup, "--apply").exit_code == 0
    assert {path.name: path.read_bytes() for path in (copy / "orders-0").iterdir()} == before
    assert "orders 0 " in (copy / "recovery-point-offset-checkpoint").read_text()


def test_the_text_begins_with_whether_the_copy_has_caught_up(klog: Klog, tmp_path: Path) -> None:
    """Then a line for each partition that moved, and at the end the backup with the former copies."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": OLD, "calm": OLD}) as cluster:
        words = ("follow", cluster.bootstrap, "--to", copy)
        first = klog(*words).stdout.decode().splitlines()
        end = end_of(OLD[-1])
        assert first[0].startswith("caught up: 2 partitions of cluster ")
        assert " copied into 2 partitions" in first[0]
        assert first[1].startswith(f"calm-0    offsets 0–{end - 1}, {len(OLD)} batch")
        assert first[2].startswith(f"orders-0  offsets 0–{end - 1}, ")
        (again,) = klog(*words).stdout.decode().splitlines()
        assert again.startswith("caught up: 2 partitions of cluster ")
        assert again.endswith("; 0 B copied")
        cluster.ids["orders"], cluster.topics["orders"] = AGAIN, NEW
        verdict, moved, backup = klog(*words).stdout.decode().splitlines()
        assert " copied into 1 partition" in verdict
        assert moved.startswith(f"orders-0  offsets 0–{end_of(NEW[-1]) - 1}, ")
        assert Path(backup.removeprefix("backup: ")).is_dir()
