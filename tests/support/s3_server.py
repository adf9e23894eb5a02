"""An S3 server (moto) on loopback, with the files of a directory; and one in front of it that refuses some requests."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.brokers.kafka import PORT

ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@contextmanager
def s3_server() -> Iterator[str]:
    """Run a server; yield its URL, which AWS_ENDPOINT_URL takes."""
    port = PORT + 97
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not _answers(port):
            assert time.monotonic() < deadline
            assert server.poll() is None
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()


def upload(url: str, folder: Path, bucket: str) -> None:
    """Put all files below *folder* into a new bucket."""
    from obstore.store import from_url

    port = int(url.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("PUT", f"/{bucket}")
    assert connection.getresponse().status == 200
    connection.close()
    names = {name.lower(): value for name, value in ENVIRONMENT.items()}
    settings: dict[str, Any] = {**names, "endpoint": url, "client_options": {"allow_http": True}}
    store: Any = from_url(f"s3://{bucket}", **settings)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(path.relative_to(folder).as_posix(), path.read_bytes())


class Proxy(ThreadingHTTPServer):
    """Passes requests on, counts them, and answers 503 to one in *refuse_every*; 0: to none.

    *refuse_from*: and to all from that number on.
    """

    def __init__(self, behind: str, refuse_every: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind, self.refuse_every = behind, refuse_every
        self.refuse_from: int | None = None
        self.seen: list[tuple[str, str, Mapping[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def proxied(behind: str, refuse_every: int = 0) -> Iterator[Proxy]:
    """Run a proxy in front of the server at the URL *behind*."""
    proxy = Proxy(behind, refuse_every)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        number = len(self.server.seen)
        is_behind = self.server.refuse_from is not None and number >= self.server.refuse_from
        if is_behind or (self.server.refuse_every and number % self.server.refuse_every == 0):
            self._answer(503, [], b"<Error><Code>SlowDown</Code></Error>")
            return
        connection = http.client.HTTPConnection("127.0.0.1", int(self.server.behind.rpartition(":")[2]), timeout=60)
        connection.request(self.command, self.path, headers=dict(self.headers))
        answer = connection.getresponse()
        kept = [
            (name, value)
            for name, value in answer.getheaders()
            if name.lower() not in ("transfer-encoding", "connection", "content-length")
        ]
        body = answer.read()
        self._answer(answer.status, kept, body, answer.getheader("content-length") if self.command == "HEAD" else None)
        connection.close()

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the base class
        pass


def use(monkeypatch: Any, url: str) -> None:
    """Let this process find the server at *url*."""
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": url}.items():
        monkeypatch.setenv(name, value)


def environment(url: str) -> dict[str, str]:
    """Return the environment of a process that finds the server at *url*."""
    return os.environ | ENVIRONMENT | {"AWS_ENDPOINT_URL": url}
