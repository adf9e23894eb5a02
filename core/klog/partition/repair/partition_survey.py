"""A partition after the pass of a repair: its findings, its rebuilt indexes, and the results about its logs.

No later step reads the logs again.  A few numbers describe a log in which each batch follows the one before
(`OrderedLogs`): salvage keeps it whole.  It reads every other log again, from its start.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from klog.base.progress import Sink
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import Content
from klog.change.partition_plan.desired_files import RecordCount, count_records
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.damage import Damage, DamageKind
from klog.formats.index import OFFSET_ENTRY
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import FileKind, Stage, parse_file
from klog.kernel import IndexBuilder, ascending_run
from klog.log.records import BatchRun
from klog.log.segment import MAX_RELATIVE_OFFSET
from klog.partition.repair.recover_outcome import RecoverMode, RecoverOptions
from klog.partition.start.log_loader import next_start
from klog.partition.start.producer_recovery import BrokerClock
from klog.partition.start.segment_recovery import IntactPrefix
from klog.partition.start.start_files import FailsError, StartOutcome
from klog.partition.start.start_log import settle
from klog.partition.verify.findings import Finding, LogDirFacts, PartitionFacts
from klog.partition.verify.index_checks import offset_index_of, time_index_of
from klog.partition.verify.segment_pass import IndexSettings, SegmentFacts, SurveyOptions
from klog.partition.verify.state_checks import names
from klog.partition.verify.verify import Chosen, examine

_DISORDER = frozenset({"overflow", "backwards", "odd offset", "beyond next"})
"""Events of a survey after which its offsets are not those of the first and the last batch."""

_ENDS_RECOVERY = frozenset({DamageKind.BAD_CRC, DamageKind.BAD_LENGTH, DamageKind.TORN_TAIL, DamageKind.ZEROED_TAIL})
"""Damage at which a broker's reading ends as well; it takes formats that do not exist, and headers that are short."""


class _LogCounts(NamedTuple):
    """The records of a log: *whole*; up to the first damage, which begins at byte *broken_at*; from there on."""

    size: int
    whole: RecordCount
    broken_at: int | None
    before: RecordCount
    behind: RecordCount


class SurveyedLogs:
    """Facts about logs by their names, collected segment by segment during a pass.

    *prefixes*: the intact batches at the start of those logs whose recovery by a broker is known.
    """

    def __init__(self, partition: Partition) -> None:
        self._folder = partition.path
        self.prefixes: dict[str, IntactPrefix] = {}
        self._counts: dict[str, _LogCounts] = {}
        self._is_begun = False
        self._open: tuple[tuple[int, int], ...] | None = None

    def add(self, facts: PartitionFacts, segment: SegmentFacts) -> None:
        """Take the results of the pass over *segment*, before its index builder is dropped."""
        replay, builder = facts.replay, segment.builder
        before = self._open if self._is_begun else replay.opened if replay is not None else None
        self._is_begun = True
        self._open = replay.open_now() if replay is not None else None
        at_damage = replay.take_open_at_damage() if replay is not None else None
        is_ordered = not segment.survey.dropped and not any(event[0] in _DISORDER for event in segment.survey.events)
        if segment.unreadable is not None or not is_ordered or builder is None or builder.stop:
            return
        self._count(segment, builder)
        if segment.survey.legacy or (segment.is_broken and segment.damages[0].damage.kind not in _ENDS_RECOVERY):
            return
        has_producers = segment.survey.producer_batches > 0
        after = at_damage if segment.is_broken else self._open
        if has_producers and (replay is None or segment.files.log in replay.stops or before is None or after is None):
            return
        index, time_index = builder.offset_entries, builder.time_entries
        self.prefixes[segment.files.log] = IntactPrefix(
            segment.size,
            builder.size,
            builder.batches,
            builder.last_offset,
            tuple(builder.epochs),
            index[-OFFSET_ENTRY.size :],
            len(index),
            len(time_index),
            has_producers,
            before or (),
            after or (),
        )

    def _count(self, segment: SegmentFacts, builder: IndexBuilder) -> None:
        survey = segment.survey
        whole = RecordCount(survey.records + survey.legacy)
        if survey.batches:
            whole = whole._replace(first_offset=survey.first_offset, last_offset=survey.last_offset)
        before = behind = RecordCount()
        if builder.batches:
            before = RecordCount(builder.records, survey.first_offset, builder.last_offset)
        if segment.resumes_at is not None:
            behind = RecordCount(whole.records - before.records, segment.resumes_at, whole.last_offset)
        broken_at = builder.size if segment.is_broken and not survey.legacy else None
        self._counts[segment.files.log] = _LogCounts(segment.size, whole, broken_at, before, behind)

    def count_records(self, log: str, start: int = 0, end: int | None = None) -> RecordCount:
        """Return the content of bytes *start* to *end* of a log; read only where the pass has no answer.

        Raises UnreadableError.
        """
        known = self._counts.get(log)
        if known is not None and end in (None, known.size):
            if start == 0:
                return known.whole
            if start == known.broken_at:
                return known.behind
        if known is not None and start == 0 and end == known.broken_at:
            return known.before
        return count_records(os.path.join(self._folder, log), start, end)


