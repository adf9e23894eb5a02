"""Finds the batch with an offset, as `klog lookup` does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from klog.base.errors import DamagedError, UsageError
from klog.data_dir.partition import Partition
from klog.data_dir.selection import KafkaFile, PartitionChoice, select_one
from klog.formats.damage import Damage
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.formats.names import FileKind
from klog.log.segment import Segment
from klog.partition.lookup import Lookup, Trail, TrailDetail
from klog.partition.lookup.lookup_trail import LookupOutcome


class OffsetPlace(NamedTuple):
    """The path of the log and the position of the batch with an offset.  *note*: about an offset without a record."""

    path: str
    position: int
    note: str | None = None


def find_offset(path: str, topics: Sequence[str], numbers: Sequence[PartitionChoice], offset: int) -> OffsetPlace:
    """Return the place of the batch with *offset*, or of the next one behind a gap.

    Raises UsageError for a path that is no partition, and DamagedError if the log has no batch from *offset* on.
    """
    found = select_one(path, topics, numbers)
    partition, segments = (found, None) if isinstance(found, Partition) else (_folder(found), None)
    if isinstance(found, KafkaFile):
        segments = [one for one in partition.segments if one.log == found.name.name]
        if not segments:
            raise UsageError(f"{path}: --offset goes with a partition directory, or with the .log of a segment")
    offset = max(LONG_MIN, min(offset, LONG_MAX))
    with Lookup(partition, segments, TrailDetail(records=False, explains=False)) as lookup:
        trail = lookup.offset(offset)
    position = None if trail.segment is None else _position(partition, trail, offset)
    if trail.segment is None or position is None:
        raise DamagedError(f"{path}: offset {offset}: {'; '.join((*trail.notes, *trail.problems))}")
    note = "; ".join(trail.notes) if trail.outcome is LookupOutcome.GAP else None
    return OffsetPlace(partition.file(trail.segment.file), position, note)


def _folder(file: KafkaFile) -> Partition:
    if file.name.kind is not FileKind.LOG:
        raise UsageError(f"{file.path}: --offset goes with a partition directory, or with the .log of a segment")
    return Partition(os.path.dirname(file.path) or ".")


def _position(partition: Partition, trail: Trail, offset: int) -> int | None:
    """Return the position of the batch of the trail, or of the damage in which the offset was searched."""
    if trail.batch is not None:
        return trail.batch.position
    if trail.outcome is not LookupOutcome.DAMAGED or trail.segment is None:
        return None
    damaged = None
    for found in Segment(partition.file(trail.segment.file), bounded=False).batches():
        if isinstance(found, Damage):
            damaged = found.place.position
        elif found.last_offset >= offset:
            break
    return damaged
