"""Logs whose leader epochs fall: acknowledged batches, which neither verify nor a repair takes for damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.oracles.broker_load import Loader
from tests.support.rolled_back import data, metadata, partition

Klog = Callable[..., Ran]
RISING = [(2, 2, 2), (2, 4, 6), (0, 1)]
FALLS = [
    (epochs, last, lower)
    for epochs in ((6, 6, 6), (2, 4, 6, 6), (1, 9, 9))
    for last in (0, 5)
    for lower in (1, 2, 5)
    if last < epochs[-1]
]


def log_of(folder: Path, epochs: Sequence[int], more: bytes = b"", clean: bool = True) -> Path:
    """Write a partition of batches with *epochs*, and a checkpoint of those that rise, as a broker's recovery does."""
    metadata(folder, max(epochs), None)
    rising = [(epoch, 2 * i) for i, epoch in enumerate(epochs) if epoch > max(epochs[:i], default=-1)]
    if not clean:
        (folder / ".kafka_cleanshutdown").unlink()
    return partition(folder, [*(data(2 * i, epoch) for i, epoch in enumerate(epochs)), more], rising)


def answer(klog: Klog, *words: object) -> tuple[int, Any]:
    done = klog(*map(str, words), "--output", "json")
    return done.exit_code, json.loads(done.stdout)


def ids(klog: Klog, path: Path) -> list[str]:
    """Return the findings about the log and its epochs."""
    _, found = answer(klog, "verify", "--deep", path)
    return [one["id"] for one in found["findings"] if "index" not in one["id"]]


@pytest.mark.parametrize(("epochs", "last", "lower"), FALLS)
def test_salvage_keeps_what_a_broker_keeps(
    epochs: tuple[int, ...], last: int, lower: int, klog: Klog, tmp_path: Path
) -> None:
    path = log_of(tmp_path / "data", [*epochs, *[last] * lower])
    log = path / f"{0:020}.log"
    before = log.read_bytes()
    assert ids(klog, path) == ["epochs-fall"]
    _, plan = answer(klog, "recover", "--salvage", path)
    assert plan["losses"] == []
    assert klog("recover", "--salvage", path, "--apply").exit_code == 1  # the indexes
    assert log.read_bytes() == before
    assert klog("recover", "--salvage", path, "--apply").exit_code == 0
    assert klog("verify", "--deep", path).exit_code == 0


@pytest.mark.parametrize("lower", [1, 2, 5])
@pytest.mark.parametrize("mode", ["", "--salvage", "--like-broker"])
def test_before_a_torn_tail(mode: str, lower: int, klog: Klog, tmp_path: Path) -> None:
    """Only the unfinished batch is cut, in every mode; a broker would keep the same."""
    epochs = [6, 6, 6, *[2] * lower]
    torn = data(2 * len(epochs), 2)[:-5]
    path = log_of(tmp_path / "data", epochs, torn, clean=False)
    log = path / f"{0:020}.log"
    before = log.read_bytes()[: -len(torn)]
    text = klog("recover", *filter(None, [mode]), path).stdout.decode()
    if mode != "--like-broker":
        assert f"keeps {2 * len(epochs)} records ({len(before)} B); a broker would keep as many\n" in text
    assert klog("recover", *filter(None, [mode]), path, "--apply").exit_code & 1
    assert log.read_bytes() == before
    assert ids(klog, path) == ["epochs-fall"]


@pytest.mark.parametrize("epochs", RISING)
def test_rising_epochs_are_not_noted(epochs: tuple[int, ...], klog: Klog, tmp_path: Path) -> None:
    path = log_of(tmp_path / "data", epochs)
    assert ids(klog, path) == []


@pytest.mark.parametrize(
    ("epochs", "found"),
    [
        ((6, 6, 2, 6, 6), ["odd-epoch"]),  # one batch: a flipped bit
        ((2, 2, 3, 2, 2), ["odd-epoch"]),
        ((2, 2, 2, 3), []),  # a new leader
        ((6, 6, 2, 2, 6, 6), ["epochs-fall"]),
        ((6, 6, *[2] * 1500), ["epochs-fall"]),  # reported once, however long it is
        ((6, 6, 2, 2, 4, 4, 3, 3), ["epochs-fall", "epochs-fall"]),
    ],
)
def test_one_batch_is_odd_and_more_are_a_leaders(
    epochs: tuple[int, ...], found: list[str], klog: Klog, tmp_path: Path
) -> None:
    assert ids(klog, log_of(tmp_path / "data", epochs)) == found


def test_an_odd_epoch_that_nothing_proves_is_left_and_said(klog: Klog, tmp_path: Path) -> None:
    """21840 between 2 and 7: no record is cut for it, it is in no checkpoint, and the exit code reports it."""
    epochs = [2, 2, 2, 21840, 7, 7, 7]
    path = log_of(tmp_path / "data", epochs, data(14, 7)[:-5], clean=False)
    shutil.copyfile(path / f"{0:020}.log", tmp_path / "before")
    assert klog("recover", "--salvage", path, "--apply").exit_code == 5
    whole = b"".join(data(2 * i, epoch) for i, epoch in enumerate(epochs))
    assert (path / f"{0:020}.log").read_bytes() == whole
    assert (path / "leader-epoch-checkpoint").read_text().split()[2:] == ["2", "0", "7", "8"]
    assert ids(klog, path) == ["odd-epoch"]
    assert klog("recover", "--salvage", path, "--apply").exit_code == 4


def test_an_epoch_that_fits_once_the_batch_behind_it_is_gone_is_not_left(klog: Klog, tmp_path: Path) -> None:
    """A batch with offsets of before lies behind the first one of a new leader: the finding ends with it."""
    kept = [data(0), data(2), data(4, 2), data(6, 2), data(8, 2)]
    metadata(tmp_path / "data", 2, None)
    path = partition(tmp_path / "data", [*kept[:3], data(2), *kept[3:]], [(0, 0), (2, 4)])
    assert "odd-epoch" in ids(klog, path)
    code, done = answer(klog, "recover", "--salvage", path, "--apply")
    assert (path / f"{0:020}.log").read_bytes() == b"".join(kept)
    assert [one["id"] for one in done["left"]] == ids(klog, path) == []
    assert code == 1


@pytest.mark.kafka
def test_a_broker_keeps_them(klog: Klog, tmp_path: Path) -> None:
    """Kafka's own loader recovers such logs from their beginning: every batch stays, as klog keeps it."""
    with Loader() as loader:
        for number, (epochs, last, lower) in enumerate(FALLS):
            data_dir = tmp_path / f"data{number}"
            path = log_of(data_dir, [*epochs, *[last] * lower], data(2 * (len(epochs) + lower), last)[:-5], clean=False)
            whole = (path / f"{0:020}.log").read_bytes()[: -(len(data(0)) - 5)]
            shutil.copytree(data_dir, tmp_path / "salvaged", dirs_exist_ok=True)
            assert loader.load(data_dir).ok
            assert (path / f"{0:020}.log").read_bytes() == whole
            assert klog("recover", "--salvage", tmp_path / "salvaged/orders-0", "--apply").exit_code == 1
            epochs_file = "orders-0/leader-epoch-checkpoint"
            assert (tmp_path / "salvaged/orders-0" / f"{0:020}.log").read_bytes() == whole
            assert (tmp_path / "salvaged" / epochs_file).read_text() == (data_dir / epochs_file).read_text()
            shutil.rmtree(tmp_path / "salvaged")
