"""The connection of one client: requests in, responses out, and the time limits.

The socket never blocks; every wait polls with a deadline.  Memory grows with the bytes received, not with the bytes
announced.  The kernel copies records from their file to the socket; records of an object in remote storage are copied
here.
"""

from __future__ import annotations

import errno
import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from klog.base.errors import KlogError
from klog.base.read_only import ReadOnlyFile
from klog.formats.structs.write import Hole, Pieces
from klog.formats.wire_messages import SHORTEST_REQUEST, SIZE_BYTES, body_size
from klog.partition.fetch import FileBytes

_RECEIVED_AT_ONCE: Final = 64 << 10
_SENT_AT_ONCE: Final = 1 << 30
_COPIED_AT_ONCE: Final = 256 << 10
_OF_FILES: Final = (errno.EIO, errno.EINVAL, errno.ESTALE, errno.ENXIO, errno.ENODATA, errno.EBADMSG, errno.EUCLEAN)
"""Errors of sendfile that are about the file; all others are the connection's."""
_HANGS_UP: Final = getattr(select, "POLLRDHUP", 0)
"""Linux reports when the other side has closed; elsewhere the next send fails."""

Opened: TypeAlias = Callable[[str], ReadOnlyFile]
"""A path → its file, which is open for as long as it is referred to."""


class GoneError(Exception):
    """The connection is closed; the text is the reason, empty if the client closed it."""


class ConnectionLimits(NamedTuple):
    """The limits for unknown clients.  *send_buffer_bytes* 0: the kernel's default.

    A large send buffer doubles the cost of sending on the same machine; a small one bounds the rate over long lines.
    Requests and, beside their records, responses of more than *large_bytes* may take *large_together_bytes* each for
    all clients together; such a response is sent at *slowest_bytes_s* at least.
    """

    connections: int = 256
    request_bytes: int = 1 << 20
    send_buffer_bytes: int = 256 << 10
    large_bytes: int = 16 << 10
    large_together_bytes: int = 4 << 20
    begun_s: float = 30
    idle_s: float = 600
    stuck_s: float = 30
    slowest_bytes_s: int = 64 << 10


class MemoryBudget:
    """A limit on the bytes that all connections reserve together.  A larger single reservation is allowed alone."""

    def __init__(self, size: int) -> None:
        self._size, self._held, self._changed = size, 0, threading.Condition()

    def take(self, size: int, until: float) -> bool:
        """Reserve *size* bytes; False if they did not become free by then (monotonic seconds)."""
        with self._changed:
            while self._held and self._held + size > self._size:
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    return False
            self._held += size
            return True

    def give_back(self, size: int) -> None:
        """Release *size* bytes."""
        with self._changed:
            self._held -= size
            self._changed.notify_all()


