"""The events of a step of a simulation, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from klog.base.errors import counted, offsets_text
from klog.cluster.follower_truncation import TruncationRow
from klog.commands.simulate.scenario import Scenario, SimulationEvent
from klog.commands.simulate.simulation import STILL_WAITS, Simulation
from klog.commands.simulate.simulation_rows import AnswerRow, StepRow

from klog_cli.style import bad


def listed(values: Sequence[int]) -> str:
    """Return *values* as a sentence lists them: `1, 2 and 3`."""
    *words, last = map(str, values)
    return f"{', '.join(words)} and {last}" if words else last


def sentences(event: SimulationEvent, row: StepRow, before: StepRow) -> Iterator[str]:
    """Yield the differences between the state *before* and *row*."""
    if row.get("note") == STILL_WAITS:
        yield "There is no answer yet: the fetch still waits."
    elif "note" in row:
        yield f"Nothing happens: {row['note']}."
    else:
        yield from _deed(event, row, before)
    for node, rounds in row.get("truncation", {}).items():
        yield from _truncation(node, rounds, row, before)
    yield from _arrival(event, row, before)
    yield from _high_watermark(row, before)
    yield from _isr(row, before)
    yield from _acknowledgements(row, before)
    for answer in row.get("answers", [row["answer"]] if "answer" in row else []):
        yield _answer(answer, row)
    if "waits" in row:
        yield f"Too few bytes: the fetch waits until {row['waits']['until']} ms."


def _deed(event: SimulationEvent, row: StepRow, before: StepRow) -> Iterator[str]:
    """Yield the description of the event."""
    leader, node = row["leader"], event.node
    if event.do == "append":
        acks = "all" if event.acks < 0 else event.acks
        records = counted(event.records, "record")
        if "error" in row:
            yield f"Node {leader} refuses {records} with acks={acks}: {row['error']}."
        else:
            end = row["replicas"][str(leader)]["log_end"]
            yield f"Node {leader} appends {records} with acks={acks}, {offsets_text(end - event.records, end - 1)}."
    elif event.do == "fetch":
        fetch = row["fetch"]
        epoch = fetch["last_fetched_epoch"]
        last = f"last epoch {epoch}" if epoch >= 0 else "no epoch"
        yield f"Node {node} fetches from offset {fetch['offset']} ({last})."
    elif event.do == "elect":
        how = "unclean, for it was outside the ISR" if row["unclean"] else "from the ISR"
        start = before["replicas"][str(node)]["log_end"]
        yield f"Node {node} is elected ({how}): epoch {row['epoch']} begins at offset {start}."
    elif event.do == "crash":
        yield f"Node {node} crashes." if before["leader"] != node else f"Node {node}, the leader, crashes."
    else:
        yield _OTHER_DEEDS[event.do].format(node=node)


_OTHER_DEEDS = {
    "response": "The answer reaches node {node}.",
    "lose": "The answer to node {node} is lost.",
    "restart": "Node {node} restarts.",
    "isr-check": "The leader looks for replicas that lag.",
    "confirm": "The controller confirms.",
    "wait": "Time passes.",
}


def _truncation(node: str, rounds: Sequence[TruncationRow], row: StepRow, before: StepRow) -> Iterator[str]:
    for one in rounds:
        if "leader" in one:
            asks = f"Node {node} asks where epoch {one['asks']} ends: the" if "asks" in one else "The"
            yield f"{asks} leader {_knows(*one['leader'])}, node {node} {_knows(*one['local'])}."
    to = rounds[-1]["to"]
    if "leader" in rounds[-1]:
        where = str(to)
    elif row["do"] == "response":
        where = f"the leader's log end {to}"
    else:
        where = f"its high watermark {to}"
    now, then = (one["replicas"][node]["log_end"] for one in (row, before))
    if now > then:
        yield f"Node {node} deletes its log and begins again at {to}, where the leader's log begins."
    else:
        yield f"Node {node} truncates to {where}{'' if now < then else ': it has nothing beyond'}."


def _knows(epoch: int, end: int) -> str:
    return f"has epoch {epoch} up to {end}" if end >= 0 else "knows no such epoch"


def _arrival(event: SimulationEvent, row: StepRow, before: StepRow) -> Iterator[str]:
    """Yield the movement at the replica that the event concerns, unless it leads."""
    if event.do not in ("response", "crash", "restart") or "note" in row:
        return
    now, then = (one["replicas"][str(event.node)] for one in (row, before))
    if event.do == "crash" and now["log_end"] < then["log_end"]:
        yield f"Its remaining log ends at {now['log_end']}."
    if event.do == "response" and "truncation" not in row and now["log_end"] > then["log_end"]:
        yield f"It appends {offsets_text(then['log_end'], now['log_end'] - 1)}."
    if now["high_watermark"] != then["high_watermark"]:
        yield f"Its high watermark is {now['high_watermark']}."
    if event.do == "restart" and row["leader"] is None:
        yield "There is no leader to follow."


def _high_watermark(row: StepRow, before: StepRow) -> Iterator[str]:
    """Yield how the leader's high watermark rose."""
    if row["leader"] is not None:
        then, now = (one["replicas"][str(row["leader"])]["high_watermark"] for one in (before, row))
        if now != then:
            yield f"The high watermark rises to {now}."


