"""A TCP stream, with TLS or without: connected, read and written with a deadline, and ended on request.

The socket never blocks.  Every wait polls in short slices, because nothing else ends it in time: neither a signal just
before the system call, nor a stop by another thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import Any, Final, NoReturn, TypeVar

from klog.base.interruptible_threads import start
from klog.commands.follow.client.client_requests import AuthenticationError, LostConnectionError, StoppedError

_SLICE_S: Final = 0.2
PORTS: Final = range(1, 65536)
_T = TypeVar("_T")


class Stream:
    """A connection to *host* and *port*, open until `close`; *name* is its name in messages.

    All methods raise LostConnectionError when the other side has closed or is slow, StoppedError when *stop* is set.
    """

    def __init__(self, host: str, port: int, stop: Event) -> None:
        self.host, self.port, self._stop = host, port, stop
        self.name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._socket: socket.socket | None = None
        self._poll = select.poll()

    # ------------------------------------------------------------ beginning and end

    def connect(self, until: float) -> None:
        """Connect to one of the host's addresses by *until* (monotonic seconds); they share the time."""
        if self.port not in PORTS:
            self._lost("there is no such port")
        addresses = self._addresses(until)
        for number, (family, kind, protocol, _, address) in enumerate(addresses):
            now = time.monotonic()
            share = now + (until - now) / (len(addresses) - number)
            try:
                self._connect(socket.socket(family, kind, protocol), address, share)
                return
            except OSError as error:  # a family that this machine does not have, too
                failure = LostConnectionError(f"{self.name}: cannot connect: {error.strerror or error}")
            except LostConnectionError as error:
                failure = error
        self.close()
        raise failure

    def _connect(self, made: socket.socket, address: Any, until: float) -> None:
        self._use(made)
        made.setblocking(False)
        code = made.connect_ex(address)
        if code in (errno.EINPROGRESS, errno.EWOULDBLOCK):
            self._await(select.POLLOUT, until, "does not answer a connection")
            code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _addresses(self, until: float) -> list[Any]:
        """Return the addresses of the host's name.  The lookup runs on a thread: the resolver cannot be interrupted."""
        found: list[list[Any] | Exception] = []

        def resolve() -> None:
            try:
                found.append(socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM))
            except (OSError, ValueError) as error:  # ValueError: of a name that cannot be one
                found.append(error)

        thread = start(resolve)
        while not found:
            thread.join(0.001)
            if not found:
                self._check(until, "its name is not resolved")
                thread.join(_SLICE_S)
        answer = found[0]
        if isinstance(answer, list) and answer:
            return answer
        return self._lost(f"cannot resolve the name: {getattr(answer, 'strerror', None) or 'it cannot be one'}")

    def secure(self, context: ssl.SSLContext, until: float) -> None:
        """Continue in TLS.  Raises AuthenticationError when the certificate is not to be trusted."""
        plain = self._open
        try:
            secured = context.wrap_socket(plain, server_hostname=self.host, do_handshake_on_connect=False)
        except (ValueError, OSError) as error:
            self._lost(f"no TLS: {error}")
        self._socket = None  # its descriptor is the new one's
        self._use(secured)
        try:
            self._retry(secured.do_handshake, select.POLLIN, until, "does not answer")
        except LostConnectionError as error:
            raise LostConnectionError(
                f"{error} during the TLS handshake (this happens with a listener without TLS)"
            ) from None

    def close(self) -> None:
        """End the connection; a second time does nothing."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def is_dropped(self) -> bool:
        """Return whether the other side has closed, or sent data without a request."""
        return self._socket is None or bool(self._poll_for(select.POLLIN, 0))

    def _use(self, made: socket.socket) -> None:
        self.close()
        self._socket, self._poll = made, select.poll()
        self._poll.register(made, select.POLLIN)

    @property
    def _open(self) -> socket.socket:
        return self._socket or self._lost("the connection is closed")

    # ------------------------------------------------------------ bytes

    def send(self, data: bytes | bytearray, until: float) -> None:
        """Send all of *data*."""
        view, sent = memoryview(data), 0
        while sent < len(view):
            part = view[sent:]
            sent += self._retry(partial(self._open.send, part), select.POLLOUT, until, "does not accept a request")

    def read_into(self, view: memoryview, until: float) -> None:
        """Fill *view*."""
        got, size = 0, len(view)
        while got < size:
            part = self._retry(partial(self._open.recv_into, view[got:]), select.POLLIN, until, "does not answer")
            if not part:
                self._lost("closed the connection" if not got else "closed the connection within an answer")
            got += part

    def _retry(self, call: Callable[[], _T], event: int, until: float, otherwise: str) -> _T:
        """Return the result of *call*, as soon as the socket is ready for it."""
        while True:
            self._check(until, otherwise)  # a peer that always has another byte ready is never waited for
            try:
                return call()
            except ssl.SSLWantReadError:
                self._await(select.POLLIN, until, otherwise)
            except ssl.SSLWantWriteError:
                self._await(select.POLLOUT, until, otherwise)
            except BlockingIOError:
                self._await(event, until, otherwise)
            except ssl.SSLError as error:
                self._distrust(error)
            except OSError as error:
                self._lost(error.strerror or str(error))

    def _distrust(self, error: ssl.SSLError) -> NoReturn:
        """Raise the exception for *error*.  TLS 1.3 refuses a client's certificate in place of the first answer."""
        if isinstance(error, ssl.SSLEOFError):
            self._lost("closed the connection")
        self.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            raise AuthenticationError(f"{self.name}: its certificate is refused: {error.verify_message}") from None
        reason, hint = error.reason or str(error), ""
        if reason == "WRONG_VERSION_NUMBER":
            hint = " (a listener without TLS gives this answer)"
        elif "ALERT" in reason and "CERTIFICATE" in reason:
            hint = " (the broker requires another client certificate, ssl.keystore.location)"
        raise AuthenticationError(f"{self.name}: TLS failed: {reason}{hint}") from None

    def _await(self, event: int, until: float, otherwise: str) -> None:
        while not self._poll_for(event, _SLICE_S):
            self._check(until, otherwise)

    def _poll_for(self, event: int, seconds: float) -> list[tuple[int, int]]:
        self._poll.modify(self._open, event)
        return self._poll.poll(seconds * 1000)

    def _check(self, until: float, otherwise: str) -> None:
        if self._stop.is_set():
            self.close()
            raise StoppedError(f"{self.name}: stopped")
        if time.monotonic() > until:
            self._lost(otherwise)

    def _lost(self, why: str) -> NoReturn:
        self.close()
        raise LostConnectionError(f"{self.name}: {why}")
