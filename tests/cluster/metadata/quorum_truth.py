"""fixtures/replicas/quorum: the disks of three nodes, and clients' answers at five moments."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.conftest import FIXTURES

ROOT: Final = FIXTURES / "replicas" / "quorum"
TRUTH: Final[dict[str, Any]] = json.loads((ROOT / "truth.json").read_text())
MOMENTS: Final[list[dict[str, Any]]] = TRUTH["moments"]
NODES: Final = (1, 2, 3)
TOLD: Final = ("leader", "replicas", "isr", "elr", "last_known_elr")


def disk(node: int) -> str:
    """Return the log dir of a node."""
    return str(ROOT / f"broker-{node}")


def end(node: int) -> int:
    """Return where a node's metadata log ends."""
    last: int = TRUTH["ends"][str(node)]["last"][0]
    return last + 1


def voters(moment: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the voters that Kafka's quorum tool named."""
    line = next(line for line in moment["quorum"].splitlines() if line.startswith("CurrentVoters"))
    found: list[dict[str, Any]] = json.loads(line.partition(":")[2])
    return found
