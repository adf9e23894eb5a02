"""The pass over all copies, against a slow comparison that has everything in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from random import Random
from struct import Struct
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.cluster.follower_truncation import epoch_rounds
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.commands.replicas.batch_comparison import ComparedCopy, Comparison
from klog.commands.replicas.compacted import CompactedComparison
from klog.commands.replicas.copy_reader import CopyReader
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry

from tests.oracles.plain.encode import Record, batch
from tests.support.examples import examples

Content = tuple[int, bytes | None, bytes | None]


class Made(NamedTuple):
    """A batch of a history; *records*: by offset."""

    epoch: int
    first: int
    last: int
    records: dict[int, Content]
    data: bytes


def made(random: Random, epoch: int, first: int) -> Made:
    count = random.choice((1, 1, 2, 5))
    content = {
        first + i: (1000 + random.randrange(3), b"k%d" % random.randrange(4), random.randbytes(2)) for i in range(count)
    }
    records = [Record(offset, *each) for offset, each in content.items()]
    data = batch(records, leader_epoch=epoch, codec=random.choice(("none", "lz4")))
    return Made(epoch, first, first + count - 1, content, data)


def histories(
    seed: int, nodes: int, elections: int, make: Callable[[Random, int, int], Made] = made
) -> dict[int, list[Made]]:
    """Let brokers lead one after another and copy from the leader as far as they get, as brokers do."""
    random = Random(seed)
    logs: dict[int, list[Made]] = {node: [] for node in range(1, nodes + 1)}
    for epoch in range(elections):
        leader = random.choice(list(logs))
        log = logs[leader]
        for _ in range(random.randrange(5)):
            log.append(make(random, epoch, log[-1].last + 1 if log else 0))
        for node in logs:
            if node != leader and random.random() < 0.6:
                same = 0
                while same < min(len(log), len(logs[node])) and log[same].data == logs[node][same].data:
                    same += 1
                logs[node] = log[: random.randint(same, len(log))]
    return logs


def written(folder: Path, log: list[Made], random: Random) -> Partition:
    """Write a copy, in segments of its own."""
    folder.mkdir(parents=True)
    name = 0
    for number, one in enumerate(log):
        if number and random.random() < 0.2:
            name = one.first
        with open(folder / f"{name:020}.log", "ab") as file:
            file.write(one.data)
    if not log:
        (folder / f"{0:020}.log").touch()
    return Partition(str(folder))


def end(log: list[Made]) -> int:
    return log[-1].last + 1 if log else 0


def slow(logs: dict[int, list[Made]]) -> dict[str, Any]:
    """Compare with sets."""
    held = {node: {(offset, each) for one in log for offset, each in one.records.items()} for node, log in logs.items()}
    union = set().union(*held.values())
    others_have = {node: set().union(*(held[other] for other in held if other != node)) for node in held}
    differences = {}
    for one, other in combinations(sorted(logs), 2):
        least = min(end(logs[one]), end(logs[other]))
        mine, others = ([each.data for each in logs[node]] for node in (one, other))
        odd = {
            each.first
            for node, theirs in ((one, others), (other, mine))
            for each in logs[node]
            if each.data not in theirs
        }
        differences[one, other] = min([least, *odd])
    return {
        "lost": {node: len(union - mine) for node, mine in held.items()},
        "only": {node: len(mine - others_have[node]) for node, mine in held.items()},
        "differences": differences,
    }


def compared(folder: Path, logs: dict[int, list[Made]], seed: int) -> Comparison:
    random = Random(seed)
    copies = [
        ComparedCopy(node, written(folder / str(node) / "t-0", log, random), 0, end(log)) for node, log in logs.items()
    ]
    comparison = Comparison(copies)
    comparison.run()
    return comparison


@examples(150)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(1, 8))
def test_a_pass_finds_what_sets_find(
    tmp_path_factory: pytest.TempPathFactory, seed: int, nodes: int, elections: int
) -> None:
    logs = histories(seed, nodes, elections)
    found = compared(tmp_path_factory.mktemp("copies"), logs, seed)
    wanted = slow(logs)
    assert found.first_differences == wanted["differences"]
    assert {node: facts.lost.count for node, facts in found.facts.items()} == wanted["lost"]
    assert {node: facts.only_here.count for node, facts in found.facts.items()} == wanted["only"]
    for node, facts in found.facts.items():
        assert facts.batches == len(logs[node])
        runs = [(run.epoch, run.first, run.last) for run in facts.epochs]
        assert [epoch for epoch, *_ in runs] == sorted({each.epoch for each in logs[node]})


@examples(150)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(1, 8))
def test_where_epochs_cut_is_where_batches_part(seed: int, nodes: int, elections: int) -> None:
    """With the epoch that the leader gets by its election: then it is always defined, and exact."""
    logs = histories(seed, nodes, elections)
    caches = {}
    for node, log in logs.items():
        caches[node] = LeaderEpochCache()
        for one in log:
            caches[node].assign(one.epoch, one.first)
    for (one, other), difference in slow(logs)["differences"].items():
        for follower, leader in ((one, other), (other, one)):
            elected = LeaderEpochCache([*caches[leader].entries, EpochEntry(elections, end(logs[leader]))])
            rounds = epoch_rounds(caches[follower], end(logs[follower]), elected, end(logs[leader]), 0)
            if logs[follower]:
                assert rounds[-1].to == difference


def regrouped(log: list[Made], random: Random) -> list[Made]:
    """Return the same records in other batches, without some of them, as cleaners leave them."""
    left: list[Made] = []
    waiting: dict[int, Content] = {}
    for number, one in enumerate(log):
        waiting |= one.records
        is_last = number + 1 == len(log) or log[number + 1].epoch != one.epoch
        if is_last or random.random() < 0.5:
            kept = {o: each for o, each in waiting.items() if o == max(waiting) or random.random() < 0.8}
            flags = {"transactional": True, "producer": (7, 0, 0)} if random.random() < 0.1 else {}
            data = batch([Record(o, *each) for o, each in kept.items()], leader_epoch=one.epoch, **flags)
            left.append(Made(one.epoch, min(kept), max(kept), kept, data))
            waiting = {}
    return left


def merged(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return ranges, inclusive."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1] = ranges[-1][0], offset
        else:
            ranges.append((offset, offset))
    return ranges


@examples(150)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(1, 6))
def test_copies_that_begin_anywhere_are_compared_by_what_they_could_have(
    tmp_path_factory: pytest.TempPathFactory, seed: int, nodes: int, elections: int
) -> None:
    """A log start inside a batch hides its first records, and a cleaner leaves offsets without records."""
    random = Random(seed)
    logs = {
        node: regrouped(log, random) if random.random() < 0.5 else log
        for node, log in histories(seed, nodes, elections).items()
    }
    starts = {node: random.choice((0, random.randint(0, end(log)))) for node, log in logs.items()}
    committed, folder = random.randint(0, max(map(end, logs.values()))), tmp_path_factory.mktemp("copies")
    copies = [
        ComparedCopy(node, written(folder / str(node) / "t-0", log, random), starts[node], end(log))
        for node, log in logs.items()
    ]
    found = Comparison(copies, committed).run()
    for one, other in combinations(sorted(logs), 2):
        odd = [
            each.first
            for node, lacking in ((one, other), (other, one))
            for each in logs[node]
            if each.last >= max(starts[node], starts[lacking])
            and each.data not in [same.data for same in logs[lacking]]
        ]
        assert found.first_difference(one, other) == min([end(logs[one]), end(logs[other]), *odd])
    held = {
        node: {(o, each) for one in log for o, each in one.records.items() if o >= starts[node]}
        for node, log in logs.items()
    }
    for node, facts in found.facts.items():
        others = {other: held[other] for other in held if other != node}
        lost = {one for one in set().union(*others.values()) - held[node] if one[0] >= starts[node]}
        only = {
            one for one in held[node].difference(*others.values()) if any(starts[other] <= one[0] for other in others)
        }
        assert (facts.lost.count, facts.lost.ranges) == (len(lost), merged(o for o, _ in lost))
        assert facts.lost_below == sum(o < committed for o, _ in lost)
        assert (facts.only_here.count, facts.only_here.ranges) == (len(only), merged(o for o, _ in only))
        mine = [one for one in logs[node] if one.last >= starts[node]]
        assert facts.batches == len(mine)
        assert facts.has_transactions == any(Struct(">h").unpack_from(one.data, 21)[0] & 0x10 for one in mine)
        assert [run.epoch for run in facts.epochs] == sorted({one.epoch for one in mine})
        assert [(run.first, run.last) for run in facts.epochs] == [
            (
                min(one.first for one in mine if one.epoch == run.epoch),
                max(one.last for one in mine if one.epoch == run.epoch),
            )
            for run in facts.epochs
        ]


def test_a_bad_batch_holds_nothing(tmp_path: Path) -> None:
    logs = histories(5, 2, 1)
    leader = max(logs, key=lambda node: end(logs[node]))
    logs = {1: logs[leader], 2: logs[leader]}
    found = compared(tmp_path / "whole", logs, 1)
    assert found.facts[1].lost.count == 0
    spoilt = tmp_path / "spoilt"
    found = compared(spoilt, logs, 1)
    log = sorted((spoilt / "2" / "t-0").glob("*.log"))[0]
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)
    copies = [ComparedCopy(node, Partition(str(spoilt / str(node) / "t-0")), 0, end(logs[node])) for node in logs]
    again = Comparison(copies)
    again.run()
    first = logs[1][0]
    assert again.facts[2].bad_batches == [first.first]
    assert again.facts[2].lost.ranges == [(first.first, first.last)]
    assert again.facts[1].lost.count == 0
    assert again.first_difference(1, 2) == first.first


def test_records_below_a_log_start_inside_of_a_batch_are_nobodys(tmp_path: Path) -> None:
    """They are deleted, though their bytes are still there: that another copy lacks them is no loss."""
    records = [Record(offset, 1, None, b"v%d" % offset) for offset in range(10)]
    whole, again = batch(records), batch([Record(offset, 1, None, b"w") for offset in range(10)])
    copies = []
    for node, data, log_start in ((1, whole, 4), (2, again, 0)):
        folder = tmp_path / str(node) / "t-0"
        folder.mkdir(parents=True)
        (folder / f"{0:020}.log").write_bytes(data)
        copies.append(ComparedCopy(node, Partition(str(folder)), log_start, 10))
    found = Comparison(copies).run()
    assert {node: facts.lost.ranges for node, facts in found.facts.items()} == {1: [(4, 9)], 2: [(4, 9)]}
    assert {node: facts.only_here.ranges for node, facts in found.facts.items()} == {1: [(4, 9)], 2: [(4, 9)]}


def test_a_missing_directory_lacks_everything(tmp_path: Path) -> None:
    log = [made(Random(1), 0, 0)]
    partition = written(tmp_path / "t-0", log, Random(1))
    comparison = Comparison([ComparedCopy(1, partition, 0, end(log)), ComparedCopy(2, None, 0, 0)])
    comparison.run()
    assert comparison.facts[2].lost.count == len(log[0].records)
    assert comparison.facts[1].only_here.count == len(log[0].records)


def cleaned(log: list[Made], below: int) -> list[Made]:
    """Return a cleaner's result: below an offset only the last record of each key."""
    latest = {content[1]: offset for one in log for offset, content in one.records.items()}
    left = []
    for one in log:
        kept = {o: each for o, each in one.records.items() if o >= below or latest[each[1]] == o}
        if len(kept) == len(one.records):
            left.append(one)
        elif kept:
            data = batch([Record(o, *each) for o, each in kept.items()], leader_epoch=one.epoch)
            left.append(Made(one.epoch, min(kept), max(kept), kept, data))
    return left


