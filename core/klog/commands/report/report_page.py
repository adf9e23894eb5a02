"""The page: one HTML file that loads nothing, and whose structure no content of a disk can change.

The policy in it names the digest of klog's own script, so a browser runs no other.  `Redaction` replaces the names on
the disk, each always by the same word.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pkgutil import get_data
from typing import NamedTuple
from xml.etree.ElementTree import Element

from klog.base.errors import counted
from klog.commands.report import svg_pictures
from klog.commands.report.html_elements import Row, element, embedded_json, html, legend, raw, size, table, time
from klog.commands.report.svg_pictures import PartitionStrip

MOST_PICTURES = 40
"""Partitions that are drawn: the worst, then the largest."""

MOST_ROWS = 2000
"""Rows of a table of findings, events, groups' offsets or transactions."""


class Report(NamedTuple):
    """The content of a report, as JSON objects of the commands' own output.

    *created*: ms since the epoch.  *counts*: findings by severity.  *next_commands*: the next steps, the first one
    first, each with its reason.  *findings*: those of `klog verify`, with the kind's `meaning`.  *space*: that of `klog
    space`.  *events*: those of `klog timeline`.  *groups*: those of `klog groups`.  *transactions*: those of `klog
    transactions`.  *problems*: sentences about unreadable parts.
    """

    title: str
    version: str
    created: int
    log_dirs: Sequence[str]
    counts: Mapping[str, int]
    totals: Mapping[str, int]
    next_commands: Sequence[tuple[str, str]]
    findings: Sequence[Row]
    strips: Sequence[PartitionStrip]
    space: Row
    events: Sequence[Row]
    groups: Sequence[Row]
    transactions: Sequence[Row]
    problems: Sequence[str] = ()


_SECTIONS = (
    ("verdict", "Verdict"),
    ("space", "Space"),
    ("partitions", "Partitions"),
    ("timeline", "Timeline"),
    ("groups", "Groups"),
    ("transactions", "Transactions"),
    ("findings", "Findings"),
)


def page(report: Report) -> Iterator[bytes]:
    """Yield the page in pieces."""
    script, style = _resource("page.js"), _resource("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    head = element(
        "head",
        None,
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", None, report.title),
        raw("style", {}, style),
    )
    yield f'<!DOCTYPE html>\n<html lang="en">{html(head)}<body>\n'.encode()
    for part in _body(report):
        yield html(part).encode("utf-8", "backslashreplace") + b"\n"
    yield b'<script type="application/json" id="data">'
    yield embedded_json(_data(report)).encode("ascii")
    yield f"</script>\n{html(raw('script', {}, script))}\n</body></html>\n".encode()


def _resource(name: str) -> str:
    return (get_data("klog.commands.report", name) or b"").decode("utf-8")


def _body(report: Report) -> Iterator[Element]:
    links = (element("a", {"href": f"#{anchor}"}, heading) for anchor, heading in _SECTIONS)
    looked = f"log dirs: {len(report.log_dirs)}, partitions: {report.totals['partitions']}"
    made = f"klog {report.version}, {time(report.created)}, {looked}"
    yield element(
        "header",
        None,
        element("h1", None, report.title),
        element("p", {"class": "faint"}, made),
        element("nav", None, *links),
    )
    for (anchor, heading), content in zip(
        _SECTIONS,
        (
            _verdict(report),
            _space(report.space),
            _partitions(report.strips),
            _timeline(report.events),
            _groups(report.groups),
            _transactions(report.transactions),
            _findings(report.findings),
        ),
        strict=True,
    ):
        title = element("h2", {"id": f"{anchor}-title"}, heading)
        yield element("section", {"id": anchor, "aria-labelledby": f"{anchor}-title"}, title, *content)
    yield element("footer", {"class": "faint"}, element("p", None, "Log dirs: " + ", ".join(report.log_dirs)))


# the sections


def _verdict(report: Report) -> Iterator[Element]:
    damage, warnings = report.counts.get("damage", 0), report.counts.get("warning", 0)
    segments, batches = counted(report.totals["segments"], "segment"), counted(report.totals["batches"], "batch", "es")
    looked = f"{segments}, {size(report.totals['bytes'])}, {batches}"
    if damage:
        state, text = "damage", f"Damaged in {counted(damage, 'place')}, {counted(warnings, 'warning')}: {looked}."
    elif warnings:
        state, text = "warning", f"Not damaged, {counted(warnings, 'warning')}: {looked}."
    else:
        state, text = "clean", f"Clean: {looked}."
    yield element("p", {"class": f"state {state}"}, text)
    for problem in report.problems:
        yield element("p", {"class": "warning"}, element("b", None, "Could not be read: "), problem)
    if report.next_commands:
        yield element("h3", None, "Next")
    for command, why in report.next_commands:
        yield element("pre", None, element("code", None, command))
        yield element("p", {"class": "faint"}, why)


