"""Which partitions are meant: the one answer for all commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from klog.base.errors import UsageError
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import KafkaFile, PartitionQuery, Selection, select_one
from klog.partition.verify.verify import partitions_to_verify

from tests.conftest import FIXTURES

LOG = "00000000000000000000.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log dir with empty partitions of two topics."""
    for name in ("a-0", "a-1", "b-0"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / LOG).touch()
    (tmp_path / "data" / "meta.properties").write_text("version=1\n")
    return tmp_path / "data"


def directories(selection: Selection) -> list[str]:
    return [partition.directory for partition in selection.partitions]


def test_a_log_dir_is_meant_as_a_whole(data: Path) -> None:
    (found,) = PartitionQuery([str(data)]).selections()
    assert (directories(found), found.whole, found.named) == (["a-0", "a-1", "b-0"], True, frozenset())


def test_partitions_that_are_named_are_not_the_whole(data: Path) -> None:
    (found,) = PartitionQuery([str(data / name) for name in ("b-0", "a-0", "b-0")]).selections()
    assert (directories(found), found.whole, found.named) == (["b-0", "a-0"], False, {"a-0", "b-0"})


@pytest.mark.parametrize("names", [("", "a-1"), ("a-1", "")])
def test_a_log_dir_with_one_of_its_partitions_named_is_meant_once(data: Path, names: tuple[str, str]) -> None:
    (found,) = PartitionQuery([str(data / name) for name in names]).selections()
    assert (directories(found), found.whole, found.named) == (["a-0", "a-1", "b-0"], True, {"a-1"})


def test_a_topic_narrows_to_a_part(data: Path) -> None:
    (found,) = PartitionQuery([str(data)], topics=["a"], numbers=[1]).selections()
    assert (directories(found), found.whole) == (["a-1"], False)


def test_a_file_is_no_partition_to_change(data: Path) -> None:
    with pytest.raises(UsageError, match="a file; name its partition directory or its log dir"):
        PartitionQuery([str(data / "a-0" / LOG)]).selections()


def test_one_partition_or_one_file(data: Path) -> None:
    assert isinstance(select_one(str(data / "a-0" / LOG)), KafkaFile)
    one = select_one(str(data), topics=["b"])
    assert isinstance(one, Partition)
    assert one.directory == "b-0"
    with pytest.raises(UsageError, match=r"3 partitions \(a-0, a-1, b-0\); name one, or narrow"):
        select_one(str(data))
    with pytest.raises(UsageError, match=r", …\); name one"):
        select_one(str(FIXTURES / "modern"))


@pytest.mark.parametrize("topics", [(), ("t",)])
def test_each_of_many_partitions_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: tuple[str, ...]
) -> None:
    """Each was compared with all others: of ten thousand that were fifty million comparisons before the first check."""
    count = 300
    for number in range(count):
        (tmp_path / f"t-{number}").mkdir()
    compared = []
    monkeypatch.setattr(Partition, "__hash__", object.__hash__)
    monkeypatch.setattr(Partition, "__eq__", lambda one, other: compared.append(1) or one is other)
    assert len(partitions_to_verify([LogDir(str(tmp_path))], topics)) == count
    assert len(compared) <= count
