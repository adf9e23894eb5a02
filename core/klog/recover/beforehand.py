"""A partition as a broker's own unclean start and clean stop would leave it, if nothing wrong would be left in it."""

from __future__ import annotations

import os

from klog.broker_start.load import StartOutcome
from klog.data_dir.partition import Partition
from klog.formats.names import FileKind, PartitionState
from klog.partition_plan.contents import StoredContent
from klog.plan.draft import Draft
from klog.progress import Sink
from klog.recover import like_broker
from klog.recover.outcome import RecoverOptions, RecoverResult
from klog.recover.rebuild import ENDS, OF_INDEXES, RebuildOutcome, base_of, plan_outcome, problems
from klog.recover.survey import PartitionSurvey
from klog.verify.facts import LogDirFacts
from klog.verify.findings import Finding

_RIGHTED = frozenset({"recovery-point-beyond-end", "high-watermark-beyond-end", "snapshots-missing"})
"""What every unclean start puts right."""


def plan(
    partition: Partition, around: LogDirFacts, settings: RecoverOptions, draft: Draft, sink: Sink
) -> RecoverResult:
    """Say to *draft* what a broker's unclean start and clean stop change, when nothing is wrong that they would leave.

    All of the partition's files have to be on the disk afterwards, for a broker that starts cleanly never syncs what
    is below its log end.  Raises UnreadableError, OSError (staging).
    """
    examined = PartitionSurvey(partition, around, settings, sink)
    result = RecoverResult(partition, examined.findings)
    if examined.fails is not None:
        result.fails = examined.fails
        return result
    outcome = like_broker.play(examined.original, False, settings, sink)
    if outcome.fails is not None:
        result.fails = f"a broker does not come through its start here: {outcome.fails}"
        return result
    judged = plan_outcome(examined, settings)
    result.left = _left(examined, judged, outcome)
    if result.left:
        return result
    result.fails = _cuts_otherwise(examined, judged, outcome)
    if result.fails is not None:
        return result
    like_broker.follow(outcome, result, draft, examined.logs)
    result.offsets = _offsets(partition, outcome, result)
    draft.rely_on_directory(partition.directory, sync=True)
    return result


def _offsets(partition: Partition, outcome: StartOutcome, result: RecoverResult) -> dict[FileKind, int | None]:
    """Return what changes in the checkpoints: they are about partitions that are in use, or going to be."""
    if partition.state is PartitionState.STRAY:
        return {}
    changed = dict(result.offsets)
    if partition.recovery_point != outcome.log_end:
        changed[FileKind.RECOVERY_POINTS] = outcome.log_end
    return changed


def _left(examined: PartitionSurvey, judged: RebuildOutcome, outcome: StartOutcome) -> list[Finding]:
    """Return what is wrong and would still be so after the broker's own start and stop."""
    rest = [one for one in problems(examined.findings) if one not in judged.left]
    return judged.left + [one for one in rest if not _is_righted(one, examined, outcome)]


def _is_righted(finding: Finding, examined: PartitionSurvey, outcome: StartOutcome) -> bool:
    if finding.id in _RIGHTED or finding.id in ENDS:
        return True
    if finding.id.startswith(OF_INDEXES):
        return base_of(finding) in outcome.recovered
    if finding.id == "snapshot-corrupt":
        return not isinstance(outcome.files.get(os.path.basename(finding.file)), StoredContent)
    return finding.id.startswith("epochs-") and like_broker.epochs_hold(examined, outcome)


def _cuts_otherwise(examined: PartitionSurvey, judged: RebuildOutcome, outcome: StartOutcome) -> str | None:
    """Return where the broker would not cut just what is broken, in words; None where it would."""
    theirs = {cut.base: cut.size for cut in outcome.cuts}
    odd = {base for base in judged.cuts.keys() | theirs.keys() if judged.cuts.get(base) != theirs.get(base)}
    whole = {one.files.base_offset for one in examined.facts.segments if one.survey.batches}
    odd = odd.difference(outcome.dropped) | whole.intersection(outcome.dropped)
    if not odd:
        return None
    return f"what a broker's recovery would cut from segment {min(odd)} is not just what is broken there"
