"""Kafka's log manager without its broker: does to a log dir what whole brokers did; nothing that differs is missed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.conftest import CORPORA, FIXTURES, writable_copy
from tests.oracles.broker_load import Loader, Outcome, differences

HIGH_WATERMARKS = "replication-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"
DAY_MS = 86_400_000

# The images of crash/ were made with this; all else of their brokers were defaults.
CRASH_SETTINGS = {"log.index.size.max.bytes": "16384"}
CRASHES = sorted(path.name for path in (CORPORA / "crash").glob("v*"))


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    with Loader() as one:
        yield one


def as_before_its_leader(after: Path, before: Path) -> None:
    """Undo the broker's changes to the log dir *after* once its logs were loaded.

    The replica manager writes high watermarks.  A new leader writes its epoch and the log end into the epoch checkpoint
    (4.x at once), and entries at or behind that offset go.  Partitions that are not in the image are in checkpoints.
    """
    shutil.copy(before / HIGH_WATERMARKS, after / HIGH_WATERMARKS)
    recovery_points = after / "recovery-point-offset-checkpoint"
    lines = [line for line in recovery_points.read_text().splitlines()[2:] if (after / _directory(line)).is_dir()]
    recovery_points.write_text("".join(f"{line}\n" for line in ("0", len(lines), *lines)))
    ends = {_directory(line): line.split()[2] for line in lines}
    for directory, end in ends.items():
        epochs = after / directory / EPOCHS
        entries = [line for line in epochs.read_text().splitlines()[2:] if line.split()[1] != end]
        epochs.write_text("".join(f"{line}\n" for line in ("0", len(entries), *entries)))


def _directory(line: str) -> str:
    return "-".join(line.split()[:2])


def last_touched_ms(folder: Path) -> int:
    return int(max(path.stat().st_mtime for path in folder.rglob("*")) * 1000)


@pytest.mark.kafka
@pytest.mark.corpora
@pytest.mark.parametrize("name", CRASHES)
def test_a_log_manager_alone_does_what_a_whole_broker_did(
    name: str, loader: Loader, image: Callable[[str], Path], tmp_path: Path
) -> None:
    """Every image of a killed or damaged log dir; 3.9.1 made of its own what 4.3.1 makes of them."""
    archives = f"crash/{name}"
    before = writable_copy(image(f"{archives}/before.tar.gz"), tmp_path / "before")
    after = writable_copy(image(f"{archives}/after.tar.gz"), tmp_path / "after")
    # A producer that was idle for a day would be forgotten: the clock is the one of the image.
    now_ms = last_touched_ms(image(f"{archives}/after.tar.gz"))
    loaded = writable_copy(before, tmp_path / "loaded")
    outcome = loader.load(loaded, CRASH_SETTINGS, now_ms=now_ms)
    recorded = (CORPORA / archives / "golden/outcome.txt").read_text().strip()
    if not recorded.startswith("started"):
        assert not outcome.ok
        assert f"{outcome.error}: {outcome.message}".splitlines()[0].replace(str(loaded), "data") in recorded
        assert differences(loaded, after) == []
        return
    assert outcome == Outcome("ok")
    if name.endswith("metadata-missing"):
        # That broker was assigned the partition still, so it made an empty one of that name.
        shutil.rmtree(after / "torn-0")
    as_before_its_leader(after, before)
    if name.endswith("flip-epoch-and-offset"):
        # The flipped epoch, 18, was higher than the one of the new leader, which took its place.
        assert (loaded / "torn-0" / EPOCHS).read_text() == "0\n3\n0 0\n2 60\n18 382\n"
        shutil.copy(loaded / "torn-0" / EPOCHS, after / "torn-0" / EPOCHS)
    assert differences(loaded, after) == []


@pytest.mark.kafka
def test_a_broker_of_our_own_leaves_what_the_log_manager_leaves(loader: Loader, tmp_path: Path) -> None:
    """Internal topics, transactions, an open one: cases that the images of the corpora lack."""
    settings = {"log.segment.bytes": "1048576", "log.index.interval.bytes": "512", "log.index.size.max.bytes": "65536"}
    with kafka.Cluster(kafka.NEWEST, tmp_path / "broker", settings=settings) as cluster:
        clients.create(cluster.bootstrap, {"moved": {"internal.segment.bytes": "100000"}, "open": {}})
        given = list(clients.records("loader", 60))
        clients.with_librdkafka(cluster.bootstrap, "moved", "lz4", given, transaction="mover")
        clients.with_librdkafka(cluster.bootstrap, "moved", "none", given, enable_idempotence=True)
        with clients.open_transaction(cluster.bootstrap, "open", given[:5]):
            cluster.kill()
        before, after = tmp_path / "before", tmp_path / "after"
        shutil.copytree(cluster.data, before)
        cluster.start()
        time.sleep(1)
        cluster.stop()
        shutil.copytree(cluster.data, after)
    loaded = shutil.copytree(before, tmp_path / "loaded")
    assert loader.load(loaded, settings) == Outcome("ok")
    as_before_its_leader(after, before)
    # The files that the broker wrote for itself meanwhile, and those that show which run of it wrote.
    its_own = ("__cluster_metadata-0/", "bootstrap.checkpoint", "meta.properties")
    assert [line for line in differences(loaded, after) if not line.startswith(its_own)] == []


def test_differences_forgive_order_and_nothing_else(tmp_path: Path) -> None:
    """A comparison that forgives too much would accept a repair that a broker would not make."""
    left = writable_copy(FIXTURES / "crash/flip-middle", tmp_path / "left")
    right = writable_copy(left, tmp_path / "right")
    (left / ".lock").touch()
    (left / ".kafka_cleanshutdown").write_text("{}")
    (left / "torn-0/00000000000000000000.log.deleted").touch()
    (left / "recovery-point-offset-checkpoint").write_text("0\n2\na 0 1\nb 0 2\n")
    (right / "recovery-point-offset-checkpoint").write_text("0\n2\nb 0 2\na 0 1\n")
    assert differences(left, right) == []
    names = sorted(str(path.relative_to(right)) for path in right.rglob("*") if path.is_file() and path.stat().st_size)
    assert any(name.endswith(".snapshot") for name in names)
    for name in names:
        content = (right / name).read_bytes()
        for at in {0, len(content) // 2, len(content) - 1}:
            (right / name).write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
            assert [line.split(":")[0] for line in differences(left, right)] == [name], at
        (right / name).write_bytes(content + b"\0")
        assert [line.split(":")[0] for line in differences(left, right)] == [name]
        (right / name).unlink()
        assert differences(left, right) == [f"{name}: only in {left}"]
        assert differences(right, left) == [f"{name}: only in {left}"]
        (right / name).write_bytes(content)
    (right / "empty-0").mkdir()
    assert differences(left, right) == [f"empty-0/: only in {right}"]


@pytest.mark.kafka
def test_the_clock_and_the_settings_of_a_load_can_be_given(loader: Loader, tmp_path: Path) -> None:
    """Idle producers leave snapshots after a day, and indexes follow their interval: neither may depend on today."""
    source = FIXTURES / "crash/flip-middle"
    now_ms = clients.START_MS  # all producers of that log have written since then
    ends = {}
    for name, at, interval in (
        ("near", now_ms, "4096"),
        ("far", now_ms + 400 * DAY_MS, "4096"),
        ("dense", now_ms, "1"),
    ):
        folder = writable_copy(source, tmp_path / name)
        outcome = loader.load(folder, CRASH_SETTINGS | {"log.index.interval.bytes": interval}, now_ms=at)
        assert outcome == Outcome("ok"), name
        last = max((folder / "torn-0").glob("*.snapshot")), max((folder / "torn-0").glob("*.index"))
        ends[name] = tuple(path.stat().st_size for path in last)
    assert ends["far"][0] < ends["near"][0] == ends["dense"][0]
    assert ends["far"][1] == ends["near"][1] < ends["dense"][1]


@pytest.mark.kafka
def test_a_load_that_takes_too_long_says_so_and_the_next_one_works(tmp_path: Path) -> None:
    """One damaged image that hangs Kafka must not end a run over thousands."""
    folder = writable_copy(FIXTURES / "crash/flip-middle", tmp_path / "data")
    with Loader(seconds=0) as one:
        assert one.load(folder) == Outcome("timeout")
        one.seconds = 120
        assert one.load(folder) == Outcome("ok")
