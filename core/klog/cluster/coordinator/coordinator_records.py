"""Reads the logs of coordinators: their records in order, or the latest of each key."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import KlogError
from klog.base.unusable import UNUSABLE, Unusable
from klog.data_dir.partition import Partition, segments_between
from klog.formats.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from klog.formats.damage import Damage
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.formats.sparing_codec import sparing_codecs
from klog.kernel import Window
from klog.log.segment import Segment

if TYPE_CHECKING:
    from klog.kernel import LatestRecords

_COMMIT_MARKER = 1
_MOST_LISTINGS = 10
"""How often a log is listed again while a broker removes segments of it."""
_WINDOW_BYTES, _WINDOW_ROWS = 1 << 16, 1024
"""A window of the usual size takes longer to make than the few records of most logs to read."""

Note = Callable[[str], object]
"""Receives a sentence about each unreadable part."""


def ignore(_sentence: str) -> None:
    """Take a sentence for which there is no listener."""


class CoordinatorEntry(NamedTuple):
    """A record of a coordinator's log.  *commits*: a marker, and which one; None for data.  *timestamp*: ms."""

    offset: int
    timestamp: int
    producer_id: int
    is_transactional: bool
    commits: bool | None
    key: bytes | None
    value: bytes | None


def record_windows(partition: Partition, note: Note = ignore, window: Window | None = None) -> Iterator[Window]:
    """Yield windows whose rows are the intact records of a log, in order; *note* receives the unreadable parts.

    Use a window before the next step.  *window*: one to fill, for a caller that reads many logs side by side. Neither
    content nor files that cannot be opened raise an error.
    """
    waiting, first, tries = list(partition.segments), LONG_MIN, _MOST_LISTINGS
    codecs = sparing_codecs()
    while waiting:
        segment = waiting.pop(0)
        path = partition.file(segment.log)
        try:
            for rows in Segment(path).record_windows(first, window, codecs):
                if isinstance(rows, Damage):
                    from klog.data_dir.zeroed_tail import note_damage

                    note_damage(partition, path, rows, note)
                else:
                    yield rows
        except KlogError as error:
            if os.path.lexists(path) or not tries:  # the other segments are still read
                note(str(error))
            else:
                # A running broker's cleaner has moved its records into the segment before it.
                first, tries = segment.base_offset, tries - 1
                waiting = list(segments_between(Partition(partition.path).segments, first, LONG_MAX))


def latest_records(
    partition: Partition, until_ms: int | None = None, note: Note = ignore, *, commits: bool = False
) -> LatestRecords:
    """Return the latest record of each key in a coordinator's log, and the pending records of transactions.

    *until_ms*: of those written before then.  *commits*: apply that limit also to the time inside an offset commit.
    """
    from klog.kernel import LatestRecords

    latest = LatestRecords(until_ms, commits)
    for window in record_windows(partition, note):
        latest.take(window)
    if latest.left_out:
        line = f"{partition.path}: {latest.left_out} records are left out: too many keys for a log of so few bytes"
        note(line)
        UNUSABLE.note(Unusable(partition.path, line, is_unreadable=False))
    return latest


def entries(partition: Partition, note: Note = ignore) -> Iterator[CoordinatorEntry]:
    """Yield the intact records of a log, in order."""
    for rows in record_windows(partition, note, Window(_WINDOW_BYTES, _WINDOW_ROWS, 1)):
        known = -1
        for i in range(rows.records):
            offset, timestamp, key, value, _, _, number = rows.record(i, False)
            if number != known:
                known, batch = number, rows.batch(number)
                transactional = bool(batch.attributes & TRANSACTIONAL_BIT)
            commits = None
            if batch.attributes & CONTROL_BIT:
                from klog.formats.control import control_record

                commits = control_record(key, value).type_id == _COMMIT_MARKER
            yield CoordinatorEntry(offset, timestamp, batch.producer_id, transactional, commits, key, value)


def records_until(
    partition: Partition, until_ms: int | None = None, note: Note = ignore
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield key and value of the data records, in order; *until_ms*: none that was written then or later."""
    for entry in entries(partition, note):
        if entry.key is not None and entry.commits is None and (until_ms is None or entry.timestamp < until_ms):
            yield entry.key, entry.value
