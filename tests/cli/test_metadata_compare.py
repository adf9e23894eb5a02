"""`klog metadata compare` as operators type it: which log is ahead, where two fork."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from klog.log.segment import Segment

from tests.cli.test_metadata_show import klog
from tests.cluster.metadata.quorum_truth import NODES, TRUTH, disk, end
from tests.conftest import FIXTURES
from tests.oracles.plain.encode import Record, batch
from tests.support.metadata_logs import MetadataLog, topic
from tests.support.power import tree

DISKS = [disk(node) for node in NODES]


def compared(*paths: str | Path, code: int = 0) -> dict[str, Any]:
    ran = klog("metadata", "compare", *paths, "--output", "json")
    assert ran.exit_code == code, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    """Copies of the three disks, to change."""
    return [Path(shutil.copytree(path, tmp_path / Path(path).name)) for path in DISKS]


def append(folder: Path, epoch: int, *values: bytes) -> None:
    """Append a batch to the metadata log of a log dir."""
    log = max(folder.glob("__cluster_metadata-0/*.log"))
    node = int(folder.name.removeprefix("broker-"))
    records = [Record(end(node) + i, 1, None, each) for i, each in enumerate(values)]
    with log.open("ab") as file:
        file.write(batch(records, leader_epoch=epoch))


def test_a_node_that_was_killed_earlier_is_behind() -> None:
    found = compared(*DISKS)
    assert (found["cluster_id"], found["best"], found["diverged"]) == (TRUTH["admin"]["cluster_id"], 1, [])
    assert [(log["node"], log["end"]["offset"], log["behind"]) for log in found["logs"]] == [
        (1, 117, 0),
        (2, 104, 13),
        (3, 117, 0),
    ]
    for log in found["logs"]:
        ends = TRUTH["ends"][str(log["node"])]
        assert log["end"] == {"offset": ends["last"][0] + 1, "epoch": ends["last"][1]}
        assert log["snapshot"] == {"offset": ends["snapshot"][0], "epoch": ends["snapshot"][1]}
        assert log["quorum_state"]["leader_epoch"] == ends["quorum_state"]["leaderEpoch"]
        assert log["roles"] == ["broker", "controller"]
    ran = klog("metadata", "compare", *DISKS)
    assert ran.exit_code == 0
    assert "all one history" in ran.stdout


def test_a_fork_is_named_with_the_offset_where_it_begins(disks: list[Path]) -> None:
    """Node 2 had led on, alone: its log is of the older epoch and would be cut."""
    append(disks[1], 4, topic("x", 1), topic("y", 2))
    found = compared(*disks, code=4)
    assert [(one["nodes"], one["offset"], one["epochs"]) for one in found["diverged"]] == [
        ([1, 2], 104, [5, 4]),
        ([2, 3], 104, [4, 5]),
    ]
    assert (found["best"], found["logs"][1]["behind"]) == (1, 13)


def test_a_fork_within_an_epoch_is_one_that_no_node_notices(disks: list[Path]) -> None:
    append(disks[0], 5, topic("x", 1))
    append(disks[2], 5, topic("y", 2))
    found = compared(*disks, code=4)
    assert [(one["nodes"], one["offset"], one["epochs"]) for one in found["diverged"]] == [([1, 3], 117, [5, 5])]
    ran = klog("metadata", "compare", *disks)
    assert (
        "node 1 and node 3 have different batches from offset 117 on, both in epoch 5: no node would notice"
        in ran.stdout
    )


def test_the_latest_epoch_counts_more_than_the_length(disks: list[Path]) -> None:
    append(disks[1], 4, *(topic(f"t{number}", number) for number in range(1, 40)))
    found = compared(*disks, code=4)
    assert (found["best"], found["logs"][1]["end"]["offset"]) == (1, 143)


def test_a_bad_batch_is_damage_and_no_fork(disks: list[Path]) -> None:
    log = disks[1] / "__cluster_metadata-0" / "00000000000000000079.log"
    content = bytearray(log.read_bytes())
    content[80] ^= 0xFF
    log.write_bytes(content)
    found = compared(*disks, code=4)
    assert ([log["bad_batches"] for log in found["logs"]], found["diverged"]) == ([[], [79], []], [])


def test_a_log_ends_where_its_node_truncates_it(disks: list[Path]) -> None:
    """The metadata log is recovered from its beginning at each start, the clean-shutdown marker or not."""
    log = disks[0] / "__cluster_metadata-0/00000000000000000103.log"
    content = bytearray(log.read_bytes())
    positions = {one.base_offset: one.position for one in Segment(str(log)).batches()}  # type: ignore[union-attr]
    content[positions[104] + 70] ^= 0xFF
    log.write_bytes(content)
    (disks[0] / ".kafka_cleanshutdown").touch()
    found = compared(*disks, code=4)
    assert (found["best"], found["diverged"]) == (3, [])
    ends = [(one["end"], one["behind"], one["gone"]) for one in found["logs"]]
    whole = {"offset": 117, "epoch": 5}
    assert ends == [({"offset": 104, "epoch": 4}, 13, 13), ({"offset": 104, "epoch": 4}, 13, 0), (whole, 0, 0)]
    ran = klog("metadata", "compare", *disks)
    assert "its node truncates it there: 13 offsets behind damage are gone" in ran.stdout


def test_a_torn_tail_is_no_damage(disks: list[Path]) -> None:
    """An append that was under way: nothing that was ever acknowledged."""
    log = max((disks[1] / "__cluster_metadata-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-3])
    found = compared(*disks)
    assert found["logs"][1]["gone"] == 0
    assert found["best"] == 1


def test_a_log_whose_beginning_a_snapshot_replaced_is_compared_from_there(disks: list[Path]) -> None:
    for path in (disks[2] / "__cluster_metadata-0").iterdir():
        if path.name < "00000000000000000103":
            path.unlink()
    found = compared(*disks)
    assert [(log["start"], log["behind"]) for log in found["logs"]] == [(0, 0), (0, 13), (103, 0)]
    for path in (disks[2] / "__cluster_metadata-0").glob("*.log"):
        path.unlink()
    found = compared(*disks)
    assert [(log["end"]["offset"], log["behind"]) for log in found["logs"]] == [(117, 0), (104, 13), (117, 0)]


def test_logs_of_two_clusters_are_never_compared(tmp_path: Path) -> None:
    """The metadata log has the same topic id in every cluster."""
    other = FIXTURES / "modern"
    ran = klog("metadata", "compare", *DISKS, other)
    assert (ran.exit_code, ran.stdout) == (8, "")
    assert "not logs of one cluster" in ran.stderr
    assert TRUTH["admin"]["cluster_id"] in ran.stderr
    chosen = klog("metadata", "compare", *DISKS, other, "--cluster", TRUTH["admin"]["cluster_id"], "--output", "json")
    assert [log["node"] for log in json.loads(chosen.stdout)["logs"]] == [1, 2, 3]
    copied = shutil.copytree(Path(DISKS[0]) / "__cluster_metadata-0", tmp_path / "copy")
    ran = klog("metadata", "compare", DISKS[1], copied)
    assert ran.exit_code == 8
    assert "--by-name treats unknown ones as the same" in ran.stderr
    ran = klog("metadata", "compare", DISKS[1], f"1={copied}", "--by-name", "--output", "json")
    assert [(log["node"], log["behind"]) for log in json.loads(ran.stdout)["logs"]] == [(2, 13), (1, 0)]


def test_wrong_ones_are_refused(tmp_path: Path) -> None:
    assert klog("metadata", "compare", *DISKS, FIXTURES / "legacy").exit_code == 8
    assert klog("metadata", "compare", f"{DISKS[0]}/meta.properties").exit_code == 16
    assert klog("metadata", "compare").exit_code == 16
    MetadataLog(tmp_path / "data").log.unlink()
    assert klog("metadata", "compare", *DISKS, tmp_path / "data").exit_code == 8


def test_comparing_leaves_no_trace(disks: list[Path]) -> None:
    before = [tree(path) for path in disks]
    compared(*disks)
    assert [tree(path) for path in disks] == before


def test_a_node_that_stops_on_its_newest_snapshot(disks: list[Path]) -> None:
    """Its log is one history with the others; no node reads an older snapshot."""
    *older, newest = sorted((disks[0] / "__cluster_metadata-0").glob("*.checkpoint"))
    for path in older:
        path.write_bytes(b"")
    assert klog("metadata", "compare", *disks).exit_code == 0
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 0x10
    newest.write_bytes(content)
    done = klog("metadata", "compare", *disks)
    assert done.exit_code == 4, done
    assert f"damaged: node 1 stops on its newest snapshot: {newest}" in done.stdout
