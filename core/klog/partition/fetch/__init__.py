"""The bytes and files that a consumer or a follower would receive, within its limits.

    log = FetchLog(Partition("data/orders-3"), Files())
    answer = fetch(log, Bounds(0, end, end, end), Asked(offset=17, max_bytes=1 << 20, up_to=end))
    answer.pieces                               # (Piece("data/orders-3/00000000000000000000.log", 4096, 1048000),)

Results are ranges of files, never bytes: the code that answers a client passes them to the operating system.
"""

from klog.partition.fetch.fetch import fetch, list_batches
from klog.partition.fetch.fetch_answer import (
    AbortedTransaction,
    BatchExtent,
    FetchListing,
    FetchRequest,
    FetchResult,
    FileBytes,
    OffsetBounds,
    PartialBatch,
)
from klog.partition.fetch.fetched_log import Damaged, FetchLog
from klog.partition.fetch.open_logs import OpenFiles
from klog.partition.fetch.verified_ranges import UnservedRange

__all__ = [
    "AbortedTransaction",
    "BatchExtent",
    "Damaged",
    "FetchListing",
    "FetchLog",
    "FetchRequest",
    "FetchResult",
    "FileBytes",
    "OffsetBounds",
    "OpenFiles",
    "PartialBatch",
    "UnservedRange",
    "fetch",
    "list_batches",
]
