"""Which directories paths lead to, and which of several copies of a partition counts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from klog.base.errors import NotKafkaError, UsageError
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import epoch_at, find_partitions, last_leader_epoch, log_end
from klog.partition.start.replica_choice import choose_replicas

from tests.oracles.plain.encode import Record
from tests.support.lookup_logs import MS, of_records, write_segment

Epochs = Sequence[tuple[int, int]]


def make(log_dir: Path, directory: str, epochs: Epochs, *, checkpoint: Epochs | None = None) -> Partition:
    """Make a partition of one batch of ten records for each (epoch, first offset)."""
    log_dir.mkdir(parents=True, exist_ok=True)
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    folder = log_dir / directory
    folder.mkdir()
    batches = []
    for epoch, first in epochs:
        records = [Record(first + i, MS + first + i, b"k", bytes(100)) for i in range(10)]
        batches += of_records([records], leader_epoch=epoch)
    if epochs:
        write_segment(folder, 0, batches, interval=300)
    if checkpoint is not None:
        lines = [f"{epoch} {start}" for epoch, start in checkpoint]
        (folder / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    return Partition(str(folder))


def names(partitions: Sequence[Partition]) -> list[str]:
    return [partition.path.rsplit("/", 2)[1] + "/" + partition.directory for partition in partitions]


@pytest.fixture
def brokers(tmp_path: Path) -> Path:
    """Two brokers and their copies: one is longer, the other followed a newer leader."""
    make(tmp_path / "b1", "orders-0", [(3, 0), (3, 10), (3, 20)])
    make(tmp_path / "b2", "orders-0", [(3, 0), (5, 10)])
    make(tmp_path / "b1", "orders-1", [(3, 0)])
    make(tmp_path / "b2", "payments-0", [(3, 0)])
    return tmp_path


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ("longest", ["b1/orders-0", "b1/orders-1", "b2/payments-0"]),
        ("leader-epoch", ["b2/orders-0", "b1/orders-1", "b2/payments-0"]),
        ("all", ["b1/orders-0", "b2/orders-0", "b1/orders-1", "b2/payments-0"]),
    ],
)
def test_one_copy_of_each_partition_counts(brokers: Path, rule: str, kept: list[str]) -> None:
    """Every record of a topic with three replicas three times is no table of the topic."""
    assert names(choose_replicas(find_partitions([f"{brokers}/b*"]), rule)) == kept


def test_of_equal_copies_the_first_stays(brokers: Path) -> None:
    """The answer must not depend on the order of a directory's list."""
    make(brokers / "b0", "orders-1", [(3, 0)])
    for paths in (["b0", "b1"], ["b1", "b0"]):
        found = find_partitions([str(brokers / path) for path in paths])
        assert f"{paths[0]}/orders-1" in names(choose_replicas(found, "longest"))


def test_a_copy_that_cannot_be_read_counts_as_empty(brokers: Path) -> None:
    """The longest copy on a dead disk must not hide one that can be read."""
    log = brokers / "b1" / "orders-0" / f"{0:020}.log"
    log.unlink()
    log.symlink_to(log.name)
    found = find_partitions([f"{brokers}/b?"])
    assert log_end(found[0]) == -1
    assert "b2/orders-0" in names(choose_replicas(found, "longest"))


def test_a_directory_is_read_once_however_often_it_is_named(brokers: Path) -> None:
    (brokers / "link").symlink_to("b1")
    paths = [str(brokers / "b1"), f"{brokers}/b1/", f"{brokers}/b*", str(brokers / "link")]
    assert len(find_partitions(paths)) == 4


def test_directories_on_their_way_out_are_no_copies(brokers: Path) -> None:
    """A topic that was deleted must not come back in a query, unless somebody names its directory."""
    gone = f"orders-2.{'0' * 32}-delete"
    make(brokers / "b1", gone, [(3, 0)])
    assert gone not in {each.directory for each in find_partitions([str(brokers / "b1")])}
    assert [each.directory for each in find_partitions([str(brokers / "b1" / gone)])] == [gone]


def test_a_partitions_directory_may_be_named_itself(brokers: Path) -> None:
    found = find_partitions([f"{brokers}/b*/orders-*"])
    assert names(found) == ["b1/orders-0", "b1/orders-1", "b2/orders-0"]


def test_what_a_star_matches_beside_the_data_is_passed_over(brokers: Path) -> None:
    """Every ext4 volume has a lost+found."""
    (brokers / "lost+found").mkdir()
    (brokers / "notes.txt").write_text("x")
    assert len(find_partitions([f"{brokers}/*"])) == 4


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("b3", "No such file"),
        ("b[3-9]", "nothing this matches"),
        ("lost*", "no Kafka data in what this matches"),
        ("lost+found", "is not a Kafka log dir"),
        ("b1/orders-0/00000000000000000000.log", "a single file"),
    ],
)
def test_a_path_without_partitions_is_refused(brokers: Path, path: str, said: str) -> None:
    """An empty table would look like an empty topic."""
    (brokers / "lost+found").mkdir()
    with pytest.raises((UsageError, NotKafkaError), match=re.escape(said)):
        find_partitions([str(brokers / path)])


def test_the_epoch_of_an_offset_is_its_batchs(tmp_path: Path) -> None:
    partition = make(tmp_path, "orders-0", [(2, 0), (4, 10), (4, 20), (7, 40)], checkpoint=[(1, 0), (2, 5), (9, 60)])
    assert [epoch_at(partition, offset) for offset in (0, 9, 10, 29, 40, 49)] == [2, 2, 4, 4, 7, 7]
    assert last_leader_epoch(partition) == 9


def test_the_checkpoint_tells_the_epoch_where_no_batch_is_left(tmp_path: Path) -> None:
    """Compaction takes batches away; the stream has to know all the same in which epoch they were written."""
    partition = make(tmp_path, "orders-0", [(2, 0), (7, 40)], checkpoint=[(2, 0), (4, 10), (7, 35)])
    assert [epoch_at(partition, offset) for offset in (-1, 10, 34, 35, 40)] == [-1, 4, 4, 7, 7]
    bare = make(tmp_path / "bare", "orders-0", [(2, 0), (7, 40)])
    assert epoch_at(bare, 20) == -1
    assert last_leader_epoch(make(tmp_path / "none", "orders-0", [])) == -1
