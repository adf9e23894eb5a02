"""`klog replicas diff` and `rescue` as operators type them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.jobs.runner import FEWEST

from tests.conftest import FIXTURES, Ran
from tests.support.power import tree

Klog = Callable[..., Ran]
SPLIT = [str(FIXTURES / "replicas" / "split" / f"broker-{node}") for node in (1, 2, 3)]
BEHIND = [str(FIXTURES / "replicas" / "behind" / f"broker-{node}") for node in (1, 2, 3)]
METADATA = ("--metadata", str(FIXTURES / "replicas" / "split" / "controller-4"))
BEHIND_METADATA = ("--metadata", str(FIXTURES / "replicas" / "behind" / "controller-4"))


def document(ran: Ran) -> dict[str, object]:
    found: dict[str, object] = json.loads(ran.stdout)
    return found


def partition(ran: Ran, name: str) -> dict[str, object]:
    found = [one for one in json.loads(ran.stdout)["partitions"] if f"{one['topic']}-{one['partition']}" == name]
    assert len(found) == 1
    one: dict[str, object] = found[0]
    return one


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    """Copies of the three brokers' disks, to change."""
    return [Path(shutil.copytree(disk, tmp_path / Path(disk).name)) for disk in SPLIT]


def test_a_fork_in_full(klog: Klog) -> None:
    ran = klog("replicas", "diff", *SPLIT, *METADATA, "--output", "json")
    assert ran.exit_code == 4
    found = document(ran)
    assert found["summary"] == {"diverged": 3}
    one = partition(ran, "orders-0")
    assert (one["verdict"], one["common_prefix_end"], one["compacted"], one["unclean"]) == ("diverged", 31, False, True)
    assert (one["leader_if_all_back"], one["because"], one["acks_all_safe"]) == (3, "elr", False)
    copies = one["copies"]
    assert isinstance(copies, dict)
    assert {node: copy["log_end"] for node, copy in copies.items()} == {"1": 58, "2": 48, "3": 40}
    assert copies["2"]["epochs"] == [[0, 0, 30], [1, 31, 47]]
    assert copies["1"]["cut_if_leads"] == copies["1"]["first_difference"] == {"2": 31, "3": 31}
    assert {node: copy["only_here"] for node, copy in copies.items()} == {
        "1": [[31, 57]],
        "2": [[31, 47]],
        "3": [[31, 39]],
    }
    assert one["lost_if_leads"] == {
        "1": {"records": 26, "ranges": [[31, 47]], "committed_below": 26},
        "2": {"records": 36, "ranges": [[31, 57]], "committed_below": 36},
        "3": {"records": 44, "ranges": [[31, 57]], "committed_below": 44},
    }


def test_a_start_order_and_a_setting(klog: Klog) -> None:
    ran = klog("replicas", "diff", *SPLIT, *METADATA, "--up", "1 then 2,3", "--topic", "orders", "--output", "json")
    assert partition(ran, "orders-0")["what_if"] == {
        "up": [[1], [2, 3]],
        "set": {},
        "outcomes": [
            {
                "leader": 1,
                "because": "unclean",
                "log_end": 58,
                "cuts": {"2": 31, "3": 31},
                "lost": {"records": 26, "ranges": [[31, 47]]},
            }
        ],
    }
    clean = ("--set", "unclean.leader.election.enable=false")
    ran = klog("replicas", "diff", *SPLIT, *METADATA, *clean, "--topic", "orders", "--output", "json")
    what_if = partition(ran, "orders-0")["what_if"]
    assert isinstance(what_if, dict)
    assert what_if["set"] == {"unclean.leader.election.enable": "false"}
    assert [(one["leader"], one["because"]) for one in what_if["outcomes"]] == [(3, "elr")]
    down = klog("replicas", "diff", *SPLIT, *METADATA, *clean, "--up", "1", "--topic", "orders", "--output", "json")
    what_if = partition(down, "orders-0")["what_if"]
    assert isinstance(what_if, dict)
    assert [(one["leader"], one["because"]) for one in what_if["outcomes"]] == [(None, "none")]


def test_behind_is_safe_only_in_the_right_order(klog: Klog) -> None:
    ran = klog("replicas", "diff", *BEHIND, *BEHIND_METADATA, "--output", "json")
    one = partition(ran, "orders-0")
    assert (ran.exit_code, one["verdict"]) == (4, "behind")
    assert one["advice"]
    assert "start 1,2, then 3: nothing is lost" in str(one["advice"])


