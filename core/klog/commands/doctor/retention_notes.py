"""The records that the broker's first retention pass removes, half a minute after the start."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.doctor.diagnosis import Diagnosis, Fate, PartitionFate
from klog.commands.doctor.partition_loader import LoadedPartition
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.java_integers import LONG_MAX
from klog.partition.retention.due_records import DueRecords, RetainedPartition, count_in, due_notes, due_records
from klog.partition.retention.stored_segments import stored_segments
from klog.partition.start.record_tally import OffsetSpan
from klog.partition.start.start_reasons import RETENTION, StartNote

_MOST_BYTES: Final = 1 << 30
"""The most bytes of logs whose headers are read for it, over all partitions."""
_SERVED = (Fate.SERVES, Fate.LEADERLESS, Fate.PROMOTES)


class FirstPass:
    """Records that retention removes from partitions after a start.

    *log_dirs*: by path.  *cluster*: None if there is no metadata log.  *file*: the content of `server.properties`.
    *count_all*: count records in any number of bytes, rather than offsets beyond some.
    """

    def __init__(
        self, log_dirs: Mapping[str, LogDir], cluster: ClusterMetadata | None, file: Mapping[str, str], count_all: bool
    ) -> None:
        self._log_dirs, self._left_bytes = log_dirs, LONG_MAX if count_all else _MOST_BYTES
        self._configs = {path: TopicConfig(one, file=file, cluster=cluster) for path, one in log_dirs.items()}
        self._now_ms = int(time.time() * 1000)

    def of(self, rows: Iterable[PartitionFate], loaded: Mapping[str, LoadedPartition]) -> list[DueRecords]:
        """Return it for the *rows* that are served; *loaded*: by path.  Raises UnreadableError."""
        found = []
        for row in rows:
            if row.fate in _SERVED and row.log_dir is not None and row.directory is not None:
                one = self._due(row, loaded[f"{row.log_dir}/{row.directory}"])
                found += [one] if one is not None else []
        return found

    def _due(self, row: PartitionFate, loaded: LoadedPartition) -> DueRecords | None:
        log_dir, pieces = self._log_dirs[loaded.log_dir], loaded.pieces
        partition = Partition(loaded.path, log_dir.checkpoints, loaded.name)
        sizes = None
        if pieces is not None:
            sizes = {name: sum(one.end - one.start for one in ranges) for name, ranges in pieces.items()}
        segments = stored_segments(partition, log_dir.clean_shutdown is not None, sizes)
        offsets = OffsetSpan(loaded.outcome.log_start, loaded.outcome.log_end)
        found = RetainedPartition(row.topic, row.partition, partition.path, segments, offsets)
        is_exact = True

        def count(span: OffsetSpan) -> int:
            nonlocal is_exact
            self._left_bytes -= sum(one.bytes for one in segments if one.base_offset < span.end)
            is_exact = self._left_bytes >= 0
            return count_in(partition)(span) if is_exact else span.end - span.start

        due = due_records(found, self._configs[loaded.log_dir], self._now_ms, count)
        return due and due._replace(is_exact=is_exact)


def with_retention(diagnosis: Diagnosis, due: Sequence[DueRecords]) -> Diagnosis:
    """Return *diagnosis* with the removals of the first pass, and a note for each of the topics that lose most."""
    notes = (StartNote(RETENTION, note) for note in due_notes(due, "records", 3))
    return diagnosis._replace(retention=tuple(due), notes=(*diagnosis.notes, *notes))
