"""The search for misrouted batches whose twin is missing, by their records and sequences."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klog.base.errors import KlogError
from klog.commands.audit.audited_partitions import AuditLog
from klog.commands.audit.batches import BatchContent
from klog.commands.audit.header_survey import HeaderSurvey
from klog.commands.audit.misrouted import MisroutedBatch, TopicKey, TwinSearch, row_of
from klog.commands.audit.topic_profiles import TopicProfile, run_signs
from klog.commands.audit.twin_verdict import POSSIBLE, SIGNS_WITHOUT_TWIN, Evidence, begins_at_zero, signs_at
from klog.commands.audit.twins import TwinPlace
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage
from klog.jobs.runner import TaskResult, json_result
from klog.jobs.slices import pack_tasks
from klog.kernel import Window
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.segment import Segment

_UNIT_BYTES: Final = 64 << 20


class RecordTask(NamedTuple):
    """A log whose records are read.

    *partition*, *partitions*: its number and the number of its topic's partitions, 0 if keys are no evidence.  *usual*:
    schema ids of the topic, int32s, ascending.  *late*: base offsets of batches that are a producer's first, with a
    late sequence.
    """

    log: AuditLog
    partition: int
    partitions: int
    usual: bytes
    late: frozenset[int]


def read_records(unit: Sequence[RecordTask], max_batch_bytes: int = MAX_BATCH_BYTES) -> Iterator[TaskResult]:
    """Read the records of logs: an answer `odd` for each, with the positions of batches that may be out of place.

    Neither content nor unreadable files raise an error.
    """
    codecs, window = Decompressor(max_batch_bytes).functions, Window(records=64)
    for task in unit:
        found: list[int] = []
        try:
            for run in Segment(task.log.path).runs(max_batch_bytes=max_batch_bytes, window=window):
                if isinstance(run, Damage) or run.damage:
                    continue
                for i, signs in run_signs(run, codecs, task.partition, task.partitions, task.usual):
                    header = run.window.batch(i)
                    is_elsewhere, is_odd = signs.keys > 0 == signs.here, signs.schema >= 0
                    is_late = header.base_offset in task.late
                    if is_elsewhere + is_odd + is_late >= SIGNS_WITHOUT_TWIN and not _is_skipped(task.log, header[1]):
                        found.append(header.position)
        except KlogError:
            pass  # the pass over headers has reported it
        yield json_result("odd", found, task.log.number)


def _is_skipped(log: AuditLog, base_offset: int) -> bool:
    return log.skip_from <= base_offset < log.skip_to


class RecordSearch:
    """The search among the batches of a survey, of which *twins* has those with a twin."""

    def __init__(self, survey: HeaderSurvey, twins: TwinSearch, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self._survey, self._twins, self._max_batch_bytes = survey, twins, max_batch_bytes

    def rows(self, known: Sequence[MisroutedBatch]) -> list[MisroutedBatch]:
        """Return the rows of batches that none of the *known* rows is about, nor has as a twin."""
        profiles = self._twins.profile({self._twins.topic_key(i) for i in range(len(self._survey.partitions))})
        tasks = [self._task(log, profiles) for log in self._survey.logs]
        places = []
        packs = pack_tasks([task.log.size for task in tasks], _UNIT_BYTES)
        units = [[tasks[i] for i in pack] for pack in packs]
        sizes = [sum(task.log.size for task in unit) for unit in units]
        for answer in self._survey.workers.run(read_records, units, self._max_batch_bytes, sizes):
            log = self._survey.logs[answer.number]
            places += [TwinPlace(log.partition, 0, log.number, position, 0, 0) for position in answer.facts]
        contents = self._twins.read(places)
        taken = {place for row in known for place in (row.place, *row.twins)}
        rows = [self._row(place, contents[place], profiles) for place in places if place in contents]
        return [row for row in rows if row is not None and row.place not in taken]

    def _task(self, log: AuditLog, profiles: dict[TopicKey, TopicProfile]) -> RecordTask:
        partition = self._survey.partitions[log.partition]
        profile = profiles[self._twins.topic_key(log.partition)]
        late: set[int] = set()
        if begins_at_zero(partition) and not self._twins.is_compacted(log.partition):
            runs = self._survey.reports[log.number].runs
            late = {
                run.first_offset for run in runs if self._is_first(log.partition, run.producer_id, run.first_offset)
            }
        usual = array("i", profile.usual_schemas).tobytes()
        return RecordTask(log, partition.number, profile.partitions if profile.keys_tell else 0, usual, frozenset(late))

    def _is_first(self, partition: int, producer_id: int, offset: int) -> bool:
        first = self._survey.first_batch(partition, producer_id)
        return first is not None and first.first_offset == offset and first.first_sequence > 0

    def _row(
        self, place: TwinPlace, content: BatchContent, profiles: dict[TopicKey, TopicProfile]
    ) -> MisroutedBatch | None:
        own = self._twins.topic_key(place.partition)
        elsewhere = [profile for key, profile in profiles.items() if key != own]
        late = self._twins.begins_late(place.partition, content)
        signs = signs_at(Evidence(content, late, profiles[own], elsewhere))
        if len(signs) < SIGNS_WITHOUT_TWIN or not self._twins.is_reported(place):
            return None
        return row_of(self._survey, place.partition, place.log, content, POSSIBLE)._replace(reasons=signs)