def test_equal_copies_are_one_line(klog: Klog, tmp_path: Path) -> None:
    for node in (1, 2, 3):
        target = tmp_path / f"b{node}"
        shutil.copytree(SPLIT[0], target)
        meta = target / "meta.properties"
        lines = [line for line in meta.read_text().splitlines() if not line.startswith(("node.id", "directory.id"))]
        meta.write_text("\n".join([*lines, f"node.id={node}", f"directory.id={node}{21 * 'A'}"]) + "\n")
    ran = klog("replicas", "diff", *sorted(tmp_path.iterdir()), "--quiet")
    assert (ran.exit_code, ran.stdout) == (0, b"3 partitions, all copies equal\n")


def test_nothing_is_touched(klog: Klog, disks: list[Path]) -> None:
    before = [tree(disk) for disk in disks]
    klog("replicas", "diff", *disks, *METADATA, "--deep")
    klog("replicas", "rescue", *disks, *METADATA, "--if-leads", "3", "--to", "-")
    assert [tree(disk) for disk in disks] == before


def test_without_metadata_nobody_is_named(klog: Klog) -> None:
    ran = klog("replicas", "diff", *SPLIT, "--output", "json")
    one = partition(ran, "orders-0")
    assert (one["leader_if_all_back"], one["because"], one["acks_all_safe"]) == (None, "no metadata", None)
    assert document(ran)["metadata"] is None
    assert b"it is not known who leads" in ran.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([SPLIT[0], SPLIT[0]], 8, b"the same directory"),
        ([SPLIT[0], BEHIND[1]], 8, b"disks of 2 clusters"),
        ([f"7={SPLIT[0]}"], 16, b"its meta.properties has node.id 1"),
        ([SPLIT[0], "--up", "1 then"], 16, b"expected nodes"),
        ([SPLIT[0], "--up", "1 then 9"], 16, b"no disk of node 9 is given"),
        ([SPLIT[0], "--up", "1 then 1"], 16, b"a node starts once"),
        ([SPLIT[0], "--set", "unclean.leader.election.enable"], 16, b"expected NAME=VALUE"),
        ([SPLIT[0], "--set", "no.such=1"], 16, b"an unknown setting"),
        ([SPLIT[0], "--metadata", BEHIND[0]], 16, b"no __cluster_metadata-0 here"),
        ([f"{SPLIT[0]}/orders-0"], 16, b"a DISK is a log dir"),
    ],
)
def test_what_is_refused(klog: Klog, words: list[str], code: int, message: bytes) -> None:
    ran = klog("replicas", "diff", *words)
    assert (ran.exit_code, ran.stdout) == (code, b"")
    assert message in ran.stderr


def test_a_disk_mounted_twice_is_no_replica(klog: Klog, disks: list[Path], tmp_path: Path) -> None:
    shutil.copytree(disks[0], tmp_path / "again")
    ran = klog("replicas", "diff", *disks, tmp_path / "again")
    assert ran.exit_code == 8
    assert b"both have directory id" in ran.stderr


