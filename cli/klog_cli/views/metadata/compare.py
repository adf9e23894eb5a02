"""`klog metadata compare`: from the paths to the output."""

from __future__ import annotations

from collections.abc import Sequence

from klog.base.errors import ExitCode, counted
from klog.commands.replicas.metadata_log_comparison import ComparedLog, Divergence, LogComparison, compare_logs
from klog.data_dir.partition_identity import IdentityChoice

from klog_cli import output
from klog_cli.style import bad, good, strong, warning
from klog_cli.views.metadata.json import point, quorum_state

_COLUMNS = ("log", "roles", "end", "epoch", "snapshot", "behind", "note")


def compare(paths: Sequence[str], choice: IdentityChoice, form: str) -> int:
    """Print which log is ahead and where two fork, and return the exit code.

    Raises UsageError, UnreadableError, KlogError.
    """
    found = compare_logs(paths, choice)
    if found.left_out is not None:
        output.note(found.left_out)
    if form == "json":
        output.emit_json(_document(found))
    else:
        _print(found)
    is_sound = not found.diverged and not found.lag
    is_sound = is_sound and not any(log.bad_batches or log.stops is not None for log in found.logs)
    return ExitCode.CLEAN if is_sound else ExitCode.PROBLEMS_LEFT


def _document(found: LogComparison) -> dict[str, object]:
    return {
        "cluster_id": found.cluster_id,
        "logs": [_log(log) for log in found.logs],
        "best": found.logs[found.best].node,
        "best_dir": found.logs[found.best].path,
        "diverged": [
            {
                "nodes": [found.logs[i].node for i in one.logs],
                "dirs": [found.logs[i].path for i in one.logs],
                "offset": one.offset,
                "epochs": list(one.epochs),
            }
            for one in found.diverged
        ],
        "behind_logs": found.lag.description or None,
    }


def _log(log: ComparedLog) -> dict[str, object]:
    snapshots = log.directory.snapshots
    return {
        "node": log.node,
        "dir": log.path,
        "roles": list(log.roles),
        "start": log.start,
        "end": point(log.end),
        "snapshot": point(snapshots[0]) if snapshots else None,
        "quorum_state": quorum_state(log.directory.quorum_state),
        "behind": log.behind,
        "bad_batches": list(log.bad_batches),
        "gone": log.gone,
    }


def _print(found: LogComparison) -> None:
    rows = []
    for i, log in enumerate(found.logs):
        snapshots = log.directory.snapshots
        remark = good("ahead") if i == found.best else ""
        if log.gone:
            are = "is" if log.gone == 1 else "are"
            remark = bad(f"its node truncates it there: {counted(log.gone, 'offset')} behind damage {are} gone")
        elif log.bad_batches:
            remark = bad(f"{counted(len(log.bad_batches), 'bad batch', 'es')}, the first at {log.bad_batches[0]}")
        elif log.stops is not None:
            remark = bad("its node does not start: klog doctor")
        roles = " ".join(log.roles)
        newest = snapshots[0].offset if snapshots else None
        rows.append((strong(log.name), roles, log.end.offset, log.end.epoch, newest, log.behind, remark))
    best = found.logs[found.best].name
    titles = [good("all one history")] if not found.diverged else []
    titles += [f"{bad('diverged')}: {_fork(found, one)}" for one in found.diverged]
    if found.lag:
        titles.append(
            f"{warning('behind')}: the log of {best} is behind the logs of partitions: {found.lag.description}"
        )
    titles += [
        f"{bad('damaged')}: {log.name} stops on its newest snapshot: {log.stops}" for log in found.logs if log.stops
    ]
    output.emit_table([*titles, ""], _COLUMNS, rows)


def _fork(found: LogComparison, one: Divergence) -> str:
    names = " and ".join(found.logs[i].name for i in one.logs)
    if one.epochs[0] == one.epochs[1]:
        seen = f"both in epoch {one.epochs[0]}: no node would notice"
    else:
        seen = f"epoch {one.epochs[0]} there and {one.epochs[1]} here: the one of the older epoch would be cut"
    return f"{names} have different batches from offset {one.offset} on, {seen}"
