"""The checkpoint files of a copy: their lines in memory, and on the disk when that is asked for."""

from __future__ import annotations

import os
from typing import Final

from klog.copy_dir.live_directory import replace_file
from klog.data_dir.root_files import RootFiles
from klog.disk.disk import Disk
from klog.errors import DamagedError
from klog.formats.checkpoint import OffsetEntry, offsets_by_partition, write_offsets
from klog.formats.names import ROOT_CHECKPOINTS, FileKind

MOVED: Final = (FileKind.RECOVERY_POINTS, FileKind.HIGH_WATERMARKS, FileKind.LOG_STARTS)
"""Those that move while batches come in; the cleaner's is only there."""


class OffsetFiles:
    """The offsets of partitions, by file, topic and number.  Raises DamagedError for a file that a broker refuses."""

    def __init__(self, root: RootFiles, disk: Disk) -> None:
        self._path, self._disk = root.log_dir, disk
        self._offsets: dict[FileKind, dict[tuple[str, int], int]] = {}
        self._written: dict[FileKind, bytes | None] = {}
        self._changed: set[FileKind] = set()
        for kind in ROOT_CHECKPOINTS:
            found = root.file(kind)
            if found is not None and found.malformed is not None:
                path = os.path.join(self._path, kind.value)
                raise DamagedError(f"{path}: {found.malformed}; first: klog recover {self._path}")
            self._offsets[kind] = offsets_by_partition(found) if found is not None else {}
            if found is None:
                self._changed.add(kind)

    def get(self, kind: FileKind, topic: str, number: int) -> int | None:
        """Return an offset, None where there is no line."""
        return self._offsets[kind].get((topic, number))

    def move(self, kind: FileKind, topic: str, number: int, offset: int) -> None:
        """Let an offset be another."""
        if self._offsets[kind].get((topic, number)) != offset:
            self._offsets[kind][topic, number] = offset
            self._changed.add(kind)

    def write(self) -> None:
        """Let the files have what changed, and return when that is on the disk.  Raises OSError."""
        changed = [kind for kind in ROOT_CHECKPOINTS if kind in self._changed]
        for kind in changed:
            lines = (OffsetEntry(*key, offset) for key, offset in sorted(self._offsets[kind].items()))
            replace_file(os.path.join(self._path, kind.value), write_offsets(lines), self._disk)
        if changed:
            self._disk.sync([self._path])
        self._changed.clear()
