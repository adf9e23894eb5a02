"""Undoes a plan with another plan: the inverse actions in reverse order, from the originals.

back = plan_undo(plan, now_ms)
stage_undo(plan, back, disk)
apply(back, disk, locks=locks)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from shlex import quote

from klog.base.read_only import names_if_there
from klog.change.plan.apply_checks import NoSpaceError, lack_of_space
from klog.change.plan.backup import drop_staged, end_plan, original_place, tail_place
from klog.change.plan.draft import iso_seconds, new_plan
from klog.change.plan.file_history import FileHistory, Original, differences, file_histories, is_above, locate_histories
from klog.change.plan.find_plans import begun, plans_of
from klog.change.plan.model import (
    APPEND,
    PUT,
    REMOVE,
    TRUNCATE,
    Action,
    FileState,
    Plan,
    StaleError,
    file_state,
    same_content,
    status_of,
)
from klog.change.plan.plan_rules import comes_back, final_name, is_transient
from klog.change.plan.plan_status import has_begun, may_stay, used_since
from klog.data_dir.disk.directory_tree import device_of, link_or_copy, make_directories
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.disk.refused_outputs import check_places
from klog.formats.names import FileKind


def plan_undo(plan: Plan, now_ms: int, backup: str | None = None, disk: Disk | None = None) -> Plan:
    """Return the plan that undoes *plan*, as far as it has been applied; without actions if it has not been.

    *backup*: the place of its own backup, as for any plan; None: beside the log dir, or beside the backup of *plan* if
    that is impossible.  Raises StaleError when its partitions or log dirs have been used since, when an original is
    missing, or when a later plan has marked a log dir as clean; PlanError for a forbidden backup; UnreadableError;
    NoSpaceError.
    """
    plan = begun(plan) or plan
    # Files that it only read may have been used since.
    plan = plan._replace(guards=tuple(one for one in plan.guards if one.log_dir < len(plan.log_dirs)), reads=())
    found = _located(plan)
    actions = tuple(_reversed(plan, found))
    used = _check_unused(plan, found) if actions else set()
    _check_originals(plan, found, actions)
    missing = {n for n, log_dir in enumerate(plan.log_dirs) if not os.path.lexists(os.path.join(log_dir, ".lock"))}
    touched = sorted(plan.directory_times) if actions else []
    name, backups = new_plan("undo", now_ms, plan.log_dirs, backup)
    back = Plan(
        name,
        iso_seconds(now_ms),
        f"klog undo {plan.id}",
        plan.log_dirs,
        backups,
        actions,
        no_lock=tuple(sorted(missing | set(plan.no_lock))),
        directory_times={key: os.stat(plan.path(*key)).st_mtime_ns for key in touched},
        leaves_times={key: plan.directory_times[key] for key in touched if key not in used},
        undoes=plan.id,
        new_directories=plan.new_directories,
    )
    check_places(back.log_dirs, backups=back.backups)
    return _with_room(plan, back, found, disk or Disk(), is_free=backup is None)


def end_begun(plan: Plan, disk: Disk) -> None:
    """Remove the leftovers of *plan*, which has begun and changed no file: directories for new partitions.

    Raises OSError.
    """
    if not has_begun(plan):
        return
    for number, inside in plan.new_directories:
        directory = plan.path(number, inside)
        if os.path.isdir(directory) and not names_if_there(directory):
            disk.remove_directory(directory)
            if (number, "") in plan.directory_times:
                disk.set_directory_time(plan.log_dirs[number], plan.directory_times[number, ""])
            disk.sync([plan.log_dirs[number]])
    end_plan(plan, disk)


def exit_hint(plan: Plan, path: str, now_ms: int) -> str | None:
    """Return one line that tells the user how to leave a half-done plan that *path* blocks.

    None if it cannot be undone either.  Raises UnreadableError.
    """
    try:
        plan_undo(plan, now_ms)
    except StaleError:
        return None
    undo = f"klog undo {quote(plan.backups[0])} --apply"
    return (
        f"{path}: has changed since {plan.id} was half done, so it cannot be finished: '{undo}' undoes its"
        " changes, and keeps later data"
    )


def _located(plan: Plan) -> dict[tuple[int, str], FileHistory]:
    """Return the states of the files of *plan*.  Raises StaleError if one is in none of them."""
    found = {(history.log_dir, history.file): history for history in locate_histories(plan)}
    is_unfinished = has_begun(plan)
    for history in found.values():
        if history.is_partial and is_unfinished:
            history.at = (history.at or 0) + 1  # a part of the appended bytes is there, and is deleted too
        else:
            history.at = 0 if is_unfinished and may_stay(history) else _reached(plan, history)
    return found


def _check_unused(plan: Plan, found: dict[tuple[int, str], FileHistory]) -> set[tuple[int, str]]:
    """Raise StaleError when the directories have been used since, in a way that the undo would overwrite.

    A half-done plan can be undone although there are newer segments: they are kept.  Returns the directories with such
    segments.
    """
    if not has_begun(plan):
        path = used_since(plan, found.values())
        if path is not None:
            raise StaleError(_used(plan, path))
        return set()
    used = set()
    for other in differences(plan):
        # A broker trusts everything below a marker: damage that was found must not return there.
        is_marked = other.file == FileKind.CLEAN_SHUTDOWN.value and bool(plan.findings)
        if is_marked or not is_above(plan, other):
            raise StaleError(_used(plan, plan.path(other.log_dir, other.file)))
        used.add((other.log_dir, os.path.dirname(other.file)))
    return used


def _used(plan: Plan, path: str) -> str:
    """Return why it cannot be taken back: *path* was used since, and by which plan, where it was one."""
    status = status_of(path)
    facts = None if status is None else (status.st_size, status.st_mtime_ns)
    for later in (kept.plan for log_dir in plan.log_dirs for kept in plans_of(log_dir)):
        if later.id == plan.id or later.created < plan.created:
            continue
        for action in later.actions:
            after = action.after
            if later.path(action.log_dir, action.file) == path and facts == (after and (after.size, after.modified_ns)):
                return f"{path}: changed by {later.id} since the plan was carried out; undo that plan first"
    return f"{path}: used since the plan was carried out; the plan can no longer be undone"


def _with_room(
    plan: Plan, back: Plan, found: Mapping[tuple[int, str], FileHistory], disk: Disk, *, is_free: bool
) -> Plan:
    """Return *back* with backups that fit on their file systems; *is_free*: they may also be beside those of *plan*.

    Raises NoSpaceError with the space that the first choice lacks.
    """
    if not back.actions:
        return back
    beside = tuple(os.path.join(os.path.dirname(place), back.id) for place in plan.backups)
    choices = [back.backups]
    if is_free and len(set(beside)) == len(beside):
        choices.append(beside)
    lacks = []
    for places in choices:
        chosen = back._replace(backups=places)
        lack = lack_of_space(places, list(_copies(plan, chosen, found)), disk)
        if lack is None:
            return chosen
        lacks.append(lack)
    raise NoSpaceError(f"{lacks[0]}; nothing was changed; another directory may be named with --backup")


def _copies(plan: Plan, back: Plan, found: Mapping[tuple[int, str], FileHistory]) -> Iterator[tuple[str, int]]:
    """Yield where *back* is going to write, and how many bytes."""
    kept = set()
    for action in back.actions:
        key = action.log_dir, action.file
        history, backup, wanted = found[key], back.backups[action.log_dir], action.after
        is_far = device_of(backup) != device_of(os.path.dirname(history.path))
        if is_far and key not in kept and history.current is not None:
            yield backup, history.current.size
        kept.add(key)
        if action.do == TRUNCATE and action.before is not None and wanted is not None and not is_far:
            yield backup, action.before.size - wanted.size
        if wanted is None or action.do == TRUNCATE:
            continue
        if is_far:
            yield history.path, wanted.size
        if history.original is Original.TAIL or device_of(_origin(plan, found, history, wanted)) != device_of(backup):
            yield backup, wanted.size


def _reached(plan: Plan, history: FileHistory) -> int:
    """Return which of its states a file is in, by its content alone where that is enough."""
    passes = is_transient(history.states) or comes_back(history.file, history.states)
    if passes and history.at is not None:
        return history.at
    for at, state in enumerate(history.states):
        if same_content(state, history.current):
            return at
    raise StaleError(_used(plan, history.path))


def _reversed(plan: Plan, found: dict[tuple[int, str], FileHistory]) -> Iterator[Action]:
    """Yield, from the last action to the first, the action that undoes it.

    Content that a file only had between two actions is not kept; such a step is left out, unless it was no content, or
    another file has it, of which it was a second name.
    """
    now: dict[tuple[int, str], FileState | None] = {key: history.current for key, history in found.items()}
    turns: dict[tuple[int, str], int] = {}
    for place in reversed(range(len(plan.actions))):
        key = plan.actions[place].log_dir, plan.actions[place].file
        history = found[key]
        at = history.actions.index(place)
        before, current = history.states[at], now[key]
        if at >= (history.at or 0):
            continue
        if is_transient(history.states) and before is not None:
            before = _stood_in(plan, found, history, before)
        elif at and before is not None and before.size:
            continue
        if same_content(before, current) and at:
            continue
        log_dir, file = key
        if before is None:
            if current is not None:
                yield Action(REMOVE, file, current, None, None, log_dir)
        elif plan.actions[place].do == APPEND and current is not None:
            if current.size > before.size:
                yield Action(TRUNCATE, file, current, before, None, log_dir)
        elif before != current:
            turns[key] = turns.get(key, 0) + 1
            source = file if turns[key] == 1 else f"{file}~{turns[key]}"
            yield Action(PUT, file, current, before, source, log_dir)
        now[key] = before


def _stood_in(
    plan: Plan, found: dict[tuple[int, str], FileHistory], history: FileHistory, content: FileState
) -> FileState:
    """Return the state of a transient file when it is created again: another name of its original."""
    file = final_name(history.file)
    whole = found.get((history.log_dir, file))
    states = (whole.current, whole.before) if whole else (file_state(plan.path(history.log_dir, file)),)
    for state in states:
        if state is not None and same_content(state, content):
            return state
    if content.size:
        raise StaleError(f"{history.path}: its former content no longer exists; the plan can no longer be undone")
    return content


def _origin(plan: Plan, found: Mapping[tuple[int, str], FileHistory], history: FileHistory, wanted: FileState) -> str:
    """Return the file that is brought back under a file's name, or whose second name that becomes."""
    if not is_transient(history.states):
        place = tail_place if history.original is Original.TAIL else original_place
        return place(plan, history.log_dir, history.file)
    file = final_name(history.file)
    whole = found.get((history.log_dir, file))
    is_kept = whole is not None and wanted == whole.before
    return original_place(plan, history.log_dir, file) if is_kept else plan.path(history.log_dir, file)


