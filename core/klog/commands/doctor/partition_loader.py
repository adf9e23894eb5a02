"""The load of each partition, as `klog.partition.start` plays it; a shortcut after a clean stop.

It tells how long a broker recovers logs that were not closed cleanly, and which records the first retention pass
removes, half a minute after the start.

Measured with brokers 4.3.1 and 3.9.1, one recovery thread, files in the page cache: 1.6 GB/s with batches of 16 KiB,
0.05 GB/s with batches of one record; a segment or a log costs some milliseconds however small it is.  A disk that is
slower than the processor adds to that, so the upper end counts on 50 MB/s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from klog.base.errors import KlogError
from klog.base.progress import Sink
from klog.change.partition_plan.contents import FileRange
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.doctor.diagnosis import INDEX_WRONG, Diagnosis, Fate, PartitionFate, RecoveryWork
from klog.commands.doctor.index_check import CheckedIndexes, IndexCheck
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import log_end
from klog.data_dir.root_files import RootFiles
from klog.formats.checkpoint import EpochEntry, epochs_in_force, read_epochs
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import PartitionName, PartitionState
from klog.kernel import Window
from klog.partition.retention.due_records import (
    DueRecords,
    RetainedPartition,
    count_in,
    due_notes,
    due_records,
    early_records,
    stored_segments,
)
from klog.partition.start.kept_log import unserved_end, usual_end
from klog.partition.start.log_loader import load, next_start
from klog.partition.start.metadata_behind import UsedNumbers, used_numbers
from klog.partition.start.producer_recovery import BrokerClock
from klog.partition.start.record_tally import OffsetSpan
from klog.partition.start.start_files import ReadSettings, StartOutcome, StartState
from klog.partition.start.start_reasons import RETENTION, RETENTION_EARLY, StartNote


class LoadedPartition(NamedTuple):
    """A partition directory after its load.

    *size*: bytes of its logs; *recovered*: segments and bytes that the load read to recover them.  *pieces*: the
    remaining parts of the logs, None: all of them.  *torn*: the bytes that the load leaves behind the last batch, in
    words.  *unserved*: those of them that begin with a batch beyond the log end.  *used*: its leader epoch and producer
    ids, if a metadata log assigns them.  *indexes*: the faults of its indexes.  *epochs*: its leader epochs, if a part
    of the topic may be in remote storage.  *epochs_start*: the offset at which they begin, if the checkpoint's log
    start lies above it, and the log has segments below that.
    """

    name: PartitionName
    log_dir: str
    topic_id: str | None
    outcome: StartOutcome
    size: int = 0
    recovered: tuple[int, int] = (0, 0)
    pieces: Mapping[str, tuple[FileRange, ...]] | None = None
    emptied: bool = False
    torn: str | None = None
    unserved: FileRange | None = None
    used: UsedNumbers = UsedNumbers()
    indexes: CheckedIndexes = CheckedIndexes()
    epochs: tuple[EpochEntry, ...] = ()
    epochs_start: int | None = None

    @property
    def path(self) -> str:
        """The path of the directory."""
        return os.path.join(self.log_dir, self.name.name)

    @property
    def is_cut(self) -> bool:
        """Whether recovery removes something from the logs."""
        return bool(self.outcome.cuts or self.outcome.dropped) and not self.emptied

    def read_again(self) -> Partition:
        """Return the directory; nothing of it is kept in memory between the steps."""
        return Partition(self.path, name=self.name)


class PartitionLoader:
    """Loads the partitions of one log dir.

    *cluster*: has the settings of topics; None: Kafka's defaults.
    """

    def __init__(
        self,
        root: RootFiles,
        clean: bool,
        cluster: ClusterMetadata | None,
        clock: BrokerClock,
        check: IndexCheck,
        sink: Sink | None,
    ) -> None:
        self._root, self._clean, self._cluster, self._sink = root, clean, cluster, sink
        self._settings: dict[str, ReadSettings] = {}
        self._window = Window(output=0)
        self._clock, self._check = clock, check

    def load(self, name: PartitionName) -> LoadedPartition:
        """Play the load of one directory."""
        partition = Partition(os.path.join(self._root.log_dir, name.name), self._root, name)
        if partition.unreadable is not None:
            failure = f"{partition.path}: {partition.unreadable}"
            outcome = StartOutcome(failure, reason="unreadable", offline=True)
            return LoadedPartition(name, self._root.log_dir, None, outcome)
        used, indexes = UsedNumbers(), CheckedIndexes()
        try:
            outcome, torn, unserved = self._play(partition)
            if self._cluster is not None and name.state is PartitionState.CURRENT:
                used = self._used(partition, outcome)
            if outcome.fails is None and name.state in (PartitionState.CURRENT, PartitionState.FUTURE):
                indexes = self._check.of(partition, outcome)
        except KlogError as error:
            outcome, torn, unserved = StartOutcome(str(error), reason="unreadable", offline=True), None, None
        bases = {files.base_offset: files.size for files in partition.segments}
        read = [base for base in outcome.recovered if base in bases]
        emptied = bool(outcome.dropped) and outcome.log_start == outcome.log_end and set(bases) <= set(outcome.dropped)
        return LoadedPartition(
            name,
            self._root.log_dir,
            partition.topic_id,
            outcome._replace(logs={}, files={}, epochs=None, recovered=()),
            partition.size,
            (len(read), sum(bases[base] for base in read)),
            outcome.logs if outcome.cuts or outcome.dropped else None,
            emptied,
            torn,
            unserved,
            used,
            indexes,
            epochs=_epochs(partition, outcome) if self._cluster and self._cluster.is_tiered(name.topic) else (),
            epochs_start=_start_below_checkpoint(partition, outcome),
        )

    def _used(self, partition: Partition, outcome: StartOutcome) -> UsedNumbers:
        """Return the numbers in use; of a log that does not load those of its batches, which count after its repair."""
        if outcome.fails is None:
            return used_numbers(partition, outcome.log_end, self._clock)
        with suppress(KlogError):
            return used_numbers(partition, log_end(partition), self._clock)
        return UsedNumbers()

    def _play(self, partition: Partition) -> tuple[StartOutcome, str | None, FileRange | None]:
        if partition.state is PartitionState.DELETE:
            # It is opened, and neither recovered nor emptied.  Kafka: LogLoader.load.
            settings = self._settings_of(partition.topic or "")
            return load(partition, StartState(clean=True), settings, self._clock), None, None
        usual = usual_end(partition) if self._clean else None
        if usual is not None:
            return StartOutcome(log_start=partition.log_start_offset or 0, log_end=usual.offset), None, None
        outcome = self._next_start(partition)
        if outcome.fails or outcome.cuts or outcome.dropped:
            return outcome, None, None
        unserved = unserved_end(partition, outcome)
        return outcome, _torn(partition, outcome, unserved), unserved

    def _next_start(self, partition: Partition) -> StartOutcome:
        settings = self._settings_of(partition.topic or "")
        return next_start(partition, self._clean, settings, self._clock, self._sink, window=self._window)

    def _settings_of(self, topic: str) -> ReadSettings:
        if topic not in self._settings:
            config = {} if self._cluster is None else self._cluster.topic_config(topic)
            usual = ReadSettings()
            interval, index_bytes = config.get("index.interval.bytes", ""), config.get("segment.index.bytes", "")
            self._settings[topic] = ReadSettings(
                int(interval) if interval.isdecimal() else usual.interval,
                int(index_bytes) if index_bytes.isdecimal() else usual.index_bytes,
                with_files=False,
            )
        return self._settings[topic]


def _epochs(partition: Partition, outcome: StartOutcome) -> tuple[EpochEntry, ...]:
    """Return the leader epochs after the load."""
    found = read_epochs(outcome.epochs) if outcome.epochs else partition.epochs
    if outcome.fails is not None or outcome.epochs == b"" or found is None or found.malformed is not None:
        return ()
    return tuple(one for one in epochs_in_force(found.entries) if one.start_offset < outcome.log_end)


def _start_below_checkpoint(partition: Partition, outcome: StartOutcome) -> int | None:
    """Return the start of the leader epochs if the log start that the load keeps hides records above it."""
    if outcome.fails is not None or partition.state is not PartitionState.CURRENT:
        return None
    return partition.start_by_epochs if partition.log_start_offset == outcome.log_start else None


def _torn(partition: Partition, outcome: StartOutcome, unserved: FileRange | None) -> str | None:
    """Return a description of the bytes behind the end that the load finds in a log that it does not cut.

    Behind a batch with too high offsets lower ones may follow.  A broker begins each answer about them with that batch,
    and a Java client skips offsets below the last one that it has read.  Kafka: CompletedFetch.nextFetchedRecord.
    """
    if unserved is not None:
        where = f"{unserved.name} @ {unserved.start}"
        served = "they are not served, and Java clients skip the rest"
        return f"{outcome.log_end} counts as the log end, though later batches begin at {where}: {served}"
    if outcome.highest_offset is not None:
        return None  # the recovery has read the last segment to its end
    damage = None if partition.log_end is None else partition.log_end.damage
    return None if damage is None else f"{damage}; these bytes stay, and the broker appends new batches behind them"


_BEST_RATE: Final = 1.6e9
_WORST_RATE: Final = 50e6
_LOG_SECONDS: Final = (0.0005, 0.02)
"""The time for opening a log, and for each segment of it."""
WORTH_MARKING_SECONDS: Final = 60.0
"""The upper bound from which on recovery in advance is worth a step."""


def recovery_work(loaded: Iterable[LoadedPartition]) -> RecoveryWork:
    """Return the data that recovery reads.  Log dirs are recovered in parallel, each by one thread."""
    partitions = segments = size = 0
    by_dir: dict[str, tuple[int, int]] = {}
    for one in loaded:
        count, read = one.recovered
        if not count:
            continue
        partitions, segments, size = partitions + 1, segments + count, size + read
        before = by_dir.get(one.log_dir, (0, 0))
        by_dir[one.log_dir] = before[0] + count + 1, before[1] + read
    low = max((count * _LOG_SECONDS[0] + read / _BEST_RATE for count, read in by_dir.values()), default=0.0)
    high = sum(count * _LOG_SECONDS[1] + read / _WORST_RATE for count, read in by_dir.values())
    return RecoveryWork(partitions, segments, size, (round(low, 1), round(high, 1)))


_MOST_RETAINED_BYTES: Final = 1 << 30
"""The most bytes of logs whose headers are read for it, over all partitions."""
_SERVED = (Fate.SERVES, Fate.LEADERLESS, Fate.PROMOTES)


class FirstPass:
    """Records that retention removes from partitions after a start.

    *log_dirs*: by path.  *cluster*: None if there is no metadata log.  *file*: the content of `server.properties`.
    *count_all*: count records in any number of bytes, rather than offsets beyond some.
    """

    def __init__(
        self, log_dirs: Mapping[str, LogDir], cluster: ClusterMetadata | None, file: Mapping[str, str], count_all: bool
    ) -> None:
        self._log_dirs, self._left_bytes = log_dirs, LONG_MAX if count_all else _MOST_RETAINED_BYTES
        self._configs = {path: TopicConfig(one, file=file, cluster=cluster) for path, one in log_dirs.items()}
        self._now_ms = int(time.time() * 1000)

    def of(self, rows: Iterable[PartitionFate], loaded: Mapping[str, LoadedPartition]) -> list[DueRecords]:
        """Return it for the *rows* that are served; *loaded*: by path.  Raises UnreadableError."""
        found = []
        for row in rows:
            if row.fate in _SERVED and row.log_dir is not None and row.directory is not None:
                one = self._due(row, loaded[f"{row.log_dir}/{row.directory}"])
                found += [one] if one is not None else []
        return found

    def _due(self, row: PartitionFate, loaded: LoadedPartition) -> DueRecords | None:
        log_dir, pieces = self._log_dirs[loaded.log_dir], loaded.pieces
        partition = Partition(loaded.path, log_dir.checkpoints, loaded.name)
        sizes = None
        if pieces is not None:
            sizes = {name: sum(one.end - one.start for one in ranges) for name, ranges in pieces.items()}
        segments = stored_segments(partition, log_dir.clean_shutdown is not None, sizes)
        offsets = OffsetSpan(loaded.outcome.log_start, loaded.outcome.log_end)
        found = RetainedPartition(row.topic, row.partition, partition.path, segments, offsets)
        is_exact = True

        def count(span: OffsetSpan) -> int:
            nonlocal is_exact
            self._left_bytes -= sum(one.bytes for one in segments if one.base_offset < span.end)
            is_exact = self._left_bytes >= 0
            return count_in(partition)(span) if is_exact else span.end - span.start

        due = due_records(found, self._configs[loaded.log_dir], self._now_ms, count)
        if due is None:
            return None
        is_judged = is_exact and pieces is None
        early = early_records(found, due, partition, self._now_ms) if is_judged else 0
        return due._replace(is_exact=is_exact, early=early)


def with_retention(diagnosis: Diagnosis, due: Sequence[DueRecords]) -> Diagnosis:
    """Return *diagnosis* with the removals of the first pass, and a note for each of the topics that lose most.

    Records that a wrong time index removes are lost.
    """
    notes = (StartNote(RETENTION, note) for note in due_notes(due, "records", 3))
    early = {one.path: one.early for one in due if one.early}
    rows = (_with_early(row, early.get(f"{row.log_dir}/{row.directory}", 0)) for row in diagnosis.partitions)
    return diagnosis._replace(partitions=tuple(rows), retention=tuple(due), notes=(*diagnosis.notes, *notes))


def _with_early(row: PartitionFate, records: int) -> PartitionFate:
    if not records:
        return row
    row = row._replace(lost_records=row.lost_records + records)
    why = "retention removes young records half a minute after the start: by a time index they are old"
    if row.reason not in (None, INDEX_WRONG):
        return row
    return row._replace(reason=RETENTION_EARLY, message="; ".join(filter(None, (why, row.message))))
