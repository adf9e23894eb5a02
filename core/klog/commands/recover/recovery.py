"""From log dirs to a plan: every partition separately, then the files of the log dirs.

recovery = recover_log_dirs([Selection(log_dir, log_dir.partitions)], options, [staging], {})
recovery.results            # what came of each partition
recovery.drafts             # what is to be done about them, for klog.change.plan.draft.make_plan
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from klog.base.errors import KlogError, UnreadableError
from klog.base.progress import Silence, Sink
from klog.change.partition_plan import checkpoints
from klog.change.plan.draft import Draft
from klog.change.plan.model import NOTHING, Amount, Loss, total
from klog.change.plan.staging import Staging
from klog.cluster.metadata.topic_config import TopicConfig
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import Selection
from klog.formats.names import FileKind, PartitionState
from klog.partition.repair import rebuild
from klog.partition.repair.partition_survey import PartitionSurvey
from klog.partition.repair.rebuild import ENDS, OFFSET_KINDS
from klog.partition.repair.recover_outcome import OtherMode, RecoverMode, RecoverOptions, RecoverResult
from klog.partition.verify.findings import Finding, LogDirFacts, Severity, is_left_alone
from klog.partition.verify.log_checks import BIT_REPAIR
from klog.partition.verify.state_checks import root
from klog.partition.verify.verify import log_dir_facts

_ASIDE = "a broker has set it aside or will delete it; to repair it, first rename the directory to its original name"
_MENDED = "checkpoint-malformed"
_STOPS = frozenset({"bad-marker", "txn-conflict"})
"""Batches of producers at which a broker's recovery stops, or fails."""
_INTERVAL, _INDEX_BYTES = "index.interval.bytes", "segment.index.bytes"


@dataclass
class Recovery:
    """The findings of a repair of log dirs, and its changes.

    *findings*: about the log dirs' own files; *places*: the log dir of each; *left*: those of them that remain.
    *skipped*: partitions that no repair touches.
    """

    results: list[RecoverResult] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    left: list[Finding] = field(default_factory=list)
    skipped: list[Partition] = field(default_factory=list)

    def extend(self, other: Recovery) -> None:
        """Add the results of another log dir."""
        self.results += other.results
        self.drafts += other.drafts
        self.findings += other.findings
        self.places += other.places
        self.left += other.left
        self.skipped += other.skipped

    def rescue(self, sink: Sink) -> int:
        """Write the records of damaged batches that decode all the same to *sink*, as lines; return how many.

        Call it before the plan is applied.  Raises UnreadableError.
        """
        from klog.commands.recover.rescued_records import rescue_partition

        records = 0
        for result in self.results:
            if any(one.id in ENDS for one in result.findings):
                records += rescue_partition(result.partition, sink).records
        return records

    @property
    def losses(self) -> list[Loss]:
        """The losses of all partitions."""
        return [loss for result in self.results for loss in result.losses]

    @property
    def kept(self) -> Amount:
        """The future content of the logs that were survey."""
        return total(result.kept for result in self.results)

    @property
    def broker_would_keep(self) -> Amount | None:
        """The amount that a broker would keep; None if it would not start."""
        amounts = [result.broker_would_keep for result in self.results]
        return None if None in amounts else total(amount for amount in amounts if amount is not None)


class RecoverPolicy(Protocol):
    """The partitions of a log dir that are repaired, and the way."""

    def skips(self, partition: Partition) -> bool:
        """Whether a partition is not looked at."""

    def plan(self, partition: Partition, around: LogDirFacts, options: RecoverOptions, draft: Draft) -> RecoverResult:
        """Add the repair of a partition to *draft*; impossible parts are in the result.  Raises OSError (staging)."""

    def plan_own_files(
        self, log_dir: LogDir, whole: bool, changes: Mapping[FileKind, checkpoints.Changes], draft: Draft
    ) -> tuple[list[Finding], list[Finding]]:
        """Add the changes of the log dir's own files to *draft*; return the findings there, and those that will remain.

        *whole*: all of its partitions were surveyed.  Raises OSError (staging).
        """


def recover_log_dirs(
    selections: Sequence[Selection],
    options: RecoverOptions,
    staging: Sequence[Staging],
    topic_options: Mapping[str, str],
    sink: Sink | None = None,
) -> Recovery:
    """Survey partitions of log dirs, and draft their repair.

    *staging*: for each log dir, the place of new content.  *topic_options*: settings of all topics, by their names.
    Raises OSError (staging).
    """
    topics, policy, found = topic_config(selections, topic_options), _Repair(options, sink or Silence()), Recovery()
    for number, selection in enumerate(selections):
        found.extend(recover_log_dir(number, selection, options, staging[number], topics, policy))
    return found


def topic_config(selections: Sequence[Selection], topic_options: Mapping[str, str]) -> TopicConfig:
    """Return the settings of topics: one of a broker's log dirs has the metadata log, which has them for all."""
    log_dirs = [selection.log_dir for selection in selections]
    return TopicConfig(next((one for one in log_dirs if one.metadata_log), log_dirs[0]), topic_options)


