"""How each value in `__transaction_state` begins, in every version: enough to skip most of them undecoded."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from klog.formats.layout import Layout

VALUE_HEAD: Final = Layout(
    "transaction state",
    ("version", "int16", "of the value: 0 or 1"),
    ("producer_id", "int64", "whose transaction it is"),
    ("producer_epoch", "int16", "its epoch"),
    ("timeout_ms", "int32", "how long the transaction may take"),
    ("status", "int8", "a TransactionStatus"),
)

VALUE_TAIL: Final = Layout(
    "transaction state's times",
    ("updated", "int64", "when it last changed, ms"),
    ("started", "int64", "when it began, ms; -1: no transaction yet"),
)
"""How each value of version 0 ends."""


class TransactionStatus(IntEnum):
    """The state of a transaction.  Kafka: TransactionState."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
