"""Counts of the keys and values that do not decode: one line for each topic, side, id and error."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from klog.base.errors import counted
from klog.schemas.decoded import BAD_HEADER, INCOMPATIBLE, OUT_OF_RANGE, SCHEMA_BROKEN, TRAILING_BYTES, UNKNOWN_ID
from klog.schemas.side_decoder import DecodedSide

_MOST_KINDS: Final = 100
"""Lines with their own count; random bytes that look like ids could be millions."""


class _Kind(NamedTuple):
    topic: str
    side: str
    identity: str
    error: str


class ErrorTally:
    """Counts errors by kind, with the first place of each."""

    def __init__(self) -> None:
        self._counts: dict[_Kind, int] = {}
        self._places: dict[_Kind, tuple[int, int]] = {}
        self._more = 0
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __reduce__(self) -> tuple[type[ErrorTally], tuple[()]]:
        return ErrorTally, ()  # another process begins to count anew

    def add(self, topic: str, partition: int, offset: int, side: str, found: DecodedSide) -> None:
        """Count a key or value whose decoding failed, or left bytes over."""
        error = found.decoded.error or TRAILING_BYTES
        identity = "" if error == BAD_HEADER else _identity(found)
        self._add(_Kind(topic, side, identity, error), (partition, offset), 1)

    def _add(self, kind: _Kind, place: tuple[int, int], count: int) -> None:
        with self._lock:
            if kind not in self._counts and len(self._counts) >= _MOST_KINDS:
                self._more += count
                return
            self._counts[kind] = self._counts.get(kind, 0) + count
            self._places[kind] = min(place, self._places.get(kind, place))

    def facts(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        kinds = [
            {**kind._asdict(), "records": count, "partition": self._places[kind][0], "offset": self._places[kind][1]}
            for kind, count in self._counts.items()
        ]
        return {"kinds": kinds, "more": self._more}

    def merge(self, facts: Mapping[str, Any]) -> None:
        """Add the facts of another tally."""
        for one in facts["kinds"]:
            kind = _Kind(*(one[name] for name in _Kind._fields))
            self._add(kind, (one["partition"], one["offset"]), one["records"])
        self._more += facts["more"]

    def lines(self) -> Iterator[str]:
        """Yield a sentence for each kind."""
        for kind, count in sorted(self._counts.items()):
            partition, offset = self._places[kind]
            where = f"{kind.topic}-{partition} @ {offset}" if kind.topic else f"offset {offset}"
            yield f"{kind.topic} {kind.side}: {_sentence(kind, count)} (first at {where})".lstrip()
        if self._more:
            yield f"{counted(self._more, 'more key or value', '')} of other ids that cannot be decoded"


def _identity(found: DecodedSide) -> str:
    return f"schema id {found.schema_id}" if found.schema_id is not None else f"schema GUID {found.guid}"


def _sentence(kind: _Kind, count: int) -> str:
    records = counted(count, "record")
    if kind.error == UNKNOWN_ID:
        return f"{records} {'names' if count == 1 else 'name'} {kind.identity}, which is not in _schemas"
    if kind.error == SCHEMA_BROKEN:
        return f"{records} {'names' if count == 1 else 'name'} {kind.identity}, which cannot be used: schema-broken"
    if kind.error == BAD_HEADER:
        return f"{records} with a schema header of another form: bad-header"
    if kind.error == TRAILING_BYTES:
        return f"{records} with bytes left over behind the data of {kind.identity}: trailing-bytes"
    if kind.error == OUT_OF_RANGE:
        return f"{records} of {kind.identity} with a number that its column cannot hold, which is null: out-of-range"
    if kind.error == INCOMPATIBLE:
        return f"{records} of {kind.identity} cannot be read by the reader schema: incompatible"
    return f"{records} of {kind.identity} cannot be decoded: {kind.error}"
