"""The files that a partition directory would have if its remote segments were local: logs, indexes, snapshots.

Each is read when it is first opened: the log by ranges, the others as a whole.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import ExitCode, KlogError, UnreadableError, offsets_text
from klog.base.overlays import OverlayFile
from klog.base.read_only import ReadableLog
from klog.formats.batch import BatchFacts
from klog.formats.index import ABORTED_TXN, OFFSET_ENTRY, TIME_ENTRY
from klog.formats.names import FileKind, file_name
from klog.log.header_walk import header_at, walk_headers
from klog.log.index import IndexEntries
from klog.partition.tiered.tiered_log import RemoteSegmentPart
from klog.tier.stores import MissingObjectError
from klog.tier.tier import Tier, is_url
from klog.tier.tier_layout import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, BadObjectError, TierSegment

if TYPE_CHECKING:
    from klog.partition.tiered.block_cache import BlockCache

_KINDS: Final = {INDEX: FileKind.INDEX, TIME_INDEX: FileKind.TIME_INDEX, TXN_INDEX: FileKind.TXN_INDEX}


class RemoteDamageError(UnreadableError):
    """An object of a segment is missing, malformed or another segment's."""

    exit_code = ExitCode.PROBLEMS_LEFT


def is_of_object(error: BaseException | None) -> bool:
    """Whether an error tells of an object that is missing or malformed, not of a store that does not answer."""
    while error is not None:
        is_told = isinstance(error, RemoteDamageError) and error.__cause__ is None
        if is_told or isinstance(error, MissingObjectError | BadObjectError):
            return True
        error = error.__cause__
    return False


