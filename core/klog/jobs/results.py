"""What tasks send back: one schema for results and findings of every job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from klog.dump.arrow import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa


class TaskResult(NamedTuple):
    """*kind*: what *content* is: JSON, or what the job says.  *number*: of the piece of work that it is about."""

    kind: str
    content: bytes
    number: int = 0

    @property
    def facts(self) -> Any:
        """The content, where it is JSON."""
        return json.loads(self.content)


def schema() -> pa.Schema:
    """Return the columns of an answer."""
    pa = import_pyarrow()
    types = (pa.string(), pa.binary(), pa.int64())
    return pa.schema([pa.field(*one, nullable=False) for one in zip(TaskResult._fields, types, strict=True)])


def to_batch(answers: Iterable[TaskResult]) -> pa.RecordBatch:
    """Return *answers* as a record batch of `schema`."""
    pa = import_pyarrow()
    rows = list(answers)
    arrays = [pa.array([one[at] for one in rows], field.type) for at, field in enumerate(schema())]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def from_batch(batch: pa.RecordBatch) -> Iterator[TaskResult]:
    """Yield the answers of a record batch."""
    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield TaskResult(*row)


def json_result(kind: str, facts: object, number: int = 0) -> TaskResult:
    """Return an answer whose content is JSON."""
    return TaskResult(kind, json.dumps(facts).encode(), number)
