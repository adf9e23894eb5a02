"""`klog remote attach` from a tier to a plan.

result = attach(AttachRequest(open_tier("tier"), ["data"]), AttachOptions(now_ms), PlanOptions("attach", apply=True))
result.attached, result.refused, result.plan, result.next
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from klog.base.errors import KlogError, counted, offsets_text
from klog.change.partition_plan import checkpoints
from klog.change.plan.draft import Draft
from klog.change.plan.model import Loss
from klog.change.plan.reporter import Reporter
from klog.change.plan.session import PlanOptions, PlanSession
from klog.change.plan.staging import Staging
from klog.cluster.remote_log.events import TopicIdPartition
from klog.cluster.remote_log.remote_log import read_remote_log
from klog.commands.remote.attach.local_log import EmptyLog, LogBeginning, local_log
from klog.commands.remote.attach.lost_cluster import LostCluster, decided_ends
from klog.commands.remote.attach.modes import FoundPartition, ModeFinder
from klog.commands.remote.attach.next_steps import next_steps
from klog.commands.remote.attach.partition_drafts import (
    PartitionDrafts,
    draft_epochs,
    draft_log,
    new_drafts,
    remove_files,
)
from klog.commands.remote.attach.refusal import AttachRefusal, NotAttachedError, refuse
from klog.commands.remote.attach.remote_records import CheckpointLines, RemoteRecords
from klog.commands.remote.attach.result import AttachedPartition, AttachMode, AttachResult
from klog.commands.remote.attach.target import TargetBroker, local_state
from klog.commands.remote.attach.topic_records import ClusterChange, NewTopic, metadata_drafts
from klog.commands.remote.attach.wanted import NothingWantedError, WantedTopic, Wish, wanted_topics
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.partition import Partition
from klog.data_dir.selection import PartitionQuery
from klog.formats.internal_topics import REMOTE_LOG_METADATA
from klog.formats.names import FileKind
from klog.formats.producer_snapshot import Producer
from klog.formats.remote_log import SegmentState
from klog.partition.start.record_tally import EVERYTHING, tally_records
from klog.tier.tier import Tier, TierListing

ABORT, REFUSE = OPEN_TRANSACTIONS = ("abort", "refuse")
DROP, KEEP = PRODUCERS = ("drop", "keep")


class AttachRequest(NamedTuple):
    """*into*: the log dirs of one broker; *lost*: those of the cluster that is gone."""

    tier: Tier
    into: Sequence[str]
    lost: Sequence[str] = ()
    wish: Wish = Wish()


@dataclass(frozen=True)
class AttachOptions:
    """The options.

    *now_ms*: time of markers and records.  *replace*: what is in the way goes to the backup.  *producers*: KEEP, DROP,
    or None: keep them within one cluster.  *open_transactions*: ABORT or REFUSE.  *settings*: of new topics.
    *from_offset*: the first offset that is wanted.
    """

    now_ms: int
    replace: bool = False
    producers: str | None = None
    open_transactions: str = ABORT
    settings: Mapping[str, str] = field(default_factory=dict)
    from_offset: int | None = None


class Attachment:
    """Collects the changes, partition by partition."""

    def __init__(
        self,
        target: TargetBroker,
        stagings: Sequence[Staging],
        request: AttachRequest,
        options: AttachOptions,
        listing: TierListing,
    ) -> None:
        self._target, self._stagings, self._options = target, stagings, options
        self._lost = LostCluster(request.lost, listing.ids())
        here = read_remote_log(target.log_dirs, watched=listing.ids(), cluster=target.cluster)
        if here.faults or here.refused.count:
            why = next((one.message for one in here.faults), "a record that no broker can read")
            raise KlogError(f"{REMOTE_LOG_METADATA}: {why}; nothing is attached beside damage")
        self._topics = wanted_topics(request.tier, listing, target, self._lost, request.wish)
        self._modes = ModeFinder(
            target, request.tier, listing, here, self._lost, options.from_offset, replaces=options.replace
        )
        self._records = RemoteRecords(target, stagings, options.now_ms)
        self._lines: list[CheckpointLines] = [{} for _ in target.log_dirs]
        self._drafts: list[PartitionDrafts] = []
        self._new: list[NewTopic] = []
        self._raised: dict[tuple[str, int], int] = {}
        self._kept_producers: set[int] = set()
        self.attached: list[AttachedPartition] = []
        self.refused: list[AttachRefusal] = []
        self.notes: list[str] = []
        self.losses: list[Loss] = []

    def add_all(self) -> None:
        """Plan every topic that is wanted.  Raises OSError (staging)."""
        for topic in self._topics:
            known_id = self._target.cluster.topic_ids.get(topic.name)
            try:
                self._check_topic(topic, known_id)
            except NotAttachedError as error:
                self.refused += [error.refusal._replace(partition=one.number) for one in topic.partitions]
                continue
            if known_id == topic.topic_id:
                for whose in topic.partitions:
                    self._add(whose, self._modes.existing)
            else:
                self._add_topic(topic, known_id)

    def _check_topic(self, topic: WantedTopic, known_id: str | None) -> None:
        """Raise NotAttachedError for a topic of which nothing can be attached."""
        cluster, whose = self._target.cluster, topic.partitions[0]
        other = cluster.state.topics.names.get(topic.topic_id)
        others = ", ".join(map(str, self._target.other_controllers))
        if topic.is_ambiguous:
            message = "the tier has objects of several topics of this name"
            raise refuse(whose, "topic-id-differs", message, "--topic-id ID chooses one")
        if self._lost.in_use is not None:
            message = f"{self._lost.in_use}: two clusters must not use one tier"
            raise refuse(whose, "lock-held", message, "stop that broker for good")
        if other not in (None, topic.name):
            message = f"the cluster has the topic id {topic.topic_id} as {other}"
            raise refuse(whose, "topic-id-differs", message, f"--as {other}")
        if known_id not in (None, topic.topic_id) and not self._options.replace:
            message = f"the cluster's {topic.name} has the id {known_id}, the objects have {topic.topic_id}"
            advice = "--replace removes that topic, and keeps its directories in the backup"
            raise refuse(whose, "topic-id-differs", message, advice)
        if known_id == topic.topic_id and not cluster.is_tiered(topic.name):
            advice = f"kafka-configs --alter --topic {topic.name} --add-config remote.storage.enable=true"
            raise refuse(whose, "tiering-off", "the topic does not have remote.storage.enable=true", advice)
        if known_id != topic.topic_id and others:
            message = f"the metadata log has other controllers ({others}), which would not have the new topic"
            raise refuse(whose, "several-controllers", message, "attach on a node that is the only controller")
        if known_id != topic.topic_id and "compact" in self._settings(topic).get("cleanup.policy", ""):
            message = "a compacted topic cannot be in remote storage"
            raise refuse(whose, "compacted", message, "--set cleanup.policy=delete")

    def _settings(self, topic: WantedTopic) -> dict[str, str]:
        """Return the settings of a new topic."""
        given = {**self._lost.settings(topic.topic_id), **self._options.settings}
        return {"retention.ms": "-1", "retention.bytes": "-1", **given, "remote.storage.enable": "true"}

    def _add(
        self, whose: TopicIdPartition, find: Callable[[TopicIdPartition], FoundPartition]
    ) -> FoundPartition | None:
        """Plan a partition; return it, None if it is refused."""
        try:
            found = find(whose)
            found.offer.check()
            self._plan(found)
        except NotAttachedError as error:
            self.refused.append(error.refusal)
            return None
        return found

    def _add_topic(self, topic: WantedTopic, known_id: str | None) -> None:
        """Plan a topic that the cluster does not have; partitions that are not attached are made empty."""
        found = {whose.number: self._add(whose, self._modes.new) for whose in topic.partitions}
        attached = {number: one.leader_epoch for number, one in found.items() if one is not None}
        if not attached:
            return
        count = max(self._lost.partitions(topic.topic_id), max(topic.every) + 1)
        empty = [number for number in range(count) if number not in attached]
        if empty:
            names = ", ".join(f"{topic.name}-{number}" for number in empty)
            self.notes.append(f"{names}: created empty; attach what is remote of it before the first start, or never")
        if not self._lost.partitions(topic.topic_id):
            self.notes.append(
                f"{topic.name}: created with {counted(count, 'partition')}, by the highest number in the tier, which"
                " does not show how many it had: with another number, keys are in other partitions"
            )
        epochs = {number: attached.get(number, 0) for number in range(count)}
        self._new.append(NewTopic(topic.name, topic.topic_id, epochs, self._settings(topic), known_id))
        if known_id is not None:
            self._remove_others(topic, set(attached))

    def _remove_others(self, topic: WantedTopic, attached: set[int]) -> None:
        """Remove the directories of a topic that is replaced, but for those that have a new log."""
        for at, partition in self._target.directories_of(topic.name):
            if partition.number not in attached or at != 0:
                drafts = new_drafts(self._target, self._stagings, at)
                self._lose(TopicIdPartition(topic.name, partition.number or 0, topic.topic_id), partition)
                remove_files(drafts.files, partition, set())
                drafts.files.emptied.add(partition.directory)
                self._drafts.append(drafts)
                lines = dict.fromkeys((FileKind.LOG_STARTS, FileKind.RECOVERY_POINTS, FileKind.HIGH_WATERMARKS))
                self._lines[at].setdefault((topic.name, partition.number or 0), {**lines})

    # one partition

    def _plan(self, found: FoundPartition) -> None:
        whose, offer, here = found.whose, found.offer, found.entries.here
        finished = SegmentState.COPY_SEGMENT_FINISHED
        known = {one.segment_id for one in (here.segments.values() if here else ()) if one.state is finished}
        missing = [one._replace(broker=self._target.node_id) for one in offer.segments if one.segment_id not in known]
        log, end = None, offer.end
        if found.mode is not AttachMode.METADATA:
            log = self._new_log(found)
            end = log.end
        elif (state := found.lowered or local_state(found.place.partition)) is not None:
            end = state.end
        self._write(found, log)
        if found.mode is not AttachMode.TOPIC:
            self._raise_epoch(found)
        number, records = self._records.add(whose, missing)
        is_done = not records and log is None and found.lowered is None
        ended = log.ended if log is not None else ()
        self.attached.append(
            AttachedPartition(
                whose, found.mode, len(offer.segments), offer.first, offer.end - 1, end, found.leader_epoch, number,
                records, ended, is_done,
            )
        )  # fmt: skip
        self.notes += [*offer.notes, *offer.dead_tails(), *self._lost_end(found)]

    def _raise_epoch(self, found: FoundPartition) -> None:
        known = self._target.cluster.partition(found.whose.topic, found.whose.number)
        if known is not None and known.leader_epoch < found.leader_epoch:
            self._raised[found.whose.topic_id, found.whose.number] = found.leader_epoch

    def _new_log(self, found: FoundPartition) -> EmptyLog:
        offer = found.offer
        begin = LogBeginning(offer.end, offer.local_epochs, offer.producers())
        commits = self._ends(found, begin)
        keeps = self._keeps(found.mode)
        if keeps:
            self._kept_producers |= {one.producer_id for one in begin.producers}
        return local_log(begin, commits, self._options.now_ms, keeps_producers=keeps)

    def _ends(self, found: FoundPartition, begin: LogBeginning) -> dict[int, bool]:
        """Return how open transactions end: as the lost local log shows, else they are aborted."""
        opened = begin.open
        decided = decided_ends(self._lost.local_log(found.whose), {one.producer_id for one in opened}, begin.end)
        unsure = [one for one in opened if one.producer_id not in decided]
        if unsure and self._options.open_transactions == REFUSE:
            first = min(one.current_txn_first_offset for one in unsure)
            message = f"{counted(len(unsure), 'transaction')} from offset {first} on: nothing shows how it ended"
            raise refuse(found.whose, "open-transaction", message, "--open-transactions abort, or --from LOG_DIR")
        self.notes += [self._aborted(found.whose, one) for one in unsure]
        return {one.producer_id: decided.get(one.producer_id, False) for one in opened}

    @staticmethod
    def _aborted(whose: TopicIdPartition, one: Producer) -> str:
        return (
            f"{whose}: the transaction of producer {one.producer_id}, open from offset {one.current_txn_first_offset}"
            " on, is aborted: its end was never copied"
        )

    def _keeps(self, mode: AttachMode) -> bool:
        if self._options.producers is not None:
            return self._options.producers == KEEP
        return mode is not AttachMode.TOPIC or self._lost.cluster_id == self._target.cluster_id

    def _write(self, found: FoundPartition, log: EmptyLog | None) -> None:
        """Draft the files of a partition, and its lines in the checkpoints."""
        place, key = found.place, (found.whose.topic, found.whose.number)
        if log is None and found.lowered is None:
            return
        drafts = new_drafts(self._target, self._stagings, place.number)
        self._drafts.append(drafts)
        if log is None:
            assert found.lowered is not None
            draft_epochs(drafts, place, found.lowered.epochs)
            self._lines[place.number][key] = {FileKind.LOG_STARTS: found.lowered.log_start}
            return
        if place.partition is not None:
            self._lose(found.whose, place.partition)
        draft_log(drafts, place, found.whose.topic_id, log, self._options.now_ms)
        ends = {FileKind.RECOVERY_POINTS: log.end, FileKind.HIGH_WATERMARKS: log.end}
        self._lines[place.number][key] = {FileKind.LOG_STARTS: found.offer.first, **ends}

    def _lose(self, whose: TopicIdPartition, partition: Partition) -> None:
        if partition.size:
            records = tally_records(partition, EVERYTHING, EVERYTHING).records
            self.losses.append(Loss(whose.topic, whose.number, None, None, records, partition.size, "replaced"))

    def _lost_end(self, found: FoundPartition) -> Iterator[str]:
        """Yield a sentence about records that were in the lost local log alone."""
        state = local_state(self._lost.local_log(found.whose))
        if state is not None and found.mode is not AttachMode.METADATA and state.end > found.offer.end:
            span = offsets_text(found.offer.end, state.end - 1)
            yield f"{found.whose}: the lost local log alone had {span}, which new records get again"

    # all of it

    def drafts(self, disk: Disk) -> list[Draft]:
        """Return all drafts in their order.  Once, at the end.  Raises OSError (staging), KlogError.

        Records of `__remote_log_metadata` follow the local logs: a leader that has the records and no log deletes the
        segments.  The metadata log is the last: until then a broker sets the directories of a new topic aside.
        """
        records = self._records.drafts()
        before, after = [], []
        for number, log_dir in enumerate(self._target.log_dirs):
            lower, final = (Draft(log_dir.path, number, self._stagings[number]) for _ in range(2))
            lines = checkpoints.by_file({**self._lines[number], **self._records.lines[number]})
            checkpoints.plan_around(log_dir, {}, lines, lower, final)
            before.append(lower)
            after.append(final)
        change = ClusterChange(self._new, self._raised, max(self._kept_producers, default=None))
        metadata = metadata_drafts(self._target, change, self._stagings, self._options.now_ms, disk)
        files, last = [one.files for one in self._drafts], [one.last for one in self._drafts]
        return [*before, *files, *after, *last, *records, *metadata]


def attach(
    request: AttachRequest,
    options: AttachOptions,
    plan_options: PlanOptions,
    reporter: Reporter | None = None,
    disk: Disk | None = None,
) -> AttachResult:
    """Plan to attach, and apply the plan if requested.

    Raises UsageError, KlogError if the broker has never run with remote storage, OSError.
    """
    with PlanSession(PartitionQuery(request.into), plan_options, disk, reporter) as session:
        listing = request.tier.list_segments()
        if not listing.partitions:
            raise NothingWantedError(f"{request.tier.uri}: no objects of a partition")
        target = TargetBroker([one.log_dir for one in session.selections])
        attachment = Attachment(target, session.staging, request, options, listing)
        attachment.add_all()
        result = session.finish(attachment.drafts(session.disk), losses=attachment.losses)
    steps = next_steps(request.tier, target, attachment.attached)
    return AttachResult(attachment.attached, attachment.refused, result, attachment.notes, steps)
