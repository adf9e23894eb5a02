"""`klog replicas simulate`: the rows of a simulation as a table with words, or as JSON lines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from klog.base.errors import ExitCode, UsageError
from klog.commands.simulate.scenario import MAX_BYTES, Scenario, read_scenario
from klog.commands.simulate.simulation import Simulation
from klog.commands.simulate.simulation_rows import StepRow

from klog_cli import output
from klog_cli.layout import wrap_line
from klog_cli.style import bad, good
from klog_cli.views.replicas.simulate_words import Ending, sentences

_LEAST_WORDS = 40
_GAP = "  "


class _Line(NamedTuple):
    """A step in the table: its cells, and the remarks below them."""

    cells: tuple[str, ...]
    words: str


def simulate(file: str, form: str) -> int:
    """Play the scenario in *file* (-: stdin) and show it; return the exit code.  Raises UsageError."""
    try:
        scenario = read_scenario(_content(file))
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error
    simulation = Simulation(scenario)
    ending = Ending()
    if form == "json":
        output.emit_json_rows("steps", ending.watch(simulation.rows()))
    elif form == "jsonl":
        output.emit_jsonl(ending.watch(simulation.rows()))
    elif form == "csv":
        output.emit_csv_rows(ending.watch(simulation.rows()))
    else:
        _show(scenario, simulation, ending)
    return ExitCode.PROBLEMS_LEFT if ending.was_broken else ExitCode.CLEAN


def _content(file: str) -> bytes:
    """Return the content of *file*, cut off once it is known to be too large.  Raises UsageError, OSError."""
    if file != "-" and (os.path.isdir(file) or not os.path.exists(file)):
        found = "a directory" if os.path.isdir(file) else "no such file"
        raise UsageError(f"{found}: expected a file of events (docs/replicas.md), or - for stdin")
    descriptor = 0 if file == "-" else os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    with open(descriptor, "rb", closefd=file != "-") as source:
        return source.read(MAX_BYTES + 1)


def _show(scenario: Scenario, simulation: Simulation, ending: Ending) -> None:
    nodes = [str(node) for node in scenario.replicas]
    before = simulation.state()
    lines = [_Line(("", "", *(_cell(before, before, node) for node in nodes)), "")]
    for event, row in zip(scenario.events, ending.watch(simulation.rows()), strict=True):
        cells = (str(row["step"]), str(row["at"]), *(_cell(row, before, node) for node in nodes))
        lines.append(_Line(cells, " ".join(sentences(event, row, before))))
        before = row
    mark = bad if ending.was_broken else good
    output.lines([mark(ending.summary(scenario, simulation)), ""])
    output.lines(["log end/high watermark of each replica: * leads, - is outside the ISR, (down), ↑ ↓ have moved", ""])
    header = _Line(("step", "ms", *nodes), "what happened")
    widths = [max(len(line.cells[index]) for line in (header, *lines)) for index in range(len(header.cells))]
    width = output.width() if output.is_terminal() else None
    for line in (header, *lines):
        output.lines(_laid_out(line, widths, width))


def _cell(row: StepRow, before: StepRow, node: str) -> str:
    """Return log end and high watermark of *node*, with marks."""
    now, then = row["replicas"][node], before["replicas"][node]
    end = f"{now['log_end']}{_arrow(then['log_end'], now['log_end'])}"
    watermark = f"{now['high_watermark']}{_arrow(then['high_watermark'], now['high_watermark'])}"
    if not now["up"]:
        return f"({end}/{watermark})"
    mark = "*" if str(row["leader"]) == node else "" if int(node) in row["isr"] else "-"
    return f"{mark}{end}/{watermark}"


def _arrow(before: int, after: int) -> str:
    return "" if before == after else "↑" if after > before else "↓"


def _laid_out(line: _Line, widths: list[int], width: int | None) -> Iterator[str]:
    """Yield the lines of text for *line*: the words beside the cells if there is room, else below.

    *width*: the columns of the screen; None for any number.
    """
    numbers = [cell.rjust(width) for cell, width in zip(line.cells[:2], widths, strict=False)]
    states = [cell.ljust(width) for cell, width in zip(line.cells[2:], widths[2:], strict=True)]
    left = _GAP.join((*numbers, *states))
    if width is None:
        yield f"{left}{_GAP}{line.words}".rstrip()
        return
    beside = width - len(left) - len(_GAP) >= _LEAST_WORDS
    margin = len(left) + len(_GAP) if beside else 2 * len(_GAP)
    words = wrap_line(line.words, width - margin, 0)
    if beside:
        yield f"{left}{_GAP}{words.pop(0)}".rstrip()
    else:
        yield left.rstrip()
    yield from (f"{' ' * margin}{one}".rstrip() for one in words)