class OrderedLog(NamedTuple):
    """A log without damage whose offsets and leader epochs ascend: its *size* in bytes, its batches and records.

    *epoch*: the leader epoch of the last batch, -1 for none.  *is_transactional*: some batches are.
    """

    size: int
    first_offset: int
    last_offset: int
    epoch: int = -1
    batches: int = 0
    records: int = 0
    is_transactional: bool = False


class OrderedLogs:
    """A BatchObserver that collects the ordered logs of a partition, by their names, in *logs*."""

    def __init__(self, segments: Sequence[SegmentFiles]) -> None:
        self.logs: dict[str, OrderedLog] = {}
        self._next_bases = dict(_next_bases(segments))

    def begin(self, source: ReadOnlyFile, facts: SegmentFacts) -> None:
        """Begin a segment."""
        self._name, base = facts.files.log, facts.files.base_offset
        self._ceiling = min(self._next_bases[self._name] - 1, base + MAX_RELATIVE_OFFSET)
        self._log: OrderedLog | None = OrderedLog(0, base, base - 1)

    def take(self, run: BatchRun) -> None:
        """Take intact batches."""
        if self._log is not None:
            self._log = self._extended(self._log, run)

    def _extended(self, log: OrderedLog, run: BatchRun) -> OrderedLog | None:
        """Return *log* with the batches of *run*; None if one of them does not follow."""
        window, first, end = run.window, run.first, run.end
        if first == end:
            return log
        if window.position + window.at(first) != log.size:
            return None
        good, records = ascending_run(window, first, end, log.last_offset, log.epoch, self._ceiling)
        if good < end:
            return None
        last = window.batch(end - 1)
        return OrderedLog(
            last.position + last.size,
            log.first_offset if log.batches else window.batch(first).base_offset,
            last.last_offset,
            last.leader_epoch,
            log.batches + end - first,
            log.records + records,
            log.is_transactional or bool(window.transactional(first, end)),
        )

    def damaged(self, damage: Damage) -> None:
        """Take a stretch without intact batches."""
        self._log = None

    def end(self, size: int) -> None:
        """End the segment after *size* bytes."""
        if self._log is not None and self._log.size == size:
            self.logs[self._name] = self._log


def _next_bases(segments: Sequence[SegmentFiles]) -> list[tuple[str, int]]:
    """Return for each log the base offset of the next one that is not empty; LONG_MAX where there is none."""
    found, next_base = [], LONG_MAX
    for files in reversed(segments):
        found.append((files.log, next_base))
        next_base = files.base_offset if files.size else next_base
    return found


_NEVER_FULL = 2**31 - 1
_NAMES = frozenset({"orphan-index", "leftover", "duplicate-segment", "foreign-log-name", "odd-name"})


