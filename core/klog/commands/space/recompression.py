"""The size of the logs of a topic with another codec: with the present batches, and merged to larger ones.

The batches of a larger `batch.size` or `linger.ms` are made from the present batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klog.commands.space.sampling import SampleReader, Stretch, draw, estimate_ratio
from klog.data_dir.partition import Partition
from klog.formats.batch import CODEC_BITS, CONTROL_BIT
from klog.formats.codec import CodecError, Compressor, Decompressor

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
