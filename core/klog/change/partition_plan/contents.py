"""The desired content of one file of a partition: new bytes, or ranges of existing files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.formats.index import ABORTED_TXN
from klog.log.txn_index import AbortedTxn, aborted_txns


class FileRange(NamedTuple):
    """Bytes *start* to *end* of a file of the partition's directory."""

    name: str
    start: int
    end: int


class StoredContent(NamedTuple):
    """The first *size* bytes of a file of the partition's directory."""

    name: str
    size: int


Content = StoredContent | bytes
"""The future content of a small file."""


def tail(folder: str, content: Content | None, entry_bytes: int) -> bytes:
    """Return the last whole entry of an index; nothing when it has none."""
    size = content_size(content)
    whole = size - size % entry_bytes
    if not whole:
        return b""
    if isinstance(content, bytes):
        return content[whole - entry_bytes : whole]
    assert content is not None
    with ReadOnlyFile(os.path.join(folder, content.name)) as source:
        return source.read(whole - entry_bytes, entry_bytes)


def content_size(content: Content | None) -> int:
    """Return how many bytes there are."""
    if content is None:
        return 0
    return content.size if isinstance(content, StoredContent) else len(content)


def txn_entries(folder: str, content: Content | None) -> Iterator[AbortedTxn]:
    """Yield the whole entries of a transaction index.  Raises UnreadableError."""
    if isinstance(content, StoredContent):
        with ReadOnlyFile(os.path.join(folder, content.name)) as source:
            yield from aborted_txns(source, content.size)
    elif content is not None:
        yield from map(AbortedTxn._make, ABORTED_TXN.read_all(content))
