"""The nodes of a small cluster, each broker and controller, all in one JVM that outlives them.

A start in a warm JVM takes about a second; a kill of the JVM is a kill of all nodes at once.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.brokers import formatted, kafka
from tests.support.counts import count

PASS_MS = 300
"""How often retention and the cleaner pass in a round."""
PASSES_S = 2.0
"""At least two passes of both, with the delay before the first and that of deletions."""
NEVER_MS = 86_400_000


class NoCleanStopError(RuntimeError):
    """Nodes that were stopped have not ended, or not well."""


class Host(kafka.Jvm):
    """The JVM."""

    def __init__(self, version: str) -> None:
        super().__init__(version, "HostNodes", seconds=30)

    def request(self, *words: str) -> str:
        """Return what failed, empty if nothing did."""
        answer = self._ask(*words)
        return "no answer in time" if answer is None else answer[3].decode()


class Nodes:
    """Nodes 1 to *count* with *log_dirs* each, below *folder*; *is_quiet*: retention and the cleaner never pass."""

    def __init__(
        self, host: Host, folder: Path, count: int, log_dirs: int, port: int = kafka.PORT, *, is_quiet: bool = False
    ) -> None:
        self.host, self.folder, self.port, self.is_quiet = host, folder, port, is_quiet
        self.numbers, self.log_dirs = tuple(range(1, count + 1)), log_dirs
        self.voters = self.numbers
        self.more: dict[str, str] = {}

    def disks(self, node: int) -> list[Path]:
        """Return the log dirs of a node, in the order of its configuration."""
        return [self.folder / f"node-{node}" / f"data{at or ''}" for at in range(self.log_dirs)]

    @property
    def all_disks(self) -> list[Path]:
        """Return the log dirs of all nodes."""
        return [disk for node in self.numbers for disk in self.disks(node)]

    @property
    def bootstrap(self) -> str:
        """Return the addresses of all brokers."""
        return ",".join(f"localhost:{self.port + node}" for node in self.numbers)

    def _properties(self, node: int) -> dict[str, str]:
        passes = NEVER_MS if self.is_quiet else PASS_MS
        replication = str(min(len(self.numbers), 3))
        return {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "log.dirs": ",".join(map(str, self.disks(node))),
            "listeners": f"PLAINTEXT://localhost:{self.port + node},CONTROLLER://localhost:{self.port + 10 + node}",
            "advertised.listeners": f"PLAINTEXT://localhost:{self.port + node}",
            "controller.quorum.voters": ",".join(f"{one}@localhost:{self.port + 10 + one}" for one in self.voters),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "num.network.threads": "1",
            "num.io.threads": "2",
            "background.threads": "2",
            "num.recovery.threads.per.data.dir": "1",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": replication,
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": replication,
            "transaction.state.log.min.isr": "1",
            "transaction.max.timeout.ms": str(NEVER_MS),
            "transaction.remove.expired.transaction.cleanup.interval.ms": str(NEVER_MS),
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": replication,
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            "log.cleaner.dedupe.buffer.size": "16777216",
            "log.cleaner.io.buffer.size": "65536",
            "log.cleaner.backoff.ms": str(passes),
            "log.cleaner.min.cleanable.ratio": "0.01",
            "log.retention.check.interval.ms": str(passes),
            "log.initial.task.delay.ms": str(passes),
            "log.segment.delete.delay.ms": "300",
            "log.index.size.max.bytes": "8192",
            "log.index.interval.bytes": "512",
            "log.flush.offset.checkpoint.interval.ms": "2000",
            "replica.lag.time.max.ms": "3000",
            "replica.fetch.wait.max.ms": "200",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "300",
            "controller.quorum.election.timeout.ms": "500",
            "controller.quorum.election.backoff.max.ms": "300",
            "min.insync.replicas": "1",
        } | self.more

    def _configure(self, node: int) -> str:
        path = self.folder / f"node-{node}" / "server.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name}={value}\n" for name, value in self._properties(node).items()))
        return str(path)

    def format(self) -> None:
        """Format all log dirs, as an operator does before the first start."""
        identity = kafka.cluster_identity()
        for node in self.numbers:
            formatted.format_node(self.host.version, self._properties(node), identity)

    def start(self, *nodes: int) -> str:
        """Start nodes, all where none is named; return what failed, empty if nothing did."""
        started = nodes or self.numbers
        failed = self.host.request("start", *map(self._configure, started))
        count(f"starts of real brokers: {self.host.version}", len(started))
        if failed:
            self.host.close()
        return failed

    def ended(self) -> str:
        """Return why a node would have ended since its start, empty if none did.  The JVM ends with it."""
        if found := self.host.request("ended"):
            self.host.close()
        return found

    def stop(self, *nodes: int) -> None:
        """Stop nodes cleanly, all where none is named."""
        if failed := self.host.request("stop", *map(self._configure, nodes)):
            self.host.close()
            raise NoCleanStopError(failed)

    def leave(self) -> None:
        """Stop all nodes, and do not wait for it: their ports and folders are not to be used again for a while."""
        self.host.request("leave")

    def kill(self) -> None:
        """Kill all nodes at once."""
        self.host.close()

    def pause(self) -> None:
        """Leave the brokers alone for two passes of retention and of the cleaner."""
        time.sleep(PASSES_S)
