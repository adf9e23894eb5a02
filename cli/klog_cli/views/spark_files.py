"""What `klog spark search`, `export` and `compact` do: a session around the library, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klog.data_dir.partition import Partition
from klog.data_dir.replicas import choose_replicas, find_partitions
from klog.data_dir.selection import PartitionQuery, select
from klog.jobs.compact import CompactJobOptions
from klog.jobs.export import ExportOptions
from klog.jobs.output import Facts
from klog.jobs.search import SearchQuery
from klog.metadata.topic_config import topic_configs
from klog.spark.session import session
from klog.transactions.isolation import Isolation

from klog_cli import output
from klog_cli.views.spark import Where

_PROBLEMS_LEFT = 4


class FileSelection(NamedTuple):
    """Which partitions, and which replica of each."""

    paths: Sequence[str]
    topics: Sequence[str]
    numbers: Sequence[int]
    replicas: str = "longest"

    def partitions(self) -> list[Partition]:
        """Return them.  Raises UsageError, UnreadableError."""
        found = find_partitions(self.paths)
        wanted = select(found, self.topics, self.numbers) if self.topics or self.numbers else found
        return choose_replicas(wanted, self.replicas)


def search(chosen: FileSelection, query: SearchQuery, isolation: Isolation, where: Where) -> int:
    """Print the records that *query* asks for and return the exit code."""
    from klog.spark.search import search as run

    partitions = chosen.partitions()
    code = 0
    with output.Results() as results, session(where.master, where.conf, where.ship, brief=True) as ours:
        for answer in run(ours.spark, partitions, query, isolation, results):
            if answer.kind == "lines":
                results.write(answer.content)
            else:
                results.report(output.printable(answer.facts["message"]))
                code = _PROBLEMS_LEFT
    return code


def export(chosen: FileSelection, to: str, options: ExportOptions, isolation: Isolation, where: Where) -> int:
    """Write the records as files, and return the exit code."""
    from klog.spark.export import export as run

    partitions = chosen.partitions()
    with output.Results() as results, session(where.master, where.conf, where.ship, brief=True) as ours:
        manifest = run(ours.spark, partitions, to, options, isolation, results)
    return _told(manifest, to)


def latest(chosen: FileSelection, to: str, options: ExportOptions, where: Where) -> int:
    """Write the last value of each key as files, and return the exit code."""
    from klog.spark.export import latest as run

    partitions = chosen.partitions()
    with output.Results() as results, session(where.master, where.conf, where.ship, brief=True) as ours:
        manifest = run(ours.spark, partitions, to, options, results)
    return _told(manifest, to)


def _told(manifest: Facts, to: str) -> int:
    """Say what was written, and what could not be read."""
    for one in manifest["damage"]:
        output.plain(output.printable(one["message"]))
    files: list[Facts] = manifest["files"]
    size = output.human_size(sum(one["bytes"] for one in files))
    records, several = manifest["records"], "" if len(files) == 1 else "s"
    output.text(output.printable(f"{records} records in {len(files)} file{several}, {size}: {to}") + "\n")
    return _PROBLEMS_LEFT if manifest["damage"] else 0


def compact(
    chosen: FileSelection,
    metadata: str | None,
    settings: Mapping[str, str],
    wishes: CompactJobOptions,
    to: str,
    where: Where,
) -> int:
    """Write compacted partitions as a new log dir, and return the exit code."""
    from klog.spark.compact import compact as run

    from klog_cli.views.compact import exit_code, say

    found = PartitionQuery(chosen.paths, chosen.topics, chosen.numbers).selections()
    topics = topic_configs([one.log_dir for one in found], settings, metadata)
    with output.Results() as results, session(where.master, where.conf, where.ship, brief=True) as ours:
        facts, outcomes = run(ours.spark, found, topics, to, wishes, results)
    for one in facts:
        if one["result"] in ("compacted", "copied"):
            output.text(output.printable(_line(one)) + "\n")
    is_narrow = not all(one.whole for one in found)
    say(outcomes, topics, is_narrow)
    return exit_code(outcomes, is_narrow)


def _line(one: Facts) -> str:
    if one["result"] == "copied":
        return f"{one['directory']}: as it is, {one['reason']}"
    sizes = f"{output.human_size(one['bytes_in'])} to {output.human_size(one['bytes_out'])}"
    return f"{one['directory']}: compacted, {one['records_in']} to {one['records_out']} records, {sizes}"
