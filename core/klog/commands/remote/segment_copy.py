"""Copies one segment into a directory, and checks it on the way: its bytes are read once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Final

from klog.base.errors import KlogError, UnreadableError, UsageError, counted
from klog.base.overlays import OverlayFile
from klog.base.progress import Sink
from klog.base.read_only import ReadableLog, ReadOnlyFile, is_missing
from klog.commands.remote.aborted import abort_markers
from klog.commands.remote.fetch_options import CopiedSegment, LostSegment
from klog.commands.remote.fetch_plan import PartitionToFetch, SegmentToFetch
from klog.commands.remote.segment_check import SegmentCheck
from klog.commands.remote.segment_checks import Content, of_log, txn_index_findings
from klog.commands.remote.segment_producers import SegmentProducers, snapshot_contradiction
from klog.data_dir.disk.directory_tree import write_file
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import SegmentFiles
from klog.formats.index import ABORTED_TXN
from klog.formats.names import SEGMENT_KINDS, FileKind, file_name
from klog.formats.producer_snapshot import read_snapshot
from klog.kernel import crc32c
from klog.partition.tiered.remote_files import PartFacts, RemoteFiles, RemoteSegmentLog, is_of_object
from klog.partition.verify.findings import Severity
from klog.partition.verify.segment_pass import SegmentFacts, SurveyOptions, survey_log
from klog.tier.tier import Tier
from klog.tier.tier_layout import INDEX, LOG, TIME_INDEX, EncryptedObjectError

_PIECE_BYTES: Final = 1 << 20
_SYNCED_BYTES: Final = 16 << 20
"""The system begins to write so much to the disk at a time, while the next is read and checked."""
_LOG, _INDEX, _TIME_INDEX, _TXN_INDEX = (kind.value for kind in SEGMENT_KINDS)
_SNAPSHOT = FileKind.SNAPSHOT.value


class CopyingLog:
    """A log whose bytes are appended to a new file when they are first read.  See ReadableLog.

    *failure*: the error that ended this, of the source or of the file; nothing is read after it.
    """

    def __init__(self, source: ReadableLog, path: str, disk: Disk) -> None:
        self.path, self.size = source.path, source.size
        self._source, self._disk, self._file = source, disk, disk.create(path)
        self._done = self._begun = 0
        self.failure: KlogError | OSError | None = None

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes.  Raises UnreadableError."""
        with self._noted():
            count = self._source.read_into(position, view[: max(0, self.size - position)])
            self._take(position, view[:count])
        return count

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on.  Raises UnreadableError."""
        with self._noted():
            data = self._source.read(position, max(0, min(size, self.size - position)))
            self._take(position, memoryview(data))
        return data

    def next_data(self, position: int) -> int:
        """Return *position*: holes are copied as they are read."""
        return position

    def copy_rest(self) -> None:
        """Copy all that was not read.  Raises UnreadableError."""
        with self._noted():
            self._copy_until(self.size)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Keep an error: readers of logs would take it for one of the medium, and go on behind it."""
        if self.failure is not None:
            raise UnreadableError(str(self.failure)) from self.failure
        try:
            yield
        except (KlogError, OSError) as error:
            self.failure = error
            raise UnreadableError(str(error)) from error

    def _take(self, position: int, data: memoryview) -> None:
        if position > self._done:
            self._copy_until(position)
        if position <= self._done < position + len(data):
            self._write(data[self._done - position :])

    def _copy_until(self, end: int) -> None:
        while self._done < end:
            piece = self._source.read(self._done, min(_PIECE_BYTES, end - self._done))
            if not piece:
                return
            self._write(piece)

    def _write(self, data: bytes | memoryview) -> None:
        self._disk.write(self._file, data)
        self._done += len(data)
        if self._done - self._begun >= _SYNCED_BYTES:
            self._disk.begin_sync(self._file, self._begun, self._done - self._begun)
            self._begun = self._done

    def close(self) -> None:
        """Close both."""
        self._source.close()
        self._disk.close(self._file)


