"""Windows over bytes at hand, and their content, in the words of the plain decoder."""

from __future__ import annotations

from collections.abc import Iterator

from klog.formats.codec import Decompressor
from klog.kernel import DONE, MORE, Window

from tests.oracles.plain import decode

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...], int]
CODECS = Decompressor().functions


def loaded(data: bytes, *, position: int = 0, records: int = 8192, output: int = 1 << 18) -> Window:
    """Return a window that holds *data*, the bytes of a file from *position* on."""
    window = Window(len(data), records, output)
    window.buffer(len(data))[: len(data)] = data
    window.load(position, len(data))
    return window


def scanned(data: bytes, *, position: int = 0, records: int = 8192, output: int = 1 << 18) -> Window:
    """Return a window of *data*, all of whose entries are whole."""
    window = loaded(data, position=position, records=records, output=output)
    assert window.scan(0) == DONE
    window.check(0, window.count)
    return window


def begun(data: bytes, *, whole: bool = False, records: int = 8192, output: int = 1 << 18) -> Window:
    """Return a window of *data*, decompressed, where decoding is about to begin."""
    window = scanned(data, records=records, output=output)
    assert window.decompress(0, window.count, CODECS, 1 << 30) == window.count
    window.begin(0, window.count, whole)
    return window


def filled(data: bytes, *, output: int = 1 << 18) -> Window:
    """Return a window whose record rows are all the records of *data*."""
    window = begun(data, output=output)
    assert window.decode() == DONE
    return window


def rows(window: Window) -> list[Row]:
    """Return the record rows as they are, each without its batch."""
    return [window.record(i)[:6] for i in range(window.records)]


def all_rows(window: Window) -> tuple[list[Row], int]:
    """Return the records that decoding yields from where it is, and the status with which it ends."""
    found: list[Row] = []
    status = MORE
    while status == MORE:
        status = window.decode()
        found += rows(window)
    return found, status


def plain_batches(data: bytes) -> Iterator[decode.Batch]:
    """Yield the batches of *data*, all of which are intact."""
    for batch in decode.scan(data):
        assert isinstance(batch, decode.Batch)
        assert batch.fault is None
        yield batch


def plain_rows(data: bytes) -> list[Row]:
    """Return the records of *data* as the plain decoder reads them."""
    return [
        (r.offset, r.timestamp, r.key, r.value, r.headers, r.sequence) for b in plain_batches(data) for r in b.records
    ]
