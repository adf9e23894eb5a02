"""Leaves out of a plan the log dirs that it does not change, and numbers the others anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klog.change.plan.draft import staged_beside, staging_of
from klog.change.plan.model import Plan
from klog.data_dir.disk.directory_tree import remove_tree
from klog.data_dir.disk.disk import Disk


def of_copies(copies: Iterable[Mapping[str, object]], plan: Plan, plan_file: str | None, disk: Disk) -> Plan:
    """Return *plan*, which makes *copies* (as JSON has them) equal, without the log dirs that it does not need.

    Those that it only reads are in `reads`.  Files staged beside *plan_file* are moved to the new numbers of the log
    dirs.  Raises OSError.
    """
    changed = sorted({action.log_dir for action in plan.actions})
    read = sorted({guard.log_dir for guard in plan.guards} - {*changed})
    new = {old: number for number, old in enumerate([*changed, *read])}
    separated = plan._replace(
        copies=tuple(copies),
        log_dirs=tuple(plan.log_dirs[old] for old in changed),
        reads=tuple(plan.log_dirs[old] for old in read),
        backups=tuple(plan.backups[old] for old in changed),
        staging=tuple(plan.staging[old] for old in changed) if plan.staging else (),
        actions=tuple(one._replace(log_dir=new[one.log_dir]) for one in plan.actions),
        guards=tuple(one._replace(log_dir=new[one.log_dir]) for one in plan.guards),
        cuts=tuple(one._replace(log_dir=new[one.log_dir]) for one in plan.cuts),
        no_lock=tuple(new[old] for old in plan.no_lock if old in changed),
        directory_times={(new[old], inside): time for (old, inside), time in plan.directory_times.items()},
        new_directories=tuple((new[old], inside) for old, inside in plan.new_directories),
    )
    return separated if plan_file is None else _renumber_staged(separated, plan_file, disk)


def _renumber_staged(plan: Plan, plan_file: str, disk: Disk) -> Plan:
    if not plan.staging:
        return plan
    moved = []
    for old, new in zip(plan.staging, staging_of(staged_beside(plan_file), plan.log_dirs), strict=True):
        if old and old != new:
            remove_tree(new, disk)  # of a log dir in which nothing changes after all
            disk.rename(old, new)
        moved.append(new if old else "")
    return plan._replace(staging=tuple(moved))
