"""`klog write` from its inputs to a new log dir, or to a plan for one that is there."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from io import BytesIO
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import DamagedError, KlogError, UsageError
from klog.base.progress import Sink
from klog.base.read_only import ReadOnlyFile
from klog.base.unusable import UNUSABLE
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.metadata.topic_config import topic_configs
from klog.commands.write.copied_batches import copy_batches, partitions_at, place_of
from klog.commands.write.new_log_dir import new_log_dir, source_topics
from klog.commands.write.record_inputs import csv_records, json_records
from klog.commands.write.record_writer import PartitionWriter, RecordWriter
from klog.commands.write.write_destination import Destination, WriteOptions
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.selection import PartitionQuery
from klog.kernel import InputRecords, TransactionEnds
from klog.partition.start.metadata_behind import reuse_note

if TYPE_CHECKING:
    from klog.change.plan.reporter import Reporter
    from klog.change.plan.session import PlanOptions, PlanResult
    from klog.partition.retention.due_records import DueRecords

FORMATS: Final = ("jsonl", "csv", "parquet", "log")
_NAMES: Final = {".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet"}


def _check_file(path: str, form: str | None) -> None:
    """Raise UsageError for a path that is neither a file, nor a directory that may have logs."""
    if not os.path.exists(path):
        raise UsageError(f"{path or repr(path)}: No such file or directory; expected a file of records, or a log dir")
    if os.path.isdir(path):
        if form != "log" and (form or os.path.splitext(path)[1] in _NAMES):
            raise UsageError(f"{path}: a directory; name the files in it")
    elif not os.path.isfile(path):
        raise UsageError(f"{path}: not a file; - reads lines from stdin")


class WriteInput(NamedTuple):
    """An input: its path, `-` for stdin, and its form, one of FORMATS."""

    path: str
    format: str

    @classmethod
    def of(cls, path: str, form: str | None) -> WriteInput:
        """Return the input at *path*; *form* is used if the name does not show it.  Raises UsageError."""
        if path != "-":
            _check_file(path, form)
        if form is None:
            kind = "log" if os.path.isdir(path) else "jsonl" if path == "-" else _NAMES.get(os.path.splitext(path)[1])
        else:
            kind = form
        if kind is None and path.endswith(".log"):
            raise UsageError(f"{path}: a segment; name its partition directory, or the output of 'klog dump'")
        if kind is None:
            raise UsageError(f"{path}: its name does not show its form; --input-format {'|'.join(FORMATS)}")
        if path == "-" and kind in ("parquet", "log"):
            raise UsageError(f"--input-format {kind}: not from stdin")
        return cls(path, kind)


_LEAVE_OUT: Final = "nothing is written; to leave it out, name the partition directories to take"
_OF_RECORDS: Final = (
    "--batches", "--batch-size", "--linger", "--codec", "--level", "--partitioner", "--timestamp-type", "--repartition",
    "--idempotent",
)  # fmt: skip


def _check_given_once(inputs: Iterable[WriteInput]) -> None:
    """Raise UsageError for an input that is given twice: its records would be, too."""
    seen: set[str] = set()
    for one in inputs:
        paths = [part.path for part in partitions_at(one.path)] if one.format == "log" else [one.path]
        for path in map(os.path.realpath, paths) if one.path != "-" else "-":
            if path in seen:
                raise UsageError(f"{one.path}: given twice, and its records would be written twice")
            seen.add(path)


def check_record_options(inputs: Collection[WriteInput], given: Sequence[object]) -> None:
    """Raise UsageError for options of records without such, or that contradict each other, and for inputs given twice.

    *given*: the values of `_OF_RECORDS`.
    """
    wrong = [name for name, value in zip(_OF_RECORDS, given, strict=True) if value not in (None, False)]
    if wrong and any(one.format == "log" for one in inputs):
        raise UsageError(f"{wrong[0]}: batches of a log are copied unchanged")
    if given[0] == "keep" and {*wrong} & {"--batch-size", "--linger"}:
        raise UsageError("--batches keep: without --batch-size and --linger")
    _check_given_once(inputs)


class OpenTransaction(NamedTuple):
    """A transaction that nothing ends: readers of committed data stop at its first offset."""

    topic: str
    partition: int
    producer_id: int
    first_offset: int


class WriteResult(NamedTuple):
    """The result of a write.

    *skipped*: the number of records that were left out.  *plan*: for an existing log dir, else None.  *notes*: about
    it.  *due*: the records that the broker's first retention pass removes.
    """

    writers: Sequence[PartitionWriter]
    open_transactions: Sequence[OpenTransaction]
    skipped: int
    plan: PlanResult | None = None
    notes: Sequence[str] = ()
    due: Sequence[DueRecords] = ()


class _File:
    """A file that is read from the beginning; *sink* hears how far it has been read."""

    def __init__(self, file: ReadOnlyFile, sink: Sink) -> None:
        self._file, self._sink, self._position = file, sink, 0

    def read_into(self, buffer: memoryview) -> int:
        size = self._file.read_into(self._position, buffer)
        self._position += size
        self._sink.advance(size)
        return size


class _Write:
    """A write into one destination, which is at *to*."""

    def __init__(self, destination: Destination, to: str, options: WriteOptions, sink: Sink) -> None:
        self._to, self._destination, self._options, self._sink = to, destination, options, sink
        self._writer = RecordWriter(destination, options, sink.report)
        self._ends = TransactionEnds()

    def run(self, inputs: Iterable[WriteInput]) -> None:
        """Write everything.  Raises KlogError, OSError."""
        try:
            for one in inputs if self._options.drops_producers else ():
                self._learn(one)
            for one in inputs:
                self._take(one)
            if self._options.ends_transactions:
                self._end_transactions()
            self._writer.close()
        except DamagedError as error:
            raise KlogError(str(error)) from error

    def _learn(self, one: WriteInput) -> None:
        """Look ahead for how transactions end; stdin cannot be read twice."""
        if one.format != "log" and one.path != "-":
            for rows in self._records(one):
                self._ends.learn(rows)

    def _take(self, one: WriteInput) -> None:
        if one.format == "log":
            self._take_log(one.path)
            return
        ends = self._ends if one.path != "-" else TransactionEnds()
        for rows in self._records(one):
            if self._options.drops_producers:
                ends.apply(rows)
            self._writer.take(rows, one.path, one.format)

    def _records(self, one: WriteInput) -> Iterator[InputRecords]:
        """Yield the records of an input, some at a time."""
        if one.format == "parquet":
            from klog.commands.write.record_inputs import parquet_records

            keeps = self._options.keep_batches or self._options.keep_offsets
            without = [] if keeps else ["position", "batch"]
            yield from parquet_records(one.path, without)
            return
        read = csv_records if one.format == "csv" else json_records
        if one.path == "-":
            yield from read(lambda buffer: os.readv(0, [buffer]), one.path)
            return
        with ReadOnlyFile(one.path) as file:
            self._sink.expect(file.size)
            yield from read(_File(file, self._sink).read_into, one.path)

    def _take_log(self, path: str) -> None:
        found = partitions_at(path)
        self._sink.expect(sum(one.size for one in found))
        for partition in found:
            place = place_of(partition, self._destination, self._options)
            assert partition.number is not None, "it has been looked for"
            if os.path.realpath(partition.path) == os.path.realpath(f"{self._to}/{place.name}-{partition.number}"):
                raise KlogError(f"{partition.path} is read and written: --topic NAME writes it to another topic")
            writer = self._writer.open(place, partition.number)
            self._writer.skipped += copy_batches(partition, writer, self._options, self._sink)

    def _end_transactions(self) -> None:
        """Abort the transactions that are open at the end of the input, with markers like those of a coordinator."""
        self._writer.end_batches()
        lines = []
        for one in self.writers:
            state, offset = one.appender.log.producers, one.appender.end
            for first, producer_id in sorted(one.left_open()):
                entry = state.producers[producer_id]
                marker = {
                    "topic": one.place.name, "partition": one.number, "offset": offset, "control": "ABORT",
                    "timestamp": self._options.now_ms, "producer_id": producer_id, "position": first,
                    "producer_epoch": entry.producer_epoch, "coordinator_epoch": max(entry.coordinator_epoch, 0),
                    "leader_epoch": max(one.appender.log.epochs.latest, 0), "transactional": True,
                }  # fmt: skip
                lines.append(json.dumps(marker))
                offset += 1
        for rows in json_records(BytesIO("\n".join(lines).encode()).readinto, "--end-transactions"):
            self._writer.take(rows, "--end-transactions")

    @property
    def writers(self) -> list[PartitionWriter]:
        """The partitions that were opened, by name."""
        return self._writer.partitions

    def result(self, plan: PlanResult | None = None) -> WriteResult:
        """Return the result."""
        transactions = [
            OpenTransaction(one.place.name, one.number, producer_id, first)
            for one in self.writers
            for first, producer_id in sorted(one.left_open())
        ]
        return WriteResult(self.writers, transactions, self._writer.skipped, plan)


def write_new(inputs: Sequence[WriteInput], to: str, options: WriteOptions, sink: Sink, disk: Disk) -> WriteResult:
    """Write *inputs* into a log dir that is not there, or empty.

    Raises KlogError, also where anything cannot be read, and OSError; then it is as before.
    """
    refusals = UNUSABLE.refusals
    with new_log_dir(to, options, source_topics(_logs(inputs), options.config), disk) as made:
        write = _Write(made, to, options, sink)
        write.run(inputs)
        UNUSABLE.check_read(refusals, _LEAVE_OUT)
        made.finish((one.place, one.number, one.appender) for one in write.writers)
        return write.result()


def _logs(inputs: Iterable[WriteInput]) -> list[str]:
    return [one.path for one in inputs if one.format == "log"]


def write_stopped(
    inputs: Sequence[WriteInput],
    to: str,
    options: WriteOptions,
    metadata: str | None,
    plan_options: PlanOptions,
    reporter: Reporter,
    sink: Sink,
) -> WriteResult:
    """Plan to write *inputs* into an existing log dir; apply the plan if requested.  Raises KlogError, OSError."""
    # A new log dir needs none of this.
    from klog.change.plan.session import PlanSession
    from klog.commands.write.stopped_log_dir import StoppedLogDir
    from klog.partition.retention.due_records import due_notes

    refusals = UNUSABLE.refusals
    with PlanSession(PartitionQuery([to]), plan_options, reporter=reporter) as session, ExitStack() as stack:
        log_dir = session.selections[0].log_dir
        config = topic_configs([log_dir], options.config, metadata)[0]
        place = StoppedLogDir(log_dir, session.staging[0], config, options, session.disk)
        stack.callback(place.abandon)
        write = _Write(place, log_dir.path, options, sink)
        source_topics(_logs(inputs), {})  # refuses two topics of one name
        write.run(inputs)
        UNUSABLE.check_read(refusals, _LEAVE_OUT)
        appended = [(one.place, one.number, one.appender) for one in write.writers]
        drafts, due = place.drafts(appended), place.due(appended)
        done = write.result(session.finish(drafts))
    notes = [] if config.metadata is None else list(_reuse_notes(done, inputs, options, config.metadata))
    return done._replace(notes=[*notes, *due_notes(due, "of the records that are written")], due=due)


def _reuse_notes(
    done: WriteResult, inputs: Sequence[WriteInput], options: WriteOptions, metadata: ClusterMetadata
) -> Iterator[str]:
    """Yield a sentence for each partition with new producers whose ids are, or will be, used by others."""
    logs = [part for one in inputs if one.format == "log" for part in partitions_at(one.path)]
    is_own = all(part.topic_id in metadata.state.topics.names for part in logs)
    for one in done.writers:
        reuse = None if one.place.shift(options) else reuse_note(metadata, one.new_producers, is_own)
        if reuse is not None:
            yield f"{one.name}: {reuse} (--producers shift)"
