"""Writes one partition: new batches, or those of another log."""

from __future__ import annotations

from collections.abc import Callable

from klog.commands.write.write_destination import OpenPartition, TopicPlace
from klog.commands.write.write_options import WriteOptions
from klog.kernel import FLUSH, TO_COMPRESS, BatchBuilder, InputRecords, Window
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
