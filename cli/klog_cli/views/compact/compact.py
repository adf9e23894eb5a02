"""The output of `klog compact`: the changes that it has made, or would make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klog.base.errors import ExitCode, counted
from klog.change.plan.session import PlanOptions, PlanResult, PlanSession
from klog.change.plan.staging import Staging
from klog.cluster.metadata.topic_config import TopicConfig, topic_configs
from klog.commands.compact.rules import RefusalReason
from klog.commands.compact.run import CompactionRun, CompactOptions, PartitionOutcome
from klog.data_dir.disk.disk import Disk
from klog.data_dir.disk.output_gate import check_directory
from klog.data_dir.selection import PartitionQuery, Selection

from klog_cli import output
from klog_cli.command_line import next_step
from klog_cli.views.compact.text import members, report


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
    if form == "json":
        output.emit_json(members(run, result, asked.to))
    else:
        for line in report(run, result, explain=asked.explain):
            output.text(f"{output.printable(line)}\n")
    report_outcomes(run.outcomes, done.topics, is_narrow)
    if result.plan is not None:
        output.note(next_step(result, plan_options))
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
    """Write compacted copies into another directory, or only estimate: nothing changes where the partitions are."""
    selections, disk = asked.query.selections(), Disk()
    topics = topic_configs([one.log_dir for one in selections], options, asked.metadata)
    with output.Results() as results:

        def make(staging: Sequence[Staging]) -> CompactionRun:
            return CompactionRun(selections, staging, topics, wishes, disk, results)

        if asked.to is not None:
            from klog.commands.compact.copying import copy

            run = copy(asked.to, make, len(selections), disk)
        else:
            run = make([Staging(None, disk) for _ in selections])
            run.estimate()
    return _Compaction(selections, topics, run, PlanResult(None, is_applied=False))


# why partitions were skipped


def report_outcomes(outcomes: Sequence[PartitionOutcome], topics: Sequence[TopicConfig], is_narrow: bool) -> None:
    """Report which partitions were skipped, and why; *is_narrow*: they were selected by name."""
    unknown = 0
    for outcome in outcomes:
        if outcome.failed is not None:
            output.error(str(outcome.failed))
        elif outcome.refused is not None and (
            is_narrow or outcome.is_damaged or outcome.refused.ground is RefusalReason.NAMES
        ):
            output.error(str(outcome.refused))
        elif outcome.refused is not None and outcome.refused.ground is RefusalReason.POLICY:
            # If there is a metadata log, a topic without settings in it is most likely not compacted.
            is_unknown = outcome.rules is not None and not outcome.rules.is_told
            unknown += is_unknown and topics[outcome.number].metadata is None
    if unknown:
        output.note(
            f"{counted(unknown, 'partition')} left out, because nothing here shows their cleanup.policy:"
            " --metadata DIR names the log dir with the metadata log; --topic with --policy compact if you know it"
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
