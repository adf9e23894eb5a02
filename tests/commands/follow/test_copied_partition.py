"""A copy has a leader's batches byte for byte, whatever the pieces in which they come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from klog.cluster.metadata.topic_config import TopicConfig, parse_settings
from klog.commands.write.write_destination import WRITE_SETTINGS
from klog.data_dir.partition import Partition
from klog.partition.append.appender import AppendSettings
from klog.partition.verify.verify import verify_partition

from tests.commands.follow.feeding import answers, copy_of, logs_of, open_copy, whole_bytes
from tests.commands.write.sources import EQUAL, SOURCE, differences, topic
from tests.conftest import FIXTURES, Ran

pytestmark = [pytest.mark.corpora, pytest.mark.usefixtures("state_home")]
Klog = Callable[..., Ran]
ALL = (*EQUAL, "gzip", "snappy", "lz4", "zstd", "stamp")


def settings_of(word: str) -> AppendSettings:
    known = [f"{name}={value}" for name, value in topic(word).settings.items() if not name.startswith("min.")]
    return AppendSettings.of(TopicConfig(None, parse_settings(known, WRITE_SETTINGS)), topic(word).name)


@pytest.mark.parametrize("word", ALL)
def test_files_are_those_of_the_leader(word: str, image: Callable[[str], Path], klog: Klog, tmp_path: Path) -> None:
    """Also indexes, snapshots and epochs, where nothing was decoded on the way."""
    copy = tmp_path / "copy"
    for source in topic(word).directories(image(SOURCE) / "data"):
        ours = copy_of(source, copy, settings_of(word))
        (ours / "partition.metadata").write_bytes((source / "partition.metadata").read_bytes())
        assert differences(ours, source) == []
    verified = klog("verify", copy, "--deep")
    assert verified.exit_code == 0, verified.stdout


def test_a_second_opening_writes_nothing(image: Callable[[str], Path], tmp_path: Path) -> None:
    """Else each hourly run would touch every file, and backups of the copy would take all of it."""
    source = topic("tx").directories(image(SOURCE) / "data")[0]
    copy_of(source, tmp_path / "copy", settings_of("tx"))

    def found() -> dict[str, tuple[int, bytes]]:
        paths = (path for path in (tmp_path / "copy").rglob("*") if path.is_file())
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}

    before = found()
    with open_copy(tmp_path / "copy", source.name, settings_of("tx")) as (_, copied):
        assert copied.end == 163
    assert found() == before
    assert sum(map(len, logs_of(tmp_path / "copy" / source.name))) == sum(map(len, logs_of(source)))


def intact_logs(root: Path) -> list[Path]:
    """Return the partitions below *root* that brokers wrote and no test has damaged."""
    found = {log.parent for log in root.rglob("*.log") if log.stat().st_size}
    return sorted(path for path in found if not path.name.startswith("__cluster_metadata"))


@pytest.mark.parametrize("folder", ["modern", "legacy", "v39", "compaction/before", "compaction/after"])
def test_logs_of_every_kind_come_through_runs_and_pieces(folder: str, tmp_path: Path) -> None:
    """Message sets of old formats, compacted logs, Kafka's own topics: taken up at any batch by another run."""
    every, random = intact_logs(FIXTURES / folder), Random(7)
    assert every
    for source in every:
        for answer in answers(source, lambda: random.choice((1, 5000, 1 << 20))):
            if random.random() < 0.1 or not (tmp_path / "copy" / source.name).exists():
                opening = open_copy(tmp_path / "copy", source.name, AppendSettings(segment_bytes=30_000))
                with opening as (_, copied):
                    copied.append(answer[:1])
                    taken = copied.append(answer)
            else:
                with open_copy(tmp_path / "copy", source.name, AppendSettings(index_interval=300)) as (_, copied):
                    taken = copied.append(answer)
            assert taken == whole_bytes(answer)
        assert b"".join(logs_of(tmp_path / "copy" / source.name)) == b"".join(logs_of(source)), source.name
        partition = Partition(str(tmp_path / "copy" / source.name))
        kinds = {found.id for found in verify_partition(partition).findings}
        theirs = {found.id for found in verify_partition(Partition(str(source))).findings}
        assert kinds <= theirs | {"offset-gap", "offsets-missing"}, source.name
