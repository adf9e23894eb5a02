"""`klog adopt` from its sources to a plan, and the adopted records that the broker removes later.

result = adopt(AdoptRequest(["copy/orders-3"], ["data"]), AdoptOptions(now_ms), PlanOptions("adopt", apply=True))
result.adopted, result.refused, result.plan, result.due
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Final, NamedTuple

from klog.base.errors import KlogError, UsageError, counted
from klog.base.progress import Silence, Sink
from klog.base.unusable import UNUSABLE
from klog.change.partition_plan import checkpoints
from klog.change.plan.draft import Draft
from klog.change.plan.model import Amount, Loss
from klog.change.plan.reporter import Reporter
from klog.change.plan.session import PlanOptions, PlanResult, PlanSession
from klog.change.plan.staging import Staging
from klog.cluster.coordinator.due_offsets import DueOffsets, due_offset_notes
from klog.commands.adopt.adopted_content import ABORT, DROP, KEEP, REWRITE, AdoptedLog, AdoptOptions
from klog.commands.adopt.adopted_sources import AdoptSource, Key, open_sources
from klog.commands.adopt.later_removals import adopted_due, adopted_offsets, null_key_notes
from klog.commands.adopt.target_files import TargetDrafts, TargetFiles
from klog.commands.adopt.target_log_dirs import (
    AdoptRefusal,
    AdoptTarget,
    KnownProducers,
    RefusedError,
    TargetLogDirs,
    refuse,
)
from klog.commands.adopt.transaction_ends import LeftOpen, SourceTransactions, TargetCoordinator
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import PartitionChoice, PartitionQuery, open_path
from klog.formats.internal_topics import TRANSACTION_STATE
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import FileKind
from klog.partition.retention.due_records import DueRecords, due_notes
from klog.partition.start.metadata_behind import reuse_note
from klog.partition.start.record_tally import EVERYTHING, tally_records
from klog.partition.tiered.tiered_log import TieredLog

_AS_ASKED: Final = {KEEP: KnownProducers(LONG_MAX, True), DROP: KnownProducers(0, False)}


class AdoptRequest(NamedTuple):
    """The partitions to adopt: *sources*, narrowed to *topics* and *numbers*; *into*: one broker's log dirs.

    *tiered*: those with segments in remote storage, which are laid over them, by the paths of their directories.
    """

    sources: Sequence[str]
    into: Sequence[str]
    topics: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()
    tiered: Mapping[str, TieredLog] = {}  # never changed


class AdoptedPartition(NamedTuple):
    """The result for a source: *log* is put into *log_dir*.

    *replaces*: the amount in the target, None for no records.  *is_done*: the target has all of it already.
    *is_aside*: the source is in a log dir of the broker itself, and is kept there.
    """

    source: AdoptSource
    target: AdoptTarget
    log_dir: str
    log: AdoptedLog
    replaces: Amount | None
    is_done: bool
    is_aside: bool

    def json(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return {
            "source": self.source.path,
            "topic": self.source.topic,
            "partition": self.source.number,
            "topic_id": self.target.topic_id,
            "log_dir": self.log_dir,
            "replaces": None if self.replaces is None else self.replaces._asdict(),
            "log_start": self.log.log_start,
            "log_end": self.log.log_end,
            "records": self.log.records,
            "epochs": KEEP if self.log.epoch is None else REWRITE,
            "epoch": self.log.epoch,
            "producers": KEEP if self.log.keeps_producers else DROP,
            "producers_kept": len(self.log.producers),
            "producers_forgotten": len(self.log.forgotten),
            "ended": [one._asdict() for one in self.log.ended],
            "committed": [one._asdict() for one in self.log.committed],
            "left_open": [one._asdict() for one in self.log.left_open],
            "replicas": list(self.target.replicas),
            "done_before": self.is_done,
        }


class AdoptResult(NamedTuple):
    """Sources that were planned or adopted, and those that were refused.  *notes*: lines about all of them.

    *due*: the adopted records that the first retention pass removes.
    """

    adopted: list[AdoptedPartition]
    refused: list[AdoptRefusal]
    plan: PlanResult
    notes: list[str]
    due: Sequence[DueRecords] = ()

    @property
    def is_certain(self) -> bool:
        """Whether it is known how each open transaction ends."""
        return all(left.is_under_way for one in self.adopted for left in one.log.left_open)


class Adoption:
    """Collects the changes, source by source; *stagings* belong to the log dirs of *targets*.

    *free*: the real paths of partitions without a half-done plan.
    """

    def __init__(
        self,
        targets: TargetLogDirs,
        stagings: Sequence[Staging],
        options: AdoptOptions,
        free: set[str],
        sink: Sink,
        tiered: Mapping[str, TieredLog],
    ) -> None:
        self._tiered = tiered
        self._targets, self._stagings, self._options, self._free, self._sink = targets, stagings, options, free, sink
        self._drafts: list[tuple[int, TargetDrafts]] = []
        self._lines: list[dict[Key, Mapping[FileKind, int | None]]] = [{} for _ in targets.log_dirs]
        self.adopted: list[AdoptedPartition] = []
        self.refused: list[AdoptRefusal] = []
        self.notes: list[str] = []
        self.due: list[DueRecords] = []
        self.due_offsets: list[DueOffsets] = []

    def add_all(self, sources: Sequence[AdoptSource]) -> None:
        """Plan all sources; of several for one partition none.  Raises OSError (staging)."""
        by_key: dict[Key, list[AdoptSource]] = {}
        for one in sources:
            by_key.setdefault((one.topic, one.number), []).append(one)
        self._sink.expect(sum(one.partition.size for one in sources))
        come = [one.partition for one in sources if one.topic == TRANSACTION_STATE]
        self._coordinator = TargetCoordinator(self._targets.log_dirs, self._targets.cluster, come)
        for source in sources:
            rivals = by_key[source.topic, source.number]
            try:
                if len(rivals) > 1:
                    others = ", ".join(one.path for one in rivals if one is not source)
                    message = f"{others} would be the same partition"
                    raise refuse(source, "several-sources", message, self._targets.target(source).command(source))
                self._add(source)
            except RefusedError as error:
                self.refused.append(error.refusal)
            except KlogError as error:
                self.refused.append(
                    AdoptRefusal(source.path, "unreadable", str(error), f"klog verify {quote(source.path)}")
                )

    def _add(self, source: AdoptSource) -> None:
        target = self._targets.target(source)
        self._check(source, target)
        told = self._targets.check_coordinators(source, target, self._options.name is not None)
        config = self._targets.configs[target.log_dir]
        asked = self._options.producers
        known = self._targets.known_producers(source) if asked is None else _AS_ASKED[asked]
        found = self._there(source, target)
        is_free = found is None or self._options.replace
        draft, last = (
            Draft(self._targets.log_dirs[target.log_dir].path, target.log_dir, self._stagings[target.log_dir])
            for _ in range(2)
        )
        drafts = TargetDrafts(draft, last)
        try:
            log = AdoptedLog(
                source, target, config, self._options, known, self._transactions(source, target), self._sink
            )
            if not is_free and not _may_be_same(log, target):
                raise self._not_empty(source, target, found)
            TargetFiles(source, target, log, drafts).draft()
            if not is_free and not drafts.is_empty:
                raise self._not_empty(source, target, found)
            due = None if drafts.is_empty else adopted_due(source, target, log, config, self._options.now_ms)
            keyless = [] if drafts.is_empty else null_key_notes(source, target, log, config)
            offsets = [] if drafts.is_empty else adopted_offsets(source, config, self._options.now_ms)
        except BaseException:
            drafts.abandon()
            raise
        self._drafts.append((target.log_dir, drafts))
        self._lines[target.log_dir][target.key] = log.checkpoints(source.partition.cleaner_offset)
        self._note(source, target, log, found, drafts.is_empty)
        self.due += [due] if due is not None else []
        self.due_offsets += offsets
        self.notes += [*keyless, *told]

    def _transactions(self, source: AdoptSource, target: AdoptTarget) -> SourceTransactions:
        places = {os.path.realpath(one.path) for one in self._targets.log_dirs}
        return SourceTransactions(source, target, self._coordinator, self._targets.is_foreign(source), places)

    def _note(
        self, source: AdoptSource, target: AdoptTarget, log: AdoptedLog, found: Amount | None, is_done: bool
    ) -> None:
        places = [os.path.realpath(one.path) for one in self._targets.log_dirs]
        is_aside = os.path.dirname(os.path.realpath(source.path)) in places and not _is_same_place(source, target)
        log_dir, replaces = self._targets.log_dirs[target.log_dir].path, None if is_done else found
        self.adopted.append(AdoptedPartition(source, target, log_dir, log, replaces, is_done, is_aside))
        if self._options.producers == KEEP:
            kept, is_own = log.producers, self._targets.knows_topic(source)
        else:  # others are kept only if no other producer will get their ids, or if a coordinator has them
            kept, is_own = frozenset(left.producer_id for left in log.left_open), True
        reuse = reuse_note(self._targets.cluster, kept, is_own)
        self.notes += [f"{target.name}: {reuse}"] if reuse else []
        self.notes += [_open_note(source, target, left) for left in log.left_open]

    def _check(self, source: AdoptSource, target: AdoptTarget) -> None:
        """Raise RefusedError for a source that can never be adopted."""
        if source.is_in_use:
            lock = source.log_dir.lock.of(source.log_dir.path, with_pid=False)
            raise refuse(source, "lock-held", f"{lock}, and may change it", "cp", "-a", source.path, "COPY")
        if source.is_tiered:
            message = "its log start is below its first segment: the rest is in remote storage, --remote TIER reads it"
            raise refuse(source, "tiered", message, "klog", "describe", source.path)
        log = self._tiered.get(source.path)
        if log is not None and (fault := source.remote_fault(log)) is not None:
            raise refuse(source, "damaged", fault, *source.remote_check)
        if _is_same_place(source, target) and source.partition.topic_id == target.topic_id:
            message = "it is already the partition, with the topic id of the cluster"
            raise refuse(source, "same-directory", message, "klog", "doctor", *target.into)
        if target.is_there and os.path.realpath(target.partition.path) not in self._free:
            message = f"an earlier plan is half done in {target.partition.path}"
            raise refuse(source, "half-done", message, "klog", "plans", self._targets.log_dirs[target.log_dir].path)

    def _there(self, source: AdoptSource, target: AdoptTarget) -> Amount | None:
        """Return the amount in the target, None for no records.  Raises UnreadableError."""
        if _is_same_place(source, target) or not target.is_there or not target.partition.size:
            return None
        records = tally_records(target.partition, EVERYTHING, EVERYTHING).records
        return Amount(records, target.partition.size) if records else None

    @staticmethod
    def _not_empty(source: AdoptSource, target: AdoptTarget, found: Amount | None) -> RefusedError:
        what = counted((found and found.records) or 0, "record")
        message = f"{target.partition.path} has {what}, which would be removed (a backup keeps them): --replace"
        return refuse(source, "target-not-empty", message, target.command(source, "--replace"))

    @property
    def losses(self) -> list[Loss]:
        """The losses: damaged ends of sources, and records of targets."""
        found = [loss for one in self.adopted for loss in one.log.losses]
        for one in self.adopted:
            if one.replaces is not None:
                amount, key = one.replaces, one.target.key
                found.append(Loss(*key, None, None, amount.records, amount.bytes, "replaced"))
        return found

    def drafts(self) -> list[Draft]:
        """Return all drafts by log dir: checkpoints that name less, files, checkpoints that name more, identities.

        Once, at the end.  Raises OSError (staging).
        """
        found: list[Draft] = []
        for number, log_dir in enumerate(self._targets.log_dirs):
            before, after = (Draft(log_dir.path, number, self._stagings[number]) for _ in range(2))
            final = {key: _changed(log_dir, key, lines) for key, lines in self._lines[number].items()}
            lower = {key: _lowered(log_dir, key, lines) for key, lines in self._lines[number].items()}
            checkpoints.plan_around(log_dir, checkpoints.by_file(lower), checkpoints.by_file(final), before, after)
            drafts = [one for at, one in self._drafts if at == number]
            found += [before, *(one.files for one in drafts), after, *(one.last for one in drafts)]
        return found


def _is_same_place(source: AdoptSource, target: AdoptTarget) -> bool:
    return os.path.realpath(source.path) == os.path.realpath(target.partition.path)


def _may_be_same(log: AdoptedLog, target: AdoptTarget) -> bool:
    sizes = {files.log: files.size for files in target.partition.segments}
    return sizes == {name: log.size(name) for name in log.logs}


def _changed(log_dir: LogDir, key: Key, lines: Mapping[FileKind, int | None]) -> dict[FileKind, int | None]:
    """Return the changed lines: a deleted one, only if it exists."""
    known = {kind: log_dir.checkpoints.offset(kind, *key) for kind in lines}
    return {kind: offset for kind, offset in lines.items() if offset != known[kind]}


def _lowered(log_dir: LogDir, key: Key, lines: Mapping[FileKind, int | None]) -> dict[FileKind, int | None]:
    """Return the lines that name less from the beginning: below a log start beyond its end a broker keeps nothing."""
    found: dict[FileKind, int | None] = {}
    for kind, offset in lines.items():
        known = log_dir.checkpoints.offset(kind, *key)
        if known is not None and (offset is None or offset < known):
            found[kind] = offset
    return found


def adopt(
    request: AdoptRequest,
    options: AdoptOptions,
    plan_options: PlanOptions,
    reporter: Reporter | None = None,
    sink: Sink | None = None,
    disk: Disk | None = None,
) -> AdoptResult:
    """Plan to adopt, and apply the plan if requested.

    Raises UsageError, KlogError if no metadata log has the cluster's topics, OSError.
    """
    for path in request.into:
        if not isinstance(open_path(path), LogDir):
            raise UsageError(f"--to {path}: expected a log dir of the broker")
    refusals = UNUSABLE.refusals
    with PlanSession(PartitionQuery(request.into), plan_options, disk, reporter) as session:
        targets = TargetLogDirs([one.log_dir for one in session.selections])
        sources = open_sources(request.sources, request.topics, request.numbers, options.name, request.into)
        free = {os.path.realpath(part.path) for one in session.selections for part in one.partitions}
        adoption = Adoption(targets, session.staging, options, free, sink or Silence(), request.tiered)
        adoption.add_all(sources)
        UNUSABLE.check_read(refusals, "nothing is adopted; to leave it out, name the partition directories to adopt")
        result = session.finish(adoption.drafts(), losses=adoption.losses)
    due = due_notes(adoption.due, "of the records that are adopted")
    expired = due_offset_notes(adoption.due_offsets, targets.configs[0])
    notes = [*targets.notes, *adoption.notes, *_replica_notes(adoption.adopted), *due, *expired]
    return AdoptResult(adoption.adopted, adoption.refused, result, notes, adoption.due)


def _open_note(source: AdoptSource, target: AdoptTarget, left: LeftOpen) -> str:
    told = f"{target.name}: the transaction of producer {left.producer_id}, open from offset {left.first_offset} on"
    if left.is_under_way:
        return f"{told}, is left open: its coordinator has it in progress, and ends it after the start"
    command = target.command(source, "--open-transactions", ABORT)
    return (
        f"{told}, is left open: these log dirs do not show whether its coordinator ends it; if it does not,"
        f" read_committed consumers stop there, and {command} aborts it"
    )


def _replica_notes(adopted: Sequence[AdoptedPartition]) -> list[str]:
    shared = [one for one in adopted if len(one.target.replicas) > 1]
    if not shared:
        return []
    nodes = ", ".join(map(str, sorted({node for one in shared for node in one.target.replicas})))
    return [
        f"{counted(len(shared), 'partition')} with further replicas (nodes {nodes}): adopt the same on the disk of each"
        " before any of these brokers starts, else an empty copy may lead, and the others truncate theirs to it"
    ]
