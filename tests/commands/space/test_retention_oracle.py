"""The segments that klog reports as due, and the time, are those that Kafka's own log deletes with its clock at that
time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.space.disk_usage import DiskUsage, SegmentUsage, SpaceSettings
from klog.commands.space.kept_reasons import Reason
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import PartitionQuery
from klog.partition.retention.due_records import stored_segments
from klog.partition.retention.first_pass import due_segments, topic_retention

from tests.commands.compact.oracle import CleanerOracle, clock_step, delete_due_step
from tests.conftest import FIXTURES

pytestmark = pytest.mark.kafka

HOUR, DAY = 3_600_000, 86_400_000
START = 1_748_000_000_000
GONE = (Reason.RETENTION_DUE, Reason.BELOW_LOG_START)

# A topic: the partition that it is a copy of, its settings, and its log start.
TOPICS: dict[str, tuple[str, dict[str, str], int]] = {
    "time": ("tx-0", {"retention.ms": str(DAY), "retention.bytes": "-1"}, 0),
    "time-dense": ("dense-0", {"retention.ms": str(HOUR)}, 0),
    "time-plain": ("idempotent-0", {"retention.ms": "0"}, 0),
    "size": ("tx-0", {"retention.ms": "-1", "retention.bytes": "45000"}, 0),
    "size-zero": ("dense-0", {"retention.ms": "-1", "retention.bytes": "0"}, 0),
    "both": ("tx-0", {"retention.ms": str(40 * DAY), "retention.bytes": "70000"}, 0),
    "forever": ("tx-0", {"retention.ms": "-1", "retention.bytes": "-1"}, 0),
    "cut": ("trimmed-0", {"retention.ms": "-1"}, 200),
    "cut-time": ("tx-0", {"retention.ms": str(DAY)}, 300),
    "compact": ("tx-0", {"cleanup.policy": "compact", "retention.ms": "1"}, 0),
    "compact-cut": ("tx-0", {"cleanup.policy": "compact", "retention.bytes": "1"}, 300),
    "both-policies": ("tx-0", {"cleanup.policy": "compact,delete", "retention.ms": str(DAY)}, 0),
    "open": ("tx-open-0", {"retention.ms": str(HOUR)}, 0),
    "zstd": ("zstd-0", {"retention.ms": str(DAY)}, 0),
    "no-times": ("dense-0", {"retention.ms": str(DAY)}, 0),
    "no-indexes": ("dense-0", {"retention.ms": str(DAY)}, 0),
    "empty-times": ("dense-0", {"retention.ms": str(DAY)}, 0),
}


def built(folder: Path) -> Path:
    """A log dir with a copy of a partition for each topic, as a clean stop leaves it."""
    data = folder / "data"
    data.mkdir()
    for name in ("meta.properties", ".kafka_cleanshutdown"):
        shutil.copy(FIXTURES / "modern" / name, data)
    starts = []
    for topic, (source, _, start) in TOPICS.items():
        shutil.copytree(FIXTURES / "modern" / source, data / f"{topic}-0")
        starts += [f"{topic} 0 {start}"] if start else []
    (data / "log-start-offset-checkpoint").write_text("\n".join(["0", str(len(starts)), *starts, ""]))
    for path in (data / "no-times-0").glob("*.timeindex"):
        path.unlink()
    for path in (data / "no-indexes-0").glob("*index"):
        path.unlink()
    for path in (data / "empty-times-0").glob("*.timeindex"):
        path.write_bytes(b"")
    return data


def rows(data: Path, topic: str, now_ms: int) -> list[SegmentUsage]:
    settings = SpaceSettings(TOPICS[topic][1], None, {})
    return list(DiskUsage(PartitionQuery([str(data)], [topic]), settings, now_ms).segments())


def left(found: list[SegmentUsage]) -> list[int]:
    """The base offsets that klog expects after a check; of the active one -1 if it is rolled and goes."""
    kept = [one.base_offset for one in found if one.reason not in GONE]
    return [-1] if "rolls it" in str(found[-1].because) else kept


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, dict[str, list[int]]]]:
    """The log dir, and what Kafka's logs have left of it at each of the times at which something is due or nearly."""
    folder = tmp_path_factory.mktemp("retention")
    data = built(folder)
    dates = {one.due for topic in TOPICS for one in rows(data, topic, START) if one.due is not None}
    times = sorted({START, *dates, *(date + 1 for date in dates), max(dates) + DAY})
    copy = Path(shutil.copytree(data, folder / "copy" / "data"))
    settings = {topic: {"file.delete.delay.ms": "0", **given} for topic, (_, given, _) in TOPICS.items()}
    with CleanerOracle() as oracle:
        steps = [step for time in times for step in (clock_step(time), delete_due_step())]
        said = oracle.visit(copy, steps, now_ms=START, topic_settings=settings)
    found: dict[int, dict[str, list[int]]] = {}
    for time, answer in zip(times, said[1::2], strict=True):
        assert isinstance(answer, dict)
        found[time] = answer
    return data, found


@pytest.mark.parametrize("topic", list(TOPICS))
def test_what_is_due_is_what_kafka_deletes(moments: tuple[Path, dict[int, dict[str, list[int]]]], topic: str) -> None:
    """An operator waits for the date that klog names, and plans a disk by it."""
    data, found = moments
    assert len(found) > 20
    for time, answer in found.items():
        expected = left(rows(data, topic, time))
        seen = answer[f"{topic}-0"]
        if expected == [-1]:
            assert len(seen) == 1, (time, seen)
            assert seen[0] > rows(data, topic, time)[-1].base_offset, "rolled"
        else:
            assert seen == expected, (topic, time)


def first_pass(data: Path, topic: str, now_ms: int) -> list[int]:
    """The base offsets that the first pass leaves; -1 for the one that is rolled."""
    partition = next(one for one in LogDir(str(data)).partitions if one.topic == topic)
    limits = topic_retention(TopicConfig(None, TOPICS[topic][1]), topic).limits
    segments = stored_segments(partition, is_clean=True)
    due = due_segments(segments, limits, partition.log_start_offset or 0, now_ms)
    return [one.base_offset for one in segments[len(due) :]] or [-1]


@pytest.mark.parametrize("topic", list(TOPICS))
def test_the_first_pass_is_what_kafka_does(moments: tuple[Path, dict[int, dict[str, list[int]]]], topic: str) -> None:
    """The removals of a first pass according to write, adopt, replicas and doctor are Kafka's, at any time.

    The oracle's clock only goes forward: its earlier removals are removed here, too.
    """
    data, found = moments
    for time, answer in found.items():
        expected, seen = first_pass(data, topic, time), answer[f"{topic}-0"]
        assert seen == expected or (expected == [-1] and len(seen) == 1), (topic, time)


def test_the_scenarios_tell_rules_apart(moments: tuple[Path, dict[int, dict[str, list[int]]]]) -> None:
    """A test in which nothing is ever deleted, or everything at once, would prove nothing."""
    data, found = moments
    for topic in ("time", "both", "time-dense", "both-policies", "cut-time"):
        assert len({tuple(answer[f"{topic}-0"]) for answer in found.values()}) >= 2, topic
    first = found[START]
    assert len(first["size-0"]) < len(rows(data, "size", START))
    assert len(first["compact-cut-0"]) < len(first["compact-0"]) == len(first["forever-0"])
    last = found[max(found)]
    assert len(last["forever-0"]) > len(last["time-0"])
    assert any(one.reason is Reason.BEHIND for one in rows(data, "time", START + 400 * DAY - 1)) or any(
        one.reason is Reason.BEHIND for time in found for one in rows(data, "time", time)
    )
