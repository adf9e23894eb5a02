"""How Java reads and writes text: its numbers, lines, blanks and identities, its JSON.

A broker's text files and file names mean what the Java methods named here read in them. Python's own methods often read
something else: `int(" 1_0 ")` is 10 in Python and an error in Java, and `str.splitlines` splits at a dozen line ends.
Kafka's tools print through Java's methods; only the same algorithms give the same output.
"""

from __future__ import annotations

import binascii
import codecs
import math
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


# ---------------------------------------------------------------- UTF-8


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Replace bytes as Java does: an encoded surrogate (ED A0 80 … ED BF BF) is one error, even if cut off."""
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        whole = start + 2 < len(data) and 0x80 <= data[start + 2] <= 0xBF
        return "\ufffd", start + (3 if whole else 2)
    return "\ufffd", error.end


codecs.register_error("klog-java", _replaced)


def utf8_text(data: bytes) -> str:
    """Return *data* as text, with U+FFFD wherever Java's `new String(bytes, UTF_8)` puts one."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("utf-8", "klog-java")


# ---------------------------------------------------------------- JSON

_ESCAPES = {number: f"\\u{number:04X}" for number in range(32)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\b"): "\\b",
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\f"): "\\f",
    ord("\r"): "\\r",
}


def json_string(text: str) -> str:
    """Return *text* as a JSON string: only quotes, backslashes, control characters are escaped.  Jackson: TextNode."""
    return '"' + text.translate(_ESCAPES) + '"'


def json_double(value: float) -> str:
    """Return *value* as JSON; a value without a JSON number is quoted.  Jackson: DoubleNode."""
    return double_text(value) if math.isfinite(value) else f'"{double_text(value)}"'


# ---------------------------------------------------------------- floating-point numbers


def double_text(value: float) -> str:
    """Return *value* as Java 19 and newer print it: `1.0`, `1.0E7`, `NaN`.  Java: Double.toString.

    Older ones print a digit more of about one number in a hundred that has 16 or 17 digits.
    """
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    value = abs(value)
    if value in (0.0, math.inf):
        return sign + ("0.0" if value == 0.0 else "Infinity")
    shortest = next(text for more in range(1, 17) if float(text := f"{value:.{more}e}") == value)
    mantissa, _, exponent = shortest.partition("e")
    digits, point = mantissa.replace(".", "").rstrip("0"), int(exponent) + 1
    if 0 < point < 8:
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    if -3 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"
