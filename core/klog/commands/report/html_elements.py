"""HTML and SVG elements: all texts and attributes are added here, and none can become markup.

`xml.etree` escapes them when the page is written; characters without an escape in HTML are made visible first.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping
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
