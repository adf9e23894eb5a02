"""HTML and SVG elements: all texts and attributes are added here, and none can become markup.

`xml.etree` escapes them when the page is written; characters without an escape in HTML are made visible first.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
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


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def letters(text: str) -> int:
    """Return the width of *text* in a font of equally wide letters: those of East Asia are as wide as two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def offsets(first: object, last: object) -> str:
    """Return a range, both ends inclusive: `0–59`, or `7` if both are the same."""
    return f"{first}" if first == last else f"{first}–{last}"


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


def term(sign: Child, swatch: str, *meaning: Child) -> Element:
    """Return a sign and its meaning, for a `legend`; *swatch*: the classes of the shape that it explains, if any."""
    colour = [element("span", {"class": f"swatch {swatch}", "aria-hidden": "true"})] if swatch else []
    return element("div", None, element("dt", None, *colour, sign), element("dd", None, *meaning))


def legend(*terms: Element) -> Element:
    """Return the meaning of signs."""
    return element("dl", {"class": "legend"}, *terms)
