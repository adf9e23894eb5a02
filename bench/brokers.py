"""What a real broker needs to start: after a kill, after `klog recover --mark-clean`, after a clean stop."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from bench.jobs import Bench, DisagreementError
from bench.measure import Command, CommandFailedError, run
from bench.table import Row

PARTITIONS = 4
"""Of 256 MiB of one-record batches each."""
WAYS = ("its own recovery", "marked", "clean")
SESSION_MS = 3000
FLAGS = ("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info")
LOADED = re.compile(r"Loaded \d+ logs in (\d+)ms")
RECOVERY = re.compile(r"Recovering unflushed|Recovering \d+ logs")
POINTS, MARKER = "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"


class Started(NamedTuple):
    """A start, until the broker said that it is ready: CPU and wall seconds; ms that the loading of logs took."""

    cpu_s: float
    wall_s: float
    loaded_ms: int
    recovered: bool


class Broker:
    """Kafka 4.3.1 in a folder of its own, with one topic of one-record batches."""

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
            # A broker that was killed may come back only when its session is over.
            "broker.session.timeout.ms": str(SESSION_MS),
            "broker.heartbeat.interval.ms": "500",
        }
        path = os.path.join(self.folder, "server.properties")
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())
        return path

    def make(self, log: str) -> None:
        """Make the log dir: a broker makes the topic, and every partition's log becomes *log*."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        properties = self._write_properties()
        identity = "MkU3OEVBNTcwNTJENDM2Qg"
        _must([*self._java, "kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "--config", properties])
        self.start()
        tool = [*self._java, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"localhost:{self._port}"]
        _must([*tool, "--create", "--topic", "single", "--partitions", str(PARTITIONS)])
        self.stop()
        for number in range(PARTITIONS):
            folder = os.path.join(self.data, f"single-{number}")
            for name in os.listdir(folder):
                if name.startswith("0" * 20):
                    os.unlink(os.path.join(folder, name))
            _copy_in_first_epoch(log, os.path.join(folder, "0" * 20 + ".log"))
        self.forget()

    def forget(self) -> None:
        """Let nothing of the logs count as flushed."""
        if os.path.exists(os.path.join(self.data, MARKER)):
            os.unlink(os.path.join(self.data, MARKER))
        with open(os.path.join(self.data, POINTS), "w", encoding="ascii") as file:
            file.write("0\n0\n")

    def start(self) -> Started:
        """Start, and wait until the broker is ready.  CommandFailedError when it does not become so."""
        log = os.path.join(self.folder, "broker.log")
        properties, began = self._write_properties(), time.perf_counter()
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                [*self._java, "kafka.Kafka", properties], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=self.folder,
            )  # fmt: skip
        while time.perf_counter() - began < 600:
            with open(log, encoding="utf-8", errors="replace") as file:
                said = file.read()
            if "Kafka Server started" in said:
                wall_s = time.perf_counter() - began
                found = LOADED.search(said)
                recovered = any(RECOVERY.search(line) and "single" in line for line in said.splitlines())
                return Started(_cpu_s(self._process.pid), wall_s, int(found[1]) if found else 0, recovered)
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        self.kill()
        raise CommandFailedError(f"the broker did not start: {said[-400:]}")

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker, and wait until nobody takes it for alive."""
        self._end(signal.SIGKILL)
        time.sleep(2 * SESSION_MS / 1000)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


def _copy_in_first_epoch(log: str, target: str) -> None:
    """Copy a log as if the partition's first leader had written it; no checksum covers the epoch."""
    with open(log, "rb") as file:
        data = bytearray(file.read())
    at = 0
    while at < len(data):
        data[at + 12 : at + 16] = bytes(4)
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    with open(target, "wb") as file:
        file.write(data)


def _must(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise CommandFailedError(f"{words[-4:]}: {(done.stdout + done.stderr)[-400:]}")


def _cpu_s(process: int) -> float:
    """Return the CPU seconds of a process so far."""
    with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def recover_marked(bench: Bench) -> Iterator[Row]:
    """A killed broker's start: with its own recovery, after ours, and beside a start after a clean stop."""
    log = bench.log("single")
    broker = Broker(bench)
    found: dict[str, list[Started]] = {way: [] for way in WAYS}
    klog_s: list[float] = []
    words = [*bench.klog, "recover", broker.data, "--mark-clean", "--apply", "--quiet", "--jobs", "1"]
    mark = Command(words, "null", codes=(1,))  # something was put right
    try:
        bench.tell("making a log dir for a broker")
        broker.make(log)
        for turn in range(bench.slow):
            bench.tell(f"round {turn + 1} of {bench.slow}: brokers")
            found["its own recovery"].append(broker.start())
            broker.stop()
            found["clean"].append(broker.start())
            broker.kill()
            broker.forget()
            klog_s.append(run(mark).cpu_s)
            found["marked"].append(broker.start())
            broker.kill()
            broker.forget()
    finally:
        broker.kill()
        shutil.rmtree(broker.folder, ignore_errors=True)
    for way, starts in found.items():
        if any(one.recovered != (way == WAYS[0]) for one in starts):
            raise DisagreementError(f"a start ({way}) did, or did not, recover its logs")
    yield from _rows(PARTITIONS * os.path.getsize(log), found, klog_s)


def _rows(size: int, found: dict[str, list[Started]], klog_s: list[float]) -> Iterator[Row]:
    job, runs = f"recover --mark-clean, {size >> 20} MiB, one-record batches", f"({len(klog_s)})"
    loaded = {way: median(one.loaded_ms for one in starts) for way, starts in found.items()}
    cpu = {way: median(one.cpu_s for one in starts) for way, starts in found.items()}
    wall = {way: median(one.wall_s for one in starts) for way, starts in found.items()}
    told = ", ".join(f"{way} {ms:.0f} ms" for way, ms in loaded.items())
    yield Row(job, f'a broker\'s "Loaded … logs": {told} {runs}', loaded[WAYS[0]] / loaded["marked"])
    told = ", ".join(f"{way} {wall_s:.2f} s" for way, wall_s in wall.items())
    ready = f"wall time until it is ready, marked over clean: {told} {runs}"
    yield Row(job, ready, wall["marked"] / wall["clean"], at_most=1.2)
    told = ", ".join(f"{way} {cpu_s:.2f} s" for way, cpu_s in cpu.items())
    ready = f"CPU until it is ready, marked over clean: {told} {runs}"
    yield Row(job, ready, cpu["marked"] / cpu["clean"], at_most=1.2)
    own_s, ours_s = cpu[WAYS[0]] - cpu["clean"], median(klog_s)
    told = f"CPU of the recovery: broker {own_s:.2f} s (less a clean start), klog {ours_s:.2f} s {runs}"
    yield Row(job, told, own_s / ours_s)
