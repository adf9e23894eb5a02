"""Reads the records of a partition with what surrounds each: its transaction, its marker, and damage in its place.

for row in RecordRows(request).read(targets, RecordLimit(None)):
    print(row if isinstance(row, Damage) else row.record.offset)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from klog.base.errors import ExitCode, KlogError
from klog.base.overlays import remote_object
from klog.base.read_only import is_missing
from klog.base.unusable import UNUSABLE, Unusable
from klog.commands.dump.dump_request import DumpRequest, DumpTarget, LogInput, LogInputs
from klog.data_dir.partition import Partition
from klog.formats.batch import Attributes, BatchFacts
from klog.formats.codec import Decompressor
from klog.formats.control import control_record
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.record import Record
from klog.kernel import Window
from klog.log.json_lines import RecordOrigin, record_lines
from klog.log.records import BatchRowLimit, RecordLimit
from klog.partition.transactions.isolation import (
    AbortedFilter,
    IsolationState,
    VisibleRange,
    committed_in_file,
    visible_range,
)

if TYPE_CHECKING:
    from klog.schemas.decoded_rows import DecodedRows


class TxnOutcome(Enum):
    """How the transaction of a record ended, as a consumer sees it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


class RecordRow(NamedTuple):
    """A record, and the facts of its batch.

    *producer_id*: of its transaction, None if it is in none.  *outcome*: of that transaction.  *control*: the name of a
    control record: COMMIT, ABORT, LEADER_CHANGE.  *has_all_headers*: False if the record has more headers than klog
    takes; it has none then.  *decoded*: key and value, decoded by their schemas, if they are decoded.
    """

    record: Record
    producer_id: int | None = None
    outcome: TxnOutcome | None = None
    control: str | None = None
    has_all_headers: bool = True
    decoded: tuple[bytes | None, bytes | None] | None = None


Row = TypeVar("Row")


class RecordReader(Generic[Row]):
    """Reads records of one partition after the other; of a growing log only the new part is read the next time."""

    def __init__(self, request: DumpRequest) -> None:
        self.request = request
        self._window = Window()
        self._codecs = Decompressor(request.max_batch_bytes).functions
        self._directory: str | None = None
        self._origin: tuple[str | None, int | None] = (None, None)
        self._schemas: DecodedRows | None = None
        self._learnt = IsolationState()
        self.refresh: Callable[[], object] = int
        """Called when records have been read, before they are decoded: their schemas are older than they are."""
        self.has_vanished = False
        """Whether `read` ended at a log that is gone: a broker has deleted it, or merged it into another."""
        self.next_offset: int | None = None
        """The offset behind the last intact batch that `read` has passed; None if there was none."""

    def read(self, targets: Iterable[DumpTarget], count: RecordLimit) -> Iterator[Row | Damage]:
        """Yield the records of *targets*, logs of one partition, and each damage in its place.

        Content and unreadable files are damage; nothing is raised for them.
        """
        targets = list(targets)
        if targets and targets[0].directory != self._directory:
            self._directory, self._learnt = targets[0].directory, IsolationState()
        self.next_offset, self.has_vanished = None, False
        self._begin()
        inputs = LogInputs(self.request, self._learnt)
        for target in targets:
            if count.left == 0:
                return
            try:
                with inputs.open(target) as log:
                    yield from self._rows(log, count)
            except KlogError as error:
                self.has_vanished = is_missing(target.path)
                if self.has_vanished:
                    return
                if error.exit_code & ExitCode.OPERATIONAL_ERROR and remote_object(target.path) is not None:
                    UNUSABLE.note(Unusable(target.path, str(error), is_unreadable=True))  # a store that does not answer
                reason = str(error).removeprefix(target.path).lstrip(" :")
                yield Damage(DamageKind.UNREADABLE, Location(target.path), reason)

    def _rows(self, log: LogInput, count: RecordLimit) -> Iterator[Row | Damage]:
        for found in log.read(log.reader, self._window, self._codecs, count):
            if isinstance(found, Damage):
                yield found
            else:
                self.refresh()
                yield from self._made(found, log.target)
        if log.next_offset > log.span.min_offset:
            self.next_offset = min(log.next_offset, log.wanted.to_offset)

    def _begin(self) -> None:
        """Forget what was known about transactions: the log may have grown."""

    def _made(self, rows: Window, target: DumpTarget) -> Iterator[Row | Damage]:
        """Yield what is made of decoded records."""
        raise NotImplementedError

    def _decoded(self, target: DumpTarget) -> DecodedRows | None:
        """Return the decoder of keys and values, None if they are shown as bytes."""
        schemas = self.request.schemas
        if schemas is not None and (self._schemas is None or self._origin != target.origin):
            from klog.schemas.decoded_rows import DecodedRows

            topic, partition = self._origin = target.origin
            self._schemas = DecodedRows(topic, partition, schemas)
        return self._schemas


class RecordJsonLines(RecordReader[bytes]):
    """Reads records as JSON lines, those of `klog dump`."""

    def _made(self, rows: Window, target: DumpTarget) -> Iterator[bytes]:
        fields, decoded = RecordOrigin(target.path, *target.origin).json(), self._decoded(target)
        if decoded is not None:
            yield from map(bytes, decoded.lines(rows, 0, rows.records, fields, self.request.line_style))
            return
        for piece in record_lines(rows, 0, rows.records, fields, self.request.line_style):
            yield bytes(piece)
        yield bytes(rows.output())
        rows.flushed()


class RecordRows(RecordReader[RecordRow]):
    """Reads records with the outcome of their transactions."""

    def __init__(self, request: DumpRequest) -> None:
        super().__init__(request)
        self._seen: VisibleRange | None = None
        self._aborted = AbortedFilter((), "")
        self._row_limit: BatchRowLimit | None = None

    def _begin(self) -> None:
        self._seen = self._row_limit = None

    def _made(self, rows: Window, target: DumpTarget) -> Iterator[RecordRow | Damage]:
        if self._row_limit is None or self._row_limit.file != target.path:
            self._row_limit = BatchRowLimit(target.path)
        if (left := self._row_limit.cut(rows)) is not None:
            yield left
        for i in range(rows.records):
            yield self._row(rows, i, target)

    def _row(self, rows: Window, i: int, target: DumpTarget) -> RecordRow:
        offset, timestamp, key, value, headers, sequence, batch = row = rows.record(i)
        facts = rows.batch(batch)
        record = Record(offset, timestamp, key, value, headers or (), sequence)
        if facts.is_control:
            control = control_record(key, value)
            producer = facts.producer_id if facts.producer_id >= 0 else None
            return RecordRow(record, producer, control=control.name or "UNKNOWN")
        outcome, schemas = self._outcome(facts, offset, target), self._decoded(target)
        producer = None if outcome is None else facts.producer_id
        decoded = None if schemas is None else schemas.contents(row)
        return RecordRow(record, producer, outcome, None, headers is not None, decoded)

    def _outcome(self, facts: BatchFacts, offset: int, target: DumpTarget) -> TxnOutcome | None:
        if not facts.attributes & Attributes.TRANSACTIONAL:
            return None
        if self._seen is None:
            self._seen = self._visible(target)
            self._aborted = AbortedFilter(self._seen.aborted or (), target.path)
        if self._aborted.hides(facts.producer_id, offset):
            return TxnOutcome.ABORTED
        return TxnOutcome.OPEN if offset >= self._seen.to_offset else TxnOutcome.COMMITTED

    def _visible(self, target: DumpTarget) -> VisibleRange:
        if not target.segments:
            return committed_in_file(target.path)
        return visible_range(Partition(target.directory), "read_committed", self._learnt)
