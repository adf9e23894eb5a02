"""The state of a file: its size, the digest of its content, its owner; read in windows, never whole."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.change.plan.model import UNREADABLE, FileState, StaleError

if TYPE_CHECKING:
    from hashlib import _Hash

SHA256_BELOW: Final = 16 << 20
"""Files of so many bytes and more have CRC-32C for a digest: what counts is that a changed file is noticed, soon."""

_WINDOW = 1 << 20
_END_BYTES = 1 << 20
_ALL_BITS = 0xFFFFFFFF


class Digest:
    """The digest of bytes as they come by, from byte *start* of a file on.

    *size*: up to which byte they have come; *expected*: up to which they will, if known.
    """

    def __init__(self, expected: int = 0, start: int = 0) -> None:
        from hashlib import sha256

        self.size = self.start = start
        self._crc = 0
        self._sha256: _Hash | None = sha256() if expected < SHA256_BELOW and not start else None

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        from klog.kernel import crc32c

        self.size += len(data)
        self._crc = crc32c(data, self._crc)
        if self.size >= SHA256_BELOW:
            self._sha256 = None
        elif self._sha256 is not None:
            self._sha256.update(data)

    @property
    def takes_zeros(self) -> bool:
        """Whether `zeros` can be told how many come by, without them."""
        return self._sha256 is None

    def zeros(self, count: int) -> None:
        """Take *count* bytes that are zero: of a hole, which may be larger than any disk."""
        from klog.kernel import crc32c_shift

        self.size += count
        self._crc = crc32c_shift(self._crc ^ _ALL_BITS, count) ^ _ALL_BITS

    def copy(self) -> Digest:
        """Return a digest that has seen the same."""
        other = Digest(start=self.start)
        other.size, other._crc = self.size, self._crc
        other._sha256 = self._sha256 and self._sha256.copy()
        return other

    def text(self) -> str:
        """Return the digest of what has come by so far, as a plan has it."""
        if self._sha256 is None:
            return f"crc32c:{self._crc:08x}" + (f"@{self.start}" if self.start else "")
        return f"sha256:{self._sha256.hexdigest()}"


def digest_of_end(source: ReadOnlyFile) -> Digest:
    """Return the digest of a file that more is going to be appended to; of a large one, of its last MiB.

    To read all of it would take longer than to append, and what is appended does not depend on it.  Raises
    UnreadableError.
    """
    start = source.size - _END_BYTES if source.size >= SHA256_BELOW else 0
    digest = Digest(source.size, start)
    while digest.size < source.size and (piece := source.read(digest.size, min(_WINDOW, source.size - digest.size))):
        digest.update(piece)
    return digest


def status_of(path: str) -> os.stat_result | None:
    """Return what the system says about a regular file; None when there is nothing of that name.

    Raises StaleError for anything that is no regular file, a symbolic link too; UnreadableError.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise StaleError(f"{path}: not a regular file")
    return status


def file_state(
    path: str, advance: Callable[[int], None] | None = None, start: int = 0, *, or_unreadable: bool = False
) -> FileState | None:
    """Return the state of the file at *path*; None when there is none.  *advance* gets the number of bytes read.

    *start*: of its digest.  *or_unreadable*: one of which the disk does not give all has a state too.  Raises
    StaleError for anything that is no regular file, UnreadableError.
    """
    states = _states(path, None, advance, start, or_unreadable)
    return states and states[1]


def state_read(path: str, digest: Digest) -> FileState | None:
    """Return what the file at *path* is if all of its bytes, from its start on, went through *digest*; else None.

    Raises StaleError for anything that is no regular file, UnreadableError.
    """
    status = status_of(path)
    if status is None or status.st_size != digest.size:
        return None
    return FileState(digest.size, digest.text(), *_owner(status))


def is_as_known(status: os.stat_result, known: FileState) -> bool:
    """Whether all that the system says about a file is as in *known*."""
    return (status.st_size, *_owner(status)) == (known.size, *known[2:])


def _owner(status: os.stat_result) -> tuple[int, int, int, int]:
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns


def states_around(path: str, size: int, start: int = 0) -> tuple[FileState, FileState]:
    """Return what the file at *path* is, and what it is when it is cut to *size* bytes.

    *start*: of the digests, not behind *size*.  Raises StaleError when it is not there or not as long, UnreadableError.
    """
    states = _states(path, size, None, start)
    if states is None or states[1].size < size:
        raise StaleError(f"{path}: it was longer than {size} bytes before")
    return states[1], states[0]


def _states(
    path: str, size: int | None, advance: Callable[[int], None] | None, start: int, or_unreadable: bool = False
) -> tuple[FileState, FileState] | None:
    """Return the states of the first *size* bytes and of the whole file."""
    status = status_of(path)
    if status is None:
        return None
    whole = Digest(status.st_size if size is None else 0, min(start, status.st_size))
    size_to_cut = -1 if size is None else size
    cut = whole.text() if size == whole.size else ""
    view = memoryview(bytearray(min(_WINDOW, max(status.st_size, 1))))
    try:
        with ReadOnlyFile(path) as source:
            while True:
                # A window ends where the file would be cut: the digest until there is wanted too.
                left = size_to_cut - whole.size if whole.size < size_to_cut else status.st_size - whole.size
                count = min(source.next_data(whole.size) - whole.size, left) if whole.takes_zeros else 0
                if count >= _WINDOW:
                    whole.zeros(count)
                else:
                    window = view[:left] if whole.size < size_to_cut else view
                    count = source.read_into(whole.size, window)
                    whole.update(window[:count])
                if not count:
                    break
                if whole.size == size:
                    cut = whole.text()
                if advance is not None:
                    advance(count)
    except OSError as error:
        if or_unreadable and error.errno == errno.EIO:
            state = FileState(status.st_size, f"{UNREADABLE}{status.st_ino:x}", *_owner(status))
            return state, state
        raise UnreadableError(f"{path} @ {whole.size}: cannot read: {error.strerror}") from error
    owner = _owner(status)
    return FileState(max(size_to_cut, 0), cut, *owner), FileState(whole.size, whole.text(), *owner)