def is_damage(error: BaseException) -> bool:
    """Whether an error tells that an object is missing or malformed, not that the tier does not answer.

    Raises UsageError for an encrypted object without its key.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, EncryptedObjectError):
            raise UsageError(str(cause)) from error
        cause = cause.__cause__
    return is_of_object(error)


class SegmentCopier:
    """Copies the segments of a partition into the directory *path*."""

    def __init__(self, tier: Tier, planned: PartitionToFetch, path: str, survey: SurveyOptions, disk: Disk) -> None:
        self._tier, self._planned, self._path, self._survey, self._disk = tier, planned, path, survey, disk

    def copy(self, segment: SegmentToFetch, sink: Sink) -> CopiedSegment | LostSegment:
        """Copy a segment.  Raises OSError, KlogError if a disk or the tier refuses; the files are incomplete then."""
        if segment.part is not None:
            return _RemoteCopy(self._tier, self._planned, self._path, self._survey, self._disk).copy(segment, sink)
        return self._copy_local(segment, sink)

    def _copy_local(self, segment: SegmentToFetch, sink: Sink) -> CopiedSegment:
        """Copy a local segment as it is; the last one only up to the end of its last batch.

        After a kill, or beside a broker, the indexes of the last one are not complete.
        """
        partition, files = self._planned.local, segment.files
        assert partition is not None
        assert files is not None
        is_open = files is partition.segments[-1] and LogDir(partition.log_dir).clean_shutdown is None
        names = [*((segment.base, kind) for kind in SEGMENT_KINDS[1:]), (segment.end, FileKind.SNAPSHOT)]
        lacks = []
        for offset, kind in names:
            name = file_name(offset, kind)
            if is_open or is_missing(partition.file(name)):
                lacks += [kind.value] if is_open or kind is not FileKind.TXN_INDEX else []
                continue
            with ReadOnlyFile(partition.file(name)) as file:
                write_file(os.path.join(self._path, name), _pieces(file), self._disk)
        source = ReadOnlyFile(partition.file(files.log))
        source.size = min(source.size, segment.size)
        facts = _surveyed(
            source, os.path.join(self._path, files.log), files, segment.end, self._survey, sink, self._disk
        )
        note = (
            f"{files.log}: {counted(len(facts.damages), 'damaged place')}, as in the local log"
            if facts.damages
            else None
        )
        return _copied(self._planned, segment, facts, is_remote=False)._replace(note=note, lacks=tuple(lacks))


def _pieces(file: ReadableLog) -> Iterator[bytes]:
    for position in range(0, file.size, _PIECE_BYTES):
        yield file.read(position, _PIECE_BYTES)


def _surveyed(
    source: ReadableLog, path: str, files: SegmentFiles, end: int, options: SurveyOptions, sink: Sink, disk: Disk,
    indexes: tuple[ReadableLog | None, ReadableLog | None] = (None, None), producers: SegmentProducers | None = None,
) -> SegmentFacts:  # fmt: skip
    """Make the pass over a log that is copied to *path*.  Raises what refused."""
    log = CopyingLog(source, path, disk)
    try:
        facts = survey_log(log, files, end, indexes, options, sink, producers)
        with suppress(UnreadableError):
            log.copy_rest()
    finally:
        log.close()
    if log.failure is not None:
        raise log.failure
    return facts


def _copied(
    planned: PartitionToFetch, segment: SegmentToFetch, facts: SegmentFacts, *, is_remote: bool
) -> CopiedSegment:
    survey = facts.survey
    records, has_producers = survey.records + survey.legacy, survey.producer_batches > 0
    place = planned.folder, segment.base, segment.end
    return CopiedSegment(*place, facts.end_offset, facts.size, records, is_remote, has_producers)


class _RemoteCopy:
    """Copies one remote segment."""

    def __init__(self, tier: Tier, planned: PartitionToFetch, path: str, survey: SurveyOptions, disk: Disk) -> None:
        self._tier, self._planned, self._path, self._survey, self._disk = tier, planned, path, survey, disk
        self._lacks: list[str] = []

    def copy(self, segment: SegmentToFetch, sink: Sink) -> CopiedSegment | LostSegment:
        """See `SegmentCopier.copy`."""
        assert segment.part is not None
        check = self._check(segment)
        facts = PartFacts(segment.part, False, self._planned.tells_txns, folder=check.folder)
        files = dict(RemoteFiles(self._tier, facts, segment.objects).files())
        small = {
            kind: self._small(files, segment, kind, check) for kind in (_INDEX, _TIME_INDEX, _TXN_INDEX, _SNAPSHOT)
        }
        log = file_name(segment.base, FileKind.LOG)
        try:
            result = self._copy_log(segment, files[log], check, small, sink)
        except (KlogError, OSError) as error:
            if not is_damage(error):
                raise
            result = str(error)
        if isinstance(result, str):
            return self._lost(segment, log, result, small[_SNAPSHOT])
        for kind in (_INDEX, _TIME_INDEX, _TXN_INDEX):
            self._put(file_name(segment.base, FileKind(kind)), small[kind] if kind not in self._lacks else None)
        self._put(file_name(segment.end, FileKind.SNAPSHOT), small[_SNAPSHOT])
        return result._replace(lacks=tuple(self._lacks))

    def _check(self, segment: SegmentToFetch) -> SegmentCheck:
        assert segment.part is not None
        entry = segment.part.segment._replace(end_offset=segment.end - 1)
        stored = (one.objects.keys.values() for one in self._planned.segments if one.objects is not None)
        near = next((key for keys in stored for key in keys), "")
        folder = near[: near.rfind("/") + 1]
        return SegmentCheck(self._planned.whose, self._tier, entry, segment.objects, segment.end - 1, folder=folder)

    def _small(
        self, files: dict[str, OverlayFile], segment: SegmentToFetch, kind: str, check: SegmentCheck
    ) -> bytes | None:
        """Return an index or the snapshot; None for one that is missing or wrong.  Raises KlogError."""
        base = segment.end if kind == _SNAPSHOT else segment.base
        found = files.get(file_name(base, FileKind(kind)))
        if found is None:
            self._lacks += [kind] if kind != _TXN_INDEX else []
            return None
        try:
            with closing(found.open()) as source:
                content = source.read(0, source.size)
        except KlogError as error:
            if not is_damage(error):
                raise
            self._lacks.append(kind)
            return None
        if kind == _TXN_INDEX and any(txn_index_findings(check, content)):
            self._lacks.append(kind)
            return None
        if kind == _SNAPSHOT and read_snapshot(content, crc32c).problem is not None:
            self._lacks.append(kind)
            return None
        return None if kind == _TXN_INDEX and not content else content

    def _copy_log(
        self,
        segment: SegmentToFetch,
        file: OverlayFile,
        check: SegmentCheck,
        small: dict[str, bytes | None],
        sink: Sink,
    ) -> CopiedSegment | str:
        """Return the copy, or the fault of the log."""
        entry = check.entry
        source, note = file.open(), None
        if segment.part is not None and segment.part.is_whole and source.size > entry.size:
            note = f"{source.path}: {source.size - entry.size} bytes behind the segment are left out"
            source = RemoteSegmentLog(source, source.path, entry.size, 0)
        if getattr(source, "missing_bytes", 0):
            source.close()
            return f"{source.size} bytes, {entry.size} in the metadata"
        files = SegmentFiles(segment.base, source.size, source.path, INDEX, TIME_INDEX, None)
        indexes = [None if small[kind] is None else Content(kind, small[kind] or b"") for kind in (_INDEX, _TIME_INDEX)]
        path = os.path.join(self._path, file_name(segment.base, FileKind.LOG))
        producers = SegmentProducers(segment.base, segment.end - 1, [], only_end=True)
        facts = _surveyed(
            source, path, files, segment.end, self._survey, sink, self._disk, (indexes[0], indexes[1]), producers
        )
        check = check._replace(entry=entry._replace(size=facts.size))
        found = [one for one in of_log(check, facts, is_listed=True) if one.severity is not Severity.NOTE]
        faults = [one for one in found if one.severity is Severity.DAMAGE and "index-" not in one.id]
        if faults:
            return f"{faults[0].id}: {faults[0].message}"
        if any("index-" in one.id for one in found):
            self._lacks += [_INDEX, _TIME_INDEX]
        has_txns = self._survey.deep or producers.is_transactional or small[_TXN_INDEX] is not None
        if has_txns and _TXN_INDEX not in self._lacks and self._txn_index_differs(path, small[_TXN_INDEX]):
            self._lacks.append(_TXN_INDEX)
        snapshot = small[_SNAPSHOT]
        if snapshot is not None:
            stored = read_snapshot(snapshot, crc32c)
            if snapshot_contradiction(stored, segment.end - 1, producers.last) is not None:
                self._lacks.append(_SNAPSHOT)
                small[_SNAPSHOT] = None
        return _copied(self._planned, segment, facts, is_remote=True)._replace(note=note)

    def _txn_index_differs(self, path: str, content: bytes | None) -> bool:
        with ReadOnlyFile(path) as log:
            return abort_markers(log) != {entry[3]: entry[1] for entry in ABORTED_TXN.read_all(content or b"")}

    def _lost(self, segment: SegmentToFetch, log: str, message: str, snapshot: bytes | None) -> LostSegment:
        """Remove the copied part of a damaged segment; its snapshot has the producers of the next one."""
        path = os.path.join(self._path, log)
        if os.path.lexists(path):
            self._disk.unlink(path)
        self._put(file_name(segment.end, FileKind.SNAPSHOT), snapshot)
        assert segment.part is not None
        segment_id = segment.part.segment.segment_id
        text = message.rpartition(f"{segment_id}.log")[2].lstrip(" :").partition("; offset")[0]
        place = self._planned.folder, segment.base, segment.end - 1
        return LostSegment(*place, segment_id, self._check(segment).key(LOG), text)

    def _put(self, name: str, content: bytes | None) -> None:
        path = os.path.join(self._path, name)
        if content is not None and not os.path.lexists(path):
            write_file(path, [content], self._disk)
