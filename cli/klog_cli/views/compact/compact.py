"""The output of `klog compact`: the changes that it has made, or would make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import ExitCode, counted
from klog.change.plan.session import PlanOptions, PlanResult, PlanSession
from klog.change.plan.staging import Staging
from klog.cluster.metadata.topic_config import TopicConfig, topic_configs
from klog.commands.compact.compaction import CompactionRun, CompactOptions, PartitionOutcome
from klog.commands.compact.topic_rules import RefusalReason
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.disk.refused_outputs import check_directory
from klog.data_dir.partition_identity import IdentityChoice, choose_identity, group_copies
from klog.data_dir.selection import PartitionQuery, Selection
from klog.formats.names import PartitionState

from klog_cli import output
from klog_cli.command_line import next_step
from klog_cli.views.compact.text import members, report

if TYPE_CHECKING:
    from klog.commands.compact.job import CompactJobOptions
    from klog.jobs.output_commit import Facts
    from klog.jobs.runner import Runner


class CompactArguments(NamedTuple):
    """The command line apart from settings: the partitions, and the action."""

    query: PartitionQuery
    metadata: str | None
    to: str | None
    estimate: bool
    explain: bool


def compact(
    asked: CompactArguments, options: Mapping[str, str], wishes: CompactOptions, plan_options: PlanOptions, form: str
) -> int:
    """Plan a compaction, carry it out if requested, and return the exit code.  Raises KlogError."""
    if asked.to is not None:
        check_directory(asked.to, asked.query.paths)
    if asked.estimate or asked.to is not None:
        done = _beside(asked, options, wishes)
    else:
        done = _in_place(asked, options, wishes, plan_options)
    run, result, is_narrow = done.run, done.result, not all(one.whole for one in done.selections)
    skipped = [] if is_narrow else skipped_topics(run.outcomes, done.topics)
    refusals = errors(run.outcomes, is_narrow)
    if form == "json":
        output.emit_json(members(run, result, asked.to))
        note_skipped(skipped)
    else:
        output.lines(report(run, result, skipped, len(refusals), explain=asked.explain, to=asked.to))
    for refusal in refusals:
        output.error(refusal)
    if form == "text" and result.plan is not None:
        output.lines(next_step(result, plan_options))
    return exit_code(run.outcomes, is_narrow) | (ExitCode.OPERATIONAL_ERROR if result.is_partial else 0)


class _Compaction(NamedTuple):
    """A compaction, done or planned: its partitions, its settings, and its outcomes."""

    selections: Sequence[Selection]
    topics: Sequence[TopicConfig]
    run: CompactionRun
    result: PlanResult


def _in_place(
    asked: CompactArguments, options: Mapping[str, str], wishes: CompactOptions, plan_options: PlanOptions
) -> _Compaction:
    with PlanSession(asked.query, plan_options, reporter=output.TerminalReporter()) as session:
        topics = topic_configs([one.log_dir for one in session.selections], options, asked.metadata)
        with output.Results() as results:
            run = CompactionRun(session.selections, session.staging, topics, wishes, session.disk, results)
            run.run()
        return _Compaction(session.selections, topics, run, session.finish(run.drafts))


def _beside(asked: CompactArguments, options: Mapping[str, str], wishes: CompactOptions) -> _Compaction:
    """Write compacted copies into another directory, or only estimate: the partitions are unchanged."""
    selections, disk = asked.query.selections(), Disk()
    topics = topic_configs([one.log_dir for one in selections], options, asked.metadata)
    with output.Results() as results:

        def make(staging: Sequence[Staging]) -> CompactionRun:
            return CompactionRun(selections, staging, topics, wishes, disk, results)

        if asked.to is not None:
            from klog.commands.compact.compaction import copy

            run = copy(asked.to, make, len(selections), disk)
        else:
            run = make([Staging(None, disk) for _ in selections])
            run.estimate()
    return _Compaction(selections, topics, run, PlanResult(None, is_applied=False))


# why partitions were skipped


def errors(outcomes: Sequence[PartitionOutcome], is_narrow: bool) -> list[str]:
    """Return why partitions could not be compacted; *is_narrow*: they were selected by name."""
    found: list[str] = []
    for outcome in outcomes:
        if outcome.failed is not None:
            found.append(str(outcome.failed))
        elif outcome.refused is not None and (
            is_narrow or outcome.is_damaged or outcome.refused.ground is RefusalReason.NAMES
        ):
            found.append(str(outcome.refused))
    return found


def skipped_topics(outcomes: Sequence[PartitionOutcome], topics: Sequence[TopicConfig]) -> list[str]:
    """Return the topic of each partition that was skipped because its cleanup.policy is unknown.

    If there is a metadata log, a topic without settings in it is most likely not compacted.
    """
    return [
        outcome.partition.topic or outcome.partition.directory
        for outcome in outcomes
        if outcome.refused is not None
        and outcome.refused.ground is RefusalReason.POLICY
        and not outcome.is_damaged
        and outcome.rules is not None
        and not outcome.rules.is_told
        and topics[outcome.number].metadata is None
    ]


def note_skipped(topics: Sequence[str]) -> None:
    """Print how many partitions were skipped, and the options that compact them."""
    if topics:
        whose = "its" if len(topics) == 1 else "their"
        output.note(
            f"{counted(len(topics), 'partition')} skipped: {whose} cleanup.policy is unknown here; --metadata LOG_DIR"
            " names the log dir with the metadata log, --topic with --policy compact a topic that may be compacted"
        )


def exit_code(outcomes: Sequence[PartitionOutcome], is_narrow: bool) -> int:
    """Return the exit code for the outcomes of partitions."""
    code = 0
    for outcome in outcomes:
        if outcome.is_damaged:
            code |= ExitCode.PROBLEMS_LEFT
        elif outcome.failed is not None or (
            outcome.refused is not None and outcome.refused.ground is RefusalReason.NAMES
        ):
            code |= ExitCode.OPERATIONAL_ERROR
        elif outcome.refused is not None and is_narrow and outcome.refused.ground is not RefusalReason.NO_SEGMENT:
            code |= ExitCode.USAGE if outcome.refused.ground is RefusalReason.POLICY else ExitCode.OPERATIONAL_ERROR
    return code


# klog spark compact --output log


def compact_on_spark(
    chosen: tuple[PartitionQuery, IdentityChoice],
    metadata: str | None,
    settings: Mapping[str, str],
    wishes: CompactJobOptions,
    to: str,
    runner: AbstractContextManager[Runner],
) -> int:
    """Write compacted partitions as a new log dir, print the outcome of each, and return the exit code."""
    from klog.commands.compact.job import compact_partitions

    found = _selections(*chosen)
    topics = topic_configs([one.log_dir for one in found], settings, metadata)
    with output.Results() as results, runner as running:
        facts, outcomes = compact_partitions(found, topics, to, wishes, running, results)
    for one in facts:
        if one["result"] in ("compacted", "copied"):
            output.text(output.printable(_line(one)) + "\n")
    is_narrow = not all(one.whole for one in found)
    for refusal in errors(outcomes, is_narrow):
        output.error(refusal)
    note_skipped([] if is_narrow else skipped_topics(outcomes, topics))
    return exit_code(outcomes, is_narrow)


def _selections(query: PartitionQuery, choice: IdentityChoice) -> list[Selection]:
    """Return the selections.  Raises UsageError; IdentityError for two different partitions of one name."""
    found = query.selections()
    kept, sentence = choose_identity([partition for one in found for partition in one.partitions], choice)
    group_copies([partition for partition in kept if partition.state is PartitionState.CURRENT], choice)
    if sentence is None:
        return found
    output.note(sentence)
    wanted = set(kept)
    narrowed = []
    for one in found:
        partitions = [partition for partition in one.partitions if partition in wanted]
        is_whole = one.whole and len(partitions) == len(one.partitions)
        narrowed.append(one._replace(partitions=partitions, whole=is_whole))
    return [one for one in narrowed if one.partitions]


def _line(one: Facts) -> str:
    if one["result"] == "copied":
        return f"{one['directory']}: as it is, {one['reason']}"
    sizes = f"{output.human_size(one['bytes_in'])} → {output.human_size(one['bytes_out'])}"
    return f"{one['directory']}: compacted, {sizes}, {one['records_in']} → {one['records_out']} records"
