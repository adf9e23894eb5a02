"""A schema with its references put in: one text for Avro, the files for the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from klog.schemas.avro_types import PRIMITIVES
from klog.schemas.decoded import BrokenSchemaError

_NAMED = ("record", "error", "enum", "fixed")


def resolved_avro(text: str, references: Mapping[str, str]) -> str:
    """Return an Avro schema in which each type of *references* is defined where it is used first.

    Raises BrokenSchemaError for a text that is no JSON.
    """
    try:
        inliner = _Inliner()
        for one in references.values():
            inliner.learn(json.loads(one), "")
        return json.dumps(inliner.inlined(json.loads(text), ""), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise BrokenSchemaError(f"no JSON: {error}") from None


class _Inliner:
    def __init__(self) -> None:
        self._known: dict[str, tuple[dict[str, Any], str]] = {}
        self._defined: set[str] = set()

    def learn(self, given: Any, space: str) -> None:
        """Remember the named types that a schema defines, each with the namespace around it."""
        if isinstance(given, list):
            for one in given:
                self.learn(one, space)
        elif isinstance(given, dict):
            inner = space
            if given.get("type") in _NAMED:
                name = _full_name(given, space)
                self._known[name] = given, space
                inner = name.rpartition(".")[0]
            for part in _parts(given):
                self.learn(part, inner)

    def inlined(self, given: Any, space: str) -> Any:
        """Return a schema with the known types put in where they are met first."""
        if isinstance(given, list):
            return [self.inlined(one, space) for one in given]
        if isinstance(given, str):
            return self._by_name(given, space)
        if not isinstance(given, dict):
            return given
        if given.get("type") in _NAMED:
            return self._definition(given, space)
        return {
            key: self.inlined(one, space) if key in ("type", "items", "values") else one for key, one in given.items()
        }

    def _by_name(self, name: str, space: str) -> Any:
        full = name if "." in name or not space else f"{space}.{name}"
        full = full if full in self._known or full in self._defined else name
        if name in PRIMITIVES or full in self._defined or full not in self._known:
            return full if full in self._defined else name
        return self._definition(*self._known[full])

    def _definition(self, given: dict[str, Any], space: str) -> Any:
        name = _full_name(given, space)
        if name in self._defined:
            return name
        self._defined.add(name)
        inner = name.rpartition(".")[0]
        found = {key: one for key, one in given.items() if key != "namespace"} | {"name": name}
        if isinstance(given.get("fields"), list):
            found["fields"] = [
                one | {"type": self.inlined(one.get("type"), inner)} if isinstance(one, dict) else one
                for one in given["fields"]
            ]
        return found


def _full_name(given: dict[str, Any], space: str) -> str:
    name, namespace = str(given.get("name")), given.get("namespace")
    around = namespace if isinstance(namespace, str) else space
    return name if "." in name or not around else f"{around}.{name}"


def _parts(given: dict[str, Any]) -> list[Any]:
    fields = given.get("fields")
    inside = [one.get("type") for one in fields if isinstance(one, dict)] if isinstance(fields, list) else []
    return [*inside, *(given.get(key) for key in ("type", "items", "values") if not isinstance(given.get(key), str))]
