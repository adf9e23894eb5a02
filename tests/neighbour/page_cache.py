"""The page cache as the kernel shows it from outside of klog: the resident bytes of files."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def resident_bytes(*paths: Path) -> int:
    """Return how many bytes of files, and of the files below directories, are in the page cache."""
    return sum(map(_of_file, _files(paths)))


def _files(paths: Iterable[Path]) -> list[Path]:
    """Return all files but `.lock`: a process that closes it loses its own lock."""
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else (path,))]
    return [file for file in files if file.is_file() and file.name != ".lock"]


def _of_file(path: Path) -> int:
    """Map the file: untouched pages of a mapping stay out of the cache."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return 0
        start = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        failed = _LIBC.mincore(start, size, pages)
        _LIBC.munmap(start, size)
        assert not failed, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in pages.raw) * mmap.PAGESIZE


def forget(*paths: Path) -> None:
    """Drop files from the page cache, after they are written."""
    for path in _files(paths):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def can_tell() -> bool:
    """Whether this kernel tells which pages are cached without a mapping (cachestat, Linux 6.5)."""
    _LIBC.syscall(451, -1, None, None, 0)
    return ctypes.get_errno() != errno.ENOSYS
