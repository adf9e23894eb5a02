"""The given disks: their brokers' registrations, and the metadata log that counts."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from klog.base.errors import UsageError
from klog.commands.replicas.disks import broker_disks, copies_on, find_metadata, open_disks
from klog.data_dir.partition_identity import IdentityChoice

from tests.conftest import FIXTURES
from tests.oracles.plain.encode import Record, batch

CONTROLLER = FIXTURES / "replicas" / "split" / "controller-4"
CLUSTER = "o9rYmcWfRuS5bhBPcfBldg"
_BY_NAME = IdentityChoice(by_name=True)


def disk(root: Path, name: str, node: int, marker: str | None = None, partitions: Iterable[str] = ()) -> str:
    """Write a log dir of the controller's cluster; *marker*: the content of its clean-shutdown marker."""
    log_dir = root / name
    directory_id = f"{name:A<22}"
    properties = (f"node.id={node}", f"directory.id={directory_id}", "version=1", f"cluster.id={CLUSTER}")
    log_dir.mkdir()
    (log_dir / "meta.properties").write_text("".join(f"{line}\n" for line in properties))
    if marker is not None:
        (log_dir / ".kafka_cleanshutdown").write_text(marker)
    for partition in partitions:
        (log_dir / partition).mkdir()
        (log_dir / partition / f"{0:020}.log").write_bytes(batch([Record(0, 1, b"k", b"v")]))
    return str(log_dir)


def epoch(number: int) -> str:
    return f'{{"version":0,"brokerEpoch":{number}}}'


@pytest.mark.parametrize(
    ("markers", "expected"),
    [
        ((epoch(5), epoch(5)), 5),
        ((epoch(5), epoch(6)), None),
        ((epoch(5), None), None),
        ((None, epoch(5)), None),
        ((None, None), None),
    ],
)
def test_all_log_dirs_of_a_broker_must_have_one_epoch(
    tmp_path: Path, markers: tuple[str | None, str | None], expected: int | None
) -> None:
    """With one that differs, or is missing, the controller takes the shutdown for unclean."""
    disks = [disk(tmp_path, f"d{number}", 1, marker) for number, marker in enumerate(markers)]
    found = broker_disks(open_disks([*disks, disk(tmp_path, "other", 2, epoch(9))]))
    assert {node: one.epoch for node, one in found.items()} == {1: expected, 2: 9}
    assert found[1].directory_ids == {f"{name:A<22}" for name in ("d0", "d1")}


def test_only_partitions_in_use_are_copies(tmp_path: Path) -> None:
    """A directory that is being deleted, moved in or stray is no copy, and the metadata log is no partition of a
    broker."""
    away = [f"orders-0.{'0' * 32}-{state}" for state in ("delete", "future", "stray")]
    one = disk(tmp_path, "one", 1, partitions=["orders-0", "__cluster_metadata-0"])
    two = disk(tmp_path, "two", 2, partitions=away)
    found = copies_on(open_disks([one, two]), choice=_BY_NAME)
    assert [(each.topic, each.number, sorted(each.copies)) for each in found] == [("orders", 0, [1])]


def controller(root: Path, name: str, node: int, cut: int = 0, cluster: str = CLUSTER) -> Path:
    """Copy the controller's log dir; *cut*: so many bytes less of its metadata log."""
    log_dir = Path(shutil.copytree(CONTROLLER, root / name))
    properties = (log_dir / "meta.properties").read_text().replace("node.id=4", f"node.id={node}")
    properties = properties.replace("directory.id=e", f"directory.id={node}").replace(CLUSTER, cluster)
    (log_dir / "meta.properties").write_text(properties)
    if cut:
        log = max((log_dir / "__cluster_metadata-0").glob("*.log"))
        log.write_bytes(log.read_bytes()[:-cut])
    return log_dir


def test_the_longest_metadata_log_of_the_latest_epoch_counts(tmp_path: Path) -> None:
    """For any order of the disks: a voter that is behind has an older cluster."""
    whole, short = controller(tmp_path, "whole", 5), controller(tmp_path, "short", 6, cut=300)
    for order in ((whole, short), (short, whole)):
        best = find_metadata(open_disks([str(one) for one in order]))
        assert best is not None
        assert (best.node, best.path) == (5, str(whole))
    alone = find_metadata(open_disks([str(short)]))
    assert alone is not None
    assert alone.state.end_offset < best.state.end_offset


def test_a_damaged_metadata_log_reaches_to_the_damage(tmp_path: Path) -> None:
    """Its node truncates it there when it starts: a shorter one that is whole has more."""
    damaged, short = controller(tmp_path, "damaged", 5), controller(tmp_path, "short", 6, cut=50)
    log = max((damaged / "__cluster_metadata-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[-500] ^= 1
    log.write_bytes(content)
    for order in ((damaged, short), (short, damaged)):
        best = find_metadata(open_disks([str(one) for one in order]))
        assert best is not None
        assert best.node == 6
    alone = find_metadata(open_disks([str(damaged)]))
    assert alone is not None
    assert alone.state.end_offset < best.state.end_offset


def test_a_metadata_log_may_be_named(tmp_path: Path) -> None:
    """As a log dir or as the partition in it; one of another cluster is a wrong option."""
    disks = open_disks([disk(tmp_path, "one", 1)])
    for path in (CONTROLLER, CONTROLLER / "__cluster_metadata-0"):
        found = find_metadata(disks, str(path))
        assert found is not None
        assert (found.node, found.path) == (4, str(CONTROLLER))
    other = controller(tmp_path, "other", 7, cluster="X" * 22)
    with pytest.raises(UsageError, match=f"of cluster {'X' * 22}, the disks are of {CLUSTER}"):
        find_metadata(disks, str(other))
    with pytest.raises(UsageError, match="no __cluster_metadata-0 here"):
        find_metadata(disks, disks[0].log_dir.path)
    assert find_metadata(disks) is None
