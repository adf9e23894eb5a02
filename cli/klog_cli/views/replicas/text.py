"""The results of `klog replicas diff`, in words, pictures and a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klog.base.errors import counted
from klog.cluster.election import ElectionReason
from klog.commands.replicas.copy_state import CopyState
from klog.commands.replicas.diff import Outcome, PartitionDiff, Verdict

from klog_cli import output
from klog_cli.style import bad, faint, good, strong, warning
from klog_cli.views.replicas.advice import name

COLUMNS = ("partition", "node", "offsets", "epoch", "only here", "lost if it leads", "leads")
_WIDEST_PICTURE = 56
_NARROWEST_PICTURE = 16
_REASONS = {
    ElectionReason.ELR: "elr: an eligible leader replica, which the controller elects if no replica of the ISR is back",
    ElectionReason.UNCLEAN: "unclean: the topic allows a leader outside the ISR, which may lack committed records",
}
_BAD = (Verdict.INCOMPARABLE, Verdict.DAMAGED, Verdict.DIVERGED, Verdict.MISSING)


def section(diff: PartitionDiff, width: int) -> Iterator[str]:
    """Yield the verdict about a partition, its branches on a screen of *width* columns, and the remarks."""
    mark = bad if diff.verdict in _BAD else warning if not diff.is_safe or diff.verdict is Verdict.BEHIND else good
    parts = [f"{strong(name(diff))}: {mark(diff.verdict.value)}", f"equal in all copies: {common(diff)}", leads(diff)]
    yield "; ".join(part for part in parts if part)
    yield from (f"  {line}" for line in picture(diff, width - 2))
    yield from (f"  {warning('!')} {remark}" for remark in remarks(diff))
    if diff.what_if is not None:
        yield from (f"  {outcome_line(diff, outcome)}" for outcome in diff.what_if.outcomes)


def rows(diff: PartitionDiff) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each copy of a partition, in the order of COLUMNS."""
    for node in sorted({*diff.copies, *diff.missing}):
        leads = "yes" if node == diff.leader else ""
        yield strong(name(diff)), str(node), *_copy_cells(diff.copies.get(node)), _loss(diff, node), leads


def _copy_cells(copy: CopyState | None) -> tuple[str, str, str]:
    if copy is None:
        return bad("none"), "", ""
    offsets = output.range_text(copy.log_start, copy.log_end - 1) if copy.log_end > copy.log_start else "empty"
    only_here = copy.facts.only_here.count if copy.facts is not None else 0
    return offsets, f"e{copy.last_epoch}" if copy.last_epoch >= 0 else "", str(only_here or "")


def _loss(diff: PartitionDiff, node: int) -> str:
    lost = diff.lost_if_leads.get(node)
    if lost is None or diff.verdict is Verdict.INCOMPARABLE:
        return "?"
    return bad(counted(lost.records, "record")) if lost.records else good("nothing")


def legend(diffs: Sequence[PartitionDiff]) -> list[str]:
    """Return the meaning of the abbreviations that the table and the sections use."""
    used = {outcome.because for diff in diffs for outcome in diff.all_back}
    found = ["e0: the last record has leader epoch 0"]
    return [faint(line) for line in (*found, *(text for reason, text in _REASONS.items() if reason in used))]


def common(diff: PartitionDiff) -> str:
    """Return the offsets that all copies have alike."""
    start = max((copy.log_start for copy in diff.copies.values()), default=0)
    return output.range_text(start, diff.common_prefix_end - 1) if diff.common_prefix_end > start else "none"


def leads(diff: PartitionDiff) -> str:
    """Return who leads once all are back, why, and the loss."""
    if diff.leader is None or diff.because is None or diff.verdict is Verdict.INCOMPARABLE:
        most = max((one.records for one in diff.lost_if_leads.values()), default=0)
        is_known = diff.because is not None and diff.leader is None and len(diff.all_back) < 2
        who = "nobody leads" if is_known else "it is not known who leads"
        return f"{who}: {bad('up to ' + counted(most, 'record') + ' lost')}" if most else who
    records = diff.lost_if_leads[diff.leader].records
    lost = bad(f"{counted(records, 'record')} lost") if records else good("nothing lost")
    return f"node {diff.leader} leads ({diff.because.value}): {lost}"


