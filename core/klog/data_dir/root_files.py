"""The small files of a log dir itself: checkpoints of its partitions, and `meta.properties`."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from klog.base.errors import KlogError, UnreadableError, UsageError
from klog.base.read_only import ReadOnlyFile, is_missing, list_directory
from klog.base.unusable import UNUSABLE, Unusable
from klog.formats.checkpoint import Checkpoint, Malformed, OffsetEntry, offsets_by_partition, read_offsets
from klog.formats.names import ROOT_CHECKPOINTS, FileKind, parse_partition
from klog.formats.properties import MetaProperties, read_meta_properties, read_properties

if TYPE_CHECKING:
    from klog.formats.follow_file import FollowFile

T = TypeVar("T")

SMALL_FILE_BYTES: Final = 64 << 20
"""No text file or snapshot of a broker reaches this size; a larger one is not read."""
_MANY_BYTES: Final = 1 << 20
"""A larger checkpoint is reduced to entries of directories in the log dir: no broker has so many partitions."""


class RootFiles:
    """The small files of a log dir that its partitions need: four checkpoints, and whose log dir it is.

    Each is read when it is first needed.
    """

    def __init__(self, log_dir: str) -> None:
        self.log_dir = log_dir
        self._read: dict[FileKind, Checkpoint[OffsetEntry] | None] = {}
        self._offsets: dict[FileKind, dict[tuple[str, int], int]] = {}
        self._malformed: dict[FileKind, Malformed | None] = {}

    def file(self, kind: FileKind) -> Checkpoint[OffsetEntry] | None:
        """Return the content of one of `ROOT_CHECKPOINTS`, None when there is no such file."""
        if kind not in self._read:
            content = self._content(kind)
            if isinstance(content, bytes):
                self._read[kind] = self._noted(kind, read_offsets(content))
            else:
                self._read[kind] = None if content is None else self._noted(kind, Checkpoint((), content))
        return self._read[kind]

    def malformed(self, kind: FileKind) -> Malformed | None:
        """Return why a broker would refuse a checkpoint, None when it would not, or there is no such file."""
        if kind not in self._malformed:
            self._read_offsets(kind)
        return self._malformed[kind]

    def check_read(self) -> None:
        """Raise UnreadableError when a checkpoint could not be read and its content is unknown."""
        for malformed in map(self.malformed, ROOT_CHECKPOINTS):
            if malformed is not None and not malformed.line:
                raise UnreadableError(malformed.reason)

    def offset(self, kind: FileKind, topic: str, partition: int) -> int | None:
        """Return a checkpoint file's entry for a partition, None without an entry or if the file is malformed."""
        if kind not in self._offsets:
            self._read_offsets(kind)
        return self._offsets[kind].get((topic, partition))

    def _read_offsets(self, kind: FileKind) -> None:
        found = self._read.get(kind)
        if found is None:
            content = self._content(kind) or b""
            if isinstance(content, Malformed):
                found = Checkpoint((), content)
            else:
                found = read_offsets(content, None if len(content) <= _MANY_BYTES else self._named)
            self._noted(kind, found)
        self._malformed[kind], self._offsets[kind] = found.malformed, offsets_by_partition(found)

    def _content(self, kind: FileKind) -> bytes | Malformed | None:
        return read_small_if_there(os.path.join(self.log_dir, kind.value))

    def _noted(self, kind: FileKind, found: Checkpoint[OffsetEntry]) -> Checkpoint[OffsetEntry]:
        note_malformed(os.path.join(self.log_dir, kind.value), found.malformed)
        return found

    @cached_property
    def _named(self) -> frozenset[tuple[str, int]]:
        """The topics and partitions that directories of the log dir are of."""
        try:
            names = map(parse_partition, list_directory(self.log_dir).directories)
        except OSError as error:
            UNUSABLE.refuse(self.log_dir, error, "list")
            return frozenset()
        return frozenset((name.topic, name.partition) for name in names if name is not None)

    @cached_property
    def meta(self) -> MetaProperties | Malformed | None:
        """The content of `meta.properties`; None when there is none: the directory was never formatted."""
        path = os.path.join(self.log_dir, FileKind.META_PROPERTIES.value)
        if is_missing(path):
            return None
        content = read_small(path)
        return note_malformed(path, content if isinstance(content, Malformed) else read_meta_properties(content))

    @cached_property
    def follow_file(self) -> FollowFile | Malformed | None:
        """The content of `klog-follow.json`; None when there is none: the log dir is no copy that klog has made."""
        from klog.formats.follow_file import FOLLOW_FILE, read_follow_file

        path = os.path.join(self.log_dir, FOLLOW_FILE)
        if is_missing(path):
            return None
        content = read_small(path)
        return note_malformed(path, content if isinstance(content, Malformed) else read_follow_file(content))

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None when `meta.properties` does not give it."""
        return self.meta.cluster_id if isinstance(self.meta, MetaProperties) else None


def read_server_properties(path: str) -> dict[str, str]:
    """Return the content of a broker's `server.properties`.  Raises UsageError for a file that is none."""
    content = read_small(path)
    found = content if isinstance(content, Malformed) else read_properties(content)
    if isinstance(found, Malformed):
        raise UsageError(f"{path}: {found}")
    return found


def note_malformed(path: str, found: T) -> T:
    """Return *found*, the content of the file at *path*; a Malformed is named at the end of the command."""
    if isinstance(found, Malformed):
        message = str(found) if path in found.reason else f"{path}: {found}"
        UNUSABLE.note(Unusable(path, message, is_unreadable=False))
    return found


def read_small_if_there(path: str) -> bytes | Malformed | None:
    """Return the same; None without such a file."""
    return None if is_missing(path) else read_small(path)


def read_small(path: str) -> bytes | Malformed:
    """Return the content of a text file or snapshot; a `Malformed` of line 0 if it cannot be read."""
    try:
        with ReadOnlyFile(path) as source:
            if source.size > SMALL_FILE_BYTES:
                return Malformed(0, f"{source.size} bytes are far too many for such a file")
            return source.read(0, source.size)
    except KlogError as error:
        return Malformed(0, str(error))
