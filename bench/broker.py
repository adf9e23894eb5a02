"""A real broker's start, measured up to where all its logs are loaded.

The flags are those of kafka-server-start.sh; one thread recovers.  Nothing is written to the logs that it is given: it
is killed as soon as it has loaded them.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from typing import NamedTuple

from bench.installed import KAFKA_FLAGS
from bench.measure import CommandFailedError

PORT = int(os.environ.get("KLOG_KAFKA_PORT", "24000"))
MARKER = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
METADATA = "partition.metadata"
WAIT_S = 180
_LOADING, _LOADED = re.compile("Loading logs from log dirs"), re.compile(r"Loaded \d+ logs in (\d+)\s?ms")
_TICKS = os.sysconf("SC_CLK_TCK")


class Loaded(NamedTuple):
    """What it cost to load all logs at a start: CPU seconds of the whole process meanwhile, and wall time."""

    cpu_s: float
    wall_s: float


class Broker:
    """A broker with empty topics in *folder*, each of one partition; `load` starts it on a log dir made of that."""

    def __init__(self, libs: str, folder: str, topics: tuple[str, ...]) -> None:
        self._libs, self._folder, self._topics = libs, folder, topics
        self._data, self._pristine = os.path.join(folder, "data"), os.path.join(folder, "pristine")
        self._log = os.path.join(folder, "broker.log")
        self._properties = os.path.join(folder, "server.properties")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self._make()

    def _make(self) -> None:
        """Make the log dir, with the topics, and let it be stopped cleanly."""
        client, control = f"localhost:{PORT}", f"localhost:{PORT + 1}"
        settings = {
            "log.dirs": self._data,
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{control}",
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{control}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "num.recovery.threads.per.data.dir": "1",
            "log.retention.ms": "-1",
            "offsets.topic.replication.factor": "1",
        }
        with open(self._properties, "w", encoding="ascii") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())
        # Not --cluster-id ID: one identity in 64 begins with a dash.
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._tool("kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "--config", self._properties)
        process = self._start()
        try:
            self._await(process, _LOADED)
            for topic in self._topics:
                command = ("--bootstrap-server", client, "--create", "--topic", topic, "--partitions", "1")
                self._tool("org.apache.kafka.tools.TopicCommand", *command, "--replication-factor", "1")
        finally:
            process.send_signal(signal.SIGTERM)
            _reap(process)
        os.rename(self._data, self._pristine)

    def _java(self, *words: str, heap: tuple[str, ...]) -> list[str]:
        flags = [flag for flag in KAFKA_FLAGS if not flag.startswith(("-Xmx", "-Dorg.slf4j"))]
        return ["java", *heap, *flags, "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-cp", self._libs, *words]

    def _tool(self, *words: str) -> None:
        done = subprocess.run(self._java(*words, heap=("-Xmx256M",)), capture_output=True, text=True)
        if done.returncode:
            raise CommandFailedError(f"exit {done.returncode} of {' '.join(words)}: {done.stderr[-600:]}")

    def _start(self) -> subprocess.Popen[bytes]:
        command = self._java("kafka.Kafka", self._properties, heap=("-Xmx1G", "-Xms1G"))
        with open(self._log, "wb") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._folder)

    def _await(self, process: subprocess.Popen[bytes], wanted: re.Pattern[str]) -> re.Match[str]:
        """Return where the broker's log says what is wanted, as soon as it does.  Raises CommandFailedError."""
        began = time.monotonic()
        while time.monotonic() - began < WAIT_S and process.poll() is None:
            with open(self._log, encoding="utf-8", errors="replace") as file:
                found = wanted.search(file.read())
            if found:
                return found
            time.sleep(0.01)
        with open(self._log, encoding="utf-8", errors="replace") as file:
            raise CommandFailedError(f"the broker did not come up: {file.read()[-600:]}")

    def place(self, source: str, topic: str) -> None:
        """Make the log dir anew, as a kill leaves it, with the segments of the directory *source* in *topic*'s place.

        Logs get a second name, so that all read the same pages; everything else is copied.  Recovery points are 0.
        """
        self.empty()
        folder = os.path.join(self._data, f"{topic}-0")
        for name in os.listdir(folder):
            if name != METADATA:
                os.unlink(os.path.join(folder, name))
        for name in os.listdir(source):
            put = os.link if name.endswith(".log") else shutil.copy
            put(os.path.join(source, name), os.path.join(folder, name))

    def empty(self) -> None:
        """Make the log dir anew, as a kill leaves it, with no record in any topic."""
        shutil.rmtree(self._data, ignore_errors=True)
        shutil.copytree(self._pristine, self._data)
        os.unlink(os.path.join(self._data, MARKER))
        with open(os.path.join(self._data, RECOVERY_POINTS), "w", encoding="ascii") as file:
            file.write(f"0\n{len(self._topics)}\n" + "".join(f"{topic} 0 0\n" for topic in self._topics))

    def load(self) -> Loaded:
        """Start it on the log dir that was made, and kill it when everything is loaded."""
        process = self._start()
        try:
            # Nothing is recovered before that line, and the start of a JVM varies by half a second.
            self._await(process, _LOADING)
            before_s = _cpu_s(process.pid)
            found = self._await(process, _LOADED)
            return Loaded(_cpu_s(process.pid) - before_s, float(found[1]) / 1000)
        finally:
            process.kill()
            _reap(process)

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, that a process has taken so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
