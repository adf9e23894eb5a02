"""Random JSON as text, and what damage makes of it."""

from __future__ import annotations

import json
import random
from typing import Any

_PARTS = (
    b"\\", b'"', b"\\u", b"\\ud83d", b"\\uDE00", b"\\n", b"\\x", b"[", b"]", b"{", b"}", b",", b":", b" ", b"\n",
    b"\t", b"\x0b", b"\0", b"\x1f", b"\x7f", b"\xff", b"\xc3", b"\xed\xa0\x80", b"0", b"-", b".", b"e", b"E+", b"1",
    b"NaN", b"null", b"tru", b"\xe2\x80\xa8",
)  # fmt: skip
_TEXTS = ("", "a b", 'q"', "\\", "ü", " \t\n", "\0", "\u2028", "😀", "\ud83d", "x" * 300)


def random_text(numbers: random.Random) -> bytes:
    """Return a JSON value in UTF-8, with blanks or without."""
    value, indent = random_value(numbers, 0), numbers.choice((None, None, 1, "\t"))
    try:
        return json.dumps(value, indent=indent, ensure_ascii=numbers.random() < 0.5).encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent).encode()


def random_value(numbers: random.Random, depth: int) -> Any:
    """Return a random value as Python has it."""
    kind = numbers.randrange(9 if depth < 4 else 6)
    if kind < 6:
        number = numbers.random() * 10.0 ** numbers.randrange(-300, 300)
        return (None, True, False, numbers.randrange(-999, 10**18), number, numbers.choice(_TEXTS))[kind]
    if kind == 6:
        return [random_value(numbers, depth + 1) for _ in range(numbers.randrange(4))]
    return {numbers.choice(_TEXTS): random_value(numbers, depth + 1) for _ in range(numbers.randrange(4))}


def damaged(numbers: random.Random, content: bytes) -> bytes:
    """Return *content* with a part too few or too many, or with another bit."""
    made = bytearray(content)
    for _ in range(numbers.randrange(1, 3)):
        at = numbers.randrange(len(made) + 1)
        way = numbers.randrange(4)
        if way == 0:
            made[at:at] = numbers.choice(_PARTS)
        elif way == 1:
            del made[at : at + numbers.randrange(1, 3)]
        elif way == 2:
            made[at : at + 1] = numbers.choice(_PARTS)
        elif at < len(made):
            made[at] ^= 1 << numbers.randrange(8)
    return bytes(made)
