"""Log dirs of the cluster that is gone: what its tier does not show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from klog.base.errors import KlogError, UsageError
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.remote_log.events import TopicIdPartition
from klog.cluster.remote_log.remote_log import RemoteLog, metadata_of, read_remote_log
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition, segments_between
from klog.data_dir.replicas import log_end
from klog.data_dir.selection import open_path
from klog.formats.batch import CONTROL_BIT
from klog.formats.damage import Damage
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import PartitionState
from klog.log.segment import Segment
from klog.partition.transactions.markers import Marker, read_marker


class LostCluster:
    """The log dirs at *paths*, perhaps none.  *ids*: those of the segments in the tier.

    Raises UsageError for a path that is no log dir, KlogError for log dirs of two clusters, or one in use.
    """

    def __init__(self, paths: Sequence[str], ids: Collection[str]) -> None:
        self._log_dirs = [_log_dir(path) for path in paths]
        clusters = {one.cluster_id: one.path for one in self._log_dirs}
        if len(clusters) > 1:
            places = ", ".join(f"{path} is of cluster {cluster_id}" for cluster_id, path in clusters.items())
            raise KlogError(f"--from: log dirs of several clusters: {places}")
        self.cluster_id = next(iter(clusters), None)
        self.cluster: ClusterMetadata | None = metadata_of(self._log_dirs)
        self.remote_log: RemoteLog | None = None
        if self._log_dirs:
            self.remote_log = read_remote_log(self._log_dirs, watched=ids, cluster=self.cluster)

    @property
    def in_use(self) -> str | None:
        """A log dir whose broker runs, in words; None if there is none."""
        return next((one.lock.of(one.path, with_pid=False) for one in self._log_dirs if one.lock.held), None)

    def name_of(self, topic_id: str) -> str | None:
        """Return the name of a topic, None if it is not known."""
        ids = self.cluster.topic_ids if self.cluster is not None else {}
        return next((name for name, known in ids.items() if known == topic_id), None)

    def settings(self, topic_id: str) -> Mapping[str, str]:
        """Return the settings of a topic."""
        name = self.name_of(topic_id)
        return dict(self.cluster.topic_config(name)) if name is not None and self.cluster is not None else {}

    def partitions(self, topic_id: str) -> int:
        """Return the number of a topic's partitions, 0 if it is not known."""
        return len(self.cluster.partitions.get(topic_id, {})) if self.cluster is not None else 0

    def local_log(self, whose: TopicIdPartition) -> Partition | None:
        """Return the copy of a partition's local log that reaches farthest."""
        found = [
            one
            for log_dir in self._log_dirs
            for one in log_dir.partitions
            if one.state is PartitionState.CURRENT and (one.topic_id, one.number) == (whose.topic_id, whose.number)
        ]
        return max(found, key=log_end, default=None)


def _log_dir(path: str) -> LogDir:
    opened = open_path(path)
    if not isinstance(opened, LogDir):
        raise UsageError(f"--from {path}: expected a log dir of the lost cluster")
    return opened


def decided_ends(partition: Partition | None, producers: Collection[int], offset: int) -> dict[int, bool]:
    """Return how transactions end from *offset* on in a local log: by producer id, whether they are committed."""
    found: dict[int, bool] = {}
    for files in segments_between(partition.segments, offset, LONG_MAX) if partition is not None and producers else ():
        assert partition is not None
        for run in Segment(partition.file(files.log), bounded=False).runs():
            if isinstance(run, Damage):
                continue
            for i in run.window.produced(run.first, run.end):
                batch = run.window.batch(i)
                is_end = batch.attributes & CONTROL_BIT and batch.base_offset >= offset
                if is_end and batch.producer_id in producers:
                    marker = read_marker(run.window, i)
                    if isinstance(marker, Marker):
                        found.setdefault(batch.producer_id, not marker.aborts)
    return found
