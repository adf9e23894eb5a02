"""Plays the start and clean shutdown of a partition as Kafka 4.3.1 does them, in memory.

    outcome = load(partition, Start(clean=False, recovery_point=1841, log_start=0), settings, clock)
    outcome.files               # what of the log will be in the directory afterwards, by name
    outcome.fails               # or why the broker does not come so far

Kafka: LogLoader.load, UnifiedLog.rebuildProducerState and .close.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from klog.broker_start.epochs import Epochs
from klog.broker_start.files import FailsError, ReadSettings, StartSegment
from klog.broker_start.intact_prefix import IntactPrefix
from klog.broker_start.producers import BrokerClock, ProducerLoader, SnapshotFiles
from klog.broker_start.segments import PartitionReader, SegmentRecovery
from klog.broker_start.split import split
from klog.broker_start.unfinished import offset_of, settle
from klog.data_dir.partition import Partition
from klog.errors import UnreadableError
from klog.formats.checkpoint import Malformed
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.names import SEGMENT_KINDS, FileKind, file_name, parse_file
from klog.formats.snapshot import write_snapshot
from klog.kernel import crc32c
from klog.log.segment import MAX_SEGMENT_BYTES
from klog.log.txn_index import newer_version
from klog.partition_plan.contents import Content, FileRange, StoredContent, content_size, txn_entries
from klog.progress import Sink

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class StartState(NamedTuple):
    """What a broker knows before it opens the partition.

    *clean*: it was stopped cleanly.  *recovery_point*, *log_start*: from the checkpoints, 0 for what they do not say.
    """

    clean: bool = False
    recovery_point: int = 0
    log_start: int = 0


class SegmentCut(NamedTuple):
    """A segment that lost its end: its base offset, the offset that becomes its end, the bytes it has then and had."""

    base: int
    offset: int
    size: int
    before: int


class StartOutcome(NamedTuple):
    """What a start and a clean stop make of a partition.

    *fails*: why the broker does not come through; then nothing else counts.  *logs*: the pieces of each log, *files*:
    every other file of the log (none, if the settings do not ask for them), both by name.  *epochs*: the new
    `leader-epoch-checkpoint`, None if it stays.  *cuts*, *dropped*: what was lost, by base offset.  *recovered*: base
    offsets of the segments that were read.
    """

    fails: str | None = None
    logs: Mapping[str, tuple[FileRange, ...]] = _NOTHING
    files: Mapping[str, Content] = _NOTHING
    epochs: bytes | None = None
    cuts: tuple[SegmentCut, ...] = ()
    dropped: tuple[int, ...] = ()
    recovered: tuple[int, ...] = ()
    log_start: int = 0
    log_end: int = 0


def load(
    partition: Partition,
    start: StartState,
    settings: ReadSettings,
    clock: BrokerClock,
    sink: Sink | None = None,
    prefixes: Mapping[str, IntactPrefix] = _NOTHING,
) -> StartOutcome:
    """Play the start and the stop through.  Raises UnreadableError for what the system cannot read.

    *prefixes*: by the names of logs, what is known of them already.  These are not read again where that suffices, and
    the outcome's *files* do not have their right content.
    """
    try:
        reading = PartitionReader(partition.path, settings, sink)
        loader = _Loader(partition, start, reading, clock, prefixes)
        return loader.load()
    except FailsError as failure:
        return StartOutcome(str(failure))
    except OSError as error:  # from the reader, which goes around a bad sector only where no broker is played
        raise UnreadableError(f"{partition.path}: cannot read: {error.strerror}") from error


class _OverflowError(Exception):
    """Offsets that do not fit their segment."""

    def __init__(self, segment: StartSegment) -> None:
        super().__init__()
        self.segment = segment


class _BackwardsError(Exception):
    """Offsets that go backwards where an index entry is due."""


class _Loader:
    def __init__(
        self,
        partition: Partition,
        start: StartState,
        reading: PartitionReader,
        clock: BrokerClock,
        prefixes: Mapping[str, IntactPrefix],
    ) -> None:
        if isinstance(partition.metadata, Malformed):
            raise FailsError(f"partition.metadata, {partition.metadata}")
        self._start, self._reading, self._clock = start, reading, clock
        self._prefixes = prefixes
        self._epochs = Epochs(partition)
        self._files = settle(partition, reading.settings)
        self._snapshots = SnapshotFiles(partition.path, self._snapshot_files())
        self._known = set(self._snapshots.files)  # what the log's own manager has listed, before recovery adds some
        self._segments: dict[int, StartSegment] = {}
        self._recovered: set[int] = set()
        self._cuts: dict[int, SegmentCut] = {}
        self._dropped: list[int] = []

    def _snapshot_files(self) -> list[tuple[int, str]]:
        files = map(parse_file, sorted(self._files))
        return [(offset_of(file), file.name) for file in files if file.kind is FileKind.SNAPSHOT]

    def load(self) -> StartOutcome:
        self._retry(self._load_segments)
        self._retry(self._recover_log)
        producers = ProducerLoader(self._snapshots, self._clock)
        log_end = self._come_to_end(producers)
        self._epochs.cut_end(log_end)
        self._epochs.cut_start(self._start.log_start)
        bases = sorted(self._segments)
        self._snapshots.remove_strays(bases)
        log_start = max(self._start.log_start, bases[0])
        self._rebuild(producers, log_start, log_end, self._start.clean)
        producers.save()
        return self._outcome(log_start, log_end)

    def _retry(self, step: Callable[[], None]) -> None:
        """Do *step*, again from its beginning as often as a segment had to be split."""
        while True:
            try:
                return step()
            except _OverflowError as overflow:
                segment = overflow.segment
                parts = split(segment, self._reading)
                del self._segments[segment.base]
                self._segments.update((part.base, part) for part in parts)
                self._take_names(segment, parts)

    def _take_names(self, segment: StartSegment, parts: list[StartSegment]) -> None:
        """Put the files of *parts* in the place of the segment's."""
        for kind in SEGMENT_KINDS:
            self._files.pop(file_name(segment.base, kind), None)
        if all(part.base != segment.base for part in parts):
            self._forget_snapshot(segment.base)

    def _forget_snapshot(self, base: int) -> None:
        if base in self._known:
            self._snapshots.files.pop(base, None)

    # the fourth pass: every segment is opened

    def _load_segments(self) -> None:
        loaded, self._segments = self._segments, {}
        for base in sorted({*self._in_directory(), *loaded}):
            segment = loaded[base] if base in loaded else self._open(base)
            try:
                if segment.offset_index is None or not self._txn_index_is_sane(segment):
                    self._recover(segment)
                elif segment.time_index is None:
                    segment.time_index = b""
            except _BackwardsError as error:
                raise FailsError(f"{segment.log[0].name}: InvalidOffsetException") from error
            finally:
                self._segments[base] = segment

    def _in_directory(self) -> list[int]:
        """Return the base offsets of the segments."""
        found = []
        for file in map(parse_file, sorted(self._files)):
            if file.kind not in SEGMENT_KINDS:
                continue
            offset = offset_of(file)
            if file.kind is FileKind.LOG:
                if file.name != file_name(offset, FileKind.LOG):
                    raise FailsError(
                        f"{file.name}: a name that no broker writes; what one makes of it is not followed here"
                    )
                found.append(offset)
        return found

    def _open(self, base: int) -> StartSegment:
        log = self._files[file_name(base, FileKind.LOG)]
        assert isinstance(log, StoredContent)
        if log.size > MAX_SEGMENT_BYTES:
            raise FailsError(f"{log.name}: {log.size} bytes are more than a broker opens")
        segment = StartSegment(base, (FileRange(log.name, 0, log.size),))
        segment.offset_index = self._files.get(file_name(base, FileKind.INDEX))
        segment.time_index = self._files.get(file_name(base, FileKind.TIME_INDEX))
        segment.txn_index = self._files.get(file_name(base, FileKind.TXN_INDEX))
        return segment

    def _txn_index_is_sane(self, segment: StartSegment) -> bool:
        """Kafka: TransactionIndex.sanityCheck."""
        for entry in txn_entries(self._reading.folder, segment.txn_index):
            if version := newer_version(entry.version):
                raise FailsError(f"{file_name(segment.base, FileKind.TXN_INDEX)}: version {version}")
            if entry.last_offset < segment.base:
                return False
        return True

    # the fifth: what may not have reached the disk is read and checked

    def _recover_log(self) -> None:
        if self._start.clean or not self._segments:
            return
        bases = sorted(self._segments)
        unflushed = bases[max(bisect_right(bases, self._start.recovery_point) - 1, 0) :]
        for at, base in enumerate(unflushed):
            segment = self._segments[base]
            before = segment.size
            try:
                self._recover(segment)
            except _BackwardsError:
                self._empty(segment)
            if segment.size < before:
                self._drop(unflushed[at + 1 :])
                return

    def _empty(self, segment: StartSegment) -> None:
        """Kafka: LogSegment.truncateTo, to the segment's own base offset."""
        self._cut(segment, 0, segment.base)
        segment.offset_index = segment.time_index = b""
        segment.txn_index = None if segment.txn_index is None else b""

    def _cut(self, segment: StartSegment, size: int, next_offset: int) -> None:
        if size < segment.size:
            before = self._cuts[segment.base].before if segment.base in self._cuts else segment.size
            self._cuts[segment.base] = SegmentCut(segment.base, next_offset, size, before)
            name, start, _ = segment.log[0]
            segment.log = (FileRange(name, start, start + size),)
        segment.next_offset = None  # a broker looks for it once more, and where offsets go backwards finds another

    def _drop(self, bases: list[int]) -> None:
        for base in bases:
            del self._segments[base]
            self._cuts.pop(base, None)
            self._forget_snapshot(base)
        self._dropped += bases

    def _recover(self, segment: StartSegment) -> None:
        """Kafka: LogLoader.recoverSegment."""
        producers = ProducerLoader(self._snapshots, self._clock)
        self._rebuild(producers, self._start.log_start, segment.base, clean=False)
        if self._recover_from_prefix(segment, producers):
            return
        recovery = SegmentRecovery(self._reading, segment, producers, self._epochs.latest)
        recovery.run()
        builder = recovery.builder
        self._epochs.assign(builder.epochs)
        if builder.stop == "overflow":
            raise _OverflowError(segment)
        if builder.stop == "backwards":
            raise _BackwardsError
        self._recovered.add(segment.base)
        segment.offset_index, segment.time_index = builder.offset_entries, builder.time_entries
        if not self._reading.settings.with_files:
            # The last entry is all that the rest of the start asks of an index that was just rebuilt.
            segment.offset_index, segment.time_index = segment.offset_index[-OFFSET_ENTRY.size :], b""
        if recovery.txn_index or segment.txn_index is not None:
            segment.txn_index = recovery.txn_index
        self._cut(segment, builder.size, builder.last_offset + 1 if builder.batches else segment.base)
        producers.save()

    def _recover_from_prefix(self, segment: StartSegment, producers: ProducerLoader) -> bool:
        """Recover a segment without reading it, from what is known of it; False if that is not enough."""
        known = self._prefixes.get(segment.log[0].name)
        if known is None or not known.is_of(segment, producers, self._reading.settings):
            return False
        latest = self._epochs.latest
        self._epochs.assign([(epoch, start) for epoch, start in known.epochs if epoch > latest])
        self._recovered.add(segment.base)
        segment.offset_index, segment.time_index = known.last_entry, b""
        segment.txn_index = None if segment.txn_index is None else b""
        self._cut(segment, known.size, known.last_offset + 1 if known.batches else segment.base)
        known.apply_to(producers)
        producers.save()
        return True

    # the end

    def _come_to_end(self, producers: ProducerLoader) -> int:
        """Return the log end offset; see to it that there is a segment.

        Kafka: LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd.
        """
        log_start = self._start.log_start
        if self._segments:
            log_end = self._reading.next_offset(self._segments[max(self._segments)])
            if log_end >= log_start:
                return log_end
            self._drop(sorted(self._segments))
            self._epochs.clear()
            for offset in self._known:
                self._snapshots.files.pop(offset, None)
            producers.end = log_start
        segment = self._segments[log_start] = StartSegment(log_start, ())
        segment.offset_index = segment.time_index = b""
        segment.next_offset = log_start
        return log_start

    def _rebuild(self, producers: ProducerLoader, log_start: int, log_end: int, clean: bool) -> None:
        """Bring *producers* to *log_end*.  Kafka: UnifiedLog.rebuildProducerState."""
        bases = sorted(self._segments)
        if clean and not self._snapshots.files:
            for offset in (*bases[-2:], log_end):
                producers.end = offset
                producers.save()
            return
        nothing_before = producers.end >= log_end
        producers.reload(log_start, log_end)
        if log_end > producers.end and not nothing_before:
            for base in bases[max(bisect_right(bases, producers.end) - 1, 0) :]:
                if base < log_end:
                    self._replay(producers, bases, base, log_start, log_end)
        producers.end = log_end
        producers.save()

    def _replay(self, producers: ProducerLoader, bases: list[int], base: int, log_start: int, log_end: int) -> None:
        segment = self._segments[base]
        producers.end = max(base, producers.end, log_start)
        if base in bases[-2:]:
            producers.save()
        end = segment.size
        if base == bases[bisect_right(bases, log_end) - 1]:
            position = self._reading.position(segment, log_end)
            end = segment.size if position is None else position
        self._reading.replay(producers, segment, producers.end, end)

    def _outcome(self, log_start: int, log_end: int) -> StartOutcome:
        logs: dict[str, tuple[FileRange, ...]] = {}
        files: dict[str, Content] = {}
        active = max(self._segments)
        self._check_room(self._segments[active])
        for base, segment in self._segments.items():
            logs[file_name(base, FileKind.LOG)] = segment.log
            is_open = segment.is_open or base == active
            for kind, content, size in (
                (FileKind.INDEX, segment.offset_index, OFFSET_ENTRY.size if is_open else 1),
                (FileKind.TIME_INDEX, segment.time_index, TIME_ENTRY.size if base == active else 1),
                (FileKind.TXN_INDEX, segment.txn_index, 1),
            ):
                if content is not None and self._reading.settings.with_files:
                    files[file_name(base, kind)] = _trimmed(content, size)
        for offset, snapshot in self._snapshots.files.items() if self._reading.settings.with_files else ():
            if snapshot.name is not None:
                files[snapshot.name] = self._files[snapshot.name]
            else:
                files[file_name(offset, FileKind.SNAPSHOT)] = write_snapshot(snapshot.producers, crc32c)
        cuts = tuple(self._cuts[base] for base in sorted(self._cuts))
        recovered = tuple(sorted(self._recovered))
        return StartOutcome(
            None, logs, files, self._epochs.content, cuts, tuple(self._dropped), recovered, log_start, log_end
        )  # fmt: skip

    def _check_room(self, active: StartSegment) -> None:
        """The active indexes get their full length, which must not be less than what they have."""
        most = self._reading.settings.index_bytes
        for content, entry in ((active.offset_index, OFFSET_ENTRY), (active.time_index, TIME_ENTRY)):
            used = content_size(content) // entry.size * entry.size
            if used > most // entry.size * entry.size:
                raise FailsError(
                    f"{file_name(active.base, FileKind.LOG)}: an index of {used} bytes, {most} are allowed"
                )


def _trimmed(content: Content, entry_bytes: int) -> Content:
    """Return an index as a clean stop leaves it, when it was in use: whole entries only."""
    if isinstance(content, StoredContent):
        return content._replace(size=content.size - content.size % entry_bytes)
    return content
