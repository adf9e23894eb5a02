"""`klog space --remote`: the bytes in remote storage, by partition and by the reason why they are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from klog.commands.remote.kept import RemoteUsage, remote_usage
from klog.commands.remote.sources import RemoteQuery
from klog.data_dir.selection import PartitionQuery
from klog.tier.tier import Tier

from klog_cli import output
from klog_cli.style import strong, warning

WORDS = {
    "serves": "is read",
    "overlapped": "another copy is read",
    "dead": "of a dead lineage",
    "below-start": "below the log start",
    "unfinished": "of an unfinished copy",
    "deleting": "in deletion",
    "orphan": "without an owner",
    "entry-lost": "without an entry",
}
_DOUBTFUL = ("dead", "unfinished", "orphan", "entry-lost", "deleting")


class RemoteSpace:
    """The partitions in remote storage, and the sums that rows of the log dirs have beside their own bytes."""

    def __init__(self, query: PartitionQuery, tier: Tier) -> None:
        self.partitions = list(remote_usage(RemoteQuery(tuple(query.paths), tier, query.topics, query.numbers)))
        self._topics: Counter[str | None] = Counter()
        for one in self.partitions:
            self._topics[one.topic] += one.bytes

    def of(self, row: dict[str, object]) -> int | None:
        """Return the bytes of the topic or partition of a row; None for a row of another level."""
        if "topic" not in row:
            return None
        if "directory" not in row:
            return self._topics[str(row["topic"])]
        where = row["topic"], row["partition"]
        return sum(one.bytes for one in self.partitions if (one.topic, one.partition) == where)

    def json(self) -> list[dict[str, object]]:
        """Return the member of the document."""
        return [one._asdict() for one in self.partitions]

    def show(self) -> None:
        """Print the table for people."""
        total = sum(one.bytes for one in self.partitions)
        title = f"{strong(output.human_size(total))} in remote storage"
        columns = ("partition", "remote", "why", "retention.bytes counts")
        output.emit_table(["", title], columns, [_cells(one) for one in self.partitions])


def _cells(one: RemoteUsage) -> Sequence[str]:
    why = ", ".join(f"{_why(role)} {output.human_size(size)}" for role, size in one.reasons.items())
    counted = ""
    if one.counted_bytes is not None and one.retention_bytes is not None:
        counted = f"{output.human_size(one.counted_bytes)} of {output.human_size(one.retention_bytes)}"
    return f"{one.topic}-{one.partition}", output.human_size(one.bytes), why, counted


def _why(role: str) -> str:
    return warning(WORDS[role]) if role in _DOUBTFUL else WORDS[role]
