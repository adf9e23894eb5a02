"""The requests that fill an empty Confluent registry with the schemas of another, ids and versions included.

PUT  /mode                            {"mode": "IMPORT"}, and the same for each context, whose modes are its own
POST /subjects/SUBJECT/versions       each version, those first that others refer to
DELETE /subjects/SUBJECT/versions/N   soft-deleted versions, those first that refer to others
PUT  /config, /config/SUBJECT         the settings
PUT  /mode/SUBJECT, DELETE /mode/:.CONTEXT:, PUT /mode    the modes as they were
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from klog.commands.schemas.state_records import ExportChoice, stored_records
from klog.schemas.decoded import BrokenSchemaError
from klog.schemas.registry import Registry
from klog.schemas.schema_version import DEFAULT_CONTEXT, LIVE, SchemaVersion, split_subject
from klog.schemas.side_decoder import make_decoder

_IMPORT: Final = {"mode": "IMPORT"}
_DEFAULT_MODE: Final = {"mode": "READWRITE"}
_MORE: Final = ("metadata", "ruleSet")
"""Members of a stored record that a request has as well; the GUID is computed from them, too."""


class Request(NamedTuple):
    """A request: *path* is percent-encoded; *body* is JSON, None for none."""

    method: str
    path: str
    body: Any

    def json(self) -> dict[str, Any]:
        """Return the request as the command prints it."""
        return self._asdict()


class LeftOut(NamedTuple):
    """A version that cannot be registered, and why."""

    row: SchemaVersion
    reason: str


def registrable(registry: Registry, versions: Sequence[SchemaVersion]) -> tuple[list[SchemaVersion], list[LeftOut]]:
    """Return the versions that a registry takes, those first that others refer to, and the others."""
    wanted, met = set(versions), set[SchemaVersion]()
    ordered, out = dict[SchemaVersion, None](), dict[SchemaVersion, str]()
    for row in sorted(versions, key=lambda one: (one.context != DEFAULT_CONTEXT, one.subject, one.version)):
        for one in _with_referred(registry, row, wanted, met):
            reason = _obstacle(registry, one, ordered)
            if reason is None:
                ordered[one] = None
            else:
                out[one] = reason
    return list(ordered), [LeftOut(row, reason) for row, reason in out.items()]


def _with_referred(
    registry: Registry, row: SchemaVersion, wanted: set[SchemaVersion], met: set[SchemaVersion]
) -> Iterator[SchemaVersion]:
    """Yield *row* behind those of *wanted* that it refers to, directly or not; each is *met* once."""
    path = [] if row in met else [(row, iter(row.references))]
    met.add(row)
    while path:
        one, references = path[-1]
        reference = next(references, None)
        if reference is None:
            path.pop()
            yield one
            continue
        other = registry.referred(one, reference)
        if other is not None and other in wanted and other not in met:
            met.add(other)
            path.append((other, iter(other.references)))


def _obstacle(registry: Registry, row: SchemaVersion, ordered: Mapping[SchemaVersion, None]) -> str | None:
    """Return why a registry would refuse *row* after the *ordered* ones; None if it takes it."""
    try:
        make_decoder(row, registry)
    except BrokenSchemaError as error:
        return str(error)
    for reference in row.references:
        other = registry.referred(row, reference)
        if other not in ordered:
            return f"it refers to {reference.subject} {reference.version}, which is left out"
    return None


def requests(registry: Registry, ordered: Sequence[SchemaVersion], choice: ExportChoice) -> Iterator[Request]:
    """Yield the requests for the versions of `registrable`, in the order in which a registry takes them."""
    contexts = sorted({row.context for row in ordered} - {DEFAULT_CONTEXT})
    places = [f"/mode/{escaped(f':{context}:')}" for context in contexts]
    yield from (Request("PUT", path, _IMPORT) for path in ("/mode", *places))
    more = _more(registry, ordered)
    for row in ordered:
        yield Request("POST", f"{_subject(row)}/versions", _body(row) | more.get(row.offset, {}))
    for row in reversed(ordered):
        if row.state != LIVE:
            yield Request("DELETE", f"{_subject(row)}/versions/{row.version}", None)
    yield from _configs(registry, choice)
    yield from _modes(registry, choice, dict(zip(contexts, places, strict=True)))


def escaped(name: str) -> str:
    """Return a subject or a context as a part of a URL's path."""
    return quote(name, safe="", errors="surrogatepass")


def _subject(row: SchemaVersion) -> str:
    return f"/subjects/{escaped(row.subject)}"


def _body(row: SchemaVersion) -> dict[str, Any]:
    references = [one._asdict() for one in row.references]
    body: dict[str, Any] = {"id": row.id, "version": row.version, "schemaType": row.type, "schema": row.text}
    return body | ({"references": references} if references else {})


def _more(registry: Registry, ordered: Sequence[SchemaVersion]) -> dict[int, dict[str, Any]]:
    """Return metadata and rules by the offsets of the versions that have some."""
    offsets = {row.offset for row in ordered}
    found: dict[int, dict[str, Any]] = {}
    for one in stored_records(registry, offsets.__contains__):
        value = json.loads(one.value)
        more = {name: value[name] for name in _MORE if value.get(name) is not None}
        if more:
            found[one.offset] = more
    return found


def _place(prefix: str, subject: str) -> str:
    return f"{prefix}/{escaped(subject)}" if subject else prefix


def _configs(registry: Registry, choice: ExportChoice) -> Iterator[Request]:
    for subject, stored in sorted(registry.config.items()):
        if choice.has_subject(subject):
            names = {"compatibilityLevel": "compatibility"}
            body = {names.get(name, name): one for name, one in stored.items() if one is not None}
            yield Request("PUT", _place("/config", subject), body)


def _modes(registry: Registry, choice: ExportChoice, contexts: Mapping[str, str]) -> Iterator[Request]:
    """Yield the modes of subjects, those of contexts, and the global one last: until then it is IMPORT."""
    modes = {subject: one.get("mode") for subject, one in registry.mode.items() if choice.has_subject(subject)}
    for subject, mode in sorted(modes.items()):
        if split_subject(subject)[1]:
            # A subject with versions goes to IMPORT by force alone.
            force = "?force=true" if mode == "IMPORT" else ""
            yield Request("PUT", f"{_place('/mode', subject)}{force}", {"mode": mode})
    for context, place in contexts.items():
        mode = modes.get(f":{context}:")
        if mode is None:
            yield Request("DELETE", place, None)
        elif mode != "IMPORT":
            yield Request("PUT", place, {"mode": mode})
    if modes.get("") != "IMPORT":
        yield Request("PUT", "/mode", {"mode": modes[""]} if modes.get("") else _DEFAULT_MODE)
