"""A partition as it is once interrupted operations are finished or taken back, while nothing has been changed yet."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.names import SEGMENT_KINDS, FileKind, FileName, file_name, parse_file
from klog.partition_plan.contents import Content, StoredContent


class ResolvedPartition(Partition):
    """A partition whose log consists of *files*: by the names they will have, what they are now."""

    def __init__(self, partition: Partition, files: Mapping[str, Content]) -> None:
        super().__init__(partition.path, partition.checkpoints)
        self._settled = files
        self.__dict__["_listing"] = partition._listing

    @cached_property
    def segments(self) -> tuple[SegmentFiles, ...]:
        """The segments, base offsets ascending, with the names that their files have now."""
        bases = sorted(
            file.offset
            for file in map(parse_file, self._settled)
            if file.kind is FileKind.LOG and file.offset is not None
        )
        return tuple(self._segment(base) for base in bases)

    def _segment(self, base: int) -> SegmentFiles:
        log = self._settled[file_name(base, FileKind.LOG)]
        assert isinstance(log, StoredContent)
        names = [self._name(file_name(base, kind)) for kind in SEGMENT_KINDS[1:]]
        return SegmentFiles(base, log.size, log.name, *names)

    def _name(self, name: str) -> str | None:
        content = self._settled.get(name)
        return content.name if isinstance(content, StoredContent) else None

    @cached_property
    def snapshots(self) -> tuple[FileName, ...]:
        """The producer snapshots, by their offset."""
        found = [
            file
            for file in map(parse_file, self._settled)
            if file.kind is FileKind.SNAPSHOT and file.offset is not None
        ]
        return tuple(sorted(found, key=lambda file: file.offset or 0))
