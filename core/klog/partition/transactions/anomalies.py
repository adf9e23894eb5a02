"""Unusual facts about the batches of producers: each is a value, and none is an error by itself.

The topic decides which of them are damage: if compaction or retention removed batches, gaps and markers without their
transaction are expected.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from klog.base.location import Location
from klog.partition.transactions.markers import MarkerFlaw


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
