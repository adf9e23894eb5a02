"""What a broker of 4.x would make of a partition at its next start, as a repair."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence

from klog.check.facts import LogDirFacts
from klog.check.findings import Finding
from klog.draft import Draft
from klog.formats.names import FileKind
from klog.lanes import Silence, Sink
from klog.partition import Partition
from klog.plan import Amount, Loss
from klog.recover import amounts, broker_load
from klog.recover.broker_files import Piece
from klog.recover.broker_load import Cut, Outcome, Start
from klog.recover.broker_producers import Clock
from klog.recover.examined import Examined
from klog.recover.rebuild import ENDS, OFFSET_KINDS, base_of
from klog.recover.result import Result, Settings
from klog.recover.target import Target, write


def play(partition: Partition, clean: bool, settings: Settings, sink: Sink | None = None) -> Outcome:
    """Return what the start comes to; *clean*: it follows a clean stop.  Raises UnreadableError."""
    name = partition.name
    assert name is not None
    offset = partition.checkpoints.offset
    recovery_point = offset(FileKind.RECOVERY_POINTS, name.topic, name.partition) or 0
    log_start = offset(FileKind.LOG_STARTS, name.topic, name.partition) or 0
    clock = Clock(settings.now_ms, settings.expiration_ms)
    return broker_load.load(partition, Start(clean, recovery_point, log_start), settings.reading, clock, sink)


def plan(
    partition: Partition, around: LogDirFacts, settings: Settings, draft: Draft, sink: Sink | None = None
) -> Result:
    """Say to *draft* what a broker would change.  Raises UnreadableError, OSError (staging).

    Findings are only looked for where a broker fails, or something is lost: it takes a second pass.
    """
    result = Result(partition)
    outcome = play(partition, around.clean, settings, sink)
    if outcome.fails is not None or outcome.cuts or outcome.dropped:
        close = settings._replace(from_recovery_point=_is_above_recovery_point(partition, outcome))
        result.findings = Examined(partition, around, close, Silence()).findings
    follow(outcome, result, draft)
    return result


def _is_above_recovery_point(partition: Partition, outcome: Outcome) -> bool:
    """Whether a start looks at nothing below the recovery point: an index that is missing leads it there."""
    bases = [files.base_offset for files in partition.segments]
    if outcome.fails is not None or not bases:
        return False
    first = bases[max(bisect_right(bases, partition.recovery_point or 0) - 1, 0)]
    return all(base >= first for base in outcome.recovered)


def follow(outcome: Outcome, result: Result, draft: Draft) -> None:
    """Say to *draft* what changes, and to *result* what that means.  Raises UnreadableError, OSError (staging)."""
    partition = result.partition
    if outcome.fails is not None:
        result.fails = f"a broker does not come through its start here: {outcome.fails}"
        return
    write(draft, partition, Target(outcome.logs, outcome.files, outcome.epochs))
    result.losses = losses(partition, outcome, result.findings)
    if result.losses:
        result.kept = kept(partition, outcome)
    result.broker_would_keep = result.kept
    result.offsets = offsets(partition, outcome)


def losses(partition: Partition, outcome: Outcome, findings: Sequence[Finding]) -> list[Loss]:
    """Return what goes: ends of segments, and segments.

    The reason is the one of *findings* that the start stumbles over; for segments the one before them.
    """
    found, reason = [], "log-start-beyond-end"
    for cut in outcome.cuts:
        name, reason = _source(partition, outcome, cut.base), _reason(cut, findings)
        found.append(amounts.cut_loss(partition, name, cut.size, cut.offset, reason))
    dropped = [segment.log for segment in partition.segments if segment.base_offset in outcome.dropped]
    return found + amounts.whole_loss(partition, dropped, reason)


def _reason(cut: Cut, findings: Sequence[Finding]) -> str:
    """Return the id of what is found where a log is cut, or next behind that; without any "cut"."""
    ids = [
        (one.position, one.id)
        for one in findings
        if one.id in ENDS | OFFSET_KINDS and base_of(one) == cut.base and (one.position or 0) >= cut.size
    ]
    return min(ids, key=lambda one: one[0] or 0, default=(0, "cut"))[1]


def _source(partition: Partition, outcome: Outcome, base: int) -> str:
    """Return the name that the log of a segment has now."""
    pieces: tuple[Piece, ...] = next(
        pieces for name, pieces in outcome.logs.items() if name.startswith(f"{base:020}.") and pieces
    )
    return pieces[0].name


def kept(partition: Partition, outcome: Outcome) -> Amount:
    """Return what the logs will hold.  Raises UnreadableError."""
    total = Amount(0, 0)
    for pieces in outcome.logs.values():
        for name, start, end in pieces:
            records = amounts.content(os.path.join(partition.path, name), start, end).records
            total = total.plus(Amount(records, end - start))
    return total


def offsets(partition: Partition, outcome: Outcome) -> dict[FileKind, int | None]:
    """Return what changes in the log dir's checkpoints, but for what a broker keeps house with."""
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
