"""Random damage, repaired in the default mode and by salvage: nothing intact is lost, and nothing is hidden."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands.recover.kept import Intact, Repaired, batches_of, missing
from tests.oracles.broker_load import Loader
from tests.support.damage import Source, case, corpora_sources, sources
from tests.support.samples import sampled

MODES = ((), ("--salvage",))
modes = pytest.mark.parametrize("mode", MODES, ids=("default", "salvage"))


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    with Loader() as one:
        yield one


@pytest.fixture(scope="module")
def wrecks(image: Callable[[str], Path], corpora: Path) -> list[Source]:
    return corpora_sources(image, corpora)


@pytest.mark.kafka
@modes
@pytest.mark.parametrize(
    ("seed", "number"), [*sampled(((1, number) for number in range(60)), 5), (7, 53), (7, 61), (7, 92), (2, 145)]
)
def test_random_damage_is_repaired_and_nothing_intact_is_lost(
    seed: int, number: int, mode: tuple[str, ...], loader: Loader, tmp_path: Path
) -> None:
    """The rest was announced, a second run finds nothing, Kafka keeps every byte, and undo restores every one."""
    one = case(seed, number, sources())
    assert list(Repaired(one, tmp_path, *mode).wrong(loader)) == [], one.name


@pytest.mark.kafka
@pytest.mark.corpora
@pytest.mark.long
@modes
@pytest.mark.parametrize(("seed", "number"), [*((7, number) for number in range(220)), (101, 0), (101, 67), (101, 158)])
def test_random_damage_to_data_of_three_brokers_is_repaired_and_nothing_intact_is_lost(
    seed: int, number: int, mode: tuple[str, ...], wrecks: list[Source], loader: Loader, tmp_path: Path
) -> None:
    """Logs of 4.3.1, 3.9.1 and 2.8.2, in all formats and codecs, with one to three damages each."""
    one = case(seed, number, wrecks)
    assert list(Repaired(one, tmp_path, *mode).wrong(loader)) == [], one.name


def test_a_batch_that_is_no_longer_there_is_missed() -> None:
    """The tests above are worth as much as this comparison: one copy for one, and a moved batch is not lost."""
    one, two, moved = Intact(0, 9, 1, 100), Intact(10, 19, 2, 100), Intact(20, 29, 2, 100)
    assert missing([one, two, one], [two, one]) == [one]
    assert missing([one, two], [moved, one]) == []
    assert missing([one, two, moved], [moved, one]) == [two]
    assert missing([one], [one, two]) == []


def test_batches_are_found_behind_damage_and_in_leftovers(tmp_path: Path) -> None:
    source = sources()[0].folder / "torn-0"
    log = (source / "00000000000000000000.log").read_bytes()
    (tmp_path / "00000000000000000000.log.swap").write_bytes(log[:100] + b"?" * 100 + log[100:])
    found = batches_of(tmp_path)
    assert batches_of(tmp_path, "*.log") == []
    assert len(found) == len(batches_of(source, "00000000000000000000.log")) - 1
