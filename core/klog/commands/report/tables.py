"""The tables of the page: their columns, and the style that shows a row as a card where the screen is narrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from xml.etree.ElementTree import Element

from klog.commands.report.html_elements import element, size, time

Row = Mapping[str, object]

_TABLES = {
    "topics": ("Topics by size", ("topic", "bytes", "partitions", "reasons")),
    "all-partitions": (
        "Partitions, the worst first",
        ("name", "node", "log_dir", "log_start", "log_end", "bytes", "segments", "damages", "warnings"),
    ),
    "events": (
        "Events, oldest first",
        ("time", "message", "subject", "kind", "topic", "partition", "offset", "clock", "log_dir"),
    ),
    "offsets": (
        "Committed offsets",
        ("group", "type", "state", "topic", "partition", "offset", "log_end", "lag", "committed_at"),
    ),
    "all-transactions": (
        "Transactions, hanging and open ones first",
        ("state", "transactional_id", "parts", "began", "ended", "producer_id", "producer_epoch", "abort"),
    ),
    "all-findings": (
        "Findings",
        ("severity", "kind", "file", "node", "log_dir", "position", "offset", "message"),
    ),
}
"""Each table by its id: the caption, and the members to show."""

_HEADINGS = {
    "abort": "To end it",
    "committed_at": "Committed",
    "damages": "Damage",
    "message": "What",
    "name": "Partition",
    "parts": "Partitions and offsets",
    "position": "Byte",
    "producer_epoch": "Epoch",
    "producer_id": "Producer",
    "reasons": "Why it is still there",
    "subject": "Group or transactional id",
}
"""The headings of members of objects; other members have their own name as heading."""
_NUMBERS = (
    *("damages", "lag", "log_end", "log_start", "node", "offset", "partition", "partitions", "position"),
    *("producer_epoch", "producer_id", "segments", "warnings"),
)
_FORMS = {
    **dict.fromkeys(_NUMBERS, "number"),
    **dict.fromkeys(("began", "committed_at", "ended", "time"), "time"),
    **dict.fromkeys(("clock", "kind", "severity", "state", "type"), "word"),
    "abort": "code",
    "bytes": "bytes",
}
"""How members are shown: `number`, `bytes`, `time`, `code`, or `word` of klog's or Kafka's; others as text."""


def table(name: str, rows: Iterable[Row], left_out: int = 0, *, last: bool = True) -> Element:
    """Return a table of _TABLES; *left_out*: the number of further rows; *last*: with its last column."""
    caption, columns = _TABLES[name]
    columns = columns if last else columns[:-1]
    head = element("tr", None, *map(_heading, columns))
    cells = (element("tr", None, *(_cell(row.get(column), column) for column in columns)) for row in rows)
    body = element("tbody", None, *cells)
    note = f" (and {left_out} more, which are not listed here)" if left_out else ""
    made = element(
        "table",
        {"class": "rows", "id": name},
        element("caption", None, caption + note),
        element("thead", None, head),
        body,
    )
    return element("div", {"class": "wide"}, made)


def card_style() -> str:
    """Return the style that puts the heading of its column before each cell, for rows that are cards."""
    rules = (
        f'#{name} td:nth-child({at})::before {{ content: "{_name_of(member)}" }}'
        for name, (_, columns) in _TABLES.items()
        for at, member in enumerate(columns, 1)
    )
    return f"@media screen and (max-width: 900px) {{ {' '.join(rules)} }}\n"


def _name_of(member: str) -> str:
    return _HEADINGS.get(member, member.replace("_", " ").capitalize())


def _heading(member: str) -> Element:
    kind = "text" if _FORMS.get(member, "code") in ("code", "word") else "n"
    return element("th", {"scope": "col", "class": kind}, _name_of(member))


def _cell(value: object, member: str) -> Element:
    form = _FORMS.get(member)
    if value is None or value == "":
        return element("td", None)
    if form is None or form == "word":
        return element("td", {"class": "word"} if form else None, str(value))
    if form == "code":
        return element("td", None, element("code", None, str(value)))
    shown = size(value) if form == "bytes" else time(value) if form == "time" else str(value)
    return element("td", {"class": "n", "data-n": str(value)}, shown)
