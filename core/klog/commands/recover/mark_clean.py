"""Does the broker's recovery in advance, and writes the clean-shutdown marker with which the broker skips its own.

With the marker a broker checks nothing.  Each partition is therefore left as the broker's own unclean start and clean
stop would leave it, and a log dir with anything in doubt is neither marked nor changed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klog.base.errors import KlogError
from klog.base.progress import Silence, Sink
from klog.change.partition_plan import checkpoints
from klog.change.partition_plan.contents import StoredContent
from klog.change.plan.draft import Draft
from klog.change.plan.staging import Staging
from klog.cluster.metadata.metadata_loader import ClusterMetadata, read_metadata
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.recover import like_broker
from klog.commands.recover.recovery import Recovery, recover_log_dir, topic_config
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import Selection
from klog.formats.internal_topics import REMOTE_LOG_METADATA
from klog.formats.names import CLUSTER_METADATA, REMOTE_INDEX_CACHE, ROOT_CHECKPOINTS, FileKind, PartitionState
from klog.formats.properties import MetaProperties, write_clean_shutdown
from klog.partition.repair.partition_survey import PartitionSurvey
from klog.partition.repair.rebuild import ENDS, RebuildOutcome, base_of, is_of_index, plan_outcome, problems
from klog.partition.repair.recover_outcome import RecoverOptions, RecoverResult
from klog.partition.start.kept_log import unserved_end
from klog.partition.start.start_files import StartOutcome
from klog.partition.verify.findings import Finding, LogDirFacts, quoted
from klog.partition.verify.state_checks import root

NOBODYS_EPOCH = -1
"""A marker with it claims nothing: controllers treat the broker as one that has recovered its logs itself.

A broker writes it as well, when it stops without an epoch.  Kafka: LogManager.shutdown.
"""

_FIXED_BY_START = frozenset({"recovery-point-beyond-end", "high-watermark-beyond-end", "snapshots-missing"})
"""The findings that every unclean start corrects."""

_GONE = frozenset({"recovery-point-beyond-end", "high-watermark-beyond-end"})
"""Signs that records were lost."""


class MarkCleanRefusal(NamedTuple):
    """The reason why a log dir is not changed.

    *first*: the command to begin with instead; None without one.  *could_not*: the reason is not its data.
    """

    log_dir: str
    why: str
    first: str | None = None
    could_not: bool = True


class MarkCleanResult(NamedTuple):
    """A recovery of whole log dirs that ends with clean-shutdown markers.

    *marked*: the log dirs that get one; *marked_before*: those that have one.  *refusals*: why others get none.
    *epoch*: the broker epoch in the markers.  *log_dirs*: all of them.
    """

    recovery: Recovery
    log_dirs: list[LogDir]
    marked: list[str]
    marked_before: list[str]
    refusals: list[MarkCleanRefusal]
    epoch: int


def mark_clean(
    selections: Sequence[Selection],
    options: RecoverOptions,
    staging: Sequence[Staging],
    topic_options: Mapping[str, str],
    sink: Sink | None = None,
) -> MarkCleanResult:
    """Do the broker's recovery of whole log dirs, and draft their clean-shutdown markers.

    The arguments are those of `recover_log_dirs`.  Raises OSError (staging).
    """
    return _MarkClean(selections, options, staging).run(topic_config(selections, topic_options), sink or Silence())


class _UncleanStart:
    """The repair policy: leave each partition as the broker's own unclean start and clean stop would."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def skips(self, partition: Partition) -> bool:
        # A broker loads directories that it has set aside, too; it never recovers those that it deletes. Kafka:
        # LogLoader.load.
        return partition.topic == CLUSTER_METADATA or partition.state is PartitionState.DELETE

    def plan(self, partition: Partition, around: LogDirFacts, options: RecoverOptions, draft: Draft) -> RecoverResult:
        try:
            return plan_unclean_start(partition, around, options, draft, self._sink)
        except KlogError as error:
            draft.actions.clear()
            return RecoverResult(partition, fails=str(error), could_not=True)

    def plan_own_files(
        self, log_dir: LogDir, whole: bool, changes: Mapping[FileKind, checkpoints.Changes], draft: Draft
    ) -> tuple[list[Finding], list[Finding]]:
        checkpoints.plan(log_dir, changes, draft, mend=False)
        for file in log_dir.files:
            if file.kind in ROOT_CHECKPOINTS and file.name == file.kind.value:
                draft.rely_on(file.name, sync=True)
        found = list(root(log_dir))
        return found, problems(found)


