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
import hashlib
import os
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

CACHE = Path(os.environ.get("KLOG_KAFKA_CACHE", Path.home() / ".cache" / "klog-kafka"))
# A hundred ports for each worker of pytest-xdist: gw0, gw1 …
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PORT = int(os.environ.get("KLOG_KAFKA_PORT", "24000")) + 100 * WORKER
NEWEST, BEFORE, LEGACY = "4.3.1", "3.9.1", "2.8.2"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>klog.tests</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
{}
</dependencies></project>
"""
NEEDED = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
LOGGER = "org.slf4j:slf4j-simple:1.7.36"
BROKER_AND_TOOLS = ("org.apache.kafka:kafka_2.13:{0}", "org.apache.kafka:kafka-tools:{0}")
MIRROR_MAKER = ("org.apache.kafka:connect-mirror:{0}",)
# Spark's own Kafka source, to compare with.  Not every release of its parts is to be had; these go together.
SPARK_SOURCE = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.commons:commons-pool2:2.12.1",
    "org.apache.kafka:kafka-clients:3.9.1",
)
# Other back ends of slf4j that Kafka's own dependencies bring; two at once make it print a warning.
OTHER_LOGGERS = ("slf4j-reload4j", "slf4j-log4j12", "log4j-slf4j-impl", "log4j-slf4j2-impl")


def missing() -> str:
    """Return what keeps real Kafka from running here, empty if nothing does."""
    lacking = [name for name in ("java", "mvn") if shutil.which(name) is None]
    return f"{' and '.join(lacking)} not found" if lacking else ""


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def install(version: str) -> Path:
    """Return the folder with the jars of *version*; Maven fetches them the first time."""
    return _fetched(CACHE / version, _fetch_with_all_they_need, version, *BROKER_AND_TOOLS)


def install_mirror_maker(version: str) -> Path:
    """Return the folder with the jars of MirrorMaker 2 and all it needs; Maven fetches them the first time."""
    return _fetched(CACHE / f"mirror-maker-{version}", _fetch_with_all_they_need, version, *MIRROR_MAKER)


def _fetch_with_all_they_need(folder: Path, version: str, *coordinates: str) -> None:
    needed = (NEEDED.format(*each.format(version).split(":")) for each in (*coordinates, LOGGER))
    (folder / "pom.xml").write_text(POM.format("\n".join(needed)))
    _maven(folder, "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs")
    for name in OTHER_LOGGERS:
        for jar in (folder / "libs").glob(f"{name}-*.jar"):
            jar.unlink()


def install_spark_source() -> Path:
    """Return the folder with the jars of Spark's Kafka source; Maven fetches them the first time."""
    return _fetched(CACHE / "spark-source", _fetch_each, *SPARK_SOURCE)


def _fetch_each(folder: Path, *coordinates: str) -> None:
    for each in coordinates:
        _maven(folder, "dependency:copy", f"-Dartifact={each}", "-DoutputDirectory=libs")


def _fetched(place: Path, fetch: Callable[..., None], *what: str) -> Path:
    """Return place/libs, filled by *fetch* the first time.

    It is filled under another name and renamed: an interrupted download or a second test run never leaves half of it.
    """
    if not (place / "libs").is_dir():
        fresh = place.with_name(f"{place.name}.{os.getpid()}")
        fresh.mkdir(parents=True)
        fetch(fresh, *what)
        try:
            fresh.rename(place)
        except OSError:  # another run was faster
            shutil.rmtree(fresh)
    return place / "libs"


def _maven(folder: Path, *goal: str) -> None:
    subprocess.run(["mvn", "-q", "-B", "-Dstyle.color=never", *goal], cwd=folder, check=True)


