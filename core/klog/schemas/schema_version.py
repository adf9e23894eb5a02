"""A version of a subject, as a registry's topic has it, and the schema that its id stands for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

LIVE: Final = "live"
DELETED: Final = "deleted"
"""Soft-deleted: the registry hides it and still decodes by it."""
REPLACED: Final = "replaced"
"""A later record of the same subject and version has another schema."""
HARD_DELETED: Final = "hard-deleted"
"""Its record is still in the log, below a tombstone; no registry knows it any more."""
STATES: Final = (LIVE, DELETED, REPLACED, HARD_DELETED)

DEFAULT_CONTEXT: Final = "."


class SchemaReference(NamedTuple):
    """A reference of a schema: *name* is how its text calls the other, version *version* of *subject*."""

    name: str
    subject: str
    version: int


class SchemaVersion(NamedTuple):
    """A version of a subject.  *subject* is the full one (`:.eu:orders-value`).  *type*: AVRO, PROTOBUF, JSON, others.

    *state*: one of STATES.  *offset*, *timestamp* (ms): of the record in the registry's topic.
    """

    context: str
    subject: str
    version: int
    id: int
    guid: str
    type: str
    state: str
    references: tuple[SchemaReference, ...]
    text: str
    offset: int
    timestamp: int

    @property
    def name(self) -> str:
        """The subject without its context."""
        return split_subject(self.subject)[1]

    def same_schema(self, other: SchemaVersion) -> bool:
        """Whether *other* has the same id and the same schema."""
        return (self.id, self.type, self.references, self.text) == (
            other.id,
            other.type,
            other.references,
            other.text,
        )


def split_subject(subject: str) -> tuple[str, str]:
    """Return context and subject: `:.eu:orders-value` is `orders-value` in `.eu`, without a prefix it is in `.`."""
    if not subject.startswith(":."):
        return DEFAULT_CONTEXT, subject
    context, _, name = subject[1:].partition(":")
    return context, name


def subject_in(context: str, subject: str) -> str:
    """Return the full name of *subject* as a schema of *context* means it."""
    return subject if context == DEFAULT_CONTEXT or subject.startswith(":.") else f":{context}:{subject}"


def schema_guid(
    text: str,
    references: Iterable[SchemaReference],
    metadata: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
) -> str:
    """Return the GUID of a schema, which a Confluent registry computes and stores nowhere.

    *metadata*, *rules*: `metadata` and `ruleSet` of its record.  Raises TypeError or ValueError for values of
    another form.
    """
    # Not for safety: the registry defines it so.
    digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False)
    for name, subject, version in references:
        digest.update(f"{name}{subject}".encode("utf-8", "replace") + (version & 0xFFFFFFFF).to_bytes(4, "big"))
    for part in (*_metadata_parts(metadata), *_rule_parts(rules)):
        digest.update(part)
    found = digest.hexdigest()
    return f"{found[:8]}-{found[8:12]}-{found[12:16]}-{found[16:20]}-{found[20:]}"


def _bytes(text: str | None) -> bytes:
    return b"" if text is None else str(text).encode("utf-8", "replace")


def _pairs(pairs: Mapping[str, Any] | None) -> Iterator[bytes]:
    for key, value in sorted((pairs or {}).items()):
        yield _bytes(key)
        yield _bytes(value)


def _metadata_parts(metadata: Mapping[str, Any] | None) -> Iterator[bytes]:
    if metadata is None:
        return
    yield b"\1"
    for key, values in sorted((metadata.get("tags") or {}).items()):
        yield _bytes(key)
        yield from map(_bytes, sorted(values))
    yield from _pairs(metadata.get("properties"))
    yield from map(_bytes, sorted(metadata.get("sensitive") or ()))


def _rule_parts(rules: Mapping[str, Any] | None) -> Iterator[bytes]:
    if rules is None:
        return
    yield b"\1"
    for kind in ("migrationRules", "domainRules", "encodingRules"):
        for rule in rules.get(kind) or ():
            yield from (_bytes(rule.get(member)) for member in ("name", "doc", "kind", "mode", "type"))
            yield from map(_bytes, sorted(rule.get("tags") or ()))
            yield from _pairs(rule.get("params"))
            yield from (_bytes(rule.get(member)) for member in ("expr", "onSuccess", "onFailure"))
            yield b"\1" if rule.get("disabled") else b""
