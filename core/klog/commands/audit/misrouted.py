"""Finds batches that a producer's fault put into the wrong partition (KAFKA-19012), by their twins at home.

Unexplained twins are read again and compared.  Identical batches in two places are judged by their profile: see
`klog.commands.audit.twin_verdict`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from klog.commands.audit.batches import BatchContent, BatchTask, batch_content, read_batches
from klog.commands.audit.digest_table import MOST_PLACES
from klog.commands.audit.headers import HeaderSurvey
from klog.commands.audit.twin_verdict import (
    LEAST_SAMPLE,
    SAMPLE_BATCHES,
    Evidence,
    SampleTask,
    TopicProfile,
    TwinVerdict,
    begins_at_zero,
    judge,
    sample_partitions,
    signs_at,
    topic_profile,
)
from klog.commands.audit.twins import (
    Group,
    LegalTwins,
    TopicPair,
    TwinJudge,
    TwinPlace,
    groups_in,
    is_settled,
    legal_pairs,
    topic_pair,
    topic_pairs,
)
from klog.log.reader import MAX_BATCH_BYTES

_UNIT_BATCHES: Final = 256
_UNIT_SAMPLES: Final = 16
_FEW_PLACES: Final = 10_000
"""Groups with at most so many places in all are kept in memory, for a second pass."""
TopicKey = tuple[str, str | None]
"""A topic's name and id."""


