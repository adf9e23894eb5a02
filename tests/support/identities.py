"""Log dirs whose partitions have equal names: of two clusters, of a topic that was created again, or without ids."""

from __future__ import annotations

from pathlib import Path

from tests.oracles.plain.encode import Record
from tests.support.lookup_logs import MS, of_records, write_segment

TOPIC, OTHER_TOPIC = "PzrBv7lASuWmpPcXNQyJWg", "9aXkBv7lASuWmpPcXNQyJQ"
CLUSTER, OTHER_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg", "QwU3OEVBNTcwNTJENDM2Qg"


def partition(log_dir: Path, topic_id: str | None, cluster: str | None, name: str = "orders-3") -> Path:
    """Make a partition of three records whose values are the name of its log dir."""
    folder = log_dir / name
    log_dir.mkdir(parents=True, exist_ok=True)
    records = [Record(offset, MS + offset, b"k%d" % offset, log_dir.name.encode()) for offset in range(3)]
    write_segment(folder, 0, of_records([records]))
    if topic_id is not None:
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    if cluster is not None:
        (log_dir / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={cluster}\n")
    return log_dir


def two_clusters(base: Path) -> list[Path]:
    """Log dirs of two clusters, each with `orders-3`."""
    return [partition(base / "b1", TOPIC, CLUSTER), partition(base / "other", OTHER_TOPIC, OTHER_CLUSTER)]


def refusal(log_dirs: list[Path]) -> bytes:
    """Return the message about `two_clusters`."""
    here, there = (log_dir / "orders-3" for log_dir in log_dirs)
    text = (
        f"klog: orders-3 is two things: topic {TOPIC} of cluster {CLUSTER} in {here},"
        f" topic {OTHER_TOPIC} of cluster {OTHER_CLUSTER} in {there}; --cluster ID or --topic-id ID chooses\n"
    )
    return text.encode()
