"""Three brokers and their controller, each a node with a disk of its own.

    with Brokers(kafka.NEWEST, folder) as brokers:      the controller is up
        brokers.start(1, 2, 3)
        brokers.stop(3)
        brokers.disk(3)                                 the log dir of broker 3

Disks can be copied, and started elsewhere: nothing in them names a place.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

from tests.brokers.kafka import PORT, cluster_identity, java

CONTROLLER = 4
BROKERS = (1, 2, 3)


class Brokers:
    """The four nodes.  *settings*: of the brokers and of the controller."""

    def __init__(self, version: str, folder: Path, *, port: int = PORT, settings: dict[str, str] | None = None) -> None:
        self.version, self.folder, self.port = version, folder, port
        self.settings = settings or {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        """Return the addresses of the brokers."""
        return ",".join(f"localhost:{self.port + node}" for node in BROKERS)

    def disk(self, node: int) -> Path:
        """Return a node's log dir."""
        return self.folder / (f"controller-{node}" if node == CONTROLLER else f"broker-{node}")

    def log(self, node: int) -> str:
        """Return what a node logged so far."""
        return (self.folder / f"{node}.log").read_text(errors="replace")

    def _properties(self, node: int) -> dict[str, str]:
        common = {
            "node.id": str(node),
            "log.dirs": str(self.disk(node)),
            "controller.quorum.voters": f"{CONTROLLER}@localhost:{self.port + CONTROLLER}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "16777216",
            "log.retention.ms": "-1",
            "replica.lag.time.max.ms": "3000",
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "min.insync.replicas": "1",
        }
        if node == CONTROLLER:
            own = {"process.roles": "controller", "listeners": f"CONTROLLER://localhost:{self.port + node}"}
        else:
            address = f"PLAINTEXT://localhost:{self.port + node}"
            own = {"process.roles": "broker", "listeners": address, "advertised.listeners": address}
        return common | own | self.settings

    def start(self, *nodes: int, seconds: float = 120) -> None:
        """Start nodes, all at once, and wait until each is ready: a broker is when it has been unfenced."""
        marks = {}
        for node in nodes:
            properties = self.folder / f"{node}.properties"
            self.folder.mkdir(parents=True, exist_ok=True)
            properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties(node).items()))
            if not (self.disk(node) / "meta.properties").exists():
                words = ("format", f"--cluster-id={self._cluster_id()}", "--config", str(properties))
                subprocess.run(
                    java(self.version, "kafka.tools.StorageTool", *words), check=True, stdout=subprocess.DEVNULL
                )
            with socket.socket() as probe:
                assert probe.connect_ex(("localhost", self.port + node)) != 0, f"port {self.port + node} is taken"
            path = self.folder / f"{node}.log"
            marks[node] = path.stat().st_size if path.exists() else 0
            with open(path, "ab") as output:
                self._processes[node] = subprocess.Popen(
                    java(self.version, "kafka.Kafka", str(properties), heap="384m", logged="info"),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self.folder,
                    start_new_session=True,
                )
        for node in nodes:
            self._await(node, marks[node], seconds)

    def _cluster_id(self) -> str:
        path = self.folder / "cluster-id"
        if not path.exists():
            path.write_text(cluster_identity())
        return path.read_text()

    def _await(self, node: int, mark: int, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._processes[node].poll() is not None:
                raise RuntimeError(f"node {node} stopped at its start:\n{self.log(node)[-4000:]}")
            if "Kafka Server started" in (self.folder / f"{node}.log").read_bytes()[mark:].decode(errors="replace"):
                return
            time.sleep(0.1)
        raise TimeoutError(f"node {node} does not start:\n{self.log(node)[-4000:]}")

    def _end(self, nodes: tuple[int, ...], number: signal.Signals, seconds: float) -> None:
        ending = {node: self._processes.pop(node) for node in nodes if node in self._processes}
        for process in ending.values():
            process.send_signal(number)
        for process in ending.values():
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def stop(self, *nodes: int, seconds: float = 60) -> None:
        """Stop nodes cleanly, all at once."""
        self._end(nodes, signal.SIGTERM, seconds)

    def kill(self, *nodes: int) -> None:
        """Kill nodes."""
        self._end(nodes, signal.SIGKILL, 10)

    def __enter__(self) -> Brokers:
        try:
            self.start(CONTROLLER)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop(*BROKERS, seconds=30)
        self.stop(CONTROLLER, seconds=30)
