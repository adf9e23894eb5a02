"""Opening and reading: whole or with a reason, without a trace."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
import time
from pathlib import Path
from random import Random

import pytest
from klog.base.errors import KlogError, NotKafkaError, UnreadableError
from klog.base.read_only import ReadOnlyFile

CONTENT = Random(1).randbytes(100_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(CONTENT)
    return file


def test_bytes_are_read_from_anywhere(path: Path) -> None:
    with ReadOnlyFile(str(path)) as source:
        assert (source.path, source.size) == (str(path), len(CONTENT))
        for position, size in ((0, 0), (0, 17), (99_990, 10), (0, len(CONTENT)), (12_345, 54_321)):
            assert source.read(position, size) == CONTENT[position : position + size]
            room = memoryview(bytearray(size))
            assert source.read_into(position, room) == size
            assert bytes(room) == CONTENT[position : position + size]


def test_behind_the_end_there_is_less_or_nothing(path: Path) -> None:
    with ReadOnlyFile(str(path)) as source:
        assert source.read(99_990, 100) == CONTENT[-10:]
        assert source.read(100_000, 100) == source.read(2**40, 1) == b""
        room = memoryview(bytearray(100))
        assert source.read_into(99_990, room) == 10
        assert source.read_into(200_000, room) == 0


def test_reads_that_the_system_cuts_short_are_taken_up_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals and network file systems give less than was asked for, and that is not the end of the file."""
    preadv, pread = os.preadv, os.pread
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:3]], at))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
    with ReadOnlyFile(str(path)) as source:
        room = memoryview(bytearray(1000))
        assert source.read_into(5, room) == 1000
        assert bytes(room) == source.read(5, 1000) == CONTENT[5:1005]
        assert source.read_into(len(CONTENT) - 10, room) == 10
        assert source.read(len(CONTENT) - 10, 1000) == CONTENT[-10:]


def test_a_file_that_grows_or_shrinks_keeps_the_size_it_had(path: Path) -> None:
    """A running broker appends and truncates; the size of an opened file is that of its opening."""
    with ReadOnlyFile(str(path)) as source:
        with path.open("ab") as file:
            file.write(b"more")
        assert (source.size, source.current_size()) == (100_000, 100_004)
        os.truncate(path, 50)
        assert (source.size, source.current_size()) == (100_000, 50)
        assert source.read(0, 100) == CONTENT[:50]


def test_a_file_that_is_replaced_is_read_as_it_was(path: Path) -> None:
    with ReadOnlyFile(str(path)) as source:
        path.unlink()
        path.write_bytes(b"another")
        assert source.read(0, 10) == CONTENT[:10]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"nowhere\.log: cannot open: No such file or directory"):
        ReadOnlyFile(str(tmp_path / "nowhere.log"))


