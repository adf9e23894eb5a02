"""Processes many windows in parallel and writes their output in order.

Each worker owns a window and its buffers, fetches the next stretch of the log, makes lines of it, and writes them when
all earlier stretches have been written.  Nothing is copied between workers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from klog.base.interruptible_threads import run_all
from klog.base.progress import Sink
from klog.kernel import Window
from klog.log.reader import LogReader, WindowResult

OUTPUT_BYTES = 1 << 20
"""Lines are written in pieces of this size when one worker writes at once …"""

PARALLEL_OUTPUT_BYTES = 4 << 20
"""… and kept up to this size by a worker until its turn."""


PATIENCE_S = 1.0
"""The time that a worker may continue to write after a ^C; the reader of its output may be stuck."""


class OverError(Exception):
    """All requested output is written, or writing has failed: this worker must end."""


class Turns:
    """The number of the stretch that may be written now.  *alone*: there is only one worker, which never waits.

    *is_over*: all requested output is written, or writing has failed.
    """

    def __init__(self, alone: bool = False) -> None:
        self._alone = alone
        self._now = 0
        self._ended: set[int] = set()
        self.is_over = False
        self._changed = threading.Condition()

    def wait(self, number: int) -> None:
        """Return when everything before *number* has been written; raise OverError if the rest is not needed."""
        if self._now == number and not self.is_over:
            return  # without the lock: no other worker ends this turn
        with self._changed:
            self._changed.wait_for(lambda: self._now == number or self.is_over)
            if self.is_over:
                raise OverError

    def done(self, number: int, last: bool) -> None:
        """Mark all of *number* as written; with *last*, nothing after it will be.

        A worker without output need not wait for its turn before.
        """
        if self._alone:
            self._now, self.is_over = number + 1, last
            return
        with self._changed:
            self._ended.add(number)
            while self._now in self._ended:
                self._ended.remove(self._now)
                self._now += 1
            self.is_over |= last
            self._changed.notify_all()

    def stop(self) -> None:
        """Mark the end: nothing more will be written."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()


class OrderedOutput:
    """A worker's access to the sink for one stretch: every call waits for its turn."""

    def __init__(self, sink: Sink, turns: Turns, number: int) -> None:
        self._sink = sink
        self._turns = turns
        self._number = number

    def wait(self) -> None:
        """Return when it is this stretch's turn."""
        self._turns.wait(self._number)

    def write(self, data: bytes | memoryview) -> None:
        """Write *data* after the output of all earlier stretches."""
        if len(data):
            self.wait()
            self._sink.write(data)

    def flush(self, window: Window) -> None:
        """Write the pending lines of *window*."""
        if window.out_used:
            self.write(window.output())
            window.flushed()

    def report(self, line: str) -> None:
        """Report a line in its turn."""
        self.wait()
        self._sink.report(line)


Work = Callable[[Window, WindowResult, OrderedOutput], bool]
"""Makes output of a window; returns True when the rest is not needed."""


def run(
    reader: LogReader, make_work: Callable[[], Work], sink: Sink, jobs: int, own_window: Window | None = None
) -> None:
    """Have *jobs* workers, each with a Work of its own, turn everything that *reader* returns into output.

    Raises the exceptions of a worker, of the sink, and of a signal's handler.  A single worker is the caller's own
    thread.  The first worker uses *own_window*, so that a caller with many small logs allocates only one.
    """
    turns = Turns(alone=jobs == 1)
    sink.expect(reader.end - reader.position)
    output = OUTPUT_BYTES if jobs == 1 else PARALLEL_OUTPUT_BYTES

    def work(window: Window | None = None) -> None:
        with suppress(OverError):
            window = window or Window(output=output)
            process = make_work()
            while piece := reader.next(window):
                last = process(window, piece, lane := OrderedOutput(sink, turns, piece.number))
                lane.flush(window)
                lane.wait()
                sink.advance(piece.consumed, reader.source.path)
                turns.done(piece.number, last)
                if last:
                    break
        reader.stop()

    if jobs == 1:
        work(own_window)
    else:
        run_all([partial(work, window) for window in (own_window, *[None] * (jobs - 1))], turns.stop, PATIENCE_S)
