"""Plans as JSON: written, and read with the distrust that a file deserves which may have files removed.

A plan names files of partitions and of log dirs, two names deep at most.  Whatever else stands in one (paths that lead
elsewhere, unknown actions or members, files that no repair touches, states that do not follow from one another)
makes it refused as a whole.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeVar

from klog.formats.names import FileKind, parse_file, parse_partition
from klog.plan import (
    PUT,
    REMOVE,
    TRUNCATE,
    VERSION,
    Action,
    Amount,
    CutOut,
    FileState,
    Guard,
    Loss,
    Plan,
    PlanError,
    same_content,
)

MAX_BYTES: Final = 512 << 20
"""The largest plan file that is read: room for a million actions."""

_MAX_INT = 2**63 - 1
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,99}")
_DIGESTS = {"sha256": re.compile(r"[0-9a-f]{64}"), "crc32c": re.compile(r"[0-9a-f]{8}")}
_UNTOUCHED = (FileKind.META_PROPERTIES, FileKind.LOCK, FileKind.BOOTSTRAP, FileKind.QUORUM_STATE)
_ACTION_KEYS = {"do", "file", "from", "size", "before", "after", "log_dir"}
_STATE_KEYS = {"size", "mode", "uid", "gid", "modified_ns"}
_GUARD_KEYS = {"file", "size", "modified_ns", "log_dir"}
_CUT_KEYS = {"file", "start", "end", "reason", "facts", "log_dir"}

Object = Mapping[str, object]
_T = TypeVar("_T")


# writing


def plan_json(plan: Plan) -> dict[str, object]:
    """Return *plan* as the members of a JSON object."""
    would_keep = plan.broker_would_keep
    members: dict[str, object] = {
        "klog_plan": VERSION,
        "id": plan.id,
        "created": plan.created,
        "command": plan.command,
        "log_dirs": list(plan.log_dirs),
        "findings": [dict(finding) for finding in plan.findings],
        "losses": [loss._asdict() for loss in plan.losses],
        "actions": [_action_json(action) for action in plan.actions],
        "broker_would_keep": would_keep and would_keep._asdict(),
        "kept": plan.kept._asdict(),
        "backup": plan.backups[0] if plan.backups else None,
        "backups": list(plan.backups),
        "unchanged": [_numbered(guard._asdict()) for guard in plan.guards],
        "cut_out": [_numbered({**cut._asdict(), "facts": dict(cut.facts)}) for cut in plan.cuts],
        "no_lock": list(plan.no_lock),
        "directory_times": _times_json(plan.directory_times),
    }
    if plan.staging:
        members["staging"] = list(plan.staging)
    if plan.undoes is not None:
        members["undoes"] = plan.undoes
        members["leaves_times"] = _times_json(plan.leaves_times)
    return members


def plan_bytes(plan: Plan) -> bytes:
    """Return the content of a plan's file, an action a line."""
    members = plan_json(plan)
    lines = []
    for name, value in members.items():
        if isinstance(value, list) and len(value) > 1:
            rows = ",\n  ".join(_compact(item) for item in value)
            lines.append(f"{_compact(name)}:[\n  {rows}]")
        else:
            lines.append(f"{_compact(name)}:{_compact(value)}")
    return ("{" + ",\n ".join(lines) + "}\n").encode("ascii")


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _numbered(members: dict[str, object]) -> dict[str, object]:
    if not members["log_dir"]:
        del members["log_dir"]
    return members


def _action_json(action: Action) -> dict[str, object]:
    members: dict[str, object] = {"do": action.do, "file": action.file}
    if action.do == TRUNCATE and action.after is not None:
        members["size"] = action.after.size
    if action.source is not None:
        members["from"] = action.source
    for name, state in (("before", action.before), ("after", action.after)):
        if state is not None:
            members[name] = _state_json(state)
    if action.log_dir:
        members["log_dir"] = action.log_dir
    return members


def _state_json(state: FileState) -> dict[str, object]:
    kind, _, digits = state.digest.partition(":")
    return {
        "size": state.size,
        kind: digits,
        "mode": state.mode,
        "uid": state.uid,
        "gid": state.gid,
        "modified_ns": state.modified_ns,
    }


def _times_json(times: Mapping[tuple[int, str], int]) -> list[dict[str, object]]:
    return [_numbered({"directory": name, "modified_ns": ns, "log_dir": n}) for (n, name), ns in sorted(times.items())]


# reading


def read_plan(data: bytes) -> Plan:
    """Return the plan that a file of JSON says.  Raises PlanError for anything that is odd about it."""
    if len(data) > MAX_BYTES:
        _refuse(f"larger than {MAX_BYTES} bytes")
    try:
        members = json.loads(
            data.decode("utf-8"), parse_int=_integer, parse_constant=_refuse, object_pairs_hook=_object
        )
    except (ValueError, RecursionError) as error:
        raise PlanError(f"no plan: {str(error)[:100]}") from error
    plan = _plan(_members(members, "the plan"))
    check_plan(plan)
    return plan