def _isr(row: StepRow, before: StepRow) -> Iterator[str]:
    for change in row["pending"]:
        if change not in before["pending"]:
            yield f"Node {change[1:]} is to {'join' if change[0] == '+' else 'leave'} the ISR once that is confirmed."
    if row["isr"] != before["isr"]:
        yield f"The ISR is {listed(row['isr'])}."


def _answer(answer: AnswerRow, row: StepRow) -> str:
    answers = f"Node {row['leader']} answers node {answer['to']}"
    if "error" in answer:
        return f"{answers}: {answer['error']}."
    if "diverging" in answer:
        epoch, end = answer["diverging"]
        return f"{answers} that the logs diverge: its epoch {epoch} ends at {end}."
    records = answer["records"]
    what = "no records" if records is None else offsets_text(*records)
    throttled = ", for the quota is used up" if "throttled" in answer else ""
    return f"{answers}: {what}{throttled}; high watermark {answer['high_watermark']}."


def _acknowledgements(row: StepRow, before: StepRow) -> Iterator[str]:
    new = [step for step in row["acked"] if step not in before["acked"]]
    if new:
        yield f"{_steps(new)} {'is' if len(new) == 1 else 'are'} acknowledged."
    lost = [step for step in row.get("broken", []) if step not in before.get("broken", [])]
    if lost:
        yield f"{bad('BROKEN')}: it lacks the records of {_steps(lost).lower()}, which were acknowledged."


def _steps(steps: Sequence[int]) -> str:
    return f"{'Step' if len(steps) == 1 else 'Steps'} {listed(steps)}"


class Ending:
    """The result of a simulation, collected while its rows pass."""

    def __init__(self) -> None:
        self._broken: dict[int, StepRow] = {}
        self._last: StepRow | None = None

    @property
    def was_broken(self) -> bool:
        """Whether a leader lacked records that had been acknowledged to acks=all."""
        return bool(self._broken)

    def watch(self, rows: Iterable[StepRow]) -> Iterator[StepRow]:
        """Yield *rows*, and remember the facts for the summary."""
        for row in rows:
            for step in row.get("broken", []):
                self._broken.setdefault(step, row)
            self._last = row
            yield row

    def summary(self, scenario: Scenario, simulation: Simulation) -> str:
        """Return a sentence or two about the lost records, their last owner, and the differences between logs."""
        acked = self._last["acked"] if self._last else []
        to_all = [step for step in acked if scenario.events[step - 1].acks < 0]
        parts = [self._loss(step, scenario) for step in self._broken]
        if not parts:
            parts.append(
                f"Nothing is lost of {counted(len(to_all), 'append')} that acks=all acknowledged."
                if to_all
                else "No append was acknowledged to acks=all."
            )
        for one, other, offset in simulation.differences():
            parts.append(f"The logs of nodes {one} and {other} differ from offset {offset} on.")
        return " ".join(parts)

    def _loss(self, step: int, scenario: Scenario) -> str:
        row, event = self._broken[step], scenario.events[step - 1]
        one = event.records == 1
        now = self._last is not None and step in self._last.get("broken", [])
        return (
            f"Broken: {'the record' if one else f'the {event.records} records'} of step {step},"
            f" acknowledged to acks=all, {'is' if one else 'are'} missing since step {row['step']},"
            f" when node {row['leader']} was elected without {'it' if one else 'them'}"
            f"{'' if now else '; no longer at the end'}."
        )