def test_another_topic_of_the_same_name_is_not_compared(klog: Klog, disks: list[Path]) -> None:
    (disks[1] / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: PzrBv7lASuWmpPcXNQyJWg")
    ran = klog("replicas", "diff", *disks, *METADATA, "--output", "json")
    one = partition(ran, "orders-0")
    assert (ran.exit_code, one["verdict"], one["lost_if_leads"]) == (4, "incomparable", {})
    assert partition(ran, "pairs-0")["verdict"] == "diverged"


def test_a_topic_that_the_metadata_does_not_know_has_no_leader(klog: Klog, disks: list[Path]) -> None:
    for disk in disks:
        (disk / "orders-0").rename(disk / "unknown-0")
    ran = klog("replicas", "diff", *disks, *METADATA, "--topic", "unknown", "--output", "json")
    one = partition(ran, "unknown-0")
    assert (one["verdict"], one["leader_if_all_back"], one["because"]) == ("diverged", None, "no metadata")
    ran = klog("replicas", "diff", *disks, *METADATA, "--topic", "unknown")
    assert b"the metadata log does not know this partition" in ran.stdout


def test_epochs_that_do_not_fit_the_batches_are_said(klog: Klog, disks: list[Path]) -> None:
    """Then neither the cut nor the batches can be trusted.  A recovery takes the epochs from the batches again."""
    (disks[1] / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    said = b"leader epochs and batches do not agree"
    assert said not in klog("replicas", "diff", *disks, *METADATA, "--topic", "orders").stdout
    (disks[1] / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    assert said in klog("replicas", "diff", *disks, *METADATA, "--topic", "orders").stdout


def test_empty_checkpoints_are_no_obstacle(klog: Klog, disks: list[Path]) -> None:
    for disk in disks:
        for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
            (disk / name).write_bytes(b"")
    one = partition(klog("replicas", "diff", *disks, *METADATA, "--output", "json"), "orders-0")
    assert one["lost_if_leads"]["3"] == {"records": 44, "ranges": [[31, 57]], "committed_below": 0}  # type: ignore[index]


def test_a_missing_directory_and_a_torn_tail(klog: Klog, disks: list[Path]) -> None:
    shutil.rmtree(disks[0] / "orders-0")
    log = disks[1] / "orders-0" / "00000000000000000028.log"
    log.write_bytes(log.read_bytes()[:-9])
    one = partition(klog("replicas", "diff", *disks, *METADATA, "--output", "json"), "orders-0")
    assert (one["verdict"], one["missing"]) == ("diverged", [1])
    copies = one["copies"]
    assert isinstance(copies, dict)
    assert copies["2"]["bad_batches"] == []
    assert copies["2"]["log_end"] < 48


def test_jsonl_is_a_partition_a_line(klog: Klog) -> None:
    lines = klog("replicas", "diff", *SPLIT, *METADATA, "--output", "jsonl").stdout.splitlines()
    assert [json.loads(line)["topic"] for line in lines] == ["keyed", "orders", "pairs"]


def test_rescue_writes_both_sides_of_a_fork(klog: Klog, tmp_path: Path) -> None:
    target = tmp_path / "lost.jsonl"
    ran = klog("replicas", "rescue", *SPLIT, *METADATA, "--topic", "orders", "--if-leads", "3", "--to", target)
    assert ran.exit_code == 0
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert len(rows) == 44
    assert [(row["offset"], row["held_by"]) for row in rows[:3]] == [(31, [1]), (31, [2]), (32, [1])]
    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
    assert {row["committed"] for row in rows} == {True}
    dumped = klog("dump", f"{SPLIT[0]}/orders-0", "--output", "jsonl", "--from-offset", "31").stdout.splitlines()
    mine = [{key: value for key, value in row.items() if key not in ("committed", "held_by")} for row in rows]
    assert all(json.loads(line) in mine for line in dumped)


def test_nothing_to_rescue_is_said(klog: Klog) -> None:
    ran = klog("replicas", "rescue", *BEHIND, *BEHIND_METADATA, "--if-leads", "1", "--to", "-")
    assert (ran.exit_code, ran.stdout) == (0, b"")
    assert b"nothing would be lost" in ran.stderr


def test_rescue_needs_a_leader_and_writes_into_no_log_dir(klog: Klog, disks: list[Path]) -> None:
    assert klog("replicas", "rescue", *disks, "--to", "-").exit_code == 16
    assert klog("replicas", "rescue", *disks, "--if-leads", "9", "--to", "-").exit_code == 16
    before = tree(disks[0])
    assert klog("replicas", "rescue", *disks, "--if-leads", "1", "--to", disks[0] / "lost.jsonl").exit_code == 16
    assert tree(disks[0]) == before


def test_processes_find_what_one_finds(klog_process: Klog, tmp_path: Path) -> None:
    """Results are returned in their order, whole."""
    for disk in SPLIT:
        target = tmp_path / Path(disk).name
        shutil.copytree(disk, target)
        for number in range(FEWEST):
            shutil.copytree(target / "orders-0", target / f"many-{number}")
    words = ("replicas", "diff", *sorted(tmp_path.iterdir()), *METADATA, "--output", "json", "--jobs")
    one, three = (klog_process(*words, jobs) for jobs in ("1", "3"))
    assert one.exit_code == 4
    assert one == three
    words = (
        "replicas",
        "plan",
        *sorted(tmp_path.iterdir()),
        *METADATA,
        "--keep",
        "longest",
        "--output",
        "json",
        "--jobs",
    )
    ran = klog_process(*words, "3")
    assert ran.exit_code == 0
    made = {(one["topic"], one["partition"]): one for one in json.loads(ran.stdout)["copies"]}
    numbers = ("cut_to", "records_lost", "records_added", "bytes_copied")
    wanted = [[target[name] for name in numbers] for target in made["orders", 0]["targets"]]
    for number in range(FEWEST):
        same = made["many", number]
        assert [[target[name] for name in numbers] for target in same["targets"]] == wanted


def test_a_node_with_several_log_dirs(klog: Klog, disks: list[Path], tmp_path: Path) -> None:
    """Its content is that of all its log dirs; a partition in two of them is refused, as a broker refuses to start."""
    second = tmp_path / "second"
    second.mkdir()
    meta = (disks[0] / "meta.properties").read_text().splitlines()
    identity = [line for line in meta if not line.startswith("directory.id")]
    (second / "meta.properties").write_text("\n".join([*identity, f"directory.id=z{21 * 'A'}"]) + "\n")
    (disks[0] / "pairs-0").rename(second / "pairs-0")
    whole = klog("replicas", "diff", *disks, second, *METADATA, "--output", "json")
    one = partition(whole, "pairs-0")
    copies = one["copies"]
    assert isinstance(copies, dict)
    assert (one["verdict"], copies["1"]["log_end"], copies["1"]["directory_known"]) == ("diverged", 65, False)
    assert partition(klog("replicas", "diff", *disks, *METADATA, "--output", "json"), "pairs-0")["missing"] == [1]
    shutil.copytree(disks[0] / "orders-0", second / "orders-0")
    ran = klog("replicas", "diff", *disks, second, *METADATA)
    assert (ran.exit_code, ran.stdout) == (8, b"")
    assert b"node 1 has orders-0 twice" in ran.stderr


def test_a_disk_without_meta_properties_needs_its_node(klog: Klog, disks: list[Path]) -> None:
    (disks[2] / "meta.properties").unlink()
    ran = klog("replicas", "diff", *disks, *METADATA)
    assert (ran.exit_code, ran.stdout) == (16, b"")
    assert f"3={disks[2]}".encode() not in ran.stderr
    assert b"N=" in ran.stderr
    ran = klog("replicas", "diff", *disks[:2], f"3={disks[2]}", *METADATA, "--output", "json")
    assert partition(ran, "orders-0")["verdict"] == "diverged"  # by their topic ids


def test_directories_without_any_id_are_copies_only_by_name(klog: Klog, disks: list[Path]) -> None:
    for disk in disks:
        (disk / "meta.properties").unlink()
        for file in disk.glob("*/partition.metadata"):
            file.unlink()
    given = [f"{node}={disk}" for node, disk in enumerate(disks, 1)]
    ran = klog("replicas", "diff", *given, "--output", "json")
    assert (ran.exit_code, document(ran)["summary"]) == (4, {"incomparable": 3})
    ran = klog("replicas", "diff", *given, "--by-name", "--output", "json")
    assert document(ran)["summary"] == {"diverged": 3}


def test_what_a_plan_removes_is_rescued(klog: Klog, disks: list[Path], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    choices = ("--choose", "orders-0=2", "--topic", "orders")
    assert klog("replicas", "plan", *disks, *METADATA, *choices, "--save-plan", plan).exit_code == 0
    by_plan = klog("replicas", "rescue", *disks, *METADATA, "--plan", plan, "--to", "-")
    by_node = klog("replicas", "rescue", *disks, *METADATA, "--topic", "orders", "--if-leads", "2", "--to", "-")
    assert by_plan.exit_code == by_node.exit_code == 0
    assert by_plan.stdout == by_node.stdout
    assert by_plan.stdout.count(b"\n") == 36
    for content in (b"", b"[]", b'{"copies":[{"topic":1}]}', b"{", b"[" * 100_000):
        plan.write_bytes(content)
        ran = klog("replicas", "rescue", *disks, "--plan", plan, "--to", "-")
        assert (ran.exit_code, ran.stdout) == (16, b"")


def test_what_a_choice_leaves_out_is_said_once(klog: Klog, disks: list[Path]) -> None:
    cluster = document(klog("replicas", "diff", *disks, "--output", "json"))["cluster_id"]
    ran = klog("replicas", "diff", *disks, BEHIND[0], "--cluster", cluster, "--output", "json")
    assert document(ran)["summary"] == {"diverged": 3}
    assert ran.stderr.count(b"1 of 4 disks are of other clusters: left out") == 1
    topic_id = partition(ran, "orders-0")["topic_id"]
    ran = klog("replicas", "diff", *disks, "--topic-id", topic_id, "--output", "json")
    assert document(ran)["summary"] == {"diverged": 1}
    assert ran.stderr.count(b"partition directories are of other ids: left out") == 1
    assert klog("replicas", "diff", *disks, "--topic-id", "none").exit_code == 16
    assert klog("replicas", "diff", *disks, "--cluster", "none").exit_code == 16


def test_a_partition_that_cannot_be_read_is_left_and_the_others_go_on(klog: Klog, disks: list[Path]) -> None:
    log = disks[1] / "orders-0" / "00000000000000000028.log"
    log.unlink()
    log.symlink_to("loop")
    (log.parent / "loop").symlink_to(log.name)
    ran = klog("replicas", "diff", *disks, *METADATA, "--output", "json")
    assert ran.exit_code == 4
    assert partition(ran, "pairs-0")["verdict"] == "diverged"