class _MarkClean:
    def __init__(self, selections: Sequence[Selection], options: RecoverOptions, staging: Sequence[Staging]) -> None:
        self._selections, self._options, self._staging = selections, options, staging
        self.log_dirs = [selection.log_dir for selection in selections]
        self.recovery = Recovery()
        self.marked: list[str] = []
        self.marked_before = [one.path for one in self.log_dirs if one.clean_shutdown is not None]
        self.refusals: list[MarkCleanRefusal] = []
        self._twice = _twice(self.log_dirs)
        self._metadata = _metadata(self.log_dirs)

    def run(self, topics: TopicConfig, sink: Sink) -> MarkCleanResult:
        policy = _UncleanStart(sink)
        for number in range(len(self._selections)):
            self._recover(number, topics, policy)
        epoch = self._mark()
        return MarkCleanResult(self.recovery, self.log_dirs, self.marked, self.marked_before, self.refusals, epoch)

    def _recover(self, number: int, topics: TopicConfig, policy: _UncleanStart) -> None:
        selection, staging = self._selections[number], self._staging[number]
        log_dir = selection.log_dir
        if log_dir.clean_shutdown is not None:
            return
        if _is_only_metadata(log_dir) and len(self.log_dirs) > 1:
            self.recovery.skipped += log_dir.partitions
            return
        why = self._unfit(log_dir) if selection.whole else "an earlier plan is half done in one of its partitions"
        if why is not None:
            self.refusals.append(MarkCleanRefusal(log_dir.path, why))
            return
        found = recover_log_dir(number, selection, self._options, staging, topics, policy)
        self.recovery.extend(found)
        refusal = _doubt(log_dir, found.results)
        if refusal is None:
            self.marked.append(log_dir.path)
        else:
            self.refusals.append(refusal)
            self._discard(number)

    def _unfit(self, log_dir: LogDir) -> str | None:
        """Return why the effect of a marker there is unknown."""
        if not isinstance(log_dir.meta, MetaProperties):
            return "without a valid meta.properties a broker does not start"
        if _is_only_metadata(log_dir):
            return "it has only the metadata log, which a broker recovers at each start, even with the marker"
        twice = sorted(one.directory for one in log_dir.partitions if _key(log_dir, one) in self._twice)
        if twice:
            return f"{twice[0]} exists twice: a broker does not start"
        metadata = self._metadata.get(_broker(log_dir))
        if _is_tiered(log_dir, metadata):
            return "tiered storage is in use, and klog does not check remote segments"
        return None

    def _discard(self, number: int) -> None:
        """Discard the draft of a log dir."""
        path = os.path.abspath(self.log_dirs[number].path)
        self.recovery.drafts = [draft for draft in self.recovery.drafts if draft.number != number]
        for result in self.recovery.results:
            if result.partition.log_dir == path:
                result.losses = []
        self._staging[number].discard()

    # the markers

    def _mark(self) -> int:
        """Draft the markers, after all other changes of all log dirs; return the broker epoch in them."""
        claimed = NOBODYS_EPOCH
        if self._options.registered and self.marked:
            epoch = self._registered()
            if isinstance(epoch, str):
                self._refuse_all(epoch)
            else:
                claimed = epoch
        brokers = {_broker(one) for one in self.log_dirs if one.path in self.marked}
        # Existing markers are deleted first, because a broker with different epochs in its markers may believe one of
        # them.
        before = [n for n, one in enumerate(self.log_dirs) if one.path in self.marked_before]
        new = [n for n, one in enumerate(self.log_dirs) if one.path in self.marked]
        for number in (*(n for n in before if _broker(self.log_dirs[n]) in brokers), *new):
            log_dir = self.log_dirs[number]
            # A ZooKeeper broker has no epoch of its own, and writes an empty file.
            content = write_clean_shutdown(claimed) if log_dir.is_kraft else b""
            draft = Draft(log_dir.path, number, self._staging[number])
            time_ns = self._options.now_ms * 1_000_000
            draft.put(FileKind.CLEAN_SHUTDOWN.value, [content], FileKind.META_PROPERTIES.value, time_ns)
            self.recovery.drafts.append(draft)
        return claimed

    def _refuse_all(self, why: str) -> None:
        for number, log_dir in enumerate(self.log_dirs):
            if log_dir.path in self.marked:
                self.refusals.append(MarkCleanRefusal(log_dir.path, why))
                self._discard(number)
        self.marked = []

    def _registered(self) -> int | str:
        """Return the epoch of the broker's last registration, or why it must not be claimed."""
        if self.refusals:
            return "with the registered epoch, klog marks all log dirs of a broker, or none"
        brokers = {_broker(one): one for one in self.log_dirs}
        if len(brokers) != 1:
            return "the log dirs are of several brokers, whose registered epochs are not the same"
        ((broker, log_dir),) = brokers.items()
        if not log_dir.is_kraft:
            return "a ZooKeeper-era broker registers no epoch in its log dirs"
        gone = any(finding.id in _GONE for result in self.recovery.results for finding in result.findings)
        if gone or any(result.losses for result in self.recovery.results):
            return "records are lost: the registered epoch would claim that none is"
        metadata = self._metadata.get(broker)
        if metadata is None:
            return "the metadata log, which has the registered epoch, is in none of the log dirs of this node"
        if not metadata.complete:
            return f"the metadata log is damaged: {metadata.problems[0]}"
        registration = metadata.brokers.get(log_dir.node_id if log_dir.node_id is not None else -1)
        if registration is None or registration.unregistered:
            return f"the metadata log has no registration of node {log_dir.node_id}"
        for one in self.log_dirs:
            if one.clean_shutdown is not None and one.clean_shutdown.broker_epoch != registration.epoch:
                return f"{one.path} is already marked, with another epoch, and its losses are unknown"
        return registration.epoch


