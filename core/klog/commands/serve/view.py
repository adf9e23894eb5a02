"""The served data: topics and partitions by name and id, committed offsets, and the differences from a broker.

    with View.open(["b1/data", "b2/data"], ServeOptions()) as view:
        view.partition("orders", 3).fetch(0, 1 << 20).pieces

Only names are read at first; a partition's files, offsets and settings are read at the first request for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Final

from klog.base.closing import Closing
from klog.base.errors import UnsupportedError, UsageError, counted, near_misses
from klog.base.read_only import ReadOnlyFile
from klog.commands.serve.serve_options import Missing, OnceReporter, ServeOptions
from klog.commands.serve.served_partition import PartitionContext, PartitionView
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import IdentityError, choose_with_internal, group_copies
from klog.data_dir.replicas import find_partitions
from klog.data_dir.selection import is_selected
from klog.formats.checkpoint import Malformed
from klog.formats.follow_file import FOLLOW_FILE, FollowFile, FollowTopic
from klog.formats.names import CLUSTER_METADATA, INTERNAL
from klog.partition.fetch import OpenFiles
from klog.partition.fetch.read_slices import SliceCache, WindowPool
from klog.partition.start.replica_choice import best_replica

if TYPE_CHECKING:
    from klog.cluster.metadata.metadata_loader import ClusterMetadata
    from klog.commands.serve.group_coordinator import Offsets
    from klog.partition.tiered.tiered_log import TieredLog
    from klog.partition.transactions.coordinator_decisions import TransactionDecision

__all__ = ["PartitionView", "ServeOptions", "Topic", "View"]

NO_ID: Final = "A" * 22
_CONSUMER_OFFSETS, _TRANSACTION_STATE, _ = INTERNAL
_MOST_NAMED: Final = 10
MOST_PARTITIONS: Final = 1_000_000
"""The most partitions of a topic: an answer to a client lists all of them."""


class Topic:
    """A topic.  *copies*: the replicas on disk of each of its partitions.

    *indexes*: the partitions that clients see; *partitions*: the number of partitions that they see.
    """

    def __init__(
        self, name: str, copies: Mapping[int, Sequence[Partition]], known: Callable[[], ClusterMetadata | None],
        missing: Missing, copied: Callable[[str], FollowTopic | None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.name, self.copies, self._copied = name, copies, copied
        self.internal = name in INTERNAL
        self._known, self._missing = known, missing

    @cached_property
    def id(self) -> str:
        """The topic's id in its 22 letters; all A if it has none, as before 2.8."""
        on_disk = (copy.topic_id for copies in self.copies.values() for copy in copies)
        known = self._known() if all(one is None for one in on_disk) else None
        if known is not None:
            return known.topic_ids.get(self.name, NO_ID)
        on_disk = (copy.topic_id for copies in self.copies.values() for copy in copies)
        return next((one for one in on_disk if one is not None), NO_ID)

    @cached_property
    def count(self) -> int:
        """How many partitions the topic of this id had in the cluster, as far as the disk shows."""
        known = self._known()
        numbers = () if known is None else known.partitions.get(self.id, ())
        copied = self._copied(self.name) if known is None else None
        is_copied = copied is not None and (copied.topic_id in (None, self.id) or self.id == NO_ID)
        return max(max(self.copies) + 1, max(numbers, default=0) + 1, copied.partitions if copied and is_copied else 0)

    @cached_property
    def indexes(self) -> Sequence[int]:
        """The numbers of the partitions that are listed, ascending."""
        return tuple(sorted(self.copies)) if self._missing == "omit" else range(self.count)

    @property
    def partitions(self) -> int:
        """How many partitions are listed."""
        return len(self.indexes)

    @property
    def absent(self) -> Iterator[int]:
        """The numbers of those that the disk does not have, ascending: as many as `count` without those of `copies`."""
        return (number for number in range(self.count) if number not in self.copies)

    @property
    def configs(self) -> Mapping[str, str]:
        """The settings of the topic, from the metadata log, or from the facts about the source cluster of a copy."""
        known = self._known()
        if known is not None:
            return known.topic_config(self.name)
        copied = self._copied(self.name)
        return copied.config if copied is not None else {}


