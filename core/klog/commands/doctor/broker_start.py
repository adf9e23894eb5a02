"""Plays a broker's start on all of its log dirs, in the broker's order.

    diagnosis = diagnose(StartRequest(("data", "data1")))
    diagnosis.starts, diagnosis.loses, diagnosis.partitions

Kafka: KafkaRaftServer, LogManager, BrokerMetadataPublisher.initializeManagers; KafkaServer.startup before KRaft.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress

from klog.base.errors import KlogError, UsageError, counted
from klog.base.progress import Sink
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.doctor.assumed_repairs import AssumedRepairs
from klog.commands.doctor.diagnosis import (
    Diagnosis,
    Fate,
    LogDirFate,
    LogDirState,
    PartitionFate,
    RecoveryWork,
    StartStep,
    as_unreached,
    unread_number,
)
from klog.commands.doctor.expired_offsets import with_expired_offsets
from klog.commands.doctor.hanging_transactions import with_hanging
from klog.commands.doctor.index_check import IndexCheck, not_compared_notes
from klog.commands.doctor.meta_properties_check import (
    FormattedDir,
    check_kraft_format,
    check_zookeeper_format,
    foreign_failure,
    not_log_dir,
    read_format,
)
from klog.commands.doctor.metadata_facts import lag_notes, version_failure
from klog.commands.doctor.partition_fates import PartitionFates
from klog.commands.doctor.partition_loader import (
    FirstPass,
    LoadedPartition,
    PartitionLoader,
    recovery_work,
    with_retention,
)
from klog.commands.doctor.start_request import BrokerIdentity, StartRequest
from klog.commands.doctor.tiered_fates import TieredFates, TieredStart
from klog.data_dir.log_dir import LogDir
from klog.formats.names import CLUSTER_METADATA, ROOT_CHECKPOINTS, FileKind, PartitionName
from klog.partition.retention.due_records import DueRecords
from klog.partition.start.metadata_behind import producer_clock
from klog.partition.start.metadata_log import DIRECTORY, RecoveredMetadata, recover_metadata
from klog.partition.start.start_reasons import WATERMARK_NUMBER, StartFailure, StartNote


def diagnose(request: StartRequest, sink: Sink | None = None) -> Diagnosis:
    """Return the course of a start.  Raises UsageError for another broker's disks, UnreadableError."""
    start = _Start(request, sink, AssumedRepairs())
    first = start.run()
    found = play = with_retention(first, start.due_records())
    found = with_expired_offsets(found, start.repairs.loaded, start.cluster, start.node_id, request)
    if not request.has_steps or (found.is_harmless and not first.notes):
        return found
    from klog.commands.doctor.next_steps import StepFinder

    way = StepFinder(dict(zip(request.log_dirs, request.directory_ids, strict=False)), start.repairs)
    while way.add(play, start.cluster, start.node_id):
        start = _Start(request, sink, way.repairs)
        play = start.run()
    return found._replace(next=way.steps, is_whole_way=not way.repairs.is_blocked)


