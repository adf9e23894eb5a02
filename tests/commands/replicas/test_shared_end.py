"""The common part of two copies is read once: the plan compares, cuts and copies only the rest."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.commands.replicas.batch_comparison import ComparedCopy, Comparison
from klog.data_dir.partition import Partition

from tests.commands.replicas.test_batch_comparison import Made, end, histories, made
from tests.oracles.plain.encode import Record, batch, snapshot, wrapper
from tests.support.examples import examples
from tests.support.lookup_logs import write_segment
from tests.support.reads import count_reads

Run = Callable[..., Any]
OLD_EPOCHS = 3
"""The number of leaders that wrote entries of format 1, whose header contains only their last offset; then came an
upgrade."""


def made_before_and_after(random: Random, epoch: int, first: int) -> Made:
    one = made(random, epoch, first)
    if epoch >= OLD_EPOCHS:
        return one
    records = [Record(offset, *each) for offset, each in one.records.items()]
    return one._replace(data=wrapper(records, 1, "gzip"))


def written(folder: Path, log: list[Made], random: Random) -> Partition:
    """Write a copy, in segments of its own, with an index entry for almost every batch."""
    folder.mkdir(parents=True)
    cuts = [0, *(number for number in range(1, len(log)) if random.random() < 0.2), len(log)]
    for begin, behind in pairwise(cuts):
        some = [(one.last, 1000, one.data) for one in log[begin:behind]]
        write_segment(folder, log[begin].first if begin else 0, some, interval=random.choice((0, 0, 200)))
    return Partition(str(folder))


def counts(comparison: Comparison) -> dict[int, tuple[object, ...]]:
    return {
        node: (facts.lost.ranges, facts.lost.count, facts.only_here.ranges, facts.only_here.count)
        for node, facts in comparison.facts.items()
    }


@examples(150)
@given(st.integers(0, 2**32), st.integers(2, 4), st.integers(1, 8))
def test_the_rest_alone_tells_what_two_copies_lack(
    tmp_path_factory: pytest.TempPathFactory, seed: int, nodes: int, elections: int
) -> None:
    """Behind the shared end of a pass over all copies: the same records, the same first difference as of the whole."""
    random, folder = Random(seed), tmp_path_factory.mktemp("copies")
    logs = histories(seed, nodes, elections, made_before_and_after)
    copies = {}
    for node, log in logs.items():
        start = random.choice((0, 0, random.randint(0, end(log))))
        copies[node] = ComparedCopy(node, written(folder / str(node) / "t-0", log, random), start, end(log))
    every = Comparison(list(copies.values())).run()
    for one, other in combinations(copies, 2):
        both = copies[one], copies[other]
        whole = Comparison(both).run()
        shared = every.shared_end(one, other)
        epochs = [[run.epoch for run in every.facts[copy.node].epochs if run.first < shared] for copy in both]
        rest = Comparison(
            [
                copy._replace(from_offset=shared, epoch=max(below, default=-1))
                for copy, below in zip(both, epochs, strict=True)
            ]
        ).run()
        assert counts(rest) == counts(whole)
        assert rest.first_difference(one, other) == whole.first_difference(one, other)
        assert shared <= whole.first_difference(one, other)


BATCHES, RECORDS = 4000, 5


def lag(root: Path, missing: int) -> list[Path]:
    """Write three copies with a clean stop, the last of which lacks some batches at the end."""
    groups = [[Record(at + i, 1000, b"k", b"v" * 200) for i in range(RECORDS)] for at in range(0, BATCHES * 5, RECORDS)]
    some = [(group[-1].offset, 1000, batch(group)) for group in groups]
    for node in (1, 2, 3):
        data = root / str(node)
        data.mkdir(parents=True)
        (data / "meta.properties").write_text(f"version=1\nnode.id={node}\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n")
        (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
        here = some if node < 3 else some[:-missing]
        write_segment(data / "t-0", 0, here)
        (data / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        (data / "t-0" / f"{len(here) * RECORDS:020}.snapshot").write_bytes(snapshot([]))
        (data / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return [root / str(node) for node in (1, 2, 3)]


@pytest.mark.usefixtures("hasty")
def test_a_plan_reads_once_what_all_copies_share(tmp_path: Path, klog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that lacks its last 1 % costs 1 % more reading than the comparison, and copies 1 %."""
    disks = lag(tmp_path, missing=BATCHES // 100)
    logs = [disk / "t-0" / f"{0:020}.log" for disk in disks]
    whole = os.path.getsize(logs[0])
    reads = count_reads(monkeypatch)
    done = klog("replicas", "plan", *disks, "--output", "json")
    assert done.exit_code == 0, done.stderr
    (target,) = json.loads(done.stdout)["copies"][0]["targets"]
    assert target["records_added"] == BATCHES // 100 * RECORDS
    assert target["bytes_copied"] == whole // 100
    for log in logs:
        assert reads.of(log)[1] < 1.1 * whole, log
