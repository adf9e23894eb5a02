"""Verifies partitions: selects them, makes a pass over the segments of each, then every check in order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from klog.base.errors import UnreadableError, UsageError
from klog.base.progress import Silence, Sink
from klog.base.read_only import is_missing
from klog.cluster.metadata.topic_config import TopicConfig
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import KafkaFile, PartitionChoice, select
from klog.formats.checkpoint import Malformed
from klog.formats.names import ROOT_KINDS
from klog.partition.transactions.producer_replay import ProducerReplay
from klog.partition.verify import index_checks as indexes
from klog.partition.verify import log_checks as log
from klog.partition.verify import producer_checks as producers
from klog.partition.verify import state_checks as state
from klog.partition.verify.findings import Finding, Findings, LogDirFacts, PartitionFacts, Severity, StartPlay
from klog.partition.verify.segment_pass import NO_NEXT, BatchObserver, SegmentFacts, SurveyOptions, survey_segment

CHECKS: tuple[Callable[[PartitionFacts], Findings], ...] = (
    state.names,
    state.metadata,
    log.unreadable,
    log.damages,
    log.batches,
    log.gaps,
    indexes.offset_index,
    indexes.time_index,
    indexes.txn_index,
    state.epochs,
    producers.transactions,
    state.snapshots,
    producers.snapshots_by_replay,
    producers.sequences,
    state.checkpoints,
)
"""All checks of a partition, in the order of the output."""

_USUAL, _SILENCE = SurveyOptions(), Silence()
_TRIES = 3
_PAUSE_SECONDS = 0.1


class VerifyTotals(NamedTuple):
    """How much was looked at.  *records*: of intact v2 batches."""

    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0

    def plus(self, other: VerifyTotals) -> VerifyTotals:
        """Return the sum."""
        return VerifyTotals(*(a + b for a, b in zip(self, other, strict=True)))


class PartitionResult(NamedTuple):
    """The result of a partition.  *summary*: the result of the caller's own observer."""

    partition: Partition
    findings: list[Finding]
    totals: VerifyTotals
    summary: object = None


class PassObserver(BatchObserver, Protocol):
    """Keeps the small results of the pass over a partition: the facts are freed before the next one."""

    def summary(self, facts: PartitionFacts) -> object:
        """Return it, once the pass is over."""


Observe = Callable[[Partition], PassObserver]
"""Makes an observer for a pass over a partition; beside a running broker there may be several."""

Chosen = Callable[[int, str], bool]
"""Whether to look at a segment: given its place in the partition and the path of its log."""


def log_dir_facts(log_dir: LogDir) -> LogDirFacts:
    """Return the facts about *log_dir* that the checks of partitions need."""
    clean, live = log_dir.clean_shutdown is not None, bool(log_dir.lock.held)
    # A fault of a copy's settings is a finding of the log dir.
    is_legible = not isinstance(log_dir.checkpoints.follow_file, Malformed)
    return LogDirFacts(log_dir.path, clean, live, log_dir.is_kraft, TopicConfig(log_dir if is_legible else None))


def facts_around(partition: Partition) -> LogDirFacts:
    """Return the same for a partition that was named alone: its parent is its log dir, if it looks like one."""
    parent = LogDir(partition.log_dir)
    try:
        return log_dir_facts(parent) if any(file.kind in ROOT_KINDS for file in parent.files) else LogDirFacts()
    except UnreadableError:
        return LogDirFacts()


def verify_partition(
    partition: Partition,
    around: LogDirFacts | None = None,
    request: SurveyOptions = _USUAL,
    sink: Sink = _SILENCE,
    chosen: Chosen | None = None,
    observe: Observe | None = None,
) -> PartitionResult:
    """Check a partition, or the *chosen* ones of its segments.

    *around*: the facts of its log dir (`log_dir_facts`); None: read them.  *sink* receives the progress in bytes. A
    running broker replaces files while they are read: a problem counts once it has been found twice, in the same place,
    in passes over the files of that moment.
    """
    around = facts_around(partition) if around is None else around
    checked = _check(partition, around, request, sink, chosen, observe)
    tries = _TRIES if around.live else 0
    while tries and any(finding.severity is not Severity.NOTE for finding in checked.findings):
        time.sleep(_PAUSE_SECONDS)
        again = _check(Partition(partition.path), around, request, sink, chosen, observe)
        seen = {(finding.id, finding.file, finding.position) for finding in checked.findings}
        kept = [
            finding
            for finding in again.findings
            if finding.severity is Severity.NOTE or (finding.id, finding.file, finding.position) in seen
        ]
        checked = again._replace(findings=kept)
        tries -= 1
    return checked


