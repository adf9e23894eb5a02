"""Control records: the content of their keys and values."""

from __future__ import annotations

import struct

from tests.oracles.plain.decode import BadRecordError

CONTROL_TYPES = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)


def control_type(key: bytes | None) -> str:
    """Return the name of a control record's type; raises BadRecordError when the key is none."""
    if key is None or len(key) < 4:
        raise BadRecordError("a control record without a type")
    version, number = struct.unpack_from(">hh", key)
    if version < 0:
        raise BadRecordError(f"a control record of version {version}")
    return CONTROL_TYPES[number] if 0 <= number < len(CONTROL_TYPES) else f"UNKNOWN({number})"


def coordinator_epoch(value: bytes | None) -> int:
    """Return the coordinator's epoch from an end of transaction's value; raises BadRecordError when there is none."""
    if value is None or len(value) < 6:
        raise BadRecordError("an end of transaction without a coordinator epoch")
    version, epoch = struct.unpack_from(">hi", value)
    if version < 0:
        raise BadRecordError(f"an end of transaction of version {version}")
    return int(epoch)