@pytest.mark.parametrize("kind", ["directory", "FIFO", "socket", "character device"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """A FIFO without a writer would wait for ever; no descriptor is left behind."""
    path = tmp_path / "s"
    if kind == "directory":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    else:
        path = Path("/dev/zero")
    open_before = len(os.listdir("/proc/self/fd"))
    began = time.monotonic()
    with pytest.raises(KlogError) as refused:
        ReadOnlyFile(str(path))
    assert time.monotonic() - began < 60  # a FIFO without a writer keeps whoever opens it for ever
    assert str(path) in str(refused.value)
    if kind != "socket":  # the system itself refuses to open one
        assert isinstance(refused.value, NotKafkaError)
        assert f"a {kind}, where a regular file was expected" in str(refused.value)
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_a_link_to_a_file_is_that_file(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    with ReadOnlyFile(str(link)) as source:
        assert source.size == len(CONTENT)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UnreadableError):
        ReadOnlyFile(str(tmp_path / "dangling"))


def test_a_file_of_somebody_else_is_read_though_its_access_time_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the owner may ask the system to leave the access time alone."""
    real_open, asked = os.open, []

    def open_(name: str, flags: int, *rest: int) -> int:
        asked.append(flags)
        if flags & os.O_NOATIME:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), name)
        return real_open(name, flags, *rest)

    monkeypatch.setattr(os, "open", open_)
    with ReadOnlyFile(str(path)) as source:
        assert source.read(0, 5) == CONTENT[:5]
    assert len(asked) == 2


def test_a_file_that_may_not_be_read_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, flags: int, *rest: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UnreadableError, match=r"\.log: cannot open: Permission denied"):
        ReadOnlyFile(str(path))


def test_a_bad_sector_is_an_error_with_its_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`read` reports it in klog's words; `read_into` leaves it to the reader, who continues behind it."""

    def fail(*arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with ReadOnlyFile(str(path)) as source:
        monkeypatch.setattr(os, "pread", fail)
        monkeypatch.setattr(os, "preadv", fail)
        with pytest.raises(UnreadableError, match=r"\.log @ 8192: cannot read: Input/output error"):
            source.read(8192, 10)
        with pytest.raises(OSError, match="Input/output"):
            source.read_into(8192, memoryview(bytearray(10)))


def test_reading_leaves_no_trace(path: Path) -> None:
    """Neither in the file's times nor in its directory; and nothing is open for writing or inherited."""
    os.utime(path, ns=(1, 1))
    before, listing = path.stat(), os.listdir(path.parent)
    with ReadOnlyFile(str(path)) as source:
        source.read(0, 100_000)
        source.read_into(0, memoryview(bytearray(100)))
        descriptor = source._descriptor
        assert not os.get_inheritable(descriptor)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(descriptor, b"x")
    after = path.stat()
    assert (after.st_atime_ns, after.st_mtime_ns, after.st_ctime_ns) == (1, 1, before.st_ctime_ns)
    assert os.listdir(path.parent) == listing


def test_closing_twice_does_nothing(path: Path) -> None:
    source = ReadOnlyFile(str(path))
    source.close()
    source.close()
    with pytest.raises(UnreadableError):
        source.read(0, 1)


def test_the_end_of_a_with_closes(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with ReadOnlyFile(str(path)) as source:
            assert stat.S_ISREG(os.fstat(source._descriptor).st_mode)
    assert len(os.listdir("/proc/self/fd")) == before


def test_many_threads_read_one_source(path: Path) -> None:
    """There is no file position to fight over."""
    wrong: list[int] = []

    def work(seed: int, source: ReadOnlyFile) -> None:
        chance = Random(seed)
        room = memoryview(bytearray(1000))
        for _ in range(300):
            at = chance.randrange(len(CONTENT) - 1000)
            source.read_into(at, room)
            if bytes(room) != CONTENT[at : at + 1000] or source.read(at, 10) != CONTENT[at : at + 10]:
                wrong.append(at)

    with ReadOnlyFile(str(path)) as source:
        threads = [threading.Thread(target=work, args=(i, source)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_name_that_is_no_utf_8_is_a_name(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.log")
    with open(name, "wb") as file:
        file.write(b"content")
    with ReadOnlyFile(name) as source:
        assert source.read(0, 100) == b"content"


def test_holes_are_known(tmp_path: Path) -> None:
    """A preallocated file of a gigabyte need not be read to be known for zeros."""
    path = tmp_path / "sparse.log"
    with path.open("wb") as file:
        file.seek(10 << 20)
        file.write(b"x" * 100)
        file.truncate(30 << 20)
    with ReadOnlyFile(str(path)) as source:
        data = source.next_data(0)
        assert data <= 10 << 20
        assert source.next_data(10 << 20) == 10 << 20
        assert source.next_data(20 << 20) in (20 << 20, 30 << 20)
        assert source.next_data(30 << 20) == 30 << 20
        assert source.read(10 << 20, 5) == b"xxxxx"


def test_where_holes_are_not_told_all_is_data(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    with ReadOnlyFile(str(path)) as source:
        monkeypatch.setattr(os, "lseek", fail)
        assert source.next_data(5) == 5
