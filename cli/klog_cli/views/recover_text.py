"""The answer of `klog recover` for people: the verdict, what was found and changes, and the choices that are left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from klog.base.errors import counted
from klog.change.plan.model import Action, Amount, Loss, total
from klog.change.plan.session import PlanOptions, PlanResult
from klog.partition.repair.recover_outcome import OtherMode, RecoverMode, RecoverResult
from klog.partition.verify.findings import Finding, Severity, quoted

from klog_cli import style
from klog_cli.command_line import next_step, with_option
from klog_cli.views.bytes import see_bytes
from klog_cli.views.finding_lines import explain_command, file_of, finding_lines, grouped
from klog_cli.views.losses import kept, loses, losses_line
from klog_cli.views.plan_lines import action_lines, changed_files, first_lines, make_indexes
from klog_cli.views.topic_settings import settings_text

if TYPE_CHECKING:
    from klog.commands.recover.mark_clean import MarkCleanResult

    from klog_cli.views.recover_report import RecoveryReport

_ADVICE: Final = (
    "If another replica is in sync, it is safer to delete this copy, or to truncate it on a follower, and to let the"
    " broker fetch it again: klog cannot see other brokers."
)
_NOTHING_CLAIMED: Final = (
    "The marker claims nothing about lost records: in elections this broker counts as one that has recovered its logs"
    " itself, so a controller of 4.1 or later takes it out of the in-sync replicas until it has caught up."
)
_ALL_CLAIMED: Final = (
    "The marker claims, on your word, that no record was lost since this broker ran: elections count it as cleanly"
    " stopped; after a power cut, or with a volume that moved, that would cost committed records."
)
_OF_ZOOKEEPER: Final = "The marker is empty, as brokers with ZooKeeper write it; elections ignore it."
_UNNOTICED: Final = (
    "A broker does not check this place when it starts: the damage stays, and stops the consumers that reach it."
)
_LIKE_BROKER: Final = ("--like-broker",)
_WAYS: Final = {
    ("--repair-bits",): "repair the flipped bits",
    ("--salvage", "--repair-bits"): "repair the flipped bits, and cut other damage out",
    ("--salvage",): "cut the damage out, and keep every intact batch",
    _LIKE_BROKER: "truncate at the damage, as a broker does when it starts",
}
"""The ways out of damage by their options, the one that keeps most first."""
_BIT_REPAIRS: Final = {RecoverMode.DEFAULT: ("--repair-bits",), RecoverMode.SALVAGE: ("--salvage", "--repair-bits")}


class RecoverText:
    """The lines of a report.  *everything*: each finding and each changed segment has a line."""

    def __init__(self, report: RecoveryReport, options: PlanOptions, everything: bool) -> None:
        self._report, self._options, self._everything = report, options, everything
        self._recovery, self._plan = report.recovery, report.plan
        self._ids: dict[str, None] = {}
        self._place: tuple[str, int] | None = None
        self._settings: set[str] = set()
        self._undecided = [result for result in report.recovery.results if result.choices]

    def lines(self) -> Iterator[str]:
        """Yield them all."""
        marked = []
        if self._report.marking is not None:
            marked = [*_marked_lines(self._report.marking, is_applied=self._report.is_applied)]
        if self._plan is not None or not marked:
            yield self._verdict()
        yield from self._kept()
        yield from marked
        details = [line for part in self._details() for line in part]
        if details:
            yield ""
            yield from details
        yield from self._choices()
        yield from self._remarks()
        yield from self._next()

    # the verdict

    def _verdict(self) -> str:
        results, plan = self._recovery.results, self._plan
        partitions = counted(len(results), "partition")
        if plan is None:
            if self._undecided:
                return self._unchanged()
            return f"{partitions}: nothing to do" + style.bad("; problems are left") * self._report.is_left
        is_applied = self._report.is_applied
        touched = sum(1 for result in results if self._report.actions(result.partition))
        place = (
            f"{touched} of {partitions}"
            if touched
            else counted(len({action.log_dir for action in plan.actions}), "log dir")
        )
        changes = style.strong(f"{'changed' if is_applied else 'would change'} {changed_files(plan)}")
        parts = [f"{changes} in {place}", loses(self._recovery.losses, "lost" if is_applied else "loses")]
        if self._undecided:
            parts.append(self._unchanged())
        elif self._report.is_left:
            parts.append(style.bad("problems are left"))
        return "; ".join(parts)

    def _unchanged(self) -> str:
        count = len(self._undecided)
        be, was = ("is", "was") if count == 1 else ("are", "were")
        damaged = style.bad(f"{counted(count, 'partition')} {be} damaged")
        return f"{damaged} and {was} left unchanged: choose"

    def _kept(self) -> Iterator[str]:
        if self._plan is None or not self._recovery.losses:
            return
        ours, broker = self._recovery.kept, self._recovery.broker_would_keep
        theirs = "nothing, because it would not start" if broker is None else kept(broker)
        if broker is not None and broker.records == ours.records is not None:
            theirs = "as many"
        verb = "kept" if self._report.is_applied else "keeps"
        yield f"{verb} {style.good(kept(ours))}; a broker would keep {theirs}"

    # what was found, and what changes

    def _details(self) -> Iterator[list[str]]:
        plan, is_applied = self._plan, self._report.is_applied
        own: dict[str, list[Finding]] = {}
        for path, finding in zip(self._recovery.places, self._recovery.findings, strict=True):
            if finding.severity is not Severity.NOTE and not is_applied:
                own.setdefault(path, []).append(finding)
        for path, findings in own.items():
            yield [style.strong(path), *(f"  {line}" for line in self._finding_lines(findings))]
        for result in self._recovery.results:
            yield [*self._of_partition(result)]
        if plan is not None:
            changes = [action for action in plan.actions if "/" not in action.file]
            yield [*action_lines(plan, changes, everything=self._everything)]

    def _of_partition(self, result: RecoverResult) -> Iterator[str]:
        actions = self._report.actions(result.partition)
        told = self._findings(result, actions)
        self._note_place(result.partition.path, told)
        if not (actions or told or result.fails):
            return
        yield style.strong(result.partition.path)
        yield from (f"  {line}" for line in self._finding_lines(told))
        if result.fails is not None:
            yield f"  {style.bad('nothing is changed here')}: {result.fails}"
        if self._plan is not None:
            changed = action_lines(self._plan, actions, in_partition=True, everything=self._everything)
            yield from (f"  {line}" for line in changed)
        if make_indexes(actions) and (settings := settings_text(result.settings)) not in self._settings:
            self._settings.add(settings)
            yield f"  {style.faint(settings)}"
        if len(self._recovery.losses) > 1:
            verb = "lost" if self._report.is_applied else "loses"
            lines = [losses_line(loss, verb) for loss in result.losses]
            yield from (f"  {line}" for line in (lines if self._everything else first_lines(lines, "losses")))
        yield from (f"  {note}" for note in result.notes)
        if len(self._undecided) > 1:
            for words, outcome in _ways(result).items():
                yield f"  {' '.join(words)} {loses(outcome.losses)}, keeps {kept(outcome.kept)}"

    def _findings(self, result: RecoverResult, actions: Sequence[Action]) -> list[Finding]:
        """Return the findings to show: after a change only those that are left, for the preview had the others."""
        if self._report.is_applied:
            return list(result.left)
        shown = (one for one in result.findings if one.id != "vanished" or one.severity is not Severity.NOTE)
        return [one for one in shown if one.severity is not Severity.NOTE or actions]

    def _note_place(self, path: str, findings: Sequence[Finding]) -> None:
        """Note the place of the first damage, for the command that shows its bytes."""
        if self._place is None:
            damage = (one for one in findings if one.severity is Severity.DAMAGE and one.position is not None)
            self._place = next(((file_of(path, one), one.position or 0) for one in damage), None)

    def _finding_lines(self, findings: Sequence[Finding]) -> list[str]:
        self._ids |= dict.fromkeys(one.id for one in findings if one.severity is not Severity.NOTE)
        return [*finding_lines(grouped(findings, singly=self._everything))]

    # what to do

    def _choices(self) -> Iterator[str]:
        """Yield the ways out of damage, summed over the partitions, the one that loses least first."""
        sums: dict[tuple[str, ...], list[OtherMode]] = {}
        for result in self._undecided:
            for words, outcome in _ways(result).items():
                sums.setdefault(words, []).append(outcome)
        if not sums:
            return
        damaged = len(self._undecided)
        yield ""
        yield style.strong(f"Choose for the {'damaged partition' if damaged == 1 else f'{damaged} damaged partitions'}")
        like_broker = sums.get(_LIKE_BROKER, [])
        is_unnoticed = bool(like_broker) and not any(outcome.losses for outcome in like_broker)
        ways = [words for words in _WAYS if words in sums and not (words == _LIKE_BROKER and is_unnoticed)]
        for number, words in enumerate(ways, start=1):
            outcomes = sums[words]
            lost: list[Loss] = [loss for outcome in outcomes for loss in outcome.losses]
            some = "" if len(outcomes) == damaged else f" in {len(outcomes)} of them"
            amount: Amount = total(outcome.kept for outcome in outcomes)
            yield f"  {number}. {_WAYS[words].capitalize()}{some}: {loses(lost)}, keeps {kept(amount)}."
            yield f"       {style.command(with_option(*words, without=_NOT_IN_CHOICES))}"
        if is_unnoticed:
            yield f"  {_UNNOTICED}"

    def _remarks(self) -> Iterator[str]:
        marking = self._report.marking
        remarks = [] if marking is None else [*_marker_notes(marking, self._report.settings.from_recovery_point)]
        if not self._report.is_applied and (self._recovery.losses or self._undecided):
            remarks.insert(0, _ADVICE)
        if remarks:
            yield ""
            yield from remarks
        yield from explain_command(self._ids)
        if self._place is not None and not self._report.is_applied:
            path, position = self._place
            yield see_bytes(path, position=position)

    def _next(self) -> Iterator[str]:
        for first in dict.fromkeys(refusal.first for refusal in self._report.refusals):
            if first is not None:
                yield ""
                yield "To see what can be done about the log dir that is not marked:"
                yield f"  {style.command(first)}"
        plan = self._plan
        if plan is None:
            return
        yield ""
        if self._report.is_applied:
            yield f"backup: {style.faint(plan.backups[0])}"
        yield from next_step(PlanResult(plan, self._report.is_applied), self._options)


_NOT_IN_CHOICES: Final = ("--apply", "--dry-run", "--indexes-only", "--salvage", "--like-broker", "--repair-bits")


def _ways(result: RecoverResult) -> dict[tuple[str, ...], OtherMode]:
    """Return the other ways for a partition, by their options."""
    found = {_BIT_REPAIRS[mode]: outcome for mode, outcome in result.bit_repairs.items()}
    found |= {(f"--{mode.value}",): outcome for mode, outcome in result.choices.items()}
    return {words: found[words] for words in _WAYS if words in found}


# --mark-clean


def _marked_lines(marking: MarkCleanResult, *, is_applied: bool) -> Iterator[str]:
    """Yield a line for each log dir."""
    for path in marking.marked:
        yield style.good(f"{path} {'is' if is_applied else 'would be'} marked as cleanly stopped")
    for path in marking.marked_before:
        yield f"{path} is marked as cleanly stopped already, and was not checked; this checks it:"
        yield f"  {style.command(f'klog verify {quoted(path)}')}"
    for refusal in marking.refusals:
        yield f"{style.bad(f'{refusal.log_dir} is not marked')}, and nothing is changed in it: {refusal.why}"


def _marker_notes(marking: MarkCleanResult, from_recovery_point: bool) -> Iterator[str]:
    """Yield the meaning of the markers."""
    from klog.commands.recover.mark_clean import NOBODYS_EPOCH

    kraft = [one.is_kraft for one in marking.log_dirs if one.path in marking.marked]
    if any(kraft):
        yield _NOTHING_CLAIMED if marking.epoch == NOBODYS_EPOCH else _ALL_CLAIMED
    if not all(kraft):
        yield _OF_ZOOKEEPER
    if marking.marked and from_recovery_point:
        yield "Data below the recovery points was not checked, as a broker does not check it."
