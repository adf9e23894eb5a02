"""Reads a log that is going to be rewritten or continued, and refuses damage.

Batches that a compaction makes get new checksums, which would hide it, and behind damage a broker would not read on.

Records without a key are refused apart: the cleaner removes them from a compacted topic, and a broker takes none.
Control records are none of them.  Kafka: Cleaner.shouldRetainRecord, LogValidator.validateKey.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from shlex import quote
from typing import NoReturn

from klog.base.errors import DamagedError
from klog.base.read_only import ReadOnlyFile
from klog.change.plan.model import Digest
from klog.data_dir.partition import Partition
from klog.formats.batch import CONTROL_BIT
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind, Location
from klog.kernel import Profile, Window, ascending_run
from klog.log.reader import LogReader
from klog.log.records import BatchRun, Codecs, decode_run
from klog.log.segment import Segment

Advance = Callable[[int], None]


def no_progress(_size: int) -> None:
    """A progress callback that does nothing."""


class StrictReader:
    """Returns the batches of a segment, a window at a time, from byte *position* on; raises at the first damage.

    A broker's cleaner compares no checksums: it turns a damaged batch that can still be read into a sound one.  *base*:
    the segment's base offset.  *refused*: the omitted action, for the message.  *advance* receives the bytes read; they
    are added to *digest*.
    """

    def __init__(
        self,
        log: ReadOnlyFile,
        path: str,
        base: int,
        refused: str,
        position: int = 0,
        advance: Advance = no_progress,
        digest: Digest | None = None,
    ) -> None:
        self.path, self._digest = path, digest
        self._base, self._advance, self._refused = base, advance, refused
        span = Segment(os.path.join(os.path.dirname(path), f"{base:020}.log")).span
        self._reader = LogReader(log, position, min_offset=span.min_offset, max_offset=span.max_offset, checked=True)
        self._size, self._read = log.size, position
        self._last_offset = base - 1

    def next(self, window: Window) -> bool:
        """Fill *window* with the next whole batches; False at the end.  Raises DamagedError, UnreadableError."""
        piece = self._reader.next(window)
        if piece is None:
            if self._read < self._size:
                self.refuse(
                    Damage(DamageKind.UNREADABLE, Location(self.path, self._read), "the file has become shorter")
                )
            return False
        self._read += piece.consumed
        self._advance(piece.consumed)
        if self._digest is not None:
            self._digest.update(window.content()[: piece.consumed])
        if window.check(0, window.count):
            bad = window.first_bad(0, window.count)
            facts = window.batch(bad)
            detail = "the checksum does not match"
            self.refuse(Damage(DamageKind.BAD_CRC, Location(self.path, facts.position, facts.base_offset), detail))
        if piece.damage is not None:
            self.refuse(piece.damage)
        self._check_order(window)
        return True

    def _check_order(self, window: Window) -> None:
        if not window.count:
            return
        in_order, _ = ascending_run(window, 0, window.count, self._last_offset, -1, self._base + 2**31 - 1)
        if in_order < window.count:
            facts = window.batch(in_order)
            place = Location(self.path, facts.position, facts.base_offset)
            self.refuse(Damage(DamageKind.OFFSET_BACKWARDS, place, "the batch is not in order"))
        self._last_offset = window.batch(window.count - 1).last_offset

    def refuse(self, damage: Damage) -> NoReturn:
        """Raise DamagedError over *damage*."""
        partition = os.path.dirname(self.path)
        raise DamagedError(f"{damage.place}: {damage.detail}; {self._refused}; first: klog recover {quote(partition)}")


def null_keys(window: Window, first: int, end: int, file: str, codecs: Codecs) -> dict[int, set[int]]:
    """Return the offsets of records without a key in intact batches *first* to *end*, by the rows of their batches.

    Raises DamagedError.
    """
    found: dict[int, set[int]] = {}
    counts = Profile(bytes(16))
    for damage in decode_run(BatchRun(window, first, end), codecs, file):
        if damage is not None:
            raise DamagedError(str(damage))
        before = counts.null_keys
        counts.add(window)
        if counts.null_keys > before:
            for i in range(window.records):
                offset, _, key, *_, row = window.record(i)
                if key is None and not window.batch(row).attributes & CONTROL_BIT:
                    found.setdefault(row, set()).add(offset)
    return found


def count_null_keys(partition: Partition, start: int, end: int) -> int:
    """Return how many records without a key *partition* has from offset *start* on and below *end*; not in damage.

    Raises UnreadableError.
    """
    counts, codecs, found = Profile(bytes(16)), Decompressor().functions, 0
    for files in partition.segments:
        for rows in Segment(partition.file(files.log), bounded=False).record_windows(start, codecs=codecs):
            if isinstance(rows, Damage):
                continue
            before = counts.null_keys
            counts.add(rows)
            if counts.null_keys > before:
                found += sum(
                    rows.record(i)[2] is None and start <= rows.record(i)[0] < end for i in range(rows.records)
                )
    return found