def _doubt(log_dir: LogDir, results: Sequence[RecoverResult]) -> MarkCleanRefusal | None:
    """Return the reason against the marker; None without one."""
    first = f"klog recover {quoted(log_dir.path)}"
    for result in results:
        if result.fails is not None:
            return MarkCleanRefusal(log_dir.path, f"{result.partition.path}: {result.fails}", first, result.could_not)
    left = [*problems(list(root(log_dir))), *(one for result in results for one in result.left)]
    if not left:
        return None
    more = f", and {len(left) - 1} more" if len(left) > 1 else ""
    return MarkCleanRefusal(log_dir.path, f"{left[0].id} in {left[0].file}{more}", first, could_not=False)


def _broker(log_dir: LogDir) -> tuple[str | None, int | None]:
    return log_dir.cluster_id, log_dir.node_id


_Key = tuple[tuple[str | None, int | None], PartitionState, str | None, int | None]
_ONCE = (PartitionState.CURRENT, PartitionState.FUTURE)


def _key(log_dir: LogDir, partition: Partition) -> _Key:
    return _broker(log_dir), partition.state, partition.topic, partition.number


def _twice(log_dirs: Sequence[LogDir]) -> set[_Key]:
    """Return the partitions that a broker has twice, in use or on their way.  Kafka: LogManager.loadLog."""
    every = ((one, part) for one in log_dirs for part in one.partitions if part.topic != CLUSTER_METADATA)
    found = Counter(_key(*pair) for pair in every if pair[1].state in _ONCE)
    return {key for key, count in found.items() if count > 1}


def _metadata(log_dirs: Sequence[LogDir]) -> dict[tuple[str | None, int | None], ClusterMetadata]:
    """Return the metadata in the log dirs' metadata logs, by their nodes."""
    found: dict[tuple[str | None, int | None], ClusterMetadata] = {}
    for log_dir in log_dirs:
        metadata = read_metadata(log_dir) if log_dir.metadata_log is not None else None
        if metadata is not None:
            found[_broker(log_dir)] = metadata
    return found


