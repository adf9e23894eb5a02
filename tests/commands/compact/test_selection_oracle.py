"""The part that klog would clean, compared with Kafka's own manager: random directories, and those of real brokers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from random import Random

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.compact.log_to_clean import CleaningLimit, DirtyStart, LastRecord, LogSections, examine, filthiest
from klog.commands.compact.topic_rules import TopicRules
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.batch import BatchFacts
from klog.formats.checkpoint import write_partition_metadata
from klog.log.header_walk import walk_headers

from tests.commands.compact.oracle import (
    Candidate,
    CleanerOracle,
    HighWatermarks,
    candidates_said,
    rounds_said,
    rounds_step,
    select_step,
)
from tests.conftest import CORPORA
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record
from tests.support.metadata_logs import uuid

NOW_MS = 1_750_000_000_000
DAY_MS = 86_400_000
CLEANED = re.compile(r"cleaned log (\S+) \(dirty section = \[(\d+), (\d+)\]\)")
VERSIONS = ("v2.8.2", "v3.9.1", "v4.3.1")
Topics = Mapping[str, Mapping[str, str]]


@pytest.fixture(scope="module")
def oracle() -> Iterator[CleanerOracle]:
    with CleanerOracle() as one:
        yield one


def selection(data: Path, topics: Topics, now_ms: int) -> dict[str, LogSections]:
    """Return klog's findings in each partition of *data* whose topic is among *topics*, compacted all of them."""
    log_dir, found = LogDir(str(data)), {}
    for partition in log_dir.partitions:
        if partition.topic is not None and partition.topic in topics:
            rules = TopicRules.of(TopicConfig(log_dir, topics[partition.topic]), partition.topic)
            said = examine(partition, rules, now_ms)
            assert isinstance(said, LogSections), said
            found[partition.directory] = said
    return found


def figures(found: LogSections) -> tuple[object, ...]:
    """Return the fields of a Candidate; from the sixth on they depend on the bound."""
    clean, dirty = found.clean.bytes, found.dirty.bytes
    rewritten = found.because in (DirtyStart.BELOW_START, DirtyStart.BEYOND_END)
    bound = max(found.first_dirty, found.bounds[0].offset)
    return (
        *(found.log_start, found.log_end, found.first_dirty, rewritten, clean, found.overdue_ms),
        *(bound, found.first_uncleanable, dirty, found.dirty_ratio, found.eligible),
    )


def figures_of(said: Candidate) -> tuple[object, ...]:
    return (
        *(said.log_start, said.log_end, said.first_dirty, said.checkpoint_rewritten, said.clean_bytes, said.delay_ms),
        *(said.bound, said.first_uncleanable, said.cleanable_bytes, said.ratio, said.eligible),
    )


def is_more_careful(found: LogSections, said: Candidate) -> bool:
    """Whether a transaction holds klog back where it does not hold back a broker that has just started.

    Its marker lies above the high watermark and below a snapshot, in which it is over: the broker that wrote the
    snapshot knew.  Or it began below the log's start: then a broker takes the first batch for the start, no more.
    """
    first = found.bounds[0]
    if first.limit is not CleaningLimit.TRANSACTION or first.offset >= said.last_stable:
        return False
    return first.offset == found.log_start or said.high_watermark < said.log_end


# ---------------------------------------------------------------- random directories


