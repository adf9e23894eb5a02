"""The repair of a last replica: keeps every intact batch, before and after damage.

The cut parts are saved beside the originals.  Batches whose offsets do not fit their segment are moved into segments of
their own.  The indexes, the transactions and the producers are built from the remaining batches; from the old files two
facts are kept that only they contain: that data was aborted whose marker is lost, and the state of the producers behind
a hole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from klog.base.errors import UnreadableError
from klog.base.progress import Sink
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import Content, FileRange, SplicedLog, txn_entries
from klog.change.partition_plan.desired_files import DesiredFiles, draft_changes, rebuilt_from_start
from klog.change.plan.draft import Draft
from klog.change.plan.model import Amount, Loss
from klog.commands.recover.segment_ranges import (
    DroppedBytes,
    PartitionRanges,
    PartRanges,
    SegmentRanges,
    salvage_ranges,
)
from klog.formats.batch import BATCH
from klog.formats.checkpoint import write_epochs
from klog.formats.damage import Damage
from klog.formats.java_integers import LONG_MIN
from klog.formats.names import SEGMENT_KINDS, FileKind, file_name, parse_file
from klog.formats.producer_snapshot import write_snapshot
from klog.kernel import IndexBuilder, Window, crc32c
from klog.log.bit_flips import Patch
from klog.log.header_walk import header_at
from klog.log.index import AbortedTxn, txn_index_content
from klog.log.reader import LogReader
from klog.log.records import intact_runs
from klog.log.segment import MAX_SEGMENT_BYTES, Segment
from klog.partition.repair import rebuild
from klog.partition.repair.partition_survey import PartitionSurvey
from klog.partition.repair.rebuild import ENDS, MENDED, OF_INDEXES, OFFSET_KINDS, problems
from klog.partition.repair.recover_outcome import (
    OtherMode,
    RecoverMode,
    RecoverOptions,
    RecoverResult,
    SalvageOptions,
)
from klog.partition.transactions.markers import CompletedTxn
from klog.partition.transactions.producer_replay import apply_window
from klog.partition.transactions.producer_state import ProducerState
from klog.partition.verify.findings import Finding
from klog.partition.verify.segment_pass import SegmentFacts

_NEVER_FULL = 2**31 - 1


class KeptContent:
    """The content that follows from the kept batches of one segment; *state*: of the producers, brought along.

    *aborted*: entries of the transaction index, by the offsets of their markers.  `end_offset`: behind the last batch.
    """

    def __init__(self, log: str, base: int, interval: int, state: ProducerState) -> None:
        self.builder: IndexBuilder | None = IndexBuilder(base, interval, _NEVER_FULL)
        self.aborted: dict[int, AbortedTxn] = {}
        self.epochs: list[tuple[int, int]] = []
        self.end_offset = base
        self._state, self._log, self._base = state, log, base

    def take(self, window: Window, first: int, end: int) -> None:
        """Take batches *first* to *end* of a window, which are intact."""
        assert self.builder is not None
        self.builder.walk(window, first, end)
        for event in apply_window(self._state, window, self._log, first, end):
            if isinstance(event, CompletedTxn) and event.index_entry is not None:
                self.aborted[event.last_offset] = event.index_entry

    def finish(self) -> None:
        """End the segment."""
        assert self.builder is not None
        self.builder.finish()
        self.epochs = self.builder.epochs
        self.end_offset = max(self.builder.last_offset + 1, self._base)

    def set_known(self, epochs: list[tuple[int, int]], end_offset: int) -> None:
        """Set the results for a segment that need not be read; its indexes are known otherwise."""
        self.builder, self.epochs, self.end_offset = None, epochs, end_offset


_MOST_SPLITS = 10


def plan(survey: PartitionSurvey, settings: RecoverOptions, draft: Draft, sink: Sink) -> RecoverResult:
    """Add the kept part to *draft*; in the default mode only if repairing bits is enough.

    Raises UnreadableError, OSError (staging).
    """
    if survey.fails is not None:
        return rebuild.plan(survey, settings, draft)
    found = salvage_ranges(survey.partition, SalvageOptions(settings.repair_bits), sink, survey.ordered)
    if settings.mode is RecoverMode.DEFAULT and not costs_nothing(found):
        return _unsure_told(rebuild.plan(survey, settings, draft), found)
    if all(segment.is_whole for segment in found.segments) and not found.in_the_way:
        return _unsure_told(rebuild.plan(survey, settings, draft), found)
    salvage = _Salvage(survey, settings, found)
    draft_changes(draft, survey.original, salvage.target())
    for segment in found.segments:
        _save(draft, survey, segment)
    result = RecoverResult(survey.original, survey.findings)
    result.left = salvage.left()
    result.losses = [loss for segment in found.segments for loss in losses(survey, segment)]
    result.kept = kept(found)
    result.offsets = salvage.offsets()
    result.notes = [patch.description for segment in found.segments for patch in segment.patches]
    result.notes += [note for segment in found.segments if segment.is_split for note in _splits(segment)]
    return _unsure_told(result, found)


def _unsure_told(result: RecoverResult, found: PartitionRanges) -> RecoverResult:
    """Note which bits are not repaired although they could be all that is wrong."""
    result.notes += [patch.description for segment in found.segments for patch in segment.unsure]
    return result


def _splits(segment: SegmentRanges) -> Iterator[str]:
    """Yield the segments into which one is split, in words."""
    bases = [part.base for part in segment.parts[1:]]
    for base in bases[:_MOST_SPLITS]:
        yield f"{segment.files.log} is split: its batches from offset {base} on become a separate segment"
    if len(bases) > _MOST_SPLITS:
        yield f"{segment.files.log} is split into {len(bases) - _MOST_SPLITS} more, up to offset {bases[-1]}"


def costs_nothing(found: PartitionRanges) -> bool:
    """Whether something is repaired, no intact batch follows a cut, and no segment is split."""
    is_behind = False
    for segment in reversed(found.segments):
        if segment.is_split or any(cut.batches or cut.after is not None or is_behind for cut in segment.cuts):
            return False
        is_behind |= bool(segment.kept)
    return any(segment.patches for segment in found.segments)


def _save(draft: Draft, survey: PartitionSurvey, segment: SegmentRanges) -> None:
    """Record the cut parts of a segment to be saved."""
    file = f"{survey.original.directory}/{segment.files.log}"
    for cut in segment.cuts:
        facts = {"detail": cut.detail, "last_offset_before": cut.before, "first_offset_after": cut.after}
        draft.cut_out(file, cut.start, cut.end, cut.reason, **facts)


def losses(survey: PartitionSurvey, segment: SegmentRanges) -> list[Loss]:
    """Return the losses by the cuts of a segment; copies of kept batches are no loss."""
    name = survey.original
    found = []
    for cut in segment.cuts:
        if not cut.is_duplicate:
            first, last = _between(segment, cut)
            records = cut.records - cut.copied_records or cut.offsets_lost
            found.append(Loss(name.topic, name.number, first, last, records, cut.bytes, cut.reason))
    return found


def outcome(survey: PartitionSurvey, found: PartitionRanges) -> OtherMode:
    """Return the losses and the kept part of a repair that keeps *found*."""
    return OtherMode([loss for segment in found.segments for loss in losses(survey, segment)], kept(found))


def kept(found: PartitionRanges) -> Amount:
    """Return how much is kept."""
    segments = found.segments
    return Amount(sum(segment.records for segment in segments), sum(segment.kept.bytes for segment in segments))


def _between(segment: SegmentRanges, cut: DroppedBytes) -> tuple[int | None, int | None]:
    """Return the first and the last offset that a cut can have contained; None if it can have had none."""
    first = segment.files.base_offset if cut.before is None else cut.before + 1
    last = cut.after - 1 if cut.after is not None else None
    if last is None and cut.offsets_lost is not None:
        last = first + cut.offsets_lost - 1
    return (first, last) if last is None or first <= last else (None, None)


class _Salvage:
    def __init__(self, survey: PartitionSurvey, settings: RecoverOptions, found: PartitionRanges) -> None:
        self._survey, self._settings, self._segments = survey, settings, found.segments
        self._folder = survey.partition.path
        self._patches: dict[str, tuple[Patch, ...]] = {
            segment.files.log: segment.patches for segment in found.segments if segment.patches
        }
        gone = {segment.files.base_offset for segment in found.in_the_way}
        parts = [(part, segment) for segment in found.segments for part in segment.parts]
        parts = [(part, segment) for part, segment in parts if part.kept or part.base not in gone]
        self._parts = sorted(parts, key=lambda one: one[0].base)
        self._state = ProducerState(survey.partition.log_start_offset or 0)
        wrong = {os.path.basename(one.file) for one in survey.findings if one.id == "snapshot-disagrees"}
        self._snapshots = {
            offset: found
            for name, offset, found in survey.facts.snapshots
            if found.problem is None and name not in wrong
        }
        # A sound snapshot decides, whatever the producers of the segments before it were.
        read = (part.base for part, segment in self._parts if segment.unreadable is None)
        self._restart = max((base for base in read if base in self._snapshots), default=LONG_MIN)
        self._epochs: list[tuple[int, int]] = []
        self._files: dict[str, Content] = {}
        self._logs: dict[str, tuple[FileRange, ...]] = {}
        self._end = 0

    def target(self) -> DesiredFiles:
        """Return the desired content of the directory."""
        there = self._survey.files
        limits = [part.base for part, _ in self._parts[1:]]
        for (part, segment), limit in zip_longest(self._parts, limits):
            self._segment(part, segment, limit, there)
        names = {offset: name for name, offset, _ in self._survey.facts.snapshots}
        self._files |= {names[offset]: there[names[offset]] for offset in self._snapshots if offset <= self._end}
        if self._end not in self._snapshots and self._end > (self._survey.partition.log_start_offset or 0):
            content = write_snapshot(self._state.snapshot(), crc32c)
            self._files[file_name(self._end, FileKind.SNAPSHOT)] = content
        epochs = rebuilt_from_start(self._survey.partition, self._epochs, self._end)
        return DesiredFiles(self._logs, self._files, write_epochs(epochs), self._patches, is_intact=True)

    def _segment(self, part: PartRanges, segment: SegmentRanges, limit: int | None, there: dict[str, Content]) -> None:
        """Make a segment: *part* of the present *segment*; the next one begins at *limit*."""
        log, index, time_index, txns = (file_name(part.base, kind) for kind in SEGMENT_KINDS)
        pieces = tuple(FileRange(segment.files.log, start, end) for start, end in part.kept.pairs())
        if segment.unreadable is not None:
            self._logs[log] = (FileRange(segment.files.log, 0, segment.size),)
            self._files |= {name: there[name] for name in (index, time_index, txns) if name in there}
            return
        self._logs[log] = pieces
        content = self._content(log, pieces, part.base, segment)
        self._end = content.end_offset
        self._epochs += self._epochs_of(segment, content)
        keeps = segment.is_whole and not self._is_wrong(part.base, limit)
        if not (keeps and index in there and time_index in there) and content.builder is None:
            content.builder = self._builder(log, pieces, part.base, segment)
        self._files[index] = there[index] if keeps and index in there else _built(content).offset_entries
        self._files[time_index] = there[time_index] if keeps and time_index in there else _built(content).time_entries
        old = there.get(file_name(segment.files.base_offset, FileKind.TXN_INDEX))
        entries = self._with_witnesses(part, self._end if limit is None else limit, content.aborted, old)
        if entries or txns in there:
            self._files[txns] = txn_index_content(entries)

    def _epochs_of(self, segment: SegmentRanges, content: KeptContent) -> list[tuple[int, int]]:
        """Return the epochs that a segment begins; one that is odd and stays as it is begins none, as for verify."""
        log = segment.files.log
        odd = (one for one in self._survey.findings if one.id == "odd-epoch" and os.path.basename(one.file) == log)
        if all(map(self._is_right, odd)):
            return content.epochs
        surveys = (one.survey for one in self._survey.facts.segments if one.files.log == log)
        return [(epoch, offset) for survey in surveys for epoch, offset, _ in survey.epochs]

    def _is_wrong(self, base: int, limit: int | None) -> bool:
        """Whether the indexes of a segment are wrong, or were only right while no segment followed (at *limit*)."""
        segments = self._survey.facts.segments
        if limit is not None and segments[-1].files.base_offset == base:
            return True
        return any(self._survey.has_wrong_index(one) for one in segments if one.files.base_offset == base)

    def _content(self, log: str, pieces: tuple[FileRange, ...], base: int, segment: SegmentRanges) -> KeptContent:
        """Return the content for the kept part of a segment, which is read if the survey is not enough."""
        if base in self._snapshots:
            # A broker took it: it contains the producers whose batches are lost.
            self._state = ProducerState.load(self._snapshots[base], base)
        content = KeptContent(log, base, self._settings.interval, self._state)
        facts = next((one for one in self._survey.facts.segments if one.files.log == segment.files.log), None)
        if facts is not None and segment.is_whole and not self._needs_producers(base, facts):
            content.set_known([(epoch, offset) for epoch, offset, _ in facts.survey.epochs], facts.end_offset)
            return content
        return self._read(log, pieces, content)

    def _needs_producers(self, base: int, facts: SegmentFacts) -> bool:
        """Whether the producers or the transactions of a segment that stays whole have to be followed."""
        ordered = self._survey.ordered.logs.get(facts.files.log)
        if ordered is None or ordered.is_transactional:
            return True
        return base >= self._restart and facts.survey.producer_batches > 0

    def _builder(
        self, log: str, pieces: tuple[FileRange, ...], base: int, segment: SegmentRanges
    ) -> IndexBuilder | None:
        """Return the builder of the indexes of a segment that is whole: the survey's, where that has been kept."""
        for one in self._survey.facts.segments:
            if one.files.log == segment.files.log and one.builder is not None and not one.is_broken:
                return one.builder
        apart = KeptContent(log, base, self._settings.interval, ProducerState())
        return self._read(log, pieces, apart).builder

    def _read(self, log: str, pieces: tuple[FileRange, ...], content: KeptContent) -> KeptContent:
        """Pass the kept part of a segment to *content*."""
        window = Window(output=0)
        with SplicedLog(self._folder, log, pieces, self._patches) as source:
            reader = LogReader(source)
            while piece := reader.next(window):
                _expect_intact(piece.damage)
                for run in intact_runs(window, source.path, Segment(source.path).span):
                    _expect_intact(run.damage)
                    content.take(run.window, run.first, run.end)
        content.finish()
        return content

    def _with_witnesses(
        self, part: PartRanges, limit: int, entries: dict[int, AbortedTxn], old: Content | None
    ) -> list[AbortedTxn]:
        """Return the transaction index's entries: those of the log, and old ones whose markers are lost in a hole."""
        for entry in txn_entries(self._folder, old):
            sane = entry.version == 0 and 0 <= entry.first_offset <= entry.last_offset < limit
            if sane and _is_in_hole(part, entry.last_offset):
                entries.setdefault(entry.last_offset, entry)
        return [entries[offset] for offset in sorted(entries)]

    # the meaning of that

    def left(self) -> list[Finding]:
        """Return the problems that will still be there."""
        gone = ENDS | MENDED | OFFSET_KINDS
        if all(part.kept.bytes <= MAX_SEGMENT_BYTES for segment in self._segments for part in segment.parts):
            gone |= {"oversized-log"}
        broken = {segment.files.base_offset for segment in self._segments if segment.unreadable is not None}
        return problems(
            [
                one
                for one in self._survey.findings
                if parse_file(os.path.basename(one.file)).offset in broken
                or not (one.id in gone or one.id.startswith(OF_INDEXES) or self._is_right(one))
            ]
        )

    def _is_right(self, finding: Finding) -> bool:
        """Whether an odd leader epoch has been repaired, was removed with its batch, or fits now; otherwise it is kept.

        The later one of two that contradict each other may be the repaired one.  An epoch fits if the batch behind it
        was removed, and the next one that is kept has the same epoch.
        """
        name, first = os.path.basename(finding.file), finding.position
        if finding.id != "odd-epoch" or first is None:
            return False
        cuts = [cut for segment in self._segments if segment.files.log == name for cut in segment.cuts]
        if _behind_cuts(cuts, first) > first:
            return True
        headers = [first]
        with ReadOnlyFile(os.path.join(self._folder, name)) as log:
            batch = header_at(log, first)
            if batch is not None:
                headers.append(first + batch.size)
                kept = _behind_cuts(cuts, headers[-1])
                following = header_at(log, kept) if kept > headers[-1] else None
                if following is not None and following.leader_epoch == batch.leader_epoch:
                    return True
        patches = [patch.position for patch in self._patches.get(name, ())]
        return any(start <= position < start + BATCH.size for position in patches for start in headers)

    def offsets(self) -> dict[FileKind, int | None]:
        """Return the changes of the log dir's checkpoints.

        A broker that read the log once more would forget the facts that only the old files contained: the checkpoints
        make this unnecessary.
        """
        changed = rebuild.contradicted(self._survey, self._end)
        if all(segment.unreadable is None for segment in self._segments):
            changed[FileKind.RECOVERY_POINTS] = self._end
        return changed


def _behind_cuts(cuts: Iterable[DroppedBytes], position: int) -> int:
    """Return the first position from *position* on that is not cut out."""
    while cut := next((one for one in cuts if one.start <= position < one.end), None):
        position = cut.end
    return position


def _built(content: KeptContent) -> IndexBuilder:
    assert content.builder is not None
    return content.builder


def _expect_intact(damage: Damage | None) -> None:
    """Check that the kept part is still intact, as it was a moment ago: an index of less would be wrong."""
    if damage is not None:
        raise UnreadableError(f"{damage.place}: it has changed while it was read; run this again")


def _is_in_hole(part: PartRanges, offset: int) -> bool:
    """Whether no kept range of a segment can have contained *offset*."""
    at = part.kept.stretch_of(offset)
    return offset >= part.base and (at < 0 or part.kept.lasts[at] < offset)
