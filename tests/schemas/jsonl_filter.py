"""A filter over the lines of `klog dump --schemas`, for `--where`; it shares nothing with klog."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, NamedTuple

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "~")
ANY = None
"""The step `[]`."""
PLAIN_NAME = re.compile(r"[^.\[\]=!<>~\"\s]+")


class Where(NamedTuple):
    """A condition, taken apart: *right* is JSON, or for `~` an expression."""

    side: str
    steps: tuple[str | int | None, ...]
    operator: str
    right: Any

    def text(self, numbers: random.Random) -> str:
        """The condition as it is typed."""
        path = self.side
        for step in self.steps:
            if step is ANY:
                path += "[]"
            elif isinstance(step, int):
                path += f"[{step}]"
            elif PLAIN_NAME.fullmatch(step) and numbers.random() < 0.7:
                path += f".{step}"
            else:
                path += f"[{json.dumps(step)}]"
        is_bare = self.operator == "~" or (
            isinstance(self.right, str) and numbers.random() < 0.5 and is_text(self.right)
        )
        space = numbers.choice(("", " "))
        return f"{path}{space}{self.operator}{space}{self.right if is_bare else json.dumps(self.right)}"


def is_text(right: str) -> bool:
    """Whether a text means itself on the right side: it is no JSON, and has no blanks around it."""
    try:
        json.loads(right)
    except ValueError:
        return right == right.strip() and right not in ("NaN", "Infinity", "-Infinity") and not right.startswith("=")
    return False


def holds(record: dict[str, Any], where: Where) -> bool:
    """Whether the record of a line fits."""
    error = record.get(f"{where.side}_error")
    if where.side not in record or error not in (None, "trailing-bytes"):
        return False
    return any(fits(one, where) for one in leaves(record[where.side], where.steps))


def leaves(value: Any, steps: tuple[str | int | None, ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is ANY:
        for one in list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []:
            yield from leaves(one, rest)
    elif (isinstance(step, str) and isinstance(value, dict)) or (isinstance(step, int) and isinstance(value, list)):
        try:
            yield from leaves(value[step], rest)
        except (KeyError, IndexError):
            return


def fits(left: Any, where: Where) -> bool:
    if where.operator == "~":
        return isinstance(left, str) and re.search(where.right, left) is not None
    if where.operator == "=":
        return same(left, where.right)
    if where.operator == "!=":
        return not same(left, where.right)
    pair = comparable(left, where.right)
    if pair is None:
        return False
    a, b = pair
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[where.operator]


def same(left: Any, right: Any) -> bool:
    if isinstance(right, dict):
        return isinstance(left, dict) and set(left) == set(right) and all(same(left[key], right[key]) for key in right)
    if isinstance(right, list):
        return isinstance(left, list) and [*map(same, left, right)] == [True] * len(right) and len(left) == len(right)
    if isinstance(right, bool) or right is None:
        return type(left) is type(right) and left == right
    pair = comparable(left, right)
    return pair is not None and pair[0] == pair[1]


def comparable(left: Any, right: Any) -> tuple[Any, Any] | None:
    """Return two things that have an order: two numbers, two times of one kind, two texts."""
    if isinstance(right, bool) or isinstance(left, bool):
        return None
    if isinstance(right, int | float):
        found = number(left)
        return None if found is None else (found, number(right))
    if not isinstance(right, str) or not isinstance(left, str):
        return None
    times = time(left), time(right)
    if None not in times and times[0][0] == times[1][0]:  # type: ignore[index]
        return times
    return left, right


def number(value: Any) -> Fraction | None:
    if isinstance(value, str):
        return Fraction(value) if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) else None
    return Fraction(repr(value)) if isinstance(value, int | float) else None


def time(text: str) -> tuple[str, Any, str] | None:
    """Return a kind, a moment in whole seconds, and the digits behind them."""
    found = re.fullmatch(r"(.*?)(?:\.([0-9]{1,9}))?(Z|[+-][0-9][0-9]:[0-9][0-9])?", text)
    if found is None or not re.match(r"[0-9][0-9]", text):
        return None
    whole, digits, zone = found[1], (found[2] or "").ljust(9, "0"), found[3] or ""
    if found[2] is not None and not re.search(r":\d\d:\d\d$", whole, re.ASCII):
        return None
    if re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?", whole, re.ASCII) and not zone:
        return "day", whole if len(whole) == 8 else f"{whole}:00", digits
    is_date = re.fullmatch(r"\d{4}-\d\d-\d\d", whole, re.ASCII) and not zone and found[2] is None
    if not is_date and not re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?", whole, re.ASCII):
        return None
    try:
        moment = datetime.fromisoformat(whole + zone.replace("Z", "+00:00"))
    except ValueError:
        return None
    return "epoch", moment.replace(tzinfo=moment.tzinfo or UTC), digits


def conditions(numbers: random.Random, records: list[dict[str, Any]], count: int) -> Iterator[Where]:
    """Yield conditions that are near to the data: paths that are there, and values that nearly are."""
    for _ in range(count):
        record, side = numbers.choice(records), numbers.choice(("key", "value"))
        if side not in record:
            continue
        steps, leaf = path(numbers, record[side])
        operator = numbers.choice(OPERATORS)
        right = nearby(numbers, leaf)
        if operator == "~":
            text = leaf if isinstance(leaf, str) and leaf else "a"
            right = re.escape(text[: numbers.randrange(1, 4)]).strip() or "."
            if right.startswith('"') or right.endswith("\\"):
                right = "."
        elif operator not in ("=", "!=") and (isinstance(right, list | dict | bool) or right is None):
            operator = "="
        yield Where(side, steps, operator, right)


def path(numbers: random.Random, value: Any) -> tuple[tuple[str | int | None, ...], Any]:
    steps: list[str | int | None] = []
    while isinstance(value, dict | list) and value and numbers.random() < 0.9:
        if isinstance(value, dict):
            name = numbers.choice(list(value))
            steps.append(ANY if numbers.random() < 0.1 else name)
            value = value[name]
        else:
            at = numbers.randrange(len(value))
            steps.append(numbers.choice((ANY, at, at - len(value))))
            value = value[at]
    if numbers.random() < 0.05:
        steps.append(numbers.choice(("no such", 7, ANY, "id")))
    return tuple(steps), value


def nearby(numbers: random.Random, leaf: Any) -> Any:
    way = numbers.random()
    if way < 0.6:
        return leaf
    if way < 0.7:
        return numbers.choice((None, True, False, 0, "", [], {}, "a", "42", 42, "2026-01-01", "12:00"))
    if isinstance(leaf, bool) or leaf is None:
        return leaf
    if isinstance(leaf, int):
        return leaf + numbers.choice((-1, 1, 0.5)) if abs(leaf) < 2**50 else leaf + numbers.choice((-1, 1))
    if isinstance(leaf, float):
        return leaf * numbers.choice((1, 2, -1, 0.5)) if abs(leaf) < 1e300 else leaf
    if isinstance(leaf, str):
        if number(leaf) is not None and numbers.random() < 0.7:
            return float(leaf) if numbers.random() < 0.5 else int(float(leaf))
        if time(leaf) is not None:
            return numbers.choice((leaf[:10], leaf.replace("T", " "), leaf[:16], "2026-11-21T05:10+02:00"))
        return leaf + "a" if numbers.random() < 0.5 else leaf[:-1]
    return leaf
