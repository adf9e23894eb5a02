"""The second pass of a round: rewrites each group of segments as one segment with the retained records.

For each segment of a group, `Rewriting.rewrite`

1. adds the aborted transactions up to the next segment, from the transaction indexes;
2. reads a window of batches, with their checksums;
3. decides by the headers: aborted data and markers past their delete horizon are skipped, markers without data are
   marked, the last batches of active producers are kept even if empty, batches whose records are all superseded are
   skipped;
4. decompresses the other batches and lets the kernel copy each one, drop it, or write it anew with its retained
   records, by its codec, in the new format if Kafka converts it; a broken record ends the compaction;
5. adds each part of the output to the new indexes and yields it as the next part of the new log.

Kafka: Cleaner.cleanSegments, Cleaner.cleanInto.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from klog.base.errors import UsageError
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.strict_reader import Advance, StrictReader, no_progress
from klog.change.plan.model import Digest
from klog.commands.compact.cleaned_segments import REFUSED, CleanedTransactions, SourceSegment, aborted_between, end_of
from klog.commands.compact.legacy_rewriting import remade
from klog.formats.batch import CODEC_BITS, CONTROL_BIT, DELETE_HORIZON_BIT, BatchFacts
from klog.formats.codec import Compressor, Decompressor
from klog.formats.damage import DamageKind
from klog.kernel import (
    DONE,
    OUTPUT_FULL,
    RETAIN_EMPTY,
    TO_COMPRESS,
    TO_CONVERT,
    WITHOUT_DATA,
    IndexBuilder,
    OffsetMap,
    Rewriter,
    Window,
)
from klog.log.index import AbortedTxn
from klog.log.records import batch_damage, broken_record
from klog.partition.transactions.markers import read_marker

_OUTPUT_BYTES = 2 << 20


class CleanerRelease(StrEnum):
    """The release whose rules apply: they have changed between releases of Kafka."""

    V4_3 = "4.3"
    """Tombstones and markers get a delete horizon in their batch; the last batch that was cleaned stays, if empty."""

    V3_9 = "3.9"
    """As 4.3, but the last batch is removed as any other (3.1 and later)."""

    V2_8 = "2.8"
    """The age of the segment decides when tombstones and markers are removed (3.0 and before)."""

    @classmethod
    def of(cls, text: str) -> CleanerRelease:
        """Return the release of that number.  Raises UsageError."""
        known = [release.value for release in cls]
        if text not in known:
            raise UsageError(f"--kafka-version {text}: one of {', '.join(known)}")
        return cls(text)


class RoundParameters(NamedTuple):
    """Parameters that are fixed for one cleaning round.

    *now_ms*: when the round is taken to happen.  *delete_retention_ms*, *index_interval*: the topic's settings.
    *producers*: of each active producer the offset of its last data, None without, and its epoch.  *log_start*: the
    first offset that counts.  *first_uncleanable*: the end of the round.  *convert*: old formats become the new.
    *release*: whose rules they are.
    """

    now_ms: int
    delete_retention_ms: int
    index_interval: int
    producers: Mapping[int, tuple[int | None, int]]
    log_start: int
    first_uncleanable: int
    convert: bool
    release: CleanerRelease = CleanerRelease.V4_3


class CleaningCounts(NamedTuple):
    """The counts before and after.

    *superseded*: records with a later one of their key; *keyless*: without a key; *discarded*: of aborted transactions,
    or markers; *expired*: those of the *tombstones* past their delete horizon.  *untouched*: unchanged batches.
    """

    batches_in: int = 0
    batches_out: int = 0
    records_in: int = 0
    records_out: int = 0
    superseded: int = 0
    keyless: int = 0
    discarded: int = 0
    tombstones: int = 0
    expired: int = 0
    markers_in: int = 0
    markers_out: int = 0
    untouched: int = 0

    def minus(self, other: CleaningCounts) -> CleaningCounts:
        """Return the difference."""
        return CleaningCounts(*(one - two for one, two in zip(self, other, strict=True)))

    def plus(self, other: CleaningCounts) -> CleaningCounts:
        """Return the sum."""
        return CleaningCounts(*(one + two for one, two in zip(self, other, strict=True)))


class Rewriting:
    """Writes the groups of a round, whose map is *offsets*, in their order.

    The segments below *first_dirty* decide when tombstones of old formats are removed.  *digests*: by paths of logs,
    the digests of their bytes, updated by each read.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        segments: Sequence[SourceSegment],
        first_dirty: int,
        terms: RoundParameters,
        advance: Advance = no_progress,
        digests: Mapping[str, Digest] | None = None,
    ) -> None:
        self._terms, self._segments, self._advance, self._digests = terms, segments, advance, digests or {}
        self._transactions = CleanedTransactions(pid for pid, (offset, _) in terms.producers.items() if offset is None)
        self._window, self._target = Window(output=0), Window(_OUTPUT_BYTES, 1, 0)
        self._decompress, self._compress = Decompressor().functions, Compressor().functions
        self._rewriter = Rewriter(
            offsets, self._target, offsets.latest, terms.now_ms, terms.delete_retention_ms, terms.convert,
            terms.release is CleanerRelease.V2_8,
        )  # fmt: skip
        self._horizon = terms.now_ms + terms.delete_retention_ms if terms.convert else None
        clean = [segment for segment in segments if segment.base < first_dirty]
        self._legacy_horizon = clean[-1].modified_ms - terms.delete_retention_ms if clean else 0
        last = [(offset, pid) for pid, (offset, _) in terms.producers.items() if offset is not None]
        self._last_batches: list[tuple[int, ...]] = sorted(
            [*last, (terms.first_uncleanable - 1, -1)] if terms.release is CleanerRelease.V4_3 else last
        )

    @property
    def counts(self) -> CleaningCounts:
        """The counts so far."""
        return CleaningCounts(*(getattr(self._rewriter, name) for name in CleaningCounts._fields))

    def rewrite(self, group: SegmentGroup) -> Iterator[memoryview]:
        """Yield the new log of *group*, and fill its indexes; each part of the log is valid until the next step.

        Groups are rewritten in their order, each to its end.  Raises DamagedError, UnreadableError.
        """
        sources = group.sources
        for at, source in enumerate(sources):
            with ReadOnlyFile(source.path) as log:
                walk = StrictReader(
                    log, source.path, source.base, REFUSED, 0, self._advance, self._digests.get(source.path)
                )
                upper = (
                    sources[at + 1].base
                    if at + 1 < len(sources)
                    else end_of(self._segments, source.base, self._terms.first_uncleanable)
                )
                aborted = aborted_between(self._segments, self._terms.log_start, source.base, upper)
                self._transactions.add(aborted)
                while walk.next(self._window):
                    yield from self._rewrite_window(walk, group, source)
        if self._rewriter.used:
            yield from self._output(group)
        group.builder.finish()

    def _rewrite_window(self, walk: StrictReader, group: SegmentGroup, source: SourceSegment) -> Iterator[memoryview]:
        window, rewriter = self._window, self._rewriter
        retain = source.modified_ms > self._legacy_horizon
        decisions = self._decide(group, retain)
        first = 0
        while first < window.count:
            ready = window.decompress(first, window.count, self._decompress)
            if window.error is not None and ready == first:
                walk.refuse(batch_damage(window, first, DamageKind.BAD_COMPRESSION, str(window.error), walk.path))
            rewriter.begin(window, first, ready, decisions, retain)
            while (status := rewriter.run()) != DONE:
                if status == OUTPUT_FULL:
                    yield from self._output(group)
                elif status == TO_COMPRESS:
                    codec = window.batch(rewriter.at).attributes & CODEC_BITS
                    rewriter.compressed(self._compress[codec](rewriter.plain_records(), 2))
                elif status == TO_CONVERT:
                    at = rewriter.at
                    for batch, records in remade(window, at, rewriter, self._compress, walk, self._horizon):
                        while not rewriter.append(batch, records):
                            yield from self._output(group)
                    rewriter.begin(window, at + 1, ready, decisions, retain)
                else:
                    detail = broken_record(window, status)
                    walk.refuse(batch_damage(window, rewriter.at, DamageKind.BAD_RECORD, detail, walk.path))
            first = ready

    def _output(self, group: SegmentGroup) -> Iterator[memoryview]:
        """Yield the pending output, and add it to the indexes."""
        target, used = self._target, self._rewriter.used
        if used:
            target.load(group.builder.size, used)
            target.scan(0)
            taken = group.builder.walk(target, 0, target.count)
            assert (taken, target.next_at) == (target.count, used), group.builder.stop
            yield target.buffer(0)[:used]
        self._rewriter.flushed()

    # batches, before their records are looked at.  Kafka: checkBatchRetention

    def _decide(self, group: SegmentGroup, retain: bool) -> bytearray:
        window = self._window
        decisions = bytearray(window.count)
        now_ms = -1 if self._terms.release is CleanerRelease.V2_8 else self._terms.now_ms
        at = 0
        while (at := self._transactions.take(window, at, decisions, now_ms)) < window.count:
            facts = window.batch(at)
            if facts.attributes & CONTROL_BIT:
                self._decide_marker(at, facts, decisions, group, retain)
            elif self._transactions.data(facts.producer_id, facts.last_offset).discardable:
                window.skip(at)
            at += 1
        self._retain_last(decisions)
        self._rewriter.skip_superseded(window)
        return decisions

    def _decide_marker(
        self, at: int, facts: BatchFacts, decisions: bytearray, group: SegmentGroup, retain: bool
    ) -> None:
        marker = read_marker(self._window, at)
        fate = self._transactions.control(facts.producer_id, facts.last_offset, marker)
        if fate.kept_entry is not None:
            group.aborted.append(fate.kept_entry)
        if fate.discardable:
            decisions[at] |= WITHOUT_DATA
            if self._is_over(facts, retain):
                self._window.skip(at)
        if self._terms.producers.get(facts.producer_id) == (None, facts.producer_epoch):
            decisions[at] |= RETAIN_EMPTY

    def _is_over(self, marker: BatchFacts, retain: bool) -> bool:
        """Whether a marker that is no longer needed is removed now; *retain*: its segment is too young for that."""
        if self._terms.release is CleanerRelease.V2_8:
            return not retain
        return bool(marker.attributes & DELETE_HORIZON_BIT) and marker.base_timestamp <= self._terms.now_ms

    def _retain_last(self, decisions: bytearray) -> None:
        """Mark the batches with the last data of an active producer, and the last one of all."""
        window, i = self._window, 0
        if not window.count:
            return
        at = bisect_left(self._last_batches, (window.batch(0).base_offset,))
        while at < len(self._last_batches) and self._last_batches[at][0] <= window.batch(window.count - 1).last_offset:
            offset, producer_id = self._last_batches[at]
            i = window.first_reaching(offset, i)
            facts = window.batch(i)
            if facts.last_offset == offset and producer_id in (facts.producer_id, -1):
                decisions[i] |= RETAIN_EMPTY
            at += 1


class SegmentGroup:
    """Segments that become one.

    *builder*, *aborted*: its new indexes and transaction index, complete once `Rewriting.rewrite` is at its end.
    """

    def __init__(self, sources: Sequence[SourceSegment], index_interval: int) -> None:
        self.sources = sources
        self.base = sources[0].base
        self.modified_ns = sources[-1].modified_ns
        self.aborted: list[AbortedTxn] = []
        self.builder = IndexBuilder(self.base, index_interval, 2**31 - 1, 2**31 - 1)

    def source(self, path: str) -> SourceSegment:
        """Return the new segment as a source of the next round; *path*: its log."""
        builder = self.builder
        return SourceSegment(
            self.base,
            path,
            builder.size,
            self.modified_ns,
            len(builder.offset_entries),
            len(builder.time_entries),
            tuple(self.aborted),
            tuple(base for source in self.sources for base in source.originals),
        )
