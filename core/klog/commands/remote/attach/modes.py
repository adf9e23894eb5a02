"""The missing parts of a partition in its cluster: records of the metadata, the local log, the topic."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

from klog.base.errors import KlogError, offsets_text
from klog.cluster.assigned_log_dir import future_in_place
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.cluster.remote_log.events import TopicIdPartition
from klog.cluster.remote_log.remote_log import RemoteLog
from klog.commands.remote.attach.lost_cluster import LostCluster
from klog.commands.remote.attach.offer import KnownEntries, RemoteOffer, entries_of
from klog.commands.remote.attach.refusal import NotAttachedError, refuse
from klog.commands.remote.attach.result import AttachMode
from klog.commands.remote.attach.target import LocalState, PartitionPlace, TargetBroker, local_state
from klog.formats.checkpoint import EpochEntry
from klog.formats.names import FileKind
from klog.formats.remote_log import SegmentState
from klog.tier.tier import Tier, TierListing, TierPartition

_FINISHED = SegmentState.COPY_SEGMENT_FINISHED


class FoundPartition(NamedTuple):
    """A partition that can be attached.

    *leader_epoch*: the one that the metadata must have.  *lowered*: the local log with an earlier log start, None if
    that stays.
    """

    mode: AttachMode
    offer: RemoteOffer
    place: PartitionPlace
    entries: KnownEntries
    leader_epoch: int
    lowered: LocalState | None = None

    @property
    def whose(self) -> TopicIdPartition:
        """The partition."""
        return self.offer.whose


class ModeFinder:
    """Finds it for one partition after the other.

    *here*: the content of `__remote_log_metadata`.  *first*: the first offset that is wanted, None for all.
    *replaces*: a local log in the way may go.
    """

    def __init__(
        self,
        target: TargetBroker,
        tier: Tier,
        listing: TierListing,
        here: RemoteLog,
        lost: LostCluster,
        first: int | None,
        *,
        replaces: bool,
    ) -> None:
        self._target, self._tier, self._listing, self._here, self._lost = target, tier, listing, here, lost
        self._first, self._replaces = first, replaces

    def new(self, whose: TopicIdPartition) -> FoundPartition:
        """Return a partition of a topic that the cluster does not have.  Raises NotAttachedError."""
        directory = f"{whose.topic}-{whose.number}"
        there = [one for at, one in self._target.directories_of(whose.topic) if at == 0 and one.number == whose.number]
        place = PartitionPlace(0, directory, there[0] if there else None)
        self._check_future(whose, place)
        if there and there[0].size and not self._replaces:
            raise self._not_empty(whose, f"{there[0].path} has records, of a topic that the cluster does not have")
        entries, offer = self._from_tier(whose)
        return FoundPartition(AttachMode.TOPIC, offer, place, entries, offer.top_epoch + 1)

    def existing(self, whose: TopicIdPartition) -> FoundPartition:
        """Return a partition of the cluster.  Raises NotAttachedError."""
        known = self._target.cluster.partition(whose.topic, whose.number)
        if known is None:
            message = "the cluster's topic has fewer partitions"
            raise refuse(whose, "topic-id-differs", message, f"kafka-topics --alter --topic {whose.topic}")
        try:
            place = self._target.place(whose.topic, whose.number, known)
            state = local_state(place.partition)
        except KlogError as error:
            raise refuse(whose, "target-not-empty", str(error), "klog doctor LOG_DIR") from error
        self._check_future(whose, place)
        self._check_entries(whose)
        if state is not None:
            found = self._in_place(whose, known, place, state)
            if isinstance(found, FoundPartition):
                return found
            if not state.is_empty and not self._replaces:
                raise found
        lines = self._target.log_dirs[place.number].checkpoints
        log_start = lines.offset(FileKind.LOG_STARTS, whose.topic, whose.number)
        entries, offer = self._from_tier(whose, log_start)
        return FoundPartition(AttachMode.LOG, offer, place, entries, self._leader_epoch(known, offer))

    def _check_future(self, whose: TopicIdPartition, place: PartitionPlace) -> None:
        log_dir = self._target.log_dirs[place.number]
        if (message := future_in_place(log_dir, whose.topic, whose.number)) is not None:
            raise refuse(whose, "future-in-place", message, f"klog doctor {quote(log_dir.path)}")

    # an existing log

    def _in_place(
        self, whose: TopicIdPartition, known: PartitionRegistration, place: PartitionPlace, state: LocalState
    ) -> FoundPartition | NotAttachedError:
        """Return a partition whose local log follows what is remote, or why it does not."""
        entries, wanted = self._entries(whose), self._first
        lowered = self._lowered(whose, state, wanted) if wanted is not None and wanted < state.log_start else None
        now = lowered or state
        try:
            offer = self._offer(whose, entries, now.epochs, max(now.log_start, wanted or 0)) if now.epochs else None
        except NotAttachedError as error:
            if error.refusal.id != "hole":
                raise
            return self._apart(whose, state, error)
        if offer is None:
            return self._not_empty(whose, f"{place.directory} has no leader-epoch-checkpoint")
        if offer.end < state.base:
            message = f"neither the tier nor the local log has {offsets_text(offer.end, state.base - 1)}"
            return refuse(whose, "hole", message, f"--from-offset {state.base} leaves the tier out")
        return FoundPartition(AttachMode.METADATA, offer, place, entries, self._leader_epoch(known, offer), lowered)

    def _apart(self, whose: TopicIdPartition, state: LocalState, error: NotAttachedError) -> NotAttachedError:
        """Return why a local log does not follow what is remote; *error*: of its own history."""
        objects, here = self._objects(whose).segments.values(), self._here.caches.get(whose)
        first = min(one.start_offset for one in objects)
        if state.log_start == state.base > first and not (here and here.segments):
            message = (
                f"the log start is {state.log_start}, that of the local log: a broker has started without the metadata,"
                f" or the records below were deleted; the tier has some from {first} on"
            )
            return refuse(whose, "log-start-moved", message, f"--from-offset {first} moves it back")
        if state.is_empty or max(one.start_offset for one in objects) < state.base:
            return error
        span = offsets_text(state.base, state.end - 1)
        return self._not_empty(whose, f"its local log has {span}, which do not follow what is remote")

    @staticmethod
    def _not_empty(whose: TopicIdPartition, message: str) -> NotAttachedError:
        return refuse(whose, "target-not-empty", message, "--replace removes the local log, and keeps it in the backup")

    def _lowered(self, whose: TopicIdPartition, state: LocalState, first: int) -> LocalState:
        """Return a local log that begins at *first* again, with the epochs of the tier in front of its own."""
        older = self._history(whose)
        own = state.epochs[0] if state.epochs else EpochEntry(1 << 31, state.base)
        same = [one for one in older if one.epoch == own.epoch]
        before = [one for one in older if one.epoch < own.epoch and one.start_offset < own.start_offset]
        epochs = (*before, *(same or state.epochs[:1]), *state.epochs[1:])
        return state._replace(log_start=first, epochs=epochs)

    # the tier

    def _objects(self, whose: TopicIdPartition) -> TierPartition:
        return self._listing.partitions[whose.topic_id, whose.number]

    def _entries(self, whose: TopicIdPartition) -> KnownEntries:
        lost = self._lost.remote_log
        if lost is None:
            return KnownEntries(self._here.caches.get(whose))
        return KnownEntries(self._here.caches.get(whose), entries_of(lost.caches, whose), frozenset(lost.deleted_ids))

    def _offer(
        self, whose: TopicIdPartition, entries: KnownEntries, history: Sequence[EpochEntry], first: int | None
    ) -> RemoteOffer:
        return RemoteOffer(whose, self._tier, self._objects(whose), entries, history, first)

    def _from_tier(self, whose: TopicIdPartition, log_start: int | None = None) -> tuple[KnownEntries, RemoteOffer]:
        """Return the offer for a partition without a local log here: the lost one's history counts, if it is known.

        *log_start*: that of a log that was here, None if no checkpoint has it.
        """
        entries = self._entries(whose)
        lost = local_state(self._lost.local_log(whose))
        history = lost.epochs if lost is not None else ()
        starts = (self._first, lost.log_start if lost is not None else None, log_start)
        first = next((one for one in starts if one is not None), None)
        return entries, self._offer(whose, entries, history, first)

    def _history(self, whose: TopicIdPartition) -> Sequence[EpochEntry]:
        """Return the newest epoch history in the tier."""
        return self._offer(whose, self._entries(whose), (), None).epochs

    def _check_entries(self, whose: TopicIdPartition) -> None:
        here, segments = self._here.caches.get(whose), self._objects(whose).segments
        for one in here.ordered() if here is not None else ():
            if one.state is _FINISHED and one.segment_id not in segments:
                message = f"__remote_log_metadata has a segment that is not in this tier: {one.segment_id}"
                raise refuse(whose, "has-entries", message, "klog remote verify LOG_DIR --remote TIER")

    def _leader_epoch(self, known: PartitionRegistration, offer: RemoteOffer) -> int:
        """Return the leader epoch that the metadata must have.  Raises NotAttachedError if it cannot be raised here."""
        if known.leader_epoch >= offer.top_epoch:
            return known.leader_epoch
        if self._target.other_controllers:
            nodes = ", ".join(map(str, self._target.other_controllers))
            message = (
                f"the tier has leader epoch {offer.top_epoch}, the metadata {known.leader_epoch}, and the metadata log"
                f" has other controllers ({nodes})"
            )
            raise refuse(offer.whose, "several-controllers", message, "restore a metadata log that is not behind")
        return offer.top_epoch + 1
