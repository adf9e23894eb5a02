"""The rules for a saved plan: it may change Kafka's files in partitions and log dirs, and nothing else.

A plan names files of partitions and of log dirs.  One that names anything else (paths that lead elsewhere, unknown
actions, files that no repair touches, states that do not follow from one another) is refused as a whole.  Transient
files exist neither before nor after a plan; `klog.change.plan.replace_segments` has the reasons for their rules.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from klog.base.errors import PlanError
from klog.change.plan.model import APPEND, PUT, REMOVE, TRUNCATE, Action, FileState, Plan, place_among
from klog.formats.names import ROOT_KINDS, SEGMENT_KINDS, FileKind, Stage, parse_file, parse_partition

_LOG = f".{FileKind.LOG.value}"
States = Mapping[tuple[int, str], Sequence[FileState | None]]
"""The states of each file, by log dir and name."""

_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,99}")
_UNTOUCHED = (FileKind.META_PROPERTIES, FileKind.LOCK, FileKind.BOOTSTRAP, FileKind.QUORUM_STATE)
_IN_LOG_DIR = (
    FileKind.RECOVERY_POINTS,
    FileKind.HIGH_WATERMARKS,
    FileKind.LOG_STARTS,
    FileKind.CLEANER_OFFSETS,
    FileKind.CLEAN_SHUTDOWN,
)


def refuse(what: str) -> NoReturn:
    """Raise PlanError over *what*."""
    raise PlanError(f"the plan is refused: {what}; nothing was changed")


def shown(value: object) -> str:
    """Return *value*, which may be anything, for a message of one line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def check_plan(plan: Plan) -> None:
    """Raise PlanError when *plan* contains what no plan may contain."""
    if not _ID.fullmatch(plan.id):
        refuse(f"id {shown(plan.id)}")
    count = len(plan.log_dirs)
    if not count or len(plan.backups) != count or len(plan.staging) not in (0, count):
        refuse("log_dirs, backups and staging do not belong together")
    if len(set(plan.locked)) != len(plan.locked) or len(set(plan.backups)) != count:
        refuse("a log dir or a backup that is there twice")
    states: dict[tuple[int, str], list[FileState | None]] = {}
    sources: set[tuple[int, str]] = set()
    for action in plan.actions:
        _check_action(action, count)
        history = states.setdefault((action.log_dir, action.file), [action.before])
        is_new = place_among(action.after, history) is None
        is_known = is_transient([*history, action.after]) or comes_back(action.file, [*history, action.after])
        if history[-1] != action.before or not (is_new or is_known):
            refuse(f"the states of {shown(action.file)} do not follow from one another")
        history.append(action.after)
        if action.source is not None and (action.log_dir, action.source) in sources:
            refuse(f"{shown(action.source)} is put twice")
        sources.add((action.log_dir, action.source or ""))
    _check_markers(plan)
    check_transient(plan, states)
    locked = len(plan.locked)
    for guard in (*plan.guards, *(plan.beside or ())):
        if os.path.isabs(guard.file) and "\0" not in guard.file and not guard.sync:
            continue  # it is only looked at
        _check_place(guard.file, guard.log_dir, locked)
    for cut in plan.cuts:
        _check_file(cut.file, cut.log_dir, count)
        first = states.get((cut.log_dir, cut.file), [None])[0]
        if first is None or not cut.start < cut.end <= first.size:
            refuse(f"{cut.start} to {cut.end} are not cut out of {shown(cut.file)}")
    for number, directory in (*plan.directory_times, *plan.leaves_times, *plan.new_directories):
        if number >= count or (directory and not _is_partition(directory)):
            refuse(f"{shown(directory)} is not a directory of a partition")
    if any(not directory or (number, directory) in plan.directory_times for number, directory in plan.new_directories):
        refuse("new_directories names one that is there")
    if any(number >= count for number in plan.no_lock):
        refuse("no_lock names a log dir that is not there")


def _check_markers(plan: Plan) -> None:
    """Refuse a clean-shutdown marker that exists while something else in its log dir changes."""
    marked: set[int] = set()
    begun: set[int] = set()
    for action in plan.actions:
        if action.log_dir in marked:
            refuse(f"{shown(action.file)} changes after its log dir was marked as clean")
        if action.file == FileKind.CLEAN_SHUTDOWN.value:
            if action.do == REMOVE and action.log_dir in begun:
                refuse(f"{shown(action.file)} goes after something else has changed")
            if action.do == PUT:
                marked.add(action.log_dir)
        begun.add(action.log_dir)


def _check_action(action: Action, count: int) -> None:
    _check_file(action.file, action.log_dir, count)
    name = parse_file(action.file.rpartition("/")[2])
    if name.kind in _UNTOUCHED:
        refuse(f"{shown(action.file)} is never changed by a repair")
    if action.do == TRUNCATE and name.kind is FileKind.CLEAN_SHUTDOWN:
        refuse(f"{shown(action.file)} is put or removed, never cut")
    if action.do in (PUT, TRUNCATE) and name.kind is FileKind.OTHER:
        refuse(f"{shown(action.file)} is not a file of Kafka's")
    before, after = action.before, action.after
    if action.has_digest_beyond_end:
        refuse(f"{shown(action.file)} has a digest from behind its end on")
    if action.do == PUT:
        is_sound = after is not None and action.source is not None and _is_relative(action.source)
    elif action.do == TRUNCATE:
        is_sound = before is not None and after is not None and after.size < before.size and action.source is None
    elif action.do == APPEND:
        is_sound = name.kind is FileKind.LOG and _adds_up(action) and _is_relative(action.source or "")
    elif action.do == REMOVE:
        is_sound = before is not None and after is None and action.source is None
    else:
        refuse(f"do is {shown(action.do)}, this klog knows {PUT}, {TRUNCATE}, {REMOVE} and {APPEND}")
    if not is_sound or (action.added is not None) != (action.do == APPEND):
        refuse(f"{action.do} of {shown(action.file)} lacks what it needs, or has what it must not have")


