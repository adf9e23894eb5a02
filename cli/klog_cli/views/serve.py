"""`klog serve`: its address, its messages, and its end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import ExitCode, UsageError
from klog.kernel import give_memory_back

from klog_cli import output

if TYPE_CHECKING:
    from klog.commands.serve.view import ServeOptions, View
    from klog.formats.structs.schema import Data
    from klog.partition.tiered.tiered_log import TieredLog

_HIGHEST_PORT = 65535
_LIVING_OBJECTS = 100_000
"""The number of new objects before the collector runs: the facts about a disk are created once and kept."""
_FILES_PER_CONNECTION = 4
"""Its socket, and the logs and indexes that it may have open at a time."""


class ListenAddress(NamedTuple):
    """The address to listen on and the advertised one, as HOST:PORT; *expose*: not only on loopback."""

    listen: str
    advertise: str | None
    expose: bool


def serve(
    paths: Sequence[str],
    shown: ServeOptions,
    place: ListenAddress,
    connections: int,
    send_buffer_bytes: int,
    requests: bool,
    tiered: Mapping[str, TieredLog] | None = None,
) -> int:
    """Serve *paths* until a signal ends it; *requests*: a line on stdout for each.  Return the exit code.

    *tiered*: the logs over two tiers, by their directories.
    """
    gc.set_threshold(_LIVING_OBJECTS)
    give_memory_back()
    from klog.commands.serve.client_connection import ConnectionLimits
    from klog.commands.serve.endpoint import Endpoint, EndpointReports, listen
    from klog.commands.serve.view import View

    host, port = _address(place.listen, "--listen")
    advertised_host, advertised_port = _advertised(place, host)
    lines = _Lines()
    allowed = _allowed(connections)
    with View.open(paths, shown, tiered) as view, listen((host, port)) as listener:
        port = listener.getsockname()[1]
        limits = ConnectionLimits(connections=allowed, send_buffer_bytes=send_buffer_bytes)
        reports = EndpointReports(lines.say, lines.log if requests else None)
        endpoint = Endpoint(view, listener, (advertised_host, advertised_port or port), limits, reports)
        try:
            output.plain(f"klog serve: listening on {_shown(host, port)}")
            if allowed < connections:
                output.error(f"only {allowed} connections at a time: too few files may be open (ulimit -n)")
            _tell(view, host)
            endpoint.run()
        except KeyboardInterrupt:
            pass
        cut_off = endpoint.cuts_somebody_off()
        for line in view.summary():
            lines.say(line)
    if cut_off:
        lines.say("klog serve ended while a client was being answered")
    return ExitCode.CANCELLED if cut_off else 0


def _allowed(connections: int) -> int:
    """Return how many of *connections* fit into a quarter of the limit of open files, after raising it."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_PER_CONNECTION * connections
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    try:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
    except (OSError, ValueError):
        pass  # then the number is smaller
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(connections, max(1, soft // _FILES_PER_CONNECTION))


def _tell(view: View, host: str) -> None:
    if not _is_loopback(host):
        output.error("anyone who reaches this port can read everything that is served")
    for line in view.notes:
        output.note(line)
    for line in view.take_messages():
        output.error(line)


class _Lines:
    """Lines from several threads, one at a time.  If they are no longer read, clients are still served."""

    def __init__(self) -> None:
        self._lock, self._read = threading.Lock(), True

    def say(self, line: str) -> None:
        with self._lock:
            output.error(line)

    def log(self, row: Data) -> None:
        with self._lock:
            try:
                if self._read:
                    output.emit_jsonl([row])
            except output.ClosedPipeError:
                self._read = False


def _address(text: str, option: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `[IPv6]:PORT`.  Raises UsageError."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare and bare == host) or not port.isdecimal() or int(port) > _HIGHEST_PORT:
        raise UsageError(f"{option} {text}: expected HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092")
    return bare, int(port)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _advertised(place: ListenAddress, host: str) -> tuple[str, int]:
    """Return the advertised address; port 0: the one listened on.  Raises UsageError."""
    if not _is_loopback(host) and not place.expose:
        raise UsageError(f"--listen {place.listen}: anyone who reaches it can read everything; --expose allows that")
    if place.advertise is None:
        if host in ("0.0.0.0", "::"):
            raise UsageError(f"--listen {place.listen}: clients need an address to connect to: --advertise HOST")
        return host, 0
    told = place.advertise
    if ":" in told.rpartition("]")[2] and (told.startswith("[") or told.count(":") == 1):
        return _address(told, "--advertise")
    return told.removeprefix("[").removesuffix("]"), 0


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
