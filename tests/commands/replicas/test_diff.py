"""Verdicts over small copies, who leads by which rules, and the lines of a rescue."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.copy_choice import PartitionRescue
from klog.commands.replicas.diff import DiffOptions, PartitionDiff, ReplicaDiffer
from klog.commands.replicas.disks import BrokerDisk, copies_on, find_metadata, open_disks
from klog.data_dir.partition_identity import IdentityChoice

from tests.conftest import FIXTURES
from tests.oracles.plain.encode import Record, batch

SPLIT = FIXTURES / "replicas" / "split"
BY_NAME = IdentityChoice(by_name=True)


def data(first: int, count: int = 1, epoch: int = 0) -> bytes:
    return batch(
        [Record(first + i, 1, b"k", b"%d in %d" % (first + i, epoch)) for i in range(count)], leader_epoch=epoch
    )


def disks(root: Path, logs: Sequence[tuple[int, bytes]], high_watermark: int | None = None) -> list[BrokerDisk]:
    """Write a disk for each of *logs*, base offset and content of the only segment of t-0."""
    for node, (base, log) in enumerate(logs, 1):
        folder = root / str(node) / "t-0"
        folder.mkdir(parents=True)
        (folder / f"{base:020}.log").write_bytes(log)
        (folder.parent / "meta.properties").write_text(f"node.id={node}\nversion=1\ncluster.id=A\n")
        if high_watermark is not None:
            (folder.parent / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {high_watermark}\n")
    return open_disks([str(root / str(node)) for node in range(1, len(logs) + 1)])


@pytest.mark.parametrize(
    ("logs", "verdict"),
    [
        (((0, data(0, 2)), (0, data(0, 2))), "same"),
        (((0, data(0) + data(1)), (0, data(0))), "behind"),
        # A directory without any record is as good as none, wherever its log starts.
        (((0, data(0, 2)), (0, b"")), "missing"),
        (((0, data(0, 4)), (2, b"")), "missing"),
        (((2, data(2)), (0, b"")), "missing"),
        (((0, b""), (0, b"")), "same"),
        # One begins where the other ends: nothing is between them.
        (((2, data(2)), (0, data(0, 2))), "behind"),
        (((3, data(3)), (0, data(0, 2))), "incomparable"),
        (((0, data(0) + data(1, 2)), (0, data(0) + data(1, epoch=1))), "diverged"),
    ],
)
def test_a_verdict(tmp_path: Path, logs: Sequence[tuple[int, bytes]], verdict: str) -> None:
    found = disks(tmp_path, logs)
    differ = ReplicaDiffer(found, DiffOptions(None, TopicConfig()))
    assert [differ.diff(one).verdict.value for one in copies_on(found, choice=BY_NAME)] == [verdict]


@pytest.mark.parametrize(
    ("watermark", "committed"), [(None, [None] * 4), (0, [False] * 4), (2, [True, True, False, False])]
)
def test_a_rescue_is_ordered_by_offsets_and_then_by_holders(
    tmp_path: Path, watermark: int | None, committed: list[bool | None]
) -> None:
    """Whichever copy is read first; a record at the high watermark is not below it."""
    ours, theirs = data(1, epoch=2) + data(2, epoch=2), data(1, 2, epoch=1)
    found = disks(tmp_path, ((0, data(0) + ours), (0, data(0) + theirs), (0, data(0))), watermark)
    lines: list[bytes] = []
    differ = ReplicaDiffer(found, DiffOptions(None, TopicConfig()))
    PartitionRescue(differ, lines.append).rescue(copies_on(found, choice=BY_NAME)[0], 3)
    said = [json.loads(line) for line in lines]
    assert [(one["offset"], one["held_by"]) for one in said] == [(1, [1]), (1, [2]), (2, [1]), (2, [2])]
    assert [one["value"] for one in said] == ["1 in 2", "1 in 1", "2 in 2", "2 in 1"]
    assert [one["committed"] for one in said] == committed


@pytest.fixture
def split(tmp_path: Path) -> list[Path]:
    """Copies of three brokers' disks, to change."""
    return [Path(shutil.copytree(SPLIT / f"broker-{node}", tmp_path / f"broker-{node}")) for node in (1, 2, 3)]


def diff_of(folders: list[Path], elr_version: int | None = None, up: Sequence[int] | None = None) -> PartitionDiff:
    """Compare orders-0 with the controller's state; *up*: one node after the other."""
    found = open_disks([str(folder) for folder in folders])
    order = None if up is None else tuple((node,) for node in up)
    options = DiffOptions(find_metadata(found, str(SPLIT / "controller-4")), TopicConfig(), elr_version, order)
    return ReplicaDiffer(found, options).diff(copies_on(found, ["orders"], [0], BY_NAME)[0])


def set_topic_id(folder: Path, topic_id: str) -> None:
    (folder / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")


def test_a_topic_that_was_created_again_is_not_the_one_that_the_controller_knows(split: list[Path]) -> None:
    """The leader is unknown."""
    assert diff_of(split).registration is not None
    for folder in split:
        set_topic_id(folder, f"{'B' * 21}A")
    found = diff_of(split)
    assert (found.registration, found.is_unregistered, found.leader, found.acks_all_safe) == (None, True, None, None)


def test_of_copies_that_are_not_compared_nobody_says_that_nothing_is_lost(split: list[Path]) -> None:
    set_topic_id(split[0], f"{'B' * 21}A")
    found = diff_of(split)
    assert (found.verdict.value, found.acks_all_safe, found.is_safe) == ("incomparable", None, False)
    assert found.registration is not None


def test_the_feature_for_eligible_replicas_decides_whether_a_marker_counts(split: list[Path]) -> None:
    """The question may name another version than the metadata log has."""
    assert (diff_of(split).leader, diff_of(split, 0).leader) == (3, 3)
    (split[2] / ".kafka_cleanshutdown").unlink()
    assert diff_of(split).because != "elr"
    assert (diff_of(split, 0).leader, diff_of(split, 0).because) == (3, "elr")


def test_only_brokers_that_are_up_cut_their_logs(split: list[Path]) -> None:
    for up, cut in (([3], set()), ([3, 1], {1}), ([3, 1, 2], {1, 2})):
        found = diff_of(split, up=up)
        assert found.what_if is not None
        assert [(one.leader, set(one.cuts)) for one in found.what_if.outcomes] == [(3, cut)]
