"""What the commands that change data have in common: which log dirs, the locks, the plan, what is said in the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from klog.data_dir.log_dir import LogDir
from klog.data_dir.open_path import KafkaFile, open_path
from klog.data_dir.partition import Partition
from klog.data_dir.selection import select
from klog.disk.disk import Disk, NewFile, OpenFile
from klog.disk.output_gate import check_places
from klog.errors import KlogError, UsageError
from klog.files.paths import straight
from klog.plan.draft import Draft, backup_places, make_plan, plan_id, staged_beside, staging_of
from klog.plan.model import STAGED, Amount, Loss, Plan, StaleError
from klog.plan.staging import Staging, in_pieces
from klog.verify.findings import quoted

from klog_cli import output

if TYPE_CHECKING:
    from klog.metadata.topic_config import Setting, Value
    from klog.plan.backups import StoredPlan
    from klog.plan.locks import Locks

Findings = Sequence[dict[str, object]]


class Chosen(NamedTuple):
    """A log dir, and which of its partitions are meant; *whole*: all of them."""

    log_dir: LogDir
    partitions: list[Partition]
    whole: bool


class Drafted(NamedTuple):
    """What a command has found out, ready to be made a plan."""

    drafts: Sequence[Draft]
    findings: Findings
    losses: Sequence[Loss]
    kept: Amount
    broker_would_keep: Amount | None


class Ways(NamedTuple):
    """*name*: the command's, for the plan's id.  *apply*: do it.  *plan_file*, *backup*: where these go."""

    name: str
    apply: bool
    plan_file: str | None
    backup: str | None


class Changed(NamedTuple):
    """The plan, None when there is nothing to change; *is_applied*: it has been carried out.

    *is_partial*: partitions were left out in which an earlier plan is half done.
    """

    plan: Plan | None
    is_applied: bool
    is_partial: bool = False


def choose(paths: Sequence[str], topics: Sequence[str], numbers: Sequence[int]) -> list[Chosen]:
    """Return the log dirs that *paths* are about, each once.  Raises UsageError, UnreadableError."""
    chosen: dict[str, Chosen] = {}
    for path in map(straight, paths):
        opened = open_path(path)
        if isinstance(opened, KafkaFile):
            raise UsageError(f"{path}: a file; name its partition directory or its log dir")
        log_dir = opened if isinstance(opened, LogDir) else LogDir(os.path.dirname(os.path.abspath(path)))
        found = chosen.setdefault(os.path.realpath(log_dir.path), Chosen(log_dir, [], False))
        if isinstance(opened, LogDir):
            chosen[os.path.realpath(log_dir.path)] = Chosen(log_dir, list(log_dir.partitions), whole=True)
        elif all(partition.directory != opened.directory for partition in found.partitions):
            found.partitions.append(log_dir.partition(opened.directory))
    if not (topics or numbers):
        return list(chosen.values())
    every = [partition for one in chosen.values() for partition in one.partitions]
    wanted = set(select(every, topics, numbers))
    kept = [Chosen(one.log_dir, [part for part in one.partitions if part in wanted], False) for one in chosen.values()]
    return [one for one in kept if one.partitions]


def change(
    chosen: Callable[[], list[Chosen]],
    ways: Ways,
    draft: Callable[[list[Chosen], Sequence[Staging]], Drafted],
) -> Changed:
    """Find out what is to change, and change it when that is wanted; *draft* does the finding out.

    The locks are taken before anything is looked at, and held to the end.  What an earlier run has begun is finished
    first; where that cannot be, its partitions are left out.  Raises KlogError.
    """
    disk, log_dirs = Disk(), [os.path.abspath(one.log_dir.path) for one in chosen()]
    now_ms = int(time.time() * 1000)
    name = plan_id(ways.name, now_ms)
    backups = backup_places(name, log_dirs, ways.backup)
    staging: Sequence[str | None] = [None] * len(log_dirs)
    if ways.apply:
        staging = [os.path.join(backup, STAGED) for backup in backups]
    elif ways.plan_file is not None:
        staging = staging_of(staged_beside(ways.plan_file), log_dirs)
    if ways.backup is not None or any(staging):
        # Before a directory is made there, not only when the plan is carried out.
        files = filter(None, [ways.plan_file])
        check_places(log_dirs, files=files, backups=backups, staging=filter(None, staging))
    with ExitStack() as stack:
        locks = stack.enter_context(_locks(log_dirs, disk)) if ways.apply else None
        blocked = _unfinished(log_dirs, disk, locks, now_ms)
        if locks is None:
            _warn_of_brokers(chosen())
        left, refused = _without(chosen(), blocked)
        if locks is not None:
            from klog.plan.locks import check_closed

            check_closed(partition.path for one in left for partition in one.partitions)
        announce = _announce(name, log_dirs, backups, now_ms, disk, stack) if ways.apply else lambda: None
        waiting = [Staging(directory, disk, announce, is_urgent=ways.apply) for directory in staging]
        is_wanted = False
        try:
            drafted = draft(left, waiting)
            plan = make_plan(
                name, command_line(), log_dirs, backups, drafted.drafts, now_ms,
                findings=drafted.findings, losses=drafted.losses, kept=drafted.kept,
                broker_would_keep=drafted.broker_would_keep, locks=locks,
            )  # fmt: skip
            if ways.plan_file is not None:
                _save(plan, ways.plan_file, disk)
            is_wanted = bool(plan.actions)
            if is_wanted and locks is None:
                _warn_of_refusals(plan, disk)
        finally:
            if not is_wanted:
                for one in waiting:
                    one.discard()
        if locks is not None and is_wanted:
            from klog_cli.views.plans import carry_out

            carry_out(plan, disk, locks)
        return Changed(plan if is_wanted else None, locks is not None and is_wanted, refused)


def _announce(
    name: str, log_dirs: Sequence[str], backups: Sequence[str], now_ms: int, disk: Disk, stack: ExitStack
) -> Callable[[], None]:
    """Return what tells of a plan that is being made, before its first new file waits in a backup."""
    from klog.plan.backups import Announcement

    announcement = Announcement(make_plan(name, command_line(), log_dirs, backups, (), now_ms), disk)
    stack.callback(announcement.withdraw)
    return announcement.make


def _locks(log_dirs: Sequence[str], disk: Disk) -> Locks:
    """Return the locks; what only a change needs is loaded when there is one, for most runs only look."""
    from klog.plan.locks import Locks

    return Locks(log_dirs, disk)


def _unfinished(log_dirs: Sequence[str], disk: Disk, locks: Locks | None, now_ms: int) -> dict[str, str]:
    """Finish what was interrupted in these log dirs, once they are locked; else only say what there is.

    Returns the partitions, by their real paths, in which it cannot be finished, with what is to be done about each.
    """
    from klog.plan.backups import is_unfinished, obstacle, plans_of, sweep

    blocked: dict[str, str] = {}
    plans = {kept.plan.id: kept for log_dir in log_dirs for kept in plans_of(log_dir)}
    if locks is not None:
        for plan in sweep(plans.values(), disk):
            output.note(f"{plan.id} was interrupted while it was being made; what it left is removed")
    for kept in filter(lambda kept: is_unfinished(kept.plan), plans.values()):
        path = obstacle(kept.plan)
        if path is not None:
            from klog.plan.undo import way_out

            why = way_out(kept.plan, path, now_ms)
            if why is None:
                place = output.printable(kept.backup)
                output.note(f"{kept.plan.id} was half done when its directories were used: what it kept is in {place}")
        else:
            why = _finish(kept, disk, locks)
        if why is not None:
            blocked.update((os.path.realpath(path), why) for path in kept.plan.partitions())
    return blocked


def _finish(kept: StoredPlan, disk: Disk, locks: Locks | None) -> str | None:
    """Finish a plan that was interrupted, once its log dirs are locked; return what keeps it from that, in words."""
    if locks is None:
        output.note(f"{kept.plan.id} is half done: with --apply it is finished first")
        return None
    if not locks.hold(kept.plan.log_dirs):
        return f"{kept.plan.id} is half done, in other log dirs too; first: klog apply {quoted(kept.backup)}"
    from klog_cli.views.plans import carry_out

    output.note(f"finishing {kept.plan.id}, which was interrupted")
    try:
        carry_out(kept.plan, disk, locks)
    except KlogError as error:
        return str(error)
    return None


def _without(chosen: Sequence[Chosen], blocked: Mapping[str, str]) -> tuple[list[Chosen], bool]:
    """Return what is left of *chosen* without the partitions that are *blocked*, and whether there are any.

    Raises StaleError when nothing is left.
    """
    reasons: dict[str, None] = {}
    left = []
    for one in chosen:
        real = {part.path: os.path.realpath(part.path) for part in one.partitions} if blocked else {}
        found = {path: blocked[place] for path, place in real.items() if place in blocked}
        reasons.update(dict.fromkeys(found.values()))
        partitions = [part for part in one.partitions if part.path not in found]
        left.append(one._replace(partitions=partitions, whole=one.whole and not found))
    if reasons and not any(one.partitions for one in left):
        raise StaleError("; ".join(reasons))
    for reason in reasons:
        output.error(reason)
    return left, bool(reasons)


def _warn_of_brokers(chosen: Sequence[Chosen]) -> None:
    for one in chosen:
        lock, path = one.log_dir.lock, output.printable(one.log_dir.path)
        if lock.held:
            output.note(f"{lock.of(path, with_pid=False)}: what is planned now may be stale")


def _warn_of_refusals(plan: Plan, disk: Disk) -> None:
    from klog.plan.preflight import refusals

    for why in refusals(plan, disk):
        output.note(f"{output.printable(why)}: as things are now, --apply would not do it")


def _save(plan: Plan, path: str, disk: Disk) -> None:
    from klog.plan.executor import bring_to_disk
    from klog.plan.json_file import plan_pieces

    bring_to_disk(plan, disk)
    with NewFile(path) as file:
        for piece in in_pieces(plan_pieces(plan._replace(staging=()))):
            disk.write(OpenFile(file.descriptor, path), piece)
        file.commit()


def settings_json(found: Mapping[str, Setting]) -> dict[str, object]:
    """Return settings with where each came from, as JSON has them."""
    return {name: {"value": one.value, "origin": one.origin.value, "name": one.name} for name, one in found.items()}


def settings_text(found: Mapping[str, Setting]) -> str:
    """Return settings with where each came from, for people."""
    return ", ".join(f"{name} {_in_words(one.value)} ({one.origin.value})" for name, one in found.items())


def _in_words(value: Value) -> str:
    """Return a setting's value as Kafka has it."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def one_way(apply: bool, plan_file: str | None) -> None:
    """Raise UsageError when a plan is to be both carried out and saved."""
    if apply and plan_file is not None:
        raise UsageError("--apply and --plan: one of them; 'klog apply' carries out a plan that was saved")


def next_step(changed: Changed, ways: Ways) -> str:
    """Return what to do next, once something is to change or has changed."""
    assert changed.plan is not None
    if changed.is_applied:
        return f"next: start the broker; until then 'klog undo {changed.plan.id} --apply' takes it back"
    where = with_option("--apply") if ways.plan_file is None else f"klog apply {quoted(ways.plan_file)}"
    return f"nothing has been changed; next: {where}"


def command_line() -> str:
    """Return the command as it was typed."""
    return " ".join(map(quoted, ["klog", *sys.argv[1:]]))


def with_option(option: str, without: Sequence[str] = ()) -> str:
    """Return the command as it was typed, with *option* and without others."""
    kept = [argument for argument in sys.argv[1:] if argument not in without]
    return output.printable(" ".join(map(quoted, ["klog", *kept, option])))
