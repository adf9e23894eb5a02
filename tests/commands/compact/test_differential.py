"""Random log dirs: klog leaves, file by file, what Kafka's own cleaner leaves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from klog.change.plan.draft import make_plan
from klog.change.plan.executor import apply
from klog.change.plan.staging import Staging
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.compact.compaction import CompactionRun, CompactOptions, PartitionOutcome
from klog.commands.compact.log_cleaner import CleanerOptions
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import Selection
from klog.formats.batch import Codec
from klog.formats.damage import Damage
from klog.log.segment import Batch, Segment

from tests.commands.compact.oracle import CleanerOracle, Round
from tests.commands.compact.workloads import HIGH_WATERMARK, SAMPLE, Workload, make_workload
from tests.oracles.broker_load import differences

pytestmark = pytest.mark.kafka
NOT_JAVAS = (Codec.SNAPPY, Codec.ZSTD)
KAFKAS_OWN_FAILURES = (
    "IllegalStateException: Empty batches are only supported for magic v2",  # an old format where a round ends
    "IllegalArgumentException: Attempt to append to a full",  # an index that needs more entries than its sources had
)
MANY = range(2000, 2060)


@pytest.fixture(scope="module")
def oracle() -> Iterator[CleanerOracle]:
    with CleanerOracle() as one:
        yield one


class TopicSettings(TopicConfig):
    """Settings of each topic, as the broker of the workload has them in its metadata."""

    def __init__(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__()
        self._of = {topic: TopicConfig(None, known(texts)) for topic, texts in topics.items()}

    def value(self, topic, name):  # type: ignore[no-untyped-def]
        return self._of[topic].value(topic, name) if topic in self._of else super().value(topic, name)


def known(texts: Mapping[str, str]) -> dict[str, str]:
    """Return a topic's known settings, under the names of options."""
    names = {"internal.segment.bytes": "segment.bytes"}
    return {names.get(name, name): text for name, text in texts.items()}


def compact(log_dir: Path, workload: Workload, choices: CleanerOptions, folder: Path) -> list[PartitionOutcome]:
    """Compact *log_dir* with klog, plan and all."""
    here = LogDir(str(log_dir))
    target, backup = Selection(here, list(here.partitions)), folder / "backup"
    wishes = CompactOptions(workload.now_ms, everything=False, choices=choices)
    cleaning = CompactionRun(
        [target], [Staging(str(backup / "staged"), Disk())], [TopicSettings(workload.topic_settings)], wishes, Disk()
    )
    cleaning.run()
    plan = make_plan("x", "klog compact", [str(log_dir)], [str(backup)], cleaning.drafts, workload.now_ms)
    if plan.actions:
        apply(plan, Disk())
    return cleaning.outcomes


def whole(workload: Workload) -> Workload:
    """Return the workload without what makes a broker stop between rounds, and in its usual sizes."""
    topics = {
        topic: {**settings, "min.cleanable.dirty.ratio": "0"} for topic, settings in workload.topic_settings.items()
    }
    broker = {name: text for name, text in workload.broker_settings.items() if "load.factor" not in name}
    workload = replace(workload, topic_settings=topics, broker_settings=broker, rounds=None)
    if not any(habits.transactional for habits in workload.habits.values()):
        return workload
    # After a clean stop a broker does not know which markers are above the high watermark; klog reads the log, and is
    # more careful: records that a follower would still need after a cut there are kept.
    (workload.log_dir / HIGH_WATERMARK).unlink(missing_ok=True)
    return replace(workload, high_watermarks="end")


def hold(oracle: CleanerOracle, number: int, folder: Path) -> None:
    """Make a workload, give it to both, and compare the results."""
    workload = whole(make_workload(oracle, number, folder))
    ours, theirs = (Path(shutil.copytree(workload.log_dir, folder / name)) for name in ("ours", "theirs"))
    choices = CleanerOptions(workload.map_bytes or 128 << 20, like_broker=True)
    outcomes = compact(ours, workload, choices, folder)
    rounds = workload.clean(oracle, theirs)
    failed = {one.partition: one.error for one in rounds if one.error}
    assert all(error.startswith(KAFKAS_OWN_FAILURES) for error in failed.values()), failed
    done = [rounds_of(one) for one in outcomes if one.compacted and one.partition.directory not in failed]
    # With equal ratios any of them may be the first.
    assert sorted(done) == sorted(by_partition([one for one in rounds if one.partition not in failed]))
    # Both have started and stopped twice at the end, so that files of a start and a stop are no difference.
    for copy in (ours, ours, theirs):
        oracle.select(copy, now_ms=workload.now_ms, topic_settings=workload.topic_settings)
    for folder_of in (ours, theirs):
        for name in failed:
            shutil.rmtree(folder_of / name)
    for pointer in ours.glob("*.klog-backup"):  # klog's own, which brokers ignore
        pointer.unlink()
    found = [line for line in differences(ours, theirs) if not is_codecs(line, ours, theirs)]
    if failed:
        found = [line for line in found if not line.startswith("cleaner-offset-checkpoint")]
    assert found == [], (found, workload)


def is_codecs(line: str, ours: Path, theirs: Path) -> bool:
    """Whether a difference comes from a codec alone: there are several ways to compress, and Java's may be another.

    A log has the same batches of the same records then, and its indexes other positions.
    """
    file = line.partition(": ")[0]
    log = Path(file).with_suffix(".log")
    if Path(file).suffix not in (".log", ".index", ".timeindex") or not (ours / log).exists():
        return False
    left, right = (list(Segment(str(folder / log)).batches()) for folder in (ours, theirs))
    assert not any(isinstance(one, Damage) for one in (*left, *right))
    is_such = any(one.attributes & 7 in NOT_JAVAS for one in left)
    return is_such and [told(one) for one in left] == [told(one) for one in right]


def told(batch: Batch | Damage) -> tuple[object, ...]:
    """Return a batch's header, and its records, without the effects of compression."""
    assert isinstance(batch, Batch)
    kept = batch._asdict()
    for name in ("position", "size", "crc", "computed_crc"):
        del kept[name]
    return (*kept.values(), *batch.records())


def rounds_of(outcome: PartitionOutcome) -> tuple[str, list[tuple[int, int]]]:
    assert outcome.compacted is not None
    return outcome.partition.directory, [(one.first_dirty, one.next_dirty) for one in outcome.compacted.rounds]


def by_partition(rounds: list[Round]) -> list[tuple[str, list[tuple[int, int]]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for one in rounds:
        assert one.next_dirty is not None, one.error
        found.setdefault(one.partition, []).append((one.first_dirty, one.next_dirty))
    return list(found.items())


@pytest.mark.parametrize("number", SAMPLE)
def test_a_random_log_dir_is_left_as_the_cleaner_leaves_it(number: int, oracle: CleanerOracle, tmp_path: Path) -> None:
    """Keys, tombstones, transactions, producers, codecs, maps that fill up, lags, odd checkpoints: every byte."""
    hold(oracle, number, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("number", MANY)
def test_many_random_log_dirs_are_left_as_the_cleaner_leaves_them(
    number: int, oracle: CleanerOracle, tmp_path: Path
) -> None:
    """The same, many more."""
    hold(oracle, number, tmp_path)
