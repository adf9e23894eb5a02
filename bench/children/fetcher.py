"""Fetch a partition from start to end, raw: ``fetcher.py HOST PORT TOPIC BYTES [TARGET]``.

Fetch v4, one request at a time; only the header of each batch is read, and the rest is the server's work.  Prints
bytes, requests, seconds.  With TARGET it copies: it receives an answer, computes the checksums of its batches and
writes them, which is the least that any copy has to do.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time

ENTRY = struct.Struct(">qi")
CHECKED_FROM, DELTA_AT, SMALLEST = 21, 23, 61
WAIT_MS = 500


def fetch(host: str, port: int, topic: bytes, limit: int, target: str | None) -> tuple[int, int, float]:
    """Return the bytes of whole batches received, the number of requests, and the time (s)."""
    link = socket.create_connection((host, port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    file = None
    if target is None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    else:
        from klog.kernel import crc32c

        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    view = memoryview(bytearray(limit + (2 << 20)))
    records_at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4 + 2 + 8 + 8 + 4 + 4
    wait_ms = WAIT_MS if file is None else 0
    offset = got = requests = 0
    began = time.perf_counter()
    while True:
        head = struct.pack(">hhih", 1, 4, 0, 1) + b"k" + struct.pack(">iiiib", -1, wait_ms, 1, limit, 0)
        body = head + struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">iiqi", 1, 0, offset, limit)
        link.sendall(struct.pack(">i", len(body)) + body)
        link.recv_into(view[:4], 4, socket.MSG_WAITALL)
        (size,) = struct.unpack(">i", view[:4])
        link.recv_into(view[:size], size, socket.MSG_WAITALL)
        requests += 1
        position = whole = records_at
        while position + SMALLEST <= size:
            base, length = ENTRY.unpack_from(view, position)
            position += ENTRY.size + length
            if position > size:
                break
            offset = base + struct.unpack_from(">i", view, whole + DELTA_AT)[0] + 1
            if file is not None:
                crc32c(view[whole + CHECKED_FROM : position])
            whole = position
        if whole == records_at:
            return got, requests, time.perf_counter() - began
        if file is not None:
            os.write(file, view[records_at:whole])
        got += whole - records_at


if __name__ == "__main__":
    print(*fetch(sys.argv[1], int(sys.argv[2]), sys.argv[3].encode(), int(sys.argv[4]), (*sys.argv[5:], None)[0]))
