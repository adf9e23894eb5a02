"""Lookups against a slow scan without indexes: every partition of every image, thousands of offsets and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from klog.data_dir.partition import Partition
from klog.partition.lookup import Lookup, LookupOutcome, Trail

from tests.conftest import CORPORA, extract
from tests.oracles.lookup_slow import Answer, SlowPartition
from tests.support.samples import sampled

pytestmark = pytest.mark.corpora

FOLDERS = ("modern/data", "legacy/data", "v39/data", "v39/data1")
PUBLIC = ("public/kafkalite", "public/pinterest-tiered-storage", "public/kafka-3.0.0-three-brokers")
ARCHIVES = sorted(
    str(path.relative_to(CORPORA)) for kind in ("compaction", "crash") for path in CORPORA.glob(f"{kind}/*/*.gz")
)
REPLICAS = tuple(f"replicas/{name}.tar.xz" for name in ("damage", "split", "compacted", "killed"))
ASKED = 40
asked: Counter[str] = Counter()


def partitions(root: Path) -> Iterator[Path]:
    yield from sorted({path.parent for path in root.rglob("*.log") if path.stem.isdigit()})


def compare_offset(slow: SlowPartition, lookup: Lookup, offset: int) -> Trail:
    """Hold one answer against the slow one."""
    trail = lookup.offset(offset)
    there = slow.record(offset)
    where = slow.batch_of(offset)
    if there is not None:
        assert trail.outcome in (LookupOutcome.RECORD, LookupOutcome.CONTROL)
    if trail.found:
        assert trail.segment
        assert (trail.segment.base_offset, trail.position) == where
        assert trail.outcome is not LookupOutcome.GAP or there is None
        same_record(trail, slow.following(offset))
    elif trail.outcome is LookupOutcome.DAMAGED:
        assert there is None
        assert slow.is_damaged or any(b.fault for s in slow.segments for b in s.batches)
    else:
        assert where is None
    return trail


def same_record(trail: Trail, answer: Answer | None) -> None:
    if answer is None:
        assert trail.record is None
        return
    record, expected = trail.record, answer.record
    assert record
    assert record == (
        expected.offset,
        expected.timestamp,
        expected.key,
        expected.value,
        expected.headers,
        expected.sequence,
    )


def compare_time(slow: SlowPartition, lookup: Lookup, timestamp: int) -> Trail:
    """Hold one answer against a broker's rule, or where the indexes are wrong, against the log."""
    trail = lookup.timestamp(timestamp)
    expected = slow.as_late(timestamp) if trail.problems else slow.as_late_by_the_rule(timestamp)
    found = (trail.segment.base_offset, trail.position) if trail.segment and trail.found else None
    assert found == ((expected.segment, expected.position) if expected else None)
    same_record(trail, expected)
    return trail


def check(root: Path, healthy: bool) -> None:
    chance = Random(7)
    for folder in partitions(root):
        with Lookup(Partition(str(folder))) as lookup:
            slow = SlowPartition(folder, lookup.log_start_offset)
            records = [record for s in slow.segments for b in s.batches for record in b.records]
            first, last = slow.segments[0].base_offset, slow.last
            offsets = [first - 1, first, slow.start, last, last + 1, last + 2, 2**62]
            offsets += [chance.randrange(first, last + 3) for _ in range(ASKED)]
            times = [
                record.timestamp + chance.choice((0, 0, -1, 1))
                for record in chance.sample(records, min(ASKED, len(records)))
            ]
            for offset in offsets:
                trail = compare_offset(slow, lookup, offset)
                assert not (healthy and trail.problems), (folder, offset, trail)
            for timestamp in [*(time for time in times if time >= 0), 0, 2**60]:
                trail = compare_time(slow, lookup, timestamp)
                assert not (healthy and trail.problems), (folder, timestamp, trail)
            asked[str(root)] += len(offsets) + len(times)


@pytest.mark.parametrize("name", FOLDERS + PUBLIC)
def test_every_lookup_in_a_log_dir_is_what_a_slow_scan_finds(name: str) -> None:
    """Clean stops: no index is wrong there, and saying so would send an operator looking for nothing."""
    check(CORPORA / name, healthy=name in FOLDERS)


@pytest.mark.parametrize("name", [*sampled(ARCHIVES, 3), *sampled(REPLICAS, 2)])
def test_every_lookup_in_an_image_is_what_a_slow_scan_finds(name: str, tmp_path: Path) -> None:
    """Compacted, killed, damaged: whatever the indexes contain, the answer is the log's."""
    extract(CORPORA / name, tmp_path)
    check(tmp_path, healthy=name.startswith("compaction"))


def test_thousands_were_asked() -> None:
    assert sum(asked.values()) > 10_000