def _check(
    partition: Partition,
    around: LogDirFacts,
    request: SurveyOptions,
    sink: Sink,
    chosen: Chosen | None,
    observe: Observe | None,
) -> PartitionResult:
    observer = None if observe is None else observe(partition)
    facts, findings = examine(partition, around, request, sink, chosen, observer=observer)
    return PartitionResult(partition, findings, _totals(facts), None if observer is None else observer.summary(facts))


def examine(
    partition: Partition,
    around: LogDirFacts,
    request: SurveyOptions = _USUAL,
    sink: Sink = _SILENCE,
    chosen: Chosen | None = None,
    each: Callable[[PartitionFacts, SegmentFacts], None] | None = None,
    play: StartPlay | None = None,
    observer: BatchObserver | None = None,
) -> tuple[PartitionFacts, list[Finding]]:
    """Make the pass over a partition, and all checks.

    *each* is called for a segment when its pass is over.  *play*: as `PartitionFacts` has it.  *observer* takes the
    batches as well.
    """
    facts = survey_partition(partition, around, request, sink, chosen, each, play, observer)
    findings = [finding for check in CHECKS for finding in check(facts)]
    return facts, _settled(facts, findings)


def survey_partition(
    partition: Partition,
    around: LogDirFacts,
    request: SurveyOptions,
    sink: Sink = _SILENCE,
    chosen: Chosen | None = None,
    each: Callable[[PartitionFacts, SegmentFacts], None] | None = None,
    play: StartPlay | None = None,
    observer: BatchObserver | None = None,
) -> PartitionFacts:
    """Make the pass over a partition's segments, or the *chosen* ones."""
    facts = PartitionFacts(partition, around, play)
    if chosen is None and partition.segments:
        facts.replay = ProducerReplay(
            partition.segments[0].base_offset, facts.snapshots, request.deep or request.producers
        )
    bases = [*(files.base_offset for files in partition.segments), NO_NEXT]
    for at, (files, next_base) in enumerate(zip(partition.segments, bases[1:], strict=True)):
        if chosen is None or chosen(at, partition.file(files.log)):
            facts.segments.append(survey_segment(partition, files, next_base, request, sink, facts.replay, observer))
            if each is not None:
                each(facts, facts.segments[-1])
    if facts.replay is not None:
        facts.replay.finish()
    return facts


def _totals(facts: PartitionFacts) -> VerifyTotals:
    surveys = [segment.survey for segment in facts.segments]
    return VerifyTotals(
        1,
        len(facts.segments),
        sum(segment.size for segment in facts.segments),
        sum(survey.batches for survey in surveys),
        sum(survey.records + survey.legacy for survey in surveys),
    )


def _settled(facts: PartitionFacts, findings: list[Finding]) -> list[Finding]:
    """Replace the findings about a log, or a directory, that no longer exists: a broker has deleted it."""
    if facts.partition.unreadable is not None and facts.log_dir.live and is_missing(facts.partition.path):
        return [facts.finding("vanished", "it was there when the log dir was listed")]
    gone = {segment.files.log[:20] for segment in facts.segments if is_missing(facts.partition.file(segment.files.log))}
    settled = [finding for finding in findings if os.path.basename(finding.file)[:20] not in gone]
    settled += [facts.finding("vanished", "it was there when the directory was listed", f"{stem}.log") for stem in gone]
    return settled


def partitions_to_verify(
    opened: Sequence[LogDir | Partition | KafkaFile],
    topics: Sequence[str] = (),
    numbers: Sequence[PartitionChoice] = (),
) -> list[tuple[Partition, LogDirFacts]]:
    """Return the partitions to check, each with the facts of its log dir; *topics* and *numbers* narrow log dirs.

    Raises UsageError for a topic or number that nothing matches.
    """
    every = [partition for one in opened if isinstance(one, LogDir) for partition in one.partitions]
    selected = set(select(every, topics, numbers))
    found: list[tuple[Partition, LogDirFacts]] = []
    around: dict[str, LogDirFacts] = {}
    for one in opened:
        if isinstance(one, LogDir):
            facts = log_dir_facts(one)
            found += [(partition, facts) for partition in one.partitions if partition in selected]
        else:
            partition = one if isinstance(one, Partition) else Partition(os.path.dirname(one.path) or ".")
            parent = partition.log_dir
            if parent not in around:
                around[parent] = facts_around(partition)
            found.append((partition, around[parent]))
    return found


def segments_of_files(opened: Sequence[LogDir | Partition | KafkaFile]) -> Chosen | None:
    """Return which segments to look at when files are named: theirs.  Raises UsageError for a file of no segment."""
    files = [one for one in opened if isinstance(one, KafkaFile)]
    if not files:
        return None
    logs = set()
    for file in files:
        if file.name.offset is None:
            raise UsageError(f"{file.path}: this file belongs to no segment; name its directory")
        logs.add(os.path.join(os.path.dirname(file.path) or ".", f"{file.name.offset:020d}.log"))
    return lambda _, path: path in logs
