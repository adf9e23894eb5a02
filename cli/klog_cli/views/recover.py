"""The output of `klog recover`: the findings, and the changes that it has made or would make."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from klog.base.errors import ExitCode, UsageError, counted
from klog.base.progress import Sink
from klog.change.plan.model import Action, Amount, Loss
from klog.change.plan.session import PlanOptions, PlanResult, PlanSession
from klog.commands.recover.recover_outcome import OtherMode, RecoverMode, RecoverOptions, RecoverResult
from klog.commands.recover.recovery import Recovery, recover_log_dirs
from klog.data_dir.disk.output_gate import check_output
from klog.data_dir.partition import Partition
from klog.data_dir.selection import PartitionQuery
from klog.partition.verify.findings import Finding, Severity

from klog_cli import output
from klog_cli.command_line import next_step, with_option
from klog_cli.views.finding_lines import finding_lines, grouped
from klog_cli.views.plan_lines import action_lines, changes, first_lines, make_indexes
from klog_cli.views.topic_settings import settings_json, settings_text

if TYPE_CHECKING:
    from klog.commands.recover.mark_clean import MarkCleanRefusal, MarkCleanResult

_ADVICE = (
    "if another replica of a damaged partition is in sync, drop this copy, or truncate it on a follower, rather than"
    " repair it: klog cannot know"
)
_NOTHING_CLAIMED = (
    "the marker claims nothing about lost records: in elections this broker counts as one that has recovered its logs"
    " itself, so a controller of 4.1 or later takes it out of the in-sync replicas until it has caught up"
)
_ALL_CLAIMED = (
    "the marker claims, on your word, that no record was lost since this broker ran: elections count it as cleanly"
    " stopped; after a power cut, or with a volume that moved, that would cost committed records"
)
_OF_ZOOKEEPER = "the marker is empty, as brokers with ZooKeeper write it; elections ignore it"


def recover(
    query: PartitionQuery,
    settings: RecoverOptions,
    options: Mapping[str, str],
    plan_options: PlanOptions,
    form: str,
    rescue_to: str | None = None,
) -> int:
    """Plan a repair, carry it out if requested, and return the exit code.  Raises KlogError.

    *rescue_to*: a file for the records of damaged batches that still decode.
    """
    if rescue_to is not None:
        check_output(rescue_to, query.paths)
    if settings.mark_clean:
        part = next((one.log_dir.path for one in query.selections() if not one.whole), None)
        if part is not None:
            raise UsageError(f"--mark-clean is about whole log dirs: name {output.printable(part)}")
    with PlanSession(query, plan_options, reporter=output.TerminalReporter()) as session:
        with output.Results() as results:
            recovery, marking = _recovered(session, settings, options, results)
        if rescue_to is not None:
            _rescue(recovery, rescue_to)
        result = session.finish(
            recovery.drafts,
            findings=[finding.json() for finding in (*recovery.findings, *_findings(recovery.results))],
            losses=recovery.losses,
            kept=recovery.kept,
            broker_would_keep=recovery.broker_would_keep,
        )
    shown = _RecoveryReport(recovery, marking, settings, result)
    if form == "json":
        output.emit_json(shown.json())
    else:
        output.lines(shown.lines())
        for line in shown.notes():
            output.note(line)
        if result.plan is not None:
            output.lines(next_step(result, plan_options))
    return shown.exit_code


def _recovered(
    session: PlanSession, settings: RecoverOptions, options: Mapping[str, str], results: Sink
) -> tuple[Recovery, MarkCleanResult | None]:
    """Draft the repair; the modules for marking log dirs are loaded only if some are to be marked."""
    if not settings.mark_clean:
        return recover_log_dirs(session.selections, settings, session.staging, options, results), None
    from klog.commands.recover.mark_clean import mark_clean

    marking = mark_clean(session.selections, settings, session.staging, options, results)
    return marking.recovery, marking


def _rescue(recovery: Recovery, path: str) -> None:
    """Write the rescued records, before any change."""
    with output.Results(path) as results:
        records = recovery.rescue(results)
    output.note(f"{records} records of damaged batches are in {output.printable(path)}: they may contain errors")


def _findings(results: Sequence[RecoverResult]) -> Iterator[Finding]:
    for result in results:
        yield from result.findings


class _RecoveryReport:
    def __init__(
        self, recovery: Recovery, marking: MarkCleanResult | None, settings: RecoverOptions, result: PlanResult
    ) -> None:
        self._recovery, self._marking, self._settings = recovery, marking, settings
        self._plan, self._is_applied, self._is_partial = result

    @property
    def _left(self) -> bool:
        results = self._recovery.results
        data = any(not refusal.could_not for refusal in self._refusals)
        return data or bool(self._recovery.left) or any(result.left or result.fails for result in results)

    @property
    def _refusals(self) -> list[MarkCleanRefusal]:
        return self._marking.refusals if self._marking is not None else []

    @property
    def exit_code(self) -> int:
        """Return fsck's: corrected, left, could not."""
        is_refused = any(refusal.could_not for refusal in self._refusals)
        is_refused |= self._is_partial or any(result.could_not for result in self._recovery.results)
        could_not = ExitCode.OPERATIONAL_ERROR if is_refused else 0
        if self._is_applied:
            return ExitCode.CORRECTED + (ExitCode.PROBLEMS_LEFT if self._left else 0) + could_not
        problems = any(finding.severity is not Severity.NOTE for finding in _findings(self._recovery.results))
        problems |= any(finding.severity is not Severity.NOTE for finding in self._recovery.findings)
        planned = self._plan is not None and (problems or self._settings.mode is RecoverMode.LIKE_BROKER)
        return (ExitCode.PROBLEMS_LEFT if planned or self._left else 0) + could_not

    def json(self) -> dict[str, object]:
        """Return everything as the members of a JSON object: the plan, and the outcome of each partition."""
        from klog.change.plan.plan_document import plan_json

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
            "left": [finding.json() for finding in self._all_left()],
            **self._marked_json(),
        }

    def _marked_json(self) -> dict[str, object]:
        if self._marking is None:
            return {}
        return _marking_json(self._marking)

    def _all_left(self) -> Iterator[Finding]:
        yield from self._recovery.left
        for result in self._recovery.results:
            yield from result.left

    def _result_json(self, result: RecoverResult) -> dict[str, object]:
        return {
            "topic": result.partition.topic,
            "partition": result.partition.number,
            "directory": result.partition.directory,
            "result": self._outcome(result),
            "actions": len(self._actions(result.partition)),
            "left": [finding.id for finding in result.left],
            "reason": result.fails,
            "choices": {mode.value: _choice_json(choice) for mode, choice in result.choices.items()},
            "notes": result.notes,
            "settings": settings_json(result.settings),
        }

    def _outcome(self, result: RecoverResult) -> str:
        if result.fails is not None:
            return "failed"
        if self._actions(result.partition):
            return "repaired" if self._is_applied else "to repair"
        return "left" if result.left else "clean"

    def _actions(self, partition: Partition) -> list[Action]:
        return self._by_directory.get((partition.log_dir, partition.directory), [])

    @cached_property
    def _by_directory(self) -> dict[tuple[str, str], list[Action]]:
        """The actions by log dir and directory in it; the log dir's own files have none."""
        found: dict[tuple[str, str], list[Action]] = {}
        for action in self._plan.actions if self._plan is not None else ():
            assert self._plan is not None
            found.setdefault((self._plan.log_dirs[action.log_dir], os.path.dirname(action.file)), []).append(action)
        return found

    # for people

    def lines(self) -> Iterator[str]:
        """Yield the findings and the changes, partition by partition, and the sum."""
        worth_telling = [one for one in self._recovery.findings if one.severity is not Severity.NOTE]
        yield from finding_lines(grouped(worth_telling))
        for result in self._recovery.results:
            yield from self._of_partition(result)
        plan = self._plan
        if plan is not None:
            yield from action_lines(plan, [action for action in plan.actions if "/" not in action.file])
        if self._marking is not None:
            yield from _marked_lines(self._marking, is_applied=self._is_applied)
        yield from self._sum()

    def _of_partition(self, result: RecoverResult) -> Iterator[str]:
        actions = self._actions(result.partition)
        told = [
            one for one in result.findings if one.severity is not Severity.NOTE or (actions and one.id != "vanished")
        ]
        if not (actions or told or result.fails):
            return
        yield result.partition.path
        yield from (f"  {line}" for line in finding_lines(grouped(told)))
        if result.fails is not None:
            yield f"  nothing is changed here: {result.fails}"
        plan = self._plan
        if plan is not None:
            yield from (f"  {line}" for line in [*action_lines(plan, actions, in_partition=True)])
        if make_indexes(actions):
            yield f"  {settings_text(result.settings)}"
        yield from (f"  {line}" for line in first_lines([f"lost     {_loss(one)}" for one in result.losses], "losses"))
        for mode, choice in result.choices.items():
            command = with_option(f"--{mode.value}", ("--apply", "--indexes-only"))
            yield f"  --{mode.value} would lose {_total(choice.losses)}, and keep {_amount(choice.kept)}:"
            yield f"      {command}"
        yield from (f"  {note}" for note in result.notes)

    def _sum(self) -> Iterator[str]:
        recovery, plan = self._recovery, self._plan
        partitions = len(recovery.results)
        if plan is None:
            done = "nothing is done" if self._refusals else "nothing to do"
            yield f"{counted(partitions, 'partition')}: {done}" + "; problems are left" * self._left
            return
        done = "made" if self._is_applied else "planned"
        touched = sum(1 for result in recovery.results if self._actions(result.partition))
        yield f"{changes(len(plan.actions))} {done} in {touched} of {counted(partitions, 'partition')}"
        if recovery.losses:
            yield f"lost: {_total(recovery.losses)}"
            kept = recovery.broker_would_keep
            broker = (
                f"{kept.records} records, {kept.bytes} bytes" if kept is not None else "nothing: it would not start"
            )
            yield f"kept: {recovery.kept.records} records, {recovery.kept.bytes} bytes; a broker would keep {broker}"
        if self._is_applied:
            yield f"backup: {plan.backups[0]}"

    def notes(self) -> Iterator[str]:
        """Yield remarks for the user."""
        results = self._recovery.results
        for partition in self._recovery.skipped:
            yield f"{partition.path} is not touched"
        if any(result.losses or result.choices for result in results):
            yield _ADVICE
        if self._marking is not None:
            yield from _marker_notes(self._marking, from_recovery_point=self._settings.from_recovery_point)


