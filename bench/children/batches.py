"""Write partitions of batches of one size, of no producer: FOLDER BYTES BATCH_BYTES PARTITIONS TWINS_PERCENT [holes].

That percentage of the batches of the first two partitions are twins, as of a program that writes both.  With holes the
values are zeros that take no room on the disk.
"""

from __future__ import annotations

import os
import struct
import sys

from crc32c import crc32c

SEGMENT_BYTES = 256 << 20
RECORDS_AT = 61


def main() -> None:
    folder, size, batch_bytes, partitions, percent = sys.argv[1], *map(int, sys.argv[2:6])
    has_holes = sys.argv[6:] == ["holes"]
    value = bytes(1 << 20) if has_holes else os.urandom(1 << 20)
    payload = batch_bytes - RECORDS_AT
    written = size // partitions // batch_bytes
    in_segment = SEGMENT_BYTES // batch_bytes
    for number in range(partitions):
        directory = os.path.join(folder, f"t{number}-0")
        os.makedirs(directory)
        for base in range(0, written, in_segment):
            with open(os.path.join(directory, f"{base:020d}.log"), "wb", 1 << 20) as log:
                for i in range(base, min(base + in_segment, written)):
                    # The common parts of twins: time and content depend on the number of the batch alone.
                    is_twin = number < 2 and i % 100 < percent
                    which = i if is_twin else i * partitions + number + 7
                    start = which * 7919 % (len(value) - payload)
                    times = (10**12 if is_twin else 11 * 10**11) + which
                    body = struct.pack(">hiqqqhii", 0, 0, times, times, -1, -1, -1, 1)
                    body += record(value[start : start + payload])
                    log.write(struct.pack(">qiibI", i, len(body) + 9, 0, 2, crc32c(body)))
                    if has_holes:
                        log.write(body[:RECORDS_AT])
                        log.seek(len(body) - RECORDS_AT - 1, os.SEEK_CUR)
                        body = body[-1:]
                    log.write(body)


def record(value: bytes) -> bytes:
    """Return a record whose value makes it about as long as *value*."""
    body = b"\0\0\0" + varint(-1) + varint(len(value) - 12) + value[: len(value) - 12] + b"\0"
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    """Return a zig-zag varint."""
    value = (value << 1) ^ (value >> 31)
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


main()
