"""A new file appears whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from klog.base.errors import UsageError
from klog.data_dir.disk import disk_changes
from klog.data_dir.disk.disk_changes import NewFile, Preallocation
from klog_cli.output import Results


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_file_appears_under_its_name_when_it_is_committed(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with NewFile(str(path)) as file:
        os.write(file.descriptor, b"content")
        assert not path.exists()
        assert len(listing(tmp_path)) == 1, "beside it, so that renaming cannot fail over file systems"
        file.commit()
        assert path.read_bytes() == b"content"
    assert listing(tmp_path) == ["out.jsonl"]


def test_without_a_commit_nothing_is_left(tmp_path: Path) -> None:
    with NewFile(str(tmp_path / "out")) as file:
        os.write(file.descriptor, b"content")
    assert listing(tmp_path) == []


def test_after_an_exception_nothing_is_left_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")

    def fail() -> None:
        with NewFile(str(path)) as file:
            os.write(file.descriptor, b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert listing(tmp_path) == ["out"]
    assert path.read_bytes() == b"old"


def test_an_old_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with NewFile(str(path)) as file:
        os.write(file.descriptor, b"new")
        assert path.read_bytes() == b"old"
        file.commit()
    assert path.read_bytes() == b"new"


def test_content_is_on_the_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut a name over missing content would look like a whole file."""
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        calls.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def note_replace(source: str, target: str) -> None:
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    with NewFile(str(tmp_path / "out")) as file:
        file.commit()
    assert calls == ["file", "rename", "directory"]


def test_a_name_without_a_directory_is_in_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with NewFile("out") as file:
        file.commit()
    assert listing(tmp_path) == ["out"]


def test_a_file_is_made_as_the_umask_has_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with NewFile(str(tmp_path / "out")) as file:
            file.commit()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640


def test_the_descriptor_is_closed_either_way(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with NewFile(str(tmp_path / "one")) as file:
        file.commit()
    with NewFile(str(tmp_path / "two")):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_somebody_else_s_temporary_file_is_not_overwritten(tmp_path: Path) -> None:
    """Nor removed: it is not ours."""
    other = tmp_path / f"out.{os.getpid()}.tmp"
    other.write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        NewFile(str(tmp_path / "out"))
    assert other.read_bytes() == b"theirs"


def test_no_new_file_is_begun_among_kafkas_files(tmp_path: Path) -> None:
    """Whatever command forgets to ask, it cannot write there."""
    (tmp_path / "meta.properties").touch()
    for name in ("out", "meta.properties", "new-0/out"):
        with pytest.raises(UsageError, match="lies in the log dir"):
            NewFile(str(tmp_path / name))
    assert listing(tmp_path) == ["meta.properties"]


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        NewFile(str(tmp_path / "nowhere" / "out"))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_commit_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A full disk shows at the sync, a directory in the way at the renaming."""

    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, call, fail)

    def write() -> None:
        with NewFile(str(tmp_path / "out")) as file:
            os.write(file.descriptor, b"content")
            file.commit()

    with pytest.raises(OSError, match="No space"):
        write()
    assert listing(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


def write_with_room(path: Path, flags: int, pieces: int) -> Preallocation:
    """Write *pieces* of 64 KiB as a dump does, up to but without the release."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags)
    os.lseek(descriptor, 0, os.SEEK_END)
    room = Preallocation(descriptor)
    for _ in range(pieces):
        room.make(64 << 10)
        os.write(descriptor, bytes(64 << 10))
    return room


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Preallocation, "STEP_BYTES", 1 << 20)


@pytest.mark.usefixtures("small_steps")
def test_a_dump_into_a_file_takes_no_more_of_the_disk_than_it_fills(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with Results(str(path)) as results:
        for _ in range(20):
            results.write(bytes(64 << 10))
    assert path.stat().st_size == 20 << 16
    assert blocks(path) < (20 << 16) + (64 << 10)


@pytest.mark.usefixtures("small_steps")
def test_room_is_set_aside_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"there before")
    room = write_with_room(path, 0, 20)
    os.sync()
    written = 12 + 20 * (64 << 10)
    assert path.stat().st_size == written
    assert blocks(path) >= 2 << 20, "two steps: the one that nothing is set aside for, and the next"
    room.release()
    assert path.stat().st_size == written
    assert blocks(path) < written + (256 << 10)
    assert path.read_bytes() == b"there before" + bytes(20 * (64 << 10))


