"""Partitions made for lookups, with indexes as a leader writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record, batch

MS = 1_700_000_000_000


def write_segment(
    folder: Path, base_offset: int, batches: Sequence[tuple[int, int, bytes]], *, interval: int = 4096
) -> Path:
    """Write a log of (last offset, largest timestamp, bytes) and its indexes as an append of each batch makes them."""
    folder.mkdir(exist_ok=True)
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    position = since = 0
    largest = (-1, base_offset)
    for last_offset, timestamp, content in batches:
        if timestamp > largest[0]:
            largest = timestamp, last_offset
        if since > interval:
            offsets.append((last_offset, position))
            if largest[0] > (times[-1][0] if times else -1):
                times.append(largest)
            since = 0
        since += len(content)
        position += len(content)
    if largest[0] > (times[-1][0] if times else -1):
        times.append(largest)
    stem = folder / f"{base_offset:020}"
    path = stem.with_suffix(".log")
    path.write_bytes(b"".join(content for _, _, content in batches))
    stem.with_suffix(".index").write_bytes(encode.offset_entries(base_offset, offsets))
    stem.with_suffix(".timeindex").write_bytes(encode.time_entries(base_offset, times))
    return path


def of_records(groups: Iterable[Sequence[Record]], **how: object) -> list[tuple[int, int, bytes]]:
    """Return a batch of each group of records, for `write_segment`."""
    made = []
    for records in groups:
        content = batch(records, **how)  # type: ignore[arg-type]
        made.append((records[-1].offset, max(r.timestamp for r in records), content))
    return made


def batches_of(sizes: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, bytes]]:
    """Return batches of (first offset, last offset, bytes): exactly so large, for examples that give positions.

    Long ranges have a record at either end only, as compaction would leave them.
    """
    made = []
    for first, last, size in sizes:
        offsets = range(first, last + 1) if last - first < 20 else (first, last)
        records = [Record(offset, MS + offset, None, b"") for offset in offsets]
        room = size - len(batch(records))
        fitting = (
            content
            for padding in range(max(0, room - 2), room + 1)
            if len(content := batch([Record(first, MS + first, None, bytes(padding)), *records[1:]])) == size
        )
        made.append((last, MS + last, next(fitting)))
    return made
