"""One client's connection: requests in, responses out, and how long anything may take.

The socket never blocks; whatever waits polls with a deadline.  Memory grows with the bytes that have come and not with
those that were announced.  Records go from their file to the socket within the kernel.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, TypeAlias

from klog.fetch import Piece
from klog.formats.struct_write import Hole, Pieces
from klog.serve.wire import SHORTEST_REQUEST, SIZE_BYTES, body_size
from klog.source import Source

_RECEIVED_AT_ONCE: Final = 64 << 10
_SENT_AT_ONCE: Final = 1 << 30
_HANGS_UP: Final = getattr(select, "POLLRDHUP", 0)
"""Linux tells when the other side has closed; elsewhere that shows at the next send."""

Opened: TypeAlias = Callable[[str], AbstractContextManager[Source]]
"""A path → its file, which stays open inside of the `with`."""


class GoneError(Exception):
    """The conversation is over; the text says why, and is empty when the client just went."""


class Limits(NamedTuple):
    """What a stranger may take.  *send_buffer_bytes* 0: as the kernel has it.

    A large send buffer doubles what sending costs on the same machine; a small one bounds the rate over long lines.
    """

    connections: int = 256
    request_bytes: int = 1 << 20
    send_buffer_bytes: int = 256 << 10
    begun_s: float = 30
    idle_s: float = 600
    stuck_s: float = 30


class Connection:
    """A socket that was accepted.  *sending*: part of a response has left, and part has not."""

    def __init__(self, accepted: socket.socket, limits: Limits) -> None:
        self._socket, self._limits = accepted, limits
        self._got = bytearray()  # of requests; a client may send several at once
        self._readable, self._writable = _poll(accepted, select.POLLIN), _poll(accepted, select.POLLOUT)
        self.sending = False
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if limits.send_buffer_bytes:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)

    def close(self) -> None:
        """End the conversation."""
        self._socket.close()

    # ------------------------------------------------------------ in

    def receive(self) -> bytes | None:
        """Return the next request without its size; None when the client has gone instead of asking.

        Raises GoneError when it asks too much, too slowly, or half.
        """
        if not self._got:
            _await(self._readable, self._limits.idle_s, "")
        until = time.monotonic() + self._limits.begun_s
        if not self._fill(SIZE_BYTES, until):
            return None
        size = body_size(self._got[:SIZE_BYTES])
        if not SHORTEST_REQUEST <= size <= self._limits.request_bytes:
            raise GoneError(f"it announces a request of {size} bytes")
        end = SIZE_BYTES + size
        self._fill(end, until)
        request = bytes(self._got[SIZE_BYTES:end])
        del self._got[:end]
        return request

    def _fill(self, size: int, until: float) -> bool:
        """Receive until there are *size* bytes; False when the other side has closed before it sent any."""
        while len(self._got) < size:
            try:
                part = self._socket.recv(_RECEIVED_AT_ONCE)
            except BlockingIOError:
                _await(self._readable, until - time.monotonic(), "it sent half a request")
                continue
            if not part and self._got:
                raise GoneError("")
            if not part:
                return False
            self._got += part
        return True

    def wait(self, seconds: float) -> None:
        """Let *seconds* pass.  Raises GoneError when the client goes meanwhile."""
        if _poll(self._socket, _HANGS_UP).poll(seconds * 1000):
            raise GoneError("")

    # ------------------------------------------------------------ out

    def send(self, pieces: Pieces, opened: Opened) -> int:
        """Send a response; return its bytes.

        Raises GoneError when the client takes nothing for too long, and when a file has become too short.
        """
        total, last = 0, len(pieces) - 1
        self.sending = True
        for number, piece in enumerate(pieces):
            if isinstance(piece, Hole):
                self._send_files(piece.filling, opened)
                total += piece.size
            else:
                self._send_bytes(piece, socket.MSG_MORE if number < last else 0)
                total += len(piece)
        self.sending = False
        return total

    def _send_bytes(self, data: bytearray, flags: int) -> None:
        sent = 0
        while sent < len(data):
            try:
                sent += self._socket.send(memoryview(data)[sent:] if sent else data, flags)
            except BlockingIOError:
                self._await_room()

    def _send_files(self, pieces: Iterable[Piece], opened: Opened) -> None:
        for piece in pieces:
            with opened(piece.path) as source:
                self._send_file(source.fileno(), piece)

    def _send_file(self, descriptor: int, piece: Piece) -> None:
        position, end, to = piece.position, piece.position + piece.size, self._socket.fileno()
        while position < end:
            try:
                sent = os.sendfile(to, descriptor, position, min(end - position, _SENT_AT_ONCE))
            except BlockingIOError:
                self._await_room()
                continue
            if not sent:
                raise GoneError(f"{piece.path} @ {position}: the file became shorter")
            position += sent

    def _await_room(self) -> None:
        _await(self._writable, self._limits.stuck_s, "it stopped reading")


def _poll(of: socket.socket, event: int) -> select.poll:
    poll = select.poll()
    poll.register(of, event)
    return poll


def _await(poll: select.poll, seconds: float, otherwise: str) -> None:
    if seconds <= 0 or not poll.poll(seconds * 1000):
        raise GoneError(otherwise)