class BatchPlace(NamedTuple):
    """The place of a batch, by its offsets."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int


class MisroutedBatch(NamedTuple):
    """A row: a batch in a foreign place; if *home* is None, one of the places *twins* and this is foreign.

    *reasons*: the kind of equality, then the signs.  *file*: relative to the log dir.
    """

    confidence: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    file: str
    position: int
    size: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    max_timestamp: int
    aborted: bool
    home: BatchPlace | None
    twins: tuple[BatchPlace, ...]
    reasons: tuple[str, ...]

    @property
    def place(self) -> BatchPlace:
        """The place of the batch."""
        return BatchPlace(self.topic, self.partition, self.first_offset, self.last_offset)


def in_order(row: MisroutedBatch) -> tuple[object, ...]:
    """Return the sort key of rows: topic, partition, offset."""
    return *row.place, row.file, row.position


class TwinSearch:
    """The search for misrouted batches in a survey.

    *partition_counts*: the number of partitions by topic; 0: unknown.
    """

    def __init__(
        self,
        survey: HeaderSurvey,
        partition_counts: Mapping[TopicKey, int],
        compacted: Sequence[bool],
        max_batch_bytes: int = MAX_BATCH_BYTES,
    ) -> None:
        self._survey, self._counts, self._compacted = survey, partition_counts, compacted
        self._max_batch_bytes = max_batch_bytes
        self._contents: dict[TwinPlace, BatchContent] = {}
        self._profiles: dict[TopicKey, TopicProfile] = {}
        self._few: list[Group] | None = None
        self.legal: list[LegalTwins] = []

    def rows(self) -> list[MisroutedBatch]:
        """Return the rows, by topic, partition and offset; `legal` then counts the others."""
        groups, judge_of = self._open_groups()
        classes = [(group, found) for group in groups if len(found := judge_of.classes(group)) > 1]
        self.read(place for group, _ in classes for place in group)
        same = [part for _, some in classes for part in self._equal_parts(some)]
        self.profile({self.topic_key(place.partition) for part in same for some in part for place in some})
        rows = [row for part in same for row in self._judged(part)]
        return sorted(rows, key=in_order)

    def _open_groups(self) -> tuple[list[Group], TwinJudge]:
        """Return the groups that the share of their topics does not settle, and the judge with their runs."""
        names = self._survey.names
        shared = legal_pairs(self._groups(), names, self._survey.batches)
        large: Counter[TopicPair] = Counter()
        kept: list[Group] = []
        for group in self._groups():
            if len(group) > MOST_PLACES:
                large.update(topic_pairs(group, names) - shared.keys())
            elif not is_settled(group, names, shared):
                kept.append(group)
        judge_of = TwinJudge(kept, names, shared)
        runs: Counter[TopicPair] = Counter()
        for group in kept:
            for pair in self._pairs_in_runs(group, judge_of):
                runs[pair] += 1
        for counts, why in ((shared, "share"), (runs, "run"), (large, "repeats")):
            self.legal += [LegalTwins(pair, count, why) for pair, count in counts.items()]
        self.legal.sort()
        return kept, judge_of

    def _groups(self) -> Iterator[Group]:
        if self._few is not None:
            yield from self._few
            return
        few, places = list[Group](), 0
        for group in groups_in(self._survey.table.repeated(), self._survey.names):
            places += len(group)
            if places <= _FEW_PLACES:
                few.append(group)
            yield group
        if places <= _FEW_PLACES:
            self._few = few

    def _pairs_in_runs(self, group: Group, judge_of: TwinJudge) -> set[TopicPair]:
        return {
            topic_pair(one, other, self._survey.names)
            for one, other in combinations(group, 2)
            if judge_of.why_legal(one, other) == "run"
        }

    def topic_key(self, partition: int) -> TopicKey:
        """Return the topic of a partition, by its place."""
        found = self._survey.partitions[partition]
        return found.topic, found.topic_id

    # reading again

    def read(self, wanted: Iterable[TwinPlace]) -> dict[TwinPlace, BatchContent]:
        """Read the batches at *wanted* again; return all intact ones read so far."""
        places = sorted(set(wanted) - self._contents.keys(), key=lambda place: (place.log, place.position))
        tasks = []
        for number, place in enumerate(places):
            log, partition = self._survey.logs[place.log], self._survey.partitions[place.partition]
            count = self._counts.get(self.topic_key(place.partition), 0)
            tasks.append(BatchTask(number, log.path, place.position, partition.number, count))
        units = [tasks[at : at + _UNIT_BATCHES] for at in range(0, len(tasks), _UNIT_BATCHES)]
        sizes = [len(unit) for unit in units]
        for answer in self._survey.workers.run(read_batches, units, self._max_batch_bytes, sizes):
            self._contents[places[answer.number]] = batch_content(answer.facts)
        return self._contents

    def _equal_parts(self, classes: Sequence[Sequence[TwinPlace]]) -> list[list[list[TwinPlace]]]:
        """Return the parts of a group that are really the same, by class; batches in one class alone are left out."""
        parts: list[tuple[BatchContent, dict[int, list[TwinPlace]]]] = []
        for at, some in enumerate(classes):
            for place in some:
                content = self._contents.get(place)
                if content is None:
                    continue
                same = next((members for first, members in parts if content.equals(first)), None)
                if same is None:
                    parts.append((content, same := {}))
                same.setdefault(at, []).append(place)
        return [list(members.values()) for _, members in parts if len(members) > 1]

    # profiles and signs

    def profile(self, topics: Iterable[TopicKey]) -> dict[TopicKey, TopicProfile]:
        """Take samples of *topics* that have none yet; return all samples."""
        wanted = sorted({one for one in topics if one not in self._profiles}, key=lambda key: (key[0], key[1] or ""))
        members: dict[TopicKey, list[int]] = {}
        for i in range(len(self._survey.partitions)):
            members.setdefault(self.topic_key(i), []).append(i)
        tasks: list[SampleTask] = []
        for number, key in enumerate(wanted):
            most = max(LEAST_SAMPLE, -(-SAMPLE_BATCHES // len(members[key])))
            for i in members[key]:
                found = self._survey.partitions[i]
                directory = found.directory
                logs = [directory.file(files.log) for files in directory.segments if files.size]
                if logs:
                    paths = tuple(dict.fromkeys((logs[0], logs[-1])))
                    tasks.append(SampleTask(number, paths, most, found.number, self._counts.get(key, 0)))
        units = [tasks[at : at + _UNIT_SAMPLES] for at in range(0, len(tasks), _UNIT_SAMPLES)]
        sizes = [len(unit) for unit in units]
        samples: dict[int, list[list[int]]] = {}
        for answer in self._survey.workers.run(sample_partitions, units, self._max_batch_bytes, sizes):
            samples.setdefault(answer.number, []).extend(answer.facts)
        for number, key in enumerate(wanted):
            self._profiles[key] = topic_profile(self._counts.get(key, 0), samples.get(number, []))
        return self._profiles

    def is_compacted(self, partition: int) -> bool:
        """Whether a partition, by its place, is known to be compacted."""
        return self._compacted[partition]

    def begins_late(self, partition: int, content: BatchContent) -> bool:
        """Whether a batch is the first of its producer in a partition that is whole, with a sequence above 0."""
        header = content.header
        if header.producer_id < 0 or header.base_sequence <= 0 or self._compacted[partition]:
            return False
        first = self._survey.first_batch(partition, header.producer_id)
        is_first = first is not None and first.first_offset == header.base_offset
        return is_first and begins_at_zero(self._survey.partitions[partition])

    def _judged(self, classes: Sequence[Sequence[TwinPlace]]) -> list[MisroutedBatch]:
        places = [place for some in classes for place in some]
        keys = {self.topic_key(place.partition) for place in places}
        signs = {}
        for place in places:
            own = self.topic_key(place.partition)
            elsewhere = [self._profiles[key] for key in sorted(keys - {own}, key=str)]
            content = self._contents[place]
            late = self.begins_late(place.partition, content)
            signs[place] = signs_at(Evidence(content, late, self._profiles[own], elsewhere))
        found = []
        for verdict in judge(classes, signs):
            shown = self._reported(verdict)
            if shown is not None:
                found.append(self._row(verdict, shown, places, signs[shown]))
        return found

    def _reported(self, verdict: TwinVerdict) -> TwinPlace | None:
        """Return the place that a row is about: it is judged, and consumers can read it; None if there is none."""
        places = [one for one in (verdict.place, *verdict.undecided) if self.is_reported(one)]
        return max(places, key=lambda place: (place.partition, place.number), default=None)

    def is_reported(self, place: TwinPlace) -> bool:
        """Whether findings about a batch are reported: not on other disks, nor below the log start."""
        found = self._survey.partitions[place.partition]
        return found.is_judged and self._contents[place].header.last_offset >= found.log_start

    def _row(
        self, verdict: TwinVerdict, place: TwinPlace, places: Sequence[TwinPlace], signs: tuple[str, ...]
    ) -> MisroutedBatch:
        others = [one for one in places if one != place]
        content = self._contents[place]
        equal = {content.equals(self._contents[one]) for one in ([verdict.home] if verdict.home else others)}
        return row_of(self._survey, place.partition, place.log, content, verdict.confidence)._replace(
            home=self._batch_place(verdict.home) if verdict.home is not None else None,
            twins=tuple(sorted(map(self._batch_place, others))),
            reasons=("same-bytes" if "same-bytes" in equal else "same-records", *signs),
        )

    def _batch_place(self, place: TwinPlace) -> BatchPlace:
        partition, header = self._survey.partitions[place.partition], self._contents[place].header
        return BatchPlace(partition.topic, partition.number, header.base_offset, header.last_offset)


def row_of(survey: HeaderSurvey, partition: int, log: int, content: BatchContent, confidence: str) -> MisroutedBatch:
    """Return the row of a batch, without home, twins and reasons."""
    found, header = survey.partitions[partition], content.header
    return MisroutedBatch(
        confidence, found.topic, found.number, header.base_offset, header.last_offset, max(header.records_count, 1),
        survey.file(log), header.position, header.size, header.crc, header.producer_id, header.producer_epoch,
        header.base_sequence, header.max_timestamp, content.is_aborted, None, (), (),
    )  # fmt: skip
