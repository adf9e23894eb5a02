"""Truncates a log at an offset, as a follower does, and makes all files agree.

Kafka: UnifiedLog.truncateTo, truncateFullyAndStartAt.  A running broker remembers the offset of the cut; a starting one
computes the end from the remaining batches, and the log ends behind its last whole batch.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from shlex import quote
from typing import NamedTuple

from klog.base.errors import DamagedError, KlogError, UsageError
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import Content, FileRange, StoredContent, txn_entries
from klog.change.partition_plan.desired_files import DesiredFiles, count_records, cut_loss, draft_changes, whole_losses
from klog.change.plan.draft import Draft
from klog.change.plan.model import NOTHING, Amount, Loss
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.checkpoint import epochs_in_force, write_epochs
from klog.formats.damage import Damage
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import CLUSTER_METADATA, SEGMENT_KINDS, FileKind, Stage, file_name, parse_file
from klog.formats.producer_snapshot import write_snapshot
from klog.kernel import IndexBuilder, SegmentSurvey, Window, ascending_run, crc32c
from klog.log.index import txn_index_content
from klog.log.records import intact_runs
from klog.log.segment import Segment
from klog.partition.lookup import Lookup, TrailDetail


class TruncateOptions(NamedTuple):
    """*interval*: index.interval.bytes.  *now_ms*, *expiration_ms*: producers idle for so long are forgotten."""

    now_ms: int
    expiration_ms: int
    interval: int = 4096


class TruncateTarget(NamedTuple):
    """The target of a truncation: an offset, a time (ms), or with neither the start of the log."""

    offset: int | None = None
    timestamp_ms: int | None = None

    def offset_in(self, partition: Partition) -> int:
        """Return the first offset to drop: for a time, that of the first record at or after it.

        Raises DamagedError if damage keeps a time from being found, UnreadableError.
        """
        if self.offset is not None:
            return self.offset
        if self.timestamp_ms is None:
            return partition.log_start_offset or 0
        with Lookup(partition, wanted=TrailDetail()) as lookup:
            trail = lookup.timestamp(self.timestamp_ms)
        if trail.problems:
            raise DamagedError(f"{trail.problems[0]}; first: klog recover {quote(partition.path)}")
        if trail.offset is None:
            # All records are earlier and are kept, as after a first run.
            return partition.log_end.offset if partition.log_end is not None else 0
        return trail.offset


class Truncation(NamedTuple):
    """The result of a truncation.

    *to_offset*: the first truncated offset.  *log_end*: the next offset after the truncation.  *inside*: the first and
    the last offset of the batch with *to_offset*, which is dropped whole, None if the cut is between batches.
    *offsets*: new values in the log dir's checkpoints.
    """

    to_offset: int
    log_end: int
    inside: tuple[int, int] | None
    losses: tuple[Loss, ...]
    kept: Amount
    offsets: dict[FileKind, int | None]


class _Place(NamedTuple):
    """The cut in a segment: the remaining bytes, with the batches before it in *builder* and *survey*."""

    position: int
    builder: IndexBuilder
    survey: SegmentSurvey
    inside: tuple[int, int] | None


def plan(partition: Partition, to_offset: int, settings: TruncateOptions, draft: Draft) -> Truncation:
    """Add to *draft* the changes after which no offset from *to_offset* on is left.

    Raises UsageError for an offset below the log's start, KlogError for the metadata log, DamagedError,
    UnreadableError; OSError (staging).
    """
    if partition.topic == CLUSTER_METADATA:
        raise KlogError(f"{partition.path}: the metadata log is not cut; a node without it gets it from the others")
    return cut(partition, to_offset, settings, draft)


def cut(partition: Partition, to_offset: int, settings: TruncateOptions, draft: Draft) -> Truncation:
    """Do the same as `plan`, for any log.  Raises as `plan` does."""
    partition.check_listed()
    segments, start = partition.segments, partition.log_start_offset or 0
    if not segments:
        raise UsageError(f"{partition.path}: there is no segment")
    check_finished(partition)
    if to_offset < start:
        raise UsageError(f"--to-offset {to_offset}: the log starts at {start}")
    return _Cut(partition, to_offset, settings).plan(draft, start)


def check_finished(partition: Partition) -> None:
    """Raise DamagedError if an operation on *partition* was interrupted."""
    if any(file.stage is not Stage.IN_USE for file in partition.log_files):
        raise DamagedError(
            f"{partition.path}: it has an interrupted operation; first: klog recover {quote(partition.path)}"
        )


class _Cut:
    def __init__(self, partition: Partition, to_offset: int, settings: TruncateOptions) -> None:
        self._partition, self._to_offset, self._settings = partition, to_offset, settings
        self._segments = partition.segments
        bases = [files.base_offset for files in self._segments]
        # A segment that begins at the offset stays, emptied.
        self._at = bisect_right(bases, to_offset) - 1
        self._logs: dict[str, tuple[FileRange, ...]] = {}
        self._files: dict[str, Content] = {}

    def plan(self, draft: Draft, start: int) -> Truncation:
        files = self._segments[self._at]
        place = self._place(files)
        end = place.builder.last_offset + 1 if place.builder.batches else files.base_offset
        later = self._segments[self._at + 1 :]
        if place.position == files.size and not later:
            self._logs = {other.log: (FileRange(other.log, 0, other.size),) for other in self._segments}
            return Truncation(self._to_offset, end, None, (), self._kept(files, place), {})
        if end < start:
            end = self._start_again(start)
        else:
            self._keep(files, place, end)
        draft_changes(draft, self._partition, DesiredFiles(self._logs, self._files, self._epochs(end)))
        losses = [] if place.position == files.size else [self._loss(files, place)]
        losses += whole_losses(self._partition, [other.log for other in later], "truncated")
        return Truncation(
            self._to_offset, end, place.inside, tuple(losses), self._kept(files, place), self._offsets(end)
        )

    def _place(self, files: SegmentFiles) -> _Place:
        """Return where to cut a segment: before the first batch that reaches the offset."""
        path = self._partition.file(files.log)
        segment, window = Segment(path), Window(output=0)
        builder = IndexBuilder(files.base_offset, self._settings.interval, 2**31 - 1)
        survey = SegmentSurvey(files.base_offset, LONG_MAX, b"", b"")
        with ReadOnlyFile(path) as source:
            reader = segment.reader(source)
            while piece := reader.next(window):
                for run in intact_runs(window, path, segment.span):
                    if run.damage is not None:
                        return self._at_damage(run.damage, builder, survey)
                    reaching = min(max(run.window.first_reaching(self._to_offset, run.first), run.first), run.end)
                    last = builder.last_offset if builder.batches else files.base_offset - 1
                    # The builder alone notices only faults that prevent an index entry.
                    in_order, _ = ascending_run(
                        run.window, run.first, reaching, last, -1, files.base_offset + 2**31 - 1
                    )
                    if in_order < reaching or builder.walk(run.window, run.first, reaching) < reaching:
                        raise DamagedError(f"{path}: batches are not in order; first: {self._recover}")
                    survey.walk(run.window, run.first, reaching)
                    if reaching < run.end:
                        batch = run.window.batch(reaching)
                        builder.finish()
                        is_inside = batch.base_offset < self._to_offset
                        inside = (batch.base_offset, batch.last_offset) if is_inside else None
                        return _Place(batch.position, builder, survey, inside)
                if piece.damage is not None:
                    return self._at_damage(piece.damage, builder, survey)
            builder.finish()
            return _Place(source.size, builder, survey, None)

    def _at_damage(self, damage: Damage, builder: IndexBuilder, survey: SegmentSurvey) -> _Place:
        """Cut at damage, if nothing that is to stay follows it."""
        expected = builder.last_offset + 1 if builder.batches else builder.base
        if expected < self._to_offset:
            raise DamagedError(
                f"{damage.place}: {damage.detail}; cut there (--to-offset {expected}), or first: {self._recover}"
            )
        builder.finish()
        return _Place(damage.place.position or 0, builder, survey, None)

    @property
    def _recover(self) -> str:
        return f"klog recover {quote(self._partition.path)}"

    def _start_again(self, start: int) -> int:
        """Leave only an empty segment at the start of the log, which is inside the dropped range."""
        self._logs[file_name(start, FileKind.LOG)] = ()
        for kind in (FileKind.INDEX, FileKind.TIME_INDEX):
            self._files[file_name(start, kind)] = b""
        return start

    def _keep(self, files: SegmentFiles, place: _Place, end: int) -> None:
        """Keep the part before the cut."""
        partition = self._partition
        sizes = {file.name: os.path.getsize(partition.file(file.name)) for file in partition.log_files}
        there = {name: StoredContent(name, size) for name, size in sizes.items()}
        logs = {parse_file(other.log).offset for other in self._segments[: self._at]}
        for name, stored in there.items():
            file = parse_file(name)
            if file.kind is FileKind.LOG and file.offset in logs:
                self._logs[name] = (FileRange(name, 0, stored.size),)
            elif (file.kind in SEGMENT_KINDS and file.offset in logs) or (
                file.kind is FileKind.SNAPSHOT and file.offset is not None and file.offset <= end
            ):
                self._files[name] = stored
        log, index, time_index, txns = (file_name(files.base_offset, kind) for kind in SEGMENT_KINDS)
        self._logs[log] = (FileRange(files.log, 0, place.position),)
        self._files[index], self._files[time_index] = place.builder.offset_entries, place.builder.time_entries
        if txns in there:
            entries = txn_entries(self._partition.path, there[txns])
            before = [entry for entry in entries if entry.last_offset < end]
            self._files[txns] = txn_index_content(before)
        self._snapshot(end)

    def _snapshot(self, end: int) -> None:
        """Ensure that the producers' state at the new end exists, as after a clean stop."""
        name = file_name(end, FileKind.SNAPSHOT)
        if end <= (self._partition.log_start_offset or 0):
            return
        from klog.partition.transactions.producer_replay import nearest_state, replay

        state = nearest_state(self._partition, end)
        if state.end == end:
            return
        state.expire(self._settings.now_ms, self._settings.expiration_ms)
        for _ in replay(state, self._partition.path, self._segments, end=end):
            pass
        self._files[name] = write_snapshot(state.snapshot(), crc32c)

    def _epochs(self, end: int) -> bytes | None:
        found = self._partition.epochs
        if found is None:
            return None
        if found.malformed is not None:
            where = f"{self._partition.path}: leader-epoch-checkpoint, {found.malformed}"
            raise DamagedError(f"{where}; first: {self._recover}")
        kept = [entry for entry in epochs_in_force(found.entries) if entry.start_offset < end]
        return None if len(kept) == len(found.entries) else write_epochs(kept)

    # the meaning of that

    def _loss(self, files: SegmentFiles, place: _Place) -> Loss:
        expected = place.builder.last_offset + 1 if place.builder.batches else files.base_offset
        found = count_records(self._partition.file(files.log), place.position)
        return cut_loss(self._partition, files.log, place.position, expected, "truncated", found)

    def _kept(self, cut: SegmentFiles, place: _Place) -> Amount:
        """Return the size of the remaining part, without records in segments before the cut, which are not read."""
        size = sum(end - start for ranges in self._logs.values() for _, start, end in ranges)
        if not size:
            return NOTHING
        is_alone = all(not ranges or name == cut.log for name, ranges in self._logs.items())
        return Amount(place.survey.records + place.survey.legacy if is_alone else None, size)

    def _offsets(self, end: int) -> dict[FileKind, int | None]:
        partition = self._partition
        active = max(parse_file(name).offset or 0 for name in self._logs)
        limits = (
            (FileKind.RECOVERY_POINTS, partition.recovery_point, end),
            (FileKind.HIGH_WATERMARKS, partition.high_watermark, end),
            (FileKind.CLEANER_OFFSETS, partition.cleaner_offset, max(active, partition.log_start_offset or 0)),
        )
        return {kind: limit for kind, said, limit in limits if said is not None and said > limit}
