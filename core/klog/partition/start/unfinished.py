"""Files of unfinished operations, and their treatment by the first three passes of a broker's start.

Kafka: LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load.
"""

from __future__ import annotations

import os

from klog.base.errors import UnreadableError
from klog.change.partition_plan.contents import Content, FileRange, StoredContent
from klog.data_dir.partition import Partition
from klog.formats.index import OFFSET_ENTRY
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.formats.names import FileKind, FileName, Stage, file_name, parse_file
from klog.partition.start.start_files import FailsError, ReadSettings, StartSegment


def settle(partition: Partition, settings: ReadSettings) -> dict[str, Content]:
    """Return the files of the log under the names that they have after the three passes.

    Raises FailsError for names over which a broker does not start, UnreadableError.
    """
    files = partition.log_files
    cleaned = [offset_of(file) for file in files if file.stage is Stage.CLEANED]
    swaps = [file for file in files if file.stage is Stage.SWAP and offset_of(file) < min(cleaned, default=2**63)]
    start, end = _replaced(partition, settings, swaps)
    settled: dict[str, Content] = {}
    for file in files:
        if file.stage is Stage.IN_USE and not (file.offset is not None and start <= file.offset < end):
            settled[file.name] = _stored(partition, file.name)
    for file in swaps:
        settled[file.name.removesuffix(Stage.SWAP.value)] = _stored(partition, file.name)
        offset = offset_of(file)
        index = file_name(offset, FileKind.INDEX, Stage.SWAP)
        if file.kind is FileKind.LOG and all(other.name != index for other in swaps):
            # Opening the log to find its end creates an index of full length, which is then renamed to its final name.
            size = settings.index_bytes // OFFSET_ENTRY.size * OFFSET_ENTRY.size
            settled[file_name(offset, FileKind.INDEX)] = bytes(size)
    return settled


def _replaced(partition: Partition, settings: ReadSettings, swaps: list[FileName]) -> tuple[int, int]:
    """Return the offsets, from and up to, whose segments the finished ones among *swaps* replace."""
    start, end = LONG_MAX, LONG_MIN
    if not swaps:
        return start, end
    from klog.partition.start.segment_recovery import PartitionReader

    reading = PartitionReader(partition.path, settings)
    for file in swaps:
        if file.kind is not FileKind.LOG:
            continue
        base = offset_of(file)
        segment = StartSegment(base, (FileRange(file.name, 0, _stored(partition, file.name).size),))
        index = file_name(base, FileKind.INDEX, Stage.SWAP)
        if any(other.name == index for other in swaps):
            segment.offset_index = _stored(partition, index)
        start, end = min(start, base), max(end, reading.next_offset(segment))
    return start, end


def offset_of(file: FileName) -> int:
    """Return the offset in a file's name.  Raises FailsError if a broker stumbles over a name without one."""
    offset = file.offset if file.offset is not None else parse_file(file.name).offset
    if offset is None:
        raise FailsError(f"NumberFormatException: {file.name}", "foreign-log-name")
    return offset


def _stored(partition: Partition, name: str) -> StoredContent:
    path = os.path.join(partition.path, name)
    try:
        return StoredContent(name, os.stat(path).st_size)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
