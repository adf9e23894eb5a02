"""The picture of a partition, against the partition."""

from __future__ import annotations

import itertools
from pathlib import Path

from klog.commands.report.partition_strip_svg import MOST_SEGMENTS, PartitionStrip, StripSegment, draw_strip, strip_of
from klog.data_dir.partition import Partition
from klog.partition.verify.findings import LogDirFacts
from klog.partition.verify.verify import examine

from tests.conftest import FIXTURES


def strip(path: Path) -> PartitionStrip:
    """Return the strip of a partition."""
    facts, _ = examine(Partition(str(path)), LogDirFacts())
    return strip_of(facts)


def test_segments_marks_and_epochs_are_those_of_the_partition() -> None:
    """The offsets are those of the files' names and of the checkpoints."""
    partition = Partition(str(FIXTURES / "modern" / "tx-0"))
    shown = strip(FIXTURES / "modern" / "tx-0")
    assert [segment.first for segment in shown.segments] == [files.base_offset for files in partition.segments]
    assert [segment.end for segment in shown.segments[:-1]] == [segment.first for segment in shown.segments[1:]]
    assert shown.segments[-1].end == shown.log_end
    assert dict(shown.marks)["high-watermark"] == partition.high_watermark
    assert partition.epochs is not None
    assert list(shown.epochs) == [(entry.epoch, entry.start_offset) for entry in partition.epochs.entries]
    assert any(span.kind == "aborted" for span in shown.spans)
    assert shown.bytes == sum((Path(partition.path) / files.log).stat().st_size for files in partition.segments)


def test_codecs_are_those_of_the_batches() -> None:
    """A topic of one codec has boxes with its name."""
    assert {segment.codecs for segment in strip(FIXTURES / "modern" / "zstd-0").segments if segment.bytes} == {
        ("zstd",)
    }
    assert {segment.codecs for segment in strip(FIXTURES / "modern" / "gzip-0").segments if segment.bytes} == {
        ("gzip",)
    }


def test_damage_stands_at_its_offset(tmp_path: Path) -> None:
    """A flipped byte in the second batch: the mark is where that batch should be."""
    import shutil

    from klog.log.segment import Segment

    target = tmp_path / "plain-1"
    shutil.copytree(FIXTURES / "modern" / "plain-1", target)
    log = sorted(target.glob("*.log"))[0]
    batches = list(Segment(str(log)).batches())
    second = batches[1]
    content = bytearray(log.read_bytes())
    content[second.position + 70] ^= 4
    log.write_bytes(content)
    damages = [span for span in strip(target).spans if span.kind == "damage"]
    assert [span.first for span in damages] == [second.base_offset]
    assert f"byte {second.position}" in damages[0].text


def test_of_thousands_of_segments_neighbours_share_a_box() -> None:
    """A picture has room for some hundred, and its bytes are still all of them."""
    from klog.commands.report.partition_strip_svg import _boxes

    boxes = list(_boxes([StripSegment(at * 10, at * 10 + 10, 7, ("lz4",) if at % 2 else ()) for at in range(5001)]))
    assert len(boxes) <= MOST_SEGMENTS
    assert sum(box.bytes for box in boxes) == 5001 * 7
    assert sum(box.segments for box in boxes) == 5001
    assert (boxes[0].first, boxes[-1].end) == (0, 50010)
    assert all(a.end == b.first for a, b in itertools.pairwise(boxes))


def test_an_empty_partition_has_a_picture() -> None:
    """Nothing divides by its length."""
    picture = draw_strip(
        PartitionStrip("t", 0, "d", "t-0", 0, 0, 0, (), (), (("log-start", 0), ("log-end", 0)), (), 0), "t-0"
    )
    assert picture.get("aria-label") == "t-0: no offsets, 0 segments"
