"""The producer snapshots of a partition, with their content."""

from __future__ import annotations

from klog.data_dir.partition import Partition
from klog.data_dir.root_files import read_small
from klog.formats.snapshot import Snapshot, read_snapshot
from klog.kernel import crc32c


def read_snapshot_file(path: str) -> Snapshot:
    """Return the content of a snapshot; its *problem* is why it cannot be read, or why a broker deletes it."""
    content = read_small(path)
    return read_snapshot(content, crc32c) if isinstance(content, bytes) else Snapshot((), str(content))


def snapshots_of(partition: Partition) -> list[tuple[str, int, Snapshot]]:
    """Return the name, the offset and the content of each producer snapshot, by offset."""
    return [
        (file.name, file.offset or 0, read_snapshot_file(partition.file(file.name))) for file in partition.snapshots
    ]
