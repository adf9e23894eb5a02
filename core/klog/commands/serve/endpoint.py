"""The read-only endpoint: listens, and serves each client on its own thread.

It uses threads and not an event loop: sendfile waits for the disk, and that must delay only one client.  It leaves
nothing behind that outlives the process, which may end at any time.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Final, NamedTuple, TypeAlias

from klog.base.errors import KlogError, UsageError
from klog.base.interruptible_threads import start
from klog.commands.serve.client_connection import Connection, ConnectionLimits, GoneError, MemoryBudget
from klog.commands.serve.group_coordinator import LONGEST_NAME, GroupCoordinator
from klog.commands.serve.handlers import REFUSED, answer
from klog.commands.serve.handlers.context import HangUpError, RequestContext, ServerContext
from klog.commands.serve.handlers.fetch_requests import fetch_wait_ms
from klog.commands.serve.view import View
from klog.formats.error_codes import ErrorCode
from klog.formats.structs.schema import Data
from klog.formats.wire_messages import ApiRequest, WireError, read_request, versions_response, write_response

_BACKLOG: Final = 128
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PATIENCE_S: Final = 0.2
_LONGEST_WAIT_S: Final = 0.5
_LAST_MOMENT_S: Final = 0.1
_MOST_TOLD: Final = 1000
_ELEMENTS_BEYOND_THE_DISK: Final = 1000
_LONGEST_NAME: Final = 80
_WAITING: Final = ("JoinGroup", "SyncGroup")
"""Requests whose answers wait for other members."""
_LARGE: Final = ("DescribeGroups", "JoinGroup")
"""Requests whose responses may contain all members of all groups; memory is reserved before those are written."""


class EndpointReports(NamedTuple):
    """Callbacks, called on any thread: *say* for the operator, *log* for each request (None: no log)."""

    say: Callable[[str], None]
    log: Callable[[Data], None] | None = None


class _LimitedReporter:
    """Reports each line once, up to a limit: a stranger can invent lines without end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._keys, self._lock = say, set[object](), threading.Lock()

    def once(self, key: object, line: str) -> None:
        with self._lock:
            known = key in self._keys or len(self._keys) > _MOST_TOLD
            self._keys.add(key) if not known else None
            last = not known and len(self._keys) > _MOST_TOLD
        if not known:
            self._say("further messages of this kind are not shown" if last else line)


