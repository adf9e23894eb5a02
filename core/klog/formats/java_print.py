"""How Java writes text: bytes as UTF-8, strings as JSON, floating-point numbers.

Kafka's tools print through these methods; only the same algorithms give the same output.
"""

from __future__ import annotations

import codecs
import math

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
