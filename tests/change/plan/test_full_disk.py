"""A file system without room: the message for operators, no leftovers, and the next step."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.change.plan.apply_checks import place_of
from klog.data_dir.disk import directory_tree
from klog.data_dir.disk.disk_changes import Disk, OpenFile

from tests.commands.adopt.disks import home
from tests.commands.follow.feeding import open_copy
from tests.commands.follow.test_changes import SMALL, clean, content, run
from tests.conftest import FIXTURES, Ran, writable_copy
from tests.partition.verify.partitions import flipped
from tests.support.power import same, tree

Klog = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("hasty")
NOW = "--now=2026-11-23T12:00:00Z"


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes the disk full after so many bytes, until there is room again (None)."""
    real = Disk.write
    left: list[int | None] = [None]

    def write(disk: Disk, file: OpenFile, data: bytes | bytearray | memoryview) -> None:
        if left[0] is not None:
            if len(data) > left[0]:
                raise OSError(number[0], os.strerror(number[0]), file.path)
            left[0] -= len(data)
        real(disk, file, data)

    def after(room: int | None, error: int = errno.ENOSPC) -> None:
        left[0], number[0] = room, error

    number = [errno.ENOSPC]
    monkeypatch.setattr(Disk, "write", write)
    monkeypatch.setattr(Disk, "share", lambda *_: False)
    return after


def recovered(folder: Path) -> tuple[Path, list[object]]:
    data = writable_copy(FIXTURES / "modern", folder / "data")
    log = data / f"plain-1/{0:020}.log"
    log.write_bytes(flipped(-300)(bytearray(log.read_bytes())))
    return data, ["recover", data, "--salvage"]


def written(folder: Path) -> tuple[Path, list[object]]:
    data, records = writable_copy(FIXTURES / "modern", folder / "data"), folder / "records.jsonl"
    rows = ({"topic": "plain", "partition": 1, "key": None, "value": f"v{n}" * 100} for n in range(300))
    records.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return data, ["write", records, "--to", data]


def compacted(folder: Path) -> tuple[Path, list[object]]:
    data = writable_copy(FIXTURES / "compaction/before", folder / "data")
    return data, ["compact", data, "--policy", "compact", NOW]


def adopted(folder: Path) -> tuple[Path, list[object]]:
    data = home(folder / "data")
    return data, ["adopt", FIXTURES / "compaction/before/grouping-0", "--as", "plain-1", "--to", data, NOW]


COMMANDS = {one.__name__: one for one in (recovered, written, compacted, adopted)}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)
@pytest.mark.parametrize("how", ["--apply", "--save-plan"])
@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_plan_that_finds_no_room(
    name: str, how: str, error: int, klog: Klog, tmp_path: Path, fill: Callable[..., None]
) -> None:
    """The log dir, not a staged file under a hidden name; the free space; the next step.  Then it works."""
    data, words = COMMANDS[name](tmp_path)
    before = tree(data)
    options = [how] if how == "--apply" else [how, tmp_path / "saved"]
    fill(30, error)
    done = klog(*words, *options)
    assert (done.exit_code, done.stdout) == (8, b"")
    (line,) = done.stderr.decode().splitlines()
    free = r", [1-9][0-9]* bytes are free" if error == errno.ENOSPC else ""
    option = "--backup" if how == "--apply" else "--save-plan"
    more = f"; without {how} klog reports the needed space"
    told = f"nothing was changed; make room, or name another place with {option}{more}"
    assert re.fullmatch(rf"klog: {re.escape(str(data))}: {os.strerror(error)}{free}; {told}", line), line
    assert same(data, before)
    assert {path.name for path in tmp_path.iterdir()} <= {"data", "records.jsonl", "state"}
    fill(None)
    assert klog(*words, *options).exit_code in (0, 1, 4, 5)
    assert how == "--save-plan" or not same(data, before)


