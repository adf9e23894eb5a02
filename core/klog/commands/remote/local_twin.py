"""Compares a remote log with the local segment that begins at the same offset, byte by byte."""

from __future__ import annotations

from typing import Final

from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition
from klog.tier.tier_layout import SegmentReader

_PIECE_BYTES: Final = 1 << 20


def differing_offset(partition: Partition, reader: SegmentReader, start_offset: int) -> int | None:
    """Return the first byte in which the remote log differs from the local one; None if none does, or without one.

    Raises KlogError, OSError.
    """
    files = next((one for one in partition.segments if one.base_offset == start_offset), None)
    if files is None:
        return None
    remote = reader.log()
    try:
        with ReadOnlyFile(partition.file(files.log)) as local:
            for position in range(0, max(remote.size, local.size), _PIECE_BYTES):
                one, other = remote.read(position, _PIECE_BYTES), local.read(position, _PIECE_BYTES)
                if one != other:
                    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
                    return position + (min(len(one), len(other)) if same is None else same)
    finally:
        remote.close()
    return None
