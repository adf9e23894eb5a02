"""One connection to one broker: requests out, answers in, one at a time.

An answer is received into a buffer that the next one overwrites; records in it are views of that buffer, so nothing is
copied between the socket and the file.  The buffer grows with the bytes received, never with the bytes announced.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Event
from typing import TYPE_CHECKING, Final

from klog import __version__
from klog.base.errors import UnsupportedError
from klog.commands.follow.client.client_requests import (
    REQUESTS,
    AuthenticationError,
    ForeignAnswerError,
    LargeAnswerError,
    LostConnectionError,
    RefusedRequestError,
    RequestVersions,
)
from klog.commands.follow.client.client_security import Credentials, Security
from klog.commands.follow.client.tcp_stream import Stream
from klog.formats.error_codes import ErrorCode, error_code
from klog.formats.structs.schema import Data
from klog.formats.wire_messages import SIZE_BYTES, WireError, api_named, body_size, read_response, write_request

if TYPE_CHECKING:
    from klog.commands.follow.client.client_security import SaslConversation

MOST_BYTES: Final = 16 << 20
MOST_ELEMENTS: Final = 1_000_000
"""A million partitions in one answer take some hundred megabytes; a stranger could claim more with fewer bytes."""
_TIMEOUT_S: Final = 30.0
_CONNECT_S: Final = 10.0
"""Kafka: socket.connection.setup.timeout.ms."""
_SLOWEST_BYTES_S: Final = 64 << 10
_PIECE_BYTES: Final = 256 << 10
_BUFFER_BYTES: Final = 64 << 10
_MOST_TURNS: Final = 8
_REAUTHENTICATE_AT: Final = 0.85
"""Kafka: SaslClientAuthenticator.ReauthInfo, which draws from 0.85 to 0.95 of the session's lifetime."""
_SHORTEST_ANSWER: Final = 4
_FIRST_BYTES: Final = {
    b"\x15\x03": "the broker uses TLS: security.protocol must be SSL or SASL_SSL",
    b"HT": "this is HTTP",
}