class RandomLog:
    """A partition of random batches: plain, of the old formats, of idempotent and of transactional producers."""

    def __init__(self, random: Random, path: Path) -> None:
        self._random, self._path, self._offset = random, path, random.choice([0, 0, 7])
        self._open: dict[int, int] = {}
        self._ended: list[tuple[int, int]] = []
        path.mkdir(parents=True)
        # Without an id a broker treats the directory as unregistered.
        (path / "partition.metadata").write_bytes(write_partition_metadata(uuid(random.randrange(9, 2**60))))

    def write(self) -> None:
        for _ in range(self._random.randrange(1, 8)):
            base, content = self._offset, b""
            self._offset += self._random.choice([0, 0, 0, 2])
            for _ in range(self._random.choice([0, 1, 3, 6])):
                content += self._batch()
                self._offset += self._random.choice([0, 0, 0, 3])
            (self._path / f"{base:020d}.log").write_bytes(content)
            self._offset = max(self._offset, base + 1)

    def open_at(self, offset: int) -> list[int]:
        """Return the first offsets of the transactions that began below *offset* and did not end there."""
        ended = [first for first, marker in self._ended if marker >= offset]
        return [first for first in (*ended, *self._open.values()) if first < offset]

    def _batch(self) -> bytes:
        random, first = self._random, self._offset
        timestamp = NOW_MS - random.choice([-5, 0, 1, 1000, 5000, 90_000, 2 * DAY_MS, NOW_MS - 1, NOW_MS + 1])
        kind = random.randrange(8)
        if kind == 0:
            self._offset += 1
            return encode.message(first, random.randrange(2), b"k", b"v" * random.randrange(300), timestamp=timestamp)
        if kind == 1 and self._open:
            producer_id = random.choice(sorted(self._open))
            self._ended.append((self._open.pop(producer_id), first))
            self._offset += 1
            commit, epochs = random.random() < 0.5, {"producer_epoch": 0, "coordinator_epoch": 0}
            return encode.marker(first, commit=commit, timestamp=timestamp, producer_id=producer_id, **epochs)
        self._offset += random.randrange(1, 4)
        records = [
            Record(offset, timestamp, b"k", b"v" * random.randrange(300)) for offset in range(first, self._offset)
        ]
        if kind in (2, 3):
            producer_id = random.randrange(4)
            self._open.setdefault(producer_id, first)
            return encode.batch(records, producer=(producer_id, 0, 0), transactional=True)
        return encode.batch(records, producer=(random.randrange(10, 14), 0, 0) if kind in (4, 5) else (-1, -1, -1))


def random_settings(random: Random) -> dict[str, str]:
    """Return a compacted topic's; ages just around those of the records."""
    found = {"cleanup.policy": random.choice(["compact", "compact,delete"]), "retention.ms": "-1"}
    if random.random() < 0.5:
        found["min.compaction.lag.ms"] = random.choice(["0", "1", "999", "1000", "1001", "90000", "90001"])
    if random.random() < 0.5:
        least = int(found.get("min.compaction.lag.ms", "0"))
        found["max.compaction.lag.ms"] = str(max(random.choice([1, 999, 1000, 4999, 90_000, 10**9]), least))
    if random.random() < 0.7:
        found["min.cleanable.dirty.ratio"] = random.choice(["0", "0.2", "0.5", "0.9", "1"])
    return found


def batches(partition: Partition) -> list[int]:
    """Return the beginnings of batches, the only possible high watermarks."""
    found = []
    for files in partition.segments:
        with ReadOnlyFile(os.path.join(partition.path, files.log)) as log:
            found += [header.base_offset for header in walk_headers(log) if isinstance(header, BatchFacts)]
    return found


def disturb(random: Random, data: Path, *, with_high_watermarks: bool) -> None:
    """Checkpoints may contain anything, ages be anything, and the producer state of the last stop be missing."""
    said: dict[str, list[str]] = {"cleaner-offset": [], "log-start-offset": [], "replication-offset": []}
    for partition in LogDir(str(data)).partitions:
        assert partition.log_end is not None
        start, end = partition.segments[0].base_offset, partition.log_end.offset
        places = [random.randint(start, end), *(files.base_offset for files in partition.segments), end]
        entry = f"{partition.topic} {partition.number}"
        if random.random() < 0.3:
            said["log-start-offset"].append(f"{entry} {random.choice(places)}")
        if random.random() < 0.8:
            said["cleaner-offset"].append(f"{entry} {random.choice([*places, end + 1, max(start - 1, 0)])}")
        said["replication-offset"].append(f"{entry} {random.choice([*batches(partition), end, end, end, end + 1])}")
        for files in partition.segments:
            modified_ms = NOW_MS - random.choice([0, 500, 999, 1000, 50_000])
            os.utime(os.path.join(partition.path, files.log), ns=(0, modified_ms * 1_000_000))
        if random.random() < 0.5 and len(partition.snapshots) > 1:
            os.unlink(os.path.join(partition.path, partition.snapshots[-1].name))
    for kind, lines in said.items():
        (data / f"{kind}-checkpoint").write_text("".join(f"{line}\n" for line in ("0", len(lines), *lines)))
    if not with_high_watermarks:
        (data / "replication-offset-checkpoint").unlink()


