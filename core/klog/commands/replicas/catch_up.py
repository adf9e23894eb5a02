"""The changes that make one broker's copy of a partition equal to another's.

At every moment the copy is a prefix of its old log or of the new one.  The order is: checkpoints with lower offsets,
the cut, from the last segment back, the new segments upwards, checkpoints with higher offsets.  Kafka: the changes that
AbstractFetcherThread makes to a follower, without a leader.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from klog.change.plan.draft import Draft
from klog.change.plan.model import Loss
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.commands.replicas import source_log
from klog.commands.replicas.batch_comparison import ComparedCopy, Comparison
from klog.commands.replicas.copy_reader import keeps_bad_batch
from klog.commands.replicas.copy_state import CopyState
from klog.commands.replicas.source_log import SegmentCopy, SourceProducers
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry, write_epochs
from klog.formats.names import SEGMENT_KINDS, FileKind, file_name
from klog.formats.producer_snapshot import write_snapshot
from klog.kernel import crc32c
from klog.log.index import txn_index_content
from klog.partition import truncate
from klog.partition.start.record_tally import EVERYTHING, OffsetSpan, tally_records

Offsets = dict[FileKind, int | None]


class CatchUp(NamedTuple):
    """The changes of one copy.

    *cut_to*: its batches from this offset on are deleted, those of the source are added.  *lower*, *final*: values in
    the checkpoints of its log dir, before all other changes and after them.  *segments*: the new ones.  *is_replaced*:
    the whole old log is deleted.
    """

    node: int
    directory: str
    cut_to: int
    records_lost: int
    records_added: int
    bytes_copied: int
    lower: Offsets
    final: Offsets
    losses: tuple[Loss, ...]
    segments: tuple[SegmentCopy, ...] = ()
    is_replaced: bool = False


class CatchUpTarget(NamedTuple):
    """The copy that is to change.  *state*: None if its log dir has no directory yet."""

    node: int
    partition: Partition
    state: CopyState | None


class CatchUpSource:
    """The copy that is kept, *state*; None: an empty log, as of a broker that has no directory."""

    def __init__(self, topic: str, number: int, state: CopyState | None) -> None:
        self.topic, self.number, self.state = topic, number, state
        self.partition = state.partition if state is not None else None
        self.log_start = state.log_start if state is not None else 0
        self.log_end = state.log_end if state is not None else 0


class CatchUpPlan:
    """Drafts the changes of one target.

    *from_offset*: the divergence of the two, None: at the first batch that differs.  *shared_end*: below it they are
    known to be alike, and are not read again.  A target that has lost its first records becomes the source as a whole,
    and so does one with a bad batch that a cut would leave, as below the source's log start; but records that were
    deleted from it do not return, also if it is empty.  If the source has lost its first records, those of the target
    are removed as well, and are a loss.
    """

    def __init__(
        self,
        source: CatchUpSource,
        target: CatchUpTarget,
        settings: truncate.TruncateOptions,
        from_offset: int | None = None,
        shared_end: int = 0,
    ) -> None:
        self._source, self._target, self._settings = source, target, settings
        self._first: str | None = None
        state = target.state
        self._start = state.log_start if state is not None else 0
        self._end = state.log_end if state is not None else 0
        both = _compared(source.state, -1, shared_end), _compared(state, target.node, shared_end)
        pair = Comparison(both).run()
        self._part = pair.first_difference(-1, target.node) if from_offset is None else from_offset
        self._keeps_bad = False
        self._head = self._lost_head()
        self.records_lost = pair.facts[-1].lost.count + (self._head.records or 0 if self._head is not None else 0)
        self._gets_head = state is not None and state.lost_head is not None and source.log_start < state.log_start
        self.records_added = pair.facts[target.node].lost.count
        if self._gets_head and source.partition is not None:
            span = OffsetSpan(source.log_start, self._start)
            self.records_added += tally_records(source.partition, span, EVERYTHING).records
        is_empty = not state or not target.partition.segments
        # A log that shares nothing is replaced as a whole, below its start, too.
        is_source = is_empty or self._gets_head or (self._part <= self._start and not self.is_equal)
        self._keeps_bad = self._has_bad_batch()
        self._is_replaced = is_source or self._keeps_bad
        keeps_start = not is_source or (self._start == self._end and not self._gets_head)
        self._new_start = max(source.log_start, self._start) if keeps_start else source.log_start
        if self._is_replaced:
            self._part = self._new_start

    def _has_bad_batch(self) -> bool:
        state = self._target.state
        if state is None or state.facts is None or not state.facts.bad_batches:
            return False
        return keeps_bad_batch(state.partition, state.kept, self._part)

    def _lost_head(self) -> Loss | None:
        """Return the first records of the target that the source has lost: above them its log will start."""
        state, kept = self._target.state, self._source.state
        if state is None or kept is None or kept.lost_head is None or self._start >= self._source.log_start:
            return None
        span = OffsetSpan(max(kept.expected_from, self._start), self._source.log_start)
        found = tally_records(state.partition, span, OffsetSpan(self._source.log_start))
        if not found.records:
            return None
        first, last = span.start, span.end - 1
        size = found.lost_bytes
        return Loss(self._source.topic, self._source.number, first, last, found.records, size, "log start raised")

    @property
    def is_equal(self) -> bool:
        """Whether there is nothing to do."""
        state, kept = self._target.state, self._source.state
        if state is None or self._head is not None or self._gets_head or self._keeps_bad:
            return False
        if not self._part == self._end == self._source.log_end:
            return False
        return kept is None or _epochs_from(state, kept.log_start) == _epochs_from(kept, state.log_start)

    def draft(self, draft: Draft) -> CatchUp:
        """Add the changes to *draft*.  Raises KlogError if this copy cannot be cut; OSError (staging)."""
        self._draft = draft
        source = self._source.partition
        segments: list[SegmentCopy] = []
        if source is not None and self._part < self._source.log_end:
            segments = source_log.segments_from(
                source, self._part, whole=self._is_replaced, interval=self._settings.interval
            )
        losses = self._replace() if self._is_replaced else self._cut(segments)
        self._metadata_first()
        self._epochs()
        producers = self._producers(segments)
        for segment in segments:
            self._put_segment(segment, producers)
        for kind in SEGMENT_KINDS[:3] if not segments and self._is_replaced else ():
            draft.put(self._file(file_name(self._new_start, kind)), [b""], like=self._like())
        for offset, state in producers.states.items():
            file = self._file(file_name(offset, FileKind.SNAPSHOT))
            if draft.state(file) is None:
                draft.put(file, [write_snapshot(state, crc32c)], like=self._like())
        return self._result(segments, losses)

    def _file(self, name: str) -> str:
        return f"{self._target.partition.directory}/{name}"

    def _like(self) -> str | None:
        """Return the file whose mode, owner and time new ones get: a log, in a new directory the first file."""
        segments = self._target.partition.segments
        return self._file(segments[-1].log) if segments else self._first

    def _put(self, name: str, content: Iterable[bytes], source: str) -> None:
        """Put a file with the modification time of *source*."""
        assert self._source.partition is not None
        time_ns = os.stat(self._source.partition.file(source)).st_mtime_ns
        self._draft.put(self._file(name), content, like=self._like(), modified_ns=time_ns)
        self._first = self._first or self._file(name)

    # the cut

    def _replace(self) -> tuple[Loss, ...]:
        """Remove the whole log, from the last segment back."""
        partition = self._target.partition
        for files in reversed(partition.segments):
            for kind in SEGMENT_KINDS:
                self._remove(file_name(files.base_offset, kind))
        for file in reversed(partition.snapshots):
            self._remove(file.name)
        size = sum(files.size for files in partition.segments)
        return self._losses(size)

    def _cut(self, segments: list[SegmentCopy]) -> tuple[Loss, ...]:
        partition, state = self._target.partition, self._target.state
        assert state is not None
        end, size = self._end, 0
        if self._ends_at_cut(state):
            truncate.check_finished(partition)
        else:
            found = truncate.cut(partition, self._part, self._settings, self._draft)
            end, size = found.log_end, sum(loss.bytes for loss in found.losses)
        last = [files for files in partition.segments if files.base_offset <= self._part][-1]
        if segments and end == last.base_offset and segments[0].base_offset != last.base_offset:
            for kind in SEGMENT_KINDS:  # emptied, and no longer the last one
                self._remove(file_name(last.base_offset, kind))
        elif not self._draft.actions and not state.is_clean:
            self._rebuild_indexes(partition, last.base_offset)
        return self._losses(size)

    def _ends_at_cut(self, state: CopyState) -> bool:
        """Whether nothing has to be cut off, as far as the comparison of all copies has shown."""
        if self._part != self._end or state.facts is None or state.facts.bad_batches:
            return False
        end = state.partition.log_end
        return end is not None and end.damage is None and end.offset == self._end

    def _losses(self, size: int) -> tuple[Loss, ...]:
        source = self._source
        head = () if self._head is None else (self._head,)
        records = self.records_lost - sum(one.records or 0 for one in head)
        if not records:
            return head
        first = min(self._part, self._end)
        return (*head, Loss(source.topic, source.number, first, self._end - 1, records, size, "replaced"))

    def _remove(self, name: str) -> None:
        self._draft.remove(self._file(name))

    def _rebuild_indexes(self, partition: Partition, base_offset: int) -> None:
        """Rebuild the indexes of the former active segment: at an unclean stop they are preallocated, and too long."""
        log = next(files.log for files in partition.segments if files.base_offset == base_offset)
        index, time_index = (self._file(file_name(base_offset, kind)) for kind in SEGMENT_KINDS[1:3])
        for one in source_log.segments_from(partition, base_offset, whole=True, interval=self._settings.interval):
            if one.file == log:
                self._draft.put(index, [one.offset_index], like=self._like())
                self._draft.put(time_index, [one.time_index], like=self._like())

    # the new segments

    def _metadata_first(self) -> None:
        """Write the topic id of a new directory first."""
        source, target = self._source.partition, self._target.partition
        name = FileKind.PARTITION_METADATA.value
        if source is None or any(file.name == name for file in target.files):
            return
        if any(file.name == name for file in source.files):
            with open(source.file(name), "rb") as file:
                self._put(name, [file.read()], name)

    def _epochs(self) -> None:
        """Put the source's epochs from the new log start on; a broker drops those from the log end on when it loads."""
        cache = LeaderEpochCache(self._source.state.epochs.entries if self._source.state is not None else ())
        cache.truncate_start(self._new_start)
        name = FileKind.LEADER_EPOCHS.value
        known = any(file.name == name for file in self._target.partition.files)
        if cache.entries or known:
            self._draft.put(self._file(name), [write_epochs(cache.entries)], like=self._like())

    def _producers(self, segments: list[SegmentCopy]) -> SourceProducers:
        source = self._source.partition
        bases = {segment.base_offset for segment in segments}
        offsets = sorted(offset for offset in {*bases, self._source.log_end} if offset > self._source.log_start)
        if source is None or not segments or not offsets:
            return SourceProducers({}, ())
        # Below the cut the target's log is the source's: so are the snapshots of it.
        alike = None if self._is_replaced else self._target.partition
        return source_log.producers_at(source, offsets, segments[0].base_offset, alike)

    def _put_segment(self, segment: SegmentCopy, producers: SourceProducers) -> None:
        source = self._source.partition
        assert source is not None
        log, index, time_index, txns = (self._file(file_name(segment.base_offset, kind)) for kind in SEGMENT_KINDS)
        self._put(file_name(segment.base_offset, FileKind.LOG), source_log.content(source, segment), segment.file)
        self._draft.put(index, [segment.offset_index], like=log)
        self._draft.put(time_index, [segment.time_index], like=log)
        behind = [files.base_offset for files in source.segments if files.base_offset > segment.base_offset]
        entries = [
            entry
            for entry in producers.aborted
            if segment.base_offset <= entry.last_offset < min(behind, default=self._source.log_end)
        ]
        if entries or self._draft.state(txns) is not None:
            self._draft.put(txns, [txn_index_content(entries)], like=log)

    # the meaning of that

    def _result(self, segments: list[SegmentCopy], losses: tuple[Loss, ...]) -> CatchUp:
        lower = self._lowered()
        return CatchUp(
            self._target.node,
            self._target.partition.path,
            self._part,
            self.records_lost,
            self.records_added,
            sum(segment.end - segment.start for segment in segments),
            lower,
            {**lower, **self._raised(segments)},
            losses,
            tuple(segments),
            self._is_replaced,
        )

    def _lowered(self) -> Offsets:
        if self._target.state is None:
            return {}
        partition, source, cut = self._target.partition, self._source, self._part
        found: Offsets = {}
        if (partition.recovery_point or 0) > cut:
            found[FileKind.RECOVERY_POINTS] = cut
        if (partition.high_watermark or 0) > cut:
            found[FileKind.HIGH_WATERMARKS] = cut
        theirs = source.partition.cleaner_offset if source.partition is not None else None
        if partition.cleaner_offset is not None and (theirs is None or theirs < partition.cleaner_offset):
            found[FileKind.CLEANER_OFFSETS] = theirs
        if self._start > self._new_start:
            found[FileKind.LOG_STARTS] = self._new_start
        return found

    def _raised(self, segments: list[SegmentCopy]) -> Offsets:
        source, partition = self._source, self._target.partition
        found: Offsets = {}
        theirs = source.partition.high_watermark if source.partition is not None else 0
        start = self._new_start
        if theirs is not None:
            found[FileKind.HIGH_WATERMARKS] = max(min(theirs, source.log_end), start)
        first = partition.segments[0].base_offset if not self._is_replaced else start
        if self._is_replaced and segments:
            first = segments[0].base_offset
        if start > first:
            found[FileKind.LOG_STARTS] = start
        elif self._is_replaced and self._start and start != partition.log_start_checkpoint:
            found[FileKind.LOG_STARTS] = None
        return found


def shared_end(source: CatchUpSource, target: CatchUpTarget) -> int:
    """Return the offset below which the comparison of all copies found source and target equal.

    It does not include bad batches that were replaced in the source since.
    """
    if source.state is None or target.state is None or source.state.facts is None or source.state.facts.bad_batches:
        return 0
    return target.state.shared_end.get(source.state.node, 0)


def _compared(state: CopyState | None, node: int, shared_end: int) -> ComparedCopy:
    """Return the input of a comparison behind *shared_end* for a copy."""
    if state is None:
        return ComparedCopy(node, None, 0, 0)
    epoch = state.epoch_below(shared_end)
    return ComparedCopy(node, state.partition, state.log_start, state.log_end, shared_end, epoch, state.kept)


def _epochs_from(copy: CopyState, log_start: int) -> list[EpochEntry]:
    """Return the epochs of a copy as if its log started where both have begun."""
    cache = LeaderEpochCache(copy.epochs.entries)
    cache.truncate_start(max(copy.log_start, log_start))
    cache.truncate_end(copy.log_end)
    return cache.entries
