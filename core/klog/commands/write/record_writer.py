"""Hands records to the partitions that they belong to, and writes each of these, until all are written.

writer = RecordWriter(destination, options, report)
for rows in json_records(source, name):
    writer.take(rows, name)
writer.close()
"""

from __future__ import annotations

from collections.abc import Callable

from klog.base.errors import counted
from klog.commands.write.write_destination import (
    PARTITIONER_NAMES,
    BadRecordError,
    Destination,
    OpenPartition,
    TopicPlace,
    WriteOptions,
)
from klog.formats.codec import Compressor
from klog.kernel import (
    ASK,
    DONE,
    FIRST_FAULT,
    FLUSH,
    OPEN_PARTITION,
    RECORD_FAULTS,
    TO_COMPRESS,
    BatchBuilder,
    BatchRouter,
    InputRecords,
    TopicRoute,
    Window,
)
from klog.partition.append.appender import Appender
from klog.partition.transactions.producer_state import ProducerState


class ProducerRules:
    """The open transactions of one partition, by producer id, each with its producer epoch."""

    def __init__(self, state: ProducerState) -> None:
        self._open = {
            producer_id: entry.producer_epoch
            for producer_id, entry in state.producers.items()
            if entry.current_txn_first_offset != -1
        }

    def fault(
        self, producer_id: int, epoch: int, *, is_transactional: bool, is_marker: bool, has_gap: bool = False
    ) -> str | None:
        """Take in a batch; return why a broker could not, in words, and then it is not taken.

        *has_gap*: offsets are missing before it, as after a compaction, which may leave no more than the marker.
        """
        begun = self._open.get(producer_id)
        if is_marker:
            if begun is None and has_gap:
                return None
            if begun is None:
                return f"a marker of producer {producer_id}, which has no open transaction"
            if epoch < begun:
                return f"a marker of producer epoch {epoch}, but the transaction is of epoch {begun}"
            del self._open[producer_id]
        elif is_transactional:
            self._open[producer_id] = epoch
        elif begun is not None:
            return f"not transactional, but producer {producer_id} has an open transaction"
        return None


Compress = Callable[[memoryview, int], bytes]


class PartitionWriter:
    """A partition that is written: *appender* appends the batches of *builder*."""

    def __init__(
        self,
        place: TopicPlace,
        number: int,
        opened: OpenPartition,
        builder: BatchBuilder,
        compress: Compress,
        options: WriteOptions,
    ) -> None:
        self.place, self.number = place, number
        self.builder = builder
        self.appender = Appender(opened.log, opened.target)
        self.rules = ProducerRules(opened.log.producers)
        self._open_before = {*opened.log.producers.ongoing.all()}
        self._known_before = {*opened.log.producers.producers}
        self._compress = compress
        self._shift = place.shift(options)

    @property
    def name(self) -> str:
        """The directory's name."""
        return f"{self.place.name}-{self.number}"

    def left_open(self) -> set[tuple[int, int]]:
        """Return the transactions that are open and were not before, each with its first offset and its producer id."""
        return {*self.appender.log.producers.ongoing.all()} - self._open_before

    @property
    def new_producers(self) -> set[int]:
        """The ids of the producers that this write has added to the partition."""
        return {*self.appender.log.producers.producers} - self._known_before

    def flush(self) -> None:
        """Append the batches that are built."""
        builder, window = self.builder, self.builder.target
        if builder.used:
            builder.rows()
            self.appender.append(window, 0, window.count)
            builder.flushed()

    def compress(self) -> int:
        """Compress the pending batch; DONE, or the reason why it cannot be written."""
        data = self._compress(self.builder.plain_records(), 2)
        status = self.builder.compressed(data)
        if status == FLUSH:
            self.flush()
            status = self.builder.compressed(data)
        return status

    def end_batch(self) -> int:
        """End the open batch; DONE, or why it cannot be written."""
        status = self.builder.close()
        while status in (FLUSH, TO_COMPRESS):
            if status == FLUSH:
                self.flush()
            status = self.compress() if status == TO_COMPRESS else self.builder.close()
        return status

    def fault(self, rows: InputRecords, i: int) -> str | None:
        """Note that a batch of a producer begins with record *i*; return in words why it must not."""
        producer_id, epoch, is_transactional, control = rows.producer(i)
        shifted = producer_id + (0 if producer_id >> 62 else self._shift)
        return self.rules.fault(
            shifted,
            epoch,
            is_transactional=is_transactional,
            is_marker=control is not None,
            has_gap=self.builder.has_gap,
        )

    def append(self, window: Window, first: int, end: int) -> None:
        """Append batches of another log."""
        self.appender.append(window, first, end)

    def close(self) -> None:
        """Leave the partition as after a clean stop; the last batch has ended."""
        self.appender.close()


