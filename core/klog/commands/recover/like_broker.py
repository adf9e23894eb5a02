"""The repair that changes a partition as a broker of 4.x would at its next start."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from klog.base.progress import Silence, Sink
from klog.change.partition_plan.contents import FileRange, StoredContent
from klog.change.partition_plan.desired_files import (
    DesiredFiles,
    cut_loss,
    draft_changes,
    loss_of,
    rebuilt,
    whole_losses,
)
from klog.change.plan.draft import Draft
from klog.change.plan.model import Amount, Loss, total
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import epochs_in_force, read_epochs
from klog.formats.names import FileKind, parse_file
from klog.partition.repair.partition_survey import PartitionSurvey, SurveyedLogs
from klog.partition.repair.rebuild import ENDS, OF_INDEXES, OFFSET_KINDS, base_of, problems
from klog.partition.repair.recover_outcome import RecoverOptions, RecoverResult
from klog.partition.start.kept_log import unserved_end
from klog.partition.start.log_loader import next_start
from klog.partition.start.producer_recovery import BrokerClock
from klog.partition.start.segment_recovery import IntactPrefix
from klog.partition.start.start_files import SegmentCut, StartOutcome
from klog.partition.verify.findings import Finding, LogDirFacts

_RIGHTED = frozenset({"recovery-point-beyond-end", "high-watermark-beyond-end", "log-start-beyond-end"})
"""The findings that every start corrects."""


def play(
    partition: Partition,
    clean: bool,
    settings: RecoverOptions,
    sink: Sink | None = None,
    prefixes: Mapping[str, IntactPrefix] = MappingProxyType({}),
) -> StartOutcome:
    """Return the outcome of the start; *clean*: it follows a clean shutdown.  *prefixes*: see `load`.

    Raises UnreadableError.
    """
    clock = BrokerClock(settings.now_ms, settings.expiration_ms)
    return next_start(partition, clean, settings.reading, clock, sink, prefixes)


def plan(
    partition: Partition, around: LogDirFacts, settings: RecoverOptions, draft: Draft, sink: Sink | None = None
) -> RecoverResult:
    """Add to *draft* a broker's changes.  Raises UnreadableError, OSError (staging).

    Findings are only looked for if a broker fails, or something is lost: this takes a second pass.
    """
    result, logs = RecoverResult(partition), SurveyedLogs(partition)
    outcome = play(partition, around.clean, settings, sink)
    unserved = unserved_end(partition, outcome)
    if outcome.fails is not None or outcome.cuts or outcome.dropped or unserved is not None:
        close = settings._replace(from_recovery_point=_is_above_recovery_point(partition, outcome))
        survey = PartitionSurvey.read(partition, around, close, Silence(), outcome)
        result.findings, logs = survey.findings, survey.logs
        result.left = [one for one in problems(survey.findings) if not _is_gone(one, survey, outcome)]
    follow(outcome, result, draft, logs, unserved)
    return result


def _is_gone(finding: Finding, survey: PartitionSurvey, outcome: StartOutcome) -> bool:
    """Whether something that was found is no longer there after the start and the stop."""
    if outcome.fails is not None:
        return False
    base, name = base_of(finding), os.path.basename(finding.file)
    if base in outcome.dropped or finding.id in _RIGHTED:
        return True
    if finding.id.startswith("epochs-"):
        return epochs_hold(survey, outcome)
    if finding.id == "snapshots-missing":
        return any(parse_file(one).kind is FileKind.SNAPSHOT for one in outcome.files)
    if finding.id.startswith(OF_INDEXES) or parse_file(name).kind is FileKind.SNAPSHOT:
        size = os.path.getsize(survey.original.file(name))
        return base in outcome.recovered or outcome.files.get(name) not in (StoredContent(name, size), None)
    if finding.position is None or parse_file(name).kind is not FileKind.LOG:
        return False
    holds = (log for log, pieces in outcome.logs.items() if any(_is_in(finding.position, name, one) for one in pieces))
    log = next(holds, None)
    # Batches that do not fit a segment have one of their own.
    return log is None or (finding.id == "offset-overflow" and parse_file(log).offset != base)


def _is_in(position: int, name: str, piece: FileRange) -> bool:
    return piece.name == name and piece.start <= position < piece.end


def epochs_hold(survey: PartitionSurvey, outcome: StartOutcome) -> bool:
    """Whether the broker's epochs are those that the batches show; one at the log end does not count."""
    found = survey.facts.partition.epochs
    seen = [(epoch, offset) for segment in survey.facts.segments for epoch, offset, _ in segment.survey.epochs]
    after = read_epochs(outcome.epochs) if outcome.epochs is not None else found
    entries = epochs_in_force(after.entries) if after is not None else []
    kept = [one for one in entries if one.start_offset < outcome.log_end]
    wanted = LeaderEpochCache(rebuilt(found, seen, outcome.log_end))
    wanted.truncate_start(survey.facts.partition.tiered_log_start())
    return kept == [one for one in wanted.entries if one.start_offset < outcome.log_end]


