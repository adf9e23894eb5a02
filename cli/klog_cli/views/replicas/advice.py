"""The advice for partitions whose copies differ: the text and the JSON of `klog replicas` agree."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from shlex import quote

from klog.base.errors import counted
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.replicas.diff import PartitionDiff, Verdict
from klog.commands.replicas.disks import BrokerCopies, MetadataLog
from klog.partition.start.metadata_behind import lag_behind

from klog_cli.style import bad, command, good, warning

_MOST_NAMES = 10
_DANGEROUS = (Verdict.INCOMPARABLE, Verdict.DAMAGED, Verdict.DIVERGED, Verdict.MISSING)


def behind_logs(metadata: MetadataLog | None, found: Iterable[BrokerCopies]) -> list[str]:
    """Return the note that the metadata log is behind the copies, with advice; nothing if it is not."""
    if metadata is None:
        return []
    held = (copy.partition for one in found for copy in one.copies.values())
    lag = lag_behind(metadata.state, held, int(time.time() * 1000))
    path = os.path.join(metadata.path, "__cluster_metadata-0")
    help_text = "klog metadata compare shows a newer one, klog metadata plan appends what is missing"
    return [f"{path} is behind the logs: {lag.description}; {help_text}"] if lag else []


def unknown_partitions(metadata: MetadataLog | None, found: Iterable[BrokerCopies]) -> list[str]:
    """Return the note that the metadata log does not have some of the partitions; nothing if it has all."""
    if metadata is None:
        return []
    unknown = [f"{one.topic}-{one.number}" for one in found if not _is_known(one, metadata.state)]
    if not unknown:
        return []
    path = os.path.join(metadata.path, "__cluster_metadata-0")
    more = f" and {len(unknown) - _MOST_NAMES} more" if len(unknown) > _MOST_NAMES else ""
    return [
        f"{path} does not have {', '.join(unknown[:_MOST_NAMES])}{more}: its brokers set their copies aside when they"
        " start; deleted, or created after its end"
    ]


def _is_known(found: BrokerCopies, state: ClusterMetadata) -> bool:
    """Whether the metadata log has the partition of a copy."""
    ids = {copy.partition.topic_id for copy in found.copies.values()}
    return state.partition(found.topic, found.number) is not None and bool(ids & {None, state.topic_ids[found.topic]})


def name(diff: PartitionDiff) -> str:
    """Return TOPIC-N."""
    return f"{diff.topic}-{diff.number}"


def advice(diff: PartitionDiff, given: Sequence[str]) -> list[str]:
    """Return the advice for a partition, the harmless first."""
    found = []
    losing = diff.losing
    safe = [node for node, lost in diff.lost_if_leads.items() if not lost.records]
    found += [
        f"a log start above the leader epochs hides records: klog doctor {quote(log_dir)}"
        for log_dir in _hiding([diff])
    ]
    if any(copy.lost_head for copy in diff.copies.values()):
        found.append(
            "a copy without its first records removes them in the others as soon as it leads, at any time: fill it up,"
            f" klog replicas plan {disk_list(given)} --topic {quote(diff.topic)}"
        )
    elif diff.verdict in (Verdict.BEHIND, Verdict.MISSING) and losing and safe:
        first, then = (",".join(map(str, sorted(nodes))) for nodes in (safe, losing))
        elect = "" if diff.leader in safe else f", elect a leader for {name(diff)} by an unclean election"
        found.append(f"start {first}{elect}, then {then}: nothing is lost")
        found.append(f"or fill the copies up: klog replicas plan {disk_list(given)} --topic {quote(diff.topic)}")
    if diff.verdict is Verdict.DIVERGED:
        found.append("no start order keeps all records: save those of the losing branches first (klog replicas rescue)")
    if diff.verdict is Verdict.DAMAGED:
        found.append("a broker does not notice a bad batch at a clean start: see klog verify, klog recover")
    cut = [quote(copy.partition.path) for copy in diff.copies.values() if copy.is_cut]
    if cut:
        found.append(f"what a start removes behind damage is kept by: klog recover {' '.join(cut)} --salvage")
    if diff.verdict is Verdict.INCOMPARABLE:
        found.append("these directories are not compared: move away what does not belong to the cluster")
    return found


def _hiding(diffs: Sequence[PartitionDiff]) -> list[str]:
    """Return the log dirs with a log start that hides records."""
    copies = [copy for diff in diffs for copy in diff.copies.values() if copy.hides_from is not None]
    return list(dict.fromkeys(copy.disk_copy.disk.log_dir.path for copy in copies))


def disk_list(given: Sequence[str]) -> str:
    """Return the disks in the form of the command line."""
    return " ".join(map(quote, given))


def summary(diffs: Sequence[PartitionDiff], given: Sequence[str]) -> list[str]:
    """Return the verdict about all partitions, and below it the commands to type next."""
    if all(diff.verdict is Verdict.SAME and diff.is_safe for diff in diffs):
        return [good(f"{counted(len(diffs), 'partition')}, all copies equal")]
    mark, ending, steps = _next(diffs, given)
    found = [mark(f"{_verdicts(diffs)}: {ending}")]
    for word, step, shell in zip(("next", "then"), *zip(*steps, strict=True), strict=False) if steps else ():
        found += [f"{word}: {step}", f"  {command(shell)}"]
    return found


def _verdicts(diffs: Sequence[PartitionDiff]) -> str:
    """Return the number of partitions of each verdict, as a sentence."""
    counts = {verdict: sum(diff.verdict is verdict for diff in diffs) for verdict in Verdict}
    found = [f"{count} {_VERBS[verdict][count != 1]}" for verdict, count in counts.items() if count]
    number, _, rest = found[0].partition(" ")
    return ", ".join([f"{counted(int(number), 'partition')} {rest}", *found[1:]])


_VERBS = {
    Verdict.INCOMPARABLE: ("cannot be compared", "cannot be compared"),
    Verdict.DAMAGED: ("has damaged copies", "have damaged copies"),
    Verdict.DIVERGED: ("diverges", "diverge"),
    Verdict.MISSING: ("lacks copies", "lack copies"),
    Verdict.BEHIND: ("has copies that are behind", "have copies that are behind"),
    Verdict.SAME: ("has equal copies", "have equal copies"),
}


def _next(
    diffs: Sequence[PartitionDiff], given: Sequence[str]
) -> tuple[Callable[[str], str], str, list[tuple[str, str]]]:
    """Return the colour and the end of the verdict, and the next steps, each with its command."""
    aside = [copy for diff in diffs for copy in diff.copies.values() if copy.kept.aside is not None]
    if aside:
        log_dirs = list(dict.fromkeys(copy.disk_copy.disk.log_dir.path for copy in aside))[:2]
        steps = [("see what makes it a copy again", f"klog doctor {quote(log_dir)}") for log_dir in log_dirs]
        return bad, "do not start these brokers yet", steps
    losing = [diff for diff in diffs if any(outcome.lost.records for outcome in diff.all_back)]
    disks = disk_list(given)
    leaders = [diff.leader for diff in diffs if diff.leader is not None and diff.verdict is Verdict.DIVERGED]
    plan = f"klog replicas plan {disks}"
    if leaders:
        most = max(set(leaders), key=leaders.count)
        rescue = f"klog replicas rescue {disks} --if-leads {most} --to lost.jsonl"
        steps = [(f"save the records that are lost if node {most} leads", rescue), ("choose the copies to keep", plan)]
        return bad, "do not start these brokers yet", steps
    if losing or any(diff.verdict in _DANGEROUS for diff in diffs):
        return bad, "do not start these brokers yet", [("make the copies equal", plan)]
    if any(diff.losing for diff in diffs):
        return warning, "the start order decides whether records are lost", [("make the copies equal", plan)]
    if hiding := _hiding(diffs):
        steps = [("see which log start hides them", f"klog doctor {quote(log_dir)}") for log_dir in hiding[:2]]
        return warning, "a log start hides records", steps
    wrong = [copy.partition.path for diff in diffs for copy in diff.copies.values() if copy.misleads is not None]
    if wrong:
        steps = [("rebuild the index", f"klog recover {quote(path)} --indexes-only") for path in wrong[:2]]
        return warning, "a leader skips records over a wrong index", steps
    if any(diff.not_given for diff in diffs):
        return warning, "whether records are lost is not known, because copies that may lead are not given", []
    return good, "nothing is lost, whoever leads", []
