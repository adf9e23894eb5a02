"""`recover --like-broker` against Kafka: the images of killed brokers, and random damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands.recover.like_broker import Beside, options_of, recover, unlike
from tests.conftest import CORPORA, run_klog, writable_copy
from tests.oracles.broker_load import Loader, Outcome, differences
from tests.partition.start.test_load import CRASH_SETTINGS, CRASHES, EPOCHS, as_before_its_leader, last_touched_ms
from tests.support.damage import Source, case, corpora_sources, sources
from tests.support.power import tree
from tests.support.samples import sampled

# Starts that failed, and of whom: a partition, the log dir's own files, or a directory that is none.
FAILED_PARTITIONS = {
    "v3.9.1-epochs-malformed": "leader-epoch-checkpoint, line 2: 3 entries announced, 1 found",
    "v3.9.1-txnindex-garbage": "00000000000000000090.txnindex: version 127",
    "v4.3.1-epochs-malformed": "leader-epoch-checkpoint, line 2: 3 entries announced, 1 found",
    "v4.3.1-foreign-log": "NumberFormatException: saved.log",
    "v4.3.1-txnindex-garbage": "00000000000000000090.txnindex: version 127",
}
NOT_OF_PARTITIONS = ("v4.3.1-checkpoint-torn", "v4.3.1-foreign-directory", "v4.3.1-metadata-missing")
STARTED = [name for name in CRASHES if name not in (*FAILED_PARTITIONS, *NOT_OF_PARTITIONS)]


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    with Loader() as one:
        yield one


class Crash:
    """An image of a crash: *data* that is repaired, *before* that, and *after* its broker had started and stopped."""

    def __init__(self, name: str, image: Callable[[str], Path], folder: Path) -> None:
        self._folder = folder
        self.before = image(f"crash/{name}/before.tar.gz")
        self.after = writable_copy(image(f"crash/{name}/after.tar.gz"), folder / "after")
        self.data = writable_copy(self.before, folder / "data")
        self.whole = tree(self.data)
        # A producer that was idle for a day would be forgotten: the clock is the one of the image.
        self.now_ms = last_touched_ms(image(f"crash/{name}/after.tar.gz"))
        self.ran, self.said = recover(self.data, "--like-broker", *options_of(CRASH_SETTINGS), now_ms=self.now_ms)

    def loaded(self, loader: Loader, change: Callable[[Path], object]) -> Path:
        """Return Kafka's result for the image after a *change* that lets it start."""
        folder = writable_copy(self.before, self._folder / "loaded")
        change(folder)
        assert loader.load(folder, CRASH_SETTINGS, now_ms=self.now_ms) == Outcome("ok")
        return folder

    def is_taken_back(self) -> None:
        """See that undo restores every byte, mode and time."""
        if self.said["actions"]:
            assert run_klog("undo", self.said["backup"], "--apply").exit_code == 0
        assert tree(self.data) == self.whole


@pytest.fixture
def crash(request: pytest.FixtureRequest, image: Callable[[str], Path], tmp_path: Path) -> Crash:
    return Crash(request.param, image, tmp_path)


@pytest.mark.corpora
@pytest.mark.parametrize("crash", STARTED, indirect=True, ids=STARTED)
def test_a_crash_becomes_what_its_broker_made_of_it(crash: Crash, request: pytest.FixtureRequest) -> None:
    """42 images of two brokers, file by file; 3.9.1 did with its own what 4.3.1 does."""
    as_before_its_leader(crash.after, crash.before)
    if "flip-epoch-and-offset" in request.node.name:
        # The flipped epoch, 18, is higher than the one of the new leader, which took its place in that broker.
        ours = crash.data / "torn-0" / EPOCHS
        assert ours.read_text() == "0\n3\n0 0\n2 60\n18 382\n"
        shutil.copy(ours, crash.after / "torn-0" / EPOCHS)
    assert unlike(crash.data, crash.after, crash.before) == []
    assert crash.ran.exit_code == 1
    crash.is_taken_back()


@pytest.mark.corpora
@pytest.mark.parametrize("crash", sorted(FAILED_PARTITIONS), indirect=True, ids=sorted(FAILED_PARTITIONS))
def test_where_its_broker_did_not_start_nothing_changes(crash: Crash, request: pytest.FixtureRequest) -> None:
    """Half of a failed start is no useful state; the obstacle is named instead."""
    name = request.node.callspec.id
    assert differences(crash.data, crash.before) == []
    assert crash.said["actions"] == []
    (reason,) = [one["reason"] for one in crash.said["partitions"] if one["reason"]]
    assert FAILED_PARTITIONS[name] in reason
    assert crash.ran.exit_code == 4
    crash.is_taken_back()


