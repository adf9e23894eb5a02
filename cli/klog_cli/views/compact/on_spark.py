"""Prints the outcome of each partition that `klog spark compact --format log` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from klog.cluster.metadata.topic_config import topic_configs
from klog.commands.compact.job import CompactJobOptions, compact_partitions
from klog.data_dir.identity import IdentityChoice, choose_identity, group_copies
from klog.data_dir.selection import PartitionQuery, Selection
from klog.formats.names import PartitionState
from klog.jobs.output import Facts
from klog.jobs.runner import Runner

from klog_cli import output
from klog_cli.views.compact.compact import exit_code, report_outcomes


def compact(
    chosen: tuple[PartitionQuery, IdentityChoice],
    metadata: str | None,
    settings: Mapping[str, str],
    wishes: CompactJobOptions,
    to: str,
    runner: AbstractContextManager[Runner],
) -> int:
    """Write compacted partitions as a new log dir, and return the exit code."""
    found = _selections(*chosen)
    topics = topic_configs([one.log_dir for one in found], settings, metadata)
    with output.Results() as results, runner as running:
        facts, outcomes = compact_partitions(found, topics, to, wishes, running, results)
    for one in facts:
        if one["result"] in ("compacted", "copied"):
            output.text(output.printable(_line(one)) + "\n")
    is_narrow = not all(one.whole for one in found)
    report_outcomes(outcomes, topics, is_narrow)
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
    sizes = f"{output.human_size(one['bytes_in'])} to {output.human_size(one['bytes_out'])}"
    return f"{one['directory']}: compacted, {one['records_in']} to {one['records_out']} records, {sizes}"
