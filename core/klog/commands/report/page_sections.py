"""The sections of the page about space, partitions, events, groups, transactions and findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple
from xml.etree.ElementTree import Element

from klog.base.errors import counted
from klog.commands.report.html_elements import element, legend, offsets, size, term
from klog.commands.report.partition_strip_svg import PartitionStrip, draw_strip, marks_of
from klog.commands.report.tables import Row, table
from klog.commands.report.treemap_svg import Tile, draw_treemap

MOST_PICTURES = 40
"""Partitions that are drawn: the worst, then the largest."""

MOST_ROWS = 2000
"""Rows of a table of findings, events, groups' offsets or transactions."""

_MOST_PARTS = 6
"""Partitions of a transaction that are named."""

_OF_ONE_COPY = frozenset({"damage", "log-start", "compacted"})
"""Kinds of events of one copy rather than of the partition."""


def space(rows: Row, meanings: Mapping[str, str]) -> Iterator[Element]:
    """Yield the treemap, the reasons with their *meanings*, and the topics."""
    topics = [topic for topic in _objects(rows.get("topics")) if _number(topic.get("bytes")) > 0]
    tiles = [Tile(_topic(row), _number(row.get("bytes")), _reasons(row.get("reasons"))) for row in topics]
    caption = element("figcaption", None, "Bytes by topic, split by the reasons why they are still there. ")
    yield element("figure", {"class": "zoom"}, element("div", None, draw_treemap(tiles)), caption)
    reasons = sorted(_reasons(rows.get("reasons")).items(), key=lambda pair: -pair[1])
    if reasons:
        yield legend(
            *(term(reason, f"r {reason}", f"{size(total)}: {meanings.get(reason, '')}") for reason, total in reasons)
        )
    shown = [
        {**row, "topic": _topic(row), "reasons": ", ".join(f"{one} {size(total)}" for one, total in _largest(row))}
        for row in sorted(topics, key=lambda topic: -_number(topic.get("bytes")))[:MOST_ROWS]
    ]
    yield table("topics", shown, max(len(topics) - MOST_ROWS, 0))


def _topic(row: Row) -> str:
    return str(row.get("topic") or "other directories")


def _largest(row: Row) -> list[tuple[str, int]]:
    return sorted(_reasons(row.get("reasons")).items(), key=lambda pair: -pair[1])


def partitions(strips: Sequence[PartitionStrip]) -> Iterator[Element]:
    """Yield the pictures, of healthy partitions in a fold, and a table of all partitions."""
    worst = sorted(strips, key=lambda strip: (-strip.problems[0], -strip.problems[1], not strip.is_sick, -strip.bytes))
    drawn = worst[:MOST_PICTURES]
    yield _strip_legend()
    yield from (part for strip in drawn if strip.is_sick for part in _picture(strip))
    if len(worst) > MOST_PICTURES:
        told = f"Drawn: the {MOST_PICTURES} worst and largest of {len(worst)} partitions. All are in the table."
        yield element("p", {"class": "faint"}, told)
    healthy = [strip for strip in drawn if not strip.is_sick]
    count = sum(not strip.is_sick for strip in worst)
    if count:
        largest = "" if len(healthy) == count else f", the {len(healthy)} largest drawn"
        summary = element("summary", None, f"{counted(count, 'healthy partition')}{largest}")
        yield element("details", None, summary, *(part for strip in healthy for part in _picture(strip)))
    yield table("all-partitions", map(partition_row, worst))


def _strip_legend() -> Element:
    codecs = ("gzip", "snappy", "lz4", "zstd")
    return legend(
        term("uncompressed", "s none", "a segment of uncompressed batches"),
        *(term(codec, f"s {codec}", "a segment of batches with this codec") for codec in codecs),
        term("several codecs", "s mixed", "a segment of batches with different codecs"),
        term("▼ damage", "", "a batch or bytes that cannot be read"),
        term("no records", "gap", "offsets without a batch; compaction and aborts leave them"),
        term("aborted", "aborted", "an aborted transaction: read_committed consumers do not receive its records"),
        term("open", "open", "a transaction without an end: read_committed consumers receive nothing after its start"),
        term("e3", "", "leader epoch 3 begins here"),
        term("log start", "", "the first offset that consumers receive"),
        term("cleaner", "", "below it the log is compacted, above it is the dirty part"),
        term("last stable offset", "", "read_committed consumers read up to here"),
        term("high watermark", "", "below it all in-sync replicas have the records"),
        term("log end", "", "the offset of the next record"),
    )


def _problems(strip: PartitionStrip) -> list[str]:
    damages, warnings = strip.problems
    unended = sum(span.kind == "open" for span in strip.spans)
    counts = (damages, "damaged place"), (warnings, "warning"), (unended, "open transaction")
    return [*strip.notes, *(counted(count, word) for count, word in counts if count)]


def _picture(strip: PartitionStrip) -> Iterator[Element]:
    name = name_of(strip)
    more = [f"{counted(strip.more, 'more span')} not drawn"] if strip.more else []
    told = ", ".join([size(strip.bytes), *(_problems(strip) or ["no findings"]), *more])
    place = f"node {strip.node}, {strip.log_dir}" if strip.node is not None else strip.log_dir
    yield element("h3", None, f"{name} ", element("span", {"class": "faint place"}, place))
    marks = element("span", {"class": "narrow"}, f"{marks_of(strip)}. ")
    caption = element("figcaption", None, f"{told}. ", marks)
    yield element("figure", {"class": "zoom"}, element("div", None, draw_strip(strip, f"{name}, {place}")), caption)


