"""What `klog recover` found out, and what it is going to do or has done."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from klog.check.findings import Finding, Severity
from klog.draft import Staging
from klog.partition import Partition
from klog.plan import Action, Amount, Loss
from klog.recover.recover import Recovery, Target
from klog.recover.result import Mode, Result, Settings

from klog_cli import output
from klog_cli.actions import action_line, changes
from klog_cli.changing import Changed, Chosen, Drafted, Ways, change, choose, next_step, with_option

CORRECTED, LEFT, COULD_NOT = 1, 4, 8

_ADVICE = (
    "if another replica of a damaged partition is in sync, drop this copy, or truncate it on a follower, rather than"
    " repair it: klog cannot know"
)


def recover(
    paths: Sequence[str],
    topics: Sequence[str],
    numbers: Sequence[int],
    settings: Settings,
    options: Mapping[str, str],
    ways: Ways,
    form: str,
    rescue_to: str | None = None,
) -> int:
    """Plan a repair, carry it out where that is wanted, and return the exit code.  Raises KlogError.

    *rescue_to*: a file for the records of damaged batches that decode all the same.
    """
    found: list[Recovery] = []

    def draft(chosen: list[Chosen], staging: Sequence[Staging]) -> Drafted:
        targets = [Target(one.log_dir, one.partitions, one.whole) for one in chosen]
        with output.Results() as results:
            recovery = Recovery(targets, settings, staging, options, results)
        found.append(recovery)
        if rescue_to is not None:
            _rescue(recovery, rescue_to)
        findings = [finding.json() for finding in (*recovery.findings, *_findings(recovery.results))]
        return Drafted(recovery.drafts, findings, recovery.losses, recovery.kept, recovery.broker_would_keep)

    changed = change(lambda: choose(paths, topics, numbers), ways, draft)
    shown = _Shown(found[0], settings, changed)
    if form == "json":
        output.emit_json(shown.json())
    else:
        for line in shown.lines():
            output.text(f"{output.printable(line)}\n")
        for line in shown.notes(ways):
            output.note(line)
    return shown.exit_code


def _rescue(recovery: Recovery, path: str) -> None:
    """Write what can be rescued, before anything is changed."""
    with output.Results(path) as results:
        records = recovery.rescue(results)
    output.note(
        f"{records} records of damaged batches are in {output.printable(path)}: nobody knows what is wrong in them"
    )


def _findings(results: Sequence[Result]) -> Iterator[Finding]:
    for result in results:
        yield from result.findings


class _Shown:
    def __init__(self, recovery: Recovery, settings: Settings, changed: Changed) -> None:
        self._recovery, self._settings = recovery, settings
        self._plan, self._is_applied = changed

    @property
    def _left(self) -> bool:
        results = self._recovery.results
        return bool(self._recovery.left) or any(result.left or result.fails for result in results)

    @property
    def exit_code(self) -> int:
        """Return fsck's: corrected, left, could not."""
        could_not = COULD_NOT if any(result.could_not for result in self._recovery.results) else 0
        if self._is_applied:
            return CORRECTED + (LEFT if self._left else 0) + could_not
        problems = any(finding.severity is not Severity.NOTE for finding in _findings(self._recovery.results))
        problems |= any(finding.severity is not Severity.NOTE for finding in self._recovery.findings)
        planned = self._plan is not None and (problems or self._settings.mode is Mode.LIKE_BROKER)
        return (LEFT if planned or self._left else 0) + could_not

    def json(self) -> dict[str, object]:
        """Return everything as the members of a JSON object: the plan, and what came of each partition."""
        from klog.plan_file import plan_json

        recovery = self._recovery
        members: dict[str, object] = plan_json(self._plan) if self._plan is not None else {"id": None, "actions": []}
        return {
            **members,
            "applied": self._is_applied,
            "findings": [finding.json() for finding in (*recovery.findings, *_findings(recovery.results))],
            "kept": recovery.kept._asdict(),
            "lost": [loss._asdict() for loss in recovery.losses],
            "broker_would_keep": recovery.broker_would_keep and recovery.broker_would_keep._asdict(),
            "partitions": [self._result_json(result) for result in recovery.results],
            "left": [
                finding.json() for finding in (*recovery.left, *(one for r in recovery.results for one in r.left))
            ],
        }

    def _all_left(self) -> Iterator[Finding]:
        yield from self._recovery.left
        for result in self._recovery.results:
            yield from result.left

    def _result_json(self, result: Result) -> dict[str, object]:
        return {
            "topic": result.partition.topic,
            "partition": result.partition.number,
            "directory": result.partition.directory,
            "result": self._outcome(result),
            "actions": len(self._actions(result.partition)),
            "left": [finding.id for finding in result.left],
            "reason": result.fails,
            "choices": {mode.value: [loss._asdict() for loss in losses] for mode, losses in result.choices.items()},
            "notes": result.notes,
        }

    def _outcome(self, result: Result) -> str:
        if result.fails is not None:
            return "failed"
        if self._actions(result.partition):
            return "repaired" if self._is_applied else "to repair"
        return "left" if result.left else "clean"

    def _actions(self, partition: Partition) -> list[Action]:
        plan = self._plan
        if plan is None:
            return []
        place = f"{partition.directory}/"
        log_dir = os.path.dirname(os.path.abspath(partition.path))
        return [
            action
            for action in plan.actions
            if action.file.startswith(place) and plan.log_dirs[action.log_dir] == log_dir
        ]

    # for people

    def lines(self) -> Iterator[str]:
        """Yield what was found and is done about it, partition by partition, and the sum."""
        for finding in self._recovery.findings:
            if finding.severity is not Severity.NOTE:
                yield _line(finding)
        for result in self._recovery.results:
            yield from self._of_partition(result)
        plan = self._plan
        if plan is not None:
            for action in plan.actions:
                if "/" not in action.file:
                    yield action_line(plan, action)
        yield from self._sum()

    def _of_partition(self, result: Result) -> Iterator[str]:
        actions = self._actions(result.partition)
        told = [
            one for one in result.findings if one.severity is not Severity.NOTE or (actions and one.id != "vanished")
        ]
        if not (actions or told or result.fails):
            return
        yield result.partition.path
        for finding in told:
            yield f"  {_line(finding)}"
        if result.fails is not None:
            yield f"  nothing is changed here: {result.fails}"
        plan = self._plan
        if plan is not None:
            yield from (f"  {action_line(plan, action)}" for action in actions)
        for loss in result.losses:
            yield f"  lost     {_loss(loss)}"
        for mode, losses in result.choices.items():
            yield f"  --{mode.value} would lose {_total(losses)}"
        yield from (f"  {note}" for note in result.notes)

    def _sum(self) -> Iterator[str]:
        recovery, plan = self._recovery, self._plan
        partitions = len(recovery.results)
        if plan is None:
            yield f"{partitions} partition{'s' * (partitions != 1)}: nothing to do" + (
                "; problems are left" * self._left
            )
            return
        done = "made" if self._is_applied else "planned"
        touched = sum(1 for result in recovery.results if self._actions(result.partition))
        yield f"{changes(len(plan.actions))} {done} in {touched} of {_counted(partitions)}"
        if recovery.losses:
            yield f"lost: {_total(recovery.losses)}"
            kept = recovery.broker_would_keep
            broker = (
                f"{kept.records} records, {kept.bytes} bytes" if kept is not None else "nothing: it would not start"
            )
            yield f"kept: {recovery.kept.records} records, {recovery.kept.bytes} bytes; a broker would keep {broker}"
        if self._is_applied:
            yield f"backup: {plan.backups[0]}"

    def notes(self, ways: Ways) -> Iterator[str]:
        """Yield what to do next."""
        results, plan = self._recovery.results, self._plan
        for partition in self._recovery.skipped:
            yield f"{partition.path} is not touched"
        if any(result.losses or result.choices for result in results):
            yield _ADVICE
        if any(result.choices for result in results):
            for mode in (Mode.LIKE_BROKER, Mode.SALVAGE):
                yield f"next: {with_option(f'--{mode.value}', ('--apply',))}"
        if plan is not None:
            yield next_step(Changed(plan, self._is_applied), ways)