@pytest.mark.usefixtures("small_steps")
def test_what_others_have_written_meanwhile_stays(tmp_path: Path) -> None:
    """The release cuts the file at the end of the written part: it must not happen when that is not the end."""
    path = tmp_path / "out"
    room = write_with_room(path, 0, 20)
    with path.open("ab") as other:
        other.write(b"and more")
    room.release()
    assert path.read_bytes()[-8:] == b"and more"


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", ["shared log", "middle of a file", "pipe"])
def test_nothing_is_set_aside_where_the_end_is_not_ours(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_changes, "set_aside", lambda *_: pytest.fail("set aside"))
    path = tmp_path / "out"
    if kind == "shared log":
        room = write_with_room(path, os.O_APPEND, 20)
    elif kind == "middle of a file":
        path.write_bytes(bytes(100))
        room = Preallocation(os.open(path, os.O_WRONLY))
        room.make(5 << 20)
    else:
        room = Preallocation(os.pipe()[1])
        room.make(5 << 20)
    room.release()


@pytest.mark.usefixtures("small_steps")
def test_a_disk_that_cannot_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(disk_changes, "set_aside", lambda _, start, size: bool(asked.append((start, size))))
    room = write_with_room(tmp_path / "out", 0, 60)
    room.release()
    assert asked == [(1 << 20, 1 << 20)]
    assert (tmp_path / "out").stat().st_size == 60 * (64 << 10)


# the seam of repairs


def test_a_full_disk_says_which_file(tmp_path: Path) -> None:
    """Calls that receive only a descriptor leave out the name, and "No space left" alone is of no use."""
    full = disk_changes.OpenFile(os.open("/dev/full", os.O_WRONLY), "/dev/full")
    with pytest.raises(OSError, match="/dev/full") as caught:
        disk_changes.Disk().write(full, b"content")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/dev/full")
    disk_changes.Disk().close(full)
    path = str(tmp_path / "file")
    closed = disk_changes.Disk().create(path)
    disk_changes.Disk().close(closed)
    for call in (
        lambda: disk_changes.Disk().truncate(closed, 1),
        lambda: disk_changes.Disk().set_metadata(closed, 0, 0, 0, 0),
        lambda: disk_changes.Disk().copy("/dev/null", 0, 0, closed),
        lambda: disk_changes.Disk().sync([f"{path}-"]),
    ):
        with pytest.raises(OSError, match="file"):
            call()


def test_a_new_file_is_for_its_owner_alone_and_never_one_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    disk_changes.Disk().close(disk_changes.Disk().create(str(path)))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            disk_changes.Disk().create(str(tmp_path / name))
    with pytest.raises(OSError, match="link"):
        disk_changes.Disk().open(str(tmp_path / "link"))


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize(
    ("start", "end"), [(0, 3 << 20), (0, 1000), (5000, 3 << 20), (1 << 20, 2 << 20), ((1 << 20) + 7, (2 << 20) + 9)]
)
def test_a_copy_is_the_bytes_and_comes_behind_what_is_there(
    tmp_path: Path, start: int, end: int, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log is restored from its rest and the tail that was cut."""
    if not shares:
        monkeypatch.setattr(disk_changes, "share_blocks", lambda source, target: False)
    content = b"".join(number.to_bytes(4, "big") for number in range(3 << 18))
    with (tmp_path / "source").open("wb") as source:
        source.write(content[: 1 << 20])
        source.seek(2 << 20)
        source.write(content[2 << 20 :])
    content = content[: 1 << 20] + bytes(1 << 20) + content[2 << 20 :]
    file = disk_changes.Disk().create(str(tmp_path / "target"))
    for _ in range(2):
        disk_changes.Disk().copy(str(tmp_path / "source"), start, end, file)
    disk_changes.Disk().write(file, b"end")
    disk_changes.Disk().close(file)
    assert (tmp_path / "target").read_bytes() == content[start:end] * 2 + b"end"


def test_what_is_so_already_is_not_set_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its owner may set an attribute that a file has anyway, and an operator need not be that."""
    file = disk_changes.Disk().create(str(tmp_path / "file"))
    status = os.fstat(file.descriptor)
    for call in ("fchown", "fchmod", "utime"):
        monkeypatch.setattr(os, call, None)
    disk_changes.Disk().set_metadata(file, 0o600, status.st_uid, status.st_gid, status.st_mtime_ns)
    monkeypatch.undo()
    disk_changes.Disk().set_metadata(file, 0o4640, status.st_uid, status.st_gid, 1_234_567_891)
    status = os.fstat(file.descriptor)
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (0o4640, 1_234_567_891)
    disk_changes.Disk().close(file)


def test_a_hole_at_the_end_stays_one(tmp_path: Path) -> None:
    """Preallocated space of a broker is not copied."""
    with (tmp_path / "source").open("wb") as source:
        source.write(b"batches")
        source.truncate(64 << 20)
    file = disk_changes.Disk().create(str(tmp_path / "target"))
    disk_changes.Disk().copy(str(tmp_path / "source"), 3, 64 << 20, file)
    disk_changes.Disk().close(file)
    assert (tmp_path / "target").stat().st_size == (64 << 20) - 3
    assert blocks(tmp_path / "target") < 100 << 10