class BrokerConnection:
    """A connection that the first request opens, and that the next one opens again after a loss.

    *versions*: the requests that may be sent, see `klog.commands.follow.client.client_requests`.  *timeout_s*: the
    longest wait for the begin of an answer, and for the end of one of 64 KiB; each 64 KiB received adds a second.
    *connections*: the number of connections so far.

    Methods raise LostConnectionError, ForeignAnswerError, AuthenticationError, UnsupportedError for a request without a
    common version, and StoppedError once *stop* is set; the connection is then closed.
    """

    def __init__(
        self,
        host: str,
        port: int,
        security: Security | None = None,
        *,
        stop: Event | None = None,
        timeout_s: float = _TIMEOUT_S,
        versions: Mapping[str, RequestVersions] = REQUESTS,
    ) -> None:
        self.host, self.port = host, port
        self._stream = Stream(host, port, stop or Event())
        self._security, self._timeout_s, self._wanted = security or Security(), timeout_s, versions
        self._versions: dict[str, int] = {}
        self._correlation_id = 0
        self._pending: str | None = None
        self._connected, self.connections = False, 0
        self._reauthenticate_at = float("inf")
        self._buffer, self._other_buffer = bytearray(_BUFFER_BYTES), bytearray(_BUFFER_BYTES)
        self._prefix = bytearray(SIZE_BYTES)

    @property
    def name(self) -> str:
        """Host and port, as messages show them."""
        return self._stream.name

    def close(self) -> None:
        """End the connection; the next request makes another."""
        self._stream.close()
        self._connected, self._pending, self._versions = False, None, {}
        self._reauthenticate_at = float("inf")

    def connect(self) -> None:
        """Connect, agree on versions and authenticate, unless that is done; authenticate again when it is time."""
        if self._pending is not None:
            return
        if self._connected and self._stream.is_dropped():
            self.close()  # a broker closes connections that were idle for some minutes
        if self._connected and time.monotonic() < self._reauthenticate_at:
            return
        try:
            if not self._connected:
                self._open()
            if self._security.credentials is not None:
                self._authenticate(self._security.credentials)
        except BaseException:
            self.close()
            raise
        self._connected = True

    def _open(self) -> None:
        self.close()
        until = time.monotonic() + min(self._timeout_s, _CONNECT_S)
        self._stream.connect(until)
        self.connections += 1
        if self._security.tls is not None:
            self._stream.secure(self._security.tls, until)
        self._agree_on_versions()

    def version(self, name: str) -> int:
        """Return the version in which the request *name* is sent; connects if need be."""
        self.connect()
        return self._version(name)

    # ------------------------------------------------------------ requests and answers

    def request(self, name: str, body: Data, *, most_bytes: int = MOST_BYTES, elements: int = MOST_ELEMENTS) -> Data:
        """Send a request and return the body of its answer; see `send` and `receive`."""
        self.send(name, body)
        return self.receive(most_bytes=most_bytes, elements=elements)

    def send(self, name: str, body: Data) -> None:
        """Send the request *name*; its answer must be received before another one is sent."""
        self.connect()
        self._send(name, body)

    def receive(self, *, most_bytes: int = MOST_BYTES, elements: int = MOST_ELEMENTS) -> Data:
        """Return the body of the answer to the last request.

        An answer of more than *most_bytes*, or with arrays of more than *elements* elements together, is foreign.
        Records and byte strings are views that are valid until the next `receive` or `request`; see `keep_answer`.
        """
        name, self._pending = self._pending, None
        if name is None:
            raise LostConnectionError(f"{self.name}: the connection was closed before the answer")
        try:
            return self._receive(name, most_bytes, elements)
        except BaseException:
            self.close()
            raise

    def keep_answer(self) -> None:
        """Keep views of the last answer valid until the next call: later answers use another buffer."""
        self._buffer, self._other_buffer = self._other_buffer, self._buffer

    def _send(self, name: str, body: Data) -> None:
        assert self._pending is None, "one request at a time"
        version = self._version(name)
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        try:
            data = write_request(api_named(name), version, self._correlation_id, self._security.client_id, body)
        except WireError as error:
            raise UnsupportedError(f"{self.name}: {error}") from None
        try:
            self._stream.send(data, time.monotonic() + self._timeout_s)
        except BaseException:
            self.close()
            raise
        self._pending = name

    def _receive(self, name: str, most_bytes: int, elements: int) -> Data:
        until = time.monotonic() + self._timeout_s
        self._stream.read_into(memoryview(self._prefix), until)
        size = body_size(self._prefix)
        if not _SHORTEST_ANSWER <= size <= most_bytes:
            known = _FIRST_BYTES.get(bytes(self._prefix[:2]))
            hint = known or f"{_SHORTEST_ANSWER} to {most_bytes} are accepted"
            message = f"{self.name}: it sends an answer to {name} of {size} bytes; {hint}"
            if known is None and size > most_bytes:
                raise LargeAnswerError(message, size)
            raise ForeignAnswerError(message)
        data = self._received(size, until)
        try:
            return read_response(api_named(name), self._version(name), self._correlation_id, data, elements)
        except WireError as error:
            raise ForeignAnswerError(f"{self.name}: no answer of Kafka's: {error}") from None

    def _received(self, size: int, until: float) -> memoryview:
        """Return the next *size* bytes.  A buffer that must grow is replaced: views of it may still be alive.

        *until*: when they have to begin; each piece of them has a little longer than the one before.
        """
        got = 0
        while True:
            room = min(size, len(self._buffer), got + _PIECE_BYTES)
            self._stream.read_into(memoryview(self._buffer)[got:room], until + room / _SLOWEST_BYTES_S)
            got = room
            if got == size:
                return memoryview(self._buffer)[:size]
            if got < len(self._buffer):
                continue
            larger = bytearray(min(size, 4 * got))
            larger[:got] = self._buffer[:got]
            self._buffer = larger

    # ------------------------------------------------------------ the beginning of a connection

    def _version(self, name: str) -> int:
        found = self._versions.get(name)
        if found is None:
            if not self._versions:
                raise LostConnectionError(f"{self.name}: the connection is closed")
            ours = self._wanted[name]
            wanted = f"{name} in version {ours.lowest} to {ours.highest}"
            raise UnsupportedError(f"{self.name}: the broker does not support {wanted}: it is too old, or too new")
        return found

    def _agree_on_versions(self) -> None:
        """Agree with the broker on the versions of requests.  Kafka: NetworkClient.handleApiVersionsResponse."""
        software = {"clientSoftwareName": "klog", "clientSoftwareVersion": __version__}
        for version in (self._wanted["ApiVersions"].highest, self._wanted["ApiVersions"].lowest):
            self._versions = {"ApiVersions": version}
            self._send("ApiVersions", software)
            answer = self.receive()
            if answer["errorCode"] != ErrorCode.UNSUPPORTED_VERSION:
                break
        if answer["errorCode"]:
            raise refused(self.name, "ApiVersions", answer["errorCode"])
        theirs = {one["apiKey"]: (one["minVersion"], one["maxVersion"]) for one in answer["apiKeys"]}
        self._versions = {"ApiVersions": version}
        for name, wanted in self._wanted.items():
            lowest, highest = theirs.get(api_named(name).key, (0, -1))
            best = min(highest, wanted.highest)
            if best >= max(lowest, wanted.lowest):
                self._versions[name] = best

    def _authenticate(self, credentials: Credentials) -> None:
        """Authenticate, or do so again on the same connection (KIP-368).  Kafka: SaslClientAuthenticator."""
        from klog.commands.follow.client.client_security import conversation

        began = time.monotonic()
        self._send("SaslHandshake", {"mechanism": credentials.mechanism})
        answer = self.receive()
        if answer["errorCode"]:
            there = ", ".join(answer["mechanisms"][:10]) or "none"
            raise AuthenticationError(
                f"{self.name}: sasl.mechanism {credentials.mechanism} is not enabled there, only {there}"
                if answer["errorCode"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
                else f"{self.name}: {credentials.mechanism}: {error_code(answer['errorCode']).name}"
            )
        talk = conversation(credentials.mechanism, credentials.username, credentials.password)
        lifetime_ms = self._converse(credentials.mechanism, talk)
        if lifetime_ms > 0:
            self._reauthenticate_at = began + _REAUTHENTICATE_AT * lifetime_ms / 1000

    def _converse(self, mechanism: str, talk: SaslConversation) -> int:
        """Run *talk* to its end; return the lifetime of the session in ms, 0 for no end."""
        message: bytes | None = talk.first()
        for _ in range(_MOST_TURNS):
            self._send("SaslAuthenticate", {"authBytes": message})
            answer = self.receive()
            if answer["errorCode"]:
                why = (answer["errorMessage"] or "")[:200]
                raise AuthenticationError(f"{self.name}: {mechanism}: {error_code(answer['errorCode']).name}: {why}")
            try:
                message = talk.answer(bytes(answer["authBytes"]))
            except AuthenticationError as error:
                raise AuthenticationError(f"{self.name}: {error}") from None
            if message is None:
                return int(answer["sessionLifetimeMs"])
        raise AuthenticationError(f"{self.name}: {mechanism}: the exchange does not end")


def refused(broker: str, request: str, number: int) -> RefusedRequestError:
    """Return the exception for an answer with the error *number*; *request* may name the subject."""
    return RefusedRequestError(f"{broker}: {request}: {error_code(number).name} ({number})", number)
