"""What tasks send back: one schema for results and findings of every job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from klog.arrow import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa


class Answer(NamedTuple):
    """*kind*: what *content* is; JSON, or what the job says."""

    kind: str
    content: bytes

    @property
    def facts(self) -> Any:
        """The content, where it is JSON."""
        return json.loads(self.content)


def schema() -> pa.Schema:
    """Return the columns of an answer."""
    pa = import_pyarrow()
    return pa.schema([pa.field("kind", pa.string(), nullable=False), pa.field("content", pa.binary(), nullable=False)])


def to_batch(answers: Iterable[Answer]) -> pa.RecordBatch:
    """Return *answers* as a record batch of `schema`."""
    rows = list(answers)
    columns = [[one.kind for one in rows], [one.content for one in rows]]
    pa = import_pyarrow()
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def from_batch(batch: pa.RecordBatch) -> Iterator[Answer]:
    """Yield the answers of a record batch."""
    for kind, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield Answer(kind, content)


def say(kind: str, facts: object) -> Answer:
    """Return an answer whose content is JSON."""
    return Answer(kind, json.dumps(facts).encode())