class View(Closing):
    """A disk, or several of one cluster, as clients see them.  Any number of threads; nothing is written or locked."""

    def __init__(
        self,
        partitions: Sequence[Partition],
        options: ServeOptions = ServeOptions(),  # noqa: B008  # immutable
        tiered: Mapping[str, TieredLog] | None = None,
    ) -> None:
        self.options = options
        self._left_out: str | None = None
        self.log_dirs = tuple(dict.fromkeys(partition.checkpoints.log_dir for partition in partitions))
        self._dirs = tuple(LogDir(path) for path in self.log_dirs)
        self._reporter, self._files = OnceReporter(), OpenFiles()
        self._shared = PartitionContext(
            options,
            self._files,
            SliceCache(WindowPool()),
            self._reporter,
            self._decisions_about,
            lambda path: path in self._live,
            tiered or {},
        )
        if tiered:
            from klog.partition.tiered.mounts import gaps

            for line in gaps(tiered):
                self._reporter.say(line)
        numbers = options.numbers
        shown = [one for one in partitions if one.topic in INTERNAL or is_selected(one.topic, one.number, (), numbers)]
        self._copies = _by_topic(shown)
        names = [name for name in self._copies if self._shows(name)]
        self.topics: Mapping[str, Topic] = {
            name: Topic(name, self._copies[name], lambda: self._known, options.missing, self._copied)
            for name in sorted(names)
        }
        self._partitions: dict[tuple[str, int], PartitionView] = {}

    @classmethod
    def open(
        cls,
        paths: Sequence[str],
        options: ServeOptions = ServeOptions(),  # noqa: B008  # immutable
        tiered: Mapping[str, TieredLog] | None = None,
    ) -> View:
        """Return a view of *paths*: log dirs of one cluster, partition directories, globs of both.

        *tiered*: the logs over two tiers, by their directories, while remote segments lie over these. Raises UsageError
        for a path that is none of these and for topics that do not exist, UnreadableError if a path cannot be read;
        IdentityError for log dirs of different clusters, and for different things of one name.
        """
        found, sentence = choose_with_internal(find_partitions(paths), options.identity)
        view = cls(found, options, tiered)
        view._left_out = sentence
        view._check_counts()
        read = [one for one in found if one.topic in (*INTERNAL, CLUSTER_METADATA) or view._shows(one.topic or "")]
        group_copies([one for one in read if one.topic is not None], options.identity)
        clusters = {one.cluster_id: one.path for one in view._dirs if one.cluster_id is not None}
        if len(clusters) > 1:
            first, second = list(clusters.items())[:2]
            raise IdentityError(
                f"{second[1]} is of cluster {second[0]}, but {first[1]} is of {first[0]}: one at a time;"
                f" {options.identity.options[0]} chooses"
            )
        for glob in options.topics:
            if not any(fnmatchcase(name, glob) for name in view._copies):
                raise UsageError(f"--topic {glob}: no such topic here{near_misses(glob, view._copies)}")
        view._report_raised_starts()
        return view

    def _report_raised_starts(self) -> None:
        """Report the log starts that no broker has raised; only those in a checkpoint of a log dir can be."""
        every = (copies for topic in self.topics.values() for copies in topic.copies.values())
        some = (copies for copies in every if any(one.log_start_checkpoint for one in copies))
        found = [hides for copies in some if (hides := best_replica(copies, "leader-epoch").raised_start) is not None]
        for line in found[:_MOST_NAMED]:
            self._reporter.say(line)
        if (more := len(found) - _MOST_NAMED) > 0:
            self._reporter.say(f"{counted(more, 'more partition')} with such a log start (log-start-raised)")

    def _check_counts(self) -> None:
        """Raise UnsupportedError for a topic of more partitions than a client's list of them may have."""
        for topic in self.topics.values() if self.options.missing != "omit" else ():
            if topic.count > MOST_PARTITIONS:
                where = max(topic.copies.values(), key=lambda copies: copies[0].number or 0)[0].path
                raise UnsupportedError(
                    f"{topic.name}: {topic.count} partitions, but klog serves at most {MOST_PARTITIONS};"
                    f" check {where}; --missing omit lists only those that are on the disk"
                )

    def _shows(self, name: str) -> bool:
        if name == CLUSTER_METADATA or (
            name in INTERNAL and not self.options.internal and name not in self.options.topics
        ):
            return False
        return not self.options.topics or any(fnmatchcase(name, glob) for glob in self.options.topics)

    # ------------------------------------------------------------ whose it is

    @cached_property
    def cluster_id(self) -> str:
        """The cluster's id, as clients saw it."""
        return next((one.cluster_id for one in self._dirs if one.cluster_id is not None), "klog")

    @cached_property
    def node_id(self) -> int:
        """The id of the broker whose disk it is; of several the first's.  A copy has none, and -1 leads nothing."""
        return next((one.node_id for one in self._dirs if one.node_id is not None and one.node_id >= 0), 0)

    @cached_property
    def _known(self) -> ClusterMetadata | None:
        from klog.cluster.metadata.metadata_loader import read_metadata

        found = (read_metadata(one) for one in self._dirs)
        return max((one for one in found if one is not None), key=lambda one: one.end_offset, default=None)

    @cached_property
    def _followed(self) -> FollowFile | None:
        """The facts about the source cluster of a copy, from the newest file.  A damaged file is ignored."""
        files = (one.checkpoints.follow_file for one in self._dirs)
        return max((one for one in files if isinstance(one, FollowFile)), key=lambda one: one.updated, default=None)

    def _copied(self, topic: str) -> FollowTopic | None:
        return self._followed.topics.get(topic) if self._followed is not None else None

    @cached_property
    def _live(self) -> frozenset[str]:
        return frozenset(one.path for one in self._dirs if one.lock.held)

    # ------------------------------------------------------------ topics and partitions

    @cached_property
    def _ids(self) -> Mapping[str, Topic]:
        return {topic.id: topic for topic in self.topics.values() if topic.id != NO_ID}

    def topic_by_id(self, topic_id: str) -> Topic | None:
        """Return the topic with this id, in its 22 letters."""
        return self._ids.get(topic_id)

    def partition(self, topic: str, index: int) -> PartitionView | None:
        """Return a partition; None if it is unknown, or on another disk and not listed as empty."""
        found = self._partitions.get((topic, index))
        if found is not None:
            return found
        known = self.topics.get(topic)
        if known is None or index not in known.indexes:
            return None
        copies = known.copies.get(index, ())
        if not copies and self.options.missing != "empty":
            return None
        return self._partitions.setdefault((topic, index), PartitionView(topic, index, copies, self._shared))

    def whole(self, partition: Partition) -> PartitionView:
        """Return one of the partitions that were opened, whatever its name."""
        return PartitionView(partition.topic or partition.directory, partition.number or 0, (partition,), self._shared)

    def opened(self, path: str) -> ReadOnlyFile:
        """Return a piece's file, which is open for as long as it is referred to.  Raises UnreadableError."""
        return self._files.opened(path)

    # ------------------------------------------------------------ groups and transactions

    def _of(self, topic: str) -> Iterator[Partition]:
        """Yield the best replica of each partition of a topic."""
        for copies in self._copies.get(topic, {}).values():
            yield best_replica(copies, "leader-epoch")

    @cached_property
    def _committed(self) -> Mapping[str, Offsets]:
        from klog.cluster.coordinator.consumer_groups import group_images

        found: dict[str, Offsets] = {}
        for group in group_images(self._of(_CONSUMER_OFFSETS), lambda _: None, self.options.until_ms):
            offsets = [(one, one.offset) for one in group.offsets if one.offset is not None]
            if offsets:
                found[group.group] = {
                    (one.topic, one.partition): (offset, one.leader_epoch, one.metadata) for one, offset in offsets
                }
        if self._followed is not None and self.options.until_ms is None:
            # The offsets were requested from the coordinators after everything else had been copied.
            for name, told in self._followed.groups.items():
                own = {(one.topic, one.partition): (one.offset, one.leader_epoch, one.metadata) for one in told}
                found[name] = {**found.get(name, {}), **own}
        return found

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that have committed offsets on the disk."""
        return tuple(self._committed)

    def committed(self, group: str) -> Offsets:
        """Return the committed offsets of a group: (topic, partition) → (offset, leader epoch or -1, metadata)."""
        return dict(self._committed.get(group, {}))

    @cached_property
    def _decisions(self) -> Mapping[int, Sequence[TransactionDecision]]:
        from klog.partition.transactions.coordinator_decisions import decisions

        found: dict[int, list[TransactionDecision]] = {}
        for one in decisions(self._of(_TRANSACTION_STATE), self.options.until_ms):
            found.setdefault(one.producer_id, []).append(one)
        return found

    def _decisions_about(self, topic: str, number: int, producer_id: int) -> Sequence[TransactionDecision]:
        return [one for one in self._decisions.get(producer_id, ()) if one.is_about(topic, number)]

    # ------------------------------------------------------------ reports to the operator

    @property
    def notes(self) -> list[str]:
        """The first lines: the served data, and the differences from the former broker."""
        topics = self.topics.values()
        held = sum(len(topic.copies) for topic in topics)
        lines = [
            f"cluster {self.cluster_id}, node {self.node_id}: {counted(len(topics), 'topic')},"
            f" {counted(held, 'partition')}, from {', '.join(self.log_dirs)}; nothing is written"
        ]
        lines += [self._left_out] if self._left_out is not None else []
        if self._shared.tiered:
            lines.append(f"{counted(len(self._shared.tiered), 'partition')} with segments in remote storage")
        lines += [f"a broker holds {path}: each log is served in its state at the first request" for path in self._live]
        absent = (f"{topic.name}-{number}" for topic in topics for number in topic.absent)
        if some := list(islice(absent, _MOST_NAMED)):
            how = {"empty": "shown empty", "offline": "listed without a leader", "omit": "not listed"}
            count = sum(topic.count - len(topic.copies) for topic in topics)
            lines.append(_elsewhere(some, count, "partition", how[self.options.missing]))
        known = () if self._known is None else sorted(self._known.topic_ids)
        nowhere = [name for name in known if name not in self._copies and self._shows(name)]
        if nowhere:
            lines.append(_elsewhere(nowhere[:_MOST_NAMED], len(nowhere), "topic", "not listed"))
        lines += [*self._offsets_note(), *(() if self._known is None else self._known.problems)]
        return lines

    def _offsets_note(self) -> list[str]:
        lines = []
        for one in self._dirs:
            malformed = one.checkpoints.follow_file
            if isinstance(malformed, Malformed):
                advice = "correct it to get groups' offsets and topics' settings"
                lines.append(f"{one.path}/{FOLLOW_FILE}: {malformed}; {advice}")
        if self._followed is not None:
            count, updated = len(self._followed.groups), self._followed.updated
            lines.append(f"a copy as of {updated}: {counted(count, 'group')} with offsets of that time")
        return lines or self._log_offsets_note()

    def _log_offsets_note(self) -> list[str]:
        here = self._copies.get(_CONSUMER_OFFSETS, {})
        if not here:
            return ["there is no __consumer_offsets here: groups have no offsets"]
        count = Topic(_CONSUMER_OFFSETS, here, lambda: self._known, "omit").count
        if len(here) == count:
            return []
        return [
            f"{len(here)} of {count} partitions of __consumer_offsets are here: groups of the others have no offsets"
        ]

    def take_messages(self) -> list[str]:
        """Return the reports since the last call: skipped damage, files that fail, ends that differ."""
        return self._reporter.take()

    def summary(self) -> list[str]:
        """Return the last report: the sum of the skipped parts."""
        reporter = self._reporter
        if not reporter.stretches:
            return []
        count = f"{reporter.stretches} damaged stretch{'' if reporter.stretches == 1 else 'es'}"
        return [f"left out: {count}, {reporter.bytes} bytes, in {counted(len(reporter.partitions), 'partition')}"]

    def close(self) -> None:
        """Close the files that are not being read."""
        self._files.close()


def _by_topic(partitions: Sequence[Partition]) -> dict[str, dict[int, list[Partition]]]:
    found: dict[str, dict[int, list[Partition]]] = {}
    for partition in partitions:
        if partition.topic is not None and partition.number is not None:
            found.setdefault(partition.topic, {}).setdefault(partition.number, []).append(partition)
    return found


def _elsewhere(some: Sequence[str], count: int, what: str, how: str) -> str:
    """Return the line about *count* partitions or topics that are not on the disk, with the names of the first ones."""
    named = ", ".join(some) + (", …" if count > len(some) else "")
    return f"{counted(count, what)} {'is' if count == 1 else 'are'} not on this disk, and {how}: {named}"
