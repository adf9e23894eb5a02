"""The tokens of `.proto` text, read one at a time: names, numbers, strings, symbols.

A name is read with its dots (`.x.Order.Line`). White space and comments separate tokens and mean nothing else.
No token is kept, so a text of 10 MB costs no list of its tokens.
"""

from __future__ import annotations

import re

from klog.schemas.decoded import BrokenSchemaError

_BETWEEN = re.compile(r"(?>\s++|//[^\n]*+|/\*(?s:.*?)\*/)*+")
_TOKEN = re.compile(
    r"""
    (?P<name>\.?[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)*+)
    |(?P<number>0[xX][0-9a-fA-F]++|(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?[fF]?)
    |(?P<text>"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+')
    |(?P<symbol>[{}()\[\]<>=;,:+\-/.])
    |(?P<end>\Z)
    """,
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_OPEN, _CLOSED = frozenset("{[("), frozenset("}])")
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


class Tokens:
    """The token at hand, and ways to take it: `value` is its text (a string with its quotes), `kind` what it is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0
        self.kind = self.value = ""
        self.next()

    def next(self) -> str:
        """Step to the next token, and return the one before."""
        before = self.value
        self._start = _BETWEEN.match(self._text, self._at).end()  # type: ignore[union-attr]  # it also matches nothing
        found = _TOKEN.match(self._text, self._start)
        if found is None:
            raise self.broken(f"{self._text[self._start]!r} is no part of .proto text")
        self._at = found.end()
        self.kind = found.lastgroup or ""
        self.value = found.group()
        return before

    def take(self, value: str) -> bool:
        """Step over the token if it is *value*."""
        if self.value != value:
            return False
        self.next()
        return True

    def expect(self, value: str) -> None:
        """Step over the token, which must be *value*."""
        if self.value != value:
            raise self.broken(f"{value!r} expected before {self.value[:60]!r}")
        self.next()

    def name(self, dots: bool = False) -> str:
        """Take a name; with *dots* it may be a path of names."""
        if self.kind != "name" or (not dots and "." in self.value):
            raise self.broken(f"a name expected before {self.value[:60]!r}")
        return self.next()

    def integer(self) -> int:
        """Take a whole number: decimal, octal or hexadecimal, with or without a sign."""
        sign = -1 if self.take("-") else 1
        if self.kind != "number":
            raise self.broken(f"a number expected before {self.value[:60]!r}")
        try:
            return sign * whole(self.next())
        except ValueError:
            raise self.broken("a whole number expected") from None

    def text(self) -> bytes:
        """Take a string, or several that follow each other, without quotes and escapes."""
        if self.kind != "text":
            raise self.broken(f"a string expected before {self.value[:60]!r}")
        parts = []
        while self.kind == "text":
            parts.append(_ESCAPE.sub(_unescaped, self.next()[1:-1].encode("utf-8", "surrogatepass")))
        return b"".join(parts)

    def skip_to(self, end: str) -> str:
        """Step behind the token *end* that belongs to no inner pair of brackets, and return the text before it."""
        first, inner = self._start, 0
        while inner or self.value != end:
            if self.kind == "end":
                raise self.broken(f"{end!r} is missing")
            inner += (self.value in _OPEN) - (self.value in _CLOSED)
            self.next()
        passed = self._text[first : self._start]
        self.next()
        return passed

    def broken(self, why: str) -> BrokenSchemaError:
        """Return the exception for the line of the token at hand."""
        return BrokenSchemaError(f"line {self._text.count(chr(10), 0, self._start) + 1}: {why}")


def whole(digits: str) -> int:
    """Return the number of *digits*, which begin with 0x or 0 where they are not decimal.  Raises ValueError."""
    return int(digits, 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10)


def _unescaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, other = found.groups()
    if octal:
        return bytes((int(octal, 8) & 0xFF,))
    if hexadecimal:
        return bytes((int(hexadecimal, 16),))
    if short or long:
        point = int(short or long, 16)
        return chr(point).encode("utf-8", "surrogatepass") if point < 0x110000 else b""
    return _LETTERS.get(other, other)