def _choice_json(choice: OtherMode) -> dict[str, object]:
    return {"lost": [loss._asdict() for loss in choice.losses], "kept": choice.kept._asdict()}


def _amount(amount: Amount) -> str:
    return f"{amount.records} records, {amount.bytes} bytes"


def _loss(loss: Loss) -> str:
    offsets = "" if loss.first_offset is None else f", offsets {loss.first_offset} to {_end(loss)}"
    return f"{_records([loss])}{offsets}, {loss.bytes} bytes ({loss.reason})"


def _end(loss: Loss) -> str:
    return "the end" if loss.last_offset is None else str(loss.last_offset)


def _records(losses: Sequence[Loss]) -> str:
    known = sum(loss.records or 0 for loss in losses)
    if all(loss.records is not None for loss in losses):
        return f"{known} records"
    return f"at least {known} records" if known else "an unknown number of records"


def _total(losses: Sequence[Loss]) -> str:
    bounded = [(loss.first_offset, loss.last_offset) for loss in losses if loss.first_offset is not None]
    ends = [last for _, last in bounded if last is not None]
    # Offsets of several partitions have nothing to do with each other.
    is_one = len({(loss.topic, loss.partition) for loss in losses}) == 1
    known = is_one and ends and len(ends) == len(bounded)
    offsets = f", offsets {min(first for first, _ in bounded)} to {max(ends)}" if known else ""
    return f"{_records(losses)}, {sum(loss.bytes for loss in losses)} bytes{offsets}"


