"""The schemas that read the keys or values of a topic: the latest version of each type of record that the topic has.

    members = latest_members(used, registries)     # of the ids that are in the topic, with their numbers of records

A topic has one type of record nearly always: the highest live version of its subject reads all versions.  With subjects
by the record's name it has several, and each of them is a member of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from klog.base.errors import UsageError
from klog.schemas.avro_types import PRIMITIVES, AvroType, parse_avro
from klog.schemas.decoded import BrokenSchemaError
from klog.schemas.registry import Registry
from klog.schemas.schema_version import DEFAULT_CONTEXT, LIVE, STATES, SchemaVersion

LATEST: Final = "latest"
EACH: Final = "each"
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
_KINDS: Final = PRIMITIVES | {"array", "map", "union"}


class UsedType(NamedTuple):
    """A schema that keys or values of a topic name; *message*: the full name of a Protobuf message, else None."""

    row: SchemaVersion
    message: str | None


class RecordMember(NamedTuple):
    """A type of record that a topic has, and the schema that reads it.

    *name*: of the record, of a Protobuf message, of a JSON Schema, or the kind of a type without a name.  *subject*:
    of the schema.  *references*: pairs of name and text, as decoders get them.  *aliases*: other names that it reads.
    """

    name: str
    kind: str
    subject: str
    text: str
    references: tuple[tuple[str, str], ...]
    aliases: tuple[str, ...] = ()

    @property
    def is_named(self) -> bool:
        """Whether its name tells it from the types of other subjects."""
        return self.kind != AVRO or self.name not in _KINDS

    @property
    def avro(self) -> AvroType:
        """The type of an Avro schema."""
        return parse_avro(self.text, dict(self.references))


def registry_of(row: SchemaVersion, registries: Sequence[Registry]) -> Registry:
    """Return the registry that has *row*."""
    return next(one for one in registries if row in one.with_id(row.id))


def avro_type(row: SchemaVersion, registry: Registry) -> AvroType:
    """Return the type of an Avro schema.  Raises BrokenSchemaError."""
    return parse_avro(row.text, registry.references(row))


def avro_name(found: AvroType) -> str:
    """Return the name of a type, or its kind if it has none."""
    return found.name or found.kind


def latest_schema(row: SchemaVersion, registry: Registry) -> SchemaVersion:
    """Return the schema that reads values of *row*: the highest live version of its subject that has its record.

    It is *row* itself if no version is live, or if none of them can be used.
    """
    own = avro_name(avro_type(row, registry)) if row.type == AVRO else ""
    versions = [
        one for one in registry.rows if one.subject == row.subject and one.state == LIVE and one.type == row.type
    ]
    for one in sorted(versions, key=lambda one: -one.version):
        if row.type != AVRO:
            return one
        try:
            found = avro_type(one, registry)
        except BrokenSchemaError:
            continue
        if not found.name or own in (found.name, *found.aliases):
            return one
    return row


def latest_members(used: Mapping[UsedType, int], registries: Sequence[Registry]) -> tuple[RecordMember, ...]:
    """Return the types of record that a topic has, in the order of their first ids; *used*: with numbers of records."""
    weights: Counter[RecordMember] = Counter()
    order: dict[RecordMember, int] = {}
    for one, count in used.items():
        try:
            made = _member(one, registry_of(one.row, registries))
        except BrokenSchemaError:
            continue
        weights[made] += count
        order[made] = min(order.get(made, one.row.id), one.row.id)
    kept: dict[tuple[str, str, str], RecordMember] = {}
    for made, _ in weights.most_common():
        # one record under several subjects is one type: the subject that most of its records belong to reads it
        kept.setdefault((made.kind, made.name, "" if made.is_named else made.subject), made)
    return tuple(sorted(kept.values(), key=lambda member: (order[member], member.name)))


def _member(used: UsedType, registry: Registry) -> RecordMember:
    return member_of(latest_schema(used.row, registry), registry, used.message)


def member_of(row: SchemaVersion, registry: Registry, message: str | None = None) -> RecordMember:
    """Return the type of record that a schema reads.  Raises BrokenSchemaError."""
    references = tuple(registry.references(row).items())
    if row.type == AVRO:
        found = avro_type(row, registry)
        return RecordMember(avro_name(found), row.type, row.subject, row.text, references, found.aliases)
    return RecordMember(message or row.name, row.type, row.subject, row.text, references)


def members_of(
    row: SchemaVersion, used: Mapping[UsedType, int], registries: Sequence[Registry]
) -> tuple[RecordMember, ...]:
    """Return the types of record that one schema reads: of Protobuf those of its messages that are *used*."""
    registry = registry_of(row, registries)
    try:
        if row.type != PROTOBUF:
            return (member_of(row, registry),)
        names = dict.fromkeys(one.message for one in used if one.message is not None)
        return tuple(member_of(row, registry, name) for name in names)
    except BrokenSchemaError as error:
        raise UsageError(f"{row.subject} version {row.version} cannot be used: {error}") from error


def named_schema(given: str, registries: Sequence[Registry], context: str | None = None) -> SchemaVersion:
    """Return the schema that an option names: an id, or SUBJECT:VERSION.  Raises UsageError if there is none."""
    if given.isdecimal():
        found = [row for one in registries for row in one.with_id(int(given))]
    else:
        subject, _, version = given.rpartition(":")
        number = int(version) if version.isdecimal() else -1
        rows = [row for one in registries for row in one.rows if row.subject == subject]
        last = max((row.version for row in rows if row.state == LIVE), default=-1)
        found = [row for row in rows if row.version == (last if version == LATEST else number)]
    own = context or DEFAULT_CONTEXT
    found.sort(key=lambda row: (row.context != own, STATES.index(row.state), row.offset))
    if not found:
        raise UsageError(f"--reader-schema {given}: no such schema; expected latest, each, an id or SUBJECT:VERSION")
    return found[0]
