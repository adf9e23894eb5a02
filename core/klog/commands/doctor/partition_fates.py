"""Decides the results for partitions once their logs are loaded: names, topic ids, assignments, directory ids.

Kafka: LogManager.loadLog, isStrayKraftReplica, recoverAbandonedFutureLogs; ReplicaManager.maybeAddLogDirFetchers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from klog.base.errors import counted
from klog.cluster.election import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.doctor.diagnosis import GOES_WITH_ITS_LOG_DIR, SERVED, TORN_TAIL, Fate, KafkaVersion, PartitionFate
from klog.commands.doctor.metadata_facts import directories_of
from klog.commands.doctor.partition_loader import LoadedPartition
from klog.commands.doctor.start_request import BrokerIdentity
from klog.commands.doctor.unfinished_copies import UnfinishedCopies, later_fault
from klog.formats.names import PartitionName, PartitionState
from klog.partition.start.record_tally import EVERYTHING, NOTHING, OffsetSpan, served_log, tally_records
from klog.partition.start.start_reasons import OTHER_TOPIC, WATERMARK_NUMBER, StartFailure
from klog.partition.transactions.isolation import open_at

_NO_DIRECTORY: Final = frozenset({None, LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY})

MAY_HAVE_NO_LEADER: Final = "the empty partition may stay without a leader: no log dir here has the directory id"
"""Part of the message of a directory in whose place a partition is made that the metadata have elsewhere."""

MAY_RENAME_FIRST: Final = "the broker starts only if it renames it before the log cleaner takes the log dir offline"
"""Part of the message about a copy that becomes the partition while the log cleaner reads a malformed checkpoint."""

MAY_LOAD_FIRST: Final = "the broker starts only if it loads it before another partition takes the log dir offline"
_RENAMED: Final = "it would be renamed to the partition's name: "  # Kafka: LogManager.recoverAbandonedFutureLogs
_IS_OFFLINE: Final = "the log dir {} is already offline"

Key = tuple[str, int]
NO_WATERMARKS = "the broker fails at the high watermarks of a log dir, and leads hardly any partition"


class _Row:
    """A loaded partition on the way to its fate."""

    def __init__(self, loaded: LoadedPartition) -> None:
        self.loaded = loaded
        self.fate = Fate.SERVES
        self.reason: str | None = None
        self.message = ""

    @property
    def key(self) -> Key:
        return self.loaded.name.topic, self.loaded.name.partition

    def set(self, fate: Fate, reason: str | None, message: str = "") -> None:
        self.fate, self.reason, self.message = fate, reason, message


class PartitionFates:
    """The results for all partitions of a broker.  *cluster*: None without a metadata log.

    *not_loaded*: directories in log dirs that are offline from the beginning, each with its log dir.  *failed*: those
    that are marked as failed before their partitions are loaded.  *raced*: those that the log cleaner fails right after
    that.  *refused*: the faults that stop the broker, in its order; *may_refuse*: those that depend on that order.
    """

    def __init__(
        self,
        loaded: Iterable[LoadedPartition],
        cluster: ClusterMetadata | None,
        broker: BrokerIdentity,
        not_loaded: Sequence[tuple[str, PartitionName]],
        version: KafkaVersion,
        failed: Collection[str] = (),
        raced: Collection[str] = (),
    ) -> None:
        self._cluster, self._broker, self._version = cluster, broker, version
        self._not_loaded, self._failed, self._raced = not_loaded, failed, raced
        self._assigned = {} if cluster is None else directories_of(cluster, broker.node_id)
        self._names = {} if cluster is None else cluster.state.topics.names
        self.rows = [_Row(one) for one in loaded]
        self.refused: list[StartFailure] = []
        self.may_refuse: list[StartFailure] = []
        self.offline: dict[str, str] = {}
        for row in self.rows:
            self._load(row)
        self._fail_offline()
        self._current, self._future = self._unique(PartitionState.CURRENT), self._unique(PartitionState.FUTURE)
        self._promote()
        self._judge_copies()
        self._elect()

    # each separately

    def _load(self, row: _Row) -> None:
        loaded, outcome = row.loaded, row.loaded.outcome
        if outcome.fails is not None and outcome.offline and self._version.is_kraft:
            self.offline.setdefault(loaded.log_dir, outcome.reason or "log-refused")
            row.set(Fate.OFFLINE, outcome.reason, outcome.fails)
        elif outcome.fails is not None:
            row.set(Fate.REFUSES, outcome.reason, outcome.fails)
            failure = StartFailure(outcome.reason or "log-refused", outcome.fails, loaded.log_dir, loaded.name.name)
            self.refused.append(failure)
        elif loaded.name.state is PartitionState.DELETE:
            row.set(Fate.DELETES, "marked-delete", f"{self._broker.delete_delay_ms / 1000:g} s after the start")
        elif loaded.name.state is PartitionState.STRAY:
            row.set(Fate.KEEPS, "marked-stray")
        elif (stray := self._stray(loaded)) is not None:
            row.set(Fate.STRAYS, *stray)
        elif loaded.name.state is PartitionState.FUTURE:
            row.set(Fate.MOVES, "copy-unfinished")
        elif loaded.emptied:
            end = outcome.log_end
            why = f"the log start {end} is beyond the end, and becomes the next offset"
            row.set(Fate.EMPTIES, "log-start-beyond-end", why)
        elif loaded.torn is not None:
            row.set(Fate.SERVES, TORN_TAIL, loaded.torn)
        elif loaded.is_cut:
            row.set(Fate.SERVES, "recovery-cuts", f"recovery truncates the log at offset {outcome.log_end}")
        elif loaded.epochs_start is not None:
            why = f"the log start {outcome.log_start} of the checkpoint hides records: the leader epochs begin at"
            row.set(Fate.SERVES, "log-start-raised", f"{why} {loaded.epochs_start}")
        elif loaded.indexes.wrong is not None:
            row.set(Fate.SERVES, *loaded.indexes.wrong)

    def _fail_offline(self) -> None:
        """Find partitions at which the whole broker stops, because their log dir is already offline.

        Access to the log then throws, and not an IOException.  Kafka: LocalLog.maybeHandleIOException.
        """
        for row in self.rows:
            loaded = row.loaded
            if loaded.log_dir not in (*self._failed, *self.offline):
                continue
            if row.fate is Fate.STRAYS:
                why, link = "it would be renamed to -stray", ": "
            elif row.fate in (Fate.SERVES, Fate.MOVES, Fate.EMPTIES) and _has_open(loaded):
                # Its first offset is looked up in the log.  Kafka: UnifiedLog.maybeIncrementFirstUnstableOffset.
                why, link = "it has an open transaction", ", and "
            else:
                continue
            if loaded.log_dir in self._failed:
                self._refuse(row, why + link + _IS_OFFLINE.format(loaded.log_dir))
            else:
                why, reason = f"{loaded.path}: {why}: {MAY_LOAD_FIRST}", self.offline[loaded.log_dir]
                self.may_refuse.append(StartFailure(reason, why, loaded.log_dir, loaded.name.name))

    def _refuse(self, row: _Row, why: str) -> None:
        """Take note of a partition on which the whole broker stops, in a log dir that is offline by then."""
        loaded = row.loaded
        reason = self.offline.get(loaded.log_dir)  # of another partition, which has to be mended
        if reason is None:
            reason = "checkpoint-malformed"
            row.set(Fate.REFUSES, reason, why)
        self.refused.append(StartFailure(reason, why, loaded.log_dir, loaded.name.name))

    def _stray(self, loaded: LoadedPartition) -> tuple[str, str] | None:
        """Return why the broker sets a directory aside; None if it does not.  Kafka: LogManager.isStrayKraftReplica."""
        cluster = self._cluster
        if cluster is None:
            is_empty = self._version.is_kraft
            return ("metadata-log-missing", "the node starts as an empty cluster") if is_empty else None
        if loaded.topic_id is None:
            return "topic-id-missing", "no partition.metadata"
        known = cluster.partitions.get(loaded.topic_id)
        topic, number = loaded.name.topic, loaded.name.partition
        if known is None:
            wanted = cluster.topic_ids.get(topic)
            if wanted is None:
                return "topic-unknown", "the metadata log has no such topic"
            return "topic-id-differs", f"its topic id is {loaded.topic_id}, the cluster's is {wanted}"
        registration = known.get(number)
        if registration is None:
            return "partition-unknown", f"the topic has {counted(len(known), 'partition')}"
        if self._broker.node_id not in registration.replicas:
            nodes = ", ".join(map(str, registration.replicas))
            return "not-assigned", f"its replicas are on {nodes}"
        return None

    # together

    def _unique(self, state: PartitionState) -> dict[Key, _Row]:
        """Return the logs of one state by partition; two of one partition stop the broker."""
        found: dict[Key, _Row] = {}
        for row in self.rows:
            if row.loaded.name.state is not state or row.fate in (Fate.STRAYS, Fate.OFFLINE, Fate.REFUSES):
                continue
            other = found.setdefault(row.key, row)
            if other is not row:
                if other.fate is not Fate.REFUSES:
                    other.set(Fate.REFUSES, "duplicate-partition", f"{row.loaded.path} is the same partition")
                row.set(Fate.REFUSES, "duplicate-partition", f"{other.loaded.path} is the same partition")
                topic, number = row.key
                message = (
                    f"Duplicate log directories for {topic}-{number} are found in both {row.loaded.path} and "
                    f"{other.loaded.path}"
                )
                self.refused.append(
                    StartFailure("duplicate-partition", message, row.loaded.log_dir, row.loaded.name.name)
                )
        return found

    def _promote(self) -> None:
        """Decide about copies that were on the way from one log dir to another."""
        for key, future in self._future.items():
            if future.fate is not Fate.MOVES:
                continue
            current = self._current.get(key)
            wanted = self._assigned.get(key)
            is_here = wanted is not None and self._broker.directory_ids.get(future.loaded.log_dir) == wanted
            if not self._version.is_kraft and current is not None and current.loaded.log_dir == future.loaded.log_dir:
                # The rename is tried once the copy has caught up.  Kafka: LogManager.replaceCurrentWithFutureLog.
                self.offline.setdefault(future.loaded.log_dir, "future-beside-current")
                why = f"it cannot replace {current.loaded.path} beside it: the log dir goes offline then"
                future.set(Fate.OFFLINE, "future-beside-current", why)
            elif is_here and future.loaded.log_dir in (*self._failed, *self.offline):
                self._refuse(future, _RENAMED + _IS_OFFLINE.format(future.loaded.log_dir))
            elif is_here and current is not None and current.loaded.log_dir == future.loaded.log_dir:
                why = f"DirectoryNotEmptyException: {current.loaded.path} is beside {future.loaded.name.name}"
                future.set(Fate.REFUSES, "future-beside-current", why)
                self.refused.append(
                    StartFailure("future-beside-current", why, future.loaded.log_dir, future.loaded.name.name)
                )
            elif is_here and future.loaded.log_dir in self._raced:
                self._refuse(future, _RENAMED + MAY_RENAME_FIRST)
            elif not is_here and current is not None and current.loaded.log_dir == future.loaded.log_dir:
                # Nothing is copied within a log dir.  Kafka: Partition.maybeCreateFutureReplica.
                why = f"{current.loaded.path} stays the partition, until a start finds this log dir in the metadata log"
                future.set(Fate.KEEPS, "future-beside-current", f"{why}: that start stops")
            elif is_here or (current is not None and future.loaded.outcome.log_end >= current.loaded.outcome.log_end):
                future.set(Fate.PROMOTES, "future-complete", "it becomes the partition")
                if current is not None:
                    current.set(Fate.REPLACED, "future-complete", f"{future.loaded.path} takes its place")
            elif current is None and self._broker.lacks_log_dirs and self._is_elsewhere(wanted):
                future.message = "the partition is in a log dir that is offline"
            elif current is None:
                place = "that the metadata log names" if self._version.is_kraft else "with the fewest logs"
                why = f"the broker creates an empty partition in the log dir {place}, and truncates the copy"
                if self._is_elsewhere(wanted):
                    why = f"the broker creates an empty partition, and truncates the copy to it; {MAY_HAVE_NO_LEADER}"
                future.set(Fate.EMPTIES, "future-without-current", why)

    def _judge_copies(self) -> None:
        """Find copies whose wrong indexes or torn tails are those of the partition as soon as they become it."""
        for future in self._future.values():
            is_new = future.fate is Fate.PROMOTES
            wrong = later_fault(future.loaded, is_new) if is_new or future.fate is Fate.MOVES else None
            if wrong is not None:
                future.set(future.fate, wrong[0], f"{future.message or 'it becomes the partition later'}; {wrong[1]}")

    def _is_elsewhere(self, directory_id: str | None) -> bool:
        """Whether a directory id is that of a log dir that is not here.

        A broker whose log dirs are all online then creates the partition in any of them; the controller elects it as
        leader after a kill, and does not after a clean stop.
        """
        return directory_id not in _NO_DIRECTORY and directory_id not in self._broker.directory_ids.values()

    def _elect(self) -> None:
        """Find partitions that the metadata have in a log dir that this broker does not have."""
        ids = {one for one in self._broker.directory_ids.values() if one is not None}
        for row in self.rows:
            owner = self._names.get(row.loaded.topic_id or "", row.key[0])
            if row.fate is Fate.SERVES and owner != row.key[0]:
                row.set(Fate.LEADERLESS, OTHER_TOPIC, f"its topic id is that of {owner}: the broker does not lead it")
            wanted = self._assigned.get(row.key)
            if row.fate is Fate.SERVES and wanted not in _NO_DIRECTORY and wanted not in ids:
                why = f"the metadata log has it in directory {wanted}, which no log dir here has"
                row.set(Fate.LEADERLESS, "directory-id-unknown", why)
            told = self._broker.expected.get(row.loaded.log_dir)
            if row.fate is Fate.SERVES and told not in (None, self._broker.directory_ids.get(row.loaded.log_dir)):
                why = f"the cluster has this log dir as {told}, but meta.properties has another id"
                row.set(Fate.LEADERLESS, "directory-id-unknown", why)

    def _fail_to_lead(self, gone_early: Collection[str]) -> None:
        """Find partitions that the broker does not lead: an exception about one of them ends that step."""
        for row in self.rows if not self._broker.leads else ():
            if row.fate in (Fate.SERVES, Fate.PROMOTES):
                row.set(Fate.LEADERLESS, WATERMARK_NUMBER, NO_WATERMARKS)
        if self._version is not KafkaVersion.V3_9 or not gone_early:
            return
        absent = self._assigned.keys() - {row.key for row in self.rows if row.loaded.log_dir not in gone_early}
        if any(map(self._leads, absent)):
            why = "the broker led others in the offline log dir: 3.9 then takes none of its leaderships"
            for row in filter(lambda row: self._leads(row.key), self.rows):
                if row.fate is Fate.SERVES:
                    row.set(Fate.LEADERLESS, "leader-offline", why)
                elif row.reason == "future-without-current":
                    row.set(Fate.MOVES, "copy-unfinished", why)

    def _leads(self, key: Key) -> bool:
        """Whether the metadata have the broker as leader: after a kill, not after a clean stop."""
        found = None if self._cluster is None else self._cluster.partition(*key)
        return found is not None and found.leader == self._broker.node_id

    # as rows

    def facts(
        self, offline: Mapping[str, str], gone_early: Collection[str], count_all: bool
    ) -> Iterator[PartitionFate]:
        """Yield the row of each directory, then those of partitions without one.

        *offline*: log dirs that become offline, and why; *gone_early*: those that do before the broker leads anything.
        *count_all*: count records also where none can be lost.  Raises UnreadableError.
        """
        self._fail_to_lead(gone_early)
        self._copies = UnfinishedCopies(self._cluster, count_all)
        for row in self.rows:
            if row.loaded.log_dir in offline and row.fate is not Fate.REFUSES:
                reason = row.reason if row.fate is Fate.OFFLINE else offline[row.loaded.log_dir]
                row.set(Fate.OFFLINE, reason, row.message if row.fate is Fate.OFFLINE else GOES_WITH_ITS_LOG_DIR)
        served = {row.key: row for row in self.rows if row.fate in SERVED}
        served |= {row.key: row for row in self.rows if row.fate is Fate.PROMOTES}
        for row in self.rows:
            yield self._fact(row, served.get(row.key), count_all)
        named = {row.key for row in self.rows}
        for log_dir, name in self._not_loaded:
            named.add((name.topic, name.partition))
            fact = PartitionFate(name.topic, name.partition, None, log_dir, name.name, Fate.OFFLINE, offline[log_dir])
            yield fact._replace(message=GOES_WITH_ITS_LOG_DIR)
        yield from self._without_directory(named, offline)

    def _fact(self, row: _Row, served: _Row | None, count_all: bool) -> PartitionFate:
        loaded, outcome = row.loaded, row.loaded.outcome
        fact = PartitionFate(
            *row.key, loaded.topic_id, loaded.log_dir, loaded.name.name, row.fate, row.reason, message=row.message
        )
        if outcome.fails is not None:
            return fact
        if row.fate in (Fate.REFUSES, Fate.OFFLINE):
            return fact._replace(log_start=outcome.log_start, log_end=outcome.log_end)
        aside = row.fate in (Fate.STRAYS, Fate.DELETES, Fate.KEEPS)
        if aside and served is None and row.key in self._assigned:
            elsewhere = MAY_HAVE_NO_LEADER if self._is_elsewhere(self._assigned[row.key]) else ""
            why = elsewhere if self._broker.leads else NO_WATERMARKS
            fact = fact._replace(becomes="empty", message="; ".join(filter(None, (row.message, why))))
        if row.reason == "future-without-current":
            fact = fact._replace(log_start=0, log_end=0)
        elif row.fate is not Fate.DELETES:
            fact = fact._replace(log_start=outcome.log_start, log_end=outcome.log_end)
        return self._counted(row, served, fact, count_all)

    def _counted(self, row: _Row, served: _Row | None, fact: PartitionFate, count_all: bool) -> PartitionFate:
        own, unserved, twin = _span_of(row), None, None
        if row.fate is Fate.MOVES and served is not None and served.fate is not Fate.EMPTIES:
            return self._copies.counted(fact, row.loaded, served.loaded)
        if not row.loaded.size:
            return fact._replace(records=0)
        if row.fate in (Fate.SERVES, Fate.LEADERLESS, Fate.PROMOTES, Fate.MOVES):
            if not count_all and not row.loaded.is_cut and row.loaded.torn is None and row.loaded.epochs_start is None:
                return fact
            kept, unserved = own, row.loaded.unserved
        elif row.fate is Fate.EMPTIES:
            own, kept = EVERYTHING if row.loaded.emptied else own, NOTHING
        else:
            kept = NOTHING if served is None else _span_of(served)
            twin = None if served is None else served_log(served.loaded.read_again(), self._cluster)
            if row.loaded.emptied or row.fate is Fate.DELETES:
                own = EVERYTHING
        pieces = None if row.loaded.emptied else row.loaded.pieces
        found = tally_records(row.loaded.read_again(), own, kept, pieces, unserved, twin)
        if row.loaded.epochs_start is not None and kept == own:
            span = OffsetSpan(row.loaded.epochs_start, own.start)
            hidden = tally_records(row.loaded.read_again(), span, OffsetSpan(own.start))
            found = found.plus(0, hidden.lost_records, hidden.lost_bytes)
        if row.fate in (Fate.DELETES, Fate.KEEPS) and not self._is_the_clusters(row.loaded):
            return fact._replace(records=found.records)
        return fact._replace(records=found.records, lost_records=found.lost_records, lost_bytes=found.lost_bytes)

    def _is_the_clusters(self, loaded: LoadedPartition) -> bool:
        """Whether a directory is of the cluster's topic; one set aside without an id may be: that is why it was."""
        wanted = None if self._cluster is None else self._cluster.topic_ids.get(loaded.name.topic)
        is_unknown = loaded.topic_id is None and loaded.name.state is PartitionState.STRAY
        return wanted is not None and (is_unknown or loaded.topic_id == wanted)

    def _without_directory(self, named: set[Key], offline: Mapping[str, str]) -> Iterator[PartitionFate]:
        by_id = {one: path for path, one in self._broker.directory_ids.items() if one is not None}
        for key in sorted(self._assigned.keys() - named):
            topic_id = self._cluster.topic_ids.get(key[0]) if self._cluster is not None else None
            wanted = self._assigned[key]
            log_dir = by_id.get(wanted or "")
            if offline and log_dir is None and wanted not in _NO_DIRECTORY:
                log_dir = next(iter(offline))  # one of those that cannot be listed
            if log_dir is not None and log_dir in offline:
                fate = Fate.OFFLINE, offline[log_dir]
                yield PartitionFate(*key, topic_id, log_dir, None, *fate, message=GOES_WITH_ITS_LOG_DIR)
                continue
            fate, why = (Fate.CREATES, "no-directory"), "an empty log; fetched from the leader, if a replica has it"
            if self._is_elsewhere(wanted):
                fate = Fate.LEADERLESS, "directory-id-unknown"
                why = f"an empty log; the metadata log has it in directory {wanted}, which no log dir here has"
            if not self._broker.leads:
                fate, why = (Fate.LEADERLESS, WATERMARK_NUMBER), NO_WATERMARKS
            yield PartitionFate(*key, topic_id, log_dir, None, *fate, None, 0, 0, 0, message=why)


def _has_open(loaded: LoadedPartition) -> bool:
    return bool(open_at(loaded.read_again(), loaded.outcome.log_end))


def _span_of(row: _Row) -> OffsetSpan:
    return OffsetSpan(row.loaded.outcome.log_start, row.loaded.outcome.log_end)