def _check_originals(plan: Plan, found: dict[tuple[int, str], FileHistory], actions: tuple[Action, ...]) -> None:
    for action in actions:
        history = found[action.log_dir, action.file]
        wanted = action.after
        if wanted is None or action.do == TRUNCATE:
            continue
        if not (wanted == history.before or (is_transient(history.states) and wanted.size)):
            continue
        place = _origin(plan, found, history, wanted)
        if status_of(place) is None:
            raise StaleError(f"{place}: gone, {history.path} cannot be brought back")


def stage_undo(plan: Plan, back: Plan, disk: Disk, announce: Callable[[], None] = lambda: None) -> Plan:
    """Stage the new files of *back*, which undoes *plan*: the very originals, if they were kept whole.

    *announce* is called before.  Returns *back*, with the directories that were made for it.  Raises PlanError for a
    forbidden backup, StaleError, OSError; nothing of it then remains.
    """
    check_places(back.log_dirs, backups=back.backups)
    found, made = file_histories(plan), list[str]()
    is_done = False
    announce()
    try:
        for action in back.actions:
            if action.source is not None and action.after is not None:
                target = os.path.join(back.staged(action.log_dir), action.source)
                made += make_directories(os.path.dirname(target), disk)
                _stage(plan, found, found[action.log_dir, action.file], action.after, target, disk)
        is_done = True
    finally:
        back = back._replace(made_here=tuple(made))
        if not is_done:
            drop_staged(back, disk)
    return back


def _stage(
    plan: Plan,
    found: Mapping[tuple[int, str], FileHistory],
    history: FileHistory,
    wanted: FileState,
    target: str,
    disk: Disk,
) -> None:
    if wanted != history.before and not (is_transient(history.states) and wanted.size):
        disk.close(disk.create(target))  # it was empty for a while
        return
    if history.original is not Original.TAIL:
        link_or_copy(_origin(plan, found, history, wanted), target, disk)
        return
    tail = tail_place(plan, history.log_dir, history.file)
    after = plan.actions[history.actions[0]].after
    assert after is not None, "a truncation leaves a file"
    with disk.closing(disk.create(target)) as file:
        disk.copy(history.path, 0, after.size, file)
        disk.copy(tail, 0, wanted.size - after.size, file)
        disk.copy_attributes(history.path, file)
        disk.set_metadata(file, wanted.mode, wanted.uid, wanted.gid, wanted.modified_ns)
    state = file_state(target, start=wanted.digest_start)
    if state is None or state.content != wanted.content:
        raise StaleError(f"{tail}: not what was cut from {history.path}; it cannot be restored")
