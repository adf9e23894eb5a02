"""Entries of `.index`, `.timeindex` and `.txnindex`.

The files have no header and no checksum; the segment's base offset is only in the file's name.
"""

from __future__ import annotations

from klog.formats.layout import Layout

OFFSET_ENTRY = Layout(
    "offset index entry",
    ("relative_offset", "int32", "last offset of the batch (or append) less the segment's base offset"),
    ("position", "int32", "bytes from the start of the .log to the batch"),
)
"""Key is the offset, value the position.  Position 0 is never indexed, so an all-zero entry ends the index."""

TIME_ENTRY = Layout(
    "time index entry",
    ("timestamp", "int64", "largest timestamp in the segment up to this entry, ms since the epoch"),
    ("relative_offset", "int32", "last offset of the earliest batch that reaches it, less the base offset"),
)

ABORTED_TXN = Layout(
    "aborted transaction",
    ("version", "int16", "0; Kafka reads only the high byte"),
    ("producer_id", "int64", "whose transaction it was"),
    ("first_offset", "int64", "absolute; may lie in an earlier segment"),
    ("last_offset", "int64", "of the ABORT marker, in this segment"),
    ("last_stable_offset", "int64", "first offset of the earliest transaction still open then, else last_offset + 1"),
)