@examples(80)
@given(st.integers(0, 2**32))
def test_what_a_cleaner_took_is_explained(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """And what somebody else took is not."""
    random = Random(seed)
    log: list[Made] = []
    for _ in range(random.randrange(4, 20)):
        log.append(made(random, 0, end(log)))
    points = {node: random.choice([0, end(log) // 2, end(log)]) for node in (1, 2, 3)}
    logs = {node: cleaned(log, point) for node, point in points.items()}
    if random.random() < 0.5 and len(logs[3]) > 1:
        logs[3].pop(random.randrange(len(logs[3]) - 1))
    folder = tmp_path_factory.mktemp("copies")
    copies = [
        ComparedCopy(node, written(folder / str(node) / "t-0", each, random), 0, end(log))
        for node, each in logs.items()
    ]
    found = CompactedComparison(copies, 0, points)
    found.run()
    union = set().union(*({(o, each) for one in made_ for o, each in one.records.items()} for made_ in logs.values()))
    for node in (1, 2):
        assert found.facts[node].lost.count == 0
        assert found.explained[node] == len(union) - sum(len(one.records) for one in logs[node])
    latest = {content[1]: offset for one in logs[3] for offset, content in one.records.items()}
    kept = {(offset, content) for one in logs[3] for offset, content in one.records.items()}
    # Without the last record of its key nothing explains the earlier ones either.
    lacking = {
        offset for offset, content in union - kept if not (offset < points[3] and latest.get(content[1], -1) > offset)
    }
    assert {node: found.unexplained[node].count for node in (1, 2, 3)} == {1: 0, 2: 0, 3: len(lacking)}


def test_a_deep_comparison_compares_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches with one checksum are one in four thousand million, so here only the headers are the same."""
    log = [made(Random(3), 0, 0), made(Random(4), 0, 5)]
    copies = [ComparedCopy(node, written(tmp_path / str(node) / "t-0", log, Random(1)), 0, end(log)) for node in (1, 2)]
    equal = Comparison(copies, is_deep=True)
    equal.run()
    assert equal.first_difference(1, 2) == end(log)
    seen: list[int] = []

    def spoilt(reader: CopyReader, count: int) -> memoryview:
        seen.append(count)
        return memoryview(b"%d" % id(reader))

    monkeypatch.setattr(CopyReader, "content", spoilt)
    deep = Comparison(copies, is_deep=True)
    deep.run()
    assert seen
    assert deep.first_difference(1, 2) == 0
