"""The results of the pass over a partition's logs, so that no later step reads them again."""

from __future__ import annotations

import os
from typing import NamedTuple

from klog.change.partition_plan.losses import RecordCount, count_records
from klog.data_dir.partition import Partition
from klog.formats.damage import DamageKind
from klog.formats.index import OFFSET_ENTRY
from klog.kernel import IndexBuilder
from klog.partition.start.segment_recovery import IntactPrefix
from klog.partition.verify.facts import PartitionFacts
from klog.partition.verify.segment_pass import SegmentFacts

_DISORDER = frozenset({"overflow", "backwards", "odd offset", "beyond next"})
"""Events of a survey after which its offsets are not those of the first and the last batch."""

_ENDS_RECOVERY = frozenset({DamageKind.BAD_CRC, DamageKind.BAD_LENGTH, DamageKind.TORN_TAIL, DamageKind.ZEROED_TAIL})
"""Damage at which a broker's reading ends as well; it takes formats that do not exist, and headers that are short."""


class _LogCounts(NamedTuple):
    """The records of a log: *whole*; up to the first damage, which begins at byte *broken_at*; from there on."""

    size: int
    whole: RecordCount
    broken_at: int | None
    before: RecordCount
    behind: RecordCount


class SurveyedLogs:
    """Facts about logs by their names, collected segment by segment during a pass.

    *prefixes*: the intact batches at the start of those logs whose recovery by a broker is known.
    """

    def __init__(self, partition: Partition) -> None:
        self._folder = partition.path
        self.prefixes: dict[str, IntactPrefix] = {}
        self._counts: dict[str, _LogCounts] = {}
        self._is_begun = False
        self._open: tuple[tuple[int, int], ...] | None = None

    def add(self, facts: PartitionFacts, segment: SegmentFacts) -> None:
        """Take the results of the pass over *segment*, before its index builder is dropped."""
        replay, builder = facts.replay, segment.builder
        before = self._open if self._is_begun else replay.opened if replay is not None else None
        self._is_begun = True
        self._open = replay.open_now() if replay is not None else None
        at_damage = replay.take_open_at_damage() if replay is not None else None
        is_ordered = not segment.survey.dropped and not any(event[0] in _DISORDER for event in segment.survey.events)
        if segment.unreadable is not None or not is_ordered or builder is None or builder.stop:
            return
        self._count(segment, builder)
        if segment.survey.legacy or (segment.is_broken and segment.damages[0].damage.kind not in _ENDS_RECOVERY):
            return
        has_producers = segment.survey.producer_batches > 0
        after = at_damage if segment.is_broken else self._open
        if has_producers and (replay is None or segment.files.log in replay.stops or before is None or after is None):
            return
        index, time_index = builder.offset_entries, builder.time_entries
        self.prefixes[segment.files.log] = IntactPrefix(
            segment.size,
            builder.size,
            builder.batches,
            builder.last_offset,
            tuple(builder.epochs),
            index[-OFFSET_ENTRY.size :],
            len(index),
            len(time_index),
            has_producers,
            before or (),
            after or (),
        )

    def _count(self, segment: SegmentFacts, builder: IndexBuilder) -> None:
        survey = segment.survey
        whole = RecordCount(survey.records + survey.legacy)
        if survey.batches:
            whole = whole._replace(first_offset=survey.first_offset, last_offset=survey.last_offset)
        before = behind = RecordCount()
        if builder.batches:
            before = RecordCount(builder.records, survey.first_offset, builder.last_offset)
        if segment.resumes_at is not None:
            behind = RecordCount(whole.records - before.records, segment.resumes_at, whole.last_offset)
        broken_at = builder.size if segment.is_broken and not survey.legacy else None
        self._counts[segment.files.log] = _LogCounts(segment.size, whole, broken_at, before, behind)

    def count_records(self, log: str, start: int = 0, end: int | None = None) -> RecordCount:
        """Return the content of bytes *start* to *end* of a log; read only where the pass has no answer.

        Raises UnreadableError.
        """
        known = self._counts.get(log)
        if known is not None and end in (None, known.size):
            if start == 0:
                return known.whole
            if start == known.broken_at:
                return known.behind
        if known is not None and start == 0 and end == known.broken_at:
            return known.before
        return count_records(os.path.join(self._folder, log), start, end)