class PartitionSurvey:
    """A partition after the pass.

    *original*: its listing; `partition`, `facts`: its state after interrupted operations have been finished or
    reverted.  `fails`: the reason why the survey is impossible; all other fields are then missing.  `logs`: the results
    of the pass for the logs.  `ordered`: those in which each batch follows the one before.  *start*: the broker's next
    start, if it was played.
    """

    facts: PartitionFacts
    findings: list[Finding]
    ordered: OrderedLogs

    def __init__(
        self, partition: Partition, settings: RecoverOptions, clean: bool, start: StartOutcome | None = None
    ) -> None:
        self.original = self.partition = partition
        self.fails: str | None = None
        self.logs = SurveyedLogs(partition)
        self._settings, self._clean, self._start = settings, clean, start
        self._wrong: set[int] = set()

    @classmethod
    def read(
        cls,
        partition: Partition,
        around: LogDirFacts,
        settings: RecoverOptions,
        sink: Sink,
        start: StartOutcome | None = None,
    ) -> PartitionSurvey:
        """Make the pass over a partition.  Content never raises, nor does a log that cannot be read."""
        survey = cls(partition, settings, around.clean, start)
        survey._settle()
        survey._examine(around, sink)
        return survey

    def _settle(self) -> None:
        """Find out which files the log consists of."""
        partition = self.original
        away = [name for name in partition.others if parse_file(name).kind is FileKind.LOG]
        if away:
            # A disk that is not mounted looks like this; without its log an index would be an orphan.
            self.fails = f"{away[0]}: neither a file nor a link to one"
        elif any(file.stage is not Stage.IN_USE for file in partition.log_files):
            try:
                self.partition = partition.with_files(self.files)
            except FailsError as failure:
                self.fails = str(failure)

    def _examine(self, around: LogDirFacts, sink: Sink) -> None:
        """Read the logs, and check everything."""
        settings = self._settings
        # Salvage looks at all that it can repair.
        build, follow = IndexSettings(settings.interval, _NEVER_FULL), settings.mode is RecoverMode.SALVAGE
        request = SurveyOptions(jobs=settings.jobs, build=build, producers=follow)
        chosen = _from_recovery_point(self.partition) if settings.from_recovery_point else None
        self.ordered = OrderedLogs(self.partition.segments)
        self.facts, self.findings = examine(
            self.partition, around, request, sink, chosen, self._after, self.next_start, self.ordered
        )
        if self.partition is not self.original:
            by_name = names(PartitionFacts(self.original, around))
            self.findings = [finding for finding in self.findings if finding.id not in _NAMES]
            self.findings += [finding for finding in by_name if finding.id in _NAMES]

    @cached_property
    def files(self) -> dict[str, Content]:
        """The content of the log after interrupted operations have been finished or reverted, by name."""
        return settle(self.original, self._settings.reading)

    def next_start(self) -> StartOutcome:
        """Return the result of a broker's next start for the partition.  It is played once.  Raises UnreadableError."""
        if self._start is None:
            reading, prefixes = self._settings.reading, self.logs.prefixes
            clock = BrokerClock(self._settings.now_ms, self._settings.expiration_ms)
            self._start = next_start(self.original, self._clean, reading, clock, prefixes=prefixes)
        return self._start

    def _after(self, facts: PartitionFacts, segment: SegmentFacts) -> None:
        """Keep the rebuilt indexes only where the old ones are wrong, or the log will be truncated."""
        self.logs.add(facts, segment)
        if any((*offset_index_of(facts, segment), *time_index_of(facts, segment))):
            self._wrong.add(segment.files.base_offset)
        elif not segment.is_broken:
            segment.builder = None

    def has_wrong_index(self, segment: SegmentFacts) -> bool:
        """Whether the offset or the time index of a segment must be rebuilt."""
        return segment.files.base_offset in self._wrong


def _from_recovery_point(partition: Partition) -> Chosen:
    """Return which segments a broker's recovery would look at."""
    bases = [files.base_offset for files in partition.segments]
    first = max(bisect_right(bases, partition.recovery_point or 0) - 1, 0)
    return lambda at, _: at >= first