def recover_log_dir(
    number: int,
    selection: Selection,
    options: RecoverOptions,
    staging: Staging,
    topics: TopicConfig,
    policy: RecoverPolicy,
) -> Recovery:
    """Look at the partitions of one log dir, the plan's *number*-th, and draft their repair by *policy*."""
    log_dir, found = selection.log_dir, Recovery()
    around = log_dir_facts(log_dir)
    changes: dict[FileKind, dict[tuple[str, int], int | None]] = {}
    for partition in selection.partitions:
        if policy.skips(partition):
            if partition.directory in selection.named and partition.state is not PartitionState.CURRENT:
                found.results.append(RecoverResult(partition, fails=_ASIDE))
                found.results[-1].broker_would_keep = NOTHING
            else:
                found.skipped.append(partition)
            continue
        draft = Draft(log_dir.path, number, staging)
        settings = {name: topics.value(partition.topic, name) for name in (_INTERVAL, _INDEX_BYTES)}
        interval, index_bytes = settings[_INTERVAL].number, settings[_INDEX_BYTES].number
        own_options = options._replace(interval=interval, index_bytes=index_bytes)
        result = policy.plan(partition, around, own_options, draft)
        result.settings = settings
        if draft.actions:
            draft.rely_on_directory(partition.directory)
        found.results.append(result)
        found.drafts.append(draft)
        for kind, offset in result.offsets.items():
            changes.setdefault(kind, {})[(partition.topic or "", partition.number or 0)] = offset
    draft = Draft(log_dir.path, number, staging)
    found.findings, found.left = policy.plan_own_files(log_dir, selection.whole, changes, draft)
    found.places = [log_dir.path] * len(found.findings)
    found.drafts.append(draft)
    return found


class _Repair:
    """The repair that *options* ask for, except mark-clean."""

    def __init__(self, options: RecoverOptions, sink: Sink) -> None:
        self._options, self._sink = options, sink

    def skips(self, partition: Partition) -> bool:
        return is_left_alone(partition)

    def plan_own_files(
        self, log_dir: LogDir, whole: bool, changes: Mapping[FileKind, checkpoints.Changes], draft: Draft
    ) -> tuple[list[Finding], list[Finding]]:
        mend = whole and self._options.mode is not RecoverMode.LIKE_BROKER and not self._options.indexes_only
        checkpoints.plan(log_dir, changes, draft, mend=mend)
        found = list(root(log_dir)) if whole else []
        return found, [one for one in found if one.severity is not Severity.NOTE and not (mend and one.id == _MENDED)]

    def plan(self, partition: Partition, around: LogDirFacts, options: RecoverOptions, draft: Draft) -> RecoverResult:
        try:
            if options.mode is RecoverMode.LIKE_BROKER:
                from klog.commands.recover import like_broker

                return like_broker.plan(partition, around, options, draft, self._sink)
            survey = PartitionSurvey.read(partition, around, options, self._sink)
            if options.mode is RecoverMode.SALVAGE or options.repair_bits:
                from klog.commands.recover import salvage

                result = salvage.plan(survey, options, draft, self._sink)
            else:
                result = rebuild.plan(survey, options, draft)
            _compare(result, survey, options)
        except KlogError as error:
            draft.actions.clear()
            return RecoverResult(partition, fails=str(error), could_not=True)
        return result


def _compare(result: RecoverResult, survey: PartitionSurvey, settings: RecoverOptions) -> None:
    """Compute the part that a broker would keep, and, if damage is left, the losses of the other modes."""
    # Only these can make a recovery cut, or fail; playing it is a second pass over the log.
    may_cut = bool(result.losses) or any(one.id in ENDS | OFFSET_KINDS | _STOPS for one in survey.findings)
    # A broker that does not recover the log believes its index.
    may_cut |= survey.facts.log_dir.clean and any(one.id.startswith("index-") for one in survey.findings)
    if not may_cut or survey.fails is not None:
        result.broker_would_keep = result.kept
        return
    from klog.commands.recover import like_broker
    from klog.partition.start.kept_log import unserved_end

    try:
        outcome = survey.next_start()
        fails = outcome.fails
    except UnreadableError as error:  # the repair avoided that
        fails = str(error)
    choices: dict[RecoverMode, OtherMode] = {}
    if fails is not None:
        result.notes.append(f"a broker would not start: {fails}")
    else:
        unserved = unserved_end(survey.original, outcome)
        result.broker_would_keep = like_broker.kept(outcome, survey.logs, unserved)
        lost = like_broker.losses(survey.original, outcome, survey.findings, survey.logs, unserved)
        choices[RecoverMode.LIKE_BROKER] = OtherMode(lost, result.broker_would_keep)
    if settings.mode is RecoverMode.DEFAULT and any(one.id in ENDS | OFFSET_KINDS for one in result.left):
        from klog.commands.recover import salvage
        from klog.commands.recover.segment_ranges import salvage_ranges
        from klog.partition.repair.recover_outcome import SalvageOptions

        found = salvage_ranges(survey.partition, SalvageOptions(settings.repair_bits), ordered=survey.ordered)
        result.choices = {**choices, RecoverMode.SALVAGE: salvage.outcome(survey, found)}
        if any(BIT_REPAIR in one.message for one in result.left) and not settings.repair_bits:
            found = salvage_ranges(survey.partition, SalvageOptions(repair_bits=True), ordered=survey.ordered)
            mode = RecoverMode.DEFAULT if salvage.costs_nothing(found) else RecoverMode.SALVAGE
            result.bit_repairs = {mode: salvage.outcome(survey, found)}
