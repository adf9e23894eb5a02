"""A followed partition: its copy, its leader's marks, and its result in this run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Protocol

from klog.base.errors import DamagedError, ExitCode, UnreadableError
from klog.change.plan.draft import iso_seconds
from klog.commands.follow.copied_history import ANEW, CleaningWatch, Standing, compare, first_batch
from klog.commands.follow.copied_partition import CopiedBatch, CopiedPartition, CrcMismatchError
from klog.commands.follow.fetch_session import FetchPosition, FollowedPlace
from klog.commands.follow.follow_options import FollowOptions
from klog.commands.follow.partition_plans import needed_from
from klog.commands.follow.reactions import FetchAnswer, Look, Part, Take
from klog.data_dir.partition import Partition
from klog.partition.retention.due_records import StoredSegment
from klog.partition.retention.first_pass import RetentionLimits, due_segments


def retention_explains(copy: CopiedPartition, limits: RetentionLimits | None) -> bool:
    """Whether a broker with *limits* would delete all segments of the copy that are below its log start.

    A copy's segments end elsewhere than the leader's.  The ones below the log start, however, have only records that
    the leader has deleted, and the others have at least as many bytes as the leader has left.  None: unknown limits.
    """
    partition = Partition(copy.path)
    kept = needed_from(partition, copy.log_start)
    below = sum(files.base_offset < kept for files in partition.segments)
    if limits is None or not below:
        return not below
    # The last one has no whole time index while it is written.
    last = partition.segments[-1]
    segments = [StoredSegment(partition, files, files.size, files is last) for files in partition.segments]
    try:
        return below <= len(due_segments(segments, limits, 0, time.time_ns() // 1_000_000))
    except UnreadableError:
        return False


CLEANED: Final = (
    "deletions and ends of transactions may be missing, so deleted keys may exist in the copy and aborted records"
    f" may count as committed; {ANEW}"
)


class FollowReporter(Protocol):
    """Receives messages, on any thread."""

    def note(self, message: str) -> None:
        """Report a line of information."""

    def error(self, message: str) -> None:
        """Report a line about an error."""

    def trace(self, line: str) -> None:
        """Take a line about an event of the protocol."""

    def advance(self, size: int, lag: int) -> None:
        """Hear that *size* bytes were copied, and that a copy is now *lag* offsets further than before."""


@dataclass
class Outage:
    """Why a partition cannot be fetched, since when, and how often it was tried.  Times are monotonic seconds."""

    why: str
    since: float
    tries: int = 0


@dataclass(eq=False)
class FollowedPartition:
    """A partition, which belongs to one thread at a time; use its *copy* under *lock*, as all copies.

    *leader*, *leader_epoch*: from the metadata, -1 without one.  *high_watermark*, *log_start*: the leader's latest, -1
    before its first answer.  *reached*: the copy had everything that the leader had when it answered.  *first_offset*:
    where this run began.  *missed*, *cut*: first and last offsets; *backups*: the places of cut or replaced data.
    *error*: the reason why it is no longer followed.  *bad_answers*: the number of successive answers with a batch
    that cannot be appended.  *is_new*: nothing was ever copied; the copy begins at the leader's log start, and nothing
    was missed.  *largest_batch*: the largest size of a batch of its topic, 0 if unknown.  *retention*: the leader's
    retention settings, None if unknown.  *cleaning*: see CleaningWatch.  *unseen*: the last batch of the copy, until
    the leader is known to have it; *is_trusted*: the leader cannot have it any more, and the next comparison omits it.
    *skipped_to*: the leader's log start at which the copy continues behind a gap, -1 for none.  *parted*: the cuts in
    this run, each with the leader epoch of the metadata at that time.
    """

    place: FollowedPlace
    copy: CopiedPartition
    lock: Lock
    first_offset: int
    is_new: bool = False
    leader: int = -1
    leader_epoch: int = -1
    high_watermark: int = -1
    log_start: int = -1
    reached: bool = False
    copied_bytes: int = 0
    copied_batches: int = 0
    missed: list[tuple[int, int]] = field(default_factory=list)
    cut: list[tuple[int, int]] = field(default_factory=list)
    backups: list[str] = field(default_factory=list)
    error: str | None = None
    exit_code: ExitCode = ExitCode.CLEAN
    bad_answers: int = 0
    outage: Outage | None = None
    largest_batch: int = 0
    retention: RetentionLimits | None = None
    cleaning: CleaningWatch = field(default_factory=CleaningWatch)
    unseen: CopiedBatch | None = None
    is_trusted: bool = False
    skipped_to: int = -1
    parted: set[tuple[int, int]] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The name of its directory."""
        return f"{self.place.topic}-{self.place.number}"

    def look_again(self) -> None:
        """Believe the end of the copy only when the leader has been seen to have its last batch.

        Raises UnreadableError.
        """
        with self.lock:
            self.unseen = None if self.is_trusted else self.copy.last_batch()
        self.is_trusted = False

    def meet(self, got: FetchAnswer) -> tuple[Take | Look | Part | None, FetchAnswer]:
        """Compare the copy's last batch with its leader's answer; return the decision, and the rest of the answer.

        None: the answer decides nothing.  Raises DamagedError for an impossible answer, UnreadableError.
        """
        mine = self.unseen
        if mine is None:
            return Take(), got
        if not len(got.records):
            self.high_watermark = got.high_watermark
            return (Look() if 0 <= got.high_watermark <= mine.facts.last_offset else None), got
        standing = compare(mine, got.records)
        if standing is Standing.OTHER:
            return Part(), got
        self.unseen = None
        first = first_batch(got.records) if standing is Standing.SAME else None
        return Take(), got._replace(records=got.records[first.size if first is not None else 0 :])

    def position(self) -> FetchPosition:
        """Return the position to fetch from: its last record, until the leader is known to have that batch.

        Behind a gap there is no preceding epoch.  Kafka: UnifiedLog.truncateFullyAndStartAt, which clears the epochs.
        """
        if self.unseen is not None:
            last = self.unseen.facts
            return FetchPosition(self.leader_epoch, last.last_offset, last.leader_epoch)
        epoch = self.copy.latest_epoch if self.copy.end != self.skipped_to else -1
        return FetchPosition(self.leader_epoch, self.copy.end, epoch)

    def take(self, got: FetchAnswer, options: FollowOptions, reporter: FollowReporter) -> None:
        """Append the records of a leader's answer, and apply its marks.

        Raises DamagedError for a batch that cannot be appended; those before it have been.  OSError.
        """
        with self.lock:
            self._take(got, options, reporter)

    def _take(self, got: FetchAnswer, options: FollowOptions, reporter: FollowReporter) -> None:
        behind, end = self.lag, self.copy.end
        self.note_caught_up()
        size, batches = self.copied_bytes, self.copied_batches
        try:
            if len(got.records):
                self._append(got.records)
        finally:
            if self.copy.end > end:
                self.bad_answers = 0
            size, batches = self.copied_bytes - size, self.copied_batches - batches
            if options.trace and batches:
                reporter.trace(f"{self.name} append bytes={size} batches={batches} LEO={self.copy.end}")
            self.high_watermark, self.log_start = got.high_watermark, got.log_start
            reporter.advance(size, self.lag - behind)
        self.outage = None
        if self.copy.end > end and self.cleaning.watch(got.records, end, time.time_ns() // 1_000_000):
            self._tell_cleaned(end, reporter)
        self._follow_marks(options.prune, reporter)
        if options.trace:
            marks = f"HW={self.copy.high_watermark} leader HW={self.high_watermark} start={self.copy.log_start}"
            reporter.trace(f"{self.name} {marks}")

    def note_caught_up(self) -> None:
        """Note whether it has reached the offsets in its leader's answers so far."""
        self.cleaning.note(self.copy.end >= self.high_watermark >= 0 and self.unseen is None)

    def _tell_cleaned(self, end: int, reporter: FollowReporter) -> None:
        watch = self.cleaning
        since = (
            "was never caught up"
            if not watch.caught_up_ms
            else f"had last caught up at {iso_seconds(watch.caught_up_ms)}"
        )
        reporter.error(
            f"{self.name}: the leader has cleaned offsets from {end} on, and the copy {since}, longer ago than"
            f" delete.retention.ms ({watch.retention_ms}): {CLEANED}"
        )
        self.exit_code |= ExitCode.PROBLEMS_LEFT

    @property
    def lag(self) -> int:
        """How many offsets it is behind the leader's high watermark; 0 if that is unknown."""
        return max(0, self.high_watermark - self.copy.end)

    def keep(self, backup: str | None) -> None:
        """Take note of a backup."""
        if backup is not None:
            self.backups.append(backup)

    def begin_at(self, offset: int) -> None:
        """Begin an empty copy at the start of the leader's log.  Raises OSError."""
        with self.lock:
            self.copy.skip_to(offset)
            self.first_offset, self.is_new = self.copy.end, False

    def _append(self, records: memoryview) -> None:
        batches, taken = self.copy.batches, 0
        try:
            taken = self.copy.append(records)
        except CrcMismatchError as error:
            taken = error.taken
            raise
        finally:
            self.copied_bytes += taken
            self.copied_batches += self.copy.batches - batches
        if not taken:
            raise DamagedError(
                f"{self.name}: {len(records)} bytes at offset {self.copy.end}, which are no complete batch"
            )

    def _follow_marks(self, prune: bool, reporter: FollowReporter) -> None:
        """Move the copy's high watermark and log start to the leader's, as far as the copy reaches."""
        self.copy.set_high_watermark(min(self.high_watermark, self.copy.end))
        if self.copy.log_start < self.log_start <= self.copy.end:
            self.copy.move_start(self.log_start)
            if prune:
                self._prune(reporter)

    def _prune(self, reporter: FollowReporter) -> None:
        """Remove segments below the log start; those that retention does not explain are moved to the backup.

        They may be the last copies: a leader that has lost its first segments answers as after DeleteRecords.
        """
        if retention_explains(self.copy, self.retention):
            self.copy.prune()
            return
        first, backup = self.first_stored, self.copy.put_aside()
        if backup is not None:
            self.keep(backup)
            why = "retention does not explain this; DeleteRecords or lost segments of the leader would"
            gone = f"segments with offsets {first}–{self.first_stored - 1} are in {backup}"
            reporter.note(f"{self.name}: the leader's log starts at {self.copy.log_start} now; {why}: {gone}")

    @property
    def first_stored(self) -> int:
        """The base offset of the copy's first segment."""
        return min((files.base_offset for files in Partition(self.copy.path).segments), default=0)
