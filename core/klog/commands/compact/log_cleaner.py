"""The offline log cleaner: rounds of two passes over one partition, until nothing cleanable is dirty.

    done = PartitionCompaction(sections, CleanerOptions(map_memory=128 << 20)).plan(draft, scratch)

A round ends when the offset map is full, as a broker's does; the next one reads its output.  Only the last round's
content is put into the draft.  Kafka: Cleaner.doClean.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple

from klog.base.errors import UnreadableError
from klog.change.partition_plan.strict_reader import Advance, no_progress
from klog.change.plan.draft import Draft
from klog.change.plan.model import Digest, same_content
from klog.change.plan.replace_segments import replace_segments
from klog.change.plan.staging import Staging
from klog.commands.compact.cleaned_segments import SourceSegment, between, grouped, sources
from klog.commands.compact.log_to_clean import LogSections
from klog.commands.compact.offset_map_filling import MappedRange, OffsetMapping
from klog.commands.compact.record_retention import (
    CleanerRelease,
    CleaningCounts,
    Rewriting,
    RoundParameters,
    SegmentGroup,
)
from klog.formats.codec import Decompressor
from klog.formats.names import FileKind, file_name
from klog.kernel import OffsetMap
from klog.log.index import txn_index_content

_FEWEST_SEGMENTS: Final = 4
"""The smallest number of clean and of dirty segments that are rewritten for an estimate."""


class CleanerOptions(NamedTuple):
    """*map_memory*: bytes for the offset map.  *like_broker*: its digests, its formats, its indexes, byte for byte.

    *release*: whose rules.
    """

    map_memory: int = 128 << 20
    like_broker: bool = False
    release: CleanerRelease = CleanerRelease.V4_3


class CleaningRound(NamedTuple):
    """One round: which offsets were dirty, how full the map became, and the results of the groups."""

    first_dirty: int
    next_dirty: int
    is_full: bool
    keys: int
    slots: int
    probes: int
    collisions: int
    mapped_records: int
    mapped_bytes: int
    groups: tuple[GroupResult, ...]
    counts: CleaningCounts

    @property
    def bytes_in(self) -> int:
        """Bytes of the logs before."""
        return sum(group.bytes_in for group in self.groups)

    @property
    def bytes_out(self) -> int:
        """Bytes of the logs that were written."""
        return sum(group.bytes_out for group in self.groups)


class GroupResult(NamedTuple):
    """*bases*: base offsets of the segments that became the first of them.  Sizes are those of the logs, in bytes."""

    bases: tuple[int, ...]
    bytes_in: int
    bytes_out: int
    counts: CleaningCounts
    is_changed: bool


class CompactionEstimate(NamedTuple):
    """The estimated result of a compaction.

    *keys*: different ones in the dirty section, of several rounds those of each; *records*: that were looked at there.
    *bytes_in*: of the logs that would be rewritten.  *bytes_out*: an estimate, as if the whole clean section was kept.
    """

    sections: LogSections
    rounds: int
    keys: int
    records: int
    bytes_in: int
    bytes_out: int


class ExpectedCompaction(NamedTuple):
    """The expected size of all logs of a partition after a compaction: about *bytes_after*.

    *sampled*: the part that was rewritten for the estimate.
    """

    sections: LogSections
    bytes_after: int
    sampled: float


class CompactionResult(NamedTuple):
    """The result of a compaction.  *cleaner_offset*: the cleaner's new checkpoint."""

    sections: LogSections
    rounds: tuple[CleaningRound, ...]
    cleaner_offset: int


