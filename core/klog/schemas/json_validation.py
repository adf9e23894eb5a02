"""Validates the values of a JSON Schema, in bounded time: no reference is fetched, and no schema takes for ever.

Whoever may register a schema can write one that refers to a file on another host, or has a regular expression that
tries all ways to divide a text, or doubles the work with each level.  A value that takes longer than its time is the
last one that its schema validates.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from klog.base.errors import UnsupportedError

_SECONDS: Final = 1.0
_BYTES_A_SECOND: Final = 200_000
_AGAIN_SECONDS: Final = 0.1
_LONGEST_REASON: Final = 200
_LONGEST_PART: Final = 60
NEEDED: Final = "pip install 'klog[schemas]'"


class TooSlowError(BaseException):
    """The time is over.  This is no Exception, since libraries catch those."""


class JsonValidator:
    """The validator of a schema; *references*: the texts that it may refer to, by name.

    *gave_up*: the reason why it validates no value, or no more.  Raises UnsupportedError without klog[schemas].
    """

    def __init__(self, text: str, references: Mapping[str, str], seconds: float = _SECONDS) -> None:
        self.gave_up: str | None = None
        self._references, self._seconds = references, seconds
        try:
            from jsonschema.validators import Draft7Validator, validator_for
            from jsonschema_specifications import REGISTRY as METASCHEMAS
            from referencing import Registry
        except ModuleNotFoundError as error:
            raise UnsupportedError(f"--validate needs {error.name}: {NEEDED}") from error
        self._metaschemas = METASCHEMAS
        schema, new_registry = json.loads(text), cast("Any", Registry)
        kind = validator_for(schema, default=Draft7Validator)
        self._validator: Any = kind(schema, registry=new_registry(retrieve=self._resource))

    def problem(self, text: str) -> str | None:
        """Return how the JSON *text* contradicts the schema; None if it does not, or if this is not known."""
        if self.gave_up is not None:
            return None
        try:
            with _limit(self._seconds + len(text) / _BYTES_A_SECOND):
                error = next(self._validator.iter_errors(_value(text)), None)
                return None if error is None else _reason(error)
        except TooSlowError:
            self.gave_up = "it takes too long"
        except RecursionError:
            self.gave_up = "it is nested too deep, or without an end"
        except Exception as error:  # the library raises whatever a wrong schema leads to
            self.gave_up = f"{type(error).__name__.strip('_')}: {' '.join(str(error).split())}"[:_LONGEST_REASON]
        return None

    def _resource(self, uri: str) -> Any:
        """Return the schema that a reference means: by its name, also behind the base of the schema's own id."""
        from referencing import Resource
        from referencing.exceptions import NoSuchResource
        from referencing.jsonschema import DRAFT7

        for name, text in self._references.items():
            if uri == name or uri.endswith(f"/{name.lstrip('/')}"):
                return Resource.from_contents(json.loads(text), default_specification=DRAFT7)
        found = self._metaschemas.get(uri)
        if found is None:
            raise cast("Any", NoSuchResource)(ref=uri)
        return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # a number with more digits than Python takes
        return json.loads(text, parse_int=float)


def _reason(error: Any) -> str:
    """Return how a value contradicts its schema: the place, and the rule."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{str(part)[:_LONGEST_PART]}" for part in error.path)
    rule = error.validator_value
    shown = f" {str(rule)[:_LONGEST_PART]}" if isinstance(rule, str | int | float | bool) else ""
    return f"value{place}: {error.validator}{shown}"[:_LONGEST_REASON]


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise TooSlowError in the block when it has used so many seconds of the processor.

    A timer ends regular expressions as well, which look for signals; signals are for the main thread alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_over = False

    def ring(_number: int, _frame: object) -> None:
        if not is_over:
            raise TooSlowError

    former = signal.signal(signal.SIGVTALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN_SECONDS)
        yield
    finally:
        is_over = True
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)
