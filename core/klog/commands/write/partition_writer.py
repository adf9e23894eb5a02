"""Writes one partition: batches that are built, or that come from another log."""

from __future__ import annotations

from collections.abc import Callable

from klog.commands.write.destination import OpenPartition, TopicPlace
from klog.commands.write.options import WriteOptions
from klog.commands.write.producer_rules import ProducerRules
from klog.kernel import FLUSH, TO_COMPRESS, BatchBuilder, InputRecords, Window
from klog.partition.append.appender import Appender

Compress = Callable[[memoryview, int], bytes]


class PartitionWriter:
    """A partition that is written: *appender* appends what *builder* has built."""

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
        """The ids of the producers that the partition knows now, and did not before."""
        return {*self.appender.log.producers.producers} - self._known_before

    def flush(self) -> None:
        """Append the batches that are built."""
        builder, window = self.builder, self.builder.target
        if builder.used:
            builder.rows()
            self.appender.append(window, 0, window.count)
            builder.flushed()

    def compress(self) -> int:
        """Compress the batch that waits for it; DONE, or why it cannot be written."""
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
        """Take in that a batch of a producer begins with record *i*; return why it must not, in words."""
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
