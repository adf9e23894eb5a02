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
"""Files of at least this size have CRC-32C as digest: the purpose is to notice a changed file, soon."""

_WINDOW = 1 << 20
_END_BYTES = 1 << 20
_ALL_BITS = 0xFFFFFFFF


class Digest:
    """The digest of bytes in their order, from byte *start* of a file on.

    *size*: the end of the bytes so far; *expected*: the final end, if known.
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
        """Whether `zeros` accepts a number of zero bytes, without them."""
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
        """Return the digest of the bytes so far, in the form for a plan."""
        if self._sha256 is None:
            return f"crc32c:{self._crc:08x}" + (f"@{self.start}" if self.start else "")
        return f"sha256:{self._sha256.hexdigest()}"


def digest_of_end(source: ReadOnlyFile) -> Digest:
    """Return the digest of a file before an append; of a large one, of its last MiB.

    To read all of it would take longer than to append, and the appended part does not depend on it.  Raises
    UnreadableError.
    """
    start = source.size - _END_BYTES if source.size >= SHA256_BELOW else 0
    digest = Digest(source.size, start)
    while digest.size < source.size and (piece := source.read(digest.size, min(_WINDOW, source.size - digest.size))):
        digest.update(piece)
    return digest


def status_of(path: str) -> os.stat_result | None:
    """Return the status of a regular file; None when there is no such name.

    Raises StaleError for anything but a regular file, a symbolic link too; UnreadableError.
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
    """Return the state of the file at *path*; None without one.  *advance* receives the number of bytes read.

    *start*: of its digest.  *or_unreadable*: a file that the disk returns only in part has a state too.  Raises
    StaleError for anything but a regular file, UnreadableError.
    """
    states = _states(path, None, advance, start, or_unreadable)
    return states and states[1]


def state_read(path: str, digest: Digest) -> FileState | None:
    """Return the state of the file at *path* if all of its bytes, from its start on, were added to *digest*; else None.

    Raises StaleError for anything but a regular file, UnreadableError.
    """
    status = status_of(path)
    if status is None or status.st_size != digest.size:
        return None
    return FileState(digest.size, digest.text(), *_owner(status))


def is_as_known(status: os.stat_result, known: FileState) -> bool:
    """Whether the status of a file is entirely that of *known*."""
    return (status.st_size, *_owner(status)) == (known.size, *known[2:])


def _owner(status: os.stat_result) -> tuple[int, int, int, int]:
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns


def states_around(path: str, size: int, start: int = 0) -> tuple[FileState, FileState]:
    """Return the state of the file at *path*, and its state after a cut to *size* bytes.

    *start*: of the digests, not behind *size*.  Raises StaleError when it does not exist or is not as long,
    UnreadableError.
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
                # A window ends at the cut, because the digest up to there is needed too.
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