def _space(space: Row) -> Iterator[Element]:
    topics = [topic for topic in _objects(space.get("topics")) if _number(topic.get("bytes")) > 0]
    tiles = [
        svg_pictures.Tile(
            str(topic.get("topic") or "other directories"), _number(topic.get("bytes")), _reasons(topic.get("reasons"))
        )
        for topic in topics
    ]
    caption = element("figcaption", None, "Bytes by topic, split by the reasons why they are still there. ")
    yield element("figure", {"class": "zoom"}, element("div", None, svg_pictures.draw_treemap(tiles)), caption)
    reasons = sorted(_reasons(space.get("reasons")).items(), key=lambda pair: -pair[1])
    if reasons:
        yield legend((reason, size(total)) for reason, total in reasons)
    columns = ("topic", "bytes", "partitions")
    rows = sorted(topics, key=lambda topic: -_number(topic.get("bytes")))
    yield table("Topics by size", columns, rows[:MOST_ROWS], max(len(rows) - MOST_ROWS, 0))


def _partitions(strips: Sequence[PartitionStrip]) -> Iterator[Element]:
    worst = sorted(strips, key=lambda strip: (-strip.problems[0], -strip.problems[1], -strip.bytes))
    yield legend(
        (
            ("box", "a segment, with the codecs of its batches; dashed: several codecs"),
            ("▼", "damage"),
            ("dotted box", "offsets without records"),
            ("bars below", "aborted transactions; under them open ones"),
            ("e…", "where a leader epoch begins"),
            ("dashed lines", "log start, cleaner, last stable offset, high watermark, log end"),
        )
    )
    for strip in worst[:MOST_PICTURES]:
        name = _name(strip)
        more = f"{strip.more} more spans are not drawn. " if strip.more else ""
        told = f"{size(strip.bytes)}, damages: {strip.problems[0]}, warnings: {strip.problems[1]}. {more}"
        picture = element("div", None, svg_pictures.draw_strip(strip, name))
        yield element("h3", None, name)
        yield element("figure", {"class": "zoom"}, picture, element("figcaption", None, told))
    if len(worst) > MOST_PICTURES:
        drawn = f"Drawn: the {MOST_PICTURES} worst and largest of {len(worst)} partitions. All are in the table."
        yield element("p", {"class": "faint"}, drawn)
    columns = ("name", "log_dir", "log_start", "log_end", "bytes", "segments", "damages", "warnings")
    yield table("Partitions, the worst first", columns, map(_partition_row, worst))


def _timeline(events: Sequence[Row]) -> Iterator[Element]:
    if not events:
        yield element("p", None, "No events.")
        return
    columns = ("time", "clock", "kind", "topic", "partition", "offset", "message")
    yield table("Events, oldest first", columns, events[-MOST_ROWS:], max(len(events) - MOST_ROWS, 0))


def _groups(groups: Sequence[Row]) -> Iterator[Element]:
    if not groups:
        yield element("p", None, "No groups.")
        return
    rows = [
        {**offset, "group": group.get("group"), "type": group.get("type"), "state": group.get("state")}
        for group in groups
        for offset in _objects(group.get("offsets")) or [{}]
    ]
    columns = ("group", "type", "state", "topic", "partition", "offset", "log_end", "lag", "committed_at")
    yield table("Committed offsets", columns, rows[:MOST_ROWS], max(len(rows) - MOST_ROWS, 0))


def _transactions(transactions: Sequence[Row]) -> Iterator[Element]:
    if not transactions:
        yield element("p", None, "No transactions.")
        return
    order = {"hanging": 0, "open": 1, "aborted": 2}
    rows = sorted(transactions, key=lambda row: order.get(str(row.get("state")), 3))
    columns = ("state", "transactional_id", "producer_id", "producer_epoch", "began", "ended", "abort")
    yield table("Transactions, hanging and open ones first", columns, rows[:MOST_ROWS], max(len(rows) - MOST_ROWS, 0))


