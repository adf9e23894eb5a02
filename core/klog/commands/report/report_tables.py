"""Tables of a report: rows of JSON objects under headings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from klog.commands.report.html_elements import Child, element

Row = Mapping[str, object]
_HEADINGS = {
    "abort": "To end it",
    "committed_at": "Committed",
    "message": "What",
    "name": "Partition",
    "position": "Byte",
    "producer_epoch": "Epoch",
    "producer_id": "Producer",
}
"""The headings of members of objects; other members have their own name as heading."""
_NUMBERS = (
    *("damages", "lag", "log_end", "log_start", "offset", "partition", "partitions", "position"),
    *("producer_epoch", "producer_id", "segments", "warnings"),
)
_FORMS = {
    **dict.fromkeys(_NUMBERS, "number"),
    **dict.fromkeys(("began", "committed_at", "ended", "time"), "time"),
    "abort": "code",
    "bytes": "bytes",
}
"""How members are shown: `number`, `bytes`, `time` or `code`; others as text."""
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def table(caption: str, columns: Sequence[str], rows: Iterable[Row], left_out: int = 0) -> Element:
    """Return a table in a box that scrolls separately; *left_out*: the number of further rows.

    *columns*: the members to show.
    """
    head = element("tr", None, *map(_heading, columns))
    cells = (element("tr", None, *(_cell(row.get(column), column) for column in columns)) for row in rows)
    body = element("tbody", None, *cells)
    note = f" (and {left_out} more, which are not listed here)" if left_out else ""
    made = element(
        "table", {"class": "rows"}, element("caption", None, caption + note), element("thead", None, head), body
    )
    return element("div", {"class": "wide"}, made)


def _heading(member: str) -> Element:
    heading = _HEADINGS.get(member, member.replace("_", " ").capitalize())
    return element("th", {"scope": "col", "class": "text" if _FORMS.get(member, "code") == "code" else "n"}, heading)


def _cell(value: object, member: str) -> Element:
    form = _FORMS.get(member)
    if value is None:
        return element("td", None, "")
    if form is None:
        return element("td", None, str(value))
    if form == "code":
        return element("td", None, element("code", None, str(value)))
    shown = size(value) if form == "bytes" else time(value) if form == "time" else str(value)
    return element("td", {"class": "n", "data-n": str(value)}, shown)


def size(value: object) -> str:
    """Return a number of bytes for a person."""
    number, unit = float(value) if isinstance(value, (int, float)) else 0.0, 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.0f} {_UNITS[0]}" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"


def time(value: object) -> str:
    """Return ms since the epoch as a time in UTC; a time that no calendar has as its number."""
    if not isinstance(value, int):
        return str(value)
    try:
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(value)


def legend(pairs: Iterable[tuple[str, Child]]) -> Element:
    """Return the meaning of signs."""
    items = (element("div", None, element("dt", None, sign), element("dd", None, meaning)) for sign, meaning in pairs)
    return element("dl", {"class": "legend"}, *items)
