"""Log dirs that Kafka's storage tool has formatted: it runs once for a kind of node, and each node gets a copy.

A run is a JVM, and takes two fifths of the time of a start of a broker.  Its files are kept beside the jars.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.brokers import jars, kafka

READ = (
    "process.roles", "node.id", "listeners", "advertised.listeners", "listener.security.protocol.map",
    "controller.listener.names", "controller.quorum.voters", "controller.quorum.bootstrap.servers",
)  # fmt: skip
"""The settings that the tool wants; only the first makes a difference in its files."""


def format_node(
    version: str, properties: Mapping[str, str], cluster_id: str, *, voters: str = "", directory_id: str = ""
) -> None:
    """Format the log dirs that a node's *properties* name.

    *voters*: those that the metadata log names (`--initial-controllers`); *directory_id*: this node's among them.
    """
    log_dirs = [Path(name) for name in properties["log.dirs"].split(",")]
    read = {name: properties[name] for name in READ if name in properties}
    kind = json.dumps([version, read["process.roles"], len(log_dirs)])
    digest = hashlib.sha256(kind.encode()).hexdigest()[:16]
    # The voters have addresses and directory ids of one cluster, whose nodes are beside each other.
    place = log_dirs[0].parent / "formatted" if voters else jars.CACHE / f"formatted-{digest}"
    made = jars.filled(place, lambda folder: _run_tool(folder, version, read, len(log_dirs), cluster_id, voters))
    for number, log_dir in enumerate(log_dirs):
        own = {"cluster.id": cluster_id, "node.id": properties["node.id"]}
        _copy(made / str(number), log_dir, own | {"directory.id": directory_id or kafka.cluster_identity()})


def _run_tool(folder: Path, version: str, read: Mapping[str, str], count: int, cluster_id: str, voters: str) -> None:
    properties = {**read, "log.dirs": ",".join(str(folder / "libs" / str(number)) for number in range(count))}
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    words = ("format", f"--cluster-id={cluster_id}", "--config", str(file))
    more = ("--initial-controllers", voters) if voters else ()
    command = kafka.java(version, "kafka.tools.StorageTool", *words, *more)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _copy(source: Path, target: Path, own: Mapping[str, str]) -> None:
    """Copy the files of a log dir.  *own*: members of meta.properties that another node has otherwise."""
    for path in source.rglob("*"):
        if path.is_file():
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    file = target / "meta.properties"
    text = file.read_text()
    for name, value in own.items():
        text, times = re.subn(rf"(?m)^{re.escape(name)}=.*", f"{name}={value}", text)
        assert times == 1, (name, text)
    file.write_text(text)
