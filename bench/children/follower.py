"""Copy a partition with nothing but system calls: ``follower.py HOST PORT TOPIC BYTES TARGET``; prints bytes.

Receive an answer, compute the checksum of its batches, write them: the least that any copy has to do.  Fetch v4; only
the header of each batch is looked at.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

from klog.kernel import crc32c

ENTRY = struct.Struct(">qi")
CHECKED_FROM, DELTA_AT, SMALLEST = 21, 23, 61


def copy(host: str, port: int, topic: bytes, limit: int, target: str) -> int:
    """Return the bytes of the batches that came."""
    link = socket.create_connection((host, port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    view = memoryview(bytearray(limit + (2 << 20)))
    records_at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4 + 2 + 8 + 8 + 4 + 4
    offset = got = 0
    while True:
        head = struct.pack(">hhih", 1, 4, 0, 1) + b"k" + struct.pack(">iiiib", -1, 0, 1, limit, 0)
        body = head + struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">iiqi", 1, 0, offset, limit)
        link.sendall(struct.pack(">i", len(body)) + body)
        link.recv_into(view[:4], 4, socket.MSG_WAITALL)
        (size,) = struct.unpack(">i", view[:4])
        link.recv_into(view[:size], size, socket.MSG_WAITALL)
        position = whole = records_at
        while position + SMALLEST <= size:
            base, length = ENTRY.unpack_from(view, position)
            position += ENTRY.size + length
            if position > size:
                break
            offset = base + struct.unpack_from(">i", view, whole + DELTA_AT)[0] + 1
            crc32c(view[whole + CHECKED_FROM : position])
            whole = position
        if whole == records_at:
            os.close(file)
            return got
        os.write(file, view[records_at:whole])
        got += whole - records_at


if __name__ == "__main__":
    print(copy(sys.argv[1], int(sys.argv[2]), sys.argv[3].encode(), int(sys.argv[4]), sys.argv[5]))
