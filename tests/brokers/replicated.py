"""Brokers and a controller of their own, each a process, on disks that are there already."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.brokers.kafka import NEWEST, PORT, Cluster

CONTROLLER = 4


class KraftNode(Cluster):
    """One node of a cluster whose only controller is node 4; its log dir is folder/data."""

    def __init__(self, node: int, folder: Path, port: int) -> None:
        roles = "controller" if node == CONTROLLER else "broker"
        name = "CONTROLLER" if node == CONTROLLER else "PLAINTEXT"
        self.node = node
        listener = f"{name}://localhost:{port + 10 * node}"
        settings = {
            "process.roles": roles,
            "node.id": str(node),
            "controller.quorum.voters": f"{CONTROLLER}@localhost:{port + 10 * CONTROLLER}",
            "listeners": listener,
            "advertised.listeners": listener,
            "num.network.threads": "2",
            "num.io.threads": "2",
            "log.initial.task.delay.ms": "600000",
        }
        super().__init__(NEWEST, folder, port=port + 10 * node, settings=settings)


class ReplicatedCluster:
    """The nodes whose disks are *disks*, by node; they are copied below *folder*, and run from `start` on."""

    def __init__(self, disks: Mapping[int, Path], folder: Path, port: int = PORT) -> None:
        self.nodes = {node: KraftNode(node, folder / str(node), port) for node in disks}
        for node, disk in disks.items():
            shutil.copytree(disk, self.nodes[node].data, symlinks=True)
        self.bootstrap = ",".join(one.bootstrap for one in self.nodes.values() if one.node != CONTROLLER)

    def start(self, *nodes: int) -> None:
        """Start nodes, one after another."""
        for node in nodes:
            self.nodes[node].start()

    def stop(self, *nodes: int) -> None:
        """Stop nodes cleanly, one after another."""
        for node in nodes:
            self.nodes[node].stop()

    def __enter__(self) -> ReplicatedCluster:
        return self

    def __exit__(self, *exc: object) -> None:
        for node in self.nodes.values():
            node.stop(20)
