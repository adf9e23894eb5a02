"""The made-up damage: repeatable, of every kind, and such that Kafka gets through most of it."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import damage
from tests.broker_load import Loader, differences
from tests.conftest import CORPORA
from tests.damage_kinds import KINDS

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
        for number in range(20):
            one, two = tmp_path / "one", tmp_path / "two"
            for folder in (one, two):
                shutil.rmtree(folder, ignore_errors=True)
                chance = random.Random(number)
                partitions = damage._begin(source, folder, chance)
            kind(chance, partitions[0])
            changed += bool(differences(one, two) or set(one.rglob("*.deleted")) or set(two.rglob("*.deleted")))
        assert changed >= 10, kind.__name__


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
