"""The copies that real brokers left, against an independent comparison, and what those brokers did with them then."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.copy_choice import PartitionRescue
from klog.commands.replicas.diff import DiffOptions, PartitionDiff, ReplicaDiffer
from klog.commands.replicas.disks import copies_on, find_metadata, open_disks
from klog.data_dir.log_dir import LogDir
from klog.formats.damage import Damage
from klog.log.segment import Segment

from tests.conftest import CORPORA

pytestmark = pytest.mark.corpora
IMAGES = ("in-sync", "behind", "killed", "defaults", "split", "damage", "empty-leader", "compacted")
# The start: the image before, the one after, and the start order.
STARTS = (
    ("split", "split-after", ((1, 2, 3),)),
    ("split", "split-after-1-first", ((1,), (2, 3))),
    ("behind", "behind-after", ((1, 2, 3),)),
    ("killed", "killed-after", ((1, 2, 3),)),
    ("defaults", "defaults-after", ((1, 2, 3),)),
    ("defaults", "defaults-3-alone", ((3,), (1, 2))),
    ("damage", "damage-after", ((1, 2, 3),)),
    ("empty-leader", "empty-leader-after", ((1,), (2, 3))),
)

Order = tuple[tuple[int, ...], ...]
Image = Callable[[str], Path]


@cache
def truth(name: str) -> dict[str, Any]:
    with gzip.open(CORPORA / "replicas" / f"{name}.truth.json.gz") as file:
        found: dict[str, Any] = json.load(file)
    return found


def diffs(image: Image, name: str, up: Order | None = None) -> dict[str, PartitionDiff]:
    """Compare the disks of an image, by partition."""
    root = image(f"replicas/{name}.tar.xz")
    disks = open_disks([str(path) for path in sorted(root.glob("broker-*"))])
    controller = root / "controller-4"
    metadata = find_metadata(disks, str(controller) if controller.exists() else None)
    assert metadata is not None
    options = DiffOptions(metadata, TopicConfig(None, {}, LogDir(metadata.path)), up=up)
    differ = ReplicaDiffer(disks, options)
    return {f"{found.topic}-{found.number}": differ.diff(found) for found in copies_on(disks)}


def ranges(found: Mapping[int, Any]) -> dict[str, list[list[int]]]:
    return {str(node): [list(one) for one in each.ranges] for node, each in found.items()}


@pytest.mark.parametrize("name", IMAGES)
def test_copies_are_told_apart_as_an_independent_comparison_does(name: str, image: Image) -> None:
    found = diffs(image, name)
    assert set(truth(name)["diff"]) == set(found)
    for partition, wanted in truth(name)["diff"].items():
        one = found[partition]
        assert one.common_prefix_end == wanted["common_prefix_end"], partition
        assert one.verdict.value in wanted["verdict"].replace("same, missing", "missing"), partition
        assert one.because is not None
        assert (one.leader, one.because.value) == (wanted["kafka_would_elect"], wanted["because"]), partition
        assert one.trusts_epochs, partition
        if "any_may_lead" in wanted:
            assert ranges(one.lost_if_leads) == wanted["any_may_lead"], partition
        for node, (explained, unexplained) in one.holes.items():
            assert wanted["holes"][str(node)] == {"explained": explained, "unexplained": [*map(list, unexplained)]}
        assert set(wanted["copies"]) == {str(node) for node in one.copies}
        for node, copy in one.copies.items():
            told = wanted["copies"][str(node)]
            assert copy.facts is not None
            assert [list(each) for each in copy.facts.only_here.ranges] == told["records_only_here"]
            assert copy.facts.bad_batches == told["bad_batches"]
            assert (copy.log_start, copy.log_end, copy.last_epoch) == (
                told["log_start"],
                told["log_end"],
                told["last_epoch"],
            )
            if "cut_at_by_epoch" in told:
                assert copy.cut_if_leads[wanted["kafka_would_elect"]] == told["cut_at_by_epoch"]


@pytest.mark.parametrize(("before", "after", "up"), STARTS, ids=[after for _, after, _ in STARTS])
def test_what_real_brokers_kept_is_among_the_outcomes(before: str, after: str, up: Order, image: Image) -> None:
    """With exactly the records that went; without unclean election there is one outcome."""
    for partition, one in diffs(image, before, up).items():
        kept = truth(after)["outcome"][partition]
        assert one.what_if is not None
        if not one.unclean:
            assert len(one.what_if.outcomes) == 1
        ends = set(kept["log_end"].values())
        fitting = [outcome for outcome in one.what_if.outcomes if outcome.log_end in ends]
        assert fitting, partition
        if one.is_compacted:
            continue  # the cleaner went on
        gone = {offset for told in kept["lost"].values() for first, last in told for offset in range(first, last + 1)}
        said = [{i for first, last in outcome.lost.ranges for i in range(first, last + 1)} for outcome in fitting]
        assert gone in said, partition


def content(partition: str, disk: Path) -> set[tuple[object, ...]]:
    """Return the data records of a copy, read batch by batch."""
    found: set[tuple[object, ...]] = set()
    for log in sorted((disk / partition).glob("*.log")):
        for batch in Segment(str(log)).batches():
            assert not isinstance(batch, Damage)
            if not batch.is_control:
                found |= {(one.offset, one.timestamp, one.key, one.value) for one in batch.records()}
    return found


@pytest.mark.parametrize("after", ["split-after", "split-after-1-first"])
def test_what_is_rescued_and_what_brokers_keep_is_all_there_was(after: str, image: Image) -> None:
    """Nothing that any copy held is in neither."""
    root, kept_root = image("replicas/split.tar.xz"), image(f"replicas/{after}.tar.xz")
    disks = open_disks([str(path) for path in sorted(root.glob("broker-*"))])
    metadata = find_metadata(disks, str(root / "controller-4"))
    assert metadata is not None
    differ = ReplicaDiffer(disks, DiffOptions(metadata, TopicConfig(None, {}, LogDir(metadata.path))))
    for found in copies_on(disks):
        name = f"{found.topic}-{found.number}"
        kept = truth(after)["outcome"][name]["equals_copy_of_before"]
        if found.topic == "keyed":
            continue  # the cleaner went on
        rows: list[bytes] = []
        PartitionRescue(differ, rows.append).rescue(found, kept[0])
        copies = {node: content(name, root / f"broker-{node}") for node in found.copies}
        saved = set()
        for row in map(json.loads, rows):
            key, value = (None if row[part] is None else row[part].encode() for part in ("key", "value"))
            record = (row["offset"], row["timestamp"], key, value)
            assert [node for node in sorted(copies) if record in copies[node]] == row["held_by"]
            saved.add(record)
        remaining = content(name, kept_root / f"broker-{kept[0]}")
        assert remaining == copies[kept[0]]
        assert saved | remaining == set().union(*copies.values())
        assert not saved & remaining