# --mark-clean


def _marked_lines(marking: MarkCleanResult, *, is_applied: bool) -> Iterator[str]:
    """Yield a line for each log dir."""
    for path in marking.marked:
        yield f"{path}: {'is' if is_applied else 'will be'} marked as cleanly stopped"
    for path in marking.marked_before:
        yield f"{path}: is marked as cleanly stopped already, and is not looked at ('klog verify' does)"
    for refusal in marking.refusals:
        yield f"{refusal.log_dir}: nothing is changed, and it is not marked: {refusal.why}"


def _marker_notes(marking: MarkCleanResult, *, from_recovery_point: bool) -> Iterator[str]:
    """Yield the meaning of the markers, and the next step for log dirs without one."""
    from klog.commands.recover.mark_clean import NOBODYS_EPOCH

    kraft = [one.is_kraft for one in marking.log_dirs if one.path in marking.marked]
    if any(kraft):
        yield _NOTHING_CLAIMED if marking.epoch == NOBODYS_EPOCH else _ALL_CLAIMED
    if not all(kraft):
        yield _OF_ZOOKEEPER
    if marking.marked and from_recovery_point:
        yield "what lies below the recovery points was not looked at, as a broker would not"
    for first in dict.fromkeys(refusal.first for refusal in marking.refusals):
        if first is not None:
            yield f"first: {first}"


def _marking_json(marking: MarkCleanResult) -> dict[str, object]:
    """Return the members about markers."""
    return {
        "marked": marking.marked,
        "marked_before": marking.marked_before,
        "broker_epoch": marking.epoch if marking.marked else None,
        "refused": [_refusal_json(refusal) for refusal in marking.refusals],
    }


def _refusal_json(refusal: MarkCleanRefusal) -> dict[str, object]:
    return {"log_dir": refusal.log_dir, "reason": refusal.why, "first": refusal.first}
