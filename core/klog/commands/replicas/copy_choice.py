"""The copy of a partition that is kept when its copies are made equal, or why none is, and the records that it lacks.

Lost records are written as JSON lines, with their holders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from shlex import quote
from typing import Final, NamedTuple

from klog.base.errors import UsageError
from klog.commands.replicas.batch_comparison import HeldRecord, LostRecordSink
from klog.commands.replicas.copy_state import CopyState
from klog.commands.replicas.diff import PartitionDiff, ReplicaDiffer, Verdict
from klog.commands.replicas.disks import BrokerCopies
from klog.log.json_lines import RecordOrigin

NEWEST: Final = "newest"
LONGEST: Final = "longest"
KAFKA: Final = "kafka"
NO_COMPLETE_COPY: Final = "no copy has all records: --keep or --choose"


class CopyChoice(NamedTuple):
    """The copies to keep.

    *keep*: NEWEST, LONGEST, KAFKA or a node's id, None to fill up incomplete copies only.  *chosen*: nodes by topic and
    partition; they have precedence.  *repairs*: bad batches are replaced by intact ones of other copies.
    """

    keep: str | int | None = None
    chosen: Mapping[tuple[str, int], int] = {}
    repairs: bool = False

    def explicit(self, diff: PartitionDiff) -> int | None:
        """Return the node that is chosen for this very partition."""
        return self.chosen.get((diff.topic, diff.number))


class LeftPartition(NamedTuple):
    """A partition whose copies are unchanged, and why.  *is_unreadable*: something of them could not be read."""

    diff: PartitionDiff
    reason: str
    is_unreadable: bool = False


def kept_copy(diff: PartitionDiff, choice: CopyChoice) -> int | LeftPartition:
    """Return the node whose copy is kept, which may have none, or why nothing is done.

    Raises UsageError for a chosen node that is no replica.
    """
    if diff.problem is not None or diff.verdict is Verdict.INCOMPARABLE:
        return LeftPartition(diff, diff.problem or "the copies cannot be compared", diff.problem is not None)
    aside = next((copy for copy in diff.copies.values() if copy.kept.aside is not None), None)
    if aside is not None:
        first = f"first: klog doctor {quote(aside.disk_copy.disk.log_dir.path)}"
        return LeftPartition(diff, f"node {aside.node} sets its copy aside when it starts: {aside.kept.aside}; {first}")
    if diff.verdict is Verdict.DAMAGED and not choice.repairs:
        return LeftPartition(diff, f"{_bad_batches(diff)}; --repair takes intact batches from other copies")
    explicit = choice.explicit(diff)
    if explicit is not None:
        if explicit not in diff.lost_if_leads:
            raise UsageError(
                f"--choose {diff.topic}-{diff.number}={explicit}: node {explicit} has no copy and is no replica"
            )
        return explicit
    node = _by_policy(diff, choice)
    if isinstance(node, int) and not _has_batches(diff, node) and any(_has_batches(diff, one) for one in diff.copies):
        asked = f"--choose {diff.topic}-{diff.number}={node}"
        return LeftPartition(diff, f"the copy on {node} is empty or missing, and others have records: {asked} keeps it")
    return node


def _by_policy(diff: PartitionDiff, choice: CopyChoice) -> int | LeftPartition:
    if choice.keep is None:
        return _complete(diff, choice.repairs)
    if choice.keep == NEWEST:
        return _greatest(diff, lambda copy: (copy.last_epoch, copy.log_end))
    if choice.keep == LONGEST:
        return _greatest(diff, lambda copy: (copy.log_end,))
    if choice.keep == KAFKA:
        return _elected(diff)
    assert isinstance(choice.keep, int)
    if choice.keep not in diff.lost_if_leads:
        return LeftPartition(diff, f"node {choice.keep} has no copy and is no replica")
    return choice.keep


def _complete(diff: PartitionDiff, repairs: bool) -> int | LeftPartition:
    """Return the node whose copy lacks nothing; *repairs*: or will perhaps lack nothing once it is repaired."""
    if diff.verdict is Verdict.DIVERGED:
        return LeftPartition(diff, f"the copies diverge at offset {diff.common_prefix_end}: --keep or --choose")
    complete = [
        copy for node, copy in diff.copies.items() if not diff.lost_if_leads[node].records and not _is_bad(copy)
    ]
    if not complete and repairs:
        complete = [copy for copy in diff.copies.values() if _is_bad(copy) and copy.lost_head is None]
    if not complete:
        return LeftPartition(diff, NO_COMPLETE_COPY)
    return max(complete, key=lambda copy: (copy.log_end, -copy.log_start, -copy.node)).node


def _greatest(diff: PartitionDiff, key: Callable[[CopyState], tuple[int, ...]]) -> int | LeftPartition:
    if not diff.copies:
        return LeftPartition(diff, "there is no copy")
    most = max(key(copy) for copy in diff.copies.values())
    best = [copy for copy in diff.copies.values() if key(copy) == most]
    for copy in best[1:]:
        if copy.first_difference[best[0].node] < min(copy.log_end, best[0].log_end):
            nodes = ", ".join(str(one.node) for one in best)
            return LeftPartition(diff, f"the copies on {nodes} are equal in that, but differ: --choose")
    return min(best, key=lambda copy: (_is_bad(copy), copy.lost_head is not None, copy.log_start, copy.node)).node


def _elected(diff: PartitionDiff) -> int | LeftPartition:
    if not diff.trusts_epochs:
        return LeftPartition(
            diff, "leader epochs and batches do not agree where the copies diverge: neither can be trusted"
        )
    if diff.registration is None:
        return LeftPartition(diff, "the leader is unknown without a metadata log")
    leaders = {outcome.leader for outcome in diff.all_back}
    if len(leaders) > 1:
        some = ", ".join("nobody" if leader is None else str(leader) for leader in leaders)
        return LeftPartition(diff, f"several nodes may become leader ({some}): --choose")
    if diff.leader is None:
        return LeftPartition(diff, "no node leads")
    return diff.leader


def _has_batches(diff: PartitionDiff, node: int) -> bool:
    copy = diff.copies.get(node)
    return copy is not None and copy.facts is not None and copy.facts.batches > 0


def _is_bad(copy: CopyState) -> bool:
    return copy.facts is not None and bool(copy.facts.bad_batches)


def _bad_batches(diff: PartitionDiff) -> str:
    bad = [
        f"node {node} at offset {copy.facts.bad_batches[0]}"
        for node, copy in diff.copies.items()
        if copy.facts is not None and copy.facts.bad_batches
    ]
    return f"bad batches on {', '.join(bad)}"


Write = Callable[[bytes], object]


class PartitionRescue:
    """Writes the records of a partition that would be lost if *leader* led, in the order of offsets, then of holders.

    `committed`: whether it lies below the highest high watermark of any copy on disk, null without one.
    """

    def __init__(self, differ: ReplicaDiffer, write: Write) -> None:
        self._differ, self._write = differ, write
        self.too_large: list[tuple[str, int, int]] = []
        """Topic, partition and offset of records that are not written, because their lines would be too large."""

    def rescue(self, found: BrokerCopies, leader: int) -> PartitionDiff:
        """Write the lines; return the result of the comparison."""
        known = [copy.partition.high_watermark for copy in found.copies.values()]
        watermark = max((one for one in known if one is not None), default=None)
        waiting: list[tuple[int, HeldRecord]] = []

        def flush() -> None:
            for offset, held in sorted(waiting, key=lambda one: sorted(one[1].nodes)):
                if held.line:
                    self._write(_finished(offset, held, watermark))
                else:
                    self.too_large.append((found.topic, found.number, offset))
            waiting.clear()

        def take(offset: int, held: HeldRecord) -> None:
            if waiting and waiting[-1][0] != offset:
                flush()
            waiting.append((offset, held))

        origin = RecordOrigin("", found.topic, found.number).json()
        diff = self._differ.diff(found, LostRecordSink(leader, origin, take))
        flush()
        return diff


def _finished(offset: int, held: HeldRecord, watermark: int | None) -> bytes:
    """Return the line with who holds the record."""
    committed = "null" if watermark is None else "true" if offset < watermark else "false"
    nodes = json.dumps(sorted(held.nodes), separators=(",", ":"))
    return held.line.rstrip().removesuffix(b"}") + f',"committed":{committed},"held_by":{nodes}}}\n'.encode()
