"""Reads single batches again: candidates for twins, compared by the parts that a broker never changes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from klog.base.errors import KlogError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition
from klog.formats.batch import BATCH, CODEC_BITS, CRC_START, LOG_APPEND_TIME_BIT, BatchFacts
from klog.formats.codec import CodecError, Decompressor
from klog.jobs.runner import TaskResult, json_result
from klog.kernel import Window, record_signs
from klog.log.header_walk import header_at, window_of
from klog.log.reader import MAX_BATCH_BYTES
from klog.partition.transactions.isolation import AbortedRange, visible_range

_MAX_TIMESTAMP = BATCH.offsets["max_timestamp"]
_BEHIND_TIMESTAMP = BATCH.offsets["producer_id"]
_MESSAGE_START = 16


class BatchTask(NamedTuple):
    """A batch to read, and the *number* of the task.

    *partition*, *partitions*: the number of its partition, and how many its topic has; 0: not known.
    """

    number: int
    path: str
    position: int
    partition: int
    partitions: int


class RecordSigns(NamedTuple):
    """The profile of a batch's records: how many have keys, and how many of these murmur2 puts into this partition.

    *schema*: the id in the first value that begins with one, −1 for none; *framed*: values with that id.
    """

    keys: int
    here: int
    schema: int
    framed: int
    values: int


class BatchContent(NamedTuple):
    """A batch that was read again and is intact.

    *content*: digest of its bytes from 21 on, without those that a broker sets with LogAppendTime; *plain*: digest of
    its records, decompressed, if it has a producer id.  *signs*: None if records cannot be read.
    """

    header: BatchFacts
    content: str
    plain: str | None
    signs: RecordSigns | None
    is_aborted: bool

    @property
    def has_append_time(self) -> bool:
        """Whether the broker has set the largest timestamp."""
        return bool(self.header.magic and self.header.attributes & LOG_APPEND_TIME_BIT)

    def equals(self, other: BatchContent) -> str | None:
        """Return the reason why two batches are the same: `same-bytes`, `same-records`; None if they are not."""
        is_stamped = self.has_append_time or other.has_append_time
        if not is_stamped and self.header.max_timestamp != other.header.max_timestamp:
            return None
        if self.content == other.content:
            return "same-bytes"
        is_recoded = self.header.codec != other.header.codec and _stays(self.header) == _stays(other.header)
        return "same-records" if is_recoded and self.plain is not None and self.plain == other.plain else None


def _stays(header: BatchFacts) -> tuple[int, ...]:
    """Return the fields of a header that a broker keeps when it recompresses."""
    return (
        header.producer_id, header.producer_epoch, header.base_sequence, header.records_count,
        header.last_offset_delta, header.base_timestamp, header.attributes & ~(CODEC_BITS | LOG_APPEND_TIME_BIT),
    )  # fmt: skip


def read_batches(unit: Sequence[BatchTask], max_batch_bytes: int = MAX_BATCH_BYTES) -> Iterator[TaskResult]:
    """Read the batches of *unit*: an answer `batch` for each that is intact, with the number of its task.

    Raises nothing: an unreadable batch is no twin.
    """
    aborted: dict[str, tuple[AbortedRange, ...]] = {}
    for task in unit:
        try:
            found = _read(task, max_batch_bytes, aborted)
        except (KlogError, CodecError):
            continue
        if found is not None:
            yield json_result("batch", found, task.number)


def batch_content(facts: Any) -> BatchContent:
    """Return the content that `read_batches` sent."""
    header, content, plain, signs, is_aborted = facts
    return BatchContent(BatchFacts(*header), content, plain, RecordSigns(*signs) if signs else None, is_aborted)


def _read(task: BatchTask, max_batch_bytes: int, aborted: dict[str, tuple[AbortedRange, ...]]) -> BatchContent | None:
    with ReadOnlyFile(task.path) as log:
        header = header_at(log, task.position)
        if header is None or header.size > max_batch_bytes:
            return None
        data = log.read(task.position, header.size)
    window = window_of(data, task.position, 1)
    window.scan(0)
    if window.count == 0 or window.check(0, 1):
        return None
    header = window.batch(0)
    plain = _records_digest(data, header, max_batch_bytes) if header.producer_id >= 0 else None
    signs = _signs(window, task, max_batch_bytes)
    is_aborted = header.is_transactional and _is_aborted(os.path.dirname(task.path), header, aborted)
    return BatchContent(header, _content_digest(data, header), plain, signs, is_aborted)


def _content_digest(data: bytes, header: BatchFacts) -> str:
    if header.magic < 2:
        return blake2b(memoryview(data)[_MESSAGE_START:], digest_size=32).hexdigest()
    digest = blake2b((header.attributes & ~LOG_APPEND_TIME_BIT & 0xFFFF).to_bytes(2, "big"), digest_size=32)
    digest.update(memoryview(data)[CRC_START + 2 : _MAX_TIMESTAMP])
    digest.update(memoryview(data)[_BEHIND_TIMESTAMP:])
    return digest.hexdigest()


def _records_digest(data: bytes, header: BatchFacts, max_batch_bytes: int) -> str | None:
    codec = header.attributes & CODEC_BITS
    try:
        records = Decompressor(max_batch_bytes).functions[codec](memoryview(data)[BATCH.size :], header.magic)
    except CodecError:
        return None
    return blake2b(records, digest_size=32).hexdigest()


def _signs(window: Window, task: BatchTask, max_batch_bytes: int) -> RecordSigns | None:
    if window.decompress(0, 1, Decompressor(max_batch_bytes).functions) == 0:
        return None
    found = record_signs(window, 0, 1, task.partition, task.partitions)
    return RecordSigns(*found[0][1:]) if found else None


def _is_aborted(directory: str, header: BatchFacts, aborted: dict[str, tuple[AbortedRange, ...]]) -> bool:
    if directory not in aborted:
        aborted[directory] = visible_range(Partition(directory), "read_committed").aborted or ()
    return any(
        one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
        for one in aborted[directory]
    )
