"""Three brokers and their controller, each a node with a disk of its own.

    with Brokers(kafka.NEWEST, folder) as brokers:      the controller is up
        brokers.start(1, 2, 3)
        brokers.stop(3)
        brokers.disk(3)                                 the log dir of broker 3

Disks can be copied, and started elsewhere: nothing in them names a place.
"""

from __future__ import annotations

import base64
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

from tests.brokers.formatted import format_node
from tests.brokers.kafka import PORT, cluster_identity, java
from tests.support.counts import count

CONTROLLER = 4
BROKERS = (1, 2, 3)


class Brokers:
    """The four nodes.  *settings*: of the brokers and of the controller; *racks*: of brokers, by node."""

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        port: int = PORT,
        settings: dict[str, str] | None = None,
        racks: dict[int, str] | None = None,
    ) -> None:
        self.version, self.folder, self.port = version, folder, port
        self.settings, self._racks = settings or {}, racks or {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def bootstrap(self) -> str:
        """Return the addresses of the brokers."""
        return ",".join(f"localhost:{self.port + node}" for node in BROKERS)

    def disk(self, node: int) -> Path:
        """Return a node's log dir."""
        return self.folder / (f"controller-{node}" if node == CONTROLLER else f"broker-{node}")

    def log(self, node: int) -> str:
        """Return a node's log so far."""
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
            "initial.broker.registration.timeout.ms": "600000",
            "min.insync.replicas": "1",
        }
        if node == CONTROLLER:
            own = {"process.roles": "controller", "listeners": f"CONTROLLER://localhost:{self.port + node}"}
        else:
            address = f"PLAINTEXT://localhost:{self.port + node}"
            own = {"process.roles": "broker", "listeners": address, "advertised.listeners": address}
        if node in self._racks:
            own["broker.rack"] = self._racks[node]
        return common | own | self.settings

    def start(self, *nodes: int, seconds: float = 120) -> None:
        """Start nodes, all at once, and wait until each is ready: a broker is when it has been unfenced."""
        marks = self.launch(*nodes)
        for node in nodes:
            self._await(node, marks[node], seconds)

    def launch(self, *nodes: int) -> dict[int, int]:
        """Start nodes, all at once; return how long the log of each was before."""
        marks = {}
        for node in nodes:
            properties = self.folder / f"{node}.properties"
            self.folder.mkdir(parents=True, exist_ok=True)
            properties.write_text("".join(f"{name}={value}\n" for name, value in self._properties(node).items()))
            if not (self.disk(node) / "meta.properties").exists():
                self._format(node)
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
        return marks

    def _format(self, node: int) -> None:
        format_node(self.version, self._properties(node), self._cluster_id())

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
                count(f"starts of real brokers: {self.version}")
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


class Combined(Brokers):
    """Three nodes, each broker and controller; *is_dynamic*: the voters are in the metadata log (kraft.version 1).

    *controller_port*: that of node 0; it can be changed between two starts.  A node that is *alone* is the only voter.
    """

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        port: int = PORT,
        settings: dict[str, str] | None = None,
        is_dynamic: bool = True,
        alone: int | None = None,
    ) -> None:
        super().__init__(version, folder, port=port, settings=settings)
        self.is_dynamic, self.alone = is_dynamic, alone
        self.controller_port = port + 10

    @property
    def bootstrap(self) -> str:
        """Return the addresses of the brokers."""
        nodes = BROKERS if self.alone is None else (self.alone,)
        return ",".join(f"localhost:{self.port + node}" for node in nodes)

    @property
    def voters(self) -> str:
        """Return the voters as the configuration names them, and `klog metadata plan`."""
        nodes = BROKERS if self.alone is None else (self.alone,)
        return ",".join(f"{node}@localhost:{self.controller_port + node}" for node in nodes)

    def directory_id(self, node: int) -> str:
        """Return the id that the storage tool gives a node's log dir."""
        return base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._cluster_id()}{node}").bytes)[
            :22
        ].decode()

    def _format(self, node: int) -> None:
        if not self.is_dynamic:
            super()._format(node)
            return
        voters = [f"{one}@localhost:{self.controller_port + one}:{self.directory_id(one)}" for one in BROKERS]
        own = {"voters": ",".join(voters), "directory_id": self.directory_id(node)}
        format_node(self.version, self._properties(node), self._cluster_id(), **own)

    def _properties(self, node: int) -> dict[str, str]:
        found = super()._properties(node)
        if self.is_dynamic:
            del found["controller.quorum.voters"]
            servers = ",".join(voter.partition("@")[2] for voter in self.voters.split(","))
            found["controller.quorum.bootstrap.servers"] = servers
        else:
            found["controller.quorum.voters"] = self.voters
        listeners = f"PLAINTEXT://localhost:{self.port + node},CONTROLLER://localhost:{self.controller_port + node}"
        return found | {"process.roles": "broker,controller", "listeners": listeners} | self.settings

    def __enter__(self) -> Combined:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop(*BROKERS, seconds=30)
