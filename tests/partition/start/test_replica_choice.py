"""The replica to read is the one that is best after the next start of its broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.data_dir.log_dir import LogDir
from klog.partition.start.replica_choice import best_replica

from tests.oracles.plain.encode import Record, batch

Run = Callable[..., Any]


class Copies:
    """Log dirs with a copy of t-0 each, of one segment with a batch for each record."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, name: str, end: int, *, epochs: int = 1, clean: bool = True, damage: int | None = None) -> Path:
        """Write a copy; *epochs*: how many, one after another; *damage*: at the batch of this offset."""
        place = self.root / name / "t-0"
        place.mkdir(parents=True)
        batches = [
            batch([Record(offset, 1, b"k", b"value %d" % offset)], leader_epoch=offset * epochs // end)
            for offset in range(end)
        ]
        content = bytearray(b"".join(batches))
        if damage is not None:
            content[sum(map(len, batches[:damage])) + 70] ^= 1
        (place / f"{0:020}.log").write_bytes(content)
        (place / f"{0:020}.index").touch()
        (place / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n")
        starts = [f"{epoch} {-(-epoch * end // epochs)}\n" for epoch in range(epochs)]
        (place / "leader-epoch-checkpoint").write_text(f"0\n{epochs}\n{''.join(starts)}")
        (place.parent / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
        if clean:
            (place.parent / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
        return place.parent

    def best(self, rule: str) -> str:
        found = [LogDir(str(path)).partition("t-0") for path in sorted(self.root.iterdir())]
        return Path(best_replica(found, rule).log_dir).name


@pytest.mark.parametrize(
    ("clean", "damage", "best"),
    [(True, 20, "a"), (False, None, "a"), (False, 20, "b"), (False, 49, "b"), (False, 50, "a"), (False, 55, "a")],
)
def test_the_longest_log_is_the_longest_after_a_start(
    clean: bool, damage: int | None, best: str, tmp_path: Path
) -> None:
    """The first of two copies of one length is kept."""
    copies = Copies(tmp_path)
    copies.add("a", 60, clean=clean, damage=damage)
    copies.add("b", 50)
    assert copies.best("longest") == best


@pytest.mark.parametrize(("damage", "best"), [(None, "a"), (45, "a"), (39, "b"), (5, "b")])
def test_the_newest_leader_is_the_one_whose_records_are_left(damage: int | None, best: str, tmp_path: Path) -> None:
    """The third leader began at 40: a log that is cut below that has not followed it."""
    copies = Copies(tmp_path)
    copies.add("a", 60, epochs=3, clean=False, damage=damage)
    copies.add("b", 60, epochs=2)
    assert copies.best("leader-epoch") == best


def test_the_copy_that_is_left_is_searched(klog: Run, tmp_path: Path) -> None:
    copies = Copies(tmp_path)
    paths = [copies.add("a", 60, clean=False, damage=20), copies.add("b", 50)]
    for rule in ("longest", "leader-epoch"):
        done = klog("search", "-o", "jsonl", *paths, "--key", "k", "--replicas", rule)
        assert done.exit_code == 0, done.stderr
        assert len(done.stdout.splitlines()) == 50


def test_after_a_clean_stop_no_start_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = Copies(tmp_path)
    copies.add("a", 60)
    copies.add("b", 60)
    monkeypatch.delattr("klog.partition.start.kept_log.NextStarts.kept")
    assert copies.best("longest") == copies.best("leader-epoch") == "a"
