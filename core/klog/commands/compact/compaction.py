"""From log dirs to a plan, or to copies in a new directory, which a broker can use as a log dir.

Each partition is compacted separately, the highest dirty ratio first.

run = CompactionRun(selections, staging, topics, options, disk)
run.run()
run.outcomes                # the result of each partition
"""

from __future__ import annotations

import math
import os
import stat
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from klog.base.errors import DamagedError, KlogError, UnreadableError, UsageError
from klog.base.progress import Silence, Sink
from klog.change.partition_plan import checkpoints
from klog.change.plan.draft import Draft
from klog.change.plan.model import PUT, Action, FileState
from klog.change.plan.staging import ROUNDS, Staging
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.compact.log_cleaner import CleanerOptions, CompactionEstimate, CompactionResult, PartitionCompaction
from klog.commands.compact.log_to_clean import DirtyStart, LogSections, examine, filthiest
from klog.commands.compact.topic_rules import Refusal, TopicRules
from klog.data_dir.disk.directory_tree import nearest_directory, remove_tree, write_file
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import Selection
from klog.data_dir.whole_directory import whole_directory
from klog.formats.checkpoint import OffsetEntry, write_offsets
from klog.formats.names import FileKind, Stage
from klog.jobs.runner import Job, TaskResult, Threads

_LARGE_BYTES = 1 << 20


class CompactOptions(NamedTuple):
    """*now_ms*: when it is taken to happen.  *everything*: neither the dirty ratio nor the cleaner's checkpoint counts.

    *jobs*: partitions at a time, each with a map of its own.
    """

    now_ms: int
    everything: bool
    choices: CleanerOptions
    jobs: int = 1


@dataclass
class PartitionOutcome:
    """The outcome of a partition: one of *refused*, *failed* and *sections*; for eligible ones the result as well."""

    number: int
    partition: Partition
    rules: TopicRules | None = None
    sections: LogSections | None = None
    refused: Refusal | None = None
    failed: KlogError | None = None
    compacted: CompactionResult | None = None
    estimate: CompactionEstimate | None = None

    @property
    def is_done(self) -> bool:
        """Whether it was compacted, or its result was estimated."""
        return self.compacted is not None or self.estimate is not None

    @property
    def is_damaged(self) -> bool:
        """Whether `klog recover` has to run first."""
        return isinstance(self.failed, DamagedError) or (self.refused is not None and self.refused.needs_recover)


class _StoppedError(Exception):
    """Another partition's failure stops all, or ^C was pressed."""