def test_how_much_is_needed_is_told_without_applying(
    klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This output keeps the promise of the line above."""
    _, words = written(tmp_path)
    monkeypatch.setattr(Disk, "free_bytes", lambda *_: 5000)
    line = klog(*words).stderr.decode().splitlines()[0]
    assert re.search(r": \d+ bytes are needed, 5000 are free: as things are now, --apply would not do it", line), line


def test_another_file_system_is_named_itself(tmp_path: Path, elsewhere: Path) -> None:
    """If --backup or --save-plan names another file system, the log dir has room enough."""
    data, staged = tmp_path / "data", elsewhere / "backup/staged"
    data.mkdir()
    error = OSError(errno.ENOSPC, "full", str(staged / "orders-0" / f"{0:020}.log"))
    assert place_of(error, [str(staged)], [str(data)]) == str(elsewhere)
    staged = tmp_path / "klog-backup/20261123/staged"
    error = OSError(errno.ENOSPC, "full", str(staged / "orders-0" / f"{0:020}.log"))
    assert place_of(error, [None, str(staged)], ["elsewhere", str(data)]) == str(data)
    assert directory_tree.is_full(error)
    assert not directory_tree.is_full(OSError(errno.ENOSPC, "standard output"))


def test_a_change_that_finds_no_room_while_it_is_carried_out(
    klog: Klog, tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line contains the progress, and the command for the rest."""
    data, words = written(tmp_path)
    copy = Disk.copy

    def refuse(disk: Disk, source: str, start: int, end: int, file: OpenFile) -> None:
        if file.path.startswith(f"{data}/"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
        copy(disk, source, start, end, file)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "copy", refuse)
        done = klog(*words, "--apply", "--backup", elsewhere / "backup")
    (line,) = done.stderr.decode().splitlines()
    found = re.fullmatch(
        rf"klog: {re.escape(str(data))}: No space left on device, \d+ bytes are free; "
        r"\d of \d changes are made, 'klog apply (.*)' makes the rest",
        line,
    )
    assert found, line
    assert klog("apply", found[1]).exit_code == 0
    assert klog("verify", data / "plain-1").exit_code == 0


@pytest.mark.parametrize("command", ["write", "compact"])
def test_a_new_log_dir_that_finds_no_room(command: str, klog: Klog, tmp_path: Path, fill: Callable[..., None]) -> None:
    """Nothing is left of it, not under a hidden name either."""
    data, words = COMMANDS["written" if command == "write" else "compacted"](tmp_path)
    words = ["write", words[1], "--partitions", "2"] if command == "write" else words
    before, target = tree(data), tmp_path / "new"
    fill(30)
    done = klog(*words, "--to", target)
    assert (done.exit_code, done.stdout) == (8, b"")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"klog: {target}: No space left on device, ")
    assert line.endswith("; make room, or name another place with --to")
    assert same(data, before)
    assert {path.name for path in tmp_path.iterdir()} <= {"data", "records.jsonl", "state"}
    fill(None)
    assert klog(*words, "--to", target).exit_code == 0


def test_a_copy_of_a_live_cluster_goes_on_when_there_is_room(
    klog: Klog, tmp_path: Path, fill: Callable[..., None]
) -> None:
    """The received batches are there, whole, and the line announces that the next run continues; it does."""
    whole = run(range(0, 60, 5))
    with open_copy(tmp_path / "copy", "orders-3", SMALL) as (copy, copied):
        copied.append(whole[:700])
        copy.flush()
        fill(30)
        with pytest.raises(OSError, match="No space left") as caught:
            copied.append(whole[len(content(tmp_path / "copy/orders-3")) :])
    assert caught.value.filename == str(tmp_path / "copy")
    assert caught.value.strerror is not None
    assert caught.value.strerror.count("bytes are free") == 1
    assert caught.value.strerror.endswith("; make room, and run the command again")
    fill(None)
    with open_copy(tmp_path / "copy", "orders-3", SMALL) as (_, copied):
        found = content(tmp_path / "copy/orders-3")
        assert found
        assert whole.startswith(found)
        copied.append(whole[len(found) :])
    assert content(tmp_path / "copy/orders-3") == whole
    assert clean(klog, tmp_path / "copy")
