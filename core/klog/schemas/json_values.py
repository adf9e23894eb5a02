"""Values as JSON: numbers with the fewest digits that give them back, and the text of a value of any depth."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from json.encoder import JSONEncoder, encode_basestring
from json.encoder import c_make_encoder as make_encoder  # type: ignore[attr-defined]

from klog.schemas.decoded import JsonText

_FLOAT = struct.Struct("<f")
_SMALLEST_NORMAL = 2.0**-126


def float_value(number: float) -> float | str:
    """Return a float32 as the shortest number that gives it back: 0.1, not 0.10000000149011612; text if not finite."""
    if not math.isfinite(number):
        return double_value(number)
    # Six digits survive the way through a float32, but for subnormal ones: no shorter text is missed.
    for digits in range(6 if abs(number) >= _SMALLEST_NORMAL else 1, 9):
        short = float(f"{number:.{digits}g}")
        if short == number or _is_float(short, number):
            return short
    return float(f"{number:.9g}")


def _is_float(short: float, number: float) -> bool:
    try:
        return bool(_FLOAT.unpack(_FLOAT.pack(short))[0] == number)
    except OverflowError:  # rounded up, beyond the largest float32
        return False


def double_value(number: float) -> float | str:
    """Return a float64 as JSON can hold it: NaN and the infinities are text."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _make_encoder() -> Callable[[object, int], Iterable[str]]:
    """Return an encoder that is made once: `json.dumps` makes one for each value, half of its time."""
    plain = JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))
    if make_encoder is None:  # another Python than CPython
        return lambda value, _indent: plain.iterencode(value)
    encoder: Callable[[object, int], Iterable[str]] = make_encoder(
        None, plain.default, encode_basestring, None, ":", ",", False, False, False
    )
    return encoder


_encode = _make_encoder()


def json_text(value: object) -> str:
    """Return *value* as JSON in one line, without blanks, text beyond ASCII as it is.

    Raises ValueError if a float in it is not finite.
    """
    if type(value) is JsonText:
        return value
    try:
        return "".join(_encode(value, 0))
    except RecursionError:
        return "".join(_deep(value))


def json_bytes(value: object) -> bytes:
    """Return the same in UTF-8.  A name in a schema can have half of a surrogate pair: its escape is right in JSON."""
    text = json_text(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


def _deep(value: object) -> Iterator[str]:
    """Yield the JSON of a value that is nested deeper than Python's encoder goes."""
    waiting = [_parts(value)]
    while waiting:
        for part in waiting[-1]:
            if isinstance(part, str):
                yield part
            else:
                waiting.append(_parts(part))
                break
        else:
            waiting.pop()


def _parts(value: object) -> Iterator[object]:
    """Yield the JSON of *value* as text, but for the lists and objects inside, which are yielded themselves."""
    if isinstance(value, dict):
        opening = "{"
        for name, one in value.items():
            yield f"{opening}{encode_basestring(name)}:"
            yield from _parts_inside(one)
            opening = ","
        yield "}" if value else "{}"
    elif isinstance(value, list):
        opening = "["
        for one in value:
            yield opening
            yield from _parts_inside(one)
            opening = ","
        yield "]" if value else "[]"
    else:
        yield "".join(_encode(value, 0))


def _parts_inside(value: object) -> Iterator[object]:
    if isinstance(value, dict | list):
        yield value
    else:
        yield "".join(_encode(value, 0))