class CompactionRun:
    """Examines *targets* at once; `run` compacts the eligible ones, `estimate` only estimates.

    *staging*, *topics*: for each target, the place of new content, and the settings of its topics.
    """

    def __init__(
        self,
        targets: Sequence[Selection],
        staging: Sequence[Staging],
        topics: Sequence[TopicConfig],
        wishes: CompactOptions,
        disk: Disk,
        sink: Sink | None = None,
    ) -> None:
        self.outcomes: list[PartitionOutcome] = []
        self.drafts: list[Draft] = []
        self._targets, self._staging, self._topics, self._wishes = targets, staging, topics, wishes
        self._disk, self._sink = disk, sink or Silence()
        self._drafts: dict[int, Draft] = {}
        self._stop = threading.Event()
        for number, target in enumerate(targets):
            self.outcomes += [PartitionOutcome(number, partition) for partition in target.partitions]
        self._each(self._look, self.outcomes)
        sections = [one.sections for one in self.outcomes if one.sections is not None]
        order = {id(one.partition): at for at, one in enumerate(filthiest(sections))}
        self.outcomes.sort(key=lambda one: order.get(id(one.partition), len(order)))

    def _look(self, outcome: PartitionOutcome) -> None:
        partition, wishes = outcome.partition, self._wishes
        try:
            outcome.rules = TopicRules.of(self._topics[outcome.number], partition.topic)
            found = examine(partition, outcome.rules, wishes.now_ms, everything=wishes.everything)
        except UnreadableError as error:
            outcome.failed = error
            return
        if isinstance(found, Refusal):
            outcome.refused = found
        else:
            outcome.sections = found

    @property
    def log_dirs(self) -> list[LogDir]:
        """The log dirs that are looked at."""
        return [target.log_dir for target in self._targets]

    @property
    def eligible(self) -> list[PartitionOutcome]:
        """The partitions to compact, in their order."""
        return [one for one in self.outcomes if one.sections is not None and one.sections.eligible]

    # doing it

    def estimate(self) -> None:
        """Estimate the result for each eligible partition."""
        self._expect(1, 0)
        self._each(self._estimate, self.eligible)

    def run(self) -> None:
        """Compact the eligible partitions, and record the changes in the drafts.  Raises OSError, KlogError."""
        self._expect(2, 1)
        paths = [log_dir.path for log_dir in self.log_dirs]
        drafts = {id(one): Draft(paths[one.number], one.number, self._staging[one.number]) for one in self.eligible}
        with _Scratch(self._staging, self._disk) as scratch:
            self._each(lambda outcome: self._compact(outcome, drafts[id(outcome)], scratch), self.eligible)
        for outcome in self.eligible:
            draft = drafts[id(outcome)]
            if draft.actions:
                draft.rely_on_directory(outcome.partition.directory)
            self.drafts.append(draft)
        self._drafts = drafts
        for number, target in enumerate(self._targets):
            self._own_files(number, target.log_dir)

    def draft_of(self, outcome: PartitionOutcome) -> Draft | None:
        """Return the changes of a partition; None if it was not compacted."""
        return self._drafts.get(id(outcome))

    def _expect(self, dirty: int, clean: int) -> None:
        sections = [one.sections for one in self.eligible if one.sections is not None]
        self._sink.expect(sum(dirty * one.dirty.bytes + clean * one.clean.bytes for one in sections))

    def _each(self, work: Callable[[PartitionOutcome], None], outcomes: Sequence[PartitionOutcome]) -> None:
        """Do *work* for each, large partitions in parallel; small ones would only wait for each other."""
        large, small = list[PartitionOutcome](), list[PartitionOutcome]()
        for one in outcomes:
            (large if one.partition.size >= _LARGE_BYTES else small).append(one)
        parts = [[one] for one in large] + ([small] if small else [])
        jobs = self._wishes.jobs

        def job(unit: Sequence[PartitionOutcome], _options: None) -> Sequence[TaskResult]:
            for outcome in unit:
                if not self._stop.is_set():
                    work(outcome)
            return ()

        # Without patience for a running thread its output could not be removed.
        threads = Threads(jobs, self._stop.set, math.inf)
        units = parts if jobs > 1 else [outcomes]
        threads.run(Job(job, units, None, [0] * len(units)), Silence(), lambda _result: False)

    def _advance(self, size: int) -> None:
        if self._stop.is_set():
            raise _StoppedError
        self._sink.advance(size)

    def _estimate(self, outcome: PartitionOutcome) -> None:
        assert outcome.sections is not None
        try:
            outcome.estimate = PartitionCompaction(outcome.sections, self._wishes.choices, self._advance).estimate()
        except (DamagedError, UnreadableError) as error:
            outcome.failed = error

    def _compact(self, outcome: PartitionOutcome, draft: Draft, scratch: Staging) -> None:
        assert outcome.sections is not None
        place = self._staging[outcome.number].directory

        def need(size: int) -> None:
            if place is not None:
                self._check_room(place, size)

        try:
            compaction = PartitionCompaction(outcome.sections, self._wishes.choices, self._advance, need)
            assert scratch.directory is not None
            own = scratch.beside(os.path.join(scratch.directory, str(outcome.number)))
            outcome.compacted = compaction.plan(draft, own)
        except (DamagedError, UnreadableError) as error:
            draft.actions.clear()
            outcome.failed = error

    def _check_room(self, place: str, size: int) -> None:
        place = nearest_directory(place)
        free = self._disk.free_bytes(place)
        if free < size:
            advice = "name another place with --backup, --save-plan or --to"
            raise KlogError(f"{place}: about {size} bytes will be written, {free} are free; {advice}")

    def _cleaner_offset(self, outcome: PartitionOutcome) -> int | None:
        """Return the cleaner's new checkpoint; None if it is unchanged."""
        if outcome.compacted is not None:
            return outcome.compacted.cleaner_offset
        found = outcome.sections
        is_outside = found is not None and found.because in (DirtyStart.BELOW_START, DirtyStart.BEYOND_END)
        # A broker corrects it before it looks whether there is something to clean.
        return found.first_dirty if found is not None and is_outside and self._wishes.choices.like_broker else None

    def _own_files(self, number: int, log_dir: LogDir) -> None:
        """Advance the cleaner's checkpoint, after everything else."""
        ends: dict[tuple[str, int], int | None] = {}
        for outcome in self.outcomes:
            partition, end = outcome.partition, self._cleaner_offset(outcome)
            if outcome.number == number and end is not None and end != partition.cleaner_offset:
                ends[partition.topic or "", partition.number or 0] = end
        draft = Draft(log_dir.path, number, self._staging[number])
        checkpoints.plan(log_dir, {FileKind.CLEANER_OFFSETS: ends}, draft, mend=False)
        self.drafts.append(draft)


class _Scratch:
    """A directory for content that only the next round reads: beside new content, or a temporary one."""

    def __init__(self, staging: Sequence[Staging], disk: Disk) -> None:
        self._beside = next((one for one in staging if one.directory is not None), None)
        self._disk = disk

    def __enter__(self) -> Staging:
        if self._beside is None:
            self._path = self._disk.private_directory()
            return Staging(self._path, self._disk)
        self._path = f"{self._beside.directory}{ROUNDS}"
        return self._beside.beside(self._path)

    def __exit__(self, *_: object) -> None:
        remove_tree(self._path, self._disk)


_STAGED = ".klog-staged"


