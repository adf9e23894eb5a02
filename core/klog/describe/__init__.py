"""What stands in a log dir, a partition, a file: facts to be shown, no judgement.

    describe_log_dir(LogDir("data"))                one row a partition
    describe_partition(Partition("data/orders-3"))  one row a segment
    describe_file(KafkaFile(path, name))            the header facts of any Kafka file

Sizes are bytes, times ms since the epoch; None is what is not there or cannot be known, and *notes* say why.
"""

from __future__ import annotations

from klog.describe.files import FileFacts, Value, describe_file
from klog.describe.partitions import (
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
