"""A compaction for people and as JSON: the sections of each log before and after, rounds, groups, totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from klog.base.errors import counted
from klog.change.plan.session import PlanResult
from klog.commands.compact.compaction import CompactionRun, PartitionOutcome
from klog.commands.compact.log_cleaner import CleaningRound, GroupResult
from klog.commands.compact.log_to_clean import LogSections, Section
from klog.commands.compact.rewriting import CleaningCounts

from klog_cli.output import human_size
from klog_cli.views.topic_settings import settings_json, settings_text

if TYPE_CHECKING:
    from klog.cluster.metadata.topic_config import Setting

_WIDTH = 64
_MARKS = {"clean": "=", "dirty": "#", "uncleanable": "~", "active": "."}


# for people


def report(cleaning: CompactionRun, result: PlanResult, *, explain: bool) -> Iterator[str]:
    """Yield the lines of the report: partition by partition, and the sum."""
    done = [one for one in cleaning.outcomes if one.is_done]
    for outcome in cleaning.outcomes:
        if outcome.is_done:
            yield from _partition(outcome)
        elif explain:
            yield f"{outcome.partition.path}: {_why_not(outcome)}"
        if explain and outcome.rules is not None and outcome.sections is not None:
            yield f"  {settings_text(_settings(outcome))}"
    if not done:
        yield f"{counted(len(cleaning.outcomes), 'partition')}: nothing to do"
        return
    yield from _totals(done, len(cleaning.outcomes), result)


def _why_not(outcome: PartitionOutcome) -> str:
    if outcome.sections is not None:
        return f"not compacted: {outcome.sections.reason}"
    if outcome.refused is not None:
        return f"not compacted: {outcome.refused.what}"
    return f"not compacted: {outcome.failed}"


def _partition(outcome: PartitionOutcome) -> Iterator[str]:
    sections = outcome.sections
    assert sections is not None
    yield f"{outcome.partition.path}: {sections.reason}"
    scale = max(sum(one.bytes for one in _parts(sections).values()), 1)
    yield f"  before  {_picture(sections, scale)}"
    yield f"  {' ' * 8}{_legend(sections)}"
    if outcome.estimate is not None:
        reckoned = outcome.estimate
        yield (
            f"  about {human_size(reckoned.bytes_out)} of {human_size(reckoned.bytes_in)} would be retained:"
            f" {counted(reckoned.keys, 'key')} in {counted(reckoned.records, 'dirty record')},"
            f" {counted(reckoned.rounds, 'round')}"
        )
    if outcome.compacted is not None:
        for number, one in enumerate(outcome.compacted.rounds, 1):
            yield from _round(number, one)
        last = outcome.compacted.rounds[-1]
        rest = sections.uncleanable.bytes + sections.active.bytes
        after = [("=", last.bytes_out), ("~", sections.uncleanable.bytes), (".", sections.active.bytes)]
        yield f"  after   {_bar(after, scale)}  {human_size(last.bytes_out + rest)}"


def _parts(sections: LogSections) -> dict[str, Section]:
    """Return the sections by name; a segment that counts to two is the clean one's."""
    known = {segment.base_offset for segment in sections.clean.segments}
    dirty = tuple(one for one in sections.dirty.segments if one.base_offset not in known)
    return {
        "clean": sections.clean,
        "dirty": sections.dirty._replace(segments=dirty),
        "uncleanable": sections.uncleanable,
        "active": sections.active,
    }


def _picture(sections: LogSections, scale: int) -> str:
    parts = [(_MARKS[name], part.bytes) for name, part in _parts(sections).items()]
    return f"{_bar(parts, scale)}  {human_size(sum(size for _, size in parts))}"


def _bar(parts: Sequence[tuple[str, int]], scale: int) -> str:
    """Draw sizes to scale; each nonempty section has at least one character."""
    drawn = [mark * max(round(size * _WIDTH / scale), 1) for mark, size in parts if size]
    return f"[{'|'.join(drawn)}]"


def _legend(sections: LogSections) -> str:
    told = []
    for name, part in _parts(sections).items():
        if part.end_offset > part.first_offset or part.bytes:
            told.append(f"{_MARKS[name]} {name} {part.first_offset} to {part.end_offset}, {human_size(part.bytes)}")
    return " | ".join(told)


def _round(number: int, one: CleaningRound) -> Iterator[str]:
    counts = one.counts
    full = ", and the map is full" if one.is_full else ""
    yield (
        f"  round {number}: offsets {one.first_dirty} to {one.next_dirty}; map: {counted(one.keys, 'key')} in"
        f" {one.slots} slots ({100 * one.keys / one.slots:.2g} %), {counted(one.collisions, 'collision')}"
        f" in {counted(one.probes, 'probe')}{full}"
    )
    for group in one.groups:
        yield f"    {_group(group)}"
    gone = [
        (counts.superseded, "superseded"),
        (counts.keyless, "without a key"),
        (counts.discarded, "aborted or ended"),
    ]
    gone.append((counts.expired, f"of {counted(counts.tombstones, 'tombstone')} expired"))
    told = ", ".join(f"{count} {what}" for count, what in gone if count)
    yield f"    removed: {told or 'nothing'}; markers: {counts.markers_out} of {counts.markers_in} retained"


