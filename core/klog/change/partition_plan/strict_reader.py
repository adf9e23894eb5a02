"""Reads a log that is going to be rewritten or continued, and refuses damage.

Batches that a compaction makes get new checksums, which would hide it, and behind damage a broker would not read on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from shlex import quote
from typing import NoReturn

from klog.base.errors import DamagedError
from klog.base.location import Location
from klog.base.read_only import ReadOnlyFile
from klog.change.plan.file_state import Digest
from klog.formats.damage import Damage, DamageKind
from klog.kernel import Window, ascending_run
from klog.log.reader import LogReader
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