def _findings(findings: Sequence[Row]) -> Iterator[Element]:
    if not findings:
        yield element("p", None, "Nothing was found.")
        return
    kinds = {str(row["id"]): row for row in findings}
    rows = [{**row, "kind": row["id"]} for row in findings[:MOST_ROWS]]
    columns = ("severity", "kind", "file", "position", "offset", "message")
    yield table("Findings", columns, rows, max(len(findings) - MOST_ROWS, 0))
    for kind, row in sorted(kinds.items()):
        yield element("h3", {"id": f"finding-{kind}"}, kind)
        yield element("p", None, str(row.get("meaning", "")))
        if row.get("broker"):
            yield element("p", None, f"A broker at its next start: {row['broker']}.")
        if row.get("fix"):
            yield element("p", None, element("code", None, str(row["fix"])))


# the parts of the sections


def _objects(value: object) -> list[Row]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, Iterable) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _reasons(value: object) -> dict[str, int]:
    return {str(name): _number(total) for name, total in value.items()} if isinstance(value, Mapping) else {}


def _name(strip: PartitionStrip) -> str:
    return strip.directory if strip.topic is None else f"{strip.topic}-{strip.partition}"


def _partition_row(strip: PartitionStrip) -> dict[str, object]:
    return {
        "name": strip.directory,
        "log_dir": strip.log_dir,
        "log_start": strip.log_start,
        "log_end": strip.log_end,
        "bytes": strip.bytes,
        "segments": sum(segment.segments for segment in strip.segments),
        "damages": strip.problems[0],
        "warnings": strip.problems[1],
    }


def _data(report: Report) -> dict[str, object]:
    """Return the content of the page as a JSON object, without the pictures."""
    found = report._asdict()
    del found["strips"]
    found["next_commands"] = [{"command": command, "why": why} for command, why in report.next_commands]
    rows = {member: found[member][:MOST_ROWS] for member in ("findings", "events", "groups", "transactions")}
    space = {member: value for member, value in report.space.items() if member != "segments"}
    return {**found, **rows, "space": space, "partitions": [_partition_row(strip) for strip in report.strips]}


_CLOSED = frozenset({"id", "severity", "clock", "kind", "state", "reason", "type", "codec", "meaning", "why"})
"""Members whose values klog has a list of."""

_NAMES = {
    "topic": "topic",
    "group": "group",
    "transactional_id": "transaction",
    "member_id": "member",
    "instance_id": "instance",
    "log_dir": "log-dir",
    "path": "log-dir",
    "topic_id": "topic-id",
    "cluster_id": "cluster",
}
"""Members that become a word with a number."""


_COUNTS = frozenset({"reasons", "counts", "totals"})
"""Members that are objects of numbers by klog's own words."""

_OBJECTS = frozenset({"coordinator"})
"""Members that are objects whose members klog has given their names."""


class Redaction:
    """Numbers the names of each kind in the order of their first use: `topic-1`, `topic-2`, …"""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, int]] = {}

    def name(self, kind: str, name: str) -> str:
        """Return the word that replaces *name*; names of Kafka's own topics are kept."""
        if kind == "topic" and name in ("__consumer_offsets", "__transaction_state", "__share_group_state"):
            return name
        known = self._numbers.setdefault(kind, {})
        return f"{kind}-{known.setdefault(name, len(known) + 1)}"

    def row(self, row: Mapping[str, object]) -> dict[str, object]:
        """Return *row*, a JSON object, with numbers, words and members of closed lists alone: no other text."""
        return {member: value for member, found in row.items() if (value := self._member(member, found)) is not None}

    def _member(self, member: str, value: object) -> object:
        if value is None or isinstance(value, (int, float)):
            return value
        if isinstance(value, str):
            kind = _NAMES.get(member)
            return self.name(kind, value) if kind is not None else value if member in _CLOSED else None
        if isinstance(value, Mapping):
            return dict(value) if member in _COUNTS else self.row(value) if member in _OBJECTS else None
        if isinstance(value, Sequence):
            return [one for item in value if (one := self._item(member, item)) is not None]
        return None

    def _item(self, member: str, item: object) -> object:
        """Return an element of an array: an object, a number, or a pair of a topic and a number."""
        if isinstance(item, Sequence) and not isinstance(item, str) and len(item) == 2 and isinstance(item[0], str):
            return [self.name("topic", item[0]), self._member(member, item[1])]
        return self.row(item) if isinstance(item, Mapping) else self._member(member, item)