def _group(group: GroupResult) -> str:
    bases = ", ".join(str(base) for base in group.bases[:4])
    if len(group.bases) > 4:
        bases += f", … {group.bases[-1]}"
    what = f"segment{'s' * (len(group.bases) != 1)} {bases}"
    if not group.is_changed:
        return f"{what}: {group.bytes_in} bytes, unchanged"
    counts = group.counts
    return (
        f"{what}: {group.bytes_in} to {group.bytes_out} bytes, {counts.records_in} to {counts.records_out} records,"
        f" {counts.batches_in} to {counts.batches_out} batches"
    )


def _totals(done: list[PartitionOutcome], partitions: int, result: PlanResult) -> Iterator[str]:
    if all(one.estimate is not None for one in done):
        before = sum(one.estimate.bytes_in for one in done if one.estimate is not None)
        after = sum(one.estimate.bytes_out for one in done if one.estimate is not None)
        yield f"{len(done)} of {counted(partitions, 'partition')}: about {human_size(before - after)} would be gained"
        return
    counts, before, after = _sums(done)
    yield (
        f"{len(done)} of {counted(partitions, 'partition')}: {counts.records_in} to {counts.records_out} records,"
        f" {human_size(before)} to {human_size(after)}"
    )
    if result.is_applied and result.plan is not None:
        yield f"backup: {result.plan.backups[0]}"


def _sums(done: Sequence[PartitionOutcome]) -> tuple[CleaningCounts, int, int]:
    """Return the counts before the first rounds and after the last ones, and the bytes."""
    counts, before, after = CleaningCounts(), 0, 0
    for outcome in done:
        if outcome.compacted is None:
            continue
        rounds = outcome.compacted.rounds
        first, last = rounds[0], rounds[-1]
        gone = sum(one.counts.records_in - one.counts.records_out for one in rounds)
        out = last.counts.records_out
        counts = counts.plus(last.counts._replace(records_in=out + gone))
        before += max(first.bytes_in, _originals(outcome, last))
        after += last.bytes_out
    return counts, before, after


def _originals(outcome: PartitionOutcome, last: CleaningRound) -> int:
    """Return the bytes on disk of the segments that the last round has replaced."""
    bases = {base for group in last.groups for base in group.bases}
    return sum(files.size for files in outcome.partition.segments if files.base_offset in bases)


def _settings(outcome: PartitionOutcome) -> Mapping[str, Setting]:
    assert outcome.rules is not None
    return outcome.rules.by_name


# as JSON


def members(cleaning: CompactionRun, result: PlanResult, to: str | None) -> dict[str, object]:
    """Return everything as the members of a JSON object: the plan, and the result of each partition.

    *to*: where copies are.
    """
    from klog.change.plan.plan_document import plan_json

    plan: dict[str, object] = plan_json(result.plan) if result.plan is not None else {"id": None, "actions": []}
    counts, before, after = _sums(cleaning.outcomes)
    return {
        **plan,
        "applied": result.is_applied,
        "to": to,
        "records_in": counts.records_in,
        "records_out": counts.records_out,
        "bytes_in": before,
        "bytes_out": after,
        "partitions": [_outcome_json(one, result.is_applied or to is not None) for one in cleaning.outcomes],
    }


def _outcome_json(outcome: PartitionOutcome, is_done: bool) -> dict[str, object]:
    partition, found = outcome.partition, outcome.sections
    told: dict[str, object] = {
        "topic": partition.topic,
        "partition": partition.number,
        "directory": partition.directory,
        "result": _result(outcome, is_done),
        "reason": _why_not(outcome) if found is None else found.reason,
    }
    if found is not None:
        told |= _sections_json(found) | {"settings": settings_json(_settings(outcome))}
    if outcome.estimate is not None:
        told["estimate"] = {name: value for name, value in outcome.estimate._asdict().items() if name != "sections"}
    if outcome.compacted is not None:
        told["cleaner_offset"] = outcome.compacted.cleaner_offset
        told["rounds"] = [_round_json(one) for one in outcome.compacted.rounds]
    return told


def _result(outcome: PartitionOutcome, is_done: bool) -> str:
    if outcome.failed is not None:
        return "failed"
    if outcome.refused is not None:
        return "refused"
    if outcome.compacted is not None:
        return "compacted" if is_done else "to compact"
    return "estimated" if outcome.estimate is not None else "nothing to do"


def _sections_json(found: LogSections) -> dict[str, object]:
    return {
        "log_start_offset": found.log_start,
        "log_end_offset": found.log_end,
        "first_dirty_offset": found.first_dirty,
        "first_dirty_because": found.because.value,
        "first_uncleanable_offset": found.first_uncleanable,
        "bounds": [{"offset": one.offset, "limit": one.limit.value, "reason": str(one)} for one in found.bounds],
        "dirty_ratio": found.dirty_ratio,
        "sections": {
            name: {"first_offset": part.first_offset, "end_offset": part.end_offset, "bytes": part.bytes}
            for name, part in _parts(found).items()
        },
    }


def _round_json(one: CleaningRound) -> dict[str, object]:
    groups = [{**group._asdict(), "bases": list(group.bases), "counts": group.counts._asdict()} for group in one.groups]
    return {**one._asdict(), "groups": groups, "counts": one.counts._asdict()}
