"""What a consumer or a follower would be handed: which bytes of which files, within its limits.

    log = FetchLog(Partition("data/orders-3"), Files())
    answer = fetch(log, Bounds(0, end, end, end), Asked(offset=17, max_bytes=1 << 20, up_to=end))
    answer.pieces                               # (Piece("data/orders-3/00000000000000000000.log", 4096, 1048000),)

Pieces of files, never bytes: whoever answers a client hands them to the kernel.
"""

from klog.fetch.answer import AbortedTxn, Asked, Bounds, Cut, Error, Fetched, Handed, Listed, Piece
from klog.fetch.fetch import fetch, listed
from klog.fetch.files import Files
from klog.fetch.log import Damaged, FetchLog
from klog.fetch.verified_ranges import Loss

__all__ = [
    "AbortedTxn",
    "Asked",
    "Bounds",
    "Cut",
    "Damaged",
    "Error",
    "FetchLog",
    "Fetched",
    "Files",
    "Handed",
    "Listed",
    "Loss",
    "Piece",
    "fetch",
    "listed",
]