_FAULTS = {
    "topic": "no topic",
    "partition": "no such partition",
    "key": "no key; null is one",
    "value": "no value; null is one",
    "null-key": "a null key, but the topic is compacted",
    "timestamp": "a timestamp below -1",
    "no-offset": "no offset, which --keep-offsets needs",
    "offset-below": "an offset that is not above the one before, or is below the log end",
    "too-large": "larger than max.message.bytes, or than a segment",
    "batch-too-large": "the batch that begins there is larger than max.message.bytes, or than a segment",
    "position": "no position, which --batches keep needs",
    "epoch-below": "a leader epoch below that of the record before",
    "epoch-above": "a leader epoch that the cluster has not reached, by the metadata log",
    "producer": "a marker, or a record of a transaction, without a producer id",
    "moved": "a record of a transaction must name its partition, and stays there",
}
_TEXTS = {
    "syntax": "not in the form of 'klog dump', ",
    "type": "a value of another type, or out of range",
    "base64": "not base64",
    "utf-8": "not UTF-8",
    "damage": "a line about damage, not a record",
    "columns": "not as many fields as the first line has",
    "undecided": "of a transaction without an end in the input (stdin is read once: put it into a file), so it may"
    " have been aborted",
}


_LINES = {"jsonl": "one JSON object a line", "csv": "with quotes around a text that has some, which are doubled"}
_WANTED = {
    "timestamp": "expected ms since the epoch, a whole number",
    "key": "expected text or null", "value": "expected text or null", "topic": "expected text",
    "key_base64": "expected text", "value_base64": "expected text",
    "headers": 'expected pairs, such as [["key","value"]]', "transactional": "expected true or false",
    "control": "expected COMMIT or ABORT", "timestamp_type": "expected CreateTime or LogAppendTime",
}  # fmt: skip