def _is_only_metadata(log_dir: LogDir) -> bool:
    return bool(log_dir.partitions) and all(one.topic == CLUSTER_METADATA for one in log_dir.partitions)


def _is_tiered(log_dir: LogDir, metadata: ClusterMetadata | None) -> bool:
    """Whether some of a log's segments may lie elsewhere; a broker starts such a log by other rules."""
    if os.path.isdir(os.path.join(log_dir.path, REMOTE_INDEX_CACHE)):
        return True
    topics = {one.topic for one in log_dir.partitions if one.topic is not None}
    configs = (metadata.topic_config(topic) for topic in topics) if metadata is not None else ()
    return REMOTE_LOG_METADATA in topics or any(one.get("remote.storage.enable") == "true" for one in configs)


def plan_unclean_start(
    partition: Partition, around: LogDirFacts, settings: RecoverOptions, draft: Draft, sink: Sink
) -> RecoverResult:
    """Add to *draft* the changes of a broker's unclean start and clean stop, if they leave no fault.

    All of the partition's files have to be synced afterwards, because a broker that starts cleanly never syncs the part
    below its log end.  Raises UnreadableError, OSError (staging).
    """
    survey = PartitionSurvey.read(partition, around, settings, sink)
    result = RecoverResult(partition, survey.findings)
    if survey.fails is not None:
        result.fails = survey.fails
        return result
    outcome = like_broker.play(survey.original, False, settings, sink)
    if outcome.fails is not None:
        result.fails = f"a broker does not complete its start here: {outcome.fails}"
        return result
    judged = plan_outcome(survey, settings)
    result.left = _remaining(survey, judged, outcome)
    if result.left:
        return result
    result.fails = _cuts_otherwise(survey, judged, outcome)
    if result.fails is not None:
        return result
    like_broker.follow(outcome, result, draft, survey.logs, unserved_end(survey.original, outcome))
    result.offsets = _changed_offsets(partition, outcome, result)
    draft.rely_on_directory(partition.directory, sync=True)
    return result


def _changed_offsets(partition: Partition, outcome: StartOutcome, result: RecoverResult) -> dict[FileKind, int | None]:
    """Return the changes of the checkpoints, for partitions that are in use or will be."""
    if partition.state is PartitionState.STRAY:
        return {}
    changed = dict(result.offsets)
    if partition.recovery_point != outcome.log_end:
        changed[FileKind.RECOVERY_POINTS] = outcome.log_end
    return changed


def _remaining(survey: PartitionSurvey, judged: RebuildOutcome, outcome: StartOutcome) -> list[Finding]:
    """Return the problems that the broker's own start and stop would leave."""
    rest = [one for one in problems(survey.findings) if one not in judged.left]
    return judged.left + [one for one in rest if not _is_fixed(one, survey, outcome)]


def _is_fixed(finding: Finding, survey: PartitionSurvey, outcome: StartOutcome) -> bool:
    if is_of_index(finding):
        return base_of(finding) in outcome.recovered
    if finding.id in _FIXED_BY_START or finding.id in ENDS:
        return True
    if finding.id == "snapshot-corrupt":
        return not isinstance(outcome.files.get(os.path.basename(finding.file)), StoredContent)
    return finding.id.startswith("epochs-") and like_broker.epochs_hold(survey, outcome)


def _cuts_otherwise(survey: PartitionSurvey, judged: RebuildOutcome, outcome: StartOutcome) -> str | None:
    """Return, in words, where the broker would truncate more or less than the damage; None if nowhere."""
    theirs = {cut.base: cut.size for cut in outcome.cuts}
    odd = {base for base in judged.cuts.keys() | theirs.keys() if judged.cuts.get(base) != theirs.get(base)}
    whole = {one.files.base_offset for one in survey.facts.segments if one.survey.batches}
    odd = odd.difference(outcome.dropped) | whole.intersection(outcome.dropped)
    if not odd:
        return None
    return f"a broker's recovery would cut intact data from segment {min(odd)}, not only damage"
