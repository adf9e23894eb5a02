"""How Java reads text: its numbers, lines, blanks and identities.

A broker's text files and file names mean what the Java methods named here read in them. Python's own methods often read
something else: `int(" 1_0 ")` is 10 in Python and an error in Java, and `str.splitlines` splits at a dozen line ends.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator
from typing import Final

from klog.formats.java_integers import INT_MAX, LONG_MAX

_DIGITS_AT_LEAST: Final = 18
"""A number with at most this many digits always fits into 64 bits."""

_ID_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def parse_int(text: str) -> int | None:
    """Return the number that *text* spells, None when Java's int parser would refuse it.

    One sign at most, then decimal digits of any script, nothing else; 32 bits.  Kafka: Integer.parseInt.
    """
    return _parse(text, INT_MAX)


def parse_long(text: str) -> int | None:
    """Return the 64-bit number that *text* spells, None when it is none.  Kafka: Long.parseLong."""
    return _parse(text, LONG_MAX)


def _parse(text: str, largest: int) -> int | None:
    if len(text) <= _DIGITS_AT_LEAST and text.isdecimal() and text.isascii():  # the usual form, in one step
        value = int(text)
        return value if value <= largest else None
    negative = text[:1] == "-"
    digits = text[1:] if negative or text[:1] == "+" else text
    # Java looks at UTF-16 units, so digits beyond the basic plane are none to it.
    if not digits.isdecimal() or (not digits.isascii() and max(digits) > "\uffff"):
        return None
    if len(digits) > 19:  # int() refuses thousands of digits, Java only counts those after leading zeros
        digits = digits.lstrip("".join(letter for letter in set(digits) if int(letter) == 0)) or "0"
        if len(digits) > 19:
            return None
    value = -int(digits) if negative else int(digits)
    return value if -largest - 1 <= value <= largest else None


def lines(text: str) -> Iterator[str]:
    """Yield the lines of *text*, without their ends: `\\n`, `\\r` or `\\r\\n`, the last one optional.

    Kafka: BufferedReader.readLine.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


def split_at_blanks(line: str) -> list[str]:
    """Return the fields of *line* between runs of blanks: blanks in front make an empty first field.

    Kafka: Pattern.compile("\\\\s+").split, which drops empty fields at the end only.
    """
    if not line:
        return [""]
    # str.split() would take a no-break space for a blank, too.
    pieces = line.replace("\t", " ").replace("\x0b", " ").replace("\f", " ").split(" ")
    fields = [piece for piece in pieces if piece]
    return ["", *fields] if fields and not pieces[0] else fields


def rows(found: Iterable[str]) -> Iterator[tuple[str, list[str], int | None, int | None]]:
    """Yield each line with its fields, and the 32-bit and the 64-bit number that its last two fields spell.

    A number is None if its field spells none, or is missing.
    """
    for line in found:
        fields = split_at_blanks(line)
        if len(fields) < 2:
            yield line, fields, None, None
        else:
            yield line, fields, _parse(fields[-2], INT_MAX), _parse(fields[-1], LONG_MAX)


def parse_uuid(text: str) -> str | None:
    """Return the identity that *text* spells in its usual 22 letters, None when Java would refuse it.

    Base64 of 16 bytes in the URL alphabet, with or without its two padding signs.  Kafka: Uuid.fromString.
    """
    letters = text[:-2] if len(text) == 24 and text.endswith("==") else text
    if len(letters) != 22 or not _ID_LETTERS.issuperset(letters):
        return None
    return uuid_text(binascii.a2b_base64(letters.replace("-", "+").replace("_", "/") + "=="))


def uuid_text(identity: bytes | memoryview) -> str:
    """Return the 22 letters of *identity*, 16 bytes.  Kafka: Uuid.toString."""
    encoded = binascii.b2a_base64(identity, newline=False).decode("ascii")
    return encoded.rstrip("=").replace("+", "-").replace("/", "_")


def uuid_bytes(letters: str) -> bytes:
    """Return the 16 bytes of an identity in its 22 letters."""
    return binascii.a2b_base64(letters.replace("-", "+").replace("_", "/") + "==")


ZERO_UUID: Final = uuid_text(bytes(16))
"""No identity: a topic id or directory id that was never given."""
