"""The other findings in batch headers: those of `klog audit PATH…`, one for each partition and id.

Ids never change and are never reused; `docs/findings.md` is generated from this table.  A batch that a partition has
twice is one of them: a producer without idempotence sent it again, or a broker took it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from klog.base.errors import counted, offsets_text, time_text
from klog.commands.audit.audited_partitions import AuditPartition
from klog.commands.audit.batches import BatchContent
from klog.commands.audit.headers import FOR_EVER, HeaderSurvey, LogReport, Sighting, TopicLimits
from klog.commands.audit.misrouted import MisroutedBatch, TwinSearch
from klog.commands.audit.twin_verdict import CONFIRMED, begins_at_zero
from klog.commands.audit.twins import Repeats, TwinPlace, repeats_in
from klog.formats.batch import BATCH, CODEC_NAMES, increment_sequence
from klog.partition.verify.findings import KINDS as OF_VERIFY
from klog.partition.verify.findings import Finding, FindingKind, Severity

_MOST_COMPARED: Final = 100
"""The number of repeated batches of a partition that are compared beyond digest and CRC."""


class RepeatedBatches(NamedTuple):
    """Batches that a partition has once more: how many, the first of them, and whether one has a producer id."""

    batches: int
    place: TwinPlace
    content: BatchContent
    has_producer: bool


def repeated_batches(survey: HeaderSurvey, search: TwinSearch) -> dict[int, RepeatedBatches]:
    """Return the repeated batches of judged partitions, by the places of the partitions."""
    counts: Counter[int] = Counter()
    kept: dict[int, list[Repeats]] = {}
    for one in repeats_in(survey.table.repeated(), survey.names):
        partition = one.first.partition
        if survey.partitions[partition].is_judged:
            counts[partition] += one.batches
            some = kept.setdefault(partition, [])
            some.append(one)
            if len(some) > 2 * _MOST_COMPARED:
                kept[partition] = _earliest(some)
    kept = {partition: _earliest(some) for partition, some in kept.items()}
    contents = search.read(place for some in kept.values() for one in some for place in (one.first, one.second))
    found: dict[int, RepeatedBatches] = {}
    for partition, some in kept.items():
        for place, content in _same(some, contents):
            if content.header.last_offset < survey.partitions[partition].log_start:
                continue
            has_producer = content.header.producer_id >= 0
            before = found.setdefault(partition, RepeatedBatches(counts[partition], place, content, has_producer))
            found[partition] = before._replace(has_producer=before.has_producer or has_producer)
    return found


def _earliest(some: list[Repeats]) -> list[Repeats]:
    return sorted(some, key=lambda one: one.second.number)[:_MOST_COMPARED]


def _same(some: list[Repeats], contents: dict[TwinPlace, BatchContent]) -> list[tuple[TwinPlace, BatchContent]]:
    """Return those that really are equal, with the content of the second place."""
    pairs = [(one.second, contents.get(one.first), contents.get(one.second)) for one in some]
    return [
        (place, again)
        for place, first, again in pairs
        if first is not None and again is not None and first.equals(again) == "same-bytes"
    ]


FUTURE_MS: Final = 3_600_000
"""The time by which a timestamp may be ahead of the clock."""
_N, _W, _D = Severity.NOTE, Severity.WARNING, Severity.DAMAGE
_SERVED: Final = "does not check this: keeps the batch and serves it as it is"

_TABLE: Final = (
    FindingKind("misrouted", _D, "batches that were meant for another partition (damage: confirmed; warning: likely)", _SERVED),
    FindingKind("duplicate-batch", _N, "the same bytes twice in the partition: a producer sent a batch again (a warning if it has a producer id)", _SERVED),
    OF_VERIFY["sequence-gap"],
    FindingKind("sequence-begins-late", _N, "a producer's first batch in the partition has a sequence above 0, although the log begins at offset 0", _SERVED),
    FindingKind("time-future", _W, "a timestamp more than an hour ahead of the clock", "keeps the complete segment until then: retention uses the largest timestamp"),
    FindingKind("time-past", _N, "a base timestamp that was older than the retention time when its neighbours were written", "may delete the segment at once"),
    FindingKind("batch-oversized", _W, "a batch larger than max.message.bytes: the setting was lowered", "serves it; followers and consumers with smaller limits may stall"),
    FindingKind("batches-of-one", _N, "over half of the data batches hold one record: each costs a header of 61 bytes", _SERVED),
    FindingKind("codec-mixed", _N, "the data batches of the last segment have several codecs", _SERVED),
    FindingKind("format-old", _N, "batches of v0 or v1", "reads them, and writes new batches as v2"),
)  # fmt: skip
HEADER_KINDS: Final = {kind.id: kind for kind in _TABLE}
"""Every kind by its id, in the order of the table."""


class HeaderFinding(NamedTuple):
    """A finding, and how many batches it is about; the place is that of the first."""

    finding: Finding
    batches: int


class PartitionHeaders(NamedTuple):
    """The input of a partition's checks: its place among all, its logs' reports, and the limits in its settings."""

    at: int
    partition: AuditPartition
    reports: Sequence[LogReport]
    limits: TopicLimits
    is_compacted: bool
    survey: HeaderSurvey

    def finding(
        self,
        id_: str,
        batches: int,
        message: str,
        log: int,
        at: tuple[int, int] | None,
        severity: Severity | None = None,
    ) -> HeaderFinding:
        """Return a finding about *batches*, the first *at* a position and offset of log *log*."""
        kind = HEADER_KINDS[id_]
        kind = kind if severity is None else kind._replace(severity=severity)
        position, offset = at if at is not None else (None, None)
        topic, number, file = self.partition.topic, self.partition.number, self.survey.file(log)
        return HeaderFinding(Finding(kind, topic, number, file, position, offset, message, kind.broker, ""), batches)


HeaderFindings = Iterator[HeaderFinding]


def sequence_gaps(of: PartitionHeaders) -> HeaderFindings:
    """Batches that do not begin behind the last sequence of their producer and epoch, also from segment to segment."""
    if of.is_compacted:
        return
    breaks = 0
    first: tuple[int, tuple[int, int], str] | None = None
    last: dict[tuple[int, int], int] = {}
    for report in of.reports:
        found = []
        for run in report.runs:
            before = last.get((run.producer_id, run.epoch))
            if before is not None and run.first_sequence != increment_sequence(before, 1):
                place = run.first_position, run.first_offset
                found.append((place, _broken(run.producer_id, run.first_sequence, increment_sequence(before, 1))))
            last[run.producer_id, run.epoch] = run.last_sequence
        breaks += len(found) + report.breaks
        if (one := report.first_break) is not None:
            found.append(((one.position, one.offset), _broken(one.producer_id, one.found, one.expected)))
        if found and first is None:
            first = report.number, *min(found)
    if first is not None:
        yield of.finding("sequence-gap", breaks, _first(breaks, first[2]), first[0], first[1])


def _broken(producer_id: int, found: int, expected: int) -> str:
    return f"producer {producer_id} continues with {found}, expected {expected}"


def _first(batches: int, first: str) -> str:
    return first if batches == 1 else f"{counted(batches, 'batch', 'es')}; the first: {first}"


def sequences_that_begin_late(of: PartitionHeaders) -> HeaderFindings:
    """The first batches of producers, where sequences should begin with 0."""
    if of.is_compacted or not begins_at_zero(of.partition):
        return
    seen: set[int] = set()
    late = []
    for report in of.reports:
        for run in report.runs:
            if run.producer_id not in seen and run.first_sequence > 0:
                late.append((report.number, run))
            seen.add(run.producer_id)
    if late:
        log, run = late[0]
        message = _first(len(late), f"producer {run.producer_id} begins with {run.first_sequence}")
        yield of.finding("sequence-begins-late", len(late), message, log, (run.first_position, run.first_offset))


def _sighted(of: PartitionHeaders, which: Callable[[LogReport], Sighting]) -> tuple[int, int, int, Sighting] | None:
    """Return how many batches were sighted, the greatest value, and the first log with some and its sighting."""
    found = [(report.number, which(report)) for report in of.reports if which(report).batches]
    if not found:
        return None
    return sum(seen.batches for _, seen in found), max(seen.value for _, seen in found), *found[0]


def future_times(of: PartitionHeaders) -> HeaderFindings:
    """Timestamps ahead of the clock."""
    if (found := _sighted(of, lambda report: report.facts.future)) is not None:
        batches, latest, log, first = found
        message = f"{counted(batches, 'batch', 'es')}, the latest timestamp {time_text(latest)}: no retention by time until then"
        yield of.finding("time-future", batches, message, log, (first.position, first.offset))


def past_times(of: PartitionHeaders) -> HeaderFindings:
    """Base timestamps that were older than retention.ms when their neighbours were written."""
    if (found := _sighted(of, lambda report: report.facts.past)) is not None:
        batches, oldest, log, first = found
        message = f"{counted(batches, 'batch', 'es')}, the oldest {time_text(-oldest)}, beside batches that are younger by more than"
        message += f" retention.ms ({of.limits.retention_ms})"
        yield of.finding("time-past", batches, message, log, (first.position, first.offset))


def oversized_batches(of: PartitionHeaders) -> HeaderFindings:
    """Batches larger than max.message.bytes."""
    if (found := _sighted(of, lambda report: report.facts.oversized)) is not None:
        batches, largest, log, first = found
        message = f"{counted(batches, 'batch', 'es')} of up to {largest} bytes; max.message.bytes is"
        yield of.finding(
            "batch-oversized", batches, f"{message} {of.limits.max_message_bytes}", log, (first.position, first.offset)
        )


def batches_of_one(of: PartitionHeaders) -> HeaderFindings:
    """Batches with one record, if they are the majority."""
    single = sum(report.facts.single for report in of.reports)
    every = sum(report.facts.data_batches for report in of.reports)
    if 2 * single > every:
        message = (
            f"{single} of {counted(every, 'data batch', 'es')} hold one record: {single * BATCH.size} bytes of headers"
        )
        yield of.finding("batches-of-one", single, message, of.reports[0].number, None)


def mixed_codecs(of: PartitionHeaders) -> HeaderFindings:
    """Several codecs in the last segment that has data batches."""
    with_data = [report for report in of.reports if report.facts.data_batches]
    codecs = with_data[-1].facts.codecs if with_data else ()
    names = [f"{name} {count}" for name, count in zip(CODEC_NAMES, codecs, strict=False) if count]
    if len(names) > 1:
        log = with_data[-1].number
        yield of.finding(
            "codec-mixed", with_data[-1].facts.data_batches, f"batches by codec: {', '.join(names)}", log, None
        )


def old_formats(of: PartitionHeaders) -> HeaderFindings:
    """Batches of v0 and v1."""
    found = [report for report in of.reports if report.facts.legacy]
    if not found:
        return
    batches, size = (
        sum(counts) for counts in zip(*((one.facts.legacy, one.facts.legacy_bytes) for one in found), strict=True)
    )
    latest = max(one.facts.legacy_latest for one in found)
    stays = of.is_compacted or of.limits.retention_ms == FOR_EVER or latest < 0
    end = (
        "retention gives no date for their removal"
        if stays
        else f"retention removes them after {time_text(latest + of.limits.retention_ms)}"
    )
    message = f"{counted(batches, 'batch', 'es')} of v0 or v1, {size} bytes; {end}"
    yield of.finding("format-old", batches, message, found[0].number, None)


CHECKS: Final[Mapping[str, Callable[[PartitionHeaders], HeaderFindings]]] = {
    "sequence-gap": sequence_gaps,
    "sequence-begins-late": sequences_that_begin_late,
    "time-future": future_times,
    "time-past": past_times,
    "batch-oversized": oversized_batches,
    "batches-of-one": batches_of_one,
    "codec-mixed": mixed_codecs,
    "format-old": old_formats,
}
"""The checks of the pass over headers itself, by id; misrouted and repeated batches have to be read again."""


def misrouted_findings(of: PartitionHeaders, rows: Iterable[MisroutedBatch]) -> HeaderFindings:
    """One finding for the confirmed batches of a partition, and one for the others."""
    ranked = sorted(rows, key=lambda row: row.confidence != CONFIRMED)
    for is_confirmed, some in groupby(ranked, key=lambda row: row.confidence == CONFIRMED):
        found = list(some)
        row = found[0]
        other = row.home or row.twins[0]
        where = (
            f"{'original' if row.home else 'also'} in {other.topic}-{other.partition} at offset {other.first_offset}"
        )
        message = f"{offsets_text(row.first_offset, row.last_offset)}, {where} ({' '.join(row.reasons)})"
        log = next(one.number for one in of.reports if of.survey.file(one.number) == row.file)
        severity = Severity.DAMAGE if is_confirmed else Severity.WARNING
        place = row.position, row.first_offset
        yield of.finding("misrouted", len(found), _first(len(found), message), log, place, severity)


def repeated_findings(of: PartitionHeaders, repeats: RepeatedBatches | None) -> HeaderFindings:
    """Batches that the partition has several times: a warning where an idempotent producer's are among them."""
    if repeats is not None:
        offset = repeats.content.header.base_offset
        message = _first(repeats.batches, f"the batch at offset {offset} is a repetition")
        severity = Severity.WARNING if repeats.has_producer else Severity.NOTE
        place = repeats.place.position, offset
        yield of.finding("duplicate-batch", repeats.batches, message, repeats.place.log, place, severity)
