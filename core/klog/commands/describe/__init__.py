"""Facts about a log dir, a partition or a file, without a judgement.

    describe_log_dir(LogDir("data"))                one row per partition
    describe_partition(Partition("data/orders-3"))  one row per segment
    describe_file(KafkaFile(path, name))            the header facts of any Kafka file

Sizes are bytes, times ms since the epoch; None means absent or unknown, and *notes* give the reason.
"""

from __future__ import annotations

from klog.commands.describe.file_facts import FileFacts, Value, describe_file
from klog.commands.describe.partition_rows import (
    LogDirSummary,
    PartitionRow,
    PartitionSummary,
    SegmentRow,
    describe_log_dir,
    describe_partition,
)

__all__ = [
    "FileFacts",
    "LogDirSummary",
    "PartitionRow",
    "PartitionSummary",
    "SegmentRow",
    "Value",
    "describe_file",
    "describe_log_dir",
    "describe_partition",
]
