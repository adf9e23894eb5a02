"""Compiles functions for one version of one struct from generated source, as `dataclasses` does.

A function for each field would do, but takes three times as long: a request has dozens of fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class CodeWriter:
    """The source of a function of *arguments*; values that are no literals are its constants."""

    def __init__(self, arguments: str, *lines: str) -> None:
        self._arguments = arguments
        self._lines = list(lines)
        self._constants: dict[str, Any] = {}

    def add(self, *lines: str) -> None:
        """Append *lines*, each with the indentation that it has inside of the function."""
        self._lines += lines

    def constant(self, value: Any) -> str:
        """Return the name by which the function knows *value*."""
        name = f"k{len(self._constants)}"
        self._constants[name] = value
        return name

    def function(self, name: str, known: dict[str, Any]) -> Callable[..., Any]:
        """Return the function; *known* are the names that all such functions may use."""
        source = "\n    ".join([f"def run({self._arguments}):", *self._lines])
        names = known | self._constants
        exec(compile(source, f"<{name}>", "exec"), names)
        made: Callable[..., Any] = names["run"]
        return made
