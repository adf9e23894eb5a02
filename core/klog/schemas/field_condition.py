r"""Conditions on decoded keys and values, as `--where` has them: `value.customer.id=42`, `value.tags[]=vip`.

    condition = FieldCondition("value.lines[0].sku~^sku-")
    print(condition.side, condition.fits({"lines": [{"sku": "sku-7"}]}))

A path leads from `key` or `value` by `.name`, `["any name"]`, `[0]`, `[-1]` from the end, and `[]`, which is any
element of a list and any member of an object.  The right side is JSON, or else text.  A condition looks at a value as
its JSON shows it: a text that is a number is compared with a number as such, and two texts that are times as times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

from klog.base.errors import UsageError
from klog.schemas.decoded import JsonText

_SIDE: Final = re.compile(r"\s*(key|value)(?![^.\[\]=!<>~\s])")
_STEP: Final = re.compile(r'\.([^.\[\]=!<>~"\s]+)|\[\s*(-?\d{1,18})\s*\]|\[\s*("(?:[^"\\]|\\.)*")\s*\]|(\[\s*\])')
_OPERATOR: Final = re.compile(r"\s*(!=|<=|>=|==?|<|>|~)\s*")
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_TIME: Final = re.compile(
    r"(?:(\d{4})-(\d\d)-(\d\d))?(?:(?:^|(?<=\d)[T ])(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?)?"
)
_ANY: Final = object()
"""The step `[]`."""
_EXPECTED: Final = "expected a path, one of = != < <= > >= ~, and a value, such as value.customer.id=42"
Step = str | int | object
Moment = tuple[str, int]
"""A time: its kind, and its nanoseconds since the epoch or midnight."""


class FieldCondition:
    """A condition on the decoded key or value of a record; *side*: `key` or `value`.

    Raises UsageError for a text that is none.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        start = _SIDE.match(text)
        if start is None:
            raise UsageError(f"--where {text}: a path begins with key or value")
        self.side, at = start[1], start.end()
        self._steps: list[Step] = []
        while (step := _STEP.match(text, at)) is not None:
            self._steps.append(_step(step, text))
            at = step.end()
        operator = _OPERATOR.match(text, at)
        if operator is None:
            raise UsageError(f"--where {text}: {_EXPECTED}{_hint(text[at:])}")
        self._fits = _test(operator[1], text[operator.end() :].strip(), text)

    def fits(self, value: object) -> bool:
        """Whether a decoded value has the path, and what is there fits."""
        return any(map(self._fits, _leaves(_plain(value), self._steps, 0)))


def _step(found: re.Match[str], text: str) -> Step:
    name, index, quoted, _ = found.groups()
    if name is not None:
        return name
    if index is not None:
        return int(index)
    if quoted is None:
        return _ANY
    try:
        return str(json.loads(quoted, strict=False))
    except ValueError as error:
        raise UsageError(f"--where {text}: {quoted} is no text of JSON") from error


def _hint(rest: str) -> str:
    return '; a name with other characters is written ["so"]' if rest[:1] in (".", "[") or rest[:1].isspace() else ""


def _plain(value: object) -> object:
    """Return a value whose parts can be looked at: that of a JSON Schema is text."""
    return _parsed(value) if type(value) is JsonText else value


def _leaves(value: Any, steps: Sequence[Step], at: int) -> Iterator[object]:
    """Yield what the steps from *at* on lead to: nothing if the value does not have the path."""
    for number in range(at, len(steps)):
        step = steps[number]
        if step is _ANY:
            parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            for part in parts:
                yield from _leaves(part, steps, number + 1)
            return
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return
            value = value[step]
        else:
            assert isinstance(step, int)
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return
            value = value[step]
    yield value


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _decimal(text: str) -> Decimal:
    """Return the number of a text; one that no decimal can hold is infinite or 0."""
    try:
        return Decimal(text)
    except InvalidOperation:
        is_large = "e-" not in text.lower()
        return Decimal(("-" if text.startswith("-") else "") + ("Infinity" if is_large else "0"))


_parse = json.JSONDecoder(parse_int=_decimal, parse_float=_decimal, parse_constant=_refuse).decode


def _parsed(text: str) -> object:
    try:
        return _parse(text)
    except (ValueError, RecursionError):
        return str(text)


def _test(operator: str, right: str, text: str) -> Callable[[object], bool]:
    """Return the function that checks whether a value fits.  Raises UsageError."""
    if operator == "~":
        return _pattern(right, text)
    wanted = _parsed(right)
    moment = _moment(wanted) if isinstance(wanted, str) else None
    if operator in ("=", "=="):
        return lambda left: _equals(left, wanted, moment)
    if operator == "!=":
        return lambda left: not _equals(left, wanted, moment)
    if not isinstance(wanted, str | Decimal):
        raise UsageError(f"--where {text}: {operator} needs a number, a text or a time")
    holds = _ORDERS[operator]

    def fits(left: object) -> bool:
        order = _order(left, wanted, moment)
        return order is not None and holds(order)

    return fits


_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def _pattern(right: str, text: str) -> Callable[[object], bool]:
    quoted = _parsed(right) if right.startswith('"') else right
    try:
        search = re.compile(quoted if isinstance(quoted, str) else right).search
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"--where {text}: not a regular expression: {error}") from error
    return lambda left: isinstance(left, str) and search(left) is not None


def _equals(left: object, right: object, moment: Moment | None = None) -> bool:
    """Whether two values are equal; *moment*: of the right one, if it is a time."""
    if isinstance(right, Decimal):
        return _number(left) == right
    if isinstance(right, str):
        return isinstance(left, str) and (left == right or (moment is not None and _moment(left) == moment))
    if isinstance(right, list):
        return isinstance(left, list) and len(left) == len(right) and all(map(_equals, left, right))
    if isinstance(right, dict):
        if not isinstance(left, dict) or left.keys() != right.keys():
            return False
        return all(_equals(left[name], one) for name, one in right.items())
    return left is right  # null, true, false


def _order(left: object, right: str | Decimal, moment: Moment | None) -> int | None:
    """Return a number below, above or equal to 0; None for values that have no order."""
    if isinstance(right, Decimal):
        number = _number(left)
        return None if number is None else (number > right) - (number < right)
    if not isinstance(left, str):
        return None
    own = _moment(left) if moment is not None else None
    if own is not None and moment is not None and own[0] == moment[0]:
        return (own > moment) - (own < moment)
    return (left > right) - (left < right)


def _number(value: object) -> Decimal | int | None:
    """Return the number that the JSON of a value shows; a text of digits is a decimal, or an integer of 64 bits."""
    if isinstance(value, str):
        return Decimal(value) if _NUMBER.fullmatch(value) else None
    if isinstance(value, float):
        return Decimal(repr(value))
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def _moment(text: str) -> Moment | None:
    """Return the time that a text is: of a day, or since the epoch, UTC if it has no zone; None for another text."""
    found = _TIME.fullmatch(text) if len(text) <= 40 and text[:2].isdigit() else None
    if found is None or not text.isascii():
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    if max(int(hour or 0) - 23, int(minute or 0) - 59, int(second or 0) - 59) > 0:
        return None
    seconds = int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0)
    if zone not in (None, "Z"):
        east = int(zone[1:3]) * 3600 + int(zone[4:]) * 60
        seconds -= east if zone[0] == "+" else -east
    nanos = int((fraction or "0").ljust(9, "0"))
    if year is None:
        return None if zone is not None else ("day", seconds * 10**9 + nanos)
    try:
        days = date(int(year), int(month), int(day)).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        return None
    return "epoch", (days * 86400 + seconds) * 10**9 + nanos