def copy(to: str, make: Callable[[Sequence[Staging]], CompactionRun], log_dirs: int, disk: Disk) -> CompactionRun:
    """Write the partitions that *make* returns, compacted, into *to*, which is new or empty; refused ones are skipped.

    Raises UsageError, KlogError, OSError; nothing then remains of it.
    """
    with whole_directory(
        to, disk, "nothing is left of the copy; make room, or name another place with --to"
    ) as building:
        staged = os.path.join(building, _STAGED)
        cleaning = make([Staging(os.path.join(staged, str(number)), disk) for number in range(log_dirs)])
        _check_names(cleaning.outcomes)
        cleaning.run()
        copier = Copier(building, staged, disk)
        copied = [one for one in cleaning.outcomes if one.sections is not None and one.failed is None]
        for outcome in copied:
            copier.partition(outcome, cleaning.draft_of(outcome))
        copier.checkpoints([checkpointed(outcome) for outcome in copied])
        copier.identity(cleaning.log_dirs)
        remove_tree(staged, disk)
        copier.finish()
    return cleaning


def _check_names(outcomes: Sequence[PartitionOutcome]) -> None:
    seen: dict[str, str] = {}
    for outcome in outcomes:
        partition = outcome.partition
        if outcome.sections is not None and seen.setdefault(partition.directory, partition.path) != partition.path:
            raise UsageError(f"{seen[partition.directory]}, {partition.path}: two copies of one partition; name one")


CHECKPOINTS = (FileKind.RECOVERY_POINTS, FileKind.HIGH_WATERMARKS, FileKind.LOG_STARTS, FileKind.CLEANER_OFFSETS)


class CheckpointValues(NamedTuple):
    """The values of `CHECKPOINTS`, in their order, for a copied partition; None without a value."""

    topic: str
    number: int
    offsets: tuple[int | None, ...]


def checkpointed(outcome: PartitionOutcome) -> CheckpointValues:
    """Return the facts about a partition's copy."""
    partition, done = outcome.partition, outcome.compacted
    topic, number = partition.topic or "", partition.number or 0
    log_start = partition.checkpoints.offset(FileKind.LOG_STARTS, topic, number)
    cleaned = partition.cleaner_offset if done is None else done.cleaner_offset
    return CheckpointValues(topic, number, (partition.recovery_point, partition.high_watermark, log_start, cleaned))


class Copier:
    """Writes a log dir at *to*.  *staged*: the staging directories of new content, one for each source."""

    def __init__(self, to: str, staged: str, disk: Disk) -> None:
        self._to, self._staged, self._disk = to, staged, disk
        self.written: list[str] = [to]

    def partition(self, outcome: PartitionOutcome, draft: Draft | None) -> None:
        """Write the files of a partition as they will be."""
        partition = outcome.partition
        directory = os.path.join(self._to, partition.directory)
        self._disk.make_directory(directory)
        last: dict[str, Action] = {}
        for action in draft.actions if draft is not None else ():
            last[os.path.basename(action.file)] = action
        for file in partition.files:
            if file.stage is Stage.IN_USE and file.kind is not FileKind.OTHER and file.name not in last:
                self._copy(partition.file(file.name), os.path.join(directory, file.name), None)
        for name, action in last.items():
            if action.after is None:
                continue
            target = os.path.join(directory, name)
            if action.do == PUT and action.source is not None:
                source = os.path.join(self._staged, str(outcome.number), action.source)
                self._disk.rename(source, target)
                self.written.append(target)
            else:
                self._copy(partition.file(name), target, action.after)
        self.written.append(directory)

    def _copy(self, source: str, target: str, wanted: FileState | None) -> None:
        """Copy a file, or the beginning of it, with its mode and its time."""
        status = os.stat(source)
        size = status.st_size if wanted is None else wanted.size
        with self._disk.closing(self._disk.create(target)) as file:
            self._disk.copy(source, 0, size, file)
            mode = stat.S_IMODE(status.st_mode)
            self._disk.set_metadata(file, mode, status.st_uid, status.st_gid, status.st_mtime_ns)
        self.written.append(target)

    def checkpoints(self, copied: Sequence[CheckpointValues]) -> None:
        """Write the lines of the copied partitions into checkpoints, by topic and number."""
        for at, kind in enumerate(CHECKPOINTS):
            entries = [
                OffsetEntry(one.topic, one.number, offset)
                for one in sorted(copied, key=lambda one: one[:2])
                if (offset := one.offsets[at]) is not None
            ]
            if entries:
                path = os.path.join(self._to, kind.value)
                self.written.append(write_file(path, [write_offsets(entries)], self._disk))

    def identity(self, log_dirs: Sequence[LogDir]) -> None:
        """Copy the files that identify the log dir; none if there are several log dirs."""
        if len(log_dirs) == 1:
            source = os.path.join(log_dirs[0].path, FileKind.META_PROPERTIES.value)
            if os.path.isfile(source):
                self._copy(source, os.path.join(self._to, FileKind.META_PROPERTIES.value), None)

    def finish(self) -> None:
        """Return when all is on the disk."""
        self._disk.sync(self.written)
