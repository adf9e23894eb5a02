"""The made-up damage: repeatable, of every kind, and such that Kafka gets through most of it."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.conftest import CORPORA
from tests.oracles.broker_load import MARKER, Loader, differences
from tests.support import damage
from tests.support.damage_kinds import KINDS, set_entry

SEED, COUNT = 20261121, 120


def test_a_case_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    """A difference that was found once must be found again by its name."""
    given = damage.sources()
    for case in damage.cases(SEED, given, 40):
        for name in ("one", "two"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        case.make(tmp_path / "one")
        number = int(case.name.split(" ")[0].split("/")[1])
        damage.case(SEED, number, given).make(tmp_path / "two")
        assert differences(tmp_path / "one", tmp_path / "two") == [], case.name


def test_every_kind_of_damage_changes_something(tmp_path: Path) -> None:
    """A kind that only looks like damage would leave a rule of the broker untried."""
    source = damage.sources()[0]
    for kind in KINDS:
        changed = 0
        for number in range(10):
            one, two = tmp_path / "one", tmp_path / "two"
            for folder in (one, two):
                shutil.rmtree(folder, ignore_errors=True)
                chance = random.Random(number)
                partitions = damage._begin(source, folder, chance)
            kind(chance, partitions[0])
            changed += bool(differences(one, two) or set(one.rglob("*.deleted")) or set(two.rglob("*.deleted")))
        assert changed >= 5, kind.__name__


@pytest.mark.kafka
def test_kafka_gets_through_most_damage_and_always_the_same_way(tmp_path: Path) -> None:
    """Cases that only stop the broker compare nothing, and what is random in Kafka cannot be compared with."""
    states: Counter[str] = Counter()
    with Loader(seconds=30) as loader:
        for case in damage.cases(SEED, damage.sources(), COUNT):
            outcomes = []
            for name in ("one", "two"):
                shutil.rmtree(tmp_path / name, ignore_errors=True)
                case.make(tmp_path / name)
                outcomes.append(loader.load(tmp_path / name, case.settings, now_ms=case.now_ms))
            states[outcomes[0].state] += 1
            assert outcomes[0].state == outcomes[1].state, case.name
            if outcomes[0].ok:
                assert differences(tmp_path / "one", tmp_path / "two") == [], case.name
    assert states["ok"] > COUNT * 3 // 4, states
    assert states["died"], states
    assert states["offline"], states
    assert not states["timeout"], states


@pytest.mark.kafka
@pytest.mark.corpora
def test_the_wrecks_of_the_corpora_give_cases_too(image: Callable[[str], Path], tmp_path: Path) -> None:
    """More segments, three versions: nothing of them may hang Kafka, or the comparison would."""
    states: Counter[str] = Counter()
    with Loader(seconds=30) as loader:
        for case in damage.cases(SEED, damage.corpora_sources(image, CORPORA), 60):
            shutil.rmtree(tmp_path / "one", ignore_errors=True)
            case.make(tmp_path / "one")
            states[loader.load(tmp_path / "one", case.settings, now_ms=case.now_ms).state] += 1
    assert states["ok"] > 40, states
    assert not states["timeout"], states


@pytest.mark.kafka
@pytest.mark.slow
def test_a_whole_broker_makes_of_damaged_partitions_what_the_log_manager_makes(tmp_path: Path) -> None:
    """All that is compared with the log manager alone stands on this: forty damaged partitions in one real start."""
    settings = {"log.index.size.max.bytes": "16384", "log.index.interval.bytes": "4096"}
    topics = [f"d{number}" for number in range(40)]
    with kafka.Cluster(kafka.NEWEST, tmp_path / "broker", settings=settings) as cluster:
        clients.create(cluster.bootstrap, {topic: {} for topic in topics})
        # The broker says that a topic is there before it has made the log, and writes its identity later still.
        until = time.monotonic() + 60
        while len(list(cluster.data.glob("d*-0/partition.metadata"))) < len(topics) and time.monotonic() < until:
            time.sleep(0.1)
        cluster.kill()
        with Loader(seconds=30) as loader:
            damaged = _damaged_partitions(loader, settings, tmp_path / "case")
            for topic in topics:
                _take_the_place_of(cluster.data / f"{topic}-0", *next(damaged))
            loaded = shutil.copytree(cluster.data, tmp_path / "loaded")
            assert loader.load(loaded, settings).ok
        cluster.start()
        time.sleep(1)
        cluster.stop()
    # New topics have new leaders, whose low epochs push the old ones out; else only what the broker itself keeps.
    other = re.compile(
        r"\S*/leader-epoch-checkpoint(\.tmp)?:|__cluster_metadata-0/|(bootstrap|\w+-offset)-?\.?checkpoint:"
    )
    assert [line for line in differences(loaded, cluster.data) if not other.match(line)] == []


def _damaged_partitions(
    loader: Loader, settings: dict[str, str], folder: Path
) -> Iterator[tuple[Path, dict[str, int]]]:
    """Yield partitions of cases that Kafka gets through, and their entries in the checkpoints of the log dir."""
    for case in damage.cases(SEED, damage.sources(), 1000):
        shutil.rmtree(folder, ignore_errors=True)
        case.make(folder)
        names = "folder_marked|identity_spoilt|checkpoint_spoilt"
        if case.settings != settings or (folder / MARKER).exists() or re.search(names, case.name):
            continue
        tried = shutil.copytree(folder, folder.with_name("tried"))
        ok = loader.load(tried, settings).ok
        shutil.rmtree(tried)
        for partition in sorted(path for path in folder.iterdir() if ok and path.is_dir()):
            lines = {path.name: path.read_text().splitlines()[2:] for path in folder.glob("*-offset-checkpoint")}
            start = " ".join(partition.name.rsplit("-", 1)) + " "
            found = {name: line for name, each in lines.items() for line in each if line.startswith(start)}
            yield partition, {name: int(line.split()[2]) for name, line in found.items()}


def _take_the_place_of(place: Path, partition: Path, entries: dict[str, int]) -> None:
    """Put a partition where an empty one of a running cluster's is, under that one's identity."""
    identity = (place / "partition.metadata").read_bytes()
    shutil.rmtree(place)
    shutil.copytree(partition, place)
    (place / "partition.metadata").write_bytes(identity)
    for checkpoint, value in entries.items():
        set_entry(place.parent / checkpoint, place, value)
