"""Any batches in any pieces, with flushes, cuts, gaps and new openings between: always the log that was sent."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from klog.partition.append.appender import AppendSettings

from tests.commands.follow.feeding import open_copy
from tests.commands.follow.test_changes import content, made
from tests.commands.follow.test_copy_power import check
from tests.support.power import HastyDisk

Batches = list[tuple[int, int, bytes]]
"""First offset, end offset and bytes of each."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9), st.integers(0, 3)),
        st.tuples(st.just("torn"), st.integers(1, 200), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
        st.tuples(st.just("open"), st.just(0), st.just(0)),
        st.tuples(st.just("cut"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("skip"), st.integers(1, 50), st.just(0)),
        st.tuples(st.just("start"), st.integers(0, 100), st.just(0)),
    ),
    max_size=25,
)
LAYOUTS = st.builds(
    AppendSettings,
    segment_bytes=st.sampled_from([200, 500, 2000]),
    segment_ms=st.sampled_from([5, 1 << 40]),
    index_interval=st.sampled_from([0, 100, 4096]),
    index_bytes=st.sampled_from([24, 1 << 20]),
)


class Expected:
    """The content of the log: whole batches, and its end."""

    def __init__(self) -> None:
        self.batches: Batches = []
        self.end = self.start = self.epoch = 0

    def grow(self, count: int, gap: int) -> bytes:
        first = self.end + gap
        data = made(first, count, epoch=self.epoch, size=count * 7)
        self.batches.append((first, first + count, data))
        self.end = first + count
        return data

    def cut(self, offset: int) -> None:
        while self.batches and self.batches[-1][1] > offset:
            self.batches.pop()
        self.epoch += 1

    @property
    def data(self) -> bytes:
        return b"".join(data for _, _, data in self.batches)


@pytest.mark.usefixtures("state_home")
@settings(max_examples=60, deadline=None)
@given(STEPS, LAYOUTS, st.integers(1, 700))
def test_a_copy_is_the_log_that_was_sent(steps: list[tuple[str, int, int]], layout: AppendSettings, piece: int) -> None:
    """It has no fault, whatever its history."""
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    expected = Expected()
    try:
        opening = open_copy(folder / "copy", "orders-3", layout, HastyDisk())
        copy, copied = opening.__enter__()
        for what, number, other in steps:
            if what == "append":
                data = expected.grow(number, other)
                for size in (piece, len(data)):
                    taken = copied.append(data[:size])
                    assert taken in (0, len(data))
                    data = data[taken:]
            elif what == "torn":
                assert copied.append(made(expected.end, 5)[:number][:-1]) == 0
            elif what == "flush":
                copied.set_high_watermark(copied.end)
                copy.flush()
            elif what == "open":
                opening.__exit__(None, None, None)
                opening = open_copy(folder / "copy", "orders-3", layout, HastyDisk())
                copy, copied = opening.__enter__()
            elif what == "cut":
                offset = max(expected.end * number // 100, copied.log_start)
                if copied.cut(offset) is not None:
                    expected.cut(offset)
                    if copied.end == copied.log_start:  # nothing that can be read is left
                        expected.batches.clear()
                    assert copied.end <= offset
                    expected.end = copied.end
            elif what == "skip":
                expected.end += number
                copied.skip_to(expected.end)
            else:
                expected.start = max(expected.start, expected.end * number // 100)
                copied.move_start(expected.start)
            assert (copied.end, copied.log_start) == (expected.end, max(expected.start, copied.log_start))
        opening.__exit__(None, None, None)
        assert content(folder / "copy" / "orders-3") == expected.data
        (folder / "copy" / "klog-follow.json").write_text(COMPACTED)
        check(folder / "copy")
    finally:
        shutil.rmtree(folder)


COMPACTED = (
    '{"klog_follow": 1, "cluster_id": "fXeC61JOQie3q2pvw8VSPQ", "bootstrap": "b:1", "updated": "", "groups": {},'
    ' "topics": {"orders": {"topic_id": null, "partitions": 4, "config": {"cleanup.policy": "compact"}}}}'
)
"""Gaps are the rule there."""
