"""Control records: the records of batches with the control flag.

    key      version int16, type int16
    value    ABORT, COMMIT             version int16, coordinator epoch int32
             the KRaft types           a struct of `schemas/control.txt`, always read as version 0; its own first field,
                                       `version`, only says how to print it

Versions above the known ones are read as the newest; bytes left over are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from klog.formats.layout import Layout
from klog.formats.structs.schema import Data, Schema

KEY = Layout(
    "control record key",
    ("version", "int16", "0; below zero is damage"),
    ("type", "int16", "see TYPES"),
)

END_TXN_MARKER = Layout(
    "end of a transaction",
    ("version", "int16", "0; below zero is damage"),
    ("coordinator_epoch", "int32", "epoch of the transaction coordinator that wrote the marker"),
)

TYPES: Final = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
"""Names of the types.  Kafka: ControlRecordType."""

_KRAFT: Final = {
    2: ("LeaderChangeMessage", " LeaderChange: "),
    3: ("SnapshotHeaderRecord", " SnapshotHeader "),
    4: ("SnapshotFooterRecord", " SnapshotFooter "),
    5: ("KRaftVersionRecord", " KRaftVersion "),
    6: ("VotersRecord", " KRaftVoters "),
}
"""The schema of each KRaft type, and the dump tool's text before its JSON."""

_READ_VERSION: Final = 0
_NULL_POINTER: Final = "java.lang.NullPointerException: Cannot invoke "
_INVALID: Final = "org.apache.kafka.common.InvalidRecordException: "


@dataclass(frozen=True)
class Control:
    """A decoded control record.

    *type_id* is None if the key does not contain it; *name* is UNKNOWN for a type that Kafka does not know, empty if
    there is no type.  *text* is the dump tool's output for it after the record's metadata.  *failure* is the exception
    the tool dies of instead, as Java prints it; empty when it does not, and *text* is empty when it does.
    """

    type_id: int | None
    name: str
    text: str = ""
    failure: str = ""
    data: Data = field(default_factory=dict)

    @property
    def coordinator_epoch(self) -> int | None:
        """The coordinator's epoch in the end of a transaction, else None."""
        epoch = self.data.get("coordinatorEpoch")
        return epoch if isinstance(epoch, int) else None


def control_record(key: bytes | None, value: bytes | None) -> Control:
    """Decode a control record; damage is in its *failure*.  Kafka: DumpLogSegments.printControlRecord."""
    if key is None:
        return Control(None, "", failure=f'{_NULL_POINTER}"java.nio.ByteBuffer.duplicate()" because "key" is null')
    if len(key) < KEY.size:
        text = f"Must have at least {KEY.size} bytes, but found only {len(key)}"
        return Control(None, "", failure=f"{_INVALID}Invalid value size found for control record key. {text}")
    version, type_id = KEY.read(key)
    if version < 0:
        text = f"Invalid version found for control record: {version}. May indicate data corruption"
        return Control(None, "", failure=_INVALID + text)
    if type_id in _KRAFT:
        return _kraft(type_id, value)
    if type_id in TYPES:
        return _end_of_transaction(type_id, value)
    return Control(type_id, "UNKNOWN", f" controlType: UNKNOWN({type_id})")


def kraft_schema(type_id: int) -> tuple[Schema, int] | None:
    """Return the schema of the value of a KRaft type, and the version in which it is read; None for other types."""
    from klog.formats.structs.schema import load

    return (load("control", _KRAFT[type_id][0]), _READ_VERSION) if type_id in _KRAFT else None


def kraft_control(type_id: int, data: Data) -> tuple[bytes, bytes]:
    """Return key and value of a control record of KRaft.  Kafka: ControlRecordUtils, MemoryRecordsBuilder."""
    from klog.formats.structs.schema import load
    from klog.formats.structs.write import encode

    return KEY.write(0, type_id), encode(load("control", _KRAFT[type_id][0]), data, data["version"])


def _end_of_transaction(type_id: int, value: bytes | None) -> Control:
    """Kafka: EndTransactionMarker.deserializeValue."""
    name = TYPES[type_id]
    if value is None:
        failure = f'{_NULL_POINTER}"java.nio.ByteBuffer.getShort()" because "value" is null'
        return Control(type_id, name, failure=failure)
    version_bytes = value[: END_TXN_MARKER.offsets["coordinator_epoch"]]
    version = int.from_bytes(version_bytes, "big", signed=True)
    if len(version_bytes) == END_TXN_MARKER.offsets["coordinator_epoch"] and version < 0:
        text = f"Invalid version found for end transaction marker: {version}. May indicate data corruption"
        return Control(type_id, name, failure=_INVALID + text)
    if len(value) < END_TXN_MARKER.size:
        return Control(type_id, name, failure="java.nio.BufferUnderflowException")
    _, epoch = END_TXN_MARKER.read(value)
    text = f" endTxnMarker: {name} coordinatorEpoch: {epoch}"
    return Control(type_id, name, text, data={"coordinatorEpoch": epoch})


def _kraft(type_id: int, value: bytes | None) -> Control:
    """Kafka: ControlRecordUtils."""
    from klog.formats.structs.json import to_json
    from klog.formats.structs.read import RECORD_ELEMENTS, StructError, decode
    from klog.formats.structs.schema import load

    schema_name, title = _KRAFT[type_id]
    name = TYPES[type_id]
    if value is None:
        return Control(type_id, name, failure=f'{_NULL_POINTER}"java.nio.ByteBuffer.slice()" because "data" is null')
    schema = load("control", schema_name)
    try:
        data, _ = decode(schema, value, _READ_VERSION, elements=RECORD_ELEMENTS)
    except StructError as error:
        return Control(type_id, name, failure=str(error))
    return Control(type_id, name, title + to_json(schema, data, data["version"]), data=data)