def _adds_up(action: Action) -> bool:
    before, after, added = action.before, action.after, action.added
    if before is None or after is None or added is None:
        return False
    return 0 < added.size == after.size - before.size


def _check_place(file: str, log_dir: int, count: int) -> None:
    """Refuse a path outside of the log dir's partitions and the log dir itself."""
    directory, slash, _ = file.partition("/")
    if log_dir >= count:
        refuse(f"log_dir {log_dir}, of {count}")
    is_place = _is_partition(directory) if slash else parse_file(directory).kind in ROOT_KINDS
    if not _is_relative(file) or file.count("/") > 1 or not is_place:
        refuse(f"{shown(file)} is not a file of a partition or of a log dir")


def _check_file(file: str, log_dir: int, count: int) -> None:
    """Refuse a file, of a partition or of the log dir itself, that a repair may not touch."""
    _check_place(file, log_dir, count)
    directory, slash, name = file.partition("/")
    if not slash and parse_file(directory).kind not in _IN_LOG_DIR:
        refuse(f"{shown(file)} is not a file of a log dir that a repair touches")
    if slash and parse_file(name).kind is FileKind.CLEAN_SHUTDOWN:
        refuse(f"{shown(file)} is in the wrong place")


def _is_partition(directory: str) -> bool:
    return _is_relative(directory) and "/" not in directory and parse_partition(directory) is not None


def _is_relative(path: str) -> bool:
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))


# files that exist only between two actions, see `klog.change.plan.replace_segments`


def is_transient(states: Sequence[FileState | None]) -> bool:
    """Whether a file with these states, one before a plan and one after each of its actions, is transient."""
    return len(states) == 3 and states[0] is None and states[2] is None


def comes_back(file: str, states: Sequence[FileState | None]) -> bool:
    """Whether it is the clean-shutdown marker, which is deleted first and restored unchanged at the end."""
    is_marker = file == FileKind.CLEAN_SHUTDOWN.value
    return is_marker and len(states) == 3 and states[1] is None and states[0] == states[2] is not None


def stage_of(file: str) -> Stage | None:
    """Return SWAP or CLEANED for a file of a partition that may be transient, None for any other."""
    name = parse_file(file.rpartition("/")[2])
    if not name.canonical or name.kind not in SEGMENT_KINDS:
        return None
    if name.stage is Stage.SWAP or (name.stage is Stage.CLEANED and name.kind is FileKind.LOG):
        return name.stage
    return None


def final_name(file: str) -> str:
    """Return the file that has, before or after, the content of the transient *file*: its name without the stage."""
    return file.removesuffix(Stage.SWAP.value).removesuffix(Stage.CLEANED.value)


def log_of(file: str) -> str:
    """Return the log of the segment of the transient *file*."""
    return final_name(file).rpartition(".")[0] + _LOG


def telling_file(file: str) -> str:
    """Return the file whose state shows whether *file*, which does not exist, is a future or a deleted one.

    For a `.swap` it is the log, which changes while the `.swap` exists; for the `.cleaned` the log's `.swap`, which is
    created or deleted while the `.cleaned` exists.
    """
    return log_of(file) if file.endswith(Stage.SWAP.value) else f"{log_of(file)}{Stage.SWAP.value}"


def check_transient(plan: Plan, states: States) -> None:
    """Refuse transient files that break the rules of `swap_files`: their progress could not be derived."""
    coming = {key for key, history in states.items() if is_transient(history)}
    if not coming:
        return
    directories = {(log_dir, os.path.dirname(file)) for log_dir, file in coming}
    places: dict[tuple[int, str], list[int]] = {}
    for place, action in enumerate(plan.actions):
        if (action.log_dir, os.path.dirname(action.file)) in directories:
            places.setdefault((action.log_dir, action.file), []).append(place)
    for log_dir, file in coming:
        if not _passes(plan, log_dir, file, states, places):
            refuse(f"{shown(file)} comes and goes, but not as a file that stands for another while that changes")
    _check_one_at_a_time(coming, places)


def _passes(plan: Plan, log_dir: int, file: str, states: States, places: Mapping[tuple[int, str], list[int]]) -> bool:
    """Whether a transient file is allowed, and an action while it exists is its telling file."""
    came, went = places[log_dir, file]
    stage, content = stage_of(file), states[log_dir, file][1]
    telling = [place for place in places.get((log_dir, telling_file(file)), []) if came < place < went]
    if stage is None or content is None or len(telling) != 1:
        return False
    if stage is Stage.CLEANED:
        return not content.size
    whole = log_dir, final_name(file)
    if plan.actions[telling[0]].do != PUT or any(not came < place < went for place in places.get(whole, [])):
        return False
    # An empty index fits any log, and says nothing about the unchanged part.
    is_index = file != f"{log_of(file)}{Stage.SWAP.value}"
    return content in states.get(whole, [content]) or (is_index and not content.size)


def _check_one_at_a_time(coming: Iterable[tuple[int, str]], places: Mapping[tuple[int, str], list[int]]) -> None:
    """Refuse new segments that exist beside others in one directory: a start would remove all that is between them."""
    last: dict[tuple[int, str], tuple[int, str]] = {}
    for came, key in sorted((places[key][0], key) for key in coming):
        directory, log = (key[0], os.path.dirname(key[1])), log_of(key[1])
        until, other = last.get(directory, (-1, ""))
        if came < until and log != other:
            refuse(f"{shown(key[1])} comes before those for {shown(other)} have gone")
        last[directory] = max((places[key][1], log), (until, other))
