"""Plans as JSON files; a plan that is read is not trusted, because it can remove files.

Members of the wrong type, states without a known kind of digest, actions with unknown members, numbers and depths that
no plan has: such a file is refused as a whole, as is a plan that `klog.change.plan.plan_rules` refuses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from klog.base.errors import PlanError
from klog.base.read_only import ReadOnlyFile
from klog.change.plan.model import (
    TRUNCATE,
    UNREADABLE,
    Action,
    Amount,
    CutOut,
    FileState,
    Guard,
    Loss,
    Plan,
)
from klog.change.plan.plan_rules import check_plan, refuse, shown
from klog.formats.java_integers import LONG_MAX

VERSION: Final = 1
MAX_BYTES: Final = 512 << 20
"""The largest plan file that is read: enough for a million actions."""

_DIGESTS = {
    "sha256": re.compile(r"[0-9a-f]{64}"),
    "crc32c": re.compile(r"[0-9a-f]{8}(@[1-9][0-9]{0,18})?"),
    UNREADABLE[:-1]: re.compile(r"[0-9a-f]{1,16}"),
}
_ACTION_KEYS = {"do", "file", "from", "size", "before", "after", "added", "log_dir"}
_STATE_KEYS = {"size", "mode", "uid", "gid", "modified_ns"}

Object = Mapping[str, object]
_T = TypeVar("_T")


# writing


def plan_json(plan: Plan | None) -> dict[str, object]:
    """Return *plan* as the members of a JSON object; None: there is nothing to change."""
    if plan is None:
        return {"id": None, "actions": []}
    return {name: list(value) if isinstance(value, map) else value for name, value in _plan_members(plan)}


def plan_pieces(plan: Plan) -> Iterator[bytes]:
    """Yield the content of a plan's file, an action a line: in one piece it is several times as large as the plan."""
    import json  # late: nearly every run looks for plans, and few find one

    encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode
    before = "{"
    for name, value in _plan_members(plan):
        yield f"{before}{encode(name)}:".encode("ascii")
        before = ",\n "
        if not isinstance(value, map):
            yield encode(value).encode("ascii")
            continue
        yield b"["
        for number, row in enumerate(value):
            yield f"{',' * bool(number)}\n  {encode(row)}".encode("ascii")
        yield b"]"
    yield b"}\n"


def _plan_members(plan: Plan) -> Iterator[tuple[str, object]]:
    """Yield the members and their values; long lists are maps, whose elements are created when they are read."""
    would_keep = plan.broker_would_keep
    yield "klog_plan", VERSION
    yield "id", plan.id
    yield "created", plan.created
    yield "command", plan.command
    yield "log_dirs", list(plan.log_dirs)
    yield "findings", map(dict, plan.findings)
    yield "losses", map(Loss._asdict, plan.losses)
    yield "actions", map(_action_json, plan.actions)
    yield "broker_would_keep", would_keep and would_keep._asdict()
    yield "kept", plan.kept._asdict()
    yield "backup", plan.backups[0] if plan.backups else None
    yield "backups", list(plan.backups)
    yield "unchanged", map(_row, map(Guard._asdict, plan.guards))
    yield "cut_out", map(_row, map(CutOut._asdict, plan.cuts))
    yield "no_lock", list(plan.no_lock)
    yield "directory_times", map(_time_json, sorted(plan.directory_times.items()))
    if plan.staging:
        yield "staging", list(plan.staging)
    if plan.reads:
        yield "reads", list(plan.reads)
    if plan.new_directories:
        yield (
            "new_directories",
            [_row({"directory": inside, "log_dir": number}) for number, inside in plan.new_directories],
        )
    if plan.copies:
        yield "copies", map(dict, plan.copies)
    if plan.beside is not None:
        yield "beside", map(_row, map(Guard._asdict, plan.beside))
    if plan.undoes is not None:
        yield "undoes", plan.undoes
        yield "leaves_times", map(_time_json, sorted(plan.leaves_times.items()))


def _row(members: dict[str, object]) -> dict[str, object]:
    """Return *members* without what most rows would have: the number of the first log dir, no sync."""
    return {name: value for name, value in members.items() if value or name not in ("log_dir", "sync")}


