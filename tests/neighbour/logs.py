"""Log dirs of any size, made at the speed of the disk: one batch, again and again, each time with its own offset.

The checksum of a batch does not cover its base offset.
"""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record

MS = 1_700_000_000_000
_RECORDS, _AT_ONCE = 16, 64
TOPIC_ID = "QUJDREVGR0hJSktMTU5PUA"


def make_log_dir(folder: Path, size: int, partitions: int = 4) -> Path:
    """Make a log dir of *size* bytes: topic `big`, a segment a partition, batches of 16 KiB."""
    folder.mkdir()
    (folder / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n")
    ends = [_make_partition(folder / f"big-{number}", size // partitions) for number in range(partitions)]
    rows = "".join(f"big {number} {end}\n" for number, end in enumerate(ends))
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (folder / name).write_text(f"0\n{partitions}\n{rows}")
    (folder / "log-start-offset-checkpoint").write_text("0\n0\n")
    (folder / ".lock").touch()
    return folder


def _make_partition(folder: Path, size: int) -> int:
    """Make a partition with its indexes; return its log end offset."""
    folder.mkdir()
    values = Random(1)
    one = encode.batch([Record(offset, MS, b"key", values.randbytes(500).hex().encode()) for offset in range(_RECORDS)])
    block = bytearray(one * _AT_ONCE)
    batches = size // len(block) * _AT_ONCE
    with (folder / f"{0:020}.log").open("wb") as file:
        for first in range(0, batches, _AT_ONCE):
            for number in range(_AT_ONCE):
                struct.pack_into(">q", block, number * len(one), (first + number) * _RECORDS)
            file.write(block)
    lasts = [(number * _RECORDS + _RECORDS - 1, number * len(one)) for number in range(1, batches)]
    (folder / f"{0:020}.index").write_bytes(encode.offset_entries(0, lasts))
    (folder / f"{0:020}.timeindex").write_bytes(encode.time_entries(0, [(MS, _RECORDS - 1)]))
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    return batches * _RECORDS
