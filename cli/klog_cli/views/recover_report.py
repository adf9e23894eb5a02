"""The results of `klog recover`: the exit code, and everything as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from klog.base.errors import ExitCode
from klog.change.plan.model import Action
from klog.change.plan.session import PlanResult
from klog.commands.recover.recovery import Recovery
from klog.data_dir.partition import Partition
from klog.partition.repair.recover_outcome import OtherMode, RecoverMode, RecoverOptions, RecoverResult
from klog.partition.verify.findings import Finding, Severity

from klog_cli.views.topic_settings import settings_json

if TYPE_CHECKING:
    from klog.commands.recover.mark_clean import MarkCleanRefusal, MarkCleanResult


def findings_of(results: Sequence[RecoverResult]) -> Iterator[Finding]:
    """Yield the findings of all partitions."""
    for result in results:
        yield from result.findings


class RecoveryReport:
    """The results of a repair, for text and JSON."""

    def __init__(
        self, recovery: Recovery, marking: MarkCleanResult | None, settings: RecoverOptions, result: PlanResult
    ) -> None:
        self.recovery, self.marking, self.settings = recovery, marking, settings
        self.plan, self.is_applied, self._is_partial = result

    @property
    def is_left(self) -> bool:
        """Whether problems remain."""
        results = self.recovery.results
        data = any(not refusal.could_not for refusal in self.refusals)
        return data or bool(self.recovery.left) or any(result.left or result.fails for result in results)

    @property
    def refusals(self) -> list[MarkCleanRefusal]:
        """The log dirs that are not marked, and why."""
        return self.marking.refusals if self.marking is not None else []

    @property
    def exit_code(self) -> int:
        """Return fsck's: corrected, left, could not."""
        is_refused = any(refusal.could_not for refusal in self.refusals)
        is_refused |= self._is_partial or any(result.could_not for result in self.recovery.results)
        could_not = ExitCode.OPERATIONAL_ERROR if is_refused else 0
        if self.is_applied:
            return ExitCode.CORRECTED + (ExitCode.PROBLEMS_LEFT if self.is_left else 0) + could_not
        problems = any(finding.severity is not Severity.NOTE for finding in findings_of(self.recovery.results))
        problems |= any(finding.severity is not Severity.NOTE for finding in self.recovery.findings)
        planned = self.plan is not None and (problems or self.settings.mode is RecoverMode.LIKE_BROKER)
        return (ExitCode.PROBLEMS_LEFT if planned or self.is_left else 0) + could_not

    def json(self) -> dict[str, object]:
        """Return everything as the members of a JSON object: the plan, and the outcome of each partition."""
        from klog.change.plan.plan_document import plan_json

        recovery = self.recovery
        left = [finding for result in recovery.results for finding in result.left]
        return {
            **plan_json(self.plan),
            "applied": self.is_applied,
            "findings": [finding.json() for finding in (*recovery.findings, *findings_of(recovery.results))],
            "kept": recovery.kept._asdict(),
            "lost": [loss._asdict() for loss in recovery.losses],
            "broker_would_keep": recovery.broker_would_keep and recovery.broker_would_keep._asdict(),
            "partitions": [self._result_json(result) for result in recovery.results],
            "left": [finding.json() for finding in (*recovery.left, *left)],
            **(_marking_json(self.marking) if self.marking is not None else {}),
        }

    def _result_json(self, result: RecoverResult) -> dict[str, object]:
        return {
            "topic": result.partition.topic,
            "partition": result.partition.number,
            "directory": result.partition.directory,
            "result": self._outcome(result),
            "actions": len(self.actions(result.partition)),
            "left": [finding.id for finding in result.left],
            "reason": result.fails,
            "choices": {mode.value: _choice_json(choice) for mode, choice in result.choices.items()},
            "notes": result.notes,
            "settings": settings_json(result.settings),
        }

    def _outcome(self, result: RecoverResult) -> str:
        if result.fails is not None:
            return "failed"
        if self.actions(result.partition):
            return "repaired" if self.is_applied else "to repair"
        return "left" if result.left else "clean"

    def actions(self, partition: Partition) -> list[Action]:
        """Return the changes of a partition."""
        return self._by_directory.get((partition.log_dir, partition.directory), [])

    @cached_property
    def _by_directory(self) -> dict[tuple[str, str], list[Action]]:
        """The actions by log dir and directory in it; the log dir's own files have none."""
        found: dict[tuple[str, str], list[Action]] = {}
        for action in self.plan.actions if self.plan is not None else ():
            assert self.plan is not None
            found.setdefault((self.plan.log_dirs[action.log_dir], os.path.dirname(action.file)), []).append(action)
        return found


def _choice_json(choice: OtherMode) -> dict[str, object]:
    return {"lost": [loss._asdict() for loss in choice.losses], "kept": choice.kept._asdict()}


def _marking_json(marking: MarkCleanResult) -> dict[str, object]:
    """Return the members about markers."""
    return {
        "marked": marking.marked,
        "marked_before": marking.marked_before,
        "broker_epoch": marking.epoch if marking.marked else None,
        "refused": [{"log_dir": one.log_dir, "reason": one.why, "first": one.first} for one in marking.refusals],
    }
