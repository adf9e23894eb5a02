"""Reads the disks of a cluster, and yields its history in one order.

    with Timeline(PartitionQuery(["b1/data", "b2/data"]).selections(), EventFilter(), Disk()) as timeline:
        timeline.read()
        for event in timeline.events():
            print(event.time, event.kind, event.message)

Each log is read once, by the pass of `klog verify`.  Only its open transactions and its producers stay in memory;
events beyond some ten thousand are written to temporary files (`klog.commands.timeline.timeline_event`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from klog.base.progress import Silence, Sink
from klog.base.read_only import is_missing
from klog.commands.timeline.log_events import LogEvents, last_write, modified_ms, named_file
from klog.commands.timeline.timeline_event import (
    DATA_KINDS,
    FILE_CLOCK,
    GROUP_KINDS,
    METADATA_KINDS,
    REMOTE_KINDS,
    RUN_EVENTS,
    TRANSACTION_KINDS,
    EventFilter,
    EventSort,
    TimelineEvent,
)
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import Selection
from klog.formats.checkpoint import epochs_in_force
from klog.formats.damage import DamageKind
from klog.formats.internal_topics import CLUSTER_METADATA, CONSUMER_OFFSETS, REMOTE_LOG_METADATA, TRANSACTION_STATE
from klog.formats.names import FileKind, PartitionState
from klog.partition.verify.findings import KINDS, LogDirFacts, PartitionFacts, Severity
from klog.partition.verify.log_checks import damaged_places
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.verify import log_dir_facts, survey_partition

_LOG_KINDS: Final = (*DATA_KINDS, *TRANSACTION_KINDS, "epoch")
_TOLD_BY_PASS: Final = frozenset(DamageKind) - {DamageKind.BAD_COMPRESSION, DamageKind.BAD_RECORD}
_SILENCE: Final = Silence()


class Timeline:
    """The events of *selections* that match *wanted*, the first *most* of them; *jobs*: threads for a large segment.

    *problems*: sentences about unreadable parts; *damaged*: the number of damaged places, in the filter or not.
    *coordinated*: the argument of `LogEvents`.  It has temporary files: use it in a `with` block.
    """

    def __init__(
        self,
        selections: Sequence[Selection],
        wanted: EventFilter,
        disk: Disk,
        most: int | None = None,
        jobs: int = 1,
        room: int = RUN_EVENTS,
    ) -> None:
        self._selections, self._wanted, self._request = selections, wanted, SurveyOptions(jobs=jobs)
        self._sort = EventSort(disk, most, room)
        self.coordinated: dict[int, int] = {}
        self.problems: list[str] = []
        self.damaged = 0

    def __enter__(self) -> Timeline:
        return self

    def __exit__(self, *_: object) -> None:
        self._sort.close()

    def read(self, sink: Sink = _SILENCE) -> None:
        """Read everything; *sink* receives the progress in bytes.

        Raises OSError if there is no room for temporary files.
        """
        self.read_state()
        for selection in self._selections:
            self._logs(selection, sink)

    def read_state(self) -> None:
        """Read only the logs of controllers and coordinators, for a caller that passes over all logs itself.

        The caller then adds the events of its pass by `add`, from a `LogEvents` with this *coordinated*, and by
        `pass_events`.
        """
        for selection in self._selections:
            self._metadata(selection)
        for selection in self._selections:
            self._coordinators(selection)
            self._remote(selection)

    def events(self) -> Iterator[TimelineEvent]:
        """Yield the events that were read, the earliest first."""
        return iter(self._sort)

    def add(self, event: TimelineEvent) -> None:
        """Add an event, if it matches.  Raises OSError if there is no room for temporary files."""
        if self._wanted.wants(event):
            self._sort.add(event)

    # ---- sources

    def _metadata(self, selection: Selection) -> None:
        log_dir = selection.log_dir
        partition = log_dir.metadata_log
        if partition is None or not self._wanted.wants_any((*METADATA_KINDS, "epoch")):
            return
        from klog.commands.timeline.metadata_events import read_metadata_events  # slow to load, as are those below

        named = {(one.topic, one.number) for one in selection.partitions}
        is_meant = selection.whole or partition in selection.partitions

        def emit(event: TimelineEvent) -> None:
            """If partitions were named, only their events are emitted."""
            topics = {topic for topic, _ in named} if event.partition is None else ()
            if is_meant or event.topic in topics or (event.topic, event.partition) in named:
                self.add(event)

        found = read_metadata_events(partition, log_dir.path, bool(log_dir.lock.held), emit)
        self.problems += found.sentences(only_damage=True)

    def _coordinators(self, selection: Selection) -> None:
        where = selection.log_dir.path
        for partition in selection.partitions:
            if partition.topic == TRANSACTION_STATE and self._wanted.wants_any(TRANSACTION_KINDS):
                from klog.commands.timeline.coordinator_events import TransactionEvents

                TransactionEvents(partition, where, self._wanted, self.add, self.coordinated).read(self._note)
            elif partition.topic == CONSUMER_OFFSETS and self._wanted.wants_any(GROUP_KINDS):
                from klog.commands.timeline.coordinator_events import GroupEvents

                GroupEvents(partition, where, self._wanted, self.add).read(self._note)

    def _remote(self, selection: Selection) -> None:
        """Read the events of the selected partitions, whichever log dir has the partition of the topic with them."""
        if not self._wanted.wants_any(REMOTE_KINDS):
            return
        named = {(one.topic, one.number) for each in self._selections for one in each.partitions}
        is_whole = any(each.whole for each in self._selections)

        def emit(event: TimelineEvent) -> None:
            if is_whole or (event.topic, event.partition) in named:
                self.add(event)

        for partition in selection.log_dir.partitions:
            if partition.topic == REMOTE_LOG_METADATA and partition.state is PartitionState.CURRENT:
                from klog.commands.timeline.remote_events import RemoteEvents

                RemoteEvents(partition, selection.log_dir.path, emit).read(self._note)

    def _note(self, sentence: str) -> None:
        """Store a problem with records; the pass over all logs, which decodes none, reports the others."""
        if not any(f": {kind}: " in sentence for kind in _TOLD_BY_PASS):
            self.problems.append(sentence)

    def _logs(self, selection: Selection, sink: Sink) -> None:
        if not self._wanted.wants_any(_LOG_KINDS):
            return
        around = log_dir_facts(selection.log_dir)
        for partition in selection.partitions:
            if self._wanted.wants_topic(partition.topic):
                sink.expect(partition.size)
                self._log(selection.log_dir, partition, around, sink)

    def _log(self, log_dir: LogDir, partition: Partition, around: LogDirFacts, sink: Sink) -> None:
        if partition.unreadable is not None:
            if not (around.live and is_missing(partition.path)):  # otherwise a running broker has just deleted it
                self.problems.append(f"{partition.path}: {partition.unreadable}")
            return
        events = LogEvents(partition, log_dir.path, self.add, self.coordinated)
        facts = survey_partition(partition, around, self._request, sink, chosen=_every, observer=events)
        for event in pass_events(facts, log_dir.path, events):
            self.damaged += event.kind == "damage"
            self.add(event)


def pass_events(facts: PartitionFacts, log_dir: str, events: LogEvents) -> Iterator[TimelineEvent]:
    """Finish the *events* of a pass over a partition; yield the other events in its *facts* and checkpoints."""
    events.finish()
    yield from _checkpoints(log_dir, facts.partition)
    yield from _damage(facts, log_dir, events)


def _checkpoints(log_dir: str, partition: Partition) -> Iterator[TimelineEvent]:
    """Yield the events that only the checkpoint files of a log dir contain, at the times of these files."""
    if partition.state is not PartitionState.CURRENT or partition.topic == CLUSTER_METADATA:
        return
    where = TimelineEvent(0, FILE_CLOCK, "", "", log_dir, partition.topic, partition.topic_id, partition.number)
    start, cleaned = partition.log_start_offset, partition.cleaner_offset
    if start:
        path, words = _moved_log_start(partition, start)
        yield from _of_file(where._replace(kind="log-start", offset=start, message=words), path)
    if cleaned:
        words = f"compacted up to offset {cleaned}, by then"
        path = os.path.join(log_dir, FileKind.CLEANER_OFFSETS.value)
        yield from _of_file(where._replace(kind="compacted", offset=cleaned, message=words), path)


def _of_file(event: TimelineEvent, path: str) -> Iterator[TimelineEvent]:
    modified = modified_ms(path)
    if modified is not None:
        yield event._replace(time=modified, file=os.path.relpath(path, event.log_dir))


def _every(at: int, path: str) -> bool:
    """Choose every segment, and no replay of producers: the events need none."""
    return True


def _moved_log_start(partition: Partition, start: int) -> tuple[str, str]:
    """Return the file whose time is that of the move of the log start to *start*, and the text.

    A broker that moves the log start cuts the epochs before it at once, but writes the checkpoint only once a minute.
    Kafka: LeaderEpochFileCache.truncateFromStartAsyncFlush, log.flush.start.offset.checkpoint.interval.ms.
    """
    checkpoint = os.path.join(partition.log_dir, FileKind.LOG_STARTS.value)
    epochs = epochs_in_force(partition.epochs.entries) if partition.epochs is not None else []
    if epochs and epochs[0].start_offset == start:
        own = partition.file(FileKind.LEADER_EPOCHS.value)
        if len(epochs) == 1:
            return own, f"the log start moves to {start}"
        witnesses = [own, checkpoint]
    else:
        witnesses = [checkpoint, *(partition.file(segment.log) for segment in partition.segments[:1])]
    times = {modified_ms(path): path for path in witnesses}
    earliest = min((time for time in times if time is not None), default=None)
    return times.get(earliest, checkpoint), f"the log start is {start}, by then"


def _damage(facts: PartitionFacts, log_dir: str, events: LogEvents) -> Iterator[TimelineEvent]:
    """Yield the findings of `klog verify` in the logs, at the time of the batches before them."""
    partition = facts.partition
    where = TimelineEvent(0, FILE_CLOCK, "damage", "", log_dir, partition.topic, partition.topic_id, partition.number)
    for segment in facts.segments:
        log = segment.files.log
        for stretch, kind, message in damaged_places(facts, segment):
            if KINDS[kind].severity is Severity.NOTE:
                continue
            position = stretch.damage.place.position or 0
            time, clock = events.when_damaged(log, position)
            yield where._replace(
                time=time,
                clock=clock,
                message=f"{kind}: {message}",
                offset=stretch.offset,
                file=named_file(partition, log),
                position=position,
            )
        written = last_write(partition.file(log))
        if segment.unreadable is not None and written is not None:  # otherwise a running broker has just deleted it
            place = where._replace(time=written[0], clock=written[1], file=named_file(partition, log))
            yield place._replace(message=f"unreadable: {segment.unreadable}", offset=segment.end_offset)
