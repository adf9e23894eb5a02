"""Changes of files, in words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from klog.base.errors import counted
from klog.change.plan.model import APPEND, PUT, REMOVE, TRUNCATE, Action, FileState, Plan

from klog_cli import output

MOST_LINES = 20
"""The most lines about one partition in text; JSON has all of them."""
_FEW = 3
"""The most segments with the same change that have a line each."""


def changes(count: int) -> str:
    """Return *count* as changes of files, in words."""
    return counted(count, "change")


def changed_files(plan: Plan) -> str:
    """Return the number of files that *plan* changes, in words; a file can change in several steps."""
    return counted(len({(action.log_dir, action.file) for action in plan.actions}), "file")


def first_lines(lines: Sequence[str], what: str) -> list[str]:
    """Return as many *lines* as a person reads, and the number of further *what*."""
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], *([f"and {more} more {what}"] if more > 0 else [])]


def make_indexes(actions: Sequence[Action]) -> bool:
    """Whether an index is rebuilt, so that the settings it was built with are reported."""
    return any(action.do == PUT and action.file.endswith((".index", ".timeindex")) for action in actions)


def action_lines(
    plan: Plan, actions: Sequence[Action], *, in_partition: bool = False, everything: bool = False
) -> Iterator[str]:
    """Yield, for people, lines for *actions* of *plan*: logs first, other files of a segment together.

    *in_partition*: all of them are about one, which has been named; only so many lines then.  *everything*: a line for
    each segment, however many change in the same way.
    """
    segments = sorted(_groups(_whole_changes(actions)), key=lambda group: not group[0].file.endswith(".log"))
    changed = [[one] for one in segments] if everything else _alike(segments)
    shown = changed[:MOST_LINES] if in_partition and not everything else changed
    for alike in shown:
        group = alike[0]
        where = f"{plan.log_dirs[group[0].log_dir]}/" if len(plan.log_dirs) > 1 else ""
        name = os.path.basename(group[0].file) if in_partition else f"{where}{group[0].file}"
        more = "".join(f" {os.path.splitext(other.file)[1]}" for other in group[1:])
        more += f" and {len(alike) - 1} more like it" if len(alike) > 1 else ""
        yield output.printable(f"{_what(group[0])} {name}{more}{_sizes([one for same in alike for one in same])}")
    left = sum(len(group) for alike in changed[len(shown) :] for group in alike)
    if left:
        yield f"and {left} more changes"


def _alike(segments: Sequence[list[Action]]) -> list[list[list[Action]]]:
    """Return the changes of *segments*: together those of a directory that are of the same kinds, if they are many."""
    found: dict[tuple[int, str, str, tuple[str, ...]], list[list[Action]]] = {}
    for group in segments:
        first = group[0]
        kinds = tuple(os.path.splitext(action.file)[1] for action in group)
        found.setdefault((first.log_dir, os.path.dirname(first.file), _what(first), kinds), []).append(group)
    return [part for same in found.values() for part in ([same] if len(same) > _FEW else [[one] for one in same])]


def _whole_changes(actions: Iterable[Action]) -> list[Action]:
    """Return one action for each file: a file that is cut and then replaced is replaced."""
    found: dict[tuple[int, str], Action] = {}
    for action in actions:
        known = found.get((action.log_dir, action.file))
        if known is not None:
            action = action._replace(do=REMOVE if action.after is None else PUT, before=known.before)
        found[action.log_dir, action.file] = action
    return list(found.values())


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
