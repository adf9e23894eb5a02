"""Opens the object that a path names: a log dir, a partition directory or one of Kafka's files."""

from __future__ import annotations

import os
from typing import NamedTuple

from klog.base.errors import UnreadableError, UsageError
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.names import ROOT_KINDS, SEGMENT_KINDS, FileKind, FileName, parse_file


class KafkaFile(NamedTuple):
    """A single file that a path names."""

    path: str
    name: FileName


def open_path(path: str) -> LogDir | Partition | KafkaFile:
    """Return the object at *path*, by its content and its name; only the directory is read.

    Raises UsageError when it is none of the three, UnreadableError when it cannot be read.
    """
    try:
        is_directory, is_file = os.path.isdir(path), os.path.isfile(path)
        if not is_directory:
            os.stat(path)
    except OSError as error:
        if isinstance(error, PermissionError):
            raise UnreadableError(f"{path}: {error.strerror}") from error
        raise UsageError(f"{path}: {error.strerror}; {EXPECTED}") from error
    if is_file:
        name = parse_file(os.path.basename(os.path.abspath(path)))
        if name.kind is FileKind.OTHER:
            raise UsageError(f"{path}: not a name of a Kafka file; {EXPECTED}")
        return KafkaFile(path, name)
    if not is_directory:
        raise UsageError(f"{path}: neither a file nor a directory; {EXPECTED}")
    return _open_directory(path)


EXPECTED = (
    "expected a log dir (what log.dirs names), a partition directory (orders-3) or a Kafka file "
    "(00000000000000000000.log, .index, .timeindex, .txnindex, .snapshot, a checkpoint, meta.properties)"
)


def _open_directory(path: str) -> LogDir | Partition:
    # Log dirs are often called kafka-logs-1, as if they were partitions: their content counts, not the name.
    partition = Partition(path)
    partition.check_listed()
    kinds = {file.kind for file in partition.files}
    if kinds & ROOT_KINDS:
        return LogDir(path)
    # Many programs call their files .log, but with an offset for a name only Kafka.
    numbered = {file.kind for file in partition.files if file.offset is not None}
    if numbered & {*SEGMENT_KINDS, FileKind.SNAPSHOT, FileKind.KRAFT_SNAPSHOT} or kinds & {
        FileKind.LEADER_EPOCHS,
        FileKind.PARTITION_METADATA,
    }:
        return partition
    log_dir = LogDir(path)
    if log_dir.partitions:
        return log_dir
    beside = Partition(os.path.dirname(os.path.abspath(path)))
    if partition.name is not None and ROOT_KINDS & {file.kind for file in beside.files}:
        return partition
    raise UsageError(f"{path}: no Kafka data in this directory; {EXPECTED}")
