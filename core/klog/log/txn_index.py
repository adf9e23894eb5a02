"""The entries of a transaction index (`.txnindex`)."""

from __future__ import annotations

import os
from typing import NamedTuple

from klog.files.read_only import ReadOnlyFile
from klog.formats.index import ABORTED_TXN
from klog.formats.layout import Layout

_MOST_BYTES = 64 << 20


class AbortedTxn(NamedTuple):
    """An entry; fields as in `ABORTED_TXN`."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_txn_index(folder: str, name: str) -> tuple[list[AbortedTxn], int]:
    """Return the whole entries of a transaction index and the size of the file in bytes.  Raises UnreadableError."""
    layout: Layout = ABORTED_TXN
    with ReadOnlyFile(os.path.join(folder, name)) as source:
        content = source.read(0, min(source.size, _MOST_BYTES) // layout.size * layout.size)
        return [AbortedTxn(*entry) for entry in layout.read_all(content)], source.size


def newer_version(version: int) -> int:
    """Return the version that a broker takes an entry for where it does not know it, else 0.

    Only the first of its two bytes counts to it.  Kafka: AbortedTxn.version.
    """
    return max(version >> 8, 0)
