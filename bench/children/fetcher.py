"""Fetch a partition from start to end, raw: ``fetcher.py HOST PORT TOPIC BYTES``; prints bytes, requests, seconds.

Fetch v4, one request at a time, batches only stepped over: what is left is the server's work.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

ENTRY = struct.Struct(">qi")
DELTA_AT, SMALLEST = 23, 61


def fetch(host: str, port: int, topic: bytes, limit: int) -> tuple[int, int, float]:
    """Return the bytes of whole batches that came, how many requests it took, and how long (s)."""
    link = socket.create_connection((host, port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    view = memoryview(bytearray(limit + (2 << 20)))
    records_at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4 + 2 + 8 + 8 + 4 + 4
    offset = got = requests = 0
    began = time.perf_counter()
    while True:
        head = struct.pack(">hhih", 1, 4, 0, 1) + b"k" + struct.pack(">iiiib", -1, 500, 1, limit, 0)
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
            whole = position
        if whole == records_at:
            return got, requests, time.perf_counter() - began
        got += whole - records_at


if __name__ == "__main__":
    print(*fetch(sys.argv[1], int(sys.argv[2]), sys.argv[3].encode(), int(sys.argv[4])))
