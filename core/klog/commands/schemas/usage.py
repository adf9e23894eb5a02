"""The schemas that keys and values use: each is decoded, and counted by topic, side and id.

Nothing here grows with the number of records: a side of binary data may look like thousands of ids, so that only so
many unknown ones are told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from klog.base.progress import Sink
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.jobs.export import damage_facts
from klog.jobs.runner import Job, Runner, TaskResult, json_result, pickled_result
from klog.jobs.slice_scan import SliceScan
from klog.jobs.slices import LogSlice, slice_partition
from klog.kernel import Window
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.records import RecordFilter
from klog.schemas.decoded import TRAILING_BYTES, UNKNOWN_ID, JsonText
from klog.schemas.framing import Headers, read_framing
from klog.schemas.registry import Registry
from klog.schemas.schema_version import SchemaVersion
from klog.schemas.side_decoder import DecodedSide, SchemaDecoders

if TYPE_CHECKING:
    from klog.schemas.json_validation import JsonValidator

SIDES: Final = ("key", "value")
INVALID_VALUE: Final = "invalid-value"
"""A value decodes, and contradicts its JSON Schema."""
MOST_UNKNOWN: Final = 1000
"""Unknown ids of a side that are counted one by one."""
_GLUE_BYTES: Final = 18
_LOOKED_AT: Final = 64
_MOST_EMPTY: Final = 1000
_MOST_VALIDATORS: Final = 256
_MOST_KINDS: Final = 1000
"""Unframed keys or values of a slice that are looked at for their kind."""


class RecordPlace(NamedTuple):
    """A record."""

    partition: int
    offset: int


class Tally:
    """A number of records, and the places of the first and the last of them."""

    __slots__ = ("first", "last", "records")

    def __init__(self) -> None:
        self.records = 0
        self.first = RecordPlace(-1, -1)
        self.last: tuple[int, int] = self.first

    def add(self, partition: int, offset: int) -> None:
        """Count a record."""
        if not self.records:
            self.first = RecordPlace(partition, offset)
        self.last = partition, offset
        self.records += 1

    def merge(self, other: Tally) -> None:
        """Add the records of *other*, which are behind."""
        if other.records:
            self.first = self.first if self.records else other.first
            self.last = other.last
            self.records += other.records


class IdUse:
    """The records of a side that name one id: all, by schema that decoded them or failed, and by error.

    *strangers*: messages of Protobuf all of whose fields are unknown to their schema, a sign that it is the wrong one.
    *invalid*: how the first value contradicts its JSON Schema; *gave_up*: why values are not validated by it.
    """

    def __init__(self) -> None:
        self.all = Tally()
        self.schemas: dict[tuple[str, int], int] = {}
        self.errors: dict[str, Tally] = {}
        self.strangers = 0
        self.invalid: str | None = None
        self.gave_up: str | None = None

    def validate(self, validator: JsonValidator, text: str, partition: int, offset: int) -> None:
        """Count a value that contradicts its JSON Schema."""
        problem = validator.problem(text)
        if problem is not None:
            self.errors.setdefault(INVALID_VALUE, Tally()).add(partition, offset)
            self.invalid = self.invalid or problem
        self.gave_up = validator.gave_up

    def add(self, partition: int, offset: int, found: DecodedSide) -> None:
        """Count a record."""
        self.all.add(partition, offset)
        error = TRAILING_BYTES if found.decoded.trailing else found.decoded.error
        if error is not None:
            self.errors.setdefault(error, Tally()).add(partition, offset)
        if found.row is not None:
            schema = found.row.subject, found.row.version
            self.schemas[schema] = self.schemas.get(schema, 0) + 1

    def merge(self, other: IdUse) -> None:
        """Add the records of *other*, which are behind."""
        self.all.merge(other.all)
        for schema, count in other.schemas.items():
            self.schemas[schema] = self.schemas.get(schema, 0) + count
        for code, tally in other.errors.items():
            self.errors.setdefault(code, Tally()).merge(tally)
        self.strangers += other.strangers
        self.invalid = self.invalid or other.invalid
        self.gave_up = self.gave_up or other.gave_up


class SideUse:
    """The keys or the values of a topic.

    *ids*: by id, or by GUID as text if that is not known.  *kinds*: of what has no framing, by `kind_of`.
    """

    def __init__(self) -> None:
        self.records = self.null = self.framed = self.decoded = 0
        self.ids: dict[int | str, IdUse] = {}
        self.more_unknown = Tally()
        self.bad_headers = Tally()
        self.unframed = Tally()
        self.kinds: dict[str, int] = {}

    def merge(self, other: SideUse) -> None:
        """Add the records of *other*, which are behind."""
        for name in ("records", "null", "framed", "decoded"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for key, use in other.ids.items():
            here = self.use_of(key, UNKNOWN_ID in use.errors)
            if here is None:
                self.more_unknown.merge(use.all)
            else:
                here.merge(use)
        for name in ("more_unknown", "bad_headers", "unframed"):
            getattr(self, name).merge(getattr(other, name))
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count

    def use_of(self, key: int | str, is_unknown: bool) -> IdUse | None:
        """Return the counts of an id; None for one that is unknown and one too many."""
        use = self.ids.get(key)
        if use is None and not (is_unknown and len(self.ids) >= MOST_UNKNOWN):
            use = self.ids[key] = IdUse()
        return use

    @property
    def is_binary(self) -> bool:
        """Whether the framed ones are no framing at all, but binary data: many ids, none of them known."""
        return len(self.ids) > 20 and all(UNKNOWN_ID in use.errors for use in self.ids.values())


Usage = dict[tuple[str, str], SideUse]
"""The counts of each topic and side."""


class UsageOptions(NamedTuple):
    """*sample*: one record in so many is decoded.  *context*: the one to prefer.  *validate*: by JSON Schemas."""

    sample: int = 1
    context: str | None = None
    max_batch_bytes: int = MAX_BATCH_BYTES
    validate: bool = False


class _Task:
    def __init__(self, registry: Registry, options: UsageOptions) -> None:
        self._registry, self.options = registry, options
        self.decoders = SchemaDecoders([registry], context=options.context)
        self._empty: dict[tuple[str, str], object] = {}
        self._validators: dict[str, JsonValidator] = {}

    def validator(self, row: SchemaVersion) -> JsonValidator:
        """Return the validator of a JSON Schema; it is kept, since one that gave up stays so."""
        if row.guid not in self._validators:
            from klog.schemas.json_validation import JsonValidator

            if len(self._validators) >= _MOST_VALIDATORS:
                self._validators = {guid: one for guid, one in self._validators.items() if one.gave_up}
            self._validators[row.guid] = JsonValidator(row.text, self._registry.references(row))
        return self._validators[row.guid]

    def protobuf(self, row: SchemaVersion) -> Any:
        """Return the decoder of a Protobuf schema."""
        return self.decoders.decoder(row)

    def empty(self, row: SchemaVersion, message: str) -> object:
        """Return the JSON of a message without fields."""
        key = row.guid, message
        if key not in self._empty:
            if len(self._empty) >= _MOST_EMPTY:
                self._empty.clear()
            self._empty[key] = self.protobuf(row).empty_value(message)
        return self._empty[key]


def count_usage(
    registry: Registry, partitions: Sequence[Partition], options: UsageOptions, runner: Runner, sink: Sink
) -> tuple[Usage, list[str]]:
    """Return the counts for all keys and values of *partitions*, and the parts that are unreadable.

    Content raises nothing.
    """
    slices = [part for one in partitions for part in slice_partition(one)]
    task = _Task(registry, options)
    usage: Usage = {}
    damage: list[str] = []

    def take(result: TaskResult) -> None:
        if result.kind == "damage":
            damage.append(result.facts["message"])
            return
        for key, use in result.value.items():
            usage.setdefault(key, SideUse()).merge(use)

    runner.run(Job(_count, [[part] for part in slices], task, [part.bytes for part in slices]), sink, take)
    return usage, damage


def _count(unit: Sequence[LogSlice], task: _Task) -> Iterator[TaskResult]:
    scan = SliceScan(RecordFilter(), task.options.max_batch_bytes)
    for part in unit:
        topic = part.topic or ""
        counters = [_SideCounter(task, topic, side) for side in SIDES]
        for found in scan.read(part):
            if isinstance(found, Damage):
                yield json_result("damage", damage_facts(part, found))
            else:
                _count_rows(found, part.partition or 0, counters, task.options.sample)
        uses = {(topic, side): one.use for side, one in zip(SIDES, counters, strict=True)}
        yield pickled_result("usage", uses)


def _count_rows(rows: Window, partition: int, counters: Sequence[_SideCounter], sample: int) -> None:
    keys, values = counters
    for i in range(rows.records):
        offset, _, key, value, headers, _, _ = rows.record(i)
        if sample == 1 or offset % sample == 0:
            keys.count(key, headers or (), partition, offset)
            values.count(value, headers or (), partition, offset)


class _SideCounter:
    def __init__(self, task: _Task, topic: str, side: str) -> None:
        self._task, self._side = task, side
        self._decoder = task.decoders.side(topic, side)
        self.use = SideUse()

    def count(self, content: bytes | None, headers: Headers, partition: int, offset: int) -> None:
        use = self.use
        use.records += 1
        if content is None:
            use.null += 1
            return
        found = self._decoder.decode(content, headers)
        if found is None:
            use.unframed.add(partition, offset)
            if use.unframed.records <= _MOST_KINDS:
                kind = kind_of(content)
                use.kinds[kind] = use.kinds.get(kind, 0) + 1
            return
        use.framed += 1
        if found.decoded.error is None:
            use.decoded += 1
        name = found.guid if found.schema_id is None else found.schema_id
        if name is None:
            use.bad_headers.add(partition, offset)
            return
        here = use.use_of(name, found.row is None)
        if here is None:
            use.more_unknown.add(partition, offset)
        else:
            here.add(partition, offset, found)
            text = found.decoded.value
            if self._task.options.validate and found.row is not None and isinstance(text, JsonText):
                here.validate(self._task.validator(found.row), text, partition, offset)
            message = found.decoded.message
            if message is not None and found.row is not None:
                empty = self._task.empty(found.row, message)
                if found.decoded.value == empty:
                    here.strangers += self._is_strange(found.row, content, headers)

    def _is_strange(self, row: SchemaVersion, content: bytes, headers: Headers) -> bool:
        framed = read_framing(content, headers, self._side, self._task.decoders.is_known)
        schema = self._task.protobuf(row)
        return framed is not None and schema.has_only_unknown_fields(framed.prefix + bytes(framed.payload))


def kind_of(content: bytes) -> str:
    """Return the likely form of an unframed key or value, by its first bytes: glue, json, text or binary."""
    if len(content) >= _GLUE_BYTES and content[:2] in (b"\3\0", b"\3\5"):
        return "glue"
    start = content[:_LOOKED_AT].lstrip()
    if start[:1] in (b"{", b"["):
        return "json"
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if len(content) <= _LOOKED_AT or error.start < len(start) - 3:  # else a character is cut off
            return "binary"
        text = start[: error.start].decode()
    return "text" if all(one.isprintable() or one.isspace() for one in text) else "binary"