def _counted(partitions: int) -> str:
    return f"{partitions} partition{'s' * (partitions != 1)}"


def _amount(amount: Amount) -> str:
    return f"{amount.records} records, {amount.bytes} bytes"


def _line(finding: Finding) -> str:
    place = finding.file.rpartition("/")[2]
    if finding.position is not None:
        place += f" @ {finding.position}"
    if finding.offset is not None:
        place += f" (offset {finding.offset})"
    return f"{finding.severity.value:<8} {finding.id:<22}{place}: {finding.message}"


def _loss(loss: Loss) -> str:
    records = "an unknown number of" if loss.records is None else str(loss.records)
    offsets = "" if loss.first_offset is None else f", offsets {loss.first_offset} to {_end(loss)}"
    return f"{records} records{offsets}, {loss.bytes} bytes ({loss.reason})"


def _end(loss: Loss) -> str:
    return "the end" if loss.last_offset is None else str(loss.last_offset)


def _total(losses: Sequence[Loss]) -> str:
    records = sum(loss.records or 0 for loss in losses)
    more = "at least " if any(loss.records is None for loss in losses) else ""
    ends = [loss.last_offset for loss in losses if loss.last_offset is not None]
    firsts = [loss.first_offset for loss in losses if loss.first_offset is not None]
    offsets = f", offsets {min(firsts)} to {max(ends)}" if firsts and ends else ""
    return f"{more}{records} records, {sum(loss.bytes for loss in losses)} bytes{offsets}"
