"""The results of tasks: one schema for the results and findings of every job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from klog.base.unusable import UNUSABLE, Unusable

if TYPE_CHECKING:
    import pyarrow as pa

U = TypeVar("U")
O = TypeVar("O")  # noqa: E741
_UNUSABLE = "unusable"
_BATCH_RESULTS = 256
_BATCH_BYTES = 1 << 16


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
    import pyarrow as pa

    types = (pa.string(), pa.binary(), pa.int64())
    return pa.schema([pa.field(*one, nullable=False) for one in zip(TaskResult._fields, types, strict=True)])


def to_batch(answers: Iterable[TaskResult]) -> pa.RecordBatch:
    """Return *answers* as a record batch of `schema`."""
    import pyarrow as pa

    rows = list(answers)
    arrays = [pa.array([one[at] for one in rows], field.type) for at, field in enumerate(schema())]
    return pa.RecordBatch.from_arrays(arrays, schema=schema())


def from_batch(batch: pa.RecordBatch) -> Iterator[TaskResult]:
    """Yield the answers of a record batch."""
    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield TaskResult(*row)


def in_batches(job: Callable[[U, O], Iterator[TaskResult]], unit: U, options: O) -> Iterator[pa.RecordBatch]:
    """Do *job* for *unit*; yield its results as record batches, as Spark's tasks send them."""
    waiting: list[TaskResult] = []
    for answer in job(unit, options):
        waiting.append(answer)
        if len(waiting) >= _BATCH_RESULTS or len(answer.content) >= _BATCH_BYTES:
            yield to_batch(waiting)
            waiting = []
    yield to_batch(waiting)


def json_result(kind: str, facts: object, number: int = 0) -> TaskResult:
    """Return an answer whose content is JSON."""
    return TaskResult(kind, json.dumps(facts).encode(), number)


def unusable_batches() -> Iterator[pa.RecordBatch]:
    """Yield a record batch with the paths that this process could not read, if there are any."""
    if UNUSABLE:
        yield to_batch([json_result(_UNUSABLE, list(one)) for one in UNUSABLE.named()])


def note_unusable(batch: pa.RecordBatch) -> bool:
    """Note the paths that a batch of `unusable_batches` has; False if it is another one."""
    if batch.schema != schema() or not batch.num_rows or batch.column(0)[0].as_py() != _UNUSABLE:
        return False
    for one in from_batch(batch):
        UNUSABLE.note(Unusable(*one.facts))
    return True
