"""A link to a broker that stalls: a large produce request stops after its first bytes for about a second."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from contextlib import suppress

_PRODUCE = 0
_LARGE_BYTES = 12_000
_PIECE = 4096


class StallingLink:
    """Forwards from *port* to *target*, both on localhost; large produce requests wait for *pause* seconds."""

    def __init__(self, port: int, target: int, pause: float = 0.0) -> None:
        self.pause, self._target = pause, target
        self._server = socket.socket()
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE)
        self._server.bind(("localhost", port))
        self._server.listen(50)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(("localhost", self._target))
                except OSError:
                    near.close()  # the broker is not up
                    continue
                self._open += [near, far]
                threading.Thread(target=self._there, args=(near, far), daemon=True).start()
                threading.Thread(target=self._back, args=(far, near), daemon=True).start()

    def _there(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while True:
                head = _exactly(near, 6)
                size, key = struct.unpack(">ih", head)
                first = b""
                if self.pause and key == _PRODUCE and size > _LARGE_BYTES:
                    first = _exactly(near, 2048)
                    time.sleep(self.pause * random.uniform(0.9, 1.1))
                far.sendall(head + first + _exactly(near, size - 2 - len(first)))
        near.close()
        far.close()

    def _back(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while data := far.recv(1 << 16):
                near.sendall(data)
        near.close()
        far.close()

    def __enter__(self) -> StallingLink:
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # the thread in accept() would keep it listening
        for one in (self._server, *self._open):
            one.close()


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(_PIECE, size - len(data)))
        if not more:
            raise OSError("closed")
        data += more
    return bytes(data)
