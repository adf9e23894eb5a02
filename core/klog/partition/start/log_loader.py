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

from klog.base.errors import UnreadableError
from klog.base.progress import Sink
from klog.change.partition_plan.contents import txn_entries
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import Malformed
from klog.formats.index import OFFSET_ENTRY
from klog.formats.names import FileKind, file_name
from klog.kernel import Window
from klog.log.index import newer_version
from klog.partition.start.producer_recovery import BrokerClock, ProducerLoader
from klog.partition.start.segment_recovery import IntactPrefix, PartitionReader, SegmentRecovery, split
from klog.partition.start.start_files import NOTHING, FailsError, ReadSettings, StartOutcome, StartSegment, StartState
from klog.partition.start.start_log import Epochs, StartLog, settle


def load(
    partition: Partition,
    start: StartState,
    settings: ReadSettings,
    clock: BrokerClock,
    sink: Sink | None = None,
    prefixes: Mapping[str, IntactPrefix] = NOTHING,
    window: Window | None = None,
) -> StartOutcome:
    """Play the start and the stop.  Raises UnreadableError for a file that the system cannot read.

    *prefixes*: known facts about logs, by the names of logs.  These logs are not read again if the facts suffice, and
    the outcome's *files* then lack their content.  *window*: a read buffer, see `PartitionReader`.
    """
    try:
        epochs, log = Epochs(partition), StartLog(partition.path, settle(partition, settings))
        reading = PartitionReader(partition.path, settings, sink, window)
        outcome = _Loader(log, epochs, start, reading, clock, prefixes).load()
        if isinstance(partition.metadata, Malformed):  # the last file that a broker reads
            is_io = not partition.metadata.is_unchecked
            raise FailsError(f"partition.metadata, {partition.metadata}", "metadata-malformed", is_io)
        return outcome
    except FailsError as failure:
        return StartOutcome(str(failure), reason=failure.reason, offline=failure.offline)
    except OSError as error:  # from the reader, which skips a bad sector only if it does not play a broker
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
        log: StartLog,
        epochs: Epochs,
        start: StartState,
        reading: PartitionReader,
        clock: BrokerClock,
        prefixes: Mapping[str, IntactPrefix],
    ) -> None:
        self._log, self._epochs = log, epochs
        self._start, self._reading, self._clock = start, reading, clock
        self._prefixes = prefixes
        self._recovered: set[int] = set()

    def load(self) -> StartOutcome:
        self._retry(self._load_segments)
        self._retry(self._recover_log)
        producers = ProducerLoader(self._log.snapshots, self._clock)
        log_end = self._come_to_end(producers)
        self._epochs.cut_end(log_end)
        self._epochs.cut_start(self._start.log_start)
        bases = self._log.bases
        self._log.snapshots.remove_strays(bases)
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
                self._log.replace(segment, split(segment, self._reading))

    # the fourth pass: every segment is opened

    def _load_segments(self) -> None:
        log = self._log
        loaded, log.segments = log.segments, {}
        for base in sorted({*log.in_directory(), *loaded}):
            segment = loaded[base] if base in loaded else log.open(base)
            try:
                if segment.offset_index is None or not self._txn_index_is_sane(segment):
                    self._recover(segment)
                elif segment.time_index is None:
                    segment.time_index = b""
            except _BackwardsError as error:
                raise FailsError(f"{segment.log[0].name}: InvalidOffsetException") from error
            finally:
                log.segments[base] = segment

    def _txn_index_is_sane(self, segment: StartSegment) -> bool:
        """Kafka: TransactionIndex.sanityCheck."""
        for entry in txn_entries(self._reading.folder, segment.txn_index):
            if version := newer_version(entry.version):
                raise FailsError(f"{file_name(segment.base, FileKind.TXN_INDEX)}: version {version}")
            if entry.last_offset < segment.base:
                return False
        return True

    # the fifth: the part of the log that may not be on the disk is read and checked

    def _recover_log(self) -> None:
        if self._start.clean or not self._log.segments:
            return
        bases = self._log.bases
        unflushed = bases[max(bisect_right(bases, self._start.recovery_point) - 1, 0) :]
        for at, base in enumerate(unflushed):
            segment = self._log.segments[base]
            before = segment.size
            try:
                self._recover(segment)
            except _BackwardsError:
                self._log.empty(segment)
            if segment.size < before:
                self._log.drop(unflushed[at + 1 :])
                return

    def _recover(self, segment: StartSegment) -> None:
        """Kafka: LogLoader.recoverSegment."""
        producers = ProducerLoader(self._log.snapshots, self._clock)
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
            # The rest of the start reads only the last entry of an index that was just rebuilt.
            segment.offset_index, segment.time_index = segment.offset_index[-OFFSET_ENTRY.size :], b""
        if recovery.txn_index or segment.txn_index is not None:
            segment.txn_index = recovery.txn_index
        segment.highest_offset = builder.highest_offset
        self._log.cut(segment, builder.size, builder.last_offset + 1 if builder.batches else segment.base)
        producers.save()

    def _recover_from_prefix(self, segment: StartSegment, producers: ProducerLoader) -> bool:
        """Recover a segment without reading it, from the facts about it; False if they are not enough."""
        known = self._prefixes.get(segment.log[0].name)
        if known is None or not known.is_of(segment, producers, self._reading.settings):
            return False
        latest = self._epochs.latest
        self._epochs.assign([(epoch, start) for epoch, start in known.epochs if epoch > latest])
        self._recovered.add(segment.base)
        segment.offset_index, segment.time_index = known.last_entry, b""
        segment.txn_index = None if segment.txn_index is None else b""
        segment.highest_offset = known.last_offset
        self._log.cut(segment, known.size, known.last_offset + 1 if known.batches else segment.base)
        known.apply_to(producers)
        producers.save()
        return True

    # the end

    def _come_to_end(self, producers: ProducerLoader) -> int:
        """Return the log end offset; ensure that there is a segment.

        Kafka: LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd.
        """
        log, log_start = self._log, self._start.log_start
        if log.segments:
            log_end = self._reading.next_offset(log.segments[max(log.segments)])
            if log_end >= log_start:
                return log_end
            log.drop_all()
            self._epochs.clear()
            producers.end = log_start
        log.begin_at(log_start)
        return log_start

    def _rebuild(self, producers: ProducerLoader, log_start: int, log_end: int, clean: bool) -> None:
        """Bring *producers* to *log_end*.  Kafka: UnifiedLog.rebuildProducerState."""
        bases = self._log.bases
        if clean and not self._log.snapshots.files:
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
        segment = self._log.segments[base]
        producers.end = max(base, producers.end, log_start)
        if base in bases[-2:]:
            producers.save()
        end = segment.size
        if base == bases[bisect_right(bases, log_end) - 1]:
            position = self._reading.position(segment, log_end)
            end = segment.size if position is None else position
        self._reading.replay(producers, segment, producers.end, end)

    def _outcome(self, log_start: int, log_end: int) -> StartOutcome:
        log, settings = self._log, self._reading.settings
        log.check_room(settings.index_bytes)
        files = log.other_files() if settings.with_files else {}
        cuts = tuple(log.cuts[base] for base in sorted(log.cuts))
        recovered = tuple(sorted(self._recovered))
        return StartOutcome(
            logs=log.pieces,
            files=files,
            epochs=self._epochs.content,
            cuts=cuts,
            dropped=tuple(log.dropped),
            recovered=recovered,
            log_start=log_start,
            log_end=log_end,
            highest_offset=log.segments[max(log.segments)].highest_offset,
        )


def next_start(
    partition: Partition,
    clean: bool,
    settings: ReadSettings,
    clock: BrokerClock,
    sink: Sink | None = None,
    prefixes: Mapping[str, IntactPrefix] = MappingProxyType({}),
    window: Window | None = None,
) -> StartOutcome:
    """Play the next start; *clean*: the broker was stopped cleanly.  *prefixes*, *window*: see `load`.

    The recovery point and the log start offset come from the log dir's checkpoints.  Raises UnreadableError.
    """
    recovery_point = log_start = None
    if partition.name is not None:
        topic, number = partition.name.topic, partition.name.partition
        recovery_point = partition.checkpoints.offset(FileKind.RECOVERY_POINTS, topic, number)
        log_start = partition.checkpoints.offset(FileKind.LOG_STARTS, topic, number)
    state = StartState(clean, recovery_point or 0, log_start or 0)
    return load(partition, state, settings, clock, sink, prefixes, window)
