"""A broker starts between any two actions of a compaction: it finds the old records, or the new ones."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from klog.change.plan.executor import apply
from klog.change.plan.model import PUT, TRUNCATE, Plan
from klog.change.plan.undo import plan_undo, stage_undo

from tests.commands.compact.compacting import NOW_MS, batches, planned, records, some, table
from tests.oracles.broker_load import Loader, Outcome
from tests.support.power import HastyDisk

PARTITIONS = ("grouping-0", "idempotent-0", "tx-later-0")
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    with Loader() as one:
        yield one


def files_of(partition: Path) -> Files:
    return {path.name: path.read_bytes() for path in partition.iterdir()}


def prefixes(plan: Plan, data: Path, directory: str) -> Iterator[Files]:
    """Yield the state of a partition before the first of its actions, and after each of them."""
    files = files_of(data / directory)
    yield dict(files)
    for action in plan.actions:
        folder, _, name = action.file.rpartition("/")
        if folder != directory:
            continue
        if action.do == PUT:
            assert action.source is not None
            files[name] = Path(plan.staged(0), action.source).read_bytes()
        elif action.do == TRUNCATE:
            assert action.after is not None
            files[name] = files[name][: action.after.size]
        else:
            del files[name]
        yield dict(files)


def write(data: Path, states: Mapping[str, list[Files]], folder: Path) -> None:
    """Make a log dir each partition of which is one of the states, under its topic and a number."""
    folder.mkdir()
    for path in data.iterdir():
        if path.is_file() and path.name != ".lock":
            shutil.copyfile(path, folder / path.name)
    for topic, every in states.items():
        for number, files in enumerate(every):
            (folder / f"{topic}-{number}").mkdir()
            for name, content in files.items():
                (folder / f"{topic}-{number}" / name).write_bytes(content)
    for path in folder.glob("*-checkpoint"):
        old = [line.split() for line in path.read_text().splitlines()[2:]]
        lines = [f"{topic} {n} {point}" for topic, _, point in old for n in range(len(states.get(topic, [])))]
        path.write_text("".join(f"{line}\n" for line in ("0", len(lines), *lines)))


@pytest.mark.kafka
@pytest.mark.parametrize("stop", ["clean", "unclean"])
def test_a_broker_may_start_at_any_moment_of_a_compaction(loader: Loader, stop: str, memory: Path) -> None:
    """For each partition and all groups, forwards and backwards: no key has another value than before."""
    data = some(memory / "data", *PARTITIONS)
    if stop == "unclean":
        (data / ".kafka_cleanshutdown").unlink()
    old = {directory: records(data / directory) for directory in PARTITIONS}
    tables = {directory: table(batches(data / directory)) for directory in PARTITIONS}
    plan, _ = planned(data, HastyDisk())
    bases = {directory: [int(p.stem) for p in sorted((data / directory).glob("*.log"))] for directory in PARTITIONS}
    forwards = {directory: list(prefixes(plan, data, directory)) for directory in PARTITIONS}
    apply(plan, HastyDisk())
    new = {directory: records(data / directory) for directory in PARTITIONS}
    back = plan_undo(plan, NOW_MS)
    stage_undo(plan, back, HastyDisk())
    backwards = {directory: list(prefixes(back, data, directory)) for directory in PARTITIONS}
    for name, states in (("forwards", forwards), ("backwards", backwards)):
        folder = memory / name
        write(data, {directory.rpartition("-")[0]: every for directory, every in states.items()}, folder)
        assert loader.load(folder) == Outcome("ok")
        for directory, every in states.items():
            assert len(every) > 20
            cuts: list[int] = []
            for number in range(len(every)):
                partition = folder / f"{directory.rpartition('-')[0]}-{number}"
                found = records(partition)
                mixed = {
                    end: [one for one in new[directory] if one.offset < end]
                    + [one for one in old[directory] if one.offset >= end]
                    for end in [0, *bases[directory], 2**63]
                }
                # As long as a record exists, so do all later ones.
                cuts.append(max((end for end, wanted in mixed.items() if wanted == found), default=-1))
                assert cuts[-1] >= 0, (name, directory, number)
                assert table(batches(partition)) == tables[directory], (name, directory, number)
                assert not [path.name for path in partition.iterdir() if path.suffix in (".swap", ".cleaned")]
            assert cuts == sorted(cuts, reverse=name == "backwards"), "there is no way back"
            assert 2**63 in cuts
            assert len(set(cuts)) > 1
