"""A partition as clients see it: its start and end, fetches, offsets for timestamps, transactions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import KlogError
from klog.base.overlays import remote_object
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.commands.serve.serve_options import OnceReporter, ServeOptions
from klog.commands.serve.served_transactions import PartitionTransactions
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import UNKNOWN, epoch_at
from klog.data_dir.zeroed_tail import is_preallocated_tail
from klog.formats.checkpoint import EpochEntry, epochs_in_force
from klog.formats.error_codes import ErrorCode
from klog.formats.java_integers import LONG_MAX
from klog.partition.fetch import FetchLog, FetchRequest, FetchResult, OffsetBounds, OpenFiles, UnservedRange, fetch
from klog.partition.fetch.read_slices import SliceCache
from klog.partition.lookup.offset_times import as_broker, as_late, begins_at, largest_below
from klog.partition.start.replica_choice import best_replica

if TYPE_CHECKING:
    from klog.partition.lookup import Trail
    from klog.partition.tiered.tiered_log import TieredLog
    from klog.partition.transactions.coordinator_decisions import TransactionDecision
    from klog.partition.transactions.isolation import Isolation


LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
"""The special times of ListOffsets.  Kafka: ListOffsetsRequest."""

_EDGES: Final = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
NONE: Final = (-1, -1, -1)


@dataclass(frozen=True)
class PartitionContext:
    """The common context of all partitions of a view.

    *decisions*: topic, number, producer id → the coordinator's decisions to commit that may concern it.  *is_live*: a
    broker writes here, and an unfinished last batch is then no damage.  *tiered*: the logs over two tiers, by their
    directories.
    """

    options: ServeOptions
    files: OpenFiles
    slices: SliceCache
    reporter: OnceReporter
    decisions: Callable[[str, int, int], Sequence[TransactionDecision]]
    is_live: Callable[[str], bool]
    tiered: Mapping[str, TieredLog]


class _OpenPartition(NamedTuple):
    partition: Partition
    log: FetchLog
    bounds: OffsetBounds


class PartitionView:
    """A partition, read at its first request; an empty substitute without *copies*.

    The replica with the newest leader is served, of those the longest.  Any number of threads may use it.
    """

    def __init__(self, topic: str, number: int, copies: Sequence[Partition], shared: PartitionContext) -> None:
        self.topic, self.number = topic, number
        self._copies, self._shared = copies, shared
        self._lock = threading.RLock()
        self._opened: _OpenPartition | None = None
        self._txns: PartitionTransactions | None = None
        self._largest_ms: int | None = None

    # ------------------------------------------------------------ identity

    @property
    def name(self) -> str:
        """`orders-3`."""
        return f"{self.topic}-{self.number}"

    @property
    def log_dir(self) -> str | None:
        """The log dir from which it is read; None for a substitute."""
        return None if self._chosen is None else self._chosen.checkpoints.log_dir

    @property
    def leader_epoch(self) -> int:
        """The last known leader epoch; -1 for none."""
        entries = self._epochs()
        return entries[-1].epoch if entries else UNKNOWN

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._bounds().log_start_offset

    @property
    def high_watermark(self) -> int:
        """Up to which offset consumers read."""
        return self._bounds().high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Up to which offset consumers with read_committed read."""
        self._transactions()
        return self._bounds().last_stable_offset

    @property
    def is_unreadable(self) -> bool:
        """Whether its directory cannot be listed, or no log that it has can be read: it must not look empty."""
        opened = self._open()
        if opened is None:
            return False
        has_nothing = opened.bounds.log_start_offset >= opened.bounds.log_end_offset
        return opened.partition.unreadable is not None or (opened.log.end_is_unknown and has_nothing)

    def _bounds(self) -> OffsetBounds:
        opened = self._open()
        return OffsetBounds(0, 0, 0, 0) if opened is None else opened.bounds

    # ------------------------------------------------------------ opening

    @cached_property
    def _chosen(self) -> Partition | None:
        return best_replica(self._copies, "leader-epoch") if self._copies else None

    @property
    def _tiered(self) -> TieredLog | None:
        """The log over two tiers; None without remote storage."""
        return None if self._chosen is None else self._shared.tiered.get(self._chosen.path)

    def _open(self) -> _OpenPartition | None:
        if self._opened is None and self._copies:
            with self._lock:
                if self._opened is None and self._chosen is not None:
                    self._opened = self._opening(self._chosen)
        return self._opened

    def _opening(self, partition: Partition) -> _OpenPartition:
        shared, options = self._shared, self._shared.options
        log = FetchLog(
            partition,
            shared.files,
            damaged=options.damaged,
            slices=shared.slices,
            report=lambda loss: self._lost(partition, loss),
            problem=lambda line: shared.reporter.say(f"{self.name}: {line}"),
        )
        if partition.unreadable is not None:
            shared.reporter.say(f"{self.name}: {partition.path}: {partition.unreadable}")
        start = (partition.log_start_offset or 0) if self._tiered is None else self._tiered.log_start
        log_end = max(start, log.end)
        end = log_end if options.until_ms is None else max(start, min(log_end, begins_at(partition, options.until_ms)))
        high = end
        if options.end == "checkpoint":
            high = max(start, min(end, partition.high_watermark or 0))
        elif partition.high_watermark is not None and start <= partition.high_watermark < end:
            behind = end - partition.high_watermark
            shared.reporter.say(
                f"{self.name}: served to its end {end}; the checkpointed high watermark is {behind} lower"
            )
        return _OpenPartition(partition, log, OffsetBounds(start, end, high, high))

    def _lost(self, partition: Partition, loss: UnservedRange) -> None:
        live = loss.damage.is_unfinished and self._shared.is_live(partition.checkpoints.log_dir)
        at_the_end = loss.damage.place.file.endswith(partition.segments[-1].log)
        if not (at_the_end and live) and not is_preallocated_tail(partition, loss.damage):
            self._shared.reporter.lost(self.name, loss)

    def _transactions(self) -> PartitionTransactions | None:
        """Return the state of transactions, read at the first call; the last stable offset is right from then on."""
        opened = self._open()
        if self._txns is None and opened is not None:
            with self._lock:
                if self._txns is None:
                    self._txns = self._learn(opened)
        return self._txns

    def _learn(self, opened: _OpenPartition) -> PartitionTransactions:
        options, bounds, reporter = self._shared.options, opened.bounds, self._shared.reporter
        txns = PartitionTransactions(
            opened.partition,
            bounds.high_watermark,
            opened.log.end,
            lambda producer: self._shared.decisions(self.topic, self.number, producer),
            as_of=options.until_ms is not None,
        )
        for one in txns.committed:
            reporter.say(
                f"{self.name}: the open transaction of producer {one.producer_id} counts as committed:"
                " its coordinator had decided to commit it"
            )
        hides = options.open_transactions == "hide"
        for one in txns.undecided:
            what = "hides what follows" if hides else "counts as aborted"
            where = f"from offset {one.first_offset} on"
            reporter.say(f"{self.name}: the open transaction of producer {one.producer_id} {where} {what}")
        if hides:
            stable = min((one.first_offset for one in txns.undecided), default=bounds.high_watermark)
            self._opened = opened._replace(bounds=bounds._replace(last_stable_offset=stable))
        else:
            txns.end_all(bounds.high_watermark)
        return txns

    # ------------------------------------------------------------ answers

    def fetch(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = "read_uncommitted",
        at_least_one: bool = True,
        partial: bool = False,
        to_log_end: bool = False,
    ) -> FetchResult:
        """Return batches from *offset* on, of at most *max_bytes*; the first one whole if *at_least_one*.

        *partial*: cut the last batch at the limit, as a broker does.  *to_log_end*: as for a follower or a debugging
        consumer.
        """
        committed = isolation == "read_committed" and not to_log_end
        if committed or self._shared.options.open_transactions == "hide":
            self._transactions()
        opened = self._open()
        if opened is None:
            return (
                FetchResult(ErrorCode.NONE, 0, 0, 0)
                if offset == 0
                else FetchResult(ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, -1)
            )
        bounds = opened.bounds
        if self.is_unreadable or (opened.log.end_is_unknown and offset >= bounds.log_end_offset):
            return FetchResult(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1)
        if self._shared.options.damaged != "skip" and any(first <= offset <= last for first, last in self._holes):
            return FetchResult(ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, -1)
        up_to = bounds.log_end_offset if to_log_end else bounds.high_watermark
        if committed:
            up_to = bounds.last_stable_offset
        aborted = self._aborted if committed else None
        return fetch(opened.log, bounds, FetchRequest(offset, max_bytes, up_to, partial, at_least_one, aborted))

    @cached_property
    def _holes(self) -> Sequence[tuple[int, int]]:
        """The ranges of offsets that neither tier has, both ends inclusive."""
        return () if self._tiered is None else self._tiered.holes()

    def _aborted(self, number: int) -> Sequence[tuple[int, int, int]]:
        """Return the aborted transactions for data in segment *number*; a broker shows it all without their index."""
        opened, txns = self._open(), self._transactions()
        assert opened is not None
        assert txns is not None
        segment = opened.log.segments[number]
        if segment.files.txn_index is None and segment.sound is not None and segment.sound.transactional:
            with self._lock:
                txns.rebuild(number)
        return txns.aborted

    def list_offset(self, timestamp: int, isolation: Isolation = "read_uncommitted") -> tuple[int, int, int]:
        """Return offset, timestamp (ms) and leader epoch for *timestamp*, each -1 if there is none.

        *timestamp*: one of the numbers above, or ms since the epoch: the first record with that time or a later one.
        Kafka: UnifiedLog.fetchOffsetByTimestamp, Partition.fetchOffsetForTimestamp.
        """
        if isolation == "read_committed":
            self._transactions()
        opened, bounds = self._open(), self._bounds()
        end = bounds.last_stable_offset if isolation == "read_committed" else bounds.high_watermark
        if timestamp == LATEST:
            return end, -1, self.leader_epoch
        if timestamp in _EDGES:
            edge = self._edge(timestamp)
            return NONE if edge < 0 else (edge, -1, LeaderEpochCache(self._epochs()).epoch_at(edge))
        if opened is None or not opened.log.segments or timestamp < MAX_TIMESTAMP:
            return NONE
        try:
            found = self._late(opened, timestamp)
        except KlogError as error:
            self._shared.reporter.say(f"{self.name}: {error}")
            return NONE
        if found is None or found.record is None or found.batch is None or found.record.offset >= end:
            return NONE
        return found.record.offset, found.record.timestamp, epoch_at(opened.partition, found.record.offset)

    def _edge(self, which: int) -> int:
        """Return the first or last offset of a tier, -1 for none."""
        bounds, tiered = self._bounds(), self._tiered
        if which == EARLIEST:
            return bounds.log_start_offset
        if which == EARLIEST_LOCAL:
            own = None if tiered is None else tiered.local_start
            missing = bounds.log_start_offset if tiered is None else bounds.log_end_offset
            return missing if own is None else max(own, bounds.log_start_offset)
        last = UNKNOWN if tiered is None else tiered.remote_end_offset
        return last if last < 0 or which == LATEST_TIERED else last + 1

    def _late(self, opened: _OpenPartition, timestamp: int) -> Trail | None:
        """Return the record for a time, or for the largest timestamp.  Raises KlogError."""
        partition = opened.partition
        if timestamp != MAX_TIMESTAMP:
            return (as_late if self._tiered is None else as_broker)(partition, timestamp)
        local = None  # a broker does not look for the largest timestamp in remote storage
        if self._tiered is not None:
            local = [one for one in partition.segments if remote_object(partition.file(one.log)) is None]
        if self._largest_ms is None:
            high = opened.bounds.high_watermark
            high = high if high < opened.log.end else LONG_MAX
            self._largest_ms = -1 if local == [] else largest_below(partition, high, local)
        return None if self._largest_ms < 0 else as_late(partition, self._largest_ms, local)

    def _epochs(self) -> list[EpochEntry]:
        """Return the epochs of leaders; of a moment of the past those that had written by then."""
        found = None if self._chosen is None else self._chosen.epochs
        entries = epochs_in_force(found.entries) if found is not None and not found.malformed else []
        opened = self._open() if entries and self._shared.options.until_ms is not None else None
        if opened is None or opened.bounds.log_end_offset >= opened.log.end:
            return entries
        return [entry for entry in entries if entry.start_offset < opened.bounds.log_end_offset]

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the largest known epoch up to *epoch*, and its end offset; -1, -1 if unknown.

        Kafka: LeaderEpochFileCache.endOffsetFor.
        """
        end = self._bounds().high_watermark
        known, offset = LeaderEpochCache(self._epochs()).end_offset_for(epoch, end)
        return known, min(offset, end)

    def divergence(self, epoch: int, offset: int) -> tuple[int, int] | None:
        """Return the point where a reader's history diverges from this one: an epoch and its end offset; None if it
        does not.

        The reader's last batch is of *epoch*, and it continues at *offset*, which is not below the log start.  Both are
        -1 if no epoch as new as that is known.  A log without epochs diverges from nothing.  Kafka:
        Partition.readRecords.
        """
        entries = self._epochs()
        if not entries:
            return None
        known, end = LeaderEpochCache(entries).end_offset_for(epoch, self._bounds().log_end_offset)
        return (known, end) if known < epoch or end < offset else None