class PartitionCompaction:
    """Compacts the partition of *sections*, which is eligible.

    *advance* receives the bytes read, *need* an estimate of the bytes that a round writes.
    """

    def __init__(
        self,
        sections: LogSections,
        choices: CleanerOptions,
        advance: Advance = no_progress,
        need: Advance = no_progress,
    ) -> None:
        self._sections, self._choices, self._advance, self._need = sections, choices, advance, need
        rules = sections.rules
        self._terms = RoundParameters(
            sections.now_ms,
            rules.delete_retention_ms.number,
            rules.index_interval_bytes.number,
            {number: (last.data_offset, last.epoch) for number, last in sections.producers.items()},
            sections.log_start,
            sections.first_uncleanable,
            choices.like_broker and choices.release is CleanerRelease.V4_3,
            choices.release,
        )
        self._offsets = OffsetMap(choices.map_memory, md5=choices.like_broker)
        codecs = Decompressor().functions
        self._mapping = OffsetMapping(self._offsets, codecs, advance, by_index=choices.like_broker)
        self._seen: dict[int, tuple[int, int]] = {}
        self._digests: dict[str, Digest] = {}

    def plan(self, draft: Draft, scratch: Staging) -> CompactionResult:
        """Add the changes to *draft*; *scratch* is the place for content that only the next round reads.

        Raises DamagedError, UnreadableError, OSError.
        """
        sections = self._sections
        segments = sources(sections.partition)
        self._seen = {segment.base: (segment.size, segment.modified_ns) for segment in segments}
        for segment in segments:
            digest = self._digests[segment.path] = Digest(segment.size)
            draft.read_through(f"{sections.partition.directory}/{os.path.basename(segment.path)}", digest)
        first_dirty, rounds = sections.first_dirty, list[CleaningRound]()
        while True:
            mapped = self._map(segments, first_dirty)
            done, segments = self._rewrite(segments, first_dirty, mapped, draft, scratch, len(rounds))
            rounds.append(done)
            if not mapped.is_full:
                return CompactionResult(sections, tuple(rounds), mapped.next_dirty)
            first_dirty = mapped.next_dirty

    def estimate(self) -> CompactionEstimate:
        """Return the estimated result, from first passes alone.  Raises DamagedError, UnreadableError."""
        sections = self._sections
        segments = sources(sections.partition)
        first_dirty, rounds, keys, records = sections.first_dirty, 0, 0, 0
        while True:
            mapped = self._map(segments, first_dirty)
            rounds, keys, records = rounds + 1, keys + self._offsets.entries, records + mapped.records
            if not mapped.is_full:
                break
            first_dirty = mapped.next_dirty
        cleaned = between(segments, 0, mapped.next_dirty)
        after = expected_bytes(cleaned, sections.first_dirty, mapped._replace(records=records), keys)
        return CompactionEstimate(sections, rounds, keys, records, sum(segment.size for segment in cleaned), after)

    def expect(self, fraction: float) -> ExpectedCompaction:
        """Return the expected result, from the second pass over a *fraction* of the segments.

        If the offset map is too small for all keys, it takes a part of them after the other, which keeps the bytes of
        batches that lose the last of their records in several parts.  Raises DamagedError, UnreadableError.
        """
        sections, segments = self._sections, sources(self._sections.partition)
        cleaned = between(segments, 0, sections.first_uncleanable)
        some = _some(cleaned, sections.first_dirty, fraction)
        parts = 1
        while (removed := self._removed(segments, some, parts)) is None:
            parts *= 2
        expected = 0.0
        for is_clean in (True, False):
            expected += _extrapolated(
                [one for one in cleaned if (one.base < sections.first_dirty) is is_clean], removed
            )
        untouched = sum(one.size for one in segments) - sum(one.size for one in cleaned)
        whole = sum(one.size for one in cleaned)
        read = sum(one.size for one in some)
        return ExpectedCompaction(sections, untouched + round(expected), read / whole if whole else 1.0)

    def _removed(
        self, segments: Sequence[SourceSegment], some: Sequence[SourceSegment], parts: int
    ) -> dict[int, int] | None:
        """Return by how many bytes each of *some* segments becomes smaller; None if the map fills up before.

        Removals that do not depend on keys, such as aborted transactions, occur in each part, and count once.
        """
        removed = dict.fromkeys((one.base for one in some), 0)
        for part in range(parts):
            if self._map(segments, self._sections.first_dirty, part, parts).is_full:
                return None
            for segment in some:
                removed[segment.base] += segment.size - self._rewritten_size(segments, segment)
        if parts > 1:
            latest = self._offsets.latest
            self._offsets.clear(self._sections.first_dirty)
            self._offsets.latest = latest
            for segment in some:
                removed[segment.base] -= (parts - 1) * (segment.size - self._rewritten_size(segments, segment))
        return removed

    def _rewritten_size(self, segments: Sequence[SourceSegment], segment: SourceSegment) -> int:
        rewriting = Rewriting(self._offsets, segments, self._sections.first_dirty, self._terms, self._advance)
        return sum(len(part) for part in rewriting.rewrite(SegmentGroup([segment], self._terms.index_interval)))

    def _map(self, segments: Sequence[SourceSegment], first_dirty: int, part: int = 0, parts: int = 1) -> MappedRange:
        end = self._terms.first_uncleanable
        return self._mapping.fill(segments, self._terms.log_start, first_dirty, end, part, parts)

    def _rewrite(
        self,
        segments: list[SourceSegment],
        first_dirty: int,
        mapped: MappedRange,
        draft: Draft,
        scratch: Staging,
        number: int,
    ) -> tuple[CleaningRound, list[SourceSegment]]:
        """Write the groups of a round; return their results, and the segments for the next round."""
        rules, offsets = self._sections.rules, self._offsets
        rewriting = Rewriting(offsets, segments, first_dirty, self._terms, self._advance, self._digests)
        cleaned = between(segments, 0, mapped.next_dirty)
        self._need(expected_bytes(cleaned, first_dirty, mapped, offsets.entries))
        groups = grouped(cleaned, rules.segment_bytes.number, rules.index_bytes.number, self._terms.first_uncleanable)
        done, written = list[GroupResult](), list[SourceSegment]()
        for sources_of in groups:
            before, group = rewriting.counts, SegmentGroup(sources_of, self._terms.index_interval)
            is_changed = True
            if mapped.is_full:
                written.append(self._to_scratch(group, rewriting.rewrite(group), scratch, number))
            else:
                is_changed = self._to_draft(group, rewriting.rewrite(group), draft)
            bases = tuple(base for source in sources_of for base in source.originals)
            size = sum(source.size for source in sources_of)
            done.append(GroupResult(bases, size, group.builder.size, rewriting.counts.minus(before), is_changed))
        self._drop(segments, scratch, number)
        made = CleaningRound(
            first_dirty, mapped.next_dirty, mapped.is_full, offsets.entries, offsets.slots, offsets.probes,
            offsets.collisions, mapped.records, mapped.bytes, tuple(done), rewriting.counts,
        )  # fmt: skip
        return made, [*written, *segments[len(cleaned) :]]

    # the destination of a group

    def _to_scratch(
        self, group: SegmentGroup, log: Iterator[memoryview], scratch: Staging, number: int
    ) -> SourceSegment:
        name = self._scratch_name(group.base, number)
        scratch.store(name, log)
        if self._choices.like_broker:
            # The map of the next round begins at this offset.
            scratch.store(self._scratch_name(group.base, number, FileKind.INDEX), [group.builder.offset_entries])
        assert scratch.directory is not None
        return group.source(os.path.join(scratch.directory, name))

    def _scratch_name(self, base: int, number: int, kind: FileKind = FileKind.LOG) -> str:
        return f"{self._sections.partition.directory}/{number}/{file_name(base, kind)}"

    def _drop(self, segments: Sequence[SourceSegment], scratch: Staging, number: int) -> None:
        """Remove the output of the round before."""
        for segment in segments if number else ():
            scratch.drop(self._scratch_name(segment.base, number - 1))
            scratch.drop(self._scratch_name(segment.base, number - 1, FileKind.INDEX))

    def _to_draft(self, group: SegmentGroup, new_log: Iterator[memoryview], draft: Draft) -> bool:
        """Replace the group's segments by *new_log* and its indexes; False when that changes nothing."""
        directory = self._sections.partition.directory
        bases = [base for source in group.sources for base in source.originals]
        file = f"{directory}/{file_name(group.base, FileKind.LOG)}"
        log = draft.prepare(file, new_log, modified_ns=group.modified_ns)
        self._check_unchanged(draft, bases)
        if len(bases) == 1 and not self._choices.like_broker and same_content(draft.state(file), log.after):
            draft.put_prepared(log)
            return False
        indexes = {FileKind.INDEX: [group.builder.offset_entries], FileKind.TIME_INDEX: [group.builder.time_entries]}
        if group.aborted:
            indexes[FileKind.TXN_INDEX] = [txn_index_content(group.aborted)]
        before = len(draft.actions)
        replace_segments(draft, directory, bases, log, indexes)
        return len(draft.actions) > before

    def _check_unchanged(self, draft: Draft, bases: Sequence[int]) -> None:
        """Raise UnreadableError when a log has changed since the first look at it."""
        partition = self._sections.partition
        for base in bases:
            name = file_name(base, FileKind.LOG)
            state = draft.state(f"{partition.directory}/{name}")
            if state is None or (state.size, state.modified_ns) != self._seen[base]:
                path = partition.file(name)
                raise UnreadableError(f"{path}: has changed while it was read; is a broker running?")


