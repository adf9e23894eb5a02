"""From log dirs to a plan: every partition by itself, then the log dirs' own files.

recovery = Recovery([Target(log_dir, log_dir.partitions)], settings, [staging], options)
recovery.results            # what came of each partition
recovery.drafts             # what is to be done about them, for klog.plan.draft.make_plan
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import Selection
from klog.errors import KlogError, UnreadableError
from klog.formats.names import FileKind, PartitionState
from klog.metadata.topic_config import TopicConfig
from klog.partition_plan import checkpoints
from klog.plan.draft import Draft
from klog.plan.model import NOTHING, Amount, Loss
from klog.plan.staging import Staging
from klog.progress import Silence, Sink
from klog.recover import rebuild
from klog.recover.outcome import OtherMode, RecoverMode, RecoverOptions, RecoverResult
from klog.recover.rebuild import ENDS, OFFSET_KINDS
from klog.recover.survey import PartitionSurvey
from klog.verify.facts import LogDirFacts, is_left_alone
from klog.verify.findings import Finding, Severity
from klog.verify.log_dir_checks import root
from klog.verify.verify import log_dir_facts

_ASIDE = (
    "a broker has set it aside or is about to delete it; what is still wanted is repaired once it has its name back"
)
_MENDED = "checkpoint-malformed"
_STOPS = frozenset({"bad-marker", "txn-conflict"})
"""Batches of producers at which a broker's recovery stops, or fails."""
_INTERVAL, _INDEX_BYTES = "index.interval.bytes", "segment.index.bytes"


