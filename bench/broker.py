"""A real broker: made with its topics, started on a changed log dir, and measured until it is ready."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from typing import NamedTuple

from bench.jobs import Bench
from bench.measure import CommandFailedError

SESSION_MS = 3000
# The settings of kafka-server-start.sh.
FLAGS = ("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info")
READY = re.compile("Kafka Server started")
LOADING = re.compile("Loading logs from log dirs")
LOADED = re.compile(r"Loaded \d+ logs in (\d+)ms")
RECOVERY = re.compile(r"Recovering unflushed|Recovering \d+ logs")
POINTS, MARKER = "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"


class Started(NamedTuple):
    """A start, until the broker printed the expected line: CPU and wall seconds.

    *loaded_ms*: the time of loading the logs, from the broker's log; *loading_cpu_s*: the CPU seconds meanwhile.
    *said*: its log.
    """

    cpu_s: float
    wall_s: float
    loaded_ms: int
    loading_cpu_s: float
    said: str


class Broker:
    """Kafka 4.3.1 in a folder of its own, which recovers logs with one thread."""

    def __init__(self, bench: Bench) -> None:
        self.folder = bench.file("broker")
        self.data = os.path.join(self.folder, "data")
        self._java = [bench.kafka[0], *FLAGS, *bench.kafka[bench.kafka.index("-cp") : -1]]
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def _free_port(self) -> int:
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            port: int = probe.getsockname()[1]
            return port

    def _write_properties(self) -> str:
        self._port, controller = self._free_port(), self._free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "log.dirs": self.data,
            "listeners": f"PLAINTEXT://localhost:{self._port},CONTROLLER://localhost:{controller}",
            "controller.quorum.voters": f"1@localhost:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.retention.ms": "-1",
            "offsets.topic.replication.factor": "1",  # otherwise there are no consumer groups
            "num.recovery.threads.per.data.dir": "1",
            # A broker that was killed may return only when its session is over.
            "broker.session.timeout.ms": str(SESSION_MS),
            "broker.heartbeat.interval.ms": "500",
        }
        path = os.path.join(self.folder, "server.properties")
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())
        return path

    @property
    def address(self) -> str:
        """Return its address for clients."""
        return f"localhost:{self._port}"

    @property
    def process(self) -> int:
        """The number of its process; 0 while it does not run."""
        return self._process.pid if self._process else 0

    def make(self, topics: Mapping[str, int]) -> None:
        """Make the log dir: a broker makes the topics, of so many partitions, and is stopped."""
        self.remove()
        os.makedirs(self.folder)
        properties = self._write_properties()
        identity = "MkU3OEVBNTcwNTJENDM2Qg"
        _must([*self._java, "kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "--config", properties])
        self.start()
        tool = [*self._java, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", self.address]
        for topic, partitions in topics.items():
            _must([*tool, "--create", "--topic", topic, "--partitions", str(partitions)])
        self.stop()

    def emptied(self, topic: str, number: int) -> str:
        """Remove a partition's own segments, and all their files; return its directory."""
        folder = os.path.join(self.data, f"{topic}-{number}")
        for name in os.listdir(folder):
            if name[:20].isdigit():
                os.unlink(os.path.join(folder, name))
        return folder

    def forget(self) -> None:
        """Reset all recovery points."""
        if os.path.exists(os.path.join(self.data, MARKER)):
            os.unlink(os.path.join(self.data, MARKER))
        with open(os.path.join(self.data, POINTS), "w", encoding="ascii") as file:
            file.write("0\n0\n")

    def start(self, until: re.Pattern[str] = READY) -> Started:
        """Start, and wait until the broker prints *until*.  CommandFailedError when it does not."""
        log = os.path.join(self.folder, "broker.log")
        properties, began = self._write_properties(), time.perf_counter()
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", properties], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=self.folder,
            )  # fmt: skip
        seen_s: dict[re.Pattern[str], float] = {}
        while time.perf_counter() - began < 600:
            with open(log, encoding="utf-8", errors="replace") as file:
                said = file.read()
            for line in (LOADING, LOADED, until):
                if line not in seen_s and line.search(said):
                    seen_s[line] = cpu_s(self._process.pid)
            if until in seen_s:
                wall_s, found = time.perf_counter() - began, LOADED.search(said)
                loading_s = seen_s[LOADED] - seen_s[LOADING] if found else 0.0
                return Started(seen_s[until], wall_s, int(found[1]) if found else 0, loading_s, said)
            if self._process.poll() is not None:
                break
            time.sleep(0.01)
        self.end(signal.SIGKILL)
        raise CommandFailedError(f"the broker did not start: {said[-400:]}")

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self.end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker, and wait until its session is over."""
        self.end(signal.SIGKILL)
        time.sleep(2 * SESSION_MS / 1000)

    def end(self, number: signal.Signals) -> None:
        """Send a signal and wait until the process has ended."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Kill it, if it runs, and remove all of it."""
        self.end(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def _must(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise CommandFailedError(f"{words[-4:]}: {(done.stdout + done.stderr)[-400:]}")


def cpu_s(process: int) -> float:
    """Return the CPU seconds of a process so far."""
    with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