def _refuse(what: str) -> NoReturn:
    raise PlanError(f"the plan is refused: {what}; nothing was changed")


def _integer(digits: str) -> int:
    if len(digits) > 20:
        _refuse("a number of more than 20 digits")
    return int(digits)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        _refuse("a member that is there twice")
    return members


def _members(value: object, what: str, known: set[str] | None = None) -> dict[str, object]:
    if not isinstance(value, dict):
        _refuse(f"{what} is no object")
    if known is not None and not known.issuperset(value):
        _refuse(f"{what} has {_shown(sorted(set(value) - known)[0])}, which this klog does not know")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def _number(members: Object, name: str, most: int = _MAX_INT, default: int | None = None) -> int:
    value = members.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        _refuse(f"{name} is {_shown(value)}")
    return value


def _maybe_number(members: Object, name: str) -> int | None:
    value = members.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_INT):
        _refuse(f"{name} is {_shown(value)}")
    return value


def _time(members: Object) -> int:
    value = _maybe_number(members, "modified_ns")
    if value is None:
        _refuse("modified_ns is missing")
    return value


def _text(members: Object, name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or "\0" in value:
        _refuse(f"{name} is {_shown(value)}")
    return value


def _list(members: Object, name: str, item: Callable[[object], _T]) -> tuple[_T, ...]:
    value = members.get(name, [])
    if not isinstance(value, list):
        _refuse(f"{name} is no list")
    return tuple(item(one) for one in value)


def _plan(members: Object) -> Plan:
    version = members.get("klog_plan")
    if version != VERSION or isinstance(version, bool):
        _refuse(f"klog_plan is {_shown(version)}, this klog knows {VERSION}")
    would_keep = members.get("broker_would_keep")
    return Plan(
        id=_text(members, "id"),
        created=_text(members, "created"),
        command=_text(members, "command"),
        log_dirs=_list(members, "log_dirs", _directory),
        backups=_list(members, "backups", _directory),
        actions=_list(members, "actions", _action),
        guards=_list(members, "unchanged", _guard),
        losses=_list(members, "losses", _loss),
        findings=_list(members, "findings", lambda one: _members(one, "a finding")),
        kept=_amount(members.get("kept")),
        broker_would_keep=None if would_keep is None else _amount(would_keep),
        staging=_list(members, "staging", lambda one: "" if one == "" else _directory(one)),
        no_lock=_list(members, "no_lock", lambda one: _number({"no_lock": one}, "no_lock")),
        cuts=_list(members, "cut_out", _cut),
        directory_times=dict(_list(members, "directory_times", _directory_time)),
        leaves_times=dict(_list(members, "leaves_times", _directory_time)),
        undoes=None if members.get("undoes") is None else _text(members, "undoes"),
    )


def _directory(value: object) -> str:
    if not isinstance(value, str) or not os.path.isabs(value) or "\0" in value or ".." in value.split("/"):
        _refuse(f"{_shown(value)} is no absolute path")
    return value


def _action(value: object) -> Action:
    members = _members(value, "an action", _ACTION_KEYS)
    do = _text(members, "do")
    source = _text(members, "from") if "from" in members else None
    before, after = (_state(members[name]) if name in members else None for name in ("before", "after"))
    # The size of a truncation is there for people; the state afterwards says it once more.
    if ("size" in members) != (do == TRUNCATE) or (after is not None and members.get("size", after.size) != after.size):
        _refuse(f"size and after of {_shown(members.get('file'))} contradict each other")
    return Action(do, _text(members, "file"), before, after, source, _number(members, "log_dir", default=0))


def _state(value: object) -> FileState:
    members = _members(value, "before or after", _STATE_KEYS | set(_DIGESTS))
    kinds = [kind for kind in _DIGESTS if kind in members]
    if len(kinds) != 1 or not _DIGESTS[kinds[0]].fullmatch(_text(members, kinds[0])):
        _refuse("before or after without a digest that this klog knows")
    return FileState(
        _number(members, "size"),
        f"{kinds[0]}:{members[kinds[0]]}",
        _number(members, "mode", 0o7777),
        _number(members, "uid", 2**32 - 2),
        _number(members, "gid", 2**32 - 2),
        _time(members),
    )


def _guard(value: object) -> Guard:
    members = _members(value, "one of unchanged", _GUARD_KEYS)
    return Guard(
        _text(members, "file"), _number(members, "size"), _time(members), _number(members, "log_dir", default=0)
    )


def _cut(value: object) -> CutOut:
    members = _members(value, "one of cut_out", _CUT_KEYS)
    facts = _members(members.get("facts", {}), "the facts of cut_out")
    start, end = _number(members, "start"), _number(members, "end")
    return CutOut(
        _text(members, "file"), start, end, _text(members, "reason"), facts, _number(members, "log_dir", default=0)
    )


def _loss(value: object) -> Loss:
    members = _members(value, "a loss", set(Loss._fields))
    return Loss(
        None if members.get("topic") is None else _text(members, "topic"),
        _maybe_number(members, "partition"),
        _maybe_number(members, "first_offset"),
        _maybe_number(members, "last_offset"),
        _maybe_number(members, "records"),
        _number(members, "bytes"),
        _text(members, "reason"),
    )


def _amount(value: object) -> Amount:
    members = _members({"records": 0, "bytes": 0} if value is None else value, "an amount", set(Amount._fields))
    return Amount(_number(members, "records"), _number(members, "bytes"))


def _directory_time(value: object) -> tuple[tuple[int, str], int]:
    members = _members(value, "a directory's time", {"directory", "modified_ns", "log_dir"})
    return (_number(members, "log_dir", default=0), _text(members, "directory")), _time(members)


# what a plan may ask for


def check_plan(plan: Plan) -> None:
    """Raise PlanError when *plan* asks for what no plan may."""
    if not _ID.fullmatch(plan.id):
        _refuse(f"id {_shown(plan.id)}")
    count = len(plan.log_dirs)
    if not count or len(plan.backups) != count or len(plan.staging) not in (0, count):
        _refuse("log_dirs, backups and staging do not belong together")
    if len(set(plan.log_dirs)) != count or len(set(plan.backups)) != count:
        _refuse("a log dir or a backup that is there twice")
    states: dict[tuple[int, str], list[FileState | None]] = {}
    sources: set[tuple[int, str]] = set()
    for action in plan.actions:
        _check_action(action, count)
        chain = states.setdefault((action.log_dir, action.file), [action.before])
        if chain[-1] != action.before or any(same_content(state, action.after) for state in chain):
            _refuse(f"the states of {_shown(action.file)} do not follow from one another")
        chain.append(action.after)
        if action.source is not None and (action.log_dir, action.source) in sources:
            _refuse(f"{_shown(action.source)} is put twice")
        sources.add((action.log_dir, action.source or ""))
    for guard in plan.guards:
        _check_file(guard.file, guard.log_dir, count)
    for cut in plan.cuts:
        _check_file(cut.file, cut.log_dir, count)
        first = states.get((cut.log_dir, cut.file), [None])[0]
        if first is None or not cut.start < cut.end <= first.size:
            _refuse(f"{cut.start} to {cut.end} are not cut out of {_shown(cut.file)}")
    for number, directory in (*plan.directory_times, *plan.leaves_times):
        if number >= count or (directory and not _is_partition(directory)):
            _refuse(f"{_shown(directory)} is no directory of a partition")
    if any(number >= count for number in plan.no_lock):
        _refuse("no_lock names a log dir that is not there")


def _check_action(action: Action, count: int) -> None:
    _check_file(action.file, action.log_dir, count)
    name = parse_file(action.file.rpartition("/")[2])
    if name.kind in _UNTOUCHED:
        _refuse(f"{_shown(action.file)} is never changed by a repair")
    if action.do in (PUT, TRUNCATE) and name.kind is FileKind.OTHER:
        _refuse(f"{_shown(action.file)} is no file of Kafka's")
    before, after = action.before, action.after
    if action.do == PUT:
        is_sound = after is not None and action.source is not None and _is_relative(action.source)
    elif action.do == TRUNCATE:
        is_sound = before is not None and after is not None and after.size < before.size and action.source is None
    elif action.do == REMOVE:
        is_sound = before is not None and after is None and action.source is None
    else:
        _refuse(f"do is {_shown(action.do)}, this klog knows {PUT}, {TRUNCATE} and {REMOVE}")
    if not is_sound:
        _refuse(f"{action.do} of {_shown(action.file)} lacks what it needs, or has what it must not have")


def _check_file(file: str, log_dir: int, count: int) -> None:
    """Refuse what is not a file of a partition of the log dir, or of the log dir itself."""
    directory, slash, name = file.partition("/")
    if log_dir >= count:
        _refuse(f"log_dir {log_dir}, of {count}")
    if not _is_relative(file) or file.count("/") > 1 or (slash and not _is_partition(directory)):
        _refuse(f"{_shown(file)} is no file of a partition or of a log dir")
    if not slash and parse_file(directory).kind not in _IN_LOG_DIR:
        _refuse(f"{_shown(file)} is no file of a log dir that a repair touches")
    if slash and parse_file(name).kind is FileKind.CLEAN_SHUTDOWN:
        _refuse(f"{_shown(file)} is in the wrong place")


_IN_LOG_DIR = (
    FileKind.RECOVERY_POINTS,
    FileKind.HIGH_WATERMARKS,
    FileKind.LOG_STARTS,
    FileKind.CLEANER_OFFSETS,
    FileKind.CLEAN_SHUTDOWN,
)


def _is_partition(directory: str) -> bool:
    return _is_relative(directory) and "/" not in directory and parse_partition(directory) is not None


def _is_relative(path: str) -> bool:
    return "\0" not in path and all(part not in ("", ".", "..") for part in path.split("/"))
