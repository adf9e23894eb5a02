"""The results of `klog replicas diff`, in words and in pictures of at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klog.base.errors import counted
from klog.commands.replicas.diff import Outcome, PartitionDiff, Verdict

from klog_cli.views.replicas.advice import name

COLUMNS = ("partition", "verdict", "common", "copies", "leads", "would be lost")
_WIDTH = 56


def row(diff: PartitionDiff) -> tuple[str, ...]:
    """Return the cells of a partition, in the order of COLUMNS."""
    return name(diff), diff.verdict.value, common(diff), copies(diff), leads(diff), lost(diff)


def plain_table(diffs: Sequence[PartitionDiff], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table for pipes, below each row the remarks about the partition."""
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    indent = " " * (widths[0] + 2)
    for number, cells in enumerate((COLUMNS, *rows)):
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        if number:
            yield from (f"{indent}{line}" for line in below(diffs[number - 1]))


def below(diff: PartitionDiff, title: str = "") -> Iterator[str]:
    """Yield the lines below the row of a partition, the first one behind *title*."""
    lines = [*(f"! {remark}" for remark in remarks(diff)), *picture(diff)]
    if diff.what_if is not None:
        lines += [outcome_line(diff, outcome) for outcome in diff.what_if.outcomes]
    for number, line in enumerate(lines):
        yield f"{title}: {line}" if title and not number else f"{'  ' if title else ''}{line}"


def copies(diff: PartitionDiff) -> str:
    """Return the copies in a line: node, offsets, last epoch."""
    found = []
    for node, copy in diff.copies.items():
        offsets = f"{copy.log_start}..{copy.log_end - 1}" if copy.log_end > copy.log_start else "empty"
        bad = (
            f", {counted(len(copy.facts.bad_batches), 'bad batch', 'es')}"
            if copy.facts and copy.facts.bad_batches
            else ""
        )
        found.append(f"{node}: {offsets}{f' e{copy.last_epoch}' if copy.last_epoch >= 0 else ''}{bad}")
    found += [f"{node}: none" for node in diff.missing]
    return "  ".join(found)


def common(diff: PartitionDiff) -> str:
    """Return the offsets that all copies have alike."""
    start = max((copy.log_start for copy in diff.copies.values()), default=0)
    return f"{start}..{diff.common_prefix_end - 1}" if diff.common_prefix_end > start else "none"


def leads(diff: PartitionDiff) -> str:
    """Return who leads once all are back, and why."""
    if diff.because is None:
        return "?"
    if diff.leader is None:
        return "a race" if len(diff.all_back) > 1 else "nobody"
    return f"{diff.leader} ({diff.because.value})"


def lost(diff: PartitionDiff) -> str:
    """Return the loss if that one leads."""
    if diff.leader is None or diff.verdict is Verdict.INCOMPARABLE:
        most = max((one.records for one in diff.lost_if_leads.values()), default=0)
        return f"up to {counted(most, 'record')}" if most else ""
    records = diff.lost_if_leads[diff.leader].records
    if not records:
        return "nothing"
    only = [
        f"{copy.facts.only_here.count} only on {node}"
        for node, copy in diff.copies.items()
        if node != diff.leader and copy.facts is not None and copy.facts.only_here.count
    ]
    return counted(records, "record") + (f": {', '.join(only)}" if only else "")


def remarks(diff: PartitionDiff) -> Iterator[str]:
    """Yield the remarks about a partition besides its line."""
    if diff.problem is not None:
        yield diff.problem
    if diff.is_unregistered:
        yield "the metadata log does not know this partition: it is not known who leads"
    others = [outcome for outcome in diff.all_back if outcome.leader != diff.leader]
    costs = ", ".join(f"{outcome.leader} -> {outcome.lost.records} lost" for outcome in others if outcome.lost.records)
    if others and costs and diff.unclean:
        yield f"unclean election is on: whoever registers first may lead: {costs}"
    elif others and costs:
        yield f"brokers and controller went down together: any member of the ISR may lead: {costs}"
    if not diff.trusts_epochs:
        yield (
            "leader epochs and batches do not agree where the copies part: trust neither, "
            "the epochs or the files were changed by hand"
        )
    for node, copy in diff.copies.items():
        if copy.directory_known is False:
            yield f"{node} has another log dir than the assignment names: it cannot lead before it has reported that"
        if copy.lost_head is not None:
            unknown = "" if diff.knows_settings else "; the topic's settings are not known"
            since, end = copy.lost_head
            yield f"{node} begins at {end}, and nothing explains that it has no records from {since} on{unknown}"
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


def picture(diff: PartitionDiff) -> list[str]:
    """Return the branches of diverging copies, a line each; none without a divergence."""
    if diff.verdict is not Verdict.DIVERGED:
        return []
    start = min(copy.log_start for copy in diff.copies.values())
    end = max(copy.log_end for copy in diff.copies.values())
    span = max(end - start, 1)
    trunk = max(1, (diff.common_prefix_end - start) * _WIDTH // span)
    lines = []
    for number, (node, copy) in enumerate(diff.copies.items()):
        branch = max(0, (copy.log_end - start) * _WIDTH // span - trunk)
        stem = f"{start} {'-' * trunk} {diff.common_prefix_end} "
        indent = stem if number == 0 else " " * len(stem)
        ending = f"+{'-' * branch}> {copy.log_end}" if copy.log_end > diff.common_prefix_end else f"+ {copy.log_end}"
        epochs = ", ".join(f"e{run.epoch}" for run in copy.facts.epochs[-2:]) if copy.facts is not None else ""
        lines.append(f"{indent}{ending}  node {node}{f' ({epochs})' if epochs else ''}")
    return lines


def outcome_line(diff: PartitionDiff, outcome: Outcome) -> str:
    """Return an outcome of an election in a line."""
    if outcome.leader is None:
        return "nobody leads: no copy is changed"
    cuts = ", ".join(
        f"{node} to {offset}" for node, offset in outcome.cuts.items() if offset < diff.copies[node].log_end
    )
    ends = f"{outcome.leader} leads ({outcome.because.value}), log end {outcome.log_end}"
    records = outcome.lost.records
    return f"{ends}; {f'cut: {cuts}; ' if cuts else ''}{counted(records, 'record') if records else 'nothing'} lost"
