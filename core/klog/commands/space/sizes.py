"""What the files of directories occupy, with one look at each.

    (sizes,) = read_sizes(["data/orders-3"])
    sum(one.log_bytes + one.index_bytes for one in sizes.segments()) + sum(one.bytes for one in sizes.others)

What vanishes meanwhile, as under a running broker, does not count.  A link counts as what it leads to if that is a
file, else as the link itself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from klog.base.files.directory import names_if_there, scan_directory
from klog.base.threads import run_all
from klog.base.unusable import UNUSABLE
from klog.formats.names import SEGMENT_KINDS, FileKind, FileName, Stage, parse_file
from klog.kernel import partition_sizes

_ROW: Final = Struct("=7q")
NO_ENTRY: Final = -1
"""The largest timestamp by a time index without entries."""
NOT_KNOWN: Final = -2
"""The largest timestamp where there is no time index, or where it cannot be read."""
_AT_ONCE: Final = 128
"""Directories for a call of the kernel, which lets other threads run for so long."""
_MOST_THREADS: Final = 8

_Look = tuple[bytes, list[tuple[str, int, int]], list[str], bool, int]


class SegmentSizes(NamedTuple):
    """The files of a segment: bytes of the log and of its indexes, and what these occupy.

    *modified_ms*: when the log was last written.  *largest*: its largest timestamp by the time index, ms.
    """

    base_offset: int
    log_bytes: int
    index_bytes: int
    log_disk: int
    index_disk: int
    modified_ms: int
    largest: int


class FileSize(NamedTuple):
    """A file, or with a name that ends in `/` all that is in a directory: bytes, and what these occupy."""

    name: str
    bytes: int
    disk_bytes: int


@dataclass
class DirectorySizes:
    """The files of a partition directory.  *unreadable*: what could not be listed, and why."""

    rows: bytes
    others: list[FileSize]
    unreadable: list[str] = field(default_factory=list)

    def segments(self) -> Iterator[SegmentSizes]:
        """Yield the segments, base offsets ascending."""
        return map(SegmentSizes._make, _ROW.iter_unpack(self.rows))

    @property
    def count(self) -> int:
        """How many segments there are."""
        return len(self.rows) // _ROW.size


def read_sizes(paths: Sequence[str], walk_active: bool = False) -> list[DirectorySizes]:
    """Look at the files of partition directories.

    *walk_active*: the last segment's largest timestamp is that of its log, which is ahead of its index while a broker
    runs or after it was killed.
    """
    encoded = list(map(os.fsencode, paths))
    slices = [encoded[first : first + _AT_ONCE] for first in range(0, len(encoded), _AT_ONCE)]
    looks: list[list[_Look]] = [[] for _ in slices]
    waiting = list(reversed(range(len(slices))))

    def work() -> None:
        while waiting:
            with suppress(IndexError):  # another took the last
                at = waiting.pop()
                looks[at] = partition_sizes(slices[at], walk_active)

    threads = min(os.cpu_count() or 1, _MOST_THREADS, len(slices))
    if threads > 1:
        run_all([work] * threads, waiting.clear)
    else:
        work()
    return [_sizes(path, look) for path, look in zip(paths, chain.from_iterable(looks), strict=True)]


def _sizes(path: str, look: _Look) -> DirectorySizes:
    rows, others, directories, is_odd, failed = look
    if failed:
        UNUSABLE.refuse(path, OSError(failed, os.strerror(failed)), "list")
        return DirectorySizes(b"", [], [f"{path}: cannot be listed: {os.strerror(failed)}"])
    if is_odd:
        return _read_odd(path, directories)
    found = DirectorySizes(rows, list(map(FileSize._make, others)))
    for name in directories:
        found.others.append(tree_size(path, name, found.unreadable))
    return found


def tree_size(path: str, name: str, unreadable: list[str]) -> FileSize:
    """Return what the files in and below directory *name* of *path* occupy; adds to *unreadable* what it cannot see.

    Links are not followed, not even *name* itself.
    """
    size = disk = 0
    waiting = [os.path.join(path, name)]
    if os.path.islink(waiting[0]):
        facts = os.lstat(waiting[0])
        return FileSize(name, facts.st_size, facts.st_blocks * 512)
    while waiting:
        place = waiting.pop()
        try:
            with scan_directory(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(os.path.join(place, entry.name))
                        continue
                    facts = entry.stat(follow_symlinks=False)
                    size, disk = size + facts.st_size, disk + facts.st_blocks * 512
        except FileNotFoundError:
            continue
        except OSError as error:
            UNUSABLE.refuse(place, error, "list")
            unreadable.append(f"{place}: cannot be listed: {error.strerror}")
    return FileSize(os.path.join(name, ""), size, disk)


def file_sizes(path: str, names: Iterable[str]) -> Iterator[tuple[FileSize, int]]:
    """Yield the size of each of the files of *path*, and when it was last written (ms); not of what has vanished."""
    for name in names:
        place = os.path.join(path, name)
        try:
            facts = os.lstat(place)
            if stat.S_ISLNK(facts.st_mode) and os.path.isfile(place):
                facts = os.stat(place)
        except OSError as error:
            UNUSABLE.refuse(place, error, "look at")
            continue
        yield FileSize(name, facts.st_size, facts.st_blocks * 512), facts.st_mtime_ns // 1_000_000


def _read_odd(path: str, directories: list[str]) -> DirectorySizes:
    """Look at a directory with links, or with files that a broker reads under names it would not have written.

    A log named `5.log` counts when no other has its offset, as in `klog.data_dir.partition`.
    """
    found = DirectorySizes(b"", [])
    segments: dict[int, dict[FileKind, tuple[FileName, FileSize, int]]] = {}
    for one, modified in file_sizes(path, sorted(names_if_there(path))):
        if one.name in directories:
            continue
        name = parse_file(one.name)
        is_of_segment = (
            name.kind in SEGMENT_KINDS and name.stage is Stage.IN_USE and name.offset is not None and name.offset >= 0
        )
        kinds = segments.setdefault(name.offset or 0, {}) if is_of_segment else {}
        if not is_of_segment or (name.kind in kinds and not name.canonical):
            found.others.append(one)
            continue
        if name.kind in kinds:
            found.others.append(kinds[name.kind][1])
        kinds[name.kind] = name, one, modified
    rows = []
    for offset, kinds in sorted(segments.items()):
        indexes = [kinds[kind][1] for kind in SEGMENT_KINDS[1:] if kind in kinds]
        if FileKind.LOG not in kinds:
            found.others += indexes
            continue
        _, log, modified = kinds[FileKind.LOG]
        sizes = log.bytes, sum(one.bytes for one in indexes), log.disk_bytes, sum(one.disk_bytes for one in indexes)
        rows.append(_ROW.pack(offset, *sizes, modified, NOT_KNOWN))
    found.rows = b"".join(rows)
    found.others += [tree_size(path, name, found.unreadable) for name in directories]
    return found
