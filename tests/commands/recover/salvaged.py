"""A partition to be salvaged, and what must hold of the result whatever was wrong with it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import PatchedLog
from klog.commands.recover.kept_ranges import KeptRanges
from klog.commands.recover.segment_ranges import PartitionRanges, SegmentRanges, salvage_ranges
from klog.data_dir.partition import Partition
from klog.kernel import SegmentSurvey
from klog.log.segment import Batch, Segment
from klog.partition.repair.recover_outcome import SalvageOptions

ODD = ("odd offset", "backwards", "overflow", "beyond next")


def partition_of(folder: Path, **logs: bytes) -> Partition:
    """Write a partition: `_0=…, _1000=…` are its logs by base offset."""
    path = folder / "orders-3"
    path.mkdir(exist_ok=True)
    for old in path.iterdir():
        old.unlink()
    for name, data in logs.items():
        (path / f"{int(name[1:]):020}.log").write_bytes(data)
    return Partition(str(path))


def salvage(partition: Partition, *, repair_bits: bool = False) -> PartitionRanges:
    """Return the kept part of *partition*, after a check of the laws."""
    found = salvage_ranges(partition, SalvageOptions(repair_bits))
    for segment, files in zip(found.segments, partition.segments, strict=True):
        assert segment.files == files
        if segment.unreadable is None:
            tiles(segment)
            rereads(partition, segment)
    return found


def only(partition: Partition, *, repair_bits: bool = False) -> SegmentRanges:
    """Return the kept part of the only segment of *partition*."""
    (segment,) = salvage(partition, repair_bits=repair_bits).segments
    return segment


def tiles(segment: SegmentRanges) -> None:
    """The kept and the cut ranges are adjacent, and cover the whole log."""
    parts = sorted([*segment.kept.pairs(), *((cut.start, cut.end) for cut in segment.cuts)])
    assert [start for start, _ in parts] == [0, *(end for _, end in parts[:-1])][: len(parts)]
    assert (parts[-1][1] if parts else 0) == segment.size
    assert all(start < end for start, end in parts)
    assert sum(cut.bytes for cut in segment.cuts) + segment.kept.bytes == segment.size
    assert segment.parts[0].base == segment.files.base_offset
    pairs = [pair for part in segment.parts for pair in part.kept.pairs()]
    assert pairs == list(segment.kept.pairs())
    for part in segment.parts:
        assert all(before[1] < after[0] for before, after in pairwise(part.kept.pairs()))


def result(partition: Partition, segment: SegmentRanges, kept: KeptRanges | None = None) -> bytes:
    """Return the log as it is going to be, or what of it is *kept* in one of the segments that it becomes."""
    with ReadOnlyFile(str(Path(partition.path) / segment.files.log)) as source:
        log = PatchedLog(source, segment.patches)
        return b"".join(log.read(start, end - start) for start, end in (kept or segment.kept).pairs())


def rereads(partition: Partition, segment: SegmentRanges) -> list[Batch]:
    """Return the batches of the result, which has no fault."""
    found = []
    bases = [part.base for part in segment.parts]
    for part, next_base in zip(segment.parts, [*bases[1:], 2**63 - 1], strict=True):
        found += _batches(part.base, next_base, result(partition, segment, part.kept) if part.kept else b"")
    assert len(found) == segment.batches
    assert sum(max(batch.records_count, 0) if batch.magic >= 2 else 1 for batch in found) == segment.records
    assert (found[-1].last_offset if found else None) == segment.last_offset
    return found


def _batches(base: int, next_base: int, data: bytes) -> list[Batch]:
    """Return the batches of a log without a fault."""
    with TemporaryDirectory() as folder:
        new = Path(folder) / f"{base:020}.log"
        new.write_bytes(data)
        found = [part for part in Segment(str(new)).batches() if isinstance(part, Batch)]
    assert sum(batch.size for batch in found) == len(data), "damage is left"
    survey = SegmentSurvey(base, next_base, b"", b"")
    for batch in found:
        survey.walk(batch.window, batch.row, batch.row + 1)
    assert [event for event in survey.events if event[0] in ODD] == []
    return found


def offsets(partition: Partition, segment: SegmentRanges) -> list[int]:
    """Return the base offsets of the kept batches."""
    return [batch.base_offset for batch in rereads(partition, segment)]
