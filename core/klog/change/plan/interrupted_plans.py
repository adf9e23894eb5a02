"""Finishes the plans of a log dir that were interrupted, by a kill or a power cut, before another plan is made.

Without locks they are only reported.  The partitions of a plan that cannot be finished are left out of the next one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING

from klog.base.errors import KlogError
from klog.change.plan.find_plans import StoredPlan, plans_of
from klog.change.plan.model import StaleError
from klog.change.plan.plan_status import is_unfinished, obstacle, sweep
from klog.change.plan.reporter import Reporter
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.selection import Selection

if TYPE_CHECKING:
    from klog.data_dir.locks import Locks


def finish_interrupted(
    log_dirs: Sequence[str], now_ms: int, disk: Disk, locks: Locks | None, reporter: Reporter
) -> dict[str, str]:
    """Finish the plans that were interrupted in *log_dirs*; without *locks* only report them.

    Returns the partitions, by their real paths, in which one cannot be finished, with the next step for each.
    """
    found = [kept for log_dir in log_dirs for kept in plans_of(log_dir)]
    # A log dir that a plan did not change after all may still have its leftovers.
    plans = {kept.plan.id: kept for kept in sorted(found, key=lambda kept: bool(kept.plan.actions))}
    if locks is not None:
        for plan in sweep(plans.values(), disk):
            reporter.note(f"{plan.id} was interrupted while it was being made; what it left is removed")
    blocked: dict[str, str] = {}
    for kept in filter(lambda kept: is_unfinished(kept.plan), plans.values()):
        why = _finish(kept, now_ms, disk, locks, reporter)
        if why is not None:
            blocked.update((os.path.realpath(path), why) for path in kept.plan.partitions())
    return blocked


def _finish(kept: StoredPlan, now_ms: int, disk: Disk, locks: Locks | None, reporter: Reporter) -> str | None:
    """Finish one plan; return in words the reason why it cannot be finished, None if it does not block other plans."""
    path = obstacle(kept.plan)
    if path is not None:
        from klog.change.plan.undo import exit_hint

        why = exit_hint(kept.plan, path, now_ms)
        if why is None:
            reporter.note(
                f"{kept.plan.id} was half done when its directories were used: what it kept is in {kept.backup}"
            )
        return why
    if locks is None:
        reporter.note(f"{kept.plan.id} is half done: with --apply it is finished first")
        return None
    if not locks.hold(kept.plan.locked):
        return f"{kept.plan.id} is half done, in other log dirs too; first: klog apply {quote(kept.backup)}"
    from klog.change.plan.executor import carry_out

    reporter.note(f"finishing {kept.plan.id}, which was interrupted")
    try:
        carry_out(kept.plan, disk, locks, reporter)
    except KlogError as error:
        return str(error)
    return None


def without_blocked(selections: Sequence[Selection], blocked: Mapping[str, str]) -> tuple[list[Selection], list[str]]:
    """Return *selections* without the partitions that are *blocked*, and the reasons that apply.

    Raises StaleError when nothing is left.
    """
    reasons: dict[str, None] = {}
    left = []
    for one in selections:
        why = {part.path: blocked.get(os.path.realpath(part.path)) for part in one.partitions}
        reasons.update(dict.fromkeys(reason for reason in why.values() if reason is not None))
        partitions = [part for part in one.partitions if why[part.path] is None]
        left.append(one._replace(partitions=partitions, whole=one.whole and len(partitions) == len(one.partitions)))
    if reasons and not any(one.partitions for one in left):
        raise StaleError("; ".join(reasons))
    return left, list(reasons)
