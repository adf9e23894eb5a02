"""Each log of an adopted partition is copied once, after the check of its source."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from klog.change.plan.draft import Draft
from klog.data_dir.disk.disk_changes import Disk, OpenFile

from tests.commands.adopt.disks import NOW, adopted, epochs, foreign, home, records, refused, set_epochs
from tests.conftest import run_klog
from tests.support.power import tree

NAME = "dense-0"
LOGS = [f"{NAME}/{0:020}.log", f"{NAME}/{98:020}.log"]


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were prepared, in their order."""
    found: list[str] = []
    prepare = Draft.prepare

    def noted(self: Draft, file: str, *arguments: object, **options: object) -> object:
        found.append(file)
        return prepare(self, file, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Draft, "prepare", noted)
    return found


def logs(prepared: list[str]) -> list[str]:
    return [file for file in prepared if file.endswith(".log")]


def state(folder: Path) -> tuple[object, ...]:
    """Return the content of a folder, without its own time."""
    return sorted(path.name for path in folder.iterdir()), *(tree(path) for path in sorted(folder.iterdir()))


@pytest.mark.parametrize("epoch", [0, 1 << 20])
def test_a_log_is_copied_once(prepared: list[str], tmp_path: Path, epoch: int) -> None:
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    set_epochs(source / NAME, epoch)
    (one,) = adopted(source / NAME, "--to", data, "--apply")["adopted"]
    assert one["epochs"] == ("keep" if epoch == 0 else "rewrite")
    assert logs(prepared) == LOGS
    assert records(data / NAME) == records(source / NAME)


@pytest.mark.parametrize("checkpoint", ["0\n1\n0 0\n", None, "0\n1\n1048576 0\n"])
def test_the_epochs_of_batches_count_whatever_the_checkpoint_has(
    prepared: list[str], tmp_path: Path, checkpoint: str | None
) -> None:
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    set_epochs(source / NAME, 1 << 20)
    path = source / NAME / "leader-epoch-checkpoint"
    path.unlink() if checkpoint is None else path.write_text(checkpoint)
    (one,) = adopted(source / NAME, "--to", data, "--apply")["adopted"]
    assert one["epochs"] == "rewrite"
    assert epochs(data / NAME) == {one["epoch"]}
    assert logs(prepared) == LOGS
    assert records(data / NAME) == records(source / NAME)


def test_a_torn_source_is_adopted_up_to_its_torn_end(tmp_path: Path) -> None:
    """The adopted log ends where the source is intact."""
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    log = max((source / NAME).glob("*.log"))
    intact = records(source / NAME)
    with open(log, "ab") as file:
        file.write(b"\0" * 1000)
    (one,) = adopted(source / NAME, "--to", data, "--apply")["adopted"]
    assert one["records"] == len(intact)
    assert (data / NAME / log.name).stat().st_size == log.stat().st_size - 1000
    assert records(data / NAME) == intact


def test_a_refused_source_leaves_nothing(tmp_path: Path) -> None:
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    log = max((source / NAME).glob("*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    before = state(tmp_path)
    (one,) = refused(source / NAME, "--to", data, "--apply")
    assert one["id"] == "damaged"
    assert state(tmp_path) == before


def test_a_full_disk_is_said_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source, data = foreign(tmp_path / "other"), home(tmp_path / "data")
    before = state(tmp_path)
    write = Disk.write

    def full(self: Disk, file: OpenFile, content: bytes | bytearray | memoryview) -> None:
        if file.path.endswith(".log"):
            raise OSError(errno.ENOSPC, "No space left on device", file.path)
        write(self, file, content)

    monkeypatch.setattr(Disk, "write", full)
    monkeypatch.setattr(Disk, "share", lambda *_: False)
    done = run_klog("adopt", source / NAME, "--to", data, NOW, "--apply")
    assert done.exit_code == 8
    assert b"No space left" in done.stderr
    assert state(tmp_path) == before