def _programs() -> Path:
    """Return the folder with the classes of tests/java; the compiler makes them when a source has changed."""
    sources = sorted((Path(__file__).parents[1] / "java").glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    return _fetched(CACHE / f"programs-{digest}", _compile, *map(str, sources))


def _compile(folder: Path, *sources: str) -> None:
    command = ["javac", "--release", "17", "-cp", f"{install(NEWEST)}/*", "-d", str(folder / "libs"), *sources]
    subprocess.run(command, check=True)


def program(version: str, name: str, *arguments: str, heap: str = "512m") -> list[str]:
    """Return the command line that runs a program of tests/java with the jars of *version*."""
    return java(version, name, *arguments, heap=heap, more=str(_programs()))


def java(
    version: str, *arguments: str, heap: str = "512m", logged: str = "off", libs: Path | None = None, more: str = ""
) -> list[str]:
    """Return the command line that runs a class with the jars of *version*, or of *libs*; *more*: classes besides."""
    return [
        "java",
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # the second compiler costs more than what runs for seconds gains by it
        "-Dfile.encoding=UTF-8",
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={logged}",
        "-cp",
        f"{libs or install(version)}/*" + (f":{more}" if more else ""),
        *arguments,
    ]


def dump_class(version: str) -> str:
    """Return the name of the dump tool's class: it moved with the rewrite in 4.0."""
    return ("org.apache.kafka" if _number(version) >= (4, 0) else "kafka") + ".tools.DumpLogSegments"


@dataclass(frozen=True)
class Dumped:
    """What one run of a tool did.  *died* is the exception that ended it, empty if none did."""

    stdout: bytes
    stderr: bytes
    exit_code: int
    died: str = ""


def dump(version: str, *arguments: str, cwd: Path | None = None) -> Dumped:
    """Run the dump tool once, in a process of its own; *died* stays empty, the stack trace is in *stderr*."""
    done = subprocess.run(java(version, dump_class(version), *arguments), capture_output=True, cwd=cwd, check=False)
    return Dumped(done.stdout, done.stderr, done.returncode)


class Jvm:
    """A program of tests/java that answers one request after the other.

    A request is strings, an answer a number and three strings.  One that takes longer than *seconds* ends the JVM; the
    next request starts a new one.  All that run the same program share its JVM until the test run ends: a start takes
    as long as hundreds of requests.  Only one with a *cwd* has a JVM of its own, until it is closed.
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
            # What the JVM itself says on stderr goes where the test run's stderr goes.
            self._running[self._program] = subprocess.Popen(
                program(*self._program, heap="1g"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self.cwd
            )
            atexit.register(self.close)
        return self._running[self._program]

    def _ask(self, *texts: str) -> tuple[int, bytes, bytes, bytes] | None:
        """Return the answer; None if it took too long, or the JVM ended."""
        process = self._started()
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
        return code, first, second, third


class Tools(Jvm):
    """Kafka's tools in one JVM: a run costs some milliseconds instead of a second or two.

    Relative file names are relative to *cwd*.  A run that takes longer than *seconds* ends with a *died* that says so.
    Tools in Java alone, `org.apache.kafka.…`: one in Scala keeps its first System.out for ever.
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


class Cluster:
    """One broker on localhost with its data in folder/data: KRaft from 3.0 on, with a ZooKeeper before."""

    def __init__(self, version: str, folder: Path, *, port: int = PORT, settings: dict[str, str] | None = None) -> None:
        self.version, self.folder, self.port = version, folder, port
        self.settings = settings or {}
        self.bootstrap, self.data = f"localhost:{port}", folder / "data"
        self._broker: subprocess.Popen[bytes] | None = None
        self._zookeeper: subprocess.Popen[bytes] | None = None

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
        with open(self.folder / log, "ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder, start_new_session=True
            )

    def log(self) -> str:
        """Return what the broker logged so far."""
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
            # Not --cluster-id ID: one identity in 64 begins with a dash.
            identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            tool = ("kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "--config", str(properties))
            subprocess.run(java(self.version, *tool), check=True, stdout=subprocess.DEVNULL)
        with socket.socket() as probe:
            # Else the tests would talk to another broker, and never know.
            assert probe.connect_ex(("localhost", self.port)) != 0, f"somebody listens on port {self.port} already"
        self._broker = self._spawn("broker.log", "kafka.Kafka", str(properties), heap="768m")
        self._await(self._broker, self.port)

    def _await(self, process: subprocess.Popen[bytes], port: int, seconds: float = 90) -> None:
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if process.poll() is not None:
                raise RuntimeError(f"Kafka {self.version} stopped at its start:\n{self.log()[-4000:]}")
            with socket.socket() as probe:
                if probe.connect_ex(("localhost", port)) == 0:
                    return
            time.sleep(0.1)
        raise TimeoutError(f"Kafka {self.version} does not listen on port {port}:\n{self.log()[-4000:]}")

    def _end(self, number: signal.Signals, seconds: float = 60) -> None:
        if self._broker is None:
            return
        self._broker.send_signal(number)
        try:
            self._broker.wait(seconds)
        except subprocess.TimeoutExpired:
            self._broker.kill()
            self._broker.wait(10)
        self._broker = None

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker: for its process what a power cut is."""
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
