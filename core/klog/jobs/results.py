"""The results of tasks: one form for the results and the findings of every job, on whatever it runs."""

from __future__ import annotations

import json
import pickle
from typing import Any, NamedTuple


class TaskResult(NamedTuple):
    """*kind*: what *content* is: JSON, or what the job says.  *number*: of the piece of work that it is about."""

    kind: str
    content: bytes
    number: int = 0

    @property
    def facts(self) -> Any:
        """The content, where it is JSON."""
        return json.loads(self.content)

    @property
    def value(self) -> Any:
        """The content, where it is a pickled value."""
        return pickle.loads(self.content)


def json_result(kind: str, facts: object, number: int = 0) -> TaskResult:
    """Return a result whose content is JSON."""
    return TaskResult(kind, json.dumps(facts).encode(), number)


def pickled_result(kind: str, value: object, number: int = 0) -> TaskResult:
    """Return a result whose content is a pickled value."""
    return TaskResult(kind, pickle.dumps(value, pickle.HIGHEST_PROTOCOL), number)
