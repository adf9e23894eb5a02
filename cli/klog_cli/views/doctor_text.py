"""The answer of `klog doctor` for people: the verdict, its reasons, the way out, and the start step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from klog.base.errors import counted
from klog.cluster.coordinator.due_offsets import KEEP_OFFSETS
from klog.commands.doctor.diagnosis import (
    HANGING,
    HARMLESS,
    INDEX_WRONG,
    TORN_TAIL,
    TXN_INDEX_WRONG,
    UNSAFE_NOTES,
    Diagnosis,
    Fate,
    NextStep,
    PartitionFate,
    StartStep,
)
from klog.commands.doctor.partition_loader import WORTH_MARKING_SECONDS
from klog.partition.retention.due_records import DueRecords, keep_command
from klog.partition.start.start_reasons import OFFSETS, REASONS, RETENTION, WATERMARK_NUMBER, StartNote

from klog_cli import output, style
from klog_cli.command_line import command_line
from klog_cli.views.finding_lines import explain_command
from klog_cli.views.losses import loses
from klog_cli.views.repair_costs import RepairCost

_MOST_ROWS: Final = 20
_HARMS: Final = {
    INDEX_WRONG: (
        "CONSUMERS AND FOLLOWERS SKIP RECORDS",
        "Consumers and followers of {} skip records without an error",
    ),
    TXN_INDEX_WRONG: (
        "SERVES ABORTED RECORDS OR HIDES COMMITTED ONES",
        "read_committed consumers of {} get aborted records, or miss committed ones",
    ),
    TORN_TAIL: (
        "NEW RECORDS WILL BE UNREADABLE",
        "New records of {} are appended behind a torn tail, where clients cannot read them",
    ),
    HANGING: (
        "READ_COMMITTED CONSUMERS STOP AT A TRANSACTION THAT NEVER ENDS",
        "read_committed consumers of {} stop at a transaction that nothing ends",
    ),
}
"""For reasons of partitions the verdict and the sentence, the worst first."""
_FEW: Final = 3
"""The most partitions with the same outcome that have a line each."""
_STATES: Final = {"metadata-log-damaged": "damaged", "metadata-log-behind": "behind the logs"}
_OUTCOMES: Final = {
    Fate.SERVES: "served",
    Fate.EMPTIES: "emptied",
    Fate.STRAYS: "set aside as -stray",
    Fate.CREATES: "created empty",
    Fate.PROMOTES: "promoted from -future",
    Fate.REPLACED: "replaced and deleted",
    Fate.DELETES: "deleted",
    Fate.KEEPS: "left aside",
    Fate.MOVES: "still being copied",
    Fate.LEADERLESS: "perhaps without a leader",
    Fate.OFFLINE: "offline",
    Fate.REFUSES: "refused: the broker stops",
    Fate.FORGETS_REMOTE: "emptied, with its remote segments",
    Fate.HIDES_REMOTE: "served without its older remote records",
}
_NOT_HERE: Final = "not on this disk: created empty, and filled by the leader if another replica has it"
_OF_APPLY: Final = " --apply"
_UNLOCKED: Final = "free"
"""The message of a step that has nothing to tell: no process holds the lock of the log dir."""

Cost = Callable[[str], RepairCost | None]


class DoctorText:
    """The lines about a diagnosis.  *cost*: returns the price of a command; *everything*: each partition has a line."""

    def __init__(self, found: Diagnosis, cost: Cost, everything: bool) -> None:
        self._found, self._cost, self._everything = found, cost, everything
        self._told: set[str] = set()
        self._ids: dict[str, None] = {}

    def lines(self) -> Iterator[str]:
        """Yield them all."""
        yield self._verdict()
        yield from self._reasons()
        yield from self._fix()
        yield ""
        yield from self._start()
        told = [row for row in self._rows if not _is_harm(row)]
        yield from (f"  {line}" for line in self._partitions(told))
        yield from explain_command(self._ids)
        yield from self._further()

    @property
    def _rows(self) -> list[PartitionFate]:
        """The rows that have something to tell; the failure tells of the one that stops the broker."""
        failure = self._found.failure
        stopping = (failure.log_dir, failure.directory) if failure is not None else None
        rows = (row for row in self._found.partitions if row.reason and row.fate is not Fate.UNREACHED)
        return [row for row in rows if (row.log_dir, row.directory) != stopping]

    def _new(self, sentence: str) -> str:
        """Return a sentence the first time, then nothing."""
        if sentence in self._told:
            return ""
        self._told.add(sentence)
        return sentence

    def _id(self, id_: str) -> str:
        """Return an id in parentheses, and note it for `klog explain`."""
        if id_ not in REASONS:
            return ""
        self._ids[id_] = None
        return f" {style.faint(f'({id_})')}"

    # the verdict and its reasons

    def _verdict(self) -> str:
        found = self._found
        lost = [row for row in found.partitions if row.lost_records]
        if found.failure is not None:
            causes = self._causes()
            first = causes[0] if causes else StartNote(found.failure.id, found.failure.message)
            verdict = f"{style.bad('WILL NOT START')}: {self._new(first.message)}{self._id(first.id)}"
        elif lost:
            one = lost[0].directory or f"{lost[0].topic}-{lost[0].partition}"
            where = one if len(lost) == 1 else counted(len(lost), "partition")
            verdict = style.bad(f"STARTS, LOSES {counted(found.loses, 'record').upper()}") + f" of {where}"
        elif found.is_harmless:
            recovery = self._recovery()
            verdict = style.good("STARTS, LOSES NOTHING") + (f" after a recovery of {recovery}" if recovery else "")
        elif found.unsafe:
            verdict = style.bad("STARTS, MAY LOSE RECORDS LATER")
        elif harms := self._harms():
            verdict = style.bad(f"STARTS, LOSES NOTHING, BUT {_HARMS[harms[0]][0]}")
        else:
            verdict = style.warning("STARTS, LOSES NOTHING, BUT NOT EVERY PARTITION IS SERVED")
        state = " and ".join(sorted(_STATES[one] for one in found.unsafe))
        return f"{verdict}; {style.bad(f'its metadata log is {state}')}" if state else verdict

    def _harms(self) -> list[str]:
        """Return the reasons of partitions that are served, but not as they should be, the worst first."""
        reasons = {row.reason for row in self._found.partitions}
        return [reason for reason in _HARMS if reason in reasons]

    def _recovery(self) -> str:
        work = self._found.recovery
        if not work.segments:
            return ""
        return f"{output.human_size(work.bytes)} ({_seconds(work.seconds)})"

    def _causes(self) -> list[StartNote]:
        """Return the notes about the faults behind the failure."""
        failure = self._found.failure
        ids = {failure.id} if failure is not None else set()
        ids |= {one.reason for one in self._found.log_dirs if one.reason is not None}
        return [note for note in self._found.notes if note.id in ids]

    def _reasons(self) -> Iterator[str]:
        failure = self._found.failure
        notes = [note for note in self._found.notes if note.id not in (RETENTION, OFFSETS)]
        yield from self._notes([note for note in notes if note.id in UNSAFE_NOTES])
        if failure is not None and (message := self._new(failure.message)):
            place = f"{failure.directory}: " if failure.directory else ""
            yield f"  The broker stops with: {place}{message}{self._id(failure.id)}"
        yield from self._notes(notes)
        for harm in self._harms():
            wrong = sum(row.reason == harm for row in self._found.partitions)
            yield f"  {_HARMS[harm][1].format(counted(wrong, 'partition'))}:"
        if unled := sum(row.reason == WATERMARK_NUMBER for row in self._found.partitions):
            yield f"  The broker serves hardly any of its {counted(unled, 'partition')}."
        yield from self._partitions([row for row in self._rows if _is_harm(row)])
        yield from self._retention()
        yield from self._offsets()

    def _notes(self, notes: Sequence[StartNote]) -> Iterator[str]:
        for note in notes:
            if message := self._new(note.message):
                yield f"  {message}{self._id(note.id)}"

    def _retention(self) -> Iterator[str]:
        by_topic: dict[str, list[DueRecords]] = {}
        for one in self._found.retention:
            by_topic.setdefault(one.topic, []).append(one)
        if not by_topic:
            return
        topics = sorted(by_topic, key=lambda topic: (-_records(by_topic[topic]), topic))
        every = self._found.retention
        which = f"{topics[0]}" if len(topics) == 1 else f"{len(topics)} topics"
        at_most = "" if all(one.is_exact for one in every) else "up to "
        total = style.warning(f"{at_most}{counted(_records(every), 'record')} of {which}")
        yield f"  After 30 s, retention deletes {total}{self._id(RETENTION)}."
        shown = topics if self._everything else topics[:1]
        for topic in shown:
            some = "it" if len(topics) == 1 else f"the {counted(_records(by_topic[topic]), 'record')} of {topic}"
            yield f"  To keep {some}, before the start or right after it:"
            yield f"    {style.command(keep_command(topic, by_topic[topic][0].retention))}"
        if len(topics) > len(shown):
            yield f"  and so for {counted(len(topics) - len(shown), 'more topic')} (--all names them)"

    def _offsets(self) -> Iterator[str]:
        due = self._found.offsets
        if self._everything or any(one.since is None or one.has_replicas for one in due):
            yield from self._notes([note for note in self._found.notes if note.id == OFFSETS])
        elif due:
            at_most = "up to " if any(one.has_members for one in due) else ""
            offsets = f"{at_most}{counted(sum(one.offsets for one in due), 'expired offset')}"
            total = style.warning(f"{offsets} of {counted(len(due), 'group')}")
            yield f"  Coordinators remove {total}{self._id(OFFSETS)}."
            yield f"  To keep them, {KEEP_OFFSETS}."

    # the way out

    def _fix(self) -> Iterator[str]:
        found = self._found
        if not found.next:
            return
        yield ""
        yield style.strong("Fix")
        number = 1
        for step in found.next:
            yield from self._step(number, step)
            number += 1 if step.command is None else 2
        says = "Check. It should report: starts, loses nothing." if found.is_whole_way else "Check what is left."
        yield f"  {number}. {says}"
        yield f"       {style.command(command_line())}"

    def _step(self, number: int, step: NextStep) -> Iterator[str]:
        why = self._new(step.why)
        if step.command is None:
            sentence = step.manual or ""
            yield f"  {number}. {sentence[:1].upper()}{sentence[1:]}"
            if why:
                yield f"     {style.faint(f'({why})')}"
            return
        cost = self._cost_text(step.command)
        yield f"  {number}. {'. '.join(filter(None, ['Preview' + (f': {why}' if why else ''), cost]))}."
        yield f"       {style.command(step.command.removesuffix(_OF_APPLY))}"
        yield f"  {number + 1}. Carry it out."
        yield f"       {style.command(step.command)}"

    def _cost_text(self, command: str) -> str:
        cost = self._cost(command)
        if cost is None:
            return ""
        if cost.obstacle:
            return f"It is not known what the repair loses: {cost.obstacle}"
        if cost.unread_bytes:
            return f"It reads {output.human_size(cost.unread_bytes)}, and shows what the repair loses"
        text = f"The repair {loses(cost.losses)}"
        if cost.losses and cost.is_all_broker_keeps:
            text += "; a broker would keep no more"
        if cost.left:
            text += f"; it leaves {counted(cost.left, 'partition')} damaged, for which it shows the choices"
        return text

    # step by step

    def _start(self) -> Iterator[str]:
        yield style.strong(f"The start of a {self._found.version.value} broker, step by step")
        for step in self._found.steps:
            is_fault = step.fate in REASONS
            message = self._new(self._step_message(step))
            fate = style.bad(step.fate) if is_fault else ""
            if is_fault:
                self._ids[step.fate] = None
            if is_fault or message != _UNLOCKED:
                yield f"  {step.step:<10}  {': '.join(filter(None, [fate, message]))}"

    def _step_message(self, step: StartStep) -> str:
        if step.step == "partitions" and self._found.failure is None:
            counts = {fate: sum(row.fate is fate for row in self._found.partitions) for fate in _OUTCOMES}
            return ", ".join(f"{count} {_OUTCOMES[fate]}" for fate, count in counts.items() if count) or "none"
        return step.message + (f", {self._recovery()}" if step.step == "recover" else "")

    def _partitions(self, rows: Sequence[PartitionFate]) -> Iterator[str]:
        """Yield a line for each of *rows*, or for those that fare alike."""
        groups: dict[tuple[object, ...], list[PartitionFate]] = {}
        for row in rows:
            alike = (row.fate, row.reason, row.becomes, row.message, row.directory is None)
            groups.setdefault((*alike, row) if self._everything else alike, []).append(row)
        parts = [part for same in groups.values() for part in ([same] if len(same) > _FEW else [[one] for one in same])]
        shown = parts if self._everything else parts[:_MOST_ROWS]
        yield from map(self._partition, shown)
        if more := sum(map(len, parts[len(shown) :])):
            yield f"  and {counted(more, 'more partition')} (--all lists them)"

    def _partition(self, rows: list[PartitionFate]) -> str:
        row, lost = rows[0], sum(one.lost_records for one in rows)
        outcome = _NOT_HERE if row.reason == "no-directory" else _OUTCOMES[row.fate]
        facts = [style.bad(f"loses {counted(lost, 'record')}")] if lost else []
        facts += [row.message] if row.message and row.reason != "no-directory" and row.message not in self._told else []
        facts += ["created again, empty"] if row.becomes == "empty" else []
        about = f"{'; '.join([outcome, *facts])}{self._id(row.reason or '')}"
        names = [one.directory or f"{one.topic}-{one.partition}" for one in rows]
        if len(rows) == 1:
            return f"  {style.strong(names[0])}  {about}"
        shown = f"{', '.join(names[:_FEW])}, … {len(names) - _FEW} more (--all lists them)"
        return f"  {style.strong(counted(len(rows), 'partition'))}  {about}: {shown}"

    def _further(self) -> Iterator[str]:
        found = self._found
        dirs = " ".join(one.path for one in found.log_dirs)
        if found.starts and not found.loses:
            yield ""
            yield "Checksums were computed only where the start reads logs. To check all:"
            yield f"  {style.command(f'klog verify {dirs}')}"
        if found.starts and found.recovery.seconds[1] >= WORTH_MARKING_SECONDS:
            yield "Most of the time of the recovery is saved by doing it in advance:"
            yield f"  {style.command(f'klog recover --mark-clean {dirs}')}"


def _is_harm(row: PartitionFate) -> bool:
    return row.fate not in HARMLESS or row.lost_records > 0 or row.reason in (*_HARMS, WATERMARK_NUMBER)


def _records(rows: Sequence[DueRecords]) -> int:
    return sum(one.records for one in rows)


def _seconds(span: tuple[float, float]) -> str:
    low, high = span
    return f"about {low:g}–{high:g} s" if low else f"up to {high:g} s"