def _action_json(action: Action) -> dict[str, object]:
    members: dict[str, object] = {"do": action.do, "file": action.file}
    if action.do == TRUNCATE and action.after is not None:
        members["size"] = action.after.size
    if action.source is not None:
        members["from"] = action.source
    for name, state in (("before", action.before), ("after", action.after), ("added", action.added)):
        if state is not None:
            members[name] = _state_json(state)
    if action.log_dir:
        members["log_dir"] = action.log_dir
    return members


def _state_json(state: FileState) -> dict[str, object]:
    kind, _, digits = state.digest.partition(":")
    return {
        kind if name == "digest" else name: value for name, value in (state._replace(digest=digits))._asdict().items()
    }


def _time_json(time: tuple[tuple[int, str], int]) -> dict[str, object]:
    (log_dir, directory), modified_ns = time
    return _row({"directory": directory, "modified_ns": modified_ns, "log_dir": log_dir})


# reading


def read_plan(data: bytes) -> Plan:
    """Return the plan in a JSON file.  Raises PlanError for any irregularity."""
    if len(data) > MAX_BYTES:
        refuse(f"larger than {MAX_BYTES} bytes")
    import json

    try:
        members = json.loads(data.decode("utf-8"), parse_int=_integer, parse_constant=refuse, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"no plan: {str(error)[:100]}") from error
    plan = _plan(_members(members, "the plan"))
    check_plan(plan)
    return plan


def _integer(digits: str) -> int:
    if len(digits) > 20:
        refuse("a number of more than 20 digits")
    return int(digits)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        refuse("a member that is there twice")
    return members


def _members(value: object, what: str, known: set[str] | None = None) -> dict[str, object]:
    if not isinstance(value, dict):
        refuse(f"{what} is not an object")
    if known is not None and not known.issuperset(value):
        refuse(f"{what} has {shown(sorted(set(value) - known)[0])}, which this klog does not know")
    return value


def _number(members: Object, name: str, most: int = LONG_MAX) -> int:
    value = members.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        refuse(f"{name} is {shown(value)}")
    return value


def _log_dir(members: Object, name: str) -> int:
    return _number(members, name) if name in members else 0


def _maybe_number(members: Object, name: str) -> int | None:
    value = members.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or abs(value) > LONG_MAX):
        refuse(f"{name} is {shown(value)}")
    return value


def _time(members: Object, name: str) -> int:
    value = _maybe_number(members, name)
    if value is None:
        refuse(f"{name} is missing")
    return value


def _flag(members: Object, name: str) -> bool:
    value = members.get(name, False)
    if not isinstance(value, bool):
        refuse(f"{name} is {shown(value)}")
    return value


def _text(members: Object, name: str) -> str:
    value = members.get(name)
    if not isinstance(value, str) or "\0" in value:
        refuse(f"{name} is {shown(value)}")
    return value


def _maybe_text(members: Object, name: str) -> str | None:
    return None if members.get(name) is None else _text(members, name)


_Readers = Mapping[str, Callable[[Object, str], Any]]
_GUARD: _Readers = {"file": _text, "size": _number, "modified_ns": _time, "log_dir": _log_dir, "sync": _flag}
_CUT: _Readers = {
    "file": _text,
    "start": _number,
    "end": _number,
    "reason": _text,
    "facts": lambda members, name: _members(members.get(name, {}), "the facts of cut_out"),
    "log_dir": _log_dir,
}
_LOSS: _Readers = {
    "topic": _maybe_text,
    "partition": _maybe_number,
    "first_offset": _maybe_number,
    "last_offset": _maybe_number,
    "records": _maybe_number,
    "bytes": _number,
    "reason": _text,
}
_AMOUNT: _Readers = {"records": _maybe_number, "bytes": _number}
_DIRECTORY: _Readers = {"log_dir": _log_dir, "directory": _text}


def _read(value: object, what: str, readers: _Readers) -> dict[str, Any]:
    """Return the members of an object; *readers* has the name of each and how it is read."""
    members = _members(value, what, set(readers))
    return {name: read(members, name) for name, read in readers.items()}


def _list(members: Object, name: str, item: Callable[[object], _T]) -> tuple[_T, ...]:
    value = members.get(name, [])
    if not isinstance(value, list):
        refuse(f"{name} is not a list")
    return tuple(item(one) for one in value)