@pytest.mark.corpora
@pytest.mark.parametrize("crash", ["v4.3.1-checkpoint-torn"], indirect=True)
def test_a_malformed_checkpoint_stays_and_the_partitions_are_repaired(crash: Crash) -> None:
    """The broker loaded its partitions without it and died then: before it trimmed the indexes that it had in use."""
    for path in sorted((crash.after / "torn-0").glob("*index")):
        ours = (crash.data / "torn-0" / path.name).read_bytes()
        assert path.read_bytes() == ours + bytes(path.stat().st_size - len(ours))
        path.write_bytes(ours)
    assert differences(crash.data, crash.after) == []
    assert [one["id"] for one in crash.said["left"]] == ["checkpoint-malformed"]
    assert crash.ran.exit_code == 5
    crash.is_taken_back()


@pytest.mark.kafka
@pytest.mark.corpora
@pytest.mark.parametrize("crash", ["v4.3.1-foreign-directory"], indirect=True)
def test_a_directory_that_stops_a_broker_stays_and_the_partitions_are_repaired(crash: Crash, loader: Loader) -> None:
    """Each partition is the broker's result once that directory is out of its way; klog names it as the obstacle."""
    loaded = crash.loaded(loader, lambda folder: shutil.rmtree(folder / "old.bak"))
    assert (crash.data / "old.bak").is_dir()
    shutil.copytree(crash.data / "old.bak", loaded / "old.bak")
    assert unlike(crash.data, loaded, crash.before) == []
    assert len(crash.said["left"]) == 1
    assert crash.ran.exit_code == 5
    crash.is_taken_back()


@pytest.mark.kafka
@pytest.mark.corpora
@pytest.mark.parametrize("crash", ["v4.3.1-metadata-missing"], indirect=True)
def test_a_partition_without_identity_is_repaired_in_its_place(crash: Crash, loader: Loader) -> None:
    """The broker sets it aside as a stray, which loses it: klog treats it as the others."""
    identity = "torn-0/partition.metadata"
    loaded = crash.loaded(
        loader, lambda folder: (folder / identity).write_text("version: 0\ntopic_id: " + "A" * 21 + "Q")
    )
    (loaded / identity).unlink()
    assert unlike(crash.data, loaded, crash.before) == []
    crash.is_taken_back()


@pytest.mark.corpora
def test_every_image_is_one_of_these() -> None:
    """An image that no test takes would be an untested crash."""
    assert len(CRASHES) == 50
    assert len(STARTED) == 42
    recorded = {name: (CORPORA / "crash" / name / "golden/outcome.txt").read_text() for name in CRASHES}
    assert all(recorded[name].startswith("started") for name in STARTED)
    assert not any(recorded[name].startswith("started") for name in FAILED_PARTITIONS)


# random damage


@pytest.mark.kafka
@pytest.mark.parametrize("number", sampled(range(60), 3))
def test_random_damage_becomes_what_kafka_makes_of_it(number: int, loader: Loader, tmp_path: Path) -> None:
    """A sample that `make test` can afford; if Kafka does not complete the start, klog changes nothing and names the
    reason."""
    one = case(1, number, sources())
    assert list(Beside(one, tmp_path).wrong(loader)) == [], one.name


@pytest.fixture(scope="module")
def wrecks(image: Callable[[str], Path], corpora: Path) -> list[Source]:
    return corpora_sources(image, corpora)


@pytest.mark.kafka
@pytest.mark.corpora
@pytest.mark.parametrize(("seed", "number"), [*sampled(((7, number) for number in range(220)), 8), (101, 70)])
def test_random_damage_to_data_of_three_brokers_becomes_what_kafka_makes_of_it(
    seed: int, number: int, wrecks: list[Source], loader: Loader, tmp_path: Path
) -> None:
    """Logs of 4.3.1, 3.9.1 and 2.8.2, in all formats and codecs, with one to three damages each."""
    one = case(seed, number, wrecks)
    assert list(Beside(one, tmp_path).wrong(loader)) == [], one.name
