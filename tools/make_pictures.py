"""The site's pictures (`make docs`), each of a run over fixtures/: terminals, a lookup, a compaction, a fork.

Run as a program, it writes the picture of the README, which is committed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element

from klog.commands.report.html_elements import element, html

from tools.terminals import FIXTURES, ROOT, command, environment, picture

WIDTH, NAME, HEIGHT, SCALE = 620, 24, 24, 20
"""The sizes of a picture and, from above, of a row's name, its bar and its scale, in the picture's units."""

KEPT, CHOSEN, DIMMED = "#5b8bb5", "#d9822b", "#9aa3ab"
INK = "currentColor"
"""The page's own: pictures are part of the page, so that they are dark where it is."""

OWN = ("#d9822b", "#2a9d68", "#8e5ea2")
TERMINALS = {
    "terminal-verify": "verify crash/flip-middle",
    "terminal-recover": "recover crash/torn-in-batch",
    "terminal-replicas": "replicas diff replicas/split/broker-1 replicas/split/broker-2 replicas/split/broker-3",
    "terminal-describe": "describe modern/idempotent-0",
}
COLUMNS = 100
README_PICTURE = "terminal-verify"
LOOKUP = ("modern/idempotent-0", "202")
COMPACTED = "keys-none-0"
FORKED = "orders-0"

PAGE = """# In pictures

Generated from `fixtures/` at every build. Hover over a bar for details.

## Where is offset {offset}?

`klog lookup {directory} --offset {offset}`: the segment by its name, the index entry below the
offset, batch headers from there on. What was taken is orange; in the last row, blue headers were read on the
way, grey ones never.

{lookup}

## What does compaction leave?

The same partition before and after one pass of a broker's log cleaner, offset by offset: what a later
record of the key supersedes is grey before, and gone after.

{compaction}

## Three replicas that forked

`klog replicas diff replicas/split/broker-*`: three brokers led one after another, each alone.
Blue is on all of them; what is not is lost if another one leads.

{replicas}

## In a terminal

"""


class Bar(NamedTuple):
    """A bar over offsets *first* up to *end*, and its text for a pointer that rests on it."""

    first: int
    end: int
    colour: str
    title: str


class Row(NamedTuple):
    """Bars on a scale from *first* to *end*, which are written below it."""

    name: str
    first: int
    end: int
    bars: list[Bar]


