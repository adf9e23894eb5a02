"""The small files of a log dir itself: checkpoints of its partitions, and `meta.properties`."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Final

from klog.errors import KlogError
from klog.files.read_only import ReadOnlyFile
from klog.formats.checkpoint import Checkpoint, Malformed, OffsetEntry, offsets_by_partition, read_offsets
from klog.formats.follow_file import FOLLOW_FILE, FollowFile, read_follow_file
from klog.formats.names import FileKind
from klog.formats.properties import MetaProperties, read_meta_properties

SMALL_FILE_BYTES: Final = 64 << 20
"""No text file or snapshot of a broker comes near this; a larger one is not read."""


class RootFiles:
    """The small files of a log dir that its partitions need: four checkpoints, and whose log dir it is.

    Each is read when it is first needed.
    """

    def __init__(self, log_dir: str) -> None:
        self.log_dir = log_dir
        self._read: dict[FileKind, Checkpoint[OffsetEntry] | None] = {}
        self._offsets: dict[FileKind, dict[tuple[str, int], int]] = {}

    def file(self, kind: FileKind) -> Checkpoint[OffsetEntry] | None:
        """Return the content of one of `ROOT_CHECKPOINTS`, None when there is no such file."""
        if kind not in self._read:
            path = os.path.join(self.log_dir, kind.value)
            found: Checkpoint[OffsetEntry] | None = None
            if os.path.lexists(path):
                content = read_small(path)
                found = Checkpoint((), content) if isinstance(content, Malformed) else read_offsets(content)
            self._read[kind] = found
        return self._read[kind]

    def offset(self, kind: FileKind, topic: str, partition: int) -> int | None:
        """Return what a checkpoint file says of a partition, None when it says nothing or is malformed."""
        if kind not in self._offsets:
            found = self.file(kind)
            self._offsets[kind] = offsets_by_partition(found) if found is not None else {}
        return self._offsets[kind].get((topic, partition))

    @cached_property
    def meta(self) -> MetaProperties | Malformed | None:
        """The content of `meta.properties`; None when there is none: the directory was never formatted."""
        path = os.path.join(self.log_dir, FileKind.META_PROPERTIES.value)
        if not os.path.isfile(path):
            return None
        content = read_small(path)
        return content if isinstance(content, Malformed) else read_meta_properties(content)

    @cached_property
    def follow_file(self) -> FollowFile | Malformed | None:
        """The content of `klog-follow.json`; None when there is none: the log dir is no copy that klog has made."""
        path = os.path.join(self.log_dir, FOLLOW_FILE)
        if not os.path.lexists(path):
            return None
        content = read_small(path)
        return content if isinstance(content, Malformed) else read_follow_file(content)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None when `meta.properties` does not give it."""
        return self.meta.cluster_id if isinstance(self.meta, MetaProperties) else None


def read_small(path: str) -> bytes | Malformed:
    """Return the whole content of a text file or snapshot; a `Malformed` of line 0 says why it cannot be read."""
    try:
        with ReadOnlyFile(path) as source:
            if source.size > SMALL_FILE_BYTES:
                return Malformed(0, f"{source.size} bytes are far too many for such a file")
            return source.read(0, source.size)
    except KlogError as error:
        return Malformed(0, str(error))