class RecordWriter:
    """Writes records; *report* receives a line for each record that is left out.  *skipped* counts those."""

    def __init__(self, destination: Destination, options: WriteOptions, report: Callable[[str], None]) -> None:
        self._destination, self._options, self._report = destination, options, report
        self._router = BatchRouter(None if options.topic is None else options.topic.encode(), options.repartition)
        self._topics: dict[bytes, TopicPlace | None] = {}
        self._routes: dict[str, TopicRoute] = {}
        self._writers: dict[tuple[str, int], PartitionWriter] = {}
        self._functions = Compressor(options.level).functions
        self._window = Window(1, 1, 1)
        self._name = self._form = ""
        self.skipped = 0

    @property
    def partitions(self) -> list[PartitionWriter]:
        """The partitions that were opened, by name."""
        return [self._writers[key] for key in sorted(self._writers)]

    def take(self, rows: InputRecords, name: str, form: str = "jsonl") -> None:
        """Write the records of *rows* from the input *name*: jsonl, csv or parquet.

        Raises BadRecordError, KlogError, OSError.
        """
        self._name, self._form = f"{name}, {'row' if form == 'parquet' else 'line'}", form
        i, status = self._router.feed(rows, 0)
        while status != DONE:
            if status == OPEN_PARTITION:
                self._open()
            elif status == FLUSH:
                self._writer.flush()
            elif status == TO_COMPRESS:
                self._check(self._writer.compress())
            elif status == ASK:
                i += self._asked(rows, i)
            elif not self._is_mended(RECORD_FAULTS[status - FIRST_FAULT], rows, i):
                i += self._fault(RECORD_FAULTS[status - FIRST_FAULT], rows, i)
            i, status = self._router.feed(rows, i)

    @property
    def _writer(self) -> PartitionWriter:
        """The partition at which the router stopped."""
        assert self._router.name is not None
        return self._writers[self._router.name.decode(), self._router.partition]

    def _is_mended(self, fault: str, rows: InputRecords, i: int) -> bool:
        """Add the topic, or the partition, that a record is the first to name; False if that cannot be."""
        if fault == "topic":
            return self._add_topic()
        place = self._topics.get(self._router.name or b"")
        number = rows.partition(i)
        if fault != "partition" or place is None or number is None or not place.count <= number < place.most:
            return False
        self.route(place).builders.extend([None] * (number + 1 - place.count))
        place.count = number + 1
        return True

    def _add_topic(self) -> bool:
        """Look up the topic that the router does not know; False if it does not exist."""
        name = self._router.name
        if name is None or name in self._topics:
            return False
        place = self._topics[name] = self._destination.topic(name.decode("utf-8", "replace"))
        if place is None:
            return False
        self.route(place)
        return True

    def route(self, place: TopicPlace) -> TopicRoute:
        """Return the route of a topic."""
        if place.name not in self._routes:
            options = self._options
            self._topics[place.name.encode()] = place
            how, seed = PARTITIONER_NAMES.index(options.partitioner), options.seed + len(self._routes)
            route = TopicRoute([None] * place.count, how, options.batch_bytes, seed)
            self._routes[place.name] = route
            self._router.add_topic(place.name.encode(), route)
        return self._routes[place.name]

    def _open(self) -> None:
        assert self._router.name is not None
        place = self._topics[self._router.name]
        assert place is not None
        self.open(place, self._router.partition)

    def open(self, place: TopicPlace, number: int) -> PartitionWriter:
        """Return the writer of a partition, which is opened once."""
        key = place.name, number
        if key not in self._writers:
            opened = self._destination.open(place, number)
            builder = place.builder(self._options, number, opened.log, self._window, len(self._writers))
            compress = self._functions[place.codec(self._options)]
            self._writers[key] = PartitionWriter(place, number, opened, builder, compress, self._options)
            self.route(place).builders[number] = builder
        return self._writers[key]

    # records that cannot be written

    def _asked(self, rows: InputRecords, i: int) -> int:
        """Let a batch of a producer begin, or leave record *i* out; return the number of skipped records."""
        fault = self._writer.fault(rows, i)
        if fault is not None:
            return self._leave_out(f"{self._name} {rows.line(i)}: {fault}", 1)
        self._router.builder.allow()
        return 0

    def _fault(self, fault: str, rows: InputRecords, i: int) -> int:
        if fault == "batch-too-large":
            self._check(FIRST_FAULT + RECORD_FAULTS.index(fault))
            return 0
        place = f"{self._name} {rows.line(i)}"
        if fault == "text":
            return self._leave_out(f"{place}{self._spoilt(rows, i)}", 1)
        return self._leave_out(f"{place}: {_FAULTS[fault]}{self._said(fault, rows, i)}", 1)

    def _said(self, fault: str, rows: InputRecords, i: int) -> str:
        """Return a sentence about the unknown name in a record, and the existing ones."""
        topic = rows.topic(i)
        if fault == "topic":
            return " (--topic NAME)" if topic is None else f" can have the name {topic.decode('utf-8', 'replace')}"
        if fault == "offset-below":
            return f": {self._router.builder.next_offset} is the lowest that fits"
        if fault != "partition":
            return ""
        place = self._topics.get(self._router.name or b"")
        count = "" if place is None else f": {place.name} has {counted(place.count, 'partition')}"
        hint = "" if place is None or place.is_broker else " (--partitions N for a new log dir)"
        return f" {rows.partition(i)}{count}{hint}"

    def _spoilt(self, rows: InputRecords, i: int) -> str:
        """Return where in its line record *i* is no record, and why."""
        error, (field, column) = rows.error(i), rows.place(i)
        why = _TEXTS[error] + (_LINES[self._form] if error == "syntax" else "")
        if field and error != "damage":
            wanted = _WANTED.get(field, "expected a whole number") if error == "type" else ""
            why = f"{field}: {why}{'; ' * bool(wanted)}{wanted}"
        return f", column {column}: {why}" if column else f": {why}"

    def _check(self, status: int) -> None:
        """Leave the open batch out if *status* shows that it cannot be written."""
        if status != DONE:
            builder = self._router.builder
            self._leave_out(f"{self._name} {builder.line}: {_FAULTS['batch-too-large']}", builder.drop())

    def _leave_out(self, why: str, count: int) -> int:
        if not self._options.skips_bad:
            raise BadRecordError(f"{why}; nothing was written (--skip-bad skips such records)")
        self._report(why)
        self.skipped += count
        return count

    # the end

    def end_batches(self) -> None:
        """End and append all batches that are open.  Raises BadRecordError, KlogError, OSError."""
        for writer in self.partitions:
            if writer.end_batch() != DONE:
                why = f"{self._name} {writer.builder.line}: {_FAULTS['batch-too-large']}"
                self._leave_out(why, writer.builder.drop())
            writer.flush()

    def close(self) -> None:
        """End all batches, and leave all partitions as after a clean stop.  Raises KlogError, OSError."""
        self.end_batches()
        for writer in self.partitions:
            writer.close()
