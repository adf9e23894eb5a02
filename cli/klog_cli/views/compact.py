"""What `klog compact` is going to do, or has done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from klog.compact.rules import RefusalReason
from klog.compact.run import CompactionRun, CompactOptions, CompactTarget, PartitionOutcome
from klog.data_dir.log_dir import LogDir
from klog.data_dir.open_path import open_path
from klog.disk.disk import Disk
from klog.disk.output_gate import check_directory
from klog.errors import UsageError
from klog.metadata.topic_config import TopicConfig
from klog.plan.model import NOTHING
from klog.plan.staging import Staging

from klog_cli import output
from klog_cli.changing import Changed, Chosen, Drafted, Ways, change, choose, next_step
from klog_cli.views.compact_text import members, report

LEFT, COULD_NOT, USAGE = 4, 8, 16


class CompactArguments(NamedTuple):
    """What the command line says besides settings: which partitions, and what is wanted of them."""

    paths: Sequence[str]
    topics: Sequence[str]
    numbers: Sequence[int]
    metadata: str | None
    to: str | None
    estimate: bool
    explain: bool


Make = Callable[[list[Chosen], Sequence[Staging], output.Results], CompactionRun]


def compact(asked: CompactArguments, options: Mapping[str, str], wishes: CompactOptions, ways: Ways, form: str) -> int:
    """Plan a compaction, carry it out where that is wanted, and return the exit code.  Raises KlogError."""
    found: list[tuple[CompactionRun, list[TopicConfig], bool]] = []

    def make(chosen: list[Chosen], staging: Sequence[Staging], results: output.Results) -> CompactionRun:
        topics = settings_of(asked.metadata, [one.log_dir for one in chosen], options)
        targets = [CompactTarget(one.log_dir, one.partitions) for one in chosen]
        cleaning = CompactionRun(targets, staging, topics, wishes, Disk(), results)
        found.append((cleaning, topics, not all(one.whole for one in chosen)))
        return cleaning

    changed = _run(asked, make, ways)
    cleaning, topics, is_narrow = found[0]
    if form == "json":
        output.emit_json(members(cleaning, changed, asked.to))
    else:
        for line in report(cleaning, changed, explain=asked.explain):
            output.text(f"{output.printable(line)}\n")
    say(cleaning.outcomes, topics, is_narrow)
    if changed.plan is not None:
        output.note(next_step(changed, ways))
    return exit_code(cleaning.outcomes, is_narrow) | (COULD_NOT if changed.is_partial else 0)


def _run(asked: CompactArguments, make: Make, ways: Ways) -> Changed:
    """Do what was asked for; return the plan that it came to."""

    def draft(chosen: list[Chosen], staging: Sequence[Staging]) -> Drafted:
        with output.Results() as results:
            cleaning = make(chosen, staging, results)
            cleaning.run()
        return Drafted(cleaning.drafts, (), (), NOTHING, None)

    def chosen() -> list[Chosen]:
        return choose(asked.paths, asked.topics, asked.numbers)

    if not asked.estimate and asked.to is None:
        return change(chosen, ways, draft)
    if asked.to is not None:
        check_directory(asked.to, asked.paths)
    log_dirs = chosen()
    with output.Results() as results:
        if asked.to is not None:
            from klog.compact.copying import copy

            copy(asked.to, lambda staging: make(log_dirs, staging, results), len(log_dirs), Disk())
        else:
            make(log_dirs, [Staging(None, Disk()) for _ in log_dirs], results).estimate()
    return Changed(None, is_applied=False)


def settings_of(metadata: str | None, log_dirs: Sequence[LogDir], options: Mapping[str, str]) -> list[TopicConfig]:
    """Return the settings that hold in each log dir: of a broker's log dirs one has the metadata log.

    *metadata*: the path of a log dir that has it.  Raises UsageError, UnreadableError.
    """
    given = None
    if metadata is not None:
        opened = open_path(metadata)
        if not isinstance(opened, LogDir):
            raise UsageError(f"--metadata {metadata}: no log dir with a metadata log (__cluster_metadata-0)")
        given = opened
    with_metadata = [one for one in log_dirs if one.metadata_log is not None]
    found = []
    for log_dir in log_dirs:
        of_cluster = (one for one in with_metadata if one.cluster_id == log_dir.cluster_id)
        own = log_dir if log_dir in with_metadata else next(of_cluster, None)
        found.append(TopicConfig(log_dir, options, given or own))
    return found


# what is said about those that were left out


def say(outcomes: Sequence[PartitionOutcome], topics: Sequence[TopicConfig], is_narrow: bool) -> None:
    """Say which partitions were left out, and why; *is_narrow*: they were asked for by name."""
    unknown = 0
    for outcome in outcomes:
        if outcome.failed is not None:
            output.error(str(outcome.failed))
        elif outcome.refused is not None and (
            is_narrow or outcome.is_damaged or outcome.refused.ground is RefusalReason.NAMES
        ):
            output.error(str(outcome.refused))
        elif outcome.refused is not None and outcome.refused.ground is RefusalReason.POLICY:
            # Where there is a metadata log, a topic of which it says nothing is not compacted, most likely.
            is_unknown = outcome.rules is not None and not outcome.rules.is_told
            unknown += is_unknown and topics[outcome.number].metadata is None
    if unknown:
        output.note(
            f"{unknown} partition{'s' * (unknown != 1)} left out, since nothing here tells their cleanup.policy:"
            " --metadata DIR names the log dir with the metadata log; --topic with --policy compact if you know it"
        )


def exit_code(outcomes: Sequence[PartitionOutcome], is_narrow: bool) -> int:
    """Return the exit code of what came of partitions."""
    code = 0
    for outcome in outcomes:
        if outcome.is_damaged:
            code |= LEFT
        elif outcome.failed is not None or (
            outcome.refused is not None and outcome.refused.ground is RefusalReason.NAMES
        ):
            code |= COULD_NOT
        elif outcome.refused is not None and is_narrow and outcome.refused.ground is not RefusalReason.NO_SEGMENT:
            code |= USAGE if outcome.refused.ground is RefusalReason.POLICY else COULD_NOT
    return code