def _plan(members: Object) -> Plan:
    version = members.get("klog_plan")
    if version != VERSION or isinstance(version, bool):
        refuse(f"klog_plan is {shown(version)}, this klog knows {VERSION}")
    would_keep = members.get("broker_would_keep")
    return Plan(
        id=_text(members, "id"),
        created=_text(members, "created"),
        command=_text(members, "command"),
        log_dirs=_list(members, "log_dirs", _directory),
        backups=_list(members, "backups", _directory),
        actions=_list(members, "actions", _action),
        guards=_list(members, "unchanged", _guard),
        losses=_list(members, "losses", lambda one: Loss(**_read(one, "a loss", _LOSS))),
        findings=_list(members, "findings", lambda one: _members(one, "a finding")),
        kept=_amount(members.get("kept")),
        broker_would_keep=None if would_keep is None else _amount(would_keep),
        staging=_list(members, "staging", lambda one: "" if one == "" else _directory(one)),
        no_lock=_list(members, "no_lock", lambda one: _number({"no_lock": one}, "no_lock")),
        cuts=_list(members, "cut_out", lambda one: CutOut(**_read(one, "one of cut_out", _CUT))),
        directory_times=dict(_list(members, "directory_times", _directory_time)),
        leaves_times=dict(_list(members, "leaves_times", _directory_time)),
        undoes=_maybe_text(members, "undoes"),
        beside=_list(members, "beside", _guard) if "beside" in members else None,
        reads=_list(members, "reads", _directory),
        new_directories=_list(members, "new_directories", _new_directory),
        copies=_list(members, "copies", lambda one: _members(one, "one of copies")),
    )


def _directory(value: object) -> str:
    if not isinstance(value, str) or not os.path.isabs(value) or "\0" in value or ".." in value.split("/"):
        refuse(f"{shown(value)} is not an absolute path")
    return value


def _action(value: object) -> Action:
    members = _members(value, "an action", _ACTION_KEYS)
    do = _text(members, "do")
    source = _text(members, "from") if "from" in members else None
    states = ("before", "after", "added")
    before, after, added = (_state(members[name]) if name in members else None for name in states)
    # The size of a truncation is for people; the state afterwards contains it once more.
    if ("size" in members) != (do == TRUNCATE) or (after is not None and members.get("size", after.size) != after.size):
        refuse(f"size and after of {shown(members.get('file'))} contradict each other")
    return Action(do, _text(members, "file"), before, after, source, _log_dir(members, "log_dir"), added)


def _state(value: object) -> FileState:
    members = _members(value, "before or after", _STATE_KEYS | set(_DIGESTS))
    kinds = [kind for kind in _DIGESTS if kind in members]
    if len(kinds) != 1 or not _DIGESTS[kinds[0]].fullmatch(_text(members, kinds[0])):
        refuse("before or after without a digest that this klog knows")
    return FileState(
        _number(members, "size"),
        f"{kinds[0]}:{members[kinds[0]]}",
        _number(members, "mode", 0o7777),
        _number(members, "uid", 2**32 - 2),
        _number(members, "gid", 2**32 - 2),
        _time(members, "modified_ns"),
    )


def _guard(value: object) -> Guard:
    return Guard(**_read(value, "one of unchanged", _GUARD))


def _amount(value: object) -> Amount:
    return Amount(**_read({"records": 0, "bytes": 0} if value is None else value, "an amount", _AMOUNT))


def _directory_time(value: object) -> tuple[tuple[int, str], int]:
    log_dir, directory, modified_ns = _read(value, "a directory's time", {**_DIRECTORY, "modified_ns": _time}).values()
    return (log_dir, directory), modified_ns


def _new_directory(value: object) -> tuple[int, str]:
    log_dir, directory = _read(value, "a new directory", _DIRECTORY).values()
    return log_dir, directory


def load_plan(path: str) -> Plan:
    """Return the plan in the file at *path*.  Raises PlanError, UnreadableError."""
    with ReadOnlyFile(path) as source:
        if source.size > MAX_BYTES:
            raise PlanError(f"{path}: {source.size} bytes, too large for a plan")
        data = source.read(0, source.size)
    try:
        return read_plan(data)
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error
