"""Write a partition of records whose keys all differ: ``manykeys.py FOLDER RECORDS``.

Batches of 64 records of 33 bytes, each made by one format: encoding them one by one would take minutes.
"""

from __future__ import annotations

import os
import struct
import sys

import crc32c

RECORDS_IN_BATCH = 64  # offset deltas of one byte
TIMESTAMP_MS = 1_795_000_000_000


def record(delta: int) -> bytes:
    """Return a record as a format with a place for the number in its key."""
    body = b"\0\0" + bytes([2 * delta, 2 * 17]) + b"user-%012d" + bytes([2 * 8]) + b"12345678\0"
    return bytes([2 * len(body % 0)]) + body


def main(folder: str, records: int) -> None:
    os.makedirs(folder)
    payload = b"".join(map(record, range(RECORDS_IN_BATCH)))
    rest = struct.pack(">hiqqqhii", 0, RECORDS_IN_BATCH - 1, TIMESTAMP_MS, TIMESTAMP_MS, -1, -1, -1, RECORDS_IN_BATCH)
    size = 9 + len(rest) + len(payload % tuple(range(RECORDS_IN_BATCH)))
    with open(os.path.join(folder, "0" * 20 + ".log"), "wb", buffering=1 << 20) as log:
        for base in range(0, records, RECORDS_IN_BATCH):
            content = rest + payload % tuple(range(base, base + RECORDS_IN_BATCH))
            log.write(struct.pack(">qiibI", base, size, 4, 2, crc32c.crc32c(content)) + content)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