def expected_bytes(segments: Sequence[SourceSegment], first_dirty: int, mapped: MappedRange, keys: int) -> int:
    """Return about how many bytes are left of *segments* when *keys* records stay of those that were mapped."""
    dirty = sum(segment.size for segment in between(segments, first_dirty, mapped.next_dirty))
    total = sum(segment.size for segment in segments)
    return total - dirty + (dirty * min(keys, mapped.records) // mapped.records if mapped.records else 0)


def _some(segments: Sequence[SourceSegment], first_dirty: int, fraction: float) -> list[SourceSegment]:
    """Return a *fraction* of the segments, evenly spread, of the clean ones and of the dirty ones; a few at least."""
    chosen = []
    for is_clean in (True, False):
        part = [one for one in segments if (one.base < first_dirty) is is_clean and one.size]
        count = min(len(part), max(_FEWEST_SEGMENTS, ceil(fraction * len(part))))
        chosen += [part[(2 * at + 1) * len(part) // (2 * count)] for at in range(count)]
    return chosen


def _extrapolated(segments: Sequence[SourceSegment], removed: Mapping[int, int]) -> float:
    """Return how many bytes are left of *segments*, when of some of them so many are *removed*."""
    total = sum(one.size for one in segments)
    read = sum(one.size for one in segments if one.base in removed)
    gone = sum(removed.get(one.base, 0) for one in segments)
    return total - gone * total / read if read else float(total)
