"""Samples for the normal run; the marker `long` is for all of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

some_or_all = pytest.mark.parametrize(
    "every", [pytest.param(17, id="some"), pytest.param(1, marks=pytest.mark.long, id="all")]
)
"""For a test that goes through very many cases: one in seventeen of them, or each."""


def sampled(cases: Iterable[object], every: int) -> list[Any]:
    """Return parameters for *cases*; only each *every*-th is not `long`."""
    found = []
    for at, case in enumerate(cases):
        values = case if isinstance(case, tuple) else (case,)
        found.append(pytest.param(*values, marks=[pytest.mark.long] * (at % every > 0)))
    return found
