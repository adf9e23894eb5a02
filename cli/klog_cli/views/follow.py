"""`klog follow`: its run, its end and its messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from klog.base.errors import ExitCode, counted

from klog_cli import output, style

if TYPE_CHECKING:
    from klog.commands.follow.follow import FollowResult
    from klog.commands.follow.follow_options import FollowOptions
    from klog.commands.follow.followed_partition import FollowedPartition


def follow(bootstrap: str, to: str, options: FollowOptions, security_config: str | None, form: str) -> int:
    """Follow the cluster until that is done or a signal ends it; return the exit code.  Raises KlogError, OSError."""
    from klog.base.interruptible_threads import run_all
    from klog.commands.follow.client.client_security import Security, read_security
    from klog.commands.follow.client.cluster import parse_bootstrap
    from klog.commands.follow.copy_dir import CopyDir
    from klog.commands.follow.follow import FollowRun

    parse_bootstrap(bootstrap)
    security = read_security(security_config) if security_config is not None else Security()
    stop = threading.Event()
    found: list[FollowResult] = []
    with _Reports(options.trace) as reports:

        def run() -> None:
            with CopyDir(to, reporter=reports) as copy_dir:
                found.append(FollowRun(bootstrap, security, copy_dir, options, reports, stop).run())

        is_cancelled = False
        try:
            run_all([run], stop.set)
        except KeyboardInterrupt:
            is_cancelled = True
    if not found:
        return ExitCode.CANCELLED
    _show(found[0], form)
    return found[0].exit_code | (ExitCode.CANCELLED if is_cancelled and not options.continuous else 0)


class _Reports(output.TerminalReporter):
    """Lines from several threads, one at a time, and a bar."""

    def __init__(self, trace: bool) -> None:
        from klog_cli.progress import LagBar

        self._lock = threading.Lock()
        on_stdout = trace and output.is_terminal()
        self._bar = LagBar(not output.Quiet.on and output.is_terminal(output.STDERR) and not on_stdout)
        self._read = True

    def __enter__(self) -> _Reports:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def note(self, message: str) -> None:
        with self._lock:
            self._bar.clear()
            output.note(message)

    def error(self, message: str) -> None:
        with self._lock:
            self._bar.clear()
            output.error(message)

    def trace(self, line: str) -> None:
        """Print a line about an event; a copy continues after the output has lost its reader."""
        with self._lock:
            try:
                if self._read:
                    output.lines([line])
            except output.ClosedPipeError:
                self._read = False

    def advance(self, size: int, lag: int) -> None:
        with self._lock:
            self._bar.advance(size, lag)


# ---------------------------------------------------------------- results


def _show(done: FollowResult, form: str) -> None:
    if form == "json":
        rows = [_row(partition) for partition in done.partitions]
        backup = done.backups[0] if done.backups else None
        output.emit_json({"cluster_id": done.cluster_id, "partitions": rows, "backup": backup, "backups": done.backups})
    elif form == "jsonl":
        output.emit_jsonl(map(_row, done.partitions))
    else:
        output.lines(_lines(done))


def _row(partition: FollowedPartition) -> dict[str, object]:
    copy = partition.copy
    return {
        "topic": partition.place.topic,
        "partition": partition.place.number,
        "topic_id": copy.topic_id,
        "leader": max(partition.leader, -1),
        "leader_epoch": partition.leader_epoch,
        "first_offset": partition.first_offset,
        "log_end_offset": copy.end,
        "high_watermark": copy.high_watermark,
        "log_start_offset": copy.log_start,
        "copied_bytes": partition.copied_bytes,
        "copied_batches": partition.copied_batches,
        "missed": partition.missed,
        "cut": partition.cut,
        "cleaned_from": partition.cleaning.lost_from,
        "error": partition.error,
    }


def _lines(done: FollowResult) -> Iterator[str]:
    """Yield the state of the copy, and a line for each partition that moved, or that needs attention."""
    yield _verdict(done)
    shown = [one for one in done.partitions if one.copied_batches or one.missed or one.cut or one.error or one.lag]
    width = max((len(one.name) for one in shown), default=0)
    for one in shown:
        yield f"{style.strong(f'{one.name:{width}}')}  {', '.join(_parts(one))}"
    yield from (f"backup: {backup}" for backup in done.backups)


def _verdict(done: FollowResult) -> str:
    size = output.human_size(sum(one.copied_bytes for one in done.partitions))
    there = f"{counted(len(done.partitions), 'partition')} of cluster {done.cluster_id}"
    moved = sum(1 for one in done.partitions if one.copied_batches)
    copied = f"{style.strong(size)} copied" + (f" into {counted(moved, 'partition')}" if moved else "")
    failed = sum(1 for one in done.partitions if one.error)
    behind = sum(1 for one in done.partitions if one.lag and not one.error)
    if failed:
        return f"{style.bad('not caught up')}: {failed} of {there} failed; {copied}"
    if behind:
        return f"{style.warning('not caught up')}: {behind} of {there} behind; {copied}"
    return f"{style.good('caught up')}: {there}; {copied}"


def _parts(one: FollowedPartition) -> Iterator[str]:
    if one.copied_batches:
        size = output.human_size(one.copied_bytes)
        offsets = output.range_text(one.first_offset, one.copy.end - 1)
        yield f"offsets {offsets}, {counted(one.copied_batches, 'batch', 'es')}, {size}"
    for first, last in one.cut:
        yield style.bad(f"truncated {output.range_text(first, last)}")
    for first, last in one.missed:
        yield style.bad(f"missed {output.range_text(first, last)}")
    if one.error:
        yield style.bad(one.error)
    elif one.lag:
        yield style.warning(f"{counted(one.lag, 'offset')} behind")