class Client:
    """The client, by its own description: *name* is the client id, *software* is from ApiVersions."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port, self.name, self.software = host, port, "", ""

    def __str__(self) -> str:
        known = " ".join(part for part in (self.name, self.software) if part)[:_LONGEST_NAME]
        return f"{self.host} ({known})" if known else self.host


Address: TypeAlias = "tuple[str, int]"


def listen(address: Address) -> socket.socket:
    """Return a socket that listens there; port 0 takes a free one.  Raises UsageError when that cannot be."""
    host, port = address
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server(address, family=family, backlog=_BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"--listen {host}:{port}: {error}") from None


class Endpoint:
    """Serves *view* to clients on *listener*; their next connections are directed to *advertised*."""

    def __init__(
        self,
        view: View,
        listener: socket.socket,
        advertised: Address,
        limits: ConnectionLimits,
        reports: EndpointReports,
    ) -> None:
        self._view, self._listener, self._limits, self._reports = view, listener, limits, reports
        self._server = ServerContext(view, GroupCoordinator(view.committed), *advertised)
        self._reporter = _LimitedReporter(reports.say)
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._room = MemoryBudget(limits.large_together_bytes), MemoryBudget(limits.large_together_bytes)

    @cached_property
    def _elements(self) -> int:
        """How much a request may name: everything twice, and some more."""
        there = sum(1 + topic.partitions for topic in self._view.topics.values())
        return _ELEMENTS_BEYOND_THE_DISK + 2 * there

    def cuts_somebody_off(self) -> bool:
        """Return whether ending now cuts off a response; responses that are almost sent get a moment to finish."""
        until = time.monotonic() + _LAST_MOMENT_S
        while self._is_sending():
            if time.monotonic() > until:
                return True
            time.sleep(_LAST_MOMENT_S / 10)
        return False

    def _is_sending(self) -> bool:
        with self._lock:
            return any(connection.sending for connection in self._connections)

    def run(self) -> None:
        """Accept clients until an exception, such as that of a signal's handler, ends it."""
        self._listener.settimeout(_LONGEST_WAIT_S)  # a signal just before the call does not interrupt it
        while True:
            try:
                accepted, address = self._listener.accept()
            except OSError as error:  # no client connected, it has disconnected already, or there are too many
                if error.errno in _OUT_OF_RESOURCES:
                    self._reporter.once(error.errno, f"no new clients for now: {error.strerror}")
                    time.sleep(_PATIENCE_S)
                continue
            self._welcome(accepted, Client(*address[:2]))

    def _welcome(self, accepted: socket.socket, client: Client) -> None:
        with self._lock:
            full = len(self._connections) >= self._limits.connections
            if not full:
                try:
                    connection = Connection(accepted, self._limits, *self._room)
                except OSError:
                    full = True
                else:
                    self._connections.add(connection)
        if full:
            accepted.close()
            self._reporter.once("full", f"{client} was refused: there are {self._limits.connections} connections")
            return
        try:
            start(partial(self._serve, connection, client))
        except RuntimeError as error:
            self._leave(connection)
            self._reporter.once("threads", f"{client} was refused: {error}")

    def _leave(self, connection: Connection) -> None:
        with self._lock:
            self._connections.discard(connection)
        connection.close()

    def _serve(self, connection: Connection, client: Client) -> None:
        """Answer one client until it disconnects or is disconnected."""
        try:
            while self._answer_next(connection, client):
                pass
        except (GoneError, HangUpError, WireError, KlogError) as why:
            if str(why):
                self._reporter.once((client.host, str(why)), f"{client} was disconnected: {why}")
        except OSError as error:
            if error.filename is not None:  # of a file, then, and not of the connection
                self._reporter.once(
                    ("file", error.filename), f"{client} was disconnected: {error.filename}: {error.strerror}"
                )
        finally:
            self._leave(connection)

    def _answer_next(self, connection: Connection, client: Client) -> bool:
        """Answer the next request; return False if there is none."""
        data = connection.receive()
        if data is None:
            return False
        began, request = time.perf_counter(), read_request(data, self._elements)
        del data
        if request.api.name in _WAITING:  # for others, and until these end
            connection.let_go()
        body, wait_ms = self._answered(connection, client, request)
        name, version = request.api.name, request.version
        connection.reserve(_bytes_in(body) if name in _LARGE else 0)
        pieces = write_response(request, body)
        del request, body  # a client that waits, or reads slowly, costs only the memory of its response
        connection.let_go()
        if wait_ms:
            connection.wait(wait_ms / 1000)
        sent = connection.send(pieces, self._view.opened)
        if self._reports.log is not None:
            self._reports.log(
                {
                    "client": f"{client.host}:{client.port}",
                    "client_id": client.name,
                    "software": client.software,
                    "api": name,
                    "version": version,
                    "ms": round((time.perf_counter() - began) * 1000, 3),
                    "bytes": sent,
                }
            )
        return True

    def _answered(self, connection: Connection, client: Client, request: ApiRequest) -> tuple[Data, int]:
        """Return the body of the response, and the delay before it is sent (ms)."""
        name = request.api.name
        if request.body is None:
            return versions_response(ErrorCode.UNSUPPORTED_VERSION), 0
        client.name = request.client_id[:LONGEST_NAME]
        if name == "ApiVersions":
            software = (request.body["clientSoftwareName"], request.body["clientSoftwareVersion"])
            client.software = " ".join(software).strip()[:LONGEST_NAME]
        self._tell(client, name)
        context = RequestContext(request.body, request.version, client.name, client.host, connection.still_there)
        body = answer(self._server, name, context)
        if name != "Fetch":
            return body, 0
        for line in self._view.take_messages():
            self._reports.say(line)
        return body, fetch_wait_ms(request.body, body)

    def _tell(self, client: Client, name: str) -> None:
        if name in REFUSED:
            self._reporter.once((client.host, client.name, name), f"{client}: {name} was refused, this is read-only")
        elif name == "OffsetCommit":
            self._reporter.once(name, f"{client} commits offsets: they are kept in memory, until klog serve ends")


def _bytes_in(value: object) -> int:
    """Return about how many bytes there are in the byte strings of the body of a response."""
    if isinstance(value, bytes):
        return len(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return sum(map(_bytes_in, inner))
