"""The most frequent keys of logs, and the size of logs with another codec: exactly, or from a sample with its error.

A sample consists of stretches, evenly spread, not of records: batches next to each other are alike.  The batches of a
larger `batch.size` or `linger.ms` are made from the present batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, sqrt
from typing import Final, NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition
from klog.formats.batch import CODEC_BITS, CONTROL_BIT
from klog.formats.codec import CodecError, Compressor, Decompressor
from klog.kernel import KeySet, Profile, Window
from klog.log.reader import LogReader
from klog.log.records import BatchRun, OffsetRange, RecordFilter, decode_run, intact_runs

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
            with ReadOnlyFile(stretch.path, until=stretch.end) as log:
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


_ALL: Final = 1 << 20
_KEPT_BYTES: Final = 128
_CANDIDATES: Final = 8
"""The factor by which more keys are counted again than requested: in another sample their order may differ."""


class KeyShare(NamedTuple):
    """A key: about how many *records* of the partition have it, and their *share* of all.

    *start*: the first 128 of its *length* bytes.  *error*: the share is off by this much at most, to both sides, in 19
    of 20 cases; 0 if all records were counted.
    """

    start: bytes
    length: int
    records: int
    share: float
    error: float


class FrequentKeys(NamedTuple):
    """The most frequent *keys*; *sampled*: the fraction that was read.  *problems*: the unreadable parts."""

    keys: tuple[KeyShare, ...]
    sampled: float
    problems: tuple[str, ...]


_Found = list[tuple[int, int, bytes, bytes]]
"""Keys as a profile has them: count, length, the first 128 bytes, digest."""


def find_frequent_keys(partition: Partition, most: int, fraction: float) -> FrequentKeys:
    """Return the *most* frequent keys of a partition, from a *fraction* of its log; 1: all of it, exactly.

    Two passes over the same stretches: one finds the candidates in memory of a fixed size, the other counts them.  Only
    the start of keys with more than 128 bytes is known, and with such a candidate counts may be a bit too low.
    """
    sample, reader, profile = draw([partition], fraction), SampleReader(), Profile(bytes(16))
    records = []
    for stretch in sample.stretches:
        before = profile.records
        for window in reader.rows(stretch):
            profile.add(window)
        records.append(profile.records - before)
    found = _candidates(profile, most, sample.whole)
    counts, missed = _count(found, sample, reader)
    total = sum(records) / sample.fraction
    shares = []
    for _, length, start, digest in found:
        share = estimate_ratio(list(zip(counts[digest], records, strict=True)), sample.fraction)
        error = share.error + missed / max(sum(records), 1)
        shares.append(KeyShare(start, length, round(share.ratio * total), share.ratio, error))
    shares.sort(key=lambda one: (-one.records, one.start))
    return FrequentKeys(tuple(shares[:most]), sample.fraction, tuple(dict.fromkeys(reader.problems)))


def _candidates(profile: Profile, most: int, whole: bool) -> _Found:
    """Return every key that may be among the *most* frequent ones; of a part of a log rather more."""
    found = profile.top(_ALL)
    if profile.error and len(found) > most:
        found = [one for one in found if one[0] + profile.error >= found[most - 1][0]]
    return found if whole else found[: most * _CANDIDATES]


def _count(found: _Found, sample: Sample, reader: SampleReader) -> tuple[dict[bytes, list[int]], int]:
    """Return how many records of each stretch have each key, and how many may be missing of one."""
    only = RecordFilter(keys=KeySet([start for _, length, start, _ in found if length <= _KEPT_BYTES]))
    is_known = all(length <= _KEPT_BYTES for _, length, _, _ in found)
    profile, missed = Profile(bytes(16)), 0
    counts = {digest: [0] * len(sample.stretches) for _, _, _, digest in found}
    for at, stretch in enumerate(sample.stretches):
        profile.clear()
        for window in reader.rows(stretch):
            if is_known:
                only.keep(window)
            profile.add(window)
        missed += profile.error
        for count, _, _, digest in profile.top(_ALL):
            if digest in counts:
                counts[digest][at] = count
    return counts, missed


CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""The codecs by their numbers in a batch."""
MERGED_BYTES: Final = (16 << 10, 64 << 10)
"""Records of so many bytes, uncompressed, in one batch: Kafka's default of `batch.size`, and four times that."""
_HEADER_BYTES: Final = 61
_V2: Final = 2


