"""The comparisons of a situation with what clients were told by its broker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.jobs.slice_scan import SliceScan
from klog.jobs.slices import slice_partition
from klog.log.records import RecordFilter
from klog.partition.lookup import Lookup, TrailDetail
from klog.partition.tiered.mounts import Mounted, MountRequest, mounted
from klog.partition.transactions.isolation import Isolation
from klog.tier.tier import Tier, open_tier

from tests.conftest import CORPORA
from tests.support.tiers import Situation

UNTIMELY = ("gappy", "unclean", "unclean-tail")
"""Situations in which a broker's answer for a time is not the first record that is due."""


def tier_of(found: Situation) -> Tier:
    return open_tier(str(found.tier), None, {"key1": str(CORPORA / "tiered/make/keys/private.pem")})


@contextmanager
def both_tiers(found: Situation, part: str = "both") -> Iterator[Mounted]:
    with mounted(MountRequest(tier_of(found), [str(found.leader)], part=part)) as result:
        yield result


def told(found: Situation) -> Iterator[tuple[Partition, dict[str, Any]]]:
    """Each partition, and what clients were told about it."""
    for name, answers in found.clients.items():
        if isinstance(answers["offsets"]["earliest"], int):
            yield LogDir(str(found.leader)).partition(name), answers


def records(partition: Partition, isolation: Isolation) -> tuple[list[tuple[Any, ...]], list[Damage]]:
    rows, damages = [], []
    for part in slice_partition(partition, isolation=isolation):
        for one in SliceScan(RecordFilter()).read(part):
            if isinstance(one, Damage):
                damages.append(one)
                continue
            for i in range(one.records):
                offset, timestamp, key, value, _, _, batch = one.record(i)
                texts = [None if text is None else bytes(text).decode() for text in (key, value)]
                rows.append((offset, timestamp, *texts, one.batch(batch).leader_epoch))
    return rows, damages


def first_after(lookup: Lookup, timestamp: int) -> int:
    trail = lookup.timestamp(timestamp)
    assert not trail.problems
    return trail.offset if trail.found and trail.offset is not None else -1


def check_offsets(found: Situation) -> None:
    """Earliest, earliest local, highest remote and latest are those of ListOffsets."""
    with both_tiers(found) as result:
        for partition, answers in told(found):
            log, offsets = result.logs.get(partition.path), answers["offsets"]
            assert partition.log_end is not None
            assert partition.log_end.offset == offsets["latest"]
            if log is None:
                assert partition.log_start_offset == offsets["earliest"]
                continue
            assert log.local_start is not None
            assert (log.log_start, max(log.local_start, log.log_start)) == (
                offsets["earliest"],
                offsets["earliest_local"],
            )
            if partition.topic != "stopped":
                assert log.remote_end_offset == offsets["latest_tiered"]
            assert log.holes() == []
            ranges = list(log.ranges(offsets["latest"]))
            assert [one.first for one in ranges[1:]] == [one.last + 1 for one in ranges[:-1]]
            assert (ranges[0].first, ranges[-1].last) == (offsets["earliest"], offsets["latest"] - 1)


def check_records(found: Situation) -> None:
    """Records of both isolation levels are those of consumers."""
    with both_tiers(found):
        for partition, answers in told(found):
            rows, damages = records(partition, "read_uncommitted")
            theirs = [(*row[:4], row[5]) for row in answers["uncommitted"]]
            if found.name.startswith("unclean"):
                assert partition.epochs is not None
                starts = [(one.start_offset, one.epoch) for one in partition.epochs.entries]
                wrong = [row for row in theirs if row[4] != max(one for one in starts if one[0] <= row[0])[1]]
                assert [row[0] for row in wrong] == [row[0] for row in rows if row not in theirs]
                theirs = [row for row in theirs if row not in wrong]
                rows = [row for row in rows if row[0] not in {one[0] for one in wrong}]
            assert (rows, damages) == (theirs, [])
            rows, damages = records(partition, "read_committed")
            assert ([row[0] for row in rows], damages) == (answers["committed"], [])


def check_times(found: Situation) -> None:
    """Offsets of times are those of ListOffsets."""
    with both_tiers(found):
        for partition, answers in told(found):
            with Lookup(partition, wanted=TrailDetail(explains=False)) as lookup:
                asked = [(time, first_after(lookup, time)) for time, *_ in answers["times"]]
            assert asked == [(time, offset) for time, offset, _ in answers["times"]]


def check_any_time(found: Situation) -> None:
    """200 random times, and 200 offsets, lead to the records that consumers got."""
    draw = random.Random(7)
    with both_tiers(found):
        for partition, answers in told(found):
            rows = [row[:2] for row in answers["uncommitted"]]
            if not rows:
                continue
            lowest, highest = min(row[1] for row in rows), max(row[1] for row in rows)
            with Lookup(partition, wanted=TrailDetail(explains=False)) as lookup:
                has_markers = (
                    len(rows) < rows[-1][0] + 1 - rows[0][0]
                )  # a consumer gets none, a broker's answer may be one
                for time in () if has_markers else (draw.randint(lowest - 10, highest) for _ in range(200)):
                    assert first_after(lookup, time) == next(offset for offset, stamp in rows if stamp >= time)
                for offset, stamp in draw.choices(rows, k=200):
                    trail = lookup.offset(offset)
                    assert (trail.offset, trail.record and trail.record.timestamp) == (offset, stamp)