def remarks(diff: PartitionDiff) -> Iterator[str]:
    """Yield the remarks about a partition besides its line."""
    if diff.problem is not None:
        yield diff.problem
    if diff.is_unregistered:
        yield "the metadata log does not know this partition: it is not known who leads"
    others = [outcome for outcome in diff.all_back if outcome.leader != diff.leader]
    costly = " or ".join(str(outcome.leader) for outcome in others if outcome.lost.records)
    if costly and diff.unclean:
        yield f"unclean election is on: the node that registers first leads, even if it is {costly}"
    elif costly:
        yield f"brokers and controller went down together: any member of the ISR may lead, even {costly}"
    if not diff.trusts_epochs:
        yield (
            "leader epochs and batches do not agree where the copies part: trust neither, "
            "the epochs or the files were changed by hand"
        )
    for node, copy in diff.copies.items():
        if copy.directory_known is False:
            yield f"{node} has another log dir than the assignment names: it cannot lead before it has reported that"
        if copy.hides_from is not None:
            start, since = copy.log_start, copy.hides_from
            yield f"{node} begins at {start}, and its leader epochs at {since}: the records between are not served"
        elif copy.lost_head is not None:
            unknown = "" if diff.knows_settings else "; the topic's settings are not known"
            since, end = copy.lost_head
            yield f"{node} begins at {end}, and nothing explains that it has no records from {since} on{unknown}"
        if diff.registration is not None and node not in diff.registration.replicas:
            yield f"{node} is no replica: it never leads, and sets its copy aside when it starts"
        if copy.misleads is not None:
            yield f"{node} serves with a wrong index, if it leads: {copy.misleads}"
        if copy.kept.aside is not None:
            yield f"{node} sets its copy aside when it starts, and begins with an empty log: {copy.kept.aside}"
        if copy.kept.fails is not None:
            yield f"{node} does not start with this copy: {copy.kept.fails}"
        if copy.is_cut:
            yield f"{node} truncates its log at {copy.log_end} when it starts, and removes what is behind that"
        if copy.facts is not None and copy.facts.bad_batches:
            first = ", ".join(map(str, copy.facts.bad_batches[:5]))
            yield f"{node} has batches whose checksums do not match, at offset {first}"
        if copy.open_transactions and diff.verdict is Verdict.DIVERGED:
            yield f"{node} has {counted(copy.open_transactions, 'open transaction')} at its end"
    for node in diff.not_given:
        ids = " or ".join(diff.absent_log_dirs.get(node, ()))
        what = f"its log dir with directory.id={ids}" if ids else "its disk"
        yield f"{node} is a replica, but {what} is not given: its copy may lead, and is not compared"


def picture(diff: PartitionDiff, width: int) -> list[str]:
    """Return the branches of diverging copies, a line each of at most *width* columns; none without a divergence."""
    if diff.verdict is not Verdict.DIVERGED:
        return []
    start = min(copy.log_start for copy in diff.copies.values())
    fork = diff.common_prefix_end
    span = max(max(copy.log_end for copy in diff.copies.values()) - start, 1)
    names = {node: f"{copy.log_end}  node {node}{_epochs(copy)}" for node, copy in diff.copies.items()}
    beside = len(f"{start}  {fork} +> ") + max(map(len, names.values()))
    room = max(_NARROWEST_PICTURE, min(_WIDEST_PICTURE, width - beside))
    trunk = max(1, (fork - start) * room // span)
    stem = f"{start} {'-' * trunk} {fork} "
    lines = []
    for number, (node, copy) in enumerate(diff.copies.items()):
        length = max(0, (copy.log_end - start) * room // span - trunk)
        arrow = f"+{'-' * length}>" if copy.log_end > fork else "+"
        mark = good if node == diff.leader else bad if diff.leader is not None and copy.log_end > fork else str
        lines.append((stem if number == 0 else " " * len(stem)) + mark(f"{arrow} {names[node]}"))
    return lines


def _epochs(copy: CopyState) -> str:
    epochs = ", ".join(f"e{run.epoch}" for run in copy.facts.epochs[-2:]) if copy.facts is not None else ""
    return f" ({epochs})" if epochs else ""


def outcome_line(diff: PartitionDiff, outcome: Outcome) -> str:
    """Return an outcome of an election in a line."""
    if outcome.leader is None:
        return "nobody leads: no copy is changed"
    ends = {node: diff.copies[node].log_end for node in outcome.cuts}
    cuts = ", ".join(f"node {node}: {ends[node]} → {to}" for node, to in outcome.cuts.items() if to < ends[node])
    leader = f"node {outcome.leader} leads ({outcome.because.value}), log end {outcome.log_end}"
    records = outcome.lost.records
    lost = bad(f"{counted(records, 'record')} lost") if records else good("nothing lost")
    return f"{leader}; {f'truncated: {cuts}; ' if cuts else ''}{lost}"
