"""The leader epochs of a partition, from its checkpoint and from its batches."""

from __future__ import annotations

from collections.abc import Sequence

from klog.formats.checkpoint import Checkpoint, EpochEntry, epochs_in_force


def rebuilt(found: Checkpoint[EpochEntry] | None, seen: Sequence[tuple[int, int]], end: int) -> list[EpochEntry]:
    """Return the epochs up to the log end offset *end*: those of the checkpoint without a contradiction by a batch.

    *found*: the checkpoint.  *seen*: the epochs that batches began, each with the first one's base offset.  An epoch in
    which nothing was written is known from the checkpoint alone.
    """
    said = epochs_in_force(found.entries) if found is not None else []
    entries = dict(reversed(seen))
    for epoch, start in said:
        before = max((offset for other, offset in seen if other < epoch), default=-1)
        behind = min((offset for other, offset in seen if other >= epoch), default=end)
        if before < start <= behind:
            entries[epoch] = start
    kept = epochs_in_force(EpochEntry(epoch, entries[epoch]) for epoch in sorted(entries))
    return [entry for entry in kept if entry.start_offset < end]
