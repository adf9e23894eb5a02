"""Real Kafka on demand: its own tools and brokers, to compare klog with.

    dump("4.3.1", "--files", "a.log")          one run of the dump tool, as an operator would start it
    with DumpTool("4.3.1") as tool:            the same tool in one JVM, for thousands of runs
        tool.run("--files", "a.log").stdout
    with Cluster("4.3.1", folder) as cluster:  a broker on localhost; stop() and kill() leave its log dir behind
        cluster.bootstrap, cluster.data

Needs Java 17 and Maven.  The jars (about 55 MB a version) live in KLOG_KAFKA_CACHE, by default ~/.cache/klog-kafka.
"""

from __future__ import annotations

import atexit
import base64
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tests.brokers import class_data, jars
from tests.support.counts import count


def _claim_ports() -> tuple[int, socket.socket]:
    """Find a hundred ports that no other process has, and return the first with the socket that claims them all.

    The socket is bound to the last of them for as long as this process runs: workers of pytest-xdist, and other runs
    on the same machine, take other ports.
    """
    for first in range(24000, 32700, 100):
        claim = socket.socket()
        try:
            claim.bind(("127.0.0.1", first + 99))
            for port in range(first, first + 99):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        raise OSError(f"somebody listens on port {port}")
        except OSError:
            claim.close()
            continue
        return first, claim
    raise OSError("ports 24000 to 32700 are in use")


PORT, _CLAIM = _claim_ports()
NEWEST, BEFORE, LEGACY = "4.3.1", "3.9.1", "2.8.2"


def missing() -> str:
    """Return what keeps real Kafka from running here, empty if nothing does."""
    lacking = [name for name in ("java", "mvn") if shutil.which(name) is None]
    return f"{' and '.join(lacking)} not found" if lacking else ""


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def program(version: str, name: str, *arguments: str, heap: str = "512m") -> list[str]:
    """Return the command line that runs a program of tests/java with the jars of *version*."""
    return java(version, name, *arguments, heap=heap, more=str(jars.programs()))


def java(
    version: str, *arguments: str, heap: str = "512m", logged: str = "off", libs: Path | None = None, more: str = ""
) -> list[str]:
    """Return the command line that runs a class with the jars of *version*, or of *libs*; *more*: classes besides."""
    return [
        "java",
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # the second compiler costs more than what runs for seconds gains by it
        *(class_data.options(version) if libs is None else ()),
        "-Dfile.encoding=UTF-8",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={logged}",
        "-cp",
        f"{libs or jars.install(version)}/*" + (f":{more}" if more else ""),
        *arguments,
    ]


def dump_class(version: str) -> str:
    """Return the name of the dump tool's class: it moved with the rewrite in 4.0."""
    return ("org.apache.kafka" if _number(version) >= (4, 0) else "kafka") + ".tools.DumpLogSegments"


