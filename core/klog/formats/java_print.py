"""How Java writes text: bytes as UTF-8, strings as JSON, floating-point numbers.

Kafka's tools print through these methods; only the same algorithms give the same output.
"""

from __future__ import annotations

import codecs
import math
import struct

# ---------------------------------------------------------------- UTF-8


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Replace the bytes that Java replaces at once: it treats an encoded surrogate (ED A0 80 … ED BF BF) as one error,
    even if it is cut off."""
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
#
# Java up to 18 (Kafka's tools are run with 17) does not always print the shortest digits that give the number back:
# its digits stop by a test that is a little too strict, in three widths of integers that may overflow.  From 19 on the
# digits are the shortest; the two differ in about one number of a hundred with 16 or 17 digits, never in short ones.

_MAX_WIDTH_POWER = 26
"""The largest power of five that Java keeps in a table of 64-bit numbers."""


def double_text(value: float) -> str:
    """Return *value* as Java 17 prints it: `1.0`, `1.0E7`, `NaN`.  Java: Double.toString."""
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    value = abs(value)
    if value in (0.0, math.inf):
        return sign + ("0.0" if value == 0.0 else "Infinity")
    digits, point = _digits(value)
    if 0 < point < 8:
        return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"
    if -3 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _digits(value: float) -> tuple[str, int]:
    """Return the decimal digits d1 d2 … and the exponent so that 0.d1d2… × 10^exponent is *value*."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    exponent, fraction = bits >> 52, bits & (1 << 52) - 1
    if exponent:
        fraction |= 1 << 52
        precision = 53
    else:  # a denormal number has fewer significant bits
        precision = fraction.bit_length()
        exponent = precision - 52
        fraction <<= 53 - precision
    exponent -= 1023
    trailing_zeros = (fraction & -fraction).bit_length() - 1
    width = 53 - trailing_zeros
    if 0 <= exponent <= 62 and width <= exponent + 1:
        return _whole_digits(fraction << exponent >> 52, exponent - precision - 1)
    return _fraction_digits(fraction >> trailing_zeros, width, exponent, precision)


def _whole_digits(number: int, unknown_bits: int) -> tuple[str, int]:
    """Return the digits of a whole number, rounded where its last *unknown_bits* bits, mere filler, would decide."""
    dropped = len(str(1 << unknown_bits)) - 1 if unknown_bits > 1 else 0
    if dropped:
        number, rest = divmod(number, 10**dropped)
        number += rest >= 10**dropped >> 1
    digits = str(number)
    return digits.rstrip("0"), len(digits) + dropped


def _power_width(power: int) -> int:
    """Return how many bits Java uses for 5^power; an estimate beyond its table."""
    return (5**power).bit_length() if 0 < power <= _MAX_WIDTH_POWER else 3 * power


def _wrapped(number: int, width: int) -> int:
    """Return *number* as a signed integer of *width* bits; 0 means no limit."""
    if not width:
        return number
    number &= (1 << width) - 1
    return number - (1 << width) if number >> width - 1 else number


def _fraction_digits(fraction: int, width: int, exponent: int, precision: int) -> tuple[str, int]:
    """Return the digits of fraction (*width* bits, odd) × 2^(exponent + 1 - width).

    The number is kept as rest / scale, half the gap to its neighbour as margin / scale; digits come off from the left
    until what is left is less than the margin, or so near to the next digit.
    """
    mantissa: float = struct.unpack(">d", struct.pack(">Q", 1023 << 52 | (fraction << 53 - width) & (1 << 52) - 1))[0]
    power = math.floor((mantissa - 1.5) * 0.289529654 + 0.176091259 + exponent * 0.301029995663981)
    fives_rest, fives_scale = max(0, -power), max(0, power)
    tiny = max(0, width - exponent - 1)
    twos_rest = fives_rest + tiny + exponent
    twos_scale = fives_scale + tiny
    twos_margin = twos_rest - precision
    twos_rest -= width - 1
    common = min(twos_rest, twos_scale)
    twos_rest, twos_scale, twos_margin = twos_rest - common, twos_scale - common, twos_margin - common
    if width == 1:  # below a power of two the numbers lie closer
        twos_margin -= 1
    if twos_margin < 0:
        twos_rest, twos_scale, twos_margin = twos_rest - twos_margin, twos_scale - twos_margin, 0
    rest_width = width + twos_rest + _power_width(fives_rest)
    limit_width = twos_scale + 1 + _power_width(fives_scale + 1)
    limit = max(rest_width, limit_width)
    digits, power = _generate(
        fraction * 5**fives_rest << twos_rest,
        5**fives_scale << twos_scale,
        5**fives_rest << twos_margin,
        power,
        32 if limit < 32 else 64 if limit < 64 else 0,
    )
    return "".join(map(str, digits)), power + 1


def _generate(rest: int, scale: int, margin: int, power: int, width: int) -> tuple[list[int], int]:
    """Return the digits of rest / scale, rounded, and the power of ten of the first one."""
    limit = scale * 10
    digits: list[int] = []
    first, low, high = True, False, False
    while first or not (low or high):
        digit, rest = divmod(rest, scale)
        rest *= 10
        margin = _wrapped(margin * 10, width)
        if first or margin > 0:
            low = rest < margin
            reach = _wrapped(rest + margin, width)
            high = reach > limit if width else reach >= limit
        else:  # the margin has overflowed
            low = high = True
        if first and digit == 0 and not high:  # the power was estimated one too high
            power -= 1
        else:
            digits.append(digit)
        if first and not -3 <= power < 8:  # one digit is never enough before an exponent: 1.0E10
            low = high = False
        first = False
    difference = 2 * rest - limit
    if high and (not low or difference > 0 or (difference == 0 and digits[-1] % 2)):
        power += _round_up(digits)
    return digits, power


def _round_up(digits: list[int]) -> int:
    """Add one to the last of *digits*; return 1 when that gave a new first digit."""
    at = len(digits) - 1
    while at > 0 and digits[at] == 9:
        digits[at] = 0
        at -= 1
    if digits[at] == 9:
        digits[0] = 1
        return 1
    digits[at] += 1
    return 0