@pytest.mark.kafka
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed > 3)) for seed in range(40)])
def test_it_is_what_kafkas_own_manager_selects(seed: int, oracle: CleanerOracle, tmp_path: Path) -> None:
    """Sections, bytes, ratio, delay, eligibility, the first log, and its producers."""
    random, data = Random(seed), tmp_path / "data"
    topics = {f"t{number}": random_settings(random) for number in range(25)}
    logs = {f"{topic}-0": RandomLog(random, data / f"{topic}-0") for topic in topics}
    for log in logs.values():
        log.write()
    oracle.visit(data, [], now_ms=NOW_MS, topic_settings=topics)  # recovers: indexes, snapshots
    mode: HighWatermarks = random.choice(["end", "checkpoint"])
    disturb(random, data, with_high_watermarks=mode == "checkpoint")
    found = selection(data, topics, NOW_MS)
    steps = [select_step(), rounds_step(1)]
    said = oracle.visit(data, steps, now_ms=NOW_MS, topic_settings=topics, high_watermarks=mode)
    candidates = candidates_said(said[0])
    assert found.keys() == candidates.keys()
    careful = {name for name, sections in found.items() if is_more_careful(sections, candidates[name])}
    for name in found.keys() - careful:
        assert figures(found[name]) == figures_of(candidates[name]), name
        active = {one.producer_id: LastRecord(one.offset, one.epoch) for one in candidates[name].producers}
        assert found[name].producers == (active if found[name].producers else {}), name
        assert found[name].producers or not active or not candidates[name].cleanable_bytes, name
    for name in careful:
        opened = logs[name].open_at(candidates[name].high_watermark)
        assert found[name].bounds[0].offset == max(min(opened), found[name].log_start), name
        assert figures(found[name])[:6] == figures_of(candidates[name])[:6], name
        assert found[name].first_uncleanable <= candidates[name].first_uncleanable, name
    ratios = {name: one.ratio for name, one in candidates.items() if one.eligible}
    assert {one.partition for one in rounds_said(said[1])} <= {
        n for n, r in ratios.items() if r == max(ratios.values())
    }
    first = [one.partition.directory for one in filthiest(found.values())]
    assert {name: found[name].dirty_ratio for name in first if name not in careful} == {
        name: ratio for name, ratio in ratios.items() if name not in careful
    }
    assert [found[name].dirty_ratio for name in first] == sorted(
        (found[name].dirty_ratio for name in first), reverse=True
    )


# ---------------------------------------------------------------- real brokers' directories


def options(settings: Mapping[str, str]) -> dict[str, str]:
    """Return a topic's settings as far as they are for selecting."""
    names = ("min.cleanable.dirty.ratio", "min.compaction.lag.ms", "max.compaction.lag.ms")
    return {"cleanup.policy": "compact", **{name: settings[name] for name in names if name in settings}}


@pytest.mark.corpora
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("version", VERSIONS)
def test_what_real_cleaners_took_is_what_klog_takes(version: str, number: int, image: Callable[[str], Path]) -> None:
    """From the same offset up to the same, the filthiest first; and logs that they left alone are not taken."""
    home, suffix = CORPORA / "compaction" / version, "" if number == 1 else str(number)
    log = re.split(r"^== between .*\n", (home / "golden/cleaner.log").read_text(), flags=re.MULTILINE)[number]
    now_ms = round(datetime.strptime(f"{log[:23]}000+0000", "%Y-%m-%d %H:%M:%S.%f%z").timestamp() * 1000)
    taken: dict[str, tuple[int, int]] = {}
    for partition, first, end in CLEANED.findall(log):
        taken.setdefault(partition, (int(first), int(end)))
    topics = json.loads((home / "settings.json").read_text())["topics"]
    before = image(f"compaction/{version}/before{suffix}.tar.gz")
    found = selection(before, {topic: options(settings) for topic, settings in topics.items()}, now_ms)
    eligible = {name: sections for name, sections in found.items() if sections.eligible}
    assert {name: (one.first_dirty, one.first_uncleanable) for name, one in eligible.items()} == taken
    ratios = [found[name].dirty_ratio for name in taken]
    assert ratios == sorted(ratios, reverse=True)
    assert len(taken) >= 13