class Recompression(NamedTuple):
    """About how many *bytes* the logs of a topic would be, between *low* and *high* in 19 of 20 cases.

    *batch_bytes*: records of so many bytes in a batch, uncompressed; None: the batches are unchanged.  *sampled_bytes*:
    of the logs that were read for it.
    """

    topic: str | None
    codec: str
    batch_bytes: int | None
    bytes: int
    low: int
    high: int
    sampled_bytes: int


class RecompressionResult(NamedTuple):
    """A row for each codec and size of batches.  *problems*: the unreadable parts."""

    rows: tuple[Recompression, ...]
    problems: tuple[str, ...]


def estimate_codecs(
    topic: str | None, partitions: Sequence[Partition], codecs: Sequence[str], fraction: float
) -> RecompressionResult:
    """Return the sizes of the logs of *topic* with each of *codecs*, from a *fraction* of them; 1: all of them."""
    sample, reader = draw(partitions, fraction), SampleReader()
    sizes: dict[tuple[str, int | None], list[tuple[float, float]]] = {}
    read = 0
    batches = _Batches(reader)
    for stretch in sample.stretches:
        before, made = batches.recompress(stretch, codecs)
        read += before
        for key, size in made.items():
            sizes.setdefault(key, []).append((size, before))
    rows = []
    for codec in codecs:
        for batch_bytes in (None, *MERGED_BYTES):
            found = estimate_ratio(sizes.get((codec, batch_bytes), []), sample.fraction)
            size, low, high = (round(one * sample.bytes) for one in (found.ratio, found.low, found.high))
            rows.append(Recompression(topic, codec, batch_bytes, size, low, high, read))
    return RecompressionResult(tuple(rows), tuple(dict.fromkeys(reader.problems)))


class _Batches:
    """Recompresses the batches of stretches, one stretch after the other."""

    def __init__(self, reader: SampleReader) -> None:
        self._reader = reader
        self._decompress, self._compress = Decompressor().functions, Compressor().functions

    def recompress(self, stretch: Stretch, codecs: Sequence[str]) -> tuple[int, dict[tuple[str, int | None], int]]:
        """Return the bytes of a stretch, and its sizes by codec and size of batches."""
        compress = {codec: self._compress[CODECS.index(codec)] for codec in codecs}
        before, kept = 0, 0
        made = {(codec, size): 0 for codec in codecs for size in (None, *MERGED_BYTES)}
        merging = {size: bytearray() for size in MERGED_BYTES}
        for size, records in self._records(stretch):
            before += size
            if records is None:
                kept += size
                continue
            for codec, pack in compress.items():
                made[codec, None] += _HEADER_BYTES + len(pack(records, _V2))
            for most, waiting in merging.items():
                if waiting and len(waiting) + len(records) > most:
                    _flush(waiting, most, compress, made)
                waiting += records
        for most, waiting in merging.items():
            if waiting:
                _flush(waiting, most, compress, made)
        return before, {key: size + kept for key, size in made.items()}

    def _records(self, stretch: Stretch) -> Iterator[tuple[int, bytes | bytearray | None]]:
        """Yield the bytes of each batch, and its records, plain; None for one that stays: a marker, an old format."""
        for run in self._reader.runs(stretch):
            for at in range(run.first, run.end):
                facts = run.window.batch(at)
                if facts.magic < _V2 or facts.attributes & CONTROL_BIT:
                    yield facts.size, None
                    continue
                start = run.window.at(at)
                packed = memoryview(run.window.copy(start + _HEADER_BYTES, start + facts.size))
                try:
                    yield facts.size, self._decompress[facts.attributes & CODEC_BITS](packed, _V2)
                except CodecError:
                    yield facts.size, None


def _flush(
    waiting: bytearray,
    most: int,
    compress: Mapping[str, Callable[[bytes, int], bytes]],
    made: dict[tuple[str, int | None], int],
) -> None:
    """Make a batch of the pending records."""
    for codec, pack in compress.items():
        made[codec, most] += _HEADER_BYTES + len(pack(bytes(waiting), _V2))
    waiting.clear()