def timeline(events: Sequence[Row], log_dirs: int) -> Iterator[Element]:
    """Yield the table of events; events of one copy name their log dir if there are several."""
    if not events:
        yield element("p", None, "No events.")
        return
    rows = (
        {**event, "subject": _subject(event), "log_dir": _of_copy(event, log_dirs)} for event in events[-MOST_ROWS:]
    )
    yield table("events", rows, max(len(events) - MOST_ROWS, 0), last=log_dirs > 1)


def _subject(event: Row) -> object:
    """Return the group or the transactional id that an event is about, else the node."""
    node = event.get("node")
    whose = event.get("group") or event.get("transactional_id")
    return whose or (None if node is None or event.get("topic") else f"node {node}")


def _of_copy(event: Row, log_dirs: int) -> object:
    return event.get("log_dir") if log_dirs > 1 and event.get("kind") in _OF_ONE_COPY else None


def groups(found: Sequence[Row]) -> Iterator[Element]:
    """Yield the table of committed offsets."""
    if not found:
        yield element("p", None, "No groups.")
        return
    yield legend(
        term("offset", "", "the next record that the group reads"),
        term("lag", "", "records between that and the log end"),
    )
    rows = [
        {**offset, "group": group.get("group"), "type": group.get("type"), "state": group.get("state")}
        for group in found
        for offset in _objects(group.get("offsets")) or [{}]
    ]
    yield table("offsets", rows[:MOST_ROWS], max(len(rows) - MOST_ROWS, 0))


def transactions(found: Sequence[Row]) -> Iterator[Element]:
    """Yield the table of transactions, in their order."""
    if not found:
        yield element("p", None, "No transactions.")
        return
    yield legend(
        term("hanging", "", "open, and unknown to its coordinator: nothing will end it"),
        term("open", "", "neither committed nor aborted"),
    )
    rows = ({**row, "parts": _parts(row.get("partitions"))} for row in found[:MOST_ROWS])
    yield table("all-transactions", rows, max(len(found) - MOST_ROWS, 0))


def _parts(found: object) -> str:
    """Return the partitions of a transaction, each with the offsets of its records."""
    parts = _objects(found)
    named = []
    for part in islice(parts, _MOST_PARTS):
        first = part.get("first_offset")
        held = "" if first is None else f" {offsets(first, part.get('last_offset'))}"
        named.append(f"{_partition(part)}{held}")
    more = len(parts) - _MOST_PARTS
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


class DamagedBytes(NamedTuple):
    """The bytes at the place of a finding.

    *kind*: its id.  *title*: its file and position.  *lines*: the fields.  *command*: the command that prints them.
    """

    kind: str
    title: str
    lines: Sequence[str]
    command: str


def findings(found: Sequence[Row], damaged: Sequence[DamagedBytes] = ()) -> Iterator[Element]:
    """Yield the table of findings, and the meaning of each kind, with the bytes of its places in folds."""
    if not found:
        yield element("p", None, "Nothing was found.")
        return
    kinds = {str(row["id"]): row for row in reversed(found)}
    rows = [{**row, "kind": row["id"], "file": row.get("file") or _partition(row)} for row in found[:MOST_ROWS]]
    yield table("all-findings", rows, max(len(found) - MOST_ROWS, 0))
    for kind, row in sorted(kinds.items()):
        yield element("h3", {"id": f"finding-{kind}"}, kind)
        yield element("p", None, str(row.get("meaning", "")))
        if row.get("broker"):
            yield element("p", None, f"A broker at its next start: {row['broker']}.")
        if row.get("fix"):
            yield element("pre", None, element("code", None, str(row["fix"])))
        yield from (_fold(one) for one in damaged if one.kind == kind)


def _fold(damage: DamagedBytes) -> Element:
    summary = element("summary", None, f"bytes of {damage.title}")
    lines = element("pre", None, *(element("code", None, line) for line in damage.lines))
    return element("details", {"class": "bytes"}, summary, lines, element("pre", None, damage.command))


def _partition(row: Row) -> str:
    """Return the partition that a row is about, in a page without the names of files."""
    return "" if row.get("topic") is None else f"{row.get('topic')}-{row.get('partition')}"


def name_of(strip: PartitionStrip) -> str:
    """Return the name of a partition, or of a directory that is none."""
    return strip.directory if strip.topic is None else f"{strip.topic}-{strip.partition}"


def partition_row(strip: PartitionStrip) -> dict[str, object]:
    """Return the row of a partition in the table and in the data."""
    return {
        "name": strip.directory,
        "node": strip.node,
        "log_dir": strip.log_dir,
        "log_start": strip.log_start,
        "log_end": strip.log_end,
        "bytes": strip.bytes,
        "segments": sum(segment.segments for segment in strip.segments),
        "damages": strip.problems[0],
        "warnings": strip.problems[1],
    }


def _objects(value: object) -> list[Row]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, Iterable) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _reasons(value: object) -> dict[str, int]:
    return {str(name): _number(total) for name, total in value.items()} if isinstance(value, Mapping) else {}