class BytesInMemory:
    """A small file that was read as a whole.  See `klog.base.read_only.ReadableLog`."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path, self.size, self._content = path, len(content), content

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on."""
        return self._content[position : position + size]

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes."""
        data = self._content[position : position + len(view)]
        view[: len(data)] = data
        return len(data)

    def next_data(self, position: int) -> int:
        """Return *position*: there are no holes."""
        return position

    def close(self) -> None:
        """Do nothing."""


class RemoteSegmentLog:
    """The log of a remote segment up to byte *size*.  See `klog.base.read_only.ReadableLog`.

    *missing_bytes*: the metadata have so many more; consumers of a broker that reads this skip their records.
    """

    def __init__(self, source: ReadableLog, key: str, size: int, missing_bytes: int) -> None:
        self.path, self.size, self.missing_bytes = key, size, missing_bytes
        self._source = source

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on.  Raises UnreadableError."""
        try:
            return self._source.read(position, max(0, min(size, self.size - position)))
        except KlogError as error:
            if not is_of_object(error):
                raise
            raise RemoteDamageError(f"{self.path} @ {position}: {_reason(error, self.path)}") from error

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes.  Raises OSError."""
        try:
            return self._source.read_into(position, view[: max(0, self.size - position)])
        except OSError as error:
            raise OSError(error.errno or errno.EIO, error.strerror or str(error)) from error

    def next_data(self, position: int) -> int:
        """Return the first position at or after *position* that is not in a hole."""
        return self._source.next_data(position)

    def close(self) -> None:
        """Close the object."""
        self._source.close()


def _reason(error: KlogError, key: str) -> str:
    return str(getattr(error, "reason", error)).removeprefix(key).lstrip(" :")


class PartFacts(NamedTuple):
    """A segment, as far as it is read.  *is_asked_for_times*: a broker looks in it for a time.

    *tells_txns*: its metadata show whether it has aborted transactions; before Kafka 4.0 none do.  *cache*: for its
    log, None for a log that is read once, or whose bytes are in a file.  *folder*: that of other segments' keys.
    """

    part: RemoteSegmentPart
    is_asked_for_times: bool
    tells_txns: bool
    cache: BlockCache | None = None
    folder: str = ""


class RemoteFiles:
    """The files of one remote segment.  *objects*: None if the tier has none of it."""

    def __init__(self, tier: Tier, facts: PartFacts, objects: TierSegment | None) -> None:
        self._tier, self._facts, self._part = tier, facts, facts.part
        self._segment = facts.part.segment
        self._objects = objects or TierSegment(self._segment.segment_id, self._segment.start_offset)

    def files(self) -> Iterator[tuple[str, OverlayFile]]:
        """Yield the names that a broker gives the files, and the files."""
        base = self._segment.start_offset
        yield file_name(base, FileKind.LOG), self._file(LOG, self._segment.size, self._open_log)
        for part, kind in _KINDS.items():
            if self._has(part):
                yield file_name(base, kind), self._file(part, 0, partial(self._open_part, part))
        if self._part.is_whole and self._has(SNAPSHOT):
            name = file_name(self._segment.end_offset + 1, FileKind.SNAPSHOT)
            yield name, self._file(SNAPSHOT, 0, partial(self._open_part, SNAPSHOT))

    def _has(self, part: str) -> bool:
        """Whether the segment has a part; a transaction index is expected where the metadata tell of one."""
        if part in self._objects.keys:
            return True
        if part == TXN_INDEX:
            is_known = self._facts.tells_txns or "indexes" in self._objects.keys
            return is_known and not self._segment.txn_index_empty
        return "indexes" in self._objects.keys

    def _file(self, part: str, size: int, open_it: Callable[[], ReadableLog]) -> OverlayFile:
        segment = self._segment
        facts = segment.max_timestamp, self._key(part), segment.segment_id, self._facts.is_asked_for_times
        return OverlayFile(size, open_it, *facts)

    def _key(self, part: str) -> str:
        """Return the key of the object with a part, or the key that a missing one would have."""
        keys = self._objects.keys
        named = keys.get(part) or (None if part == LOG else keys.get("indexes"))
        if named is not None:
            return named
        stem = f"{self._facts.folder}{self._segment.start_offset:020}-{self._segment.segment_id}."
        return next((key.removesuffix(kind) for kind, key in keys.items()), stem) + part

    @contextmanager
    def _told(self, part: str) -> Iterator[None]:
        """Raise the fault of an object with its key, and the offsets that it costs."""
        key = self._key(part)
        try:
            yield
        except KlogError as error:
            if not is_of_object(error):
                raise
            is_missing = self._objects.keys.get(part) is None and "indexes" not in self._objects.keys
            reason = "no such object" if is_missing else _reason(error, key)
            lost = f"; {self._offsets()} lost" if part == LOG else ""
            raise RemoteDamageError(f"{key}: {reason}{lost}") from error

    def _offsets(self) -> str:
        return offsets_text(self._segment.start_offset, self._part.end - 1)

    def _open_part(self, part: str) -> ReadableLog:
        with self._told(part):
            content = self._tier.reader(self._objects).read(part)
            if content is None and "indexes" not in self._objects.keys:
                raise MissingObjectError("the metadata have aborted transactions")
        content = content or b""
        return BytesInMemory(self._key(part), content if self._part.is_whole else self._cut(part, content))

    def _cut(self, part: str, content: bytes) -> bytes:
        """Return the entries of an index below the end."""
        layout = {INDEX: OFFSET_ENTRY, TIME_INDEX: TIME_ENTRY, TXN_INDEX: ABORTED_TXN}[part]
        base = 0 if part == TXN_INDEX else self._segment.start_offset
        column, entries = layout.names.index("last_offset" if part == TXN_INDEX else "relative_offset"), 0
        for values in layout.read_all(content):
            if base + values[column] >= self._part.end:
                break
            entries += 1
        return content[: entries * layout.size]

    def _open_log(self) -> ReadableLog:
        with self._told(LOG):
            source = self._tier.reader(self._objects).log()
            if self._facts.cache is not None:
                from klog.partition.tiered.block_cache import CachedLog

                source = CachedLog(source, self._facts.cache)
            elif is_url(self._tier.uri):
                from klog.partition.tiered.range_cache import RangeCache

                source = RangeCache(source)
            self._check_first(source)
        missing = max(self._segment.size - source.size, 0)
        size = source.size if self._part.is_whole else self._end_position(source)
        return RemoteSegmentLog(source, self._key(LOG), size, missing if size == source.size else 0)

    def _check_first(self, source: ReadableLog) -> None:
        """Raise RemoteDamageError if the log begins with a batch of other offsets: it is another segment's."""
        first = header_at(source, 0)
        if first is None or first.is_wrapper:
            return
        start, end = self._segment.start_offset, self._segment.end_offset
        if not start <= first.base_offset <= end:
            raise RemoteDamageError(
                f"{self._key(LOG)}: its batches begin at offset {first.base_offset}, the metadata have"
                f" {offsets_text(start, end)}"
            )

    def _end_position(self, source: ReadableLog) -> int:
        """Return the position of the first batch that is not read; the size of the log if there is none."""
        start = 0
        if self._has(INDEX):
            try:
                with IndexEntries(self._open_part(INDEX), OFFSET_ENTRY) as entries:
                    start = entries[entries.count - 1][1] if entries.count else 0
            except KlogError:
                start = 0
        for found in walk_headers(source, start if header_at(source, start) else 0):
            if isinstance(found, BatchFacts) and found.last_offset >= self._part.end:
                return found.position
        return source.size
