"""The state of a registry as records for a new topic `_schemas`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from klog.commands.schemas.claims import Settled
from klog.commands.schemas.state_records import StoredRecord, json_line
from klog.schemas.registry import Registry
from klog.schemas.schema_version import SchemaVersion
from klog.schemas.schemas_topic import SCHEMAS_TOPIC, SchemasReplay


def in_order(records: Sequence[StoredRecord], settled: Iterable[Settled]) -> list[StoredRecord]:
    """Return *records*, each schema that keeps an id in front of its other claimants: a registry takes the first.

    If the state after them would be another one, they keep their order.
    """
    before: dict[int, int] = {}
    for one in settled:
        first = min(row.offset for row in one.losers)
        before |= {row.offset: first for row in one.keeps if row.offset > first}
    moved = sorted(records, key=lambda one: (before.get(one.offset, one.offset), one.offset not in before, one.offset))
    return moved if before and _state(moved) == _state(records) else list(records)


def _state(records: Iterable[StoredRecord]) -> dict[tuple[str, int], SchemaVersion]:
    found = _replayed(records)
    return {(row.subject, row.version): row._replace(offset=0) for row in found.rows}


def _replayed(records: Iterable[StoredRecord]) -> Registry:
    replay = SchemasReplay()
    for at, one in enumerate(records):
        replay.take(at, one.timestamp, one.key, one.value)
    return replay.registry("")


def record_lines(records: Sequence[StoredRecord]) -> Iterator[bytes]:
    """Yield records as JSON lines, those of `klog dump`; offsets of an order of its own are new."""
    offsets = [one.offset for one in records]
    is_sorted = offsets == sorted(set(offsets))
    for at, one in enumerate(records):
        line: dict[str, Any] = {"offset": one.offset if is_sorted else at, "timestamp": one.timestamp}
        line |= _member("key", one.key) | _member("value", one.value)
        line["headers"] = [[_text(name), None if value is None else _text(value)] for name, value in one.headers]
        yield json_line(line | {"partition": 0, "topic": SCHEMAS_TOPIC}) + b"\n"


def _member(name: str, content: bytes) -> dict[str, str]:
    found = _text(content)
    return {name: found} if isinstance(found, str) else {f"{name}_base64": found["base64"]}


def _text(content: bytes) -> str | dict[str, str]:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}
