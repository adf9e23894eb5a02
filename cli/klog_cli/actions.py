"""What a plan changes, in words."""

from __future__ import annotations

from collections.abc import Iterator

from klog.plan import PUT, TRUNCATE, Action, Plan

from klog_cli import output


def changes(count: int) -> str:
    """Return *count* as changes of files, in words."""
    return f"{count} change{'s' if count != 1 else ''}"


def action_lines(plan: Plan) -> Iterator[str]:
    """Yield, for people, a line for each action of *plan*."""
    for action in plan.actions:
        yield output.printable(action_line(plan, action))


def action_line(plan: Plan, action: Action) -> str:
    """Return an action in words."""
    where = f"{plan.log_dirs[action.log_dir]}/" if len(plan.log_dirs) > 1 else ""
    return f"{_what(action)} {where}{action.file}{_sizes(action)}"


def _what(action: Action) -> str:
    if action.do == PUT:
        return "create  " if action.before is None else "replace "
    return "cut     " if action.do == TRUNCATE else "remove  "


def _sizes(action: Action) -> str:
    before, after = (state and output.human_size(state.size) for state in (action.before, action.after))
    return f" ({before} → {after})" if before and after else f" ({before or after})"
