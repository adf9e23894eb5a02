"""Zeros behind the last batch of a log: room that was set aside, or what a power cut left of records."""

from __future__ import annotations

import os

from klog.data_dir.partition import Partition, SegmentFiles
from klog.errors import KlogError
from klog.formats.batch import ENTRY
from klog.formats.damage import Damage, DamageKind
from klog.formats.index import OFFSET_ENTRY
from klog.log.index import IndexEntries


def is_preallocated_tail(partition: Partition, damage: Damage) -> bool:
    """Whether *damage*, in a log of *partition*, is only room at its end: nothing shows that records stood there.

    Fewer zeros than an entry begins with are the beginning of a batch, whose offset starts with zeros.
    """
    if damage.kind is not DamageKind.ZEROED_TAIL or (damage.size or 0) < ENTRY.size or not partition.segments:
        return False
    last = partition.segments[-1]
    if os.path.basename(damage.place.file) != last.log:
        return False
    try:
        return not _was_filled(partition, last, damage.place.position or 0)
    except KlogError:
        return True


def _was_filled(partition: Partition, last: SegmentFiles, position: int) -> bool:
    """Whether an index, a snapshot or a checkpoint shows that there were records at *position*."""
    end = partition.log_end
    if last.offset_index is not None:
        with IndexEntries(partition.file(last.offset_index), OFFSET_ENTRY) as entries:
            last_position = entries[entries.count - 1][1] if entries.count else -1
        if entries.unreadable is not None:
            raise entries.unreadable
        if last_position >= position:
            return True
    proofs = [partition.high_watermark, partition.recovery_point, *(file.offset for file in partition.snapshots)]
    return any(proof is not None and end is not None and proof > end.offset for proof in proofs)