class Connection:
    """An accepted socket; *requests* and *responses* are the budgets for large ones, shared by all connections.

    *sending*: a part of a response has been sent, and a part has not.
    """

    def __init__(
        self, accepted: socket.socket, limits: ConnectionLimits, requests: MemoryBudget, responses: MemoryBudget
    ) -> None:
        self._socket, self._limits = accepted, limits
        self._requests, self._responses, self._held = requests, responses, 0
        self._reserved = 0
        self._got = bytearray()  # of requests; a client may send several at once
        self._readable, self._writable = _poll(accepted, select.POLLIN), _poll(accepted, select.POLLOUT)
        self.sending = False
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if limits.send_buffer_bytes:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)

    def close(self) -> None:
        """End the conversation."""
        self.let_go()
        self._release()
        self._socket.close()

    # ------------------------------------------------------------ in

    def receive(self) -> bytes | None:
        """Return the next request without its size; None when the client has disconnected between requests.

        Its memory is reserved until `let_go`.

        Raises GoneError for a request that is too large, too slow, or incomplete.
        """
        if not self._got:
            _await(self._readable, self._limits.idle_s, "")
        until = time.monotonic() + self._limits.begun_s
        if not self._fill(SIZE_BYTES, until):
            return None
        size = body_size(self._got[:SIZE_BYTES])
        if not SHORTEST_REQUEST <= size <= self._limits.request_bytes:
            raise GoneError(f"it sends a request of {size} bytes")
        if size > self._limits.large_bytes:
            if not self._requests.take(size, until):
                raise GoneError("the limit of memory for large requests is reached")
            self._held = size
        end = SIZE_BYTES + size
        self._fill(end, until)
        request = bytes(self._got[SIZE_BYTES:end])
        del self._got[:end]
        return request

    def let_go(self) -> None:
        """Release the memory of the request."""
        if self._held:
            self._requests.give_back(self._held)
            self._held = 0

    def _fill(self, size: int, until: float) -> bool:
        """Receive until there are *size* bytes; False when the other side has closed before it sent any."""
        while len(self._got) < size:
            try:
                part = self._socket.recv(min(_RECEIVED_AT_ONCE, max(self._limits.large_bytes, size - len(self._got))))
            except BlockingIOError:
                _await(self._readable, until - time.monotonic(), "it sent half a request")
                continue
            if not part and self._got:
                raise GoneError("")
            if not part:
                return False
            self._got += part
        return True

    def still_there(self) -> None:
        """Raise GoneError when the client has disconnected."""
        self.wait(0)

    def wait(self, seconds: float) -> None:
        """Wait for *seconds*.  Raises GoneError if the client disconnects meanwhile."""
        if _poll(self._socket, _HANGS_UP).poll(seconds * 1000):
            raise GoneError("")

    # ------------------------------------------------------------ out

    def send(self, pieces: Pieces, opened: Opened) -> int:
        """Send a response; return its bytes.

        Raises GoneError when the client receives too little for too long, and when a file fails or has become too
        short.
        """
        held = sum(len(piece) for piece in pieces if not isinstance(piece, Hole))
        until = math.inf
        if held > self._limits.large_bytes:
            until = time.monotonic() + self._limits.stuck_s + held / self._limits.slowest_bytes_s
            self.reserve(held)
        total = self._send(pieces, opened, until)
        self._release()
        return total

    def reserve(self, size: int) -> None:
        """Reserve memory for a response of *size* bytes without its records, if it is large.

        Raises GoneError when others have reserved it: a waiting response would need the memory all the same.
        """
        if size > self._limits.large_bytes and not self._reserved:
            if not self._responses.take(size, 0):
                raise GoneError("the limit of memory for large responses is reached")
            self._reserved = size

    def _release(self) -> None:
        if self._reserved:
            self._responses.give_back(self._reserved)
            self._reserved = 0

    def _send(self, pieces: Pieces, opened: Opened, until: float) -> int:
        total, last = 0, len(pieces) - 1
        self.sending = True
        for number, piece in enumerate(pieces):
            if isinstance(piece, Hole):
                self._send_files(piece.filling, opened)
                total += piece.size
            else:
                self._send_bytes(piece, socket.MSG_MORE if number < last else 0, until)
                total += len(piece)
        self.sending = False
        return total

    def _send_bytes(self, data: bytearray, flags: int, until: float) -> None:
        sent = 0
        while sent < len(data):
            try:
                sent += self._socket.send(memoryview(data)[sent:] if sent else data, flags)
            except BlockingIOError:
                self._await_room(until)

    def _send_files(self, pieces: Iterable[FileBytes], opened: Opened) -> None:
        for piece in pieces:
            source = opened(piece.path)  # which is closed with its last reference
            if source.fileno() < 0:
                self._copy(source, piece)
            else:
                self._send_file(source.fileno(), piece)

    def _copy(self, source: ReadOnlyFile, piece: FileBytes) -> None:
        """Send bytes of an object in remote storage, from which the kernel cannot copy."""
        position, end = piece.position, piece.position + piece.size
        while position < end:
            try:
                data = source.read(position, min(end - position, _COPIED_AT_ONCE))
            except KlogError as error:
                raise GoneError(str(error)) from None
            if not data:
                raise GoneError(f"{source.path} @ {position}: the object became shorter")
            self._send_bytes(bytearray(data), 0, math.inf)
            position += len(data)

    def _send_file(self, descriptor: int, piece: FileBytes) -> None:
        position, end, to = piece.position, piece.position + piece.size, self._socket.fileno()
        while position < end:
            try:
                sent = os.sendfile(to, descriptor, position, min(end - position, _SENT_AT_ONCE))
            except BlockingIOError:
                self._await_room()
                continue
            except OSError as error:
                if error.errno not in _OF_FILES:
                    raise
                raise GoneError(f"{piece.path} @ {position}: cannot read: {error.strerror}") from None
            if not sent:
                raise GoneError(f"{piece.path} @ {position}: the file became shorter")
            position += sent

    def _await_room(self, until: float = math.inf) -> None:
        _await(self._writable, min(self._limits.stuck_s, until - time.monotonic()), "it stopped reading")


def _poll(of: socket.socket, event: int) -> select.poll:
    poll = select.poll()
    poll.register(of, event)
    return poll


def _await(poll: select.poll, seconds: float, otherwise: str) -> None:
    if seconds <= 0 or not poll.poll(seconds * 1000):
        raise GoneError(otherwise)
