"""The plans that bring a quorum up under other addresses, or one broker that owns everything.

planner = QuorumPlanner(disks, stagings, QuorumSettings(now_ms), disk)
planner.move_voters({1: VoterAddress("new-1", 9093)}, uses_disk_ids=False)
session.finish(planner.drafts(), losses=planner.losses, revise=partial(of_copies, planner.copies_json))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from klog.base.errors import KlogError, UsageError
from klog.change.plan.draft import Draft
from klog.change.plan.model import Loss
from klog.change.plan.staging import Staging
from klog.cluster.metadata.cluster_image import Voter
from klog.cluster.metadata.metadata_loader import ClusterMetadata, read_log
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.copy_plan import CopyPlan, CopyPlanSettings
from klog.commands.replicas.diff import DiffOptions, ReplicaDiffer
from klog.commands.replicas.disks import BrokerDisk, MetadataLog
from klog.commands.replicas.later_removals import LaterRemovals
from klog.commands.replicas.metadata_changes import (
    Gathering,
    NewBatches,
    PartitionUpdate,
    directory_updates,
    end_of_open_transaction,
    ownership_updates,
    unregistrations,
    unused_producer_ids,
    with_unused_epochs,
)
from klog.commands.replicas.metadata_log_plan import (
    LogPlan,
    MetadataCopy,
    choose_base,
    future_log,
    intact_log,
    metadata_copies,
)
from klog.commands.replicas.voter_addresses import VoterAddress, check_named, moved
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.formats.checkpoint import Malformed
from klog.formats.internal_topics import MetadataRecord
from klog.partition.start.metadata_behind import MetadataLag, lag_behind


class QuorumSettings(NamedTuple):
    """*base*: the node whose log is the base; None for the one that is ahead.

    *without*: voters whose disks are not given, and that may return later with their present log.
    """

    now_ms: int
    base: int | None = None
    without: frozenset[int] = frozenset()


class QuorumPlanner:
    """Makes one plan.  *disks* and *stagings* have the same order; their positions are the numbers of the log dirs.

    *copies*: the metadata logs; *base*: the one that is the base; *state*: the cluster at its end.  *lag*: how far that
    is behind the logs on the disks.  *new*: the appended records; *voters*: the new ones.  Raises KlogError for a base
    that is damaged or incomplete.
    """

    def __init__(
        self, disks: Sequence[BrokerDisk], stagings: Sequence[Staging], settings: QuorumSettings, disk: Disk
    ) -> None:
        self.disks, self._stagings, self._disk = disks, stagings, disk
        self.copies = metadata_copies(disks)
        self.base = choose_base(self.copies, settings.base)
        self._intact = intact_log(self.base, up_to_damage=settings.base is not None)
        if self.base.gone:  # the batches below the damage are checked again together with the appended ones
            self.state = read_log(self.base.partition, self._intact.end)
        else:
            self.state = _sound(read_log(self.base.partition), self._intact.end)
        held = (partition for one in disks for partition in one.log_dir.partitions)
        self.lag: MetadataLag = lag_behind(self.state, held, settings.now_ms)
        unused_epoch = 1 + max(copy.latest_epoch for copy in self.copies)
        self.new = NewBatches(self._intact.end, unused_epoch, settings.now_ms)
        self.logs = LogPlan(disks, stagings, settings.now_ms, settings.base is not None)
        self.voters: tuple[Voter, ...] = self.state.quorum.voters or ()
        self.gathering: Gathering | None = None
        self.address: VoterAddress | None = None
        self.configured_voters: str | None = None
        self.without = settings.without
        self._updates: list[PartitionUpdate] = []

    # the requested changes

    def move_voters(self, addresses: Mapping[int, VoterAddress], *, uses_disk_ids: bool) -> None:
        """Give the voters other addresses, and with *uses_disk_ids* the directory ids of their disks.

        If the voters are in the configuration, this only repairs a base that is behind the logs on their disks.  Raises
        UsageError for addresses that are not those of the voters; KlogError for voters in the configuration, for one
        whose disk is missing, and for directory ids that differ from the log's.
        """
        configured = ",".join(f"{node}@{address}" for node, address in sorted(addresses.items()))
        if self.lag and not self._is_dynamic:
            self.configured_voters = configured
            self._update(())
            return self._write(sorted(addresses))
        voters = self._voters(configured)
        check_named(voters, addresses, self.without)
        ids = self._directory_ids(voters, uses_disk_ids)
        self.voters = tuple(moved(voter, addresses[voter.id], ids.get(voter.id)) for voter in voters)
        self.new.add_voters(self.voters)
        self._update(directory_updates(self.state, self.disks) if uses_disk_ids else ())
        return self._write([voter.id for voter in voters if voter.id not in self.without])

    def _directory_ids(self, voters: Sequence[Voter], uses_disk_ids: bool) -> dict[int, str]:
        """Return the directory ids on the disks of the voters, by node."""
        given, without = {disk.node for disk in self.disks}, self.without
        for voter in voters:
            if voter.id not in given and voter.id not in without:
                raise KlogError(
                    f"the disk of voter {voter.id} is not given; it may have the log that is ahead (--without"
                    f" {voter.id} if it is lost)"
                )
        there = [voter for voter in voters if voter.id in given]
        if 2 * len(there) <= len(voters):
            raise KlogError(
                f"the disks of {len(there)} of {len(voters)} voters are given, no majority: they could elect no leader;"
                " --only-voter makes one node the only voter"
            )
        return self._check_ids(there, uses_disk_ids)

    def _check_ids(self, voters: Sequence[Voter], uses_disk_ids: bool) -> dict[int, str]:
        """Return the directory ids of the disks, by node; none if the log's are kept.

        Raises KlogError if they differ from the log's, and the disks' must not be used.
        """
        found = {voter.id: self._directory_id(voter.id) for voter in voters}
        for voter in voters:
            if not uses_disk_ids and found[voter.id] != voter.directory_id:
                raise KlogError(
                    f"the disk of voter {voter.id} has directory id {found[voter.id]}, and the log knows"
                    f" {voter.directory_id}: it would not vote; --directory-ids disks uses the ids of the disks"
                )
        return found if uses_disk_ids else {}

    def _directory_id(self, node: int) -> str:
        disk = self.disks[self._number(node)]
        found = disk.log_dir.directory_id
        if isinstance(disk.log_dir.meta, Malformed):
            raise KlogError(f"{disk.log_dir.path}: its meta.properties cannot be used: {disk.log_dir.meta}")
        if found is None:
            raise KlogError(f"{disk.log_dir.path}: its meta.properties has no directory.id, which every voter needs")
        return found

    def lead_alone(self, node: int, address: VoterAddress | None, *, uses_disk_ids: bool) -> None:
        """Make *node* the only voter; brokers and partitions are unchanged.

        The logs of the former voters are written, too, unless they are ahead of the base: a node that its own log has
        among the voters asks them for their votes, at their old addresses, and finds no leader, even if it is only a
        broker.  *address*: the future address of its controller, if that is not in the log.  Raises UsageError if
        *address* is missing; KlogError for voters in the configuration, and for a directory id that differs from the
        log's.
        """
        voters = self._voters(f"{node}@{address or 'HOST:PORT'}")
        self._check_ids([voter for voter in voters if voter.id == node], uses_disk_ids)
        self.address = address
        self.voters = (self._only_voter("--only-voter", node, voters, address),)
        self.new.add_voters(self.voters)
        mine = [disk for disk in self.disks if disk.node == node]
        self._update(directory_updates(self.state, mine) if uses_disk_ids else ())
        former = {copy.node for copy in self.copies if copy.rank <= self.base.rank} & set(self.former_voters)
        self._write([node, *sorted(former)])

    @property
    def _is_dynamic(self) -> bool:
        """Whether the voters are in the metadata log."""
        return self.state.quorum.voters is not None and self.state.quorum.kraft_version >= 1

    def _voters(self, configured: str) -> tuple[Voter, ...]:
        """Return the voters of the log.  Raises KlogError, with the line *configured*, if it has none."""
        voters = self.state.quorum.voters
        if voters is None or not self._is_dynamic:
            raise KlogError(
                "kraft.version is 0: the voters are in the configuration, and nothing is written; on every node:"
                f" controller.quorum.voters={configured}"
            )
        return voters

    def own_everything(self, node: int, copies: CopyPlanSettings, address: VoterAddress | None) -> None:
        """Make *node* the owner of every partition that any disk has, and in a dynamic quorum the only voter.

        *copies*: the choice of copies; the settings of topics are those of the base.  *address*: the future address of
        its controller, if that is not in the log.  Raises UsageError for a node that is no broker, and if *address* or
        a choice is missing; KlogError, UnreadableError.
        """
        state = self.state
        if node not in state.brokers:
            ids = ", ".join(map(str, sorted(state.brokers)))
            raise UsageError(f"--only-broker {node}: no broker has registered as {node}; the log has {ids}")
        self.address = address
        self.gathering = gathering = Gathering(node, self.disks, self._copy_plan(copies._replace(only=node)))
        gathering.collect(state)
        if state.quorum.voters is not None:
            self.voters = (self._only_voter("--only-broker", node, state.quorum.voters, address),)
            self.new.add_voters(self.voters)
        self._update(ownership_updates(state, node, gathering.directories), unregistrations(state, node))
        self._write([node])

    def _copy_plan(self, settings: CopyPlanSettings) -> CopyPlan:
        place = self.base.disk.log_dir.path
        config = TopicConfig(None, {}, LogDir(place))
        metadata = MetadataLog(place, self.base.node, self.base.epoch, self.state)
        differ = ReplicaDiffer(self.disks, DiffOptions(metadata, config, only=settings.only))
        return CopyPlan(self.disks, self._stagings, differ, settings._replace(config=config), self._disk)

    def _only_voter(self, option: str, node: int, voters: Sequence[Voter], address: VoterAddress | None) -> Voter:
        old = next((voter for voter in voters if voter.id == node), None)
        if old is None and address is None:
            raise UsageError(f"{option} {node}: it is not a voter yet; give its address with --voter HOST:PORT")
        return moved((old or voters[0])._replace(id=node), address, self._directory_id(node))

    def _update(self, updates: Iterable[PartitionUpdate], others: Iterable[MetadataRecord] = ()) -> None:
        """Append *updates* and *others*, and the missing records of a base that is behind the logs."""
        used = {(self.state.topic_ids[one.topic], one.number): one.used for one in self.lag.epochs}
        self._updates = list(with_unused_epochs(self.state, updates, used))
        ids = self.lag.producer_ids[-1:]
        records = [*(update.record for update in self._updates), *others, *map(unused_producer_ids, ids)]
        if records:
            self.new.add_records(end_of_open_transaction(self.state))
            self.new.add_records(records)

    # the steps of that

    def _number(self, node: int) -> int:
        """Return the number of a node's log dir that has, or will have, the metadata log.  Raises KlogError."""
        copy = self._copy(node)
        mine = [number for number, disk in enumerate(self.disks) if disk.node == node]
        if copy is not None:
            return self.disks.index(copy.disk)
        if len(mine) != 1:
            raise KlogError(f"{len(mine)} log dirs of node {node} are given, and none has the metadata log")
        return mine[0]

    def _copy(self, node: int) -> MetadataCopy | None:
        return next((copy for copy in self.copies if copy.node == node), None)

    def _write(self, nodes: Sequence[int]) -> None:
        """Give *nodes* the base's log with the appended batches, once the result was read back and checked."""
        if not self.new.batches:
            return
        with future_log(self.base, self._intact, self.new, self._disk) as log:
            self._read_back(_sound(read_log(log), self.new.end))
            for node in nodes:
                self.logs.write(self._number(node), self._copy(node), self.base, self._intact, log)
        for copy in self.copies:
            self.logs.rely_on(self.disks.index(copy.disk), copy)

    def _read_back(self, after: ClusterMetadata) -> None:
        """Check that the log has the intended content, and nothing else has changed."""
        wanted = {topic_id: dict(partitions) for topic_id, partitions in self.state.partitions.items()}
        for update in self._updates:
            topic_id, number = update.key
            wanted[topic_id][number] = update.after
        brokers = dict(self.state.brokers)
        if self.gathering is not None:
            gone = brokers.keys() - {self.gathering.node}
            brokers |= {node: brokers[node]._replace(unregistered=True) for node in gone}
        settings = replace(self.state.state.settings, next_producer_id=self.next_producer_id)
        before = (wanted, brokers, settings, tuple(sorted(self.voters)), self.new.batches[0].epoch)
        voters = tuple(after.quorum.voters or ())
        if (after.partitions, after.brokers, after.state.settings, voters, after.epoch) != before:
            raise KlogError("the batches that were read back are wrong: nothing is planned; please report this")

    @property
    def next_producer_id(self) -> int | None:
        """The first producer id that is handed out afterwards; None before the first."""
        for highest in self.lag.producer_ids[-1:]:
            return int(unused_producer_ids(highest).data["nextProducerId"])
        return self.state.state.settings.next_producer_id

    # the result

    def drafts(self) -> list[Draft]:
        """Return all drafts, the metadata logs last.  Raises OSError (staging)."""
        gathered = self.gathering.copies.drafts() if self.gathering is not None else []
        return [*gathered, *self.logs.drafts]

    @property
    def losses(self) -> list[Loss]:
        """The records that go."""
        found = [loss for one in self.logs.changes for loss in one.change.losses]
        return [*self.gathering.copies.losses, *found] if self.gathering is not None else found

    @property
    def copies_json(self) -> list[dict[str, object]]:
        """The partitions whose copies change, as a plan has them."""
        return self.gathering.copies.copies if self.gathering is not None else []

    @property
    def removals(self) -> LaterRemovals:
        """The data that the broker that owns everything removes after its start; none without such a broker."""
        return self.gathering.copies.removals if self.gathering is not None else LaterRemovals(TopicConfig(), 0)

    @property
    def written(self) -> set[int]:
        """The nodes whose logs are written to."""
        return {one.change.node for one in self.logs.changes}

    @property
    def former_voters(self) -> list[int]:
        """The voters of the base that are removed; their ids ascend."""
        return sorted({voter.id for voter in self.state.quorum.voters or ()} - {voter.id for voter in self.voters})

    @property
    def ahead(self) -> list[MetadataCopy]:
        """The logs that are not written and are ahead of the base: they will be cut."""
        return [copy for copy in self.copies if copy.node not in self.written and copy.rank > self.base.rank]


def _sound(state: ClusterMetadata, end: int) -> ClusterMetadata:
    """Return *state*.  Raises KlogError if something below *end* is missing."""
    if not state.complete or state.gap or state.end_offset != end:
        why = next(iter((*state.damage, *state.problems)), f"it is read up to {state.end_offset}, not to {end}")
        raise KlogError(f"klog does not build on a damaged metadata log: {why}")
    return state