class Recovery:
    """What is to be done about *targets*, and what was found out on the way.

    *staging*: for each target, where new content waits.  *options*: settings of topics, by their names.
    """

    def __init__(
        self,
        targets: Sequence[Selection],
        settings: RecoverOptions,
        staging: Sequence[Staging],
        options: Mapping[str, str],
        sink: Sink | None = None,
    ) -> None:
        self.results: list[RecoverResult] = []
        self.drafts: list[Draft] = []
        self.findings: list[Finding] = []
        self.left: list[Finding] = []
        self.skipped: list[Partition] = []
        self._settings, self._staging = settings, staging
        self._sink = sink or Silence()
        # Of the log dirs of a broker one has the metadata log, which knows the settings for all.
        log_dirs = [target.log_dir for target in targets]
        self._topics = TopicConfig(next((one for one in log_dirs if one.metadata_log), log_dirs[0]), options)
        self._run(targets)

    def _run(self, targets: Sequence[Selection]) -> None:
        for number, target in enumerate(targets):
            self._log_dir(number, target, self._staging[number])

    def rescue(self, sink: Sink) -> int:
        """Write the records of damaged batches that decode all the same to *sink*, as lines; return how many.

        Only before the plan is carried out.  Raises UnreadableError.
        """
        from klog.salvage.rescue import rescue_partition

        records = 0
        for result in self.results:
            if any(one.id in ENDS for one in result.findings):
                records += rescue_partition(result.partition, sink).records
        return records

    def _log_dir(self, number: int, target: Selection, staging: Staging) -> None:
        log_dir = target.log_dir
        around = log_dir_facts(log_dir)
        changes: dict[FileKind, dict[tuple[str, int], int | None]] = {}
        for partition in target.partitions:
            if self._skips(partition):
                if partition.directory in target.named and partition.state is not PartitionState.CURRENT:
                    self.results.append(RecoverResult(partition, fails=_ASIDE))
                    self.results[-1].broker_would_keep = NOTHING
                else:
                    self.skipped.append(partition)
                continue
            draft = Draft(log_dir.path, number, staging)
            found = {name: self._topics.value(partition.topic, name) for name in (_INTERVAL, _INDEX_BYTES)}
            interval, index_bytes = found[_INTERVAL].number, found[_INDEX_BYTES].number
            settings = self._settings._replace(interval=interval, index_bytes=index_bytes)
            result = self._partition(partition, around, settings, draft)
            result.settings = found
            if draft.actions:
                draft.rely_on_directory(partition.directory)
            self.results.append(result)
            self.drafts.append(draft)
            for kind, offset in result.offsets.items():
                changes.setdefault(kind, {})[(partition.topic or "", partition.number or 0)] = offset
        self._own_files(log_dir, target.whole, changes, Draft(log_dir.path, number, staging))

    def _skips(self, partition: Partition) -> bool:
        return is_left_alone(partition)

    def _own_files(
        self, log_dir: LogDir, whole: bool, changes: Mapping[FileKind, checkpoints.Changes], draft: Draft
    ) -> None:
        mend = whole and self._settings.mode is not RecoverMode.LIKE_BROKER and not self._settings.indexes_only
        checkpoints.plan(log_dir, changes, draft, mend=mend)
        self.drafts.append(draft)
        if whole:
            found = list(root(log_dir))
            self.findings += found
            self.left += [
                one for one in found if one.severity is not Severity.NOTE and not (mend and one.id == _MENDED)
            ]

    def _partition(
        self, partition: Partition, around: LogDirFacts, settings: RecoverOptions, draft: Draft
    ) -> RecoverResult:
        try:
            if settings.mode is RecoverMode.LIKE_BROKER:
                from klog.recover import like_broker

                return like_broker.plan(partition, around, settings, draft, self._sink)
            examined = PartitionSurvey(partition, around, settings, self._sink)
            if settings.mode is RecoverMode.SALVAGE or settings.repair_bits:
                from klog.recover import salvage

                result = salvage.plan(examined, settings, draft, self._sink)
            else:
                result = rebuild.plan(examined, settings, draft)
            self._compare(result, examined, settings)
        except KlogError as error:
            draft.actions.clear()
            return RecoverResult(partition, fails=str(error), could_not=True)
        return result

    def _compare(self, result: RecoverResult, examined: PartitionSurvey, settings: RecoverOptions) -> None:
        """Say what a broker would keep, and where damage is left, what the other ways cost."""
        # Only these can make a recovery cut, or fail; playing it is a second pass over the log.
        may_cut = any(one.id in ENDS | OFFSET_KINDS | _STOPS for one in examined.findings)
        if not may_cut or examined.fails is not None:
            result.broker_would_keep = result.kept
            return
        from klog.recover import like_broker

        try:
            outcome = examined.next_start()
            fails = outcome.fails
        except UnreadableError as error:  # the repair went around that
            fails = str(error)
        choices: dict[RecoverMode, OtherMode] = {}
        if fails is not None:
            result.notes.append(f"a broker would not start: {fails}")
        else:
            result.broker_would_keep = like_broker.kept(outcome, examined.logs)
            lost = like_broker.losses(examined.original, outcome, examined.findings, examined.logs)
            choices[RecoverMode.LIKE_BROKER] = OtherMode(lost, result.broker_would_keep)
        if settings.mode is RecoverMode.DEFAULT and any(one.id in ENDS | OFFSET_KINDS for one in result.left):
            from klog.recover import salvage
            from klog.salvage.dropped import SalvageOptions
            from klog.salvage.segment_ranges import salvage_ranges

            found = salvage_ranges(examined.partition, SalvageOptions(settings.repair_bits))
            lost = [loss for segment in found.segments for loss in salvage.losses(examined, segment)]
            result.choices = {**choices, RecoverMode.SALVAGE: OtherMode(lost, salvage.kept(found))}

    # what it comes to

    @property
    def losses(self) -> list[Loss]:
        """Everything that will be gone."""
        return [loss for result in self.results for loss in result.losses]

    @property
    def kept(self) -> Amount:
        """What the logs that were looked at will hold."""
        return _sum(result.kept for result in self.results)

    @property
    def broker_would_keep(self) -> Amount | None:
        """What a broker would keep of them; None where it would not start."""
        amounts = [result.broker_would_keep for result in self.results]
        return None if None in amounts else _sum(amount for amount in amounts if amount is not None)


def _sum(amounts: Iterable[Amount]) -> Amount:
    total = NOTHING
    for amount in amounts:
        total = total.plus(amount)
    return total
