"""The log of a broker after its next start: its beginning, its end, and the remaining bytes.

    kept = NextStarts().kept(partition, clean=False)
    kept.log_start, kept.log_end

After a clean stop the usual directory is not played: its log ends behind its last batch.  Without the clean-shutdown
marker the segment of the recovery point and those behind it are read, and the log ends at the first damage there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import FileRange
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry, read_epochs
from klog.formats.damage import Damage
from klog.formats.index import OFFSET_ENTRY
from klog.formats.names import PartitionState, Stage
from klog.formats.producer_snapshot import PRODUCER_ID_EXPIRATION_MS
from klog.kernel import Window
from klog.log.header_walk import walk_headers
from klog.log.index import IndexEntries
from klog.log.log_end import LogEnd
from klog.log.segment import MAX_SEGMENT_BYTES
from klog.partition.start.log_loader import next_start
from klog.partition.start.producer_recovery import BrokerClock
from klog.partition.start.start_files import ReadSettings, StartOutcome

_READING = ReadSettings(with_files=False)


class KeptLog(NamedTuple):
    """A log after the next start.

    *sizes*: the remaining bytes of each log, by its name; a log that is not listed is deleted; None: all remain.
    *epochs*: those that the start writes, None if it does not change the checkpoint.  *fails*: the reason why the
    broker does not complete the start; the log is then the one on disk.  *aside*: the reason why it sets the directory
    aside; the log is then empty.
    """

    log_start: int
    log_end: int
    sizes: Mapping[str, int] | None = None
    epochs: tuple[EpochEntry, ...] | None = None
    fails: str | None = None
    aside: str | None = None


class NextStarts:
    """Plays the next start of one partition after the other."""

    def __init__(self) -> None:
        self._clock = BrokerClock(int(time.time() * 1000), PRODUCER_ID_EXPIRATION_MS)
        self._window: Window | None = None

    def kept(self, partition: Partition, clean: bool, settings: ReadSettings = _READING) -> KeptLog:
        """Return the part of *partition* that the next start keeps; *clean*: its log dir has the clean-shutdown marker.

        Raises UnreadableError.
        """
        usual = usual_end(partition) if clean else None
        if usual is not None:
            return KeptLog(partition.log_start_offset or 0, usual.offset)
        self._window = self._window or Window(output=0)
        outcome = next_start(partition, clean, settings, self._clock, window=self._window)
        if outcome.fails is not None:
            start, end = partition.log_start_offset or 0, partition.log_end
            return KeptLog(start, max(end.offset if end is not None else start, start), fails=outcome.fails)
        epochs = read_epochs(outcome.epochs).entries if outcome.epochs else None
        return KeptLog(outcome.log_start, outcome.log_end, _sizes(partition, outcome), epochs)


def _sizes(partition: Partition, outcome: StartOutcome) -> Mapping[str, int] | None:
    sizes = {files.log: files.size for files in partition.segments}
    found: dict[str, int] = {}
    for pieces in outcome.logs.values():
        for name, _, end in pieces:
            found[name] = max(end, found.get(name, 0))
    # If the start completes an interrupted swap, records are moved to other files, and none is lost.
    return None if found == sizes or not found.keys() <= sizes.keys() else found


def usual_end(partition: Partition) -> LogEnd | None:
    """Return the end of a log that a clean stop left in its usual state: its start has nothing to decide.

    None if the start has to be played.  Raises UnreadableError.
    """
    end = partition.log_end
    if end is None or end.damage is not None or not _is_usual(partition):
        return None
    is_reached = (partition.log_start_offset or 0) <= end.offset and _index_fits(partition, end)
    return end if is_reached and _knows_producers(partition, end) else None


def _knows_producers(partition: Partition, end: LogEnd) -> bool:
    """Whether the start does not read the log for its producers: a snapshot of the end has them, or there is none.

    It fails at damage there, behind the newest snapshot.  Kafka: UnifiedLog.rebuildProducerState.
    """
    return not partition.snapshots or any(file.offset == end.offset for file in partition.snapshots)


def _is_usual(partition: Partition) -> bool:
    epochs, segments = partition.epochs, partition.segments
    if partition.state is PartitionState.STRAY or not segments or (epochs is not None and epochs.malformed is not None):
        return False
    if partition.metadata is not None and partition.topic_id is None:
        return False
    if any(file.stage is not Stage.IN_USE or not file.canonical for file in partition.log_files):
        return False
    return all(
        one.offset_index is not None and one.txn_index is None and one.size <= MAX_SEGMENT_BYTES for one in segments
    )


def _index_fits(partition: Partition, end: LogEnd) -> bool:
    """Whether the last entry of the last segment's index leads a broker to *end*: it begins to read there.

    An entry that points elsewhere, or behind the last record, makes it take the segment for empty, or fail.  Kafka:
    LogSegment.readNextOffset.  Raises UnreadableError.
    """
    segment = partition.segments[-1]
    if segment.offset_index is None:
        return False
    with IndexEntries(partition.file(segment.offset_index), OFFSET_ENTRY, None) as entries:
        relative, position = entries[entries.count - 1] if entries.count else (0, end.walked_from)
        is_legible = entries.problem is None
    is_boundary = position == end.walked_from
    with ReadOnlyFile(partition.file(segment.log)) as log:
        for found in walk_headers(log, end.walked_from):
            if isinstance(found, Damage):
                break
            is_boundary |= found.position == position
            if found.last_offset >= end.offset:
                return False  # a later batch has lower offsets
    return is_legible and is_boundary and segment.base_offset + relative < max(end.offset, segment.base_offset + 1)


def unserved_end(partition: Partition, outcome: StartOutcome) -> FileRange | None:
    """Return the end of the last log that stays on disk and is not served: it begins with a batch beyond the log end.

    A broker reads from the last index entry on to find the log end, and takes the segment for empty if that entry leads
    it elsewhere; or the last batch has lower offsets than one before it.  New records get the same offsets.  Kafka:
    LogSegment.readNextOffset.  Raises UnreadableError.
    """
    if outcome.highest_offset is not None and outcome.highest_offset < outcome.log_end:
        return None
    pieces = outcome.logs[max(outcome.logs)] if outcome.logs and outcome.fails is None else ()
    if len(pieces) != 1:
        return None
    name, begin, end = pieces[0]
    if not outcome.cuts and not outcome.dropped:
        by_headers = partition.log_end
        if by_headers is not None and by_headers.offset == outcome.log_end:
            begin = by_headers.walked_from
    with ReadOnlyFile(partition.file(name)) as log:
        for found in walk_headers(log, begin):
            if isinstance(found, Damage) or found.position >= end:
                break
            if found.last_offset >= outcome.log_end:
                return FileRange(name, found.position, end)
    return None
