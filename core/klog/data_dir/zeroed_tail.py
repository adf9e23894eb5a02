"""Zeros after the last batch of a log: preallocated space, or records that a power cut lost.

Damage that a command can work around is noted: the command names the log, and has 4 in its exit code.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from klog.base.errors import KlogError
from klog.base.unusable import UNUSABLE, Unusable
from klog.data_dir.log_dir import lock_state
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.batch import ENTRY
from klog.formats.damage import Damage, DamageKind
from klog.formats.index import OFFSET_ENTRY
from klog.formats.names import FileKind
from klog.log.index import IndexEntries


def is_preallocated_tail(partition: Partition, damage: Damage) -> bool:
    """Whether *damage*, in a log of *partition*, is preallocated space: nothing shows that it contained records.

    Fewer zeros than an entry begins with are the beginning of a batch, whose offset starts with zeros.
    """
    if damage.kind is not DamageKind.ZEROED_TAIL or (damage.size or 0) < ENTRY.size or not partition.segments:
        return False
    last = partition.segments[-1]
    if os.path.basename(damage.place.file) != last.log:
        return False
    try:
        end = partition.log_end
        assert end is not None
        return not held_records(partition, _last_entry(partition, last), damage.place.position or 0, end.offset)
    except KlogError:
        return True


def held_records(partition: Partition, entry: tuple[int, int] | None, position: int, end: int) -> bool:
    """Whether an index, a snapshot or a checkpoint shows that the last log had records from *position* on.

    *entry*: offset and position of the last index entry.  *end*: the offset with which the log ends.
    """
    if entry is not None and (entry[0] >= end or entry[1] >= position):
        return True
    proofs = [partition.high_watermark, partition.recovery_point, *(file.offset for file in partition.snapshots)]
    return any(proof is not None and proof > end for proof in proofs)


def _last_entry(partition: Partition, last: SegmentFiles) -> tuple[int, int] | None:
    if last.offset_index is None:
        return None
    with IndexEntries(partition.file(last.offset_index), OFFSET_ENTRY) as entries:
        found = entries[entries.count - 1] if entries.count else None
    if entries.unreadable is not None:
        raise entries.unreadable
    return None if found is None else (last.base_offset + found[0], found[1])


def note_damage(partition: Partition, path: str, damage: Damage, note: Callable[[str], object]) -> None:
    """Pass *note* a sentence about *damage* of the log at *path*, unless it is preallocated space.

    It is a problem unless a running broker may be writing that part just now.
    """
    if is_preallocated_tail(partition, damage):
        return
    note(str(damage))
    is_live = damage.is_unfinished and lock_state(os.path.join(partition.log_dir, FileKind.LOCK.value)).held
    if not is_live:
        UNUSABLE.note(Unusable(path, str(damage), is_unreadable=False))
