"""`klog serve` as a process of its own, and a client that shows what real clients hide."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from klog.formats.structs.read import decode
from klog.formats.structs.schema import Data, load
from klog.formats.structs.write import encode

PATIENCE_S = 30.0


class Serving:
    """`klog serve PATHS OPTIONS` on a free port of this machine.  *said*: its stderr so far.

    *start*: code that runs klog instead of `-m klog_cli.app`; *before*: the first action of the new process.
    """

    def __init__(
        self,
        *arguments: str | Path,
        stdout: int = subprocess.DEVNULL,
        listen: str = "127.0.0.1:0",
        start: str = "",
        before: Callable[[], None] | None = None,
    ) -> None:
        module = ["-c", start] if start else ["-m", "klog_cli.app"]
        command = [sys.executable, *module, "serve", *map(str, arguments), "--listen", listen]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(
            command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=before
        )
        self._lines: list[str] = []
        assert self.process.stderr is not None
        ready, _, _ = select.select([self.process.stderr], [], [], PATIENCE_S)
        first = self.process.stderr.readline() if ready else ""
        self._lines.append(first)
        listening = re.fullmatch(r"klog serve: listening on [\d.]+:(\d+)\n", first)
        if listening is None:
            self.process.kill()
            raise AssertionError(f"klog serve did not start: {first}{self.process.stderr.read()}")
        self.port = int(listening[1])
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self._lines.extend(self.process.stderr)

    @property
    def said(self) -> str:
        return "".join(self._lines)

    def says(self, what: str) -> bool:
        """Wait until it has written something to stderr; return whether it has."""
        until = time.monotonic() + 3 * PATIENCE_S
        while what not in self.said and time.monotonic() < until:
            time.sleep(0.05)
        return what in self.said

    def facts(self) -> tuple[int, int]:
        """Return its resident MiB and its threads."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) // 1024, int(status.split("Threads:")[1].split()[0])

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.returncode is None:
            self.end()


class Wire:
    """One connection, a request at a time."""

    def __init__(self, port: int, name: str = "wire") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._name, self._asked = name, 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def request(self, name: str, version: int, body: Data) -> bytes:
        """Return a request's bytes, size included."""
        self._asked += 1
        schema = load("wire", f"{name}Request")
        head: Data = {"requestApiKey": schema.key, "requestApiVersion": version, "correlationId": self._asked}
        flexible = schema.flexible.hold(version)
        data = encode(load("wire", "RequestHeader"), head | {"clientId": self._name}, 2 if flexible else 1)
        data += encode(schema, body, version)
        return struct.pack(">i", len(data)) + data

    def ask(self, name: str, version: int, body: Data) -> Data:
        """Return the answer.  Raises EOFError when the connection ends instead."""
        self.socket.sendall(self.request(name, version, body))
        return self.answer(name, version)

    def answer(self, name: str, version: int) -> Data:
        """Return the next answer, which is of this kind."""
        (size,) = struct.unpack(">i", self.exactly(4))
        data = self.exactly(size)
        schema = load("wire", f"{name}Response")
        flexible = schema.flexible.hold(version) and name != "ApiVersions"
        header, position = decode(load("wire", "ResponseHeader"), data, int(flexible))
        assert header["correlationId"] == self._asked
        body, end = decode(schema, data, version, position)
        assert end == len(data)
        return body

    def exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            part = self.socket.recv(min(size - len(got), 1 << 20))
            if not part:
                raise EOFError(f"closed after {len(got)} of {size} bytes")
            got += part
        return bytes(got)

    def fetch(self, topic: str, offset: int, *, partition: int = 0, version: int = 12, **more: object) -> Data:
        """Return the answer about one partition."""
        partition_bytes = more.pop("partition_max_bytes", 1 << 20)
        one = {"partition": partition, "fetchOffset": offset, "partitionMaxBytes": partition_bytes}
        wanted: Data = {"topic": topic, "partitions": [one]}
        if version >= 13:
            wanted["topicId"] = self.topic_id(topic)
        body = {"maxWaitMs": 0, "minBytes": 0, "topics": [wanted], **more}
        answer = self.ask("Fetch", version, body)
        assert not answer["errorCode"], answer
        (found,) = answer["responses"][0]["partitions"]
        return dict(found)

    def topic_id(self, topic: str) -> str:
        """Return a topic's id in 22 letters."""
        (found,) = self.ask("Metadata", 12, {"topics": [{"name": topic, "topicId": "A" * 22}]})["topics"]
        return str(found["topicId"])


MOST_MIB = 64


def is_well(serving: Serving) -> None:
    """Somebody honest is answered at once, and the process is no larger than it may be."""
    began = time.monotonic()
    with Wire(serving.port, "honest") as wire:
        assert wire.fetch("zstd", 0)["records"]
    assert time.monotonic() - began < 60  # alone on a machine it is a hundredth of a second
    assert serving.facts()[0] <= MOST_MIB
