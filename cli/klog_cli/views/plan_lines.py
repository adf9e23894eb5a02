"""Changes of files, in words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from klog.base.errors import counted
from klog.change.plan.model import APPEND, PUT, REMOVE, TRUNCATE, Action, FileState, Plan

from klog_cli import output

MOST_LINES = 20
"""The most lines about one partition in text; JSON has all of them."""


def changes(count: int) -> str:
    """Return *count* as changes of files, in words."""
    return counted(count, "change")


def first_lines(lines: Sequence[str], what: str) -> list[str]:
    """Return as many *lines* as a person reads, and the number of further *what*."""
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], *([f"and {more} more {what}"] if more > 0 else [])]


def make_indexes(actions: Sequence[Action]) -> bool:
    """Whether an index is rebuilt, so that the settings it was built with are reported."""
    return any(action.do == PUT and action.file.endswith((".index", ".timeindex")) for action in actions)


def action_lines(plan: Plan, actions: Sequence[Action], *, in_partition: bool = False) -> Iterator[str]:
    """Yield, for people, lines for *actions* of *plan*: logs first, other files of a segment together.

    *in_partition*: all of them are about one, which has been named; only so many lines then.
    """
    groups = sorted(_groups(actions), key=lambda group: not group[0].file.endswith(".log"))
    shown = groups[:MOST_LINES] if in_partition else groups
    for group in shown:
        first, *others = group
        where = f"{plan.log_dirs[first.log_dir]}/" if len(plan.log_dirs) > 1 else ""
        name = os.path.basename(first.file) if in_partition else f"{where}{first.file}"
        more = "".join(f" {os.path.splitext(other.file)[1]}" for other in others)
        yield output.printable(f"{_what(first)} {name}{more}{_sizes(group)}")
    left = sum(len(group) for group in groups[len(shown) :])
    if left:
        yield f"and {left} more changes"


def _groups(actions: Sequence[Action]) -> list[list[Action]]:
    """Group the files of one segment that change in the same way; a log that is kept is a group of its own."""
    groups: dict[tuple[int, str, str], list[Action]] = {}
    for action in actions:
        stem, kind = os.path.splitext(action.file)
        is_alone = not kind or (kind == ".log" and action.do != REMOVE)
        groups.setdefault((action.log_dir, _what(action), action.file if is_alone else stem), []).append(action)
    return list(groups.values())


def _what(action: Action) -> str:
    if action.do == PUT:
        return "create  " if action.before is None else "replace "
    if action.do == APPEND:
        return "append to"
    return "cut     " if action.do == TRUNCATE else "remove  "


def _sizes(group: Sequence[Action]) -> str:
    before, after = _size([action.before for action in group]), _size([action.after for action in group])
    return f" ({before} → {after})" if before and after else f" ({before or after})"


def _size(states: Sequence[FileState | None]) -> str:
    sizes = [state.size for state in states if state is not None]
    return output.human_size(sum(sizes)) if sizes else ""
