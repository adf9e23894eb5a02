"""The entries of a transaction index (`.txnindex`): aborted transactions whose marker is in the segment.

Kafka: TransactionIndex, AbortedTxn.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.formats.index import ABORTED_TXN

_STEP_BYTES = 2048 * ABORTED_TXN.size
_MOST_BYTES = 64 << 20


class AbortedTxn(NamedTuple):
    """An entry; fields as in `ABORTED_TXN`."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def aborted_txns(file: ReadableLog, size: int | None = None) -> Iterator[AbortedTxn]:
    """Yield the whole entries in the first *size* bytes of an open index (None: all), with 68 KiB of it in memory.

    A hole, which no broker leaves, yields at most the entries of 68 KiB, all zeros.  Raises UnreadableError.
    """
    end = file.size if size is None else size
    position = 0
    while position < end - end % ABORTED_TXN.size:
        content = file.read(position, min(_STEP_BYTES, end - position))
        if not content:
            return
        yield from map(AbortedTxn._make, ABORTED_TXN.read_all(content))
        position += _STEP_BYTES
        position += max(file.next_data(position) - position, 0) // _STEP_BYTES * _STEP_BYTES


def read_txn_index(folder: str, name: str) -> tuple[list[AbortedTxn], int]:
    """Return the whole entries in the first 64 MiB of an index, and the size of the file in bytes: a broker's is small.

    Raises UnreadableError.
    """
    with ReadOnlyFile(os.path.join(folder, name)) as source:
        return list(islice(aborted_txns(source), _MOST_BYTES // ABORTED_TXN.size)), source.size


def txn_index_content(entries: Iterable[AbortedTxn]) -> bytes:
    """Return the content of an index with these entries."""
    return b"".join(ABORTED_TXN.write(*entry) for entry in entries)


def newer_version(version: int) -> int:
    """Return the version that a broker assigns to an entry of an unknown version, else 0.

    A broker reads only the first of the two bytes.  Kafka: AbortedTxn.version.
    """
    return max(version >> 8, 0)
