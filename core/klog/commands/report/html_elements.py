"""HTML and SVG elements, and tables of them: all texts and attributes are added here, and none can become markup.

`xml.etree` escapes them when the page is written; characters without an escape in HTML are made visible first.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, tostring

MOST_CHARACTERS = 300
"""The length limit of a text from a disk; a name can have a hundred thousand characters."""

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_KEPT = 40

Child = Element | str


def visible(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return *text*, cut to *most*, with escapes for control characters, directions, lone surrogates and line ends."""
    if len(text) > most:
        text = f"{text[: most - _KEPT]}… ({len(text)} characters)"
    if text.isprintable():  # all of "Other" and of the separators except the space are not
        return text
    return "".join(
        char if unicodedata.category(char) not in _INVISIBLE else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def element(tag: str, attributes: Mapping[str, object] | None = None, *children: Child) -> Element:
    """Return an element; its texts and the values of its attributes are made `visible`."""
    made = Element(tag, {name: visible(str(value), 4096) for name, value in (attributes or {}).items()})
    return add(made, children)


def add(parent: Element, children: Iterable[Child]) -> Element:
    """Append elements and texts to *parent*; return it."""
    last = parent[-1] if len(parent) else None
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
            last = child
        elif last is None:
            parent.text = (parent.text or "") + visible(child)
        else:
            last.tail = (last.tail or "") + visible(child)
    return parent


def html(made: Element) -> str:
    """Return an element as HTML."""
    return tostring(made, encoding="unicode", method="html")


def raw(tag: str, attributes: dict[str, str], content: str) -> Element:
    """Return a `script` or `style` with *content* as it is: only klog's own, and JSON from `embedded_json`."""
    made = Element(tag, attributes)
    made.text = content
    return made


_ESCAPES = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def embedded_json(value: object) -> str:
    """Return *value* as JSON for a script element: no character of it ends the element or a line."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).translate(_ESCAPES)


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
