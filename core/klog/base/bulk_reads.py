"""Reads of whole logs under the policy of `klog.base.page_cache`: the door through which `ReadOnlyFile` reads.

A file is read in steps, which grow from the size of the first request to 4 MiB and end at multiples of their size: a
large folio is then never read in part, for RWF_DONTCACHE drops it as a whole.  A thread reads one step ahead.
Stretches that were cached when the file was opened are read directly, as are those that another mechanism drops.
"""

from __future__ import annotations

import os
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final, NamedTuple

from klog.base.interruptible_threads import start as start_thread
from klog.base.page_cache import DONT_CACHE, FEW_BYTES, POLICY, DropBehind, covers

STEP_BYTES: Final = 4 << 20
_LEAST_BYTES: Final = 64 << 10
PASS_BYTES: Final = 16 << 20
"""The most that is read through the descriptor at a time."""
_NEAR_BYTES: Final = 256 << 10
_MANY: Final = 16


class _Step(NamedTuple):
    """A stretch of the file and its bytes, fewer where the file ended; None if it is read directly."""

    start: int
    end: int
    data: memoryview | None


class BulkReads:
    """The reads of one open file.  Several threads may read at once.

    *until*: nothing is read ahead of that position; None: the end of the file.  *again*: it is read twice, and stays in
    the page cache.
    """

    def __init__(
        self, descriptor: int, status: os.stat_result, until: int | None = None, *, again: bool = False
    ) -> None:
        self._descriptor, self._size = descriptor, status.st_size
        self._until = self._size if until is None else min(until, self._size)
        self._lock = Lock()
        self._steps = _Step(0, 0, None), _Step(0, 0, None)
        self._ahead = _ReadAhead(self)
        self._near, self._near_end = 0, -1
        drops = POLICY.drops and not again
        self._kept = POLICY.cached_before(descriptor, status) if drops else None
        self._in_steps = drops and POLICY.can_dont_cache(descriptor, status)
        self._flags = DONT_CACHE if self._in_steps else 0
        is_cached = self._kept is not None and covers(self._kept, 0, self._size)
        can_drop = drops and not is_cached and (self._kept is not None or POLICY.beside_broker)
        self._behind = DropBehind(descriptor, self._size, self._kept) if can_drop else None
        if is_cached or not drops:
            self._steps = _Step(0, 0, None), _Step(0, self._size, None)

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes, fewer only at the end.  Raises OSError."""
        step = self._steps[1]
        if step.data is None and step.start <= position and position + len(view) <= step.end:
            return self.pread(position, view, self._flags)  # most of a file that was cached
        with self._lock:
            if len(view) <= FEW_BYTES and not self._is_in_step(position):
                return self._read_few(position, view)
            done = 0
            while done < len(view) and (got := self._read(position + done, view[done:])):
                done += got
            return done

    @property
    def piece_bytes(self) -> int:
        """The most that another part of klog should read through the descriptor before it calls `passed`."""
        return PASS_BYTES if POLICY.rate is None else min(POLICY.rate.piece_bytes, PASS_BYTES)

    def passed(self, start: int, end: int, size: int) -> None:
        """Take note that *size* bytes between *start* and *end* were read through the descriptor."""
        if POLICY.rate is not None:
            POLICY.rate.wait(size)
        if self._behind is not None:
            with self._lock:
                self._behind.passed(start, end)

    def close(self) -> None:
        """End the thread that reads ahead, and drop what is left; the descriptor is closed after this."""
        self._ahead.close()
        self._drop_rest()
        if self._behind is not None:
            self._behind.finish()

    def _is_in_step(self, position: int) -> bool:
        return any(step.start <= position < step.end for step in self._steps)

    def _read_few(self, position: int, view: memoryview) -> int:
        """Read a little: it stays in the cache, unless so many follow each other closely that they read the log."""
        self._near = self._near + 1 if 0 <= position - self._near_end < _NEAR_BYTES else 0
        self._near_end = position + len(view)
        done = self.pread(position, view)
        if self._near > _MANY and self._behind is not None:
            self._behind.passed(position, position + done)
        return done

    def _read(self, at: int, view: memoryview) -> int:
        """Read some of *view*: up to the end of a step."""
        if not self._in_steps:
            done = self.pread(at, view)
            if self._behind is not None:
                self._behind.passed(at, at + done)
            return done
        step = next((step for step in self._steps if step.start <= at < step.end), None) or self._next(at, len(view))
        if step.data is None:
            return self.pread(at, view[: step.end - at], self._flags)
        found = step.data[at - step.start : at - step.start + len(view)]
        view[: len(found)] = found
        return len(found) or self.pread(at, view, DONT_CACHE)  # it has grown meanwhile, or has ended

    def _next(self, at: int, wanted: int) -> _Step:
        """Enter the step that *at* is in; the next one is read meanwhile if the reader goes on from step to step."""
        if at >= self._until:
            return _Step(at, at + wanted, None)
        last = self._steps[1]
        size = _LEAST_BYTES
        while size < min(wanted, STEP_BYTES):
            size *= 2
        if last.end and last.end != at:
            self._drop_rest()
        elif last.end:
            size = min(max(size, 2 * (last.end - last.start)), STEP_BYTES)
        step = self._ahead.take(at) or self.load(at, at - at % size + size)
        self._steps = last, step
        if last.end == at and size == STEP_BYTES and step.end < self._until:
            self._ahead.begin(step.end, step.end + STEP_BYTES)
        return step

    def load(self, start: int, end: int) -> _Step:
        """Read a step, unless all of it was cached before.  Its errors are those of a direct read of it later."""
        if self.is_direct(start, end):
            return _Step(start, end, None)
        end = min(end, self._until)
        data = memoryview(bytearray(end - start))
        try:
            return _Step(start, end, data[: self.pread(start, data, DONT_CACHE)])
        except OSError:
            return _Step(start, end, None)

    def is_direct(self, start: int, end: int) -> bool:
        """Whether a stretch was cached before: it is then read without a way through a step's memory."""
        return self._kept is not None and covers(self._kept, start, min(end, self._until))

    def pread(self, position: int, view: memoryview, flags: int = 0) -> int:
        """Read with these flags of preadv2, in pieces if there is a limit; fewer bytes only at the end."""
        rate, done = POLICY.rate, 0
        while done < len(view):
            piece = view[done:] if rate is None else view[done : done + rate.piece_bytes]
            if rate is not None:
                rate.wait(len(piece))
            got = os.preadv(self._descriptor, [piece], position + done, flags)
            done += got
            if not got:
                break
        return done

    def _drop_rest(self) -> None:
        """Drop, a little later, what the system has read ahead of the last step."""
        end = self._steps[1].end
        if self._in_steps and self._kept is not None and 0 < end < self._size:
            POLICY.drop_later(self._descriptor, end, self._kept)


class _ReadAhead:
    """A thread that loads one step of *reads* at a time; it is started when it is first needed."""

    def __init__(self, reads: BulkReads) -> None:
        self._reads = reads
        self._wanted: SimpleQueue[tuple[int, int] | None]
        self._loaded: SimpleQueue[_Step]
        self._thread: Thread | None = None
        self._at = -1

    def begin(self, start: int, end: int) -> None:
        """Begin to load a step."""
        if self._reads.is_direct(start, end):
            return
        if self._thread is None:
            self._wanted, self._loaded = SimpleQueue(), SimpleQueue()
            self._thread = start_thread(self._work)
        self._at = start
        self._wanted.put((start, end))

    def take(self, start: int) -> _Step | None:
        """Return the step that begins at *start*; None if it was not requested."""
        if self._at < 0:
            return None
        at, self._at = self._at, -1
        step = self._loaded.get()
        return step if at == start else None

    def _work(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            self._loaded.put(self._reads.load(*wanted))

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._wanted.put(None)
            self._thread.join()
            self._thread = None
