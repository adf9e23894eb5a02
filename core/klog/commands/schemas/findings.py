"""The findings about the schemas of a registry, and about the keys and values that use them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from klog.base.errors import counted
from klog.commands.schemas.usage import INVALID_VALUE, SIDES, IdUse, RecordPlace, SideUse, Tally, Usage
from klog.schemas.decoded import SCHEMA_BROKEN, TRAILING_BYTES, UNKNOWN_ID, BrokenSchemaError
from klog.schemas.registry import Registry
from klog.schemas.schema_version import DELETED, HARD_DELETED, LIVE, REPLACED, STATES, SchemaVersion
from klog.schemas.side_decoder import make_decoder

DAMAGE: Final = "damage"
WARNING: Final = "warning"
NOTE: Final = "note"
SEVERITIES: Final = (DAMAGE, WARNING, NOTE)
_OWN_FINDINGS: Final = (TRAILING_BYTES, SCHEMA_BROKEN, UNKNOWN_ID, INVALID_VALUE)
_NEAR: Final = 3
_SHOWN: Final = 3


class SchemaFinding(NamedTuple):
    """A finding.  *records*: how many are concerned; *place*: the first of them.  *fix*: the next step."""

    id: str
    severity: str
    message: str
    topic: str | None = None
    side: str | None = None
    schema_id: int | None = None
    guid: str | None = None
    subject: str | None = None
    version: int | None = None
    records: int = 0
    place: RecordPlace | None = None
    fix: str | None = None


class SchemaFindings:
    """Judges the *usage* of a *registry*.

    *sampled*: not all records were read.  *partial*: not all topics were looked at, so that unused schemas are none.
    """

    def __init__(self, registry: Registry, usage: Usage, sampled: bool = False, partial: bool = False) -> None:
        self._registry, self._usage = registry, usage
        self._partial = partial
        self._unused_by = "seen by none" if sampled or partial else "used by no record"
        self._live = {row.name: row.version for row in registry.rows if row.state == LIVE}
        self._used_by: dict[SchemaVersion, list[tuple[str, str, IdUse]]] = {}
        for (topic, side), use in usage.items():
            for key, one in use.ids.items():
                for row in self._rows(key, one):
                    self._used_by.setdefault(row, []).append((topic, side, one))

    def all(self) -> list[SchemaFinding]:
        """Return all findings, by severity, topic, side and id."""
        found = [*self._schemas(), *self._bad_records(), *self._unused()]
        for (topic, side), use in self._usage.items():
            found += self._side(topic, side, use)
        return sorted(found, key=_order)

    def _rows(self, key: int | str, use: IdUse) -> Iterator[SchemaVersion]:
        """Yield the rows that decoded records of an id, or failed to."""
        for row in self._registry.with_id(key) if isinstance(key, int) else ():
            if (row.subject, row.version) in use.schemas:
                yield row

    # of a side

    def _side(self, topic: str, side: str, use: SideUse) -> Iterator[SchemaFinding]:
        if use.is_binary:
            message = f"{counted(use.framed, side)} begin with 0 and {len(use.ids)} different ids, none of them known"
            yield SchemaFinding("unframed", NOTE, f"{message}: binary data", topic, side, records=use.framed)
        else:
            yield from self._missing(topic, side, use)
        for key, one in use.ids.items():
            if isinstance(key, int):
                yield from self._id(topic, side, key, one)
        if use.bad_headers.records:
            message = f"the header with the schema's GUID cannot be read: {_where(topic, use.bad_headers)}"
            tally = use.bad_headers
            yield SchemaFinding(
                "undecodable", DAMAGE, message, topic, side, records=tally.records, place=tally.first
            )  # fmt: skip
        yield from self._framing(topic, side, use)

    def _missing(self, topic: str, side: str, use: SideUse) -> Iterator[SchemaFinding]:
        for key, one in use.ids.items():
            tally = one.errors.get(UNKNOWN_ID)
            if tally is None:
                continue
            schema_id, guid = (key, None) if isinstance(key, int) else (None, key)
            near = self._registry.near_ids(key, _NEAR) if isinstance(key, int) else []
            fix = f"find the registry's topic of that time; near ids: {', '.join(map(str, near))}" if near else None
            name = f"id {key}" if guid is None else f"GUID {key}"
            message = f"{name} is not in {self._topic_name}: {_where(topic, tally)}"
            yield SchemaFinding(
                "id-missing", DAMAGE, message, topic, side, schema_id, guid, None, None, tally.records, tally.first, fix
            )
        if use.more_unknown.records:
            message = f"more ids are not in {self._topic_name}: {_where(topic, use.more_unknown)}"
            tally = use.more_unknown
            yield SchemaFinding("id-missing", DAMAGE, message, topic, side, records=tally.records, place=tally.first)

    @property
    def _topic_name(self) -> str:
        return "kafkasql-journal" if self._registry.kind == "apicurio" else "_schemas"

    def _id(self, topic: str, side: str, key: int, use: IdUse) -> Iterator[SchemaFinding]:
        rows = list(self._rows(key, use))
        if not rows:
            return
        most = max(rows, key=lambda row: use.schemas[row.subject, row.version])
        about = (topic, side, key, most.guid, most.subject, most.version)
        yield from self._failed(about, use)
        yield from self._validated(about, use)
        claims = self._claims(most)
        if len(claims) > 1:
            message = f"{_claimed(key, claims)} ({self._fits(claims, use)})"
            fix = f"klog schemas export --choose {key}=SUBJECT:VERSION"
            yield SchemaFinding("id-claimed-twice", DAMAGE, message, *about, use.all.records, use.all.first, fix)
        else:
            yield from self._state(about, use, claims[0])
        if self._is_foreign(topic, key):
            message = f"id {key} is that of {_names(self._registry.with_id(key))}, and {topic} has subjects of its own"
            yield SchemaFinding("subject-foreign", NOTE, message, *about, use.all.records, use.all.first)

    def _failed(self, about: tuple[str, str, int, str, str, int], use: IdUse) -> Iterator[SchemaFinding]:
        topic, side, key, _, subject, version = about
        bad = {code: one for code, one in use.errors.items() if code not in _OWN_FINDINGS}
        if bad:
            codes = ", ".join(f"{code} {tally.records}" for code, tally in sorted(bad.items()))
            tally = min(bad.values(), key=lambda one: one.first)
            records = sum(one.records for one in bad.values())
            sentence = f"{counted(records, side)} of {use.all.records} {'do' if records > 1 else 'does'} not decode by"
            message = f"{sentence} id {key}, {subject} {version} ({codes}): {_first(topic, tally)}"
            yield SchemaFinding("undecodable", DAMAGE, message, *about, records, tally.first)
        left = use.errors.get(TRAILING_BYTES)
        if left:
            message = f"bytes are left over behind id {key}, {subject} {version}: {_where(topic, left)}"
            fix = "the values may have been written by another schema"
            yield SchemaFinding("trailing-bytes", WARNING, message, *about, left.records, left.first, fix)

    def _validated(self, about: tuple[str, str, int, str, str, int], use: IdUse) -> Iterator[SchemaFinding]:
        """Yield findings about values that contradict their JSON Schema, and about a schema that validates none."""
        topic, side, key, _, subject, version = about
        invalid = use.errors.get(INVALID_VALUE)
        if invalid is not None:
            rule = f"{counted(invalid.records, side)} of {use.all.records} contradict id {key}, {subject} {version}"
            message = f"{rule} ({use.invalid}): {_first(topic, invalid)}"
            yield SchemaFinding(INVALID_VALUE, WARNING, message, *about, invalid.records, invalid.first)
        if use.gave_up is not None:
            message = f"{side}s of id {key}, {subject} {version} are not validated: {use.gave_up}"
            yield SchemaFinding("not-validated", WARNING, message, *about, use.all.records, use.all.first)

    def _state(
        self, about: tuple[str, str, int, str, str, int], use: IdUse, same: list[SchemaVersion]
    ) -> Iterator[SchemaFinding]:
        """Yield a finding if no registry shows the schema any more; *same*: all rows with it."""
        key, state = about[2], min(same, key=lambda row: STATES.index(row.state)).state
        in_use = f"and in use: {counted(use.all.records, 'record')}"
        if state == DELETED:
            message = f"id {key} is soft-deleted ({_names(same)}) {in_use}"
            yield SchemaFinding("deleted-in-use", WARNING, message, *about, use.all.records, use.all.first)
        elif state in (HARD_DELETED, REPLACED):
            message = f"id {key} is {state} ({_names(same)}), its record is still in {self._topic_name}, {in_use}"
            fix = "klog schemas export --hard-deleted, before compaction removes the record"
            yield SchemaFinding("hard-deleted-in-use", DAMAGE, message, *about, use.all.records, use.all.first, fix)

    def _is_foreign(self, topic: str, key: int) -> bool:
        rows = self._registry.with_id(key)
        others = all(_topic_of(row) not in (None, topic) for row in rows)
        return others and any(f"{topic}-{one}" in self._live for one in SIDES)

    def _framing(self, topic: str, side: str, use: SideUse) -> Iterator[SchemaFinding]:
        framed = 0 if use.is_binary else use.framed
        if use.unframed.records:
            kind = max(sorted(use.kinds), key=lambda one: use.kinds[one])
            count, every = use.unframed.records, use.unframed.records + framed
            some = f"{count} of {every} {side}s" if framed else counted(count, side)
            verb = "has" if count == 1 else "have"
            message = f"{some} {verb} no framing ({kind}): {_first(topic, use.unframed)}"
            severity = WARNING if framed else NOTE
            tally = use.unframed
            yield SchemaFinding("unframed", severity, message, topic, side, records=tally.records, place=tally.first)
        subject = f"{topic}-{side}"
        version = self._live.get(subject)
        if version and use.records and not framed:
            message = f"subject {subject} exists, and no {side} of {topic} is framed"
            yield SchemaFinding("no-schema-subject", NOTE, message, topic, side, subject=subject, version=version)
        elif framed and not version:
            message = f"{counted(framed, side)} framed, and there is no subject {subject}"
            yield SchemaFinding("no-schema-subject", NOTE, message, topic, side, subject=subject, records=framed)

    # of the registry

    def _schemas(self) -> Iterator[SchemaFinding]:
        for row in self._registry.rows:
            if row.state not in (LIVE, DELETED) and row not in self._used_by:
                continue
            try:
                make_decoder(row, self._registry)
            except BrokenSchemaError as error:
                yield from self._broken(row, str(error))
        for rows in self._doubled():
            if not any(row in self._used_by for row in rows):
                first = rows[0]
                message = f"{_claimed(first.id, self._claims(first))} ({self._unused_by})"
                yield SchemaFinding(
                    "id-claimed-twice", DAMAGE, message, None, None, first.id, first.guid, first.subject, first.version
                )

    def _broken(self, row: SchemaVersion, why: str) -> Iterator[SchemaFinding]:
        kind = "reference-missing" if self._lacks_reference(row) else "schema-broken"
        message = f"id {row.id}, {row.subject} {row.version}: {why}"
        about = (row.id, row.guid, row.subject, row.version)
        uses = [
            (topic, side, tally)
            for topic, side, use in self._used_by.get(row, ())
            if (tally := use.errors.get(SCHEMA_BROKEN)) is not None
        ]
        for topic, side, tally in uses:
            where = f"{message}: {_where(topic, tally)}"
            yield SchemaFinding(kind, DAMAGE, where, topic, side, *about, tally.records, tally.first)
        if not uses:
            yield SchemaFinding(kind, WARNING, f"{message} ({self._unused_by})", None, None, *about)

    def _lacks_reference(self, row: SchemaVersion) -> bool:
        waiting, done = [row], set[SchemaVersion]()
        while waiting:
            one = waiting.pop()
            if one in done:
                continue
            done.add(one)
            for reference in one.references:
                other = self._registry.referred(one, reference)
                if other is None:
                    return True
                waiting.append(other)
        return False

    def _bad_records(self) -> Iterator[SchemaFinding]:
        for offset, reason in self._registry.bad_records:
            message = f"the record at offset {offset} of {self._topic_name} cannot be read: {reason}"
            yield SchemaFinding("bad-record", WARNING, message, records=1, place=RecordPlace(0, offset))

    def _unused(self) -> Iterator[SchemaFinding]:
        if self._partial:
            return
        same = {(one.id, one.type, one.text) for one in self._used_by}
        used = {row for row in self._registry.rows if (row.id, row.type, row.text) in same}
        waiting = list(used)
        while waiting:
            one = waiting.pop()
            referred = {self._registry.referred(one, reference) for reference in one.references}
            waiting += [row for row in referred if row is not None and row not in used]
            used |= {row for row in referred if row is not None}
        for row in self._registry.rows:
            if row.state == LIVE and row not in used:
                message = f"{row.subject} {row.version} is {self._unused_by}"
                yield SchemaFinding(
                    "unused", NOTE, message, None, None, row.id, row.guid, row.subject, row.version
                )  # fmt: skip

    def _doubled(self) -> Iterator[list[SchemaVersion]]:
        """Yield the rows of each context that have one id and not one schema."""
        ordered = sorted(self._registry.rows, key=lambda row: (row.context, row.id, row.offset))
        for _, group in groupby(ordered, key=lambda row: (row.context, row.id)):
            rows = list(group)
            if not all(row.same_schema(rows[0]) for row in rows):
                yield rows

    def _claims(self, row: SchemaVersion) -> list[list[SchemaVersion]]:
        """Return the rows with the id of *row* in its context, those with one schema together."""
        found: list[list[SchemaVersion]] = []
        for one in self._registry.with_id(row.id):
            if one.context == row.context:
                same = next((rows for rows in found if rows[0].same_schema(one)), None)
                if same is None:
                    found.append([one])
                else:
                    same.append(one)
        return found

    @staticmethod
    def _fits(claims: list[list[SchemaVersion]], use: IdUse) -> str:
        counts = {_names(rows): sum(use.schemas.get((row.subject, row.version), 0) for row in rows) for rows in claims}
        fitting = {name: count for name, count in counts.items() if count}
        records = counted(use.all.records, "record")
        if len(fitting) == 1:
            return f"{next(iter(fitting))} fits all {records}"
        return ", ".join(f"{name} fits {count}" for name, count in fitting.items()) + f" of {records}"


def _topic_of(row: SchemaVersion) -> str | None:
    """Return the topic that a subject belongs to by its name, or None."""
    for side in SIDES:
        if row.name.endswith(f"-{side}"):
            return row.name.removesuffix(f"-{side}")
    return None


def _names(rows: Iterable[SchemaVersion]) -> str:
    """Return the subjects and versions of some rows."""
    named = [f"{row.subject} {row.version}" for row in rows]
    more = len(named) - _SHOWN
    return ", ".join(named[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _claimed(key: int, claims: list[list[SchemaVersion]]) -> str:
    count = {2: "two"}.get(len(claims), str(len(claims)))
    return f"id {key} is claimed by {count} schemas: {', '.join(_names(rows) for rows in claims)}"


def _first(topic: str, tally: Tally) -> str:
    return f"first at {topic}-{tally.first.partition} @ {tally.first.offset}"


def _where(topic: str, tally: Tally) -> str:
    """Return how many records, and where: from the first to the last if they are in one partition."""
    first, (partition, offset) = tally.first, tally.last
    place = f"{counted(tally.records, 'record')}, {topic}-{first.partition} @ {first.offset}"
    if partition != first.partition:
        return f"{place} and in other partitions"
    return place if offset == first.offset else f"{place} … {offset}"


def _order(one: SchemaFinding) -> tuple[object, ...]:
    return (
        SEVERITIES.index(one.severity),
        one.topic is None,
        one.topic or "",
        one.side or "",
        one.id,
        one.subject or "" if one.topic is None else "",
        one.schema_id or 0,
        one.subject or "",
        one.version or 0,
        one.place or RecordPlace(-1, -1),
    )
