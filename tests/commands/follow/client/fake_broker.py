"""Brokers with impossible behaviour: a listener on a thread whose every byte the test decides."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from klog.formats.structs.schema import Data
from klog.formats.wire_messages import ApiRequest, api_named, offered, read_request, write_response

CERTIFICATES = Path(__file__).parent / "certificates"
_LONGEST_S = 30


class Peer:
    """The broker's end of one connection."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        accepted.settimeout(_LONGEST_S)

    def read(self, size: int) -> bytes:
        """Return *size* bytes; raises EOFError when the client has closed."""
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def request(self) -> ApiRequest:
        """Return the next request."""
        (size,) = struct.unpack(">i", self.read(4))
        return read_request(self.read(size), 1 << 20)

    def answer(self, request: ApiRequest, body: Data) -> None:
        """Send an answer as a broker would."""
        self.send(answer_bytes(request, body))

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def greet(self, apis: list[Data] | None = None) -> None:
        """Answer ApiVersions, which every connection begins with."""
        self.answer(self.request(), {"apiKeys": offered() if apis is None else apis})


def answer_bytes(request: ApiRequest, body: Data) -> bytes:
    """Return the answer to *request* with its size and header."""
    return b"".join(bytes(piece) for piece in write_response(request, body) if isinstance(piece, bytearray))


class FakeBroker:
    """Listens on a free port of this machine and does *talk* with each client; *failed*: what that raised.

    *tls*: with the certificate of `localhost`.
    """

    def __init__(self, talk: Callable[[Peer], None], *, tls: bool = False, ask_certificate: bool = False) -> None:
        self._talk, self._listener = talk, socket.create_server(("127.0.0.1", 0))
        self.host, self.port = "localhost", int(self._listener.getsockname()[1])
        self.bootstrap = f"{self.host}:{self.port}"
        self.connections = 0
        self.failed: list[Exception] = []
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(CERTIFICATES / "broker.pem")
            if ask_certificate:
                self._context.verify_mode = ssl.CERT_REQUIRED
                self._context.load_verify_locations(CERTIFICATES / "authority.pem")
        self._open: list[socket.socket] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> FakeBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._open:
            each.close()

    def drop(self) -> None:
        """End all connections that there are; new ones are accepted."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                self.connections += 1
                self._open.append(accepted)
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        try:
            if self._context is not None:
                accepted = self._context.wrap_socket(accepted, server_side=True)
                self._open.append(accepted)
            self._talk(Peer(accepted))
        except (OSError, EOFError):
            pass
        except Exception as error:  # a mistake of the test's own must not hide on its thread
            self.failed.append(error)
        finally:
            accepted.close()


def speaking(answers: Mapping[str, Any], apis: list[Data] | None = None) -> Callable[[Peer], None]:
    """Return a talk that answers each API with the body in *answers*, or with the result of the function there for the
    request."""

    def talk(peer: Peer) -> None:
        peer.greet(apis)
        while True:
            request = peer.request()
            body = answers[request.api.name]
            peer.answer(request, body(request.body) if callable(body) else body)

    return talk


def only(**versions: tuple[int, int]) -> list[Data]:
    """Return the content of ApiVersions with these APIs alone."""
    return [
        {"apiKey": api_named(name).key, "minVersion": low, "maxVersion": high} for name, (low, high) in versions.items()
    ]
