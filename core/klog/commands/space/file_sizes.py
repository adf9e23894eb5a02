"""The bytes that the files of directories occupy; each file is looked at once.

    sizes = read_sizes("data/orders-3")
    sum(one.log_bytes + one.index_bytes for one in sizes.segments) + sum(one.bytes for one in sizes.others)

A file that vanishes meanwhile, as under a running broker, does not count.  A link to a file counts as that file, any
other link as the link itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from klog.base.read_only import scan_directory
from klog.base.unusable import UNUSABLE
from klog.formats.names import SEGMENT_KINDS, FileKind, Stage, parse_file


class SegmentSizes(NamedTuple):
    """The files of a segment: bytes of the log and of its indexes, and the bytes that these occupy.

    *modified_ms*: when the log was last written.  *log*, *offset_index*, *time_index*: names of files.
    """

    base_offset: int
    log_bytes: int
    index_bytes: int
    log_disk: int
    index_disk: int
    modified_ms: int
    log: str
    offset_index: str | None
    time_index: str | None


class FileSize(NamedTuple):
    """A file, or with a name that ends in `/` all files in a directory: bytes, and the bytes that these occupy.

    *modified_ms*: when the file was last written.
    """

    name: str
    bytes: int
    disk_bytes: int
    modified_ms: int = 0


@dataclass
class DirectorySizes:
    """The files of a partition directory: segments, base offsets ascending, and other files.

    *unreadable*: directories that could not be listed, each with the reason.
    """

    segments: list[SegmentSizes] = field(default_factory=list)
    others: list[FileSize] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def read_sizes(path: str) -> DirectorySizes:
    """Return the sizes of the files in partition directory *path*.

    A log named `5.log` counts when no other has its offset, as in `klog.data_dir.partition`.
    """
    found = DirectorySizes()
    by_offset: dict[int, dict[FileKind, FileSize]] = {}
    directories: list[str] = []
    for one in file_sizes(path, directories, found.unreadable):
        _, kind, stage, offset, _, is_canonical = parse_file(one.name)
        if offset is None or offset < 0 or kind not in SEGMENT_KINDS or stage is not Stage.IN_USE:
            found.others.append(one)
            continue
        kinds = by_offset.setdefault(offset, {})
        if kind not in kinds:
            kinds[kind] = one
        elif is_canonical:
            found.others.append(kinds[kind])
            kinds[kind] = one
        else:
            found.others.append(one)
    for offset, kinds in sorted(by_offset.items()):
        log = kinds.pop(FileKind.LOG, None)
        if log is not None:
            found.segments.append(_segment(offset, log, kinds))
        else:
            found.others += [kinds[kind] for kind in SEGMENT_KINDS if kind in kinds]
    found.others += [tree_size(path, name, found.unreadable) for name in directories]
    return found


def _segment(offset: int, log: FileSize, indexes: dict[FileKind, FileSize]) -> SegmentSizes:
    index_bytes = index_disk = 0
    for one in indexes.values():
        index_bytes, index_disk = index_bytes + one.bytes, index_disk + one.disk_bytes
    index, time_index = indexes.get(FileKind.INDEX), indexes.get(FileKind.TIME_INDEX)
    names = log.name, index and index.name, time_index and time_index.name
    return SegmentSizes(offset, log.bytes, index_bytes, log.disk_bytes, index_disk, log.modified_ms, *names)


def file_sizes(path: str, directories: list[str], unreadable: list[str]) -> Iterator[FileSize]:
    """Yield the size of each file in directory *path*; add the names of directories to *directories*.

    An error is added to *unreadable*.
    """
    try:
        with scan_directory(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                    continue
                try:
                    facts = entry.stat(follow_symlinks=entry.is_symlink() and entry.is_file())
                except OSError as error:
                    UNUSABLE.refuse(os.path.join(path, entry.name), error, "look at")
                    continue
                yield FileSize(entry.name, facts.st_size, facts.st_blocks * 512, facts.st_mtime_ns // 1_000_000)
    except OSError as error:
        UNUSABLE.refuse(path, error, "list")
        unreadable.append(f"{path}: cannot be listed: {error.strerror}")


def tree_size(path: str, name: str, unreadable: list[str]) -> FileSize:
    """Return the size of the files in and below directory *name* of *path*; adds unreadable paths to *unreadable*.

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
