"""Stretches of logs as a sample of them, evenly spread, and the error of a figure from them.

Batches next to each other are alike: the sample therefore consists of stretches, not of records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, sqrt
from typing import Final, NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition
from klog.formats.codec import Decompressor
from klog.kernel import Window
from klog.log.reader import LogReader
from klog.log.records import BatchRun, OffsetRange, decode_run, intact_runs

STRETCH_BYTES: Final = 256 << 10
FEWEST: Final = 24
"""The smallest number of stretches: with fewer the error is unknown."""
_SURE: Final = 2.0
"""Standard errors to both sides: in 19 of 20 cases the figure for all lies between."""


class Stretch(NamedTuple):
    """The batches of a log that begin from byte *start* up to, not including, byte *end*."""

    path: str
    base_offset: int
    start: int
    end: int


class Sample(NamedTuple):
    """*stretches* of logs that have *bytes* in all.  *whole*: the sample is everything."""

    stretches: Sequence[Stretch]
    bytes: int
    whole: bool

    @property
    def fraction(self) -> float:
        """The part of the bytes that is read."""
        return 1.0 if self.whole else min(1.0, len(self.stretches) * STRETCH_BYTES / self.bytes)


def draw(partitions: Sequence[Partition], fraction: float) -> Sample:
    """Return a sample of a *fraction* of the logs of *partitions*; of small ones all."""
    logs = [
        (one.file(files.log), files.base_offset, files.size)
        for one in partitions
        for files in one.segments
        if files.size
    ]
    total = sum(size for _, _, size in logs)
    count = max(FEWEST, ceil(fraction * total / STRETCH_BYTES))
    if fraction >= 1 or count * STRETCH_BYTES >= total:
        return Sample([Stretch(path, base, 0, size) for path, base, size in logs], total, True)
    return Sample(list(_spread(logs, total, count)), total, False)


def _spread(logs: Sequence[tuple[str, int, int]], total: int, count: int) -> Iterator[Stretch]:
    """Yield *count* stretches, the same distance between them, as if the logs were one."""
    logs_left = iter(logs)
    path, base, size = next(logs_left)
    before = 0
    for at in range(count):
        position = (2 * at + 1) * total // (2 * count) - STRETCH_BYTES // 2
        while position >= before + size:
            before += size
            path, base, size = next(logs_left)
        start = max(position - before, 0)
        yield Stretch(path, base, start, min(start + STRETCH_BYTES, size))


class SampleReader:
    """Reads stretches with the same buffers.  *problems*: logs that could not be read."""

    def __init__(self) -> None:
        self._window = Window(records=16 << 10)
        self._decompress = Decompressor().functions
        self.problems: list[str] = []

    def runs(self, stretch: Stretch) -> Iterator[BatchRun]:
        """Yield the intact batches of a stretch, to be used before the next step."""
        try:
            with ReadOnlyFile(stretch.path) as log:
                reader = LogReader(log, stretch.start, min_offset=stretch.base_offset, stop=stretch.end)
                span = OffsetRange(stretch.base_offset)
                while reader.next(self._window) is not None:
                    yield from (run for run in intact_runs(self._window, stretch.path, span) if run.damage is None)
        except UnreadableError as error:
            self.problems.append(str(error))

    def rows(self, stretch: Stretch) -> Iterator[Window]:
        """Yield a window each time that the records of a stretch are in its rows, to be used before the next step."""
        for run in self.runs(stretch):
            for damage in decode_run(run, self._decompress, stretch.path):
                if damage is None:
                    yield run.window


class Estimate(NamedTuple):
    """A ratio of sums over stretches, and its possible error to both sides; 0 without omissions."""

    ratio: float
    error: float

    @property
    def low(self) -> float:
        """The lowest that it may be."""
        return max(self.ratio - self.error, 0.0)

    @property
    def high(self) -> float:
        """The highest that it may be."""
        return self.ratio + self.error


def estimate_ratio(pairs: Sequence[tuple[float, float]], fraction: float) -> Estimate:
    """Return the sum of the first of *pairs* over that of the second ones, a pair for each stretch of a sample.

    *fraction*: of everything.  The error is that of a ratio estimator for clusters (Cochran, Sampling Techniques, 6.4),
    and at least the effect of three records more or less if the second are counts of records.
    """
    below = sum(second for _, second in pairs)
    if not below:
        return Estimate(0.0, 0.0)
    ratio = sum(first for first, _ in pairs) / below
    if fraction >= 1:
        return Estimate(ratio, 0.0)
    count = len(pairs)
    squares = sum((first - ratio * second) ** 2 for first, second in pairs)
    variance = squares * count / max(count - 1, 1) / below**2 * (1 - fraction)
    return Estimate(ratio, max(_SURE * sqrt(variance), 3 / below))
