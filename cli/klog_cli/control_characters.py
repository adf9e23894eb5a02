"""Text that a terminal only shows: control characters, which would act on it, become visible."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return *text* for a person's screen: control characters, as in a hostile file name, become visible."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