def _is_above_recovery_point(partition: Partition, outcome: StartOutcome) -> bool:
    """Whether a start looks at nothing below the recovery point: an index that is missing leads it there."""
    bases = [files.base_offset for files in partition.segments]
    if outcome.fails is not None or not bases:
        return False
    first = bases[max(bisect_right(bases, partition.recovery_point or 0) - 1, 0)]
    return all(base >= first for base in outcome.recovered)


def follow(
    outcome: StartOutcome, result: RecoverResult, draft: Draft, logs: SurveyedLogs, unserved: FileRange | None
) -> None:
    """Add the changes to *draft*, and their meaning to *result*; *unserved*: see `unserved_end`.

    Raises UnreadableError, OSError (staging).
    """
    partition = result.partition
    if outcome.fails is not None:
        result.fails = f"a broker does not complete its start here: {outcome.fails}"
        return
    draft_changes(draft, partition, DesiredFiles(outcome.logs, outcome.files, outcome.epochs))
    result.losses = losses(partition, outcome, result.findings, logs, unserved)
    if result.losses:
        result.kept = kept(outcome, logs, unserved)
    result.broker_would_keep = result.kept
    result.offsets = offsets(partition, outcome)


def losses(
    partition: Partition,
    outcome: StartOutcome,
    findings: Sequence[Finding],
    logs: SurveyedLogs,
    unserved: FileRange | None,
) -> list[Loss]:
    """Return the losses: ends of segments, and segments.

    The reason is the one of *findings* at which the start ends; for segments the one before them.  Raises
    UnreadableError.
    """
    found, reason = [], "log-start-beyond-end"
    for cut in outcome.cuts:
        name, reason = _source(partition, outcome, cut.base), _reason(cut, findings)
        found.append(cut_loss(partition, name, cut.size, cut.offset, reason, logs.count_records(name, cut.size)))
    dropped = [segment.log for segment in partition.segments if segment.base_offset in outcome.dropped]
    found += whole_losses(partition, dropped, reason, logs.count_records)
    if unserved is not None:
        name, start, end = unserved
        reason = _misleading(parse_file(name).offset, findings)
        found.append(loss_of(partition, logs.count_records(name, start, end), end - start, reason, outcome.log_end))
    return found


def _misleading(base: int | None, findings: Sequence[Finding]) -> str:
    """Return the id of the finding that makes the log end lower than the last batch."""
    ids = [one.id for one in findings if base_of(one) == base]
    return next((one for one in ids if one.startswith(OF_INDEXES) or one in OFFSET_KINDS), "index-disagrees")


def _reason(cut: SegmentCut, findings: Sequence[Finding]) -> str:
    """Return the id of the finding at the cut of a log, or of the next one behind it; without any "cut"."""
    ids = [
        (one.position, one.id)
        for one in findings
        if one.id in ENDS | OFFSET_KINDS and base_of(one) == cut.base and (one.position or 0) >= cut.size
    ]
    return min(ids, key=lambda one: one[0] or 0, default=(0, "cut"))[1]


def _source(partition: Partition, outcome: StartOutcome, base: int) -> str:
    """Return the name that the log of a segment has now."""
    pieces: tuple[FileRange, ...] = next(
        pieces for name, pieces in outcome.logs.items() if name.startswith(f"{base:020}.") and pieces
    )
    return pieces[0].name


def kept(outcome: StartOutcome, logs: SurveyedLogs, unserved: FileRange | None) -> Amount:
    """Return the future content of the logs that is served.  Raises UnreadableError."""
    pieces = [piece for pieces in outcome.logs.values() for piece in pieces]
    if unserved is not None:
        pieces = [one if one.name != unserved.name else one._replace(end=unserved.start) for one in pieces]
    return total([Amount(logs.count_records(name, start, end).records, end - start) for name, start, end in pieces])


def offsets(partition: Partition, outcome: StartOutcome) -> dict[FileKind, int | None]:
    """Return the changes of the log dir's checkpoints, except a broker's own bookkeeping."""
    changed: dict[FileKind, int | None] = {}
    for kind, said in (
        (FileKind.RECOVERY_POINTS, partition.recovery_point),
        (FileKind.HIGH_WATERMARKS, partition.high_watermark),
    ):
        if said is not None and said > outcome.log_end:
            changed[kind] = outcome.log_end
    cleaned = partition.cleaner_offset
    if cleaned is not None and not outcome.log_start <= cleaned <= outcome.log_end:
        changed[FileKind.CLEANER_OFFSETS] = None
    return changed
