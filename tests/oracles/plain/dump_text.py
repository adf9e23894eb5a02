"""The output of Kafka 4.3.1's dump tool for a log with --deep-iteration --print-data-log, from the plain decoder's
values.

For logs that are intact; of KRaft's control records only the snapshot header.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from tests.oracles.plain.control import control_type, coordinator_epoch
from tests.oracles.plain.decode import CODECS, Batch, Damage, Record, scan, sequence_after

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def java_text(data: bytes) -> str:
    """Return *data* as Java decodes UTF-8: as Python, but one mark replaces an encoded surrogate, cut or whole."""
    return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def _optional(number: int | None) -> str:
    return "OptionalLong.empty" if number is None else f"OptionalLong[{number}]"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def batch_line(batch: Batch) -> str:
    """Return the line of *batch*, whose CRC holds."""
    tail = (
        f"position: {batch.position} {batch.timestamp_type}: {batch.max_timestamp} size: {batch.size} "
        f"magic: {batch.magic} compresscodec: {CODECS[batch.codec]} crc: {batch.crc} isvalid: true"
    )
    if batch.magic < 2:
        return f"offset: {batch.last_offset} {tail}"
    steps = batch.last_offset - batch.base_offset
    last_sequence = -1 if batch.base_sequence == -1 else sequence_after(batch.base_sequence, steps)
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count} "
        f"baseSequence: {batch.base_sequence} lastSequence: {last_sequence} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
        f"isTransactional: {_flag(batch.transactional)} isControl: {_flag(batch.control)} "
        f"deleteHorizonMs: {_optional(batch.delete_horizon_ms)} {tail}"
    )


def record_line(batch: Batch, record: Record) -> str:
    """Return the line (or lines: nothing is escaped) of *record*."""
    text = f"| offset: {record.offset} {batch.timestamp_type}: {record.timestamp} "
    text += f"keySize: {record.lengths[0]} valueSize: {record.lengths[1]} "
    if batch.magic < 2:
        text += f"isValid: {_flag(record.crc_holds)} crc: {record.crc}"
    else:
        names = ",".join(java_text(name) for name, _ in record.headers)
        text += f"sequence: {record.sequence} headerKeys: [{names}]"
    if batch.control:
        return text + _control(record)
    text += "" if record.key is None else f" key: {java_text(record.key)}"
    return text + ("" if record.value is None else f" payload: {java_text(record.value)}")


def _control(record: Record) -> str:
    kind = control_type(record.key)
    if kind in ("ABORT", "COMMIT"):
        return f" endTxnMarker: {kind} coordinatorEpoch: {coordinator_epoch(record.value)}"
    if kind == "SNAPSHOT_HEADER":
        version, timestamp = struct.unpack_from(">hq", record.value or b"")
        return f' SnapshotHeader {{"version":{version},"lastContainedLogTimestamp":{timestamp}}}'
    return f" controlType: {kind}"


def lines(data: bytes) -> Iterator[str]:
    """Yield the part after "Log starting offset"; raises ValueError at the first damage."""
    for batch in scan(data):
        if isinstance(batch, Damage) or batch.fault or batch.codec > 4:
            raise ValueError(f"not intact: {batch}")
        yield batch_line(batch)
        for record in batch.records:
            yield record_line(batch, record)