@dataclass(frozen=True)
class Dumped:
    """The result of one run of a tool.  *died* is the exception that ended it, empty if none did."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    died: str = ""


def dump(version: str, *arguments: str, cwd: Path | None = None) -> Dumped:
    """Run the dump tool once, in a process of its own; *died* stays empty, the stack trace is in *stderr*."""
    done = subprocess.run(java(version, dump_class(version), *arguments), capture_output=True, cwd=cwd, check=False)
    return Dumped(done.stdout, done.stderr, done.returncode)


def is_of_load(line: str) -> bool:
    """Return whether a line of a broker's log reports a slow machine, not its files.

    A controller complains of each event that took seconds.  A broker that registers before the quorum of one has its
    leader logs an error and tries again.
    """
    return "EventPerformanceMonitor" in line or "ControllerApis" in line


class Jvm:
    """A program of tests/java that answers one request after the other.

    A request is strings, an answer a number and three strings.  One that takes longer than *seconds* ends the JVM; the
    next request starts a new one.  All runs of the same program share its JVM until the test run ends: a start takes as
    long as hundreds of requests.  Only one with a *cwd* has a JVM of its own, until it is closed.
    """

    _shared: ClassVar[dict[tuple[str, ...], subprocess.Popen[bytes]]] = {}

    def __init__(self, version: str, name: str, *arguments: str, cwd: Path | None = None, seconds: float = 120) -> None:
        self.version, self.cwd, self.seconds = version, cwd, seconds
        self._program = (version, name, *arguments)
        self._running = self._shared if cwd is None else {}

    def __exit__(self, *exc: object) -> None:
        if self.cwd is not None:
            self.close()

    def close(self) -> None:
        """End the JVM, also for those that share it."""
        if process := self._running.pop(self._program, None):
            process.kill()
            process.communicate()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._program not in self._running:
            # The JVM's own messages on stderr are passed to the test run's stderr.
            self._running[self._program] = subprocess.Popen(
                program(*self._program, heap="1g"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self.cwd
            )
            atexit.register(self.close)
        return self._running[self._program]

    def _ask(self, *texts: str) -> tuple[int, bytes, bytes, bytes] | None:
        """Return the answer; None if it took too long, or the JVM ended."""
        process, begun = self._started(), time.monotonic()
        assert process.stdin is not None
        assert process.stdout is not None
        contents = [text.encode() for text in texts]
        request = struct.pack(">i", len(contents)) + b"".join(struct.pack(">i", len(each)) + each for each in contents)
        process.stdin.write(request)
        process.stdin.flush()
        overdue = threading.Timer(self.seconds, process.kill)
        overdue.start()
        try:
            (code,) = struct.unpack(">i", process.stdout.read(4))
            first, second, third = (process.stdout.read(*struct.unpack(">i", process.stdout.read(4))) for _ in range(3))
        except struct.error:
            self.close()
            return None
        finally:
            overdue.cancel()
        if time.monotonic() - begun >= self.seconds:  # the answer came just before its JVM was ended
            self.close()
            return None
        return code, first, second, third


class Tools(Jvm):
    """Kafka's tools in one JVM: a run costs some milliseconds instead of a second or two.

    Relative file names are relative to *cwd*.  A run that takes longer than *seconds* ends with a *died* that reports
    this.  Tools in Java alone, `org.apache.kafka.…`: one in Scala keeps its first System.out for ever.
    """

    def __init__(self, version: str = NEWEST, cwd: Path | None = None, seconds: float = 120) -> None:
        super().__init__(version, "RunMany", cwd=cwd, seconds=seconds)

    def run_class(self, name: str, *arguments: str) -> Dumped:
        """Run the main of class *name* once."""
        assert name.startswith("org.apache.kafka."), name
        answer = self._ask(name, *arguments)
        if answer is None:
            return Dumped(b"", b"", 1, "timeout, or the JVM ended")
        code, out, err, died = answer
        return Dumped(out, err, code, died.decode())


class DumpTool(Tools):
    """The dump tool, from 4.0 on."""

    def __enter__(self) -> DumpTool:
        return self

    def run(self, *arguments: str) -> Dumped:
        """Run the tool once."""
        return self.run_class(dump_class(self.version), *arguments)


def cluster_identity() -> str:
    """Return an identity in Kafka's form: without a dash at its start, which tools would parse as an option."""
    while (identity := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return identity


class Cluster:
    """One broker on localhost with its data in folder/data: KRaft from 3.0 on, with a ZooKeeper before."""

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        port: int = PORT,
        settings: dict[str, str] | None = None,
        jvm_options: tuple[str, ...] = (),
        inside: Callable[..., list[str]] | None = None,
    ) -> None:
        """*inside*: returns the command line that runs its words in another place, such as a cgroup."""
        self.version, self.folder, self.port = version, folder, port
        self.settings, self._jvm_options, self._inside = settings or {}, jvm_options, inside
        self.bootstrap, self.data = f"localhost:{port}", folder / "data"
        self._broker: subprocess.Popen[bytes] | None = None
        self._zookeeper: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> int:
        """The number of the broker's process."""
        assert self._broker is not None
        return self._broker.pid

    @property
    def kraft(self) -> bool:
        return _number(self.version) >= (3, 0)

    def _properties(self) -> dict[str, str]:
        common = {
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "2",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "16777216",
            "log.retention.ms": "-1",
            "auto.create.topics.enable": "false",
        }
        if not self.kraft:
            zookeeper = {"broker.id": "1", "zookeeper.connect": f"localhost:{self.port + 1}"}
            return common | zookeeper | {"listeners": f"PLAINTEXT://localhost:{self.port}"} | self.settings
        return (
            common
            | {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@localhost:{self.port + 1}",
                "listeners": f"PLAINTEXT://localhost:{self.port},CONTROLLER://localhost:{self.port + 1}",
                "advertised.listeners": f"PLAINTEXT://localhost:{self.port}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            }
            | self.settings
        )

    def _spawn(self, log: str, *arguments: str, heap: str) -> subprocess.Popen[bytes]:
        command = java(self.version, *arguments, heap=heap, logged="info")
        command = self._inside(*command) if self._inside else command
        with open(self.folder / log, "ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder, start_new_session=True
            )

    def log(self) -> str:
        """Return the broker's log so far."""
        return (self.folder / "broker.log").read_text(errors="replace")

    def start(self) -> None:
        """Start the broker on its log dir (made the first time) and wait until it listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
        if not self.kraft and self._zookeeper is None:
            config = self.folder / "zookeeper.cfg"
            place, port = self.folder / "zookeeper", self.port + 1
            config.write_text(f"dataDir={place}\nclientPort={port}\nadmin.enableServer=false\n")
            main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            self._zookeeper = self._spawn("zookeeper.log", main, str(config), heap="256m")
            self._await(self._zookeeper, self.port + 1)
        if self.kraft and not (self.data / "meta.properties").exists():
            self._format()
        with socket.socket() as probe:
            # Otherwise the tests would talk to another broker, unnoticed.
            assert probe.connect_ex(("localhost", self.port)) != 0, f"somebody listens on port {self.port} already"
        self._broker = self._spawn("broker.log", *self._jvm_options, "kafka.Kafka", str(properties), heap="768m")
        self._await(self._broker, self.port)

    def _format(self) -> None:
        from tests.brokers import formatted

        formatted.format_node(self.version, self._properties(), cluster_identity())

    def _await(self, process: subprocess.Popen[bytes], port: int, seconds: float = 90) -> None:
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if process.poll() is not None:
                raise RuntimeError(f"Kafka {self.version} stopped at its start:\n{self.log()[-4000:]}")
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    count(f"starts of real brokers: {self.version}")
                    return
            time.sleep(0.1)
        raise TimeoutError(f"Kafka {self.version} does not listen on port {port}:\n{self.log()[-4000:]}")

    def _end(self, number: signal.Signals, seconds: float = 60) -> int | None:
        if self._broker is None:
            return None
        self._broker.send_signal(number)
        try:
            self._broker.wait(seconds)
        except subprocess.TimeoutExpired:
            self._broker.kill()
            self._broker.wait(10)
        code, self._broker = self._broker.returncode, None
        return code

    def stop(self, seconds: float = 60) -> int | None:
        """Stop the broker cleanly, or kill it after *seconds*; return its exit code, None if it was not running."""
        return self._end(signal.SIGTERM, seconds)

    def kill(self) -> None:
        """Kill the broker: the same for its process as a power cut."""
        self._end(signal.SIGKILL)

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper.wait(10)
            self._zookeeper = None
