"""A partition after the pass of a repair: its findings, and the rebuilt indexes."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from klog.base.progress import Sink
from klog.change.partition_plan.contents import Content
from klog.commands.recover.ordered_logs import OrderedLogs
from klog.commands.recover.recover_outcome import RecoverMode, RecoverOptions
from klog.commands.recover.surveyed_logs import SurveyedLogs
from klog.data_dir.partition import Partition
from klog.formats.names import FileKind, Stage, parse_file
from klog.partition.start.log_loader import next_start
from klog.partition.start.producer_recovery import BrokerClock
from klog.partition.start.start_files import FailsError, StartOutcome
from klog.partition.start.start_log import settle
from klog.partition.verify.facts import LogDirFacts, PartitionFacts
from klog.partition.verify.findings import Finding
from klog.partition.verify.index_checks import offset_index_of, time_index_of
from klog.partition.verify.segment_pass import IndexSettings, SegmentFacts, SurveyOptions
from klog.partition.verify.state_checks import names
from klog.partition.verify.verify import Chosen, examine

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