class _Start:
    def __init__(self, request: StartRequest, sink: Sink | None, repairs: AssumedRepairs) -> None:
        self._request, self._sink, self.repairs = request, sink, repairs
        self._dirs = [read_format(path, request.version.is_kraft) for path in request.log_dirs]
        self._check_request()
        self._dirs = repairs.formats(self._dirs)
        self._metadata_dir = self._choose_metadata_dir()
        self._steps: list[StartStep] = []
        self._notes: list[StartNote] = []
        self._offline = {one.path: one.reason or "" for one in self._dirs if one.is_offline}
        self._gone_late: set[str] = set()
        self._unled: set[str] = set()  # the log dirs of which no high watermark can be read
        self._failed: set[str] = set()
        self._raced: set[str] = set()  # the log dirs that the log cleaner takes offline
        self._failure: StartFailure | None = None
        self._rows: tuple[PartitionFate, ...] | None = None
        self._work = RecoveryWork()
        self.cluster: ClusterMetadata | None = None

    def _check_request(self) -> None:
        paths = [os.path.realpath(one.path) for one in self._dirs]
        if len(set(paths)) < len(paths):
            raise UsageError("the same log dir twice: give each of log.dirs once")
        nodes = {one.known.node_id for one in self._dirs if one.known is not None} - {None}
        if self._request.node_id is None and len(nodes) > 1 and len(nodes) == len(self._dirs):
            raise UsageError(
                f"different node ids ({', '.join(map(str, sorted(n for n in nodes if n is not None)))}): "
                "give the log dirs of one broker, or choose one with --node-id"
            )
        if all(one.meta is None and one.problem is None and not os.path.isdir(one.path) for one in self._dirs):
            raise UsageError(f"{self._dirs[0].path}: no such directory; expected a log dir")
        if all(one.meta is None for one in self._dirs) and (wrong := not_log_dir(self._dirs[0].path)):
            raise UsageError(wrong)

    def _choose_metadata_dir(self) -> str:
        wanted = self._request.metadata_log_dir
        paths = [one.path for one in self._dirs]
        if wanted is not None:
            same = [path for path in paths if os.path.realpath(path) == os.path.realpath(wanted)]
            if not same:
                self._dirs.append(read_format(wanted, self._request.version.is_kraft))
            return same[0] if same else wanted
        having = [path for path in paths if os.path.lexists(os.path.join(path, DIRECTORY))]
        return having[0] if having else paths[0]

    @property
    def node_id(self) -> int:
        """The configured one, else that of the log dirs; -1 without one."""
        known = (one.known.node_id for one in self._dirs if one.known is not None and one.known.node_id is not None)
        return self._request.node_id if self._request.node_id is not None else next(known, -1)

    @property
    def _live(self) -> list[FormattedDir]:
        return [one for one in self._dirs if one.is_there and one.path not in self._offline]

    def run(self) -> Diagnosis:
        """Play the start; *cluster* is then the node's metadata, or the metadata that it would have without a fault."""
        self._format()
        if self._failure is None:
            self._lock()
        metadata = RecoveredMetadata()
        if self._failure is None and self._request.version.is_kraft:
            metadata = self._metadata()
        if self._failure is None:
            self._load(metadata)
        elif metadata.cluster is None:
            metadata = self._unreached_metadata()
        self.cluster = metadata.cluster
        return Diagnosis(
            self._request.version,
            self._failure,
            tuple(map(self._log_dir_fate, self._dirs)),
            tuple(self._steps),
            self._rows if self._rows is not None else tuple(self._never_reached()),
            self._work,
            tuple(self._notes),
            tier=self._request.tier.uri if self._request.tier is not None else "TIER",
        )

    def due_records(self) -> list[DueRecords]:
        """Return the removals of the first retention pass among the rows of `run`; none if it is not reached."""
        rows = self._rows or () if self._failure is None else ()
        log_dirs = {one.path: one.log_dir for one in self._live_at_load}
        return FirstPass(log_dirs, self.cluster, self._request.file, self._request.count_all).of(
            rows, self.repairs.loaded
        )

    def _unreached_metadata(self) -> RecoveredMetadata:
        """Return the metadata that the broker stops too early to read: they have the ids that its files should have."""
        if self._failure is None or not self._request.version.is_kraft or self._failure.id == "lock-held":
            return RecoveredMetadata()
        with suppress(KlogError):
            found = recover_metadata(self._metadata_dir, without_quorum_state=True)
            self._notes[:0] = found.notes
            return found
        return RecoveredMetadata()

    def _recovered(self) -> RecoveredMetadata:
        if self.repairs.metadata is None:
            self.repairs.metadata = recover_metadata(self._metadata_dir, self.repairs.quorum_state)
        return self.repairs.metadata

    def _stop(self, step: str, failure: StartFailure) -> None:
        self._failure = failure
        self._steps.append(StartStep(step, failure.id, failure.message))

    # format, lock, metadata

    def _format(self) -> None:
        request = self._request
        if request.version.is_kraft:
            failure = check_kraft_format(self._dirs, self._metadata_dir, self.node_id, self.repairs.moved)
        else:
            failure = check_zookeeper_format(self._dirs, request.node_id, request.cluster_id)
        if failure is not None:
            return self._stop("format", failure)
        clusters = {one.known.cluster_id for one in self._dirs if one.known is not None}
        cluster_id = next(iter(clusters), None)
        if request.version.is_kraft and request.cluster_id not in (None, cluster_id):
            message = f"the log dirs are of cluster {cluster_id}: the other nodes of {request.cluster_id} refuse it"
            self._notes.append(StartNote("cluster-id-differs", message))
        for path, reason in self._offline.items():
            self._notes.append(StartNote(reason, f"{path} goes offline: {self._problem(path)}"))
        if not self._live:
            return self._stop("format", StartFailure("log-dir-unusable", "no log dir is left", self._dirs[0].path))
        for one in (one for one in self._dirs if one.is_read_only):
            self._notes.append(StartNote("log-dir-read-only", f"{one.path} is on a read-only file system here"))
        fate = next(iter(self._offline.values()), "ok")
        self._steps.append(StartStep("format", fate, f"cluster {cluster_id}, node {self.node_id}"))
        return None

    def _problem(self, path: str) -> str:
        found = next(one for one in self._dirs if one.path == path)
        return found.problem or str(found.meta)

    def _lock(self) -> None:
        for one in self._live:
            if one.log_dir.lock.held:
                message = f"Failed to acquire lock on file .lock in {one.path}: {one.log_dir.lock.of(one.path)}"
                return self._stop("lock", StartFailure("lock-held", message, one.path))
        self._steps.append(StartStep("lock", "ok", "free"))
        return None

    def _metadata(self) -> RecoveredMetadata:
        found = self._recovered()
        self._notes[:0] = found.notes
        failure = found.failure or version_failure(found.cluster, self._request.version, self._metadata_dir)
        if failure is not None:
            self._stop("metadata", failure)
        elif found.notes:
            self._steps.append(StartStep("metadata", found.notes[0].id, found.notes[0].message))
        else:
            self._steps.append(StartStep("metadata", "ok", f"the log ends at {found.end}"))
        return found

    # load, recover, partitions, after

    def _load(self, metadata: RecoveredMetadata) -> None:
        if (failure := foreign_failure(self._live_at_load, self.repairs.foreign, self._request.version)) is not None:
            return self._stop("load", failure)
        clean = [one.path for one in self._live if one.log_dir.clean_shutdown is not None]
        unclean = [one.path for one in self._live if one.path not in clean]
        self._read_checkpoints()
        skips = f"skips recovery in {', '.join(clean)}" if clean else ""
        recovers = f"recovers {', '.join(unclean)}: no clean-shutdown marker" if unclean else ""
        fate = next((reason for reason in self._offline.values() if reason == "checkpoint-malformed"), "ok")
        self._steps.append(StartStep("load", fate, "; ".join(filter(None, (skips, recovers)))))
        loaded = [one for formatted in self._live_at_load for one in self._load_dir(formatted.log_dir, metadata)]
        self._work = recovery_work(loaded)
        if self._work.segments:
            what = f"{counted(self._work.segments, 'segment')} of {counted(self._work.partitions, 'partition')}"
            self._steps.append(StartStep("recover", "ok", what))
        offline = [name for one in self._dirs if one.is_offline for name in self._names_in(one)]
        self.cluster = metadata.cluster
        whole = self.cluster, self._identity(), offline, self._request.version
        self._partitions(PartitionFates(loaded, *whole, self._failed, self._raced))
        at = len(metadata.notes)
        self._notes[at:at] = lag_notes(self._metadata_dir, metadata.cluster, loaded, self._rows or ())
        self._notes += not_compared_notes([one.indexes for one in loaded])
        return None

    @property
    def _live_at_load(self) -> list[FormattedDir]:
        """The log dirs that are loaded: those with a malformed checkpoint become offline only after that."""
        return [one for one in self._dirs if one.is_there and not one.is_offline and self._is_data(one)]

    def _is_data(self, one: FormattedDir) -> bool:
        return any(os.path.realpath(one.path) == os.path.realpath(path) for path in self._request.log_dirs)

    def _names(self, log_dir: LogDir) -> list[PartitionName]:
        found = [partition.name for partition in log_dir.partitions if partition.name is not None]
        left = [name for name in found if self.repairs.keeps(log_dir.path, name)]
        return [name for name in left if name.topic != CLUSTER_METADATA or not self._request.version.is_kraft]

    def _read_checkpoints(self) -> None:
        for one in self._live:
            for kind in () if one.path in self.repairs.recovered else ROOT_CHECKPOINTS:
                malformed = one.log_dir.checkpoints.malformed(kind)
                if malformed is None:
                    continue
                message = f"{os.path.join(one.path, kind.value)}: {malformed}"
                if malformed.is_unchecked and self._request.version.is_kraft:
                    self._notes.append(unread_number(kind, message))
                    self._unled |= {one.path} if kind is FileKind.HIGH_WATERMARKS else set()
                    continue
                # High watermarks are read only when the broker leads.  Kafka: LazyOffsetCheckpoints.
                is_late = kind is FileKind.HIGH_WATERMARKS and one.path not in self._offline
                self._gone_late = self._gone_late | {one.path} if is_late else self._gone_late - {one.path}
                if kind in (FileKind.RECOVERY_POINTS, FileKind.LOG_STARTS):
                    self._failed.add(one.path)
                self._raced |= {one.path} if kind is FileKind.CLEANER_OFFSETS else set()
                self._offline.setdefault(one.path, "checkpoint-malformed")
                self._notes.append(StartNote("checkpoint-malformed", message))

    def _load_dir(self, log_dir: LogDir, metadata: RecoveredMetadata) -> list[LoadedPartition]:
        clean, request = log_dir.clean_shutdown is not None, self._request
        clock = producer_clock(int(time.time() * 1000), metadata.cluster, self.node_id, request.producer_expiration_ms)
        check = IndexCheck(metadata.cluster, request.count_all, request.plain, is_clean=clean)
        loader = PartitionLoader(log_dir.checkpoints, clean, metadata.cluster, clock, check, self._sink)
        known, ids = self.repairs.loaded, {} if metadata.cluster is None else metadata.cluster.topic_ids
        found = []
        for name in self._names(log_dir):
            path = os.path.join(log_dir.path, name.name)
            if path not in known:
                known[path] = loader.load(name)
            found.append(self.repairs.load(known[path], ids.get(name.topic)))
        return found

    def _identity(self) -> BrokerIdentity:
        given = dict(zip(self._request.log_dirs, self._request.directory_ids, strict=False))
        ids = {one.path: one.known.directory_id for one in self._dirs if one.known is not None}
        lacks = any(one.is_offline for one in self._dirs)
        leads = self._unled <= self._offline.keys()
        return BrokerIdentity(self.node_id, ids, given, self._request.delete_delay_ms, lacks, leads)

    def _partitions(self, fates: PartitionFates) -> None:
        for path, reason in fates.offline.items():
            self._offline.setdefault(path, reason)
            self._gone_late.discard(path)
        early = self._offline.keys() - self._gone_late
        rows = self._with_remote(tuple(fates.facts(self._offline, early, self._request.count_all)))
        rows = with_hanging(rows, self.repairs.loaded, self.cluster, self.node_id)
        failure = next(filter(None, (*fates.refused, self._offline_failure(), *fates.may_refuse)), None)
        if failure is not None:
            self._stop("partitions", failure)
            self._rows = tuple(as_unreached(row) for row in rows)
            return
        self._rows = rows
        counts: dict[str, int] = {}
        for row in rows:
            counts[row.fate.value] = counts.get(row.fate.value, 0) + 1
        worst = next((row.reason or "" for row in rows if row.fate is Fate.STRAYS), "ok")
        told = ", ".join(f"{number} {fate}" for fate, number in sorted(counts.items()))
        self._steps.append(StartStep("partitions", worst, told or "none"))
        self._after(rows)

    def _with_remote(self, rows: tuple[PartitionFate, ...]) -> tuple[PartitionFate, ...]:
        """Return *rows* with their parts in remote storage."""
        if self.cluster is None:
            return rows
        log_dirs = [one.log_dir for one in self._live_at_load]
        start = TieredStart(self.cluster, self.node_id, log_dirs, self.repairs.loaded, self._request.file)
        fates = TieredFates(start, rows, self._request.tier)
        self._notes += [*fates.notes(), *fates.tier_notes()]
        return tuple(fates.rows())

    def _offline_failure(self) -> StartFailure | None:
        if all(one.path in self._offline for one in self._dirs):
            message = "Shutdown broker because all log dirs have failed"
            return StartFailure("log-dirs-offline", message, self._dirs[0].path)
        if self._request.version.is_kraft and self._metadata_dir in self._offline:
            why = self._offline[self._metadata_dir]
            message = f"Shutdown broker because the metadata log dir {self._metadata_dir} has failed ({why})"
            return StartFailure("metadata-dir-offline", message, self._metadata_dir)
        return None

    def _after(self, rows: Sequence[PartitionFate]) -> None:
        gone = [row for row in rows if row.fate in (Fate.DELETES, Fate.REPLACED)]
        if gone:
            delay = f"{self._request.delete_delay_ms / 1000:g} s after the start"
            which = "1 directory" if len(gone) == 1 else f"{len(gone)} directories"
            self._steps.append(StartStep("after", "ok", f"{which} removed, {delay}"))

    # the parts of the answer

    def _names_in(self, one: FormattedDir) -> list[tuple[str, PartitionName]]:
        """Return the partition directories of a log dir whether it is loaded or not, each with its log dir."""
        if not one.is_there or not self._is_data(one):
            return []
        return [(one.path, name) for name in self._names(one.log_dir)]

    def _never_reached(self) -> list[PartitionFate]:
        return [
            PartitionFate(name.topic, name.partition, None, path, name.name, Fate.UNREACHED)
            for one in self._dirs
            for path, name in self._names_in(one)
        ]

    def _log_dir_fate(self, one: FormattedDir) -> LogDirFate:
        failure, known = self._failure, one.known
        fate, reason = LogDirState.LOADS, None
        if failure is not None:
            fate = LogDirState.FATAL if failure.log_dir == one.path else LogDirState.UNREACHED
            reason = self._offline.get(one.path, failure.id) if fate is LogDirState.FATAL else None
        elif one.path in self._offline:
            fate, reason = LogDirState.OFFLINE, self._offline[one.path]
        elif one.path in self._unled:
            reason = WATERMARK_NUMBER
        held = one.log_dir.lock.held if one.is_there else False
        return LogDirFate(
            one.path,
            fate,
            reason,
            known.cluster_id if known else None,
            known.node_id if known else None,
            known.directory_id if known else None,
            one.is_there and one.log_dir.clean_shutdown is not None,
            {True: "held", False: "free", None: "unknown"}[held],
        )
