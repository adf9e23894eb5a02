"""Transactions in a partition: a producer's data batches, the marker that ends them, and unusual facts about both.

A marker is a control batch of one record.  Only its producer id identifies the transaction that it ends; the beginning
of that transaction is known only from the data batches before it.

An unusual fact (`ProducerAnomaly`) is a value, and no error by itself.  The topic decides which of them are damage: if
compaction or retention removed batches, gaps and markers without their transaction are expected.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from klog.formats.batch import CODEC_BITS
from klog.formats.codec import Decompressor
from klog.formats.damage import Location
from klog.formats.java_integers import LONG_MAX
from klog.kernel import DONE, MORE, Window
from klog.log.index import AbortedTxn

_ABORT, _COMMIT = 0, 1
_INVALID_RECORD = "org.apache.kafka.common.InvalidRecordException: "


class Marker(NamedTuple):
    """The end of a transaction.  *timestamp* is the control record's, ms since the epoch."""

    aborts: bool
    coordinator_epoch: int
    timestamp: int


class MarkerFlaw(StrEnum):
    """The ways in which a control batch of a producer is no marker, by their effect on a broker."""

    UNKNOWN_TYPE = "control batch of a producer that is neither COMMIT nor ABORT"
    """IllegalArgumentException: the broker does not start."""

    INVALID_RECORD = "invalid marker"
    """InvalidRecordException: recovery keeps this batch and cuts the rest; loading does not survive it."""

    UNREADABLE = "unreadable marker"
    """Any other exception (null or short content, bad compression): the broker does not start."""


class FlawedMarker(NamedTuple):
    """A control batch of a producer that is useless to a broker.  *detail*: its content, often in Java's words."""

    flaw: MarkerFlaw
    detail: str


class CompletedTxn(NamedTuple):
    """A transaction that had data and has ended.

    *first_offset*: of its first data batch that is known of, perhaps in an earlier segment.  *last_offset*: of the
    marker.  *last_stable_offset*: first offset of the earliest transaction of another producer that was open then, else
    the offset after the marker.  *place*: the marker's batch.  Kafka: CompletedTxn; for the last stable offset
    ProducerStateManager.lastStableOffset.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int
    place: Location

    @property
    def index_entry(self) -> AbortedTxn | None:
        """Its entry in the `.txnindex` of the marker's segment; None when it was committed."""
        if not self.aborted:
            return None
        return AbortedTxn(0, self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset)


def offset_after(offset: int) -> int:
    """Return the next offset, as Java's long arithmetic makes it: a damaged one can be the last that there is."""
    return offset + 1 if offset < LONG_MAX else -LONG_MAX - 1


def read_marker(window: Window, i: int) -> Marker | FlawedMarker | None:
    """Return the content of control batch *i* of a producer; None when it is empty: cleaned, with no transaction left
    to end.

    Uses the window's record rows.  Content never raises.  Kafka: ProducerAppendInfo.append, EndTransactionMarker.
    """
    facts = window.batch(i)
    if facts.records_count == 0:
        return None
    compressed = bool(facts.attributes & CODEC_BITS)
    if compressed and window.decompress(i, i + 1, Decompressor().functions) == i:
        return FlawedMarker(MarkerFlaw.UNREADABLE, str(window.error))
    window.begin(i, i + 1)
    status = window.decode()
    # A broker reads the first record alone, but for a compressed batch, which it reads whole.
    if not window.records or (compressed and status not in (DONE, MORE)):
        return FlawedMarker(MarkerFlaw.INVALID_RECORD, "its record is broken")
    _, timestamp, key, value, *_ = window.record(0, False)
    return _marker(timestamp, key, value)


def _marker(timestamp: int, key: bytes | None, value: bytes | None) -> Marker | FlawedMarker:
    from klog.formats.control import TYPES, control_record  # not needed for most logs, and slow to load

    control = control_record(key, value)
    if control.type_id not in (_ABORT, _COMMIT, None):
        return FlawedMarker(MarkerFlaw.UNKNOWN_TYPE, TYPES.get(control.type_id, f"type {control.type_id}"))
    if control.coordinator_epoch is not None:
        return Marker(control.type_id == _ABORT, control.coordinator_epoch, timestamp)
    invalid = control.failure.startswith(_INVALID_RECORD)
    return FlawedMarker(MarkerFlaw.INVALID_RECORD if invalid else MarkerFlaw.UNREADABLE, control.failure)


class ProducerAnomalyKind(StrEnum):
    """The closed set of things in a log that a leader would not have written, or that only look like it."""

    SEQUENCE_GAP = "sequence gap"
    """Batches before it are missing: lost, or removed by compaction, or the producer had expired."""

    SEQUENCE_BACKWARDS = "sequence goes backwards"
    """It repeats earlier sequences, but not as one of the last five batches."""

    DUPLICATE_SEQUENCE = "batch appended twice"
    """It repeats one of the last five batches exactly, at other offsets."""

    FIRST_SEQUENCE_NOT_ZERO = "new epoch does not begin with sequence 0"

    NO_SEQUENCE = "data without a sequence"
    """Transactional offset commits, which the coordinator of `__consumer_offsets` writes, have none; others must."""

    EPOCH_BACKWARDS = "producer epoch goes backwards"

    NOT_TRANSACTIONAL = "non-transactional batch inside a transaction"
    """InvalidTxnStateException: a broker that replays it does not start."""

    MARKER_WITHOUT_TXN = "marker without a transaction"
    """Legal: the transaction was empty, or its data was removed."""

    COORDINATOR_EPOCH_BACKWARDS = "coordinator epoch goes backwards"

    UNKNOWN_MARKER_TYPE = MarkerFlaw.UNKNOWN_TYPE.value
    INVALID_MARKER = MarkerFlaw.INVALID_RECORD.value
    UNREADABLE_MARKER = MarkerFlaw.UNREADABLE.value
    """These three: see `MarkerFlaw`.  The state is unchanged, except for its end."""

    TXN_NOT_STARTED = "the ended transaction is not among the open ones"
    """Two transactions had one first offset.  IllegalArgumentException: a broker that replays it does not start."""


STOPS_BROKER: Final = frozenset(
    {
        ProducerAnomalyKind.NOT_TRANSACTIONAL,
        ProducerAnomalyKind.UNKNOWN_MARKER_TYPE,
        ProducerAnomalyKind.INVALID_MARKER,
        ProducerAnomalyKind.UNREADABLE_MARKER,
        ProducerAnomalyKind.TXN_NOT_STARTED,
    }
)
"""The anomalies that end a starting broker's replay; recovery of the segment survives INVALID_MARKER."""


class ProducerAnomaly(NamedTuple):
    """Something unusual in a producer's batch, which is at *place*.

    *expected* and *found* are sequences, epochs, or offsets of transactions, as the kind has it; None if it has no such
    thing.  *idle_ms*: from the producer's last timestamp to the batch's largest; None for an unknown producer.
    """

    kind: ProducerAnomalyKind
    place: Location
    producer_id: int
    producer_epoch: int
    expected: int | None = None
    found: int | None = None
    idle_ms: int | None = None
    detail: str = ""

    def __str__(self) -> str:
        text = f"{self.place}: producer {self.producer_id} epoch {self.producer_epoch}: {self.kind.value}"
        if self.found is not None:
            text += f": {self.found}" + ("" if self.expected is None else f", expected {self.expected}")
        return f"{text}: {self.detail}" if self.detail else text
