"""Batches of another log, as they lie: only their offsets, leader epochs and producer ids change.

Batches that their new topic does not take are refused, or left out and counted: too large ones, and in a compacted
topic records without a key, which its cleaner would remove.  A batch without some of its records is as a cleaner leaves
it: offsets, sequence numbers and timestamps stay.  Kafka: LogValidator, MemoryRecords.buildRetainedRecordsInto.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from klog.base.errors import KlogError, UsageError, counted
from klog.base.progress import Sink
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.strict_reader import StrictReader, null_keys
from klog.commands.write.record_writer import PartitionWriter
from klog.commands.write.write_destination import BadRecordError, Destination, TopicPlace, WriteOptions
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import open_path
from klog.formats.batch import BATCH, CODEC_BITS, BatchHead, write_batch
from klog.formats.codec import Compressor, Decompressor
from klog.formats.names import CLUSTER_METADATA, PartitionState
from klog.kernel import DONE, Window, crc32c, drop_producers, stamp
from klog.log.header_walk import window_of
from klog.partition.transactions.isolation import AbortedFilter, AbortedRange
from klog.partition.transactions.markers import CompletedTxn
from klog.partition.transactions.producer_replay import replay
from klog.partition.transactions.producer_state import ProducerState

Run = tuple[Window, int, int]
"""Batches of a window: the first, and the one behind the last."""
_ADVICE: Final = "nothing was written (--skip-bad skips such records)"
_MAGIC: Final = 2


class UnfitBatches:
    """Passes on the batches that fit *place*, the new topic.

    *skips*: leave other batches out; otherwise they are refused.  *left_out*: counts the records; *reasons*: why.
    """

    def __init__(self, place: TopicPlace, skips: bool) -> None:
        self._topic, self._most, self._is_compacted = place.name, place.most_bytes, place.is_compacted
        self._skips = skips
        self._read, self._write = Decompressor().functions, Compressor().functions
        self.left_out = 0
        self.reasons: dict[str, int] = {}

    def fitting(self, window: Window, first: int, end: int, file: str) -> Iterator[Run]:
        """Yield the fitting ones of intact batches *first* to *end* of *window*; *file* has them.

        Raises BadRecordError for a refused batch, DamagedError for records that cannot be decoded.
        """
        for start, stop in self._small_enough(window, first, end, file):
            keyless = null_keys(window, start, stop, file, self._read) if self._is_compacted else {}
            if keyless:
                yield from self._with_keys(window, start, stop, keyless, file)
            else:
                yield window, start, stop

    def _small_enough(self, window: Window, first: int, end: int, file: str) -> Iterator[tuple[int, int]]:
        _, largest = stamp(window, first, end, -1, -1, 0)  # changes nothing
        for i in range(first, end) if largest > self._most else ():
            facts = window.batch(i)
            if facts.size > self._most:
                why = f"{self._topic} takes at most {self._most}"
                self._leave_out(f"batches of more than {self._most} bytes", facts.records_count, (
                    f"{file}: a batch of {facts.size} bytes (offset {facts.base_offset}), and {why}"
                ))  # fmt: skip
                if first < i:
                    yield first, i
                first = i + 1
        if first < end:
            yield first, end

    def _with_keys(
        self, window: Window, first: int, end: int, keyless: dict[int, set[int]], file: str
    ) -> Iterator[Run]:
        content = b""
        for i in range(first, end):
            facts, at = window.batch(i), window.at(i)
            batch = window.copy(at, at + facts.size)
            if i in keyless:
                offset = min(keyless[i])
                why = f"{file}: the record at offset {offset} has a null key, but {self._topic} is compacted"
                self._leave_out("null keys", len(keyless[i]), why)
                batch = self._without(batch, {one - facts.base_offset for one in keyless[i]})
            content += batch
        if content:
            rest = window_of(content, window.position)
            assert rest.scan(0) == DONE, "as many batches as before, or fewer"
            rest.check(0, rest.count)
            yield rest, 0, rest.count

    def _leave_out(self, reason: str, records: int, why: str) -> None:
        if not self._skips:
            raise BadRecordError(f"{why}; {_ADVICE}")
        self.left_out += records
        self.reasons[reason] = self.reasons.get(reason, 0) + records

    def _without(self, batch: bytes, deltas: Collection[int]) -> bytes:
        """Return *batch* without the records of these offset deltas; nothing if none is left."""
        fields = dict(zip(BATCH.names, BATCH.read(batch), strict=True))
        codec = fields["attributes"] & CODEC_BITS
        plain = bytes(self._read[codec](memoryview(batch)[BATCH.size :], _MAGIC))
        kept = [record for record, delta in _records(plain) if delta not in deltas]
        if not kept:
            return b""
        fields["records_count"] = len(kept)
        head = BatchHead(**{name: fields[name] for name in BatchHead._fields})
        return write_batch(head, self._write[codec](b"".join(kept), _MAGIC), crc32c)

    @property
    def summary(self) -> str:
        """The batches and records that were left out, in words."""
        return ", ".join(f"{counted(count, 'record')} ({why})" for why, count in self.reasons.items())


def _records(plain: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the bytes of each record of a batch that was decoded before, and its offset delta."""
    at = 0
    while at < len(plain):
        length, body = _varint(plain, at)
        _, behind_time = _varint(plain, body + 1)
        delta, _ = _varint(plain, behind_time)
        yield plain[at : body + length], delta
        at = body + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the zig-zag number at *at*, and the position of the next field."""
    found = shift = 0
    while True:
        byte = data[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return found >> 1 ^ -(found & 1), at


_REFUSED = "nothing is written"


def partitions_at(path: str) -> list[Partition]:
    """Return the partitions of a log dir that are in use, or the partition at *path*.  Raises UsageError."""
    opened = open_path(path)
    if isinstance(opened, LogDir):
        current = [one for one in opened.partitions if one.state is PartitionState.CURRENT]
        return [one for one in current if one.topic != CLUSTER_METADATA]
    if isinstance(opened, Partition) and opened.name is not None:
        return [opened]
    raise UsageError(f"{path}: expected a log dir or a partition directory, such as orders-3")


def place_of(partition: Partition, destination: Destination, options: WriteOptions) -> TopicPlace:
    """Return the topic to which *partition* is written.  Raises KlogError if it does not have that number."""
    name = options.topic or partition.topic or ""
    place = destination.topic(name)
    if place is None:
        raise KlogError(f"{partition.path}: {name} is no name of a topic")
    if partition.number is None or partition.number >= place.count:
        raise KlogError(f"{partition.path}: {place.name} has {place.count} partitions")
    return place


def copy_batches(partition: Partition, writer: PartitionWriter, options: WriteOptions, sink: Sink) -> int:
    """Append all batches of *partition*; return how many records the new topic does not take and were left out.

    Raises KlogError for batches that cannot be there, DamagedError over damage in the input, OSError.
    """
    place, number = writer.place, writer.number
    epoch, shift = place.stamp(options, number), place.shift(options)
    unfit, before = UnfitBatches(place, options.skips_bad), writer.appender.log.epochs.latest
    aborted = _aborted(partition) if options.drops_producers else None
    for window, file in _windows(partition, sink):
        runs = [(0, window.count)]
        if aborted is not None:
            aborted.skip(window)
            runs = drop_producers(window)
        for run in runs:
            for fitting, first, end in unfit.fitting(window, *run, file):
                at_end = -1 if options.keep_offsets else writer.appender.end
                stamp(fitting, first, end, at_end, epoch, shift)
                writer.append(fitting, first, end)
    _check_epoch(partition, writer, before)
    writer.builder.continue_at(writer.appender.end, writer.appender.log.epochs.latest)
    if unfit.left_out:
        sink.report(f"{partition.path}: left out {unfit.summary}")
    return unfit.left_out


def _check_epoch(partition: Partition, writer: PartitionWriter, before: int) -> None:
    """Raise KlogError for a leader epoch that the cluster has not reached: a broker would forget all earlier ones.

    *before*: the latest that the log had before anything was appended.
    """
    known, latest = writer.place.epochs.get(writer.number, -1), writer.appender.log.epochs.latest
    if 0 <= known < latest and before < latest:
        raise KlogError(
            f"{partition.path}: batches of leader epoch {latest}, which the cluster has not reached: by the metadata"
            f" log {writer.name} is in {known}; nothing was written (without --leader-epoch they get that)"
        )


def _aborted(partition: Partition) -> AbortedFilter:
    """Return a filter of aborted batches, from the log alone.  Raises KlogError over an open transaction."""
    state = ProducerState(partition.segments[0].base_offset if partition.segments else 0)
    aborted = [
        AbortedRange(event.producer_id, event.first_offset, event.last_offset)
        for event in replay(state, partition.path, partition.segments)
        if isinstance(event, CompletedTxn) and event.aborted
    ]
    for first, producer_id in sorted(state.ongoing.all()):
        raise KlogError(
            f"{partition.path}: the transaction of producer {producer_id} from offset {first} on is open, so it may"
            f" have been aborted; {_REFUSED} (--producers keep and shift write it as it is)"
        )
    return AbortedFilter(aborted, partition.path)


def _windows(partition: Partition, sink: Sink) -> Iterator[tuple[Window, str]]:
    """Yield windows of intact batches, each with the path of its log."""
    window = Window(output=0)
    for files in partition.segments:
        path = partition.file(files.log)
        with ReadOnlyFile(path) as source:
            reader = StrictReader(source, path, files.base_offset, _REFUSED, advance=sink.advance)
            while reader.next(window):
                if not window.count:
                    continue
                if window.batch(0).magic < 2 or window.edges()[0] < window.count:
                    dump = "'klog dump --output jsonl' makes records of them"
                    raise KlogError(f"{path}: message sets of an old format are not appended; {dump}")
                yield window, path