def run(*words: str) -> str:
    """Return the output of klog; its findings are no failure."""
    done = subprocess.run(
        command(*words), cwd=FIXTURES, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode not in (0, 4):
        raise RuntimeError(f"klog {' '.join(words)}: {done.stderr}")
    return done.stdout


def rows_of(*words: str) -> list[dict[str, Any]]:
    """Return the lines of a run as objects."""
    return [json.loads(line) for line in run(*words, "--output", "jsonl").splitlines()]


def terminal(name: str) -> str:
    """Return one of `TERMINALS` as SVG."""
    return picture(name, TERMINALS[name].split(), COLUMNS)


def draw(title: str, rows: Iterable[Row]) -> str:
    """Return rows of bars as SVG, one below another."""
    shapes: list[Element] = []
    top = 0
    for row in rows:
        shapes += _shapes(row, top)
        top += NAME + HEIGHT + SCALE + 6
    frame = {"viewBox": f"0 0 {WIDTH} {top}", "width": "100%", "role": "img", "aria-label": title}
    style = {"font-family": "sans-serif", "font-size": 14, "fill": INK}
    return html(element("figure", {"style": "width: 100%"}, element("svg", {**frame, **style}, *shapes)))


def _shapes(row: Row, top: int) -> Iterator[Element]:
    unit = WIDTH / (row.end - row.first)
    bar_top = top + NAME
    yield element("text", {"x": 0, "y": bar_top - 7}, row.name)
    yield element("rect", {"y": bar_top, "width": WIDTH, "height": HEIGHT, "fill-opacity": 0.1})
    for bar in row.bars:
        left, width = (bar.first - row.first) * unit, max((bar.end - bar.first) * unit - 1, 1)
        place = {"x": round(left, 2), "y": bar_top, "width": round(width, 2), "height": HEIGHT, "fill": bar.colour}
        yield element("rect", place, element("title", None, bar.title))
    for number, left, anchor in ((row.first, 0, "start"), (row.end, WIDTH, "end")):
        place = {"x": left, "y": bar_top + HEIGHT + 15, "fill-opacity": 0.8, "text-anchor": anchor, "font-size": 13}
        yield element("text", place, str(number))


def lookup() -> str:
    """Return the picture of a lookup: segments, entries of the index, batches."""
    directory, offset = LOOKUP
    found = rows_of("lookup", directory, "--offset", offset)[0]
    segments = json.loads(run("describe", directory, "--output", "json"))["segment_list"]
    bases, chosen = [one["base_offset"] for one in segments], found["segment"]["file"]
    log_end = segments[-1]["last_offset"] + 1
    boxes = [
        Bar(base, end, CHOSEN if one["file"] == chosen else KEPT, one["file"])
        for one, base, end in zip(segments, bases, [*bases[1:], log_end], strict=True)
    ]
    batches = rows_of("dump", f"{directory}/{chosen}", "--batches")
    first, end = batches[0]["base_offset"], batches[-1]["last_offset"] + 1
    printed = run("dump", f"{directory}/{chosen.removesuffix('.log')}.index")
    entries = [tuple(map(int, one)) for one in re.findall(r"^offset: (\d+) position: (\d+)", printed, re.MULTILINE)]
    index = [
        Bar(entry, entry + 1, CHOSEN if entry == found["index"]["offset"] else KEPT, f"offset {entry} at {position}")
        for entry, position in entries
    ]
    return draw(
        f"lookup of offset {offset} in {directory}",
        [
            Row(f"1: one of {len(segments)} segments", bases[0], log_end, boxes),
            Row(f"2: one of {len(entries)} index entries", first, end, index),
            Row(f"3: {found['scan']['batches']} batch headers", first, end, [_scanned(one, found) for one in batches]),
        ],
    )


def _scanned(batch: dict[str, Any], found: dict[str, Any]) -> Bar:
    position, last = batch["position"], found["batch"]["position"]
    colour = CHOSEN if position == last else KEPT if found["scan"]["from"] <= position < last else DIMMED
    title = f"batch {batch['base_offset']} to {batch['last_offset']} at {position}, {batch['size']} bytes"
    return Bar(batch["base_offset"], batch["last_offset"] + 1, colour, title)


def compaction() -> str:
    """Return the picture of a partition before and after a broker's cleaner; removed records are dimmed."""
    before, after = (rows_of("dump", f"compaction/{side}/{COMPACTED}") for side in ("before", "after"))
    left = {record["offset"] for record in after}
    first, end = before[0]["offset"], before[-1]["offset"] + 1
    return draw(
        f"{COMPACTED} before and after compaction",
        [
            Row(f"{side}: {len(records)} records", first, end, [_record(one, one["offset"] in left) for one in records])
            for side, records in (("before", before), ("after", after))
        ],
    )


def _record(record: dict[str, Any], is_left: bool) -> Bar:
    offset: int = record["offset"]
    return Bar(offset, offset + 1, KEPT if is_left else DIMMED, f"offset {offset}, key {record.get('key')}")


def replicas() -> str:
    """Return the picture of three copies: the common part, and the records on one of them alone."""
    disks = [f"replicas/split/broker-{node}" for node in (1, 2, 3)]
    found = json.loads(run("replicas", "diff", *disks, "--output", "json"))["partitions"]
    (partition,) = (one for one in found if f"{one['topic']}-{one['partition']}" == FORKED)
    common, end = partition["common_prefix_end"], max(copy["log_end"] for copy in partition["copies"].values())
    rows = []
    for node, copy in partition["copies"].items():
        lost = partition["lost_if_leads"][node]["records"]
        bars = [Bar(copy["log_start"], common, KEPT, f"offsets {copy['log_start']} to {common - 1}, on all three")]
        bars.append(Bar(common, copy["log_end"], OWN[int(node) - 1], f"offsets {common} to {copy['log_end'] - 1}"))
        rows.append(Row(f"node {node}: if it leads, {lost} lost", 0, end, bars))
    return draw(f"three copies of {FORKED}, alike up to offset {common}", rows)


def pictures() -> dict[str, str]:
    """Return the terminals that only the site has, by the name of the file."""
    return {f"{name}.svg": terminal(name) for name in TERMINALS if name != README_PICTURE}


def page() -> str:
    """Return the page that shows them all."""
    directory, offset = LOOKUP
    shown = "\n\n".join(f"![klog {command}](../pictures/{name}.svg)" for name, command in TERMINALS.items())
    drawn = {"lookup": lookup(), "compaction": compaction(), "replicas": replicas()}
    return PAGE.format(directory=directory, offset=offset, **drawn) + shown + "\n"


def main() -> None:
    """Write the picture of the README."""
    with open(os.path.join(ROOT, "docs/pictures", f"{README_PICTURE}.svg"), "w", encoding="utf-8") as file:
        file.write(terminal(README_PICTURE))


if __name__ == "__main__":
    main()
