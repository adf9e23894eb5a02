"""A compaction for people and as JSON: the sections of each log before and after, rounds, groups, totals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from klog.base.errors import counted
from klog.change.plan.session import PlanResult
from klog.commands.compact.compaction import CompactionRun, PartitionOutcome
from klog.commands.compact.log_cleaner import CleaningRound, GroupResult
from klog.commands.compact.log_to_clean import LogSections, Section
from klog.commands.compact.record_retention import CleaningCounts

from klog_cli import style
from klog_cli.command_line import with_option
from klog_cli.output import human_size, range_text
from klog_cli.views.topic_settings import settings_json, settings_text

if TYPE_CHECKING:
    from klog.cluster.metadata.topic_config import Setting

_WIDTH = 44
"""The columns of a picture: with its name and marks it fits a screen of 60."""
_MARKS = {"clean": "=", "dirty": "#", "uncleanable": "~", "active": "."}


# for people


def report(
    cleaning: CompactionRun,
    result: PlanResult,
    skipped: Sequence[str],
    refusals: int,
    *,
    explain: bool,
    to: str | None,
) -> Iterator[str]:
    """Yield the lines of the report: the sum, and partition by partition.

    *skipped*: the topics of partitions whose cleanup.policy is unknown.  *refusals*: the number of partitions that
    could not be compacted.  *explain*: also the reasons, and the figures of each round.  *to*: where copies are.
    """
    done = [one for one in cleaning.outcomes if one.is_done]
    partitions = len(cleaning.outcomes)
    if done:
        yield _verdict(done, partitions, is_done=result.is_applied or to is not None)
    elif refusals:
        yield f"{style.bad('nothing compacted')}: {counted(refusals, 'partition')} refused"
    elif skipped:
        yield f"{style.warning('nothing compacted')}: {_skipped(len(skipped))}"
    else:
        yield f"{counted(partitions, 'partition')}: nothing to do"
    for outcome in cleaning.outcomes:
        if outcome.is_done:
            yield from _partition(outcome, explain=explain)
        elif explain:
            yield f"{outcome.partition.path}: {_why_not(outcome)}"
        if explain and outcome.rules is not None and outcome.sections is not None:
            yield f"  {settings_text(_settings(outcome))}"
    if skipped and (done or refusals):
        yield _skipped(len(skipped))
    if skipped:
        yield from _ways_to_compact(skipped[0])
    if result.is_applied and result.plan is not None:
        yield f"backup: {result.plan.backups[0]}"


def _skipped(count: int) -> str:
    return f"{counted(count, 'partition')} skipped: {'its' if count == 1 else 'their'} cleanup.policy is unknown here"


def _ways_to_compact(topic: str) -> Iterator[str]:
    """Yield the commands that compact topics of unknown policy, such as *topic*."""
    without = ("--apply", "--dry-run")
    yield "to take the settings of topics from the log dir with the metadata log:"
    yield f"  {style.command(with_option('--metadata', 'LOG_DIR', without=without))}"
    yield "to compact a topic of which you know that it may be:"
    yield f"  {style.command(with_option('--topic', topic, '--policy', 'compact', without=without))}"


def _why_not(outcome: PartitionOutcome) -> str:
    if outcome.sections is not None:
        return f"not compacted: {outcome.sections.reason}"
    if outcome.refused is not None:
        return f"not compacted: {outcome.refused.what}"
    return f"not compacted: {outcome.failed}"


def _partition(outcome: PartitionOutcome, *, explain: bool) -> Iterator[str]:
    sections = outcome.sections
    assert sections is not None
    before, after = _sizes(outcome)
    about = "about " if outcome.estimate is not None else ""
    sizes = f"{human_size(before)} → {about}{human_size(after)}"
    yield f"{style.strong(outcome.partition.path)}  {sizes}  ({_gone(outcome)})"
    if explain:
        yield f"  {sections.reason}"
    scale = max(before, 1)
    yield f"  before  {_picture(sections, scale)}"
    yield f"  {' ' * 8}{_legend(sections)}"
    if outcome.compacted is not None:
        if explain:
            for number, one in enumerate(outcome.compacted.rounds, 1):
                yield from _round(number, one)
        out = outcome.compacted.rounds[-1].bytes_out
        parts = [("=", out), ("~", sections.uncleanable.bytes), (".", sections.active.bytes)]
        yield f"  after   {_bar(parts, scale)}"


def _sizes(outcome: PartitionOutcome) -> tuple[int, int]:
    """Return the bytes of the whole log before and after."""
    assert outcome.sections is not None
    sections = outcome.sections
    before = sum(one.bytes for one in _parts(sections).values())
    if outcome.compacted is not None:
        rest = sections.uncleanable.bytes + sections.active.bytes
        return before, outcome.compacted.rounds[-1].bytes_out + rest
    return before, before - (outcome.estimate.bytes_in - outcome.estimate.bytes_out if outcome.estimate else 0)


def _gone(outcome: PartitionOutcome) -> str:
    """Return how many records are removed, and why; of an estimate, how many keys there are."""
    if outcome.estimate is not None:
        found = outcome.estimate
        rounds = "" if found.rounds == 1 else f", {counted(found.rounds, 'round')}"
        return f"{counted(found.keys, 'key')} in {counted(found.records, 'dirty record')}{rounds}"
    assert outcome.compacted is not None
    counts, _, _ = _sums([outcome])
    kinds = [kind for one in outcome.compacted.rounds for kind in _kinds(one.counts)]
    removed = counts.records_in - counts.records_out
    told = {what: sum(count for count, of in kinds if of == what) for _, what in kinds}
    named = [f"{count} {what}" for what, count in told.items() if count]
    records = f"{removed} of {counted(counts.records_in, 'record')}"
    if len(named) == 1:
        return f"{records} {named[0].partition(' ')[2]}"
    return f"{records} removed" + (f": {', '.join(named)}" if named else "")


def _kinds(counts: CleaningCounts) -> list[tuple[int, str]]:
    """Return how many records a round removes, by the reason."""
    return [
        (counts.superseded, "superseded"),
        (counts.keyless, "without a key"),
        (counts.discarded, "aborted or ended"),
        (counts.expired, "expired tombstones"),
    ]


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
    return _bar(parts, scale)


def _bar(parts: Sequence[tuple[str, int]], scale: int) -> str:
    """Draw sizes to scale; each nonempty section has at least one character."""
    drawn = [mark * max(round(size * _WIDTH / scale), 1) for mark, size in parts if size]
    return f"[{'|'.join(drawn)}]"


def _legend(sections: LogSections) -> str:
    told = []
    for name, part in _parts(sections).items():
        if part.end_offset > part.first_offset or part.bytes:
            told.append(
                f"{_MARKS[name]} {name} {_offsets(part.first_offset, part.end_offset)}, {human_size(part.bytes)}"
            )
    return " | ".join(told)


def _offsets(first: int, end: int) -> str:
    return range_text(first, end - 1) if end > first else f"from {first} on"


def _round(number: int, one: CleaningRound) -> Iterator[str]:
    counts = one.counts
    full = ", and the map is full" if one.is_full else ""
    yield (
        f"  round {number}: offsets {_offsets(one.first_dirty, one.next_dirty)}; map: {counted(one.keys, 'key')} in"
        f" {one.slots} slots ({100 * one.keys / one.slots:.2g} %), {counted(one.collisions, 'collision')}"
        f" in {counted(one.probes, 'probe')}{full}"
    )
    for group in one.groups:
        yield f"    {_group(group)}"
    gone = [*_kinds(counts)[:3], (counts.expired, f"of {counted(counts.tombstones, 'tombstone')} expired")]
    told = ", ".join(f"{count} {what}" for count, what in gone if count)
    yield f"    removed: {told or 'nothing'}; markers: {counts.markers_out} of {counts.markers_in} retained"


def _group(group: GroupResult) -> str:
    bases = ", ".join(str(base) for base in group.bases[:4])
    if len(group.bases) > 4:
        bases += f", … {group.bases[-1]}"
    what = f"segment{'s' * (len(group.bases) != 1)} {bases}"
    if not group.is_changed:
        return f"{what}: {human_size(group.bytes_in)}, unchanged"
    counts = group.counts
    return (
        f"{what}: {human_size(group.bytes_in)} → {human_size(group.bytes_out)}, {counts.records_in} →"
        f" {counted(counts.records_out, 'record')}, {counts.batches_in} → {counted(counts.batches_out, 'batch', 'es')}"
    )


def _verdict(done: Sequence[PartitionOutcome], partitions: int, *, is_done: bool) -> str:
    """Return the sum of all partitions that are compacted, or would be."""
    sizes = [_sizes(one) for one in done]
    before, after = sum(size for size, _ in sizes), sum(size for _, size in sizes)
    which = f"{len(done)} of {counted(partitions, 'partition')}"
    if all(one.estimate is not None for one in done):
        return f"would gain about {style.strong(human_size(before - after))} in {which}"
    counts, _, _ = _sums(done)
    verb = style.good("compacted") if is_done else "would compact"
    records = f"{counts.records_in} → {counted(counts.records_out, 'record')}"
    return f"{verb} {which}: {human_size(before)} → {style.strong(human_size(after))}, {records}"


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

    counts, before, after = _sums(cleaning.outcomes)
    return {
        **plan_json(result.plan),
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
