"""Batches are the same whatever room their builder has, and whenever its output is taken: an open batch moves then."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from klog.kernel import DONE, FLUSH, TO_COMPRESS, BatchBuilder, BatchRouter, RecordLines, TopicRoute, Window

SIZES = (0, 1, 60, 90, 300, 4000, 9000, 17_000, 120_000)


def records(seed: int) -> list[bytes]:
    """Return lines of records of three partitions, of very different sizes."""
    draw = random.Random(seed)
    return [
        json.dumps(
            {
                "topic": "t",
                "partition": draw.randrange(3),
                "timestamp": i,
                "key": None,
                "value": "v" * draw.choice(SIZES),
            }
        ).encode()
        for i in range(400)
    ]


class Output:
    """Three builders of one window, and the input of each; *codec* doubles its input, or halves it."""

    def __init__(self, room: int, codec: int, takes_early: float) -> None:
        self.window, self.taken = Window(1, 1, 1), [bytearray() for _ in range(3)]
        self.builders = [BatchBuilder(self.window, 0, room=room, codec=codec) for _ in self.taken]
        self.draw, self.takes_early = random.Random(1), takes_early

    def take(self, number: int) -> None:
        """Take the result of a builder."""
        builder = self.builders[number]
        if builder.used:
            builder.rows()
            self.taken[number] += self.window.content()
            builder.flushed()

    def settle(self, number: int, status: int) -> None:
        """Do what *status* asks for."""
        builder = self.builders[number]
        while status in (FLUSH, TO_COMPRESS):
            if status == FLUSH:
                self.take(number)
                return
            plain = bytes(builder.plain_records())
            data = plain + plain if len(plain) % 2 else plain[: len(plain) // 2 + 1]
            status = builder.compressed(data)
            if status == FLUSH:
                self.take(number)
                status = builder.compressed(data)
        assert status == DONE

    def feed(self, lines: Sequence[bytes]) -> list[bytes]:
        """Return the batches of *lines*, a log for each partition."""
        route = TopicRoute([*self.builders])
        router = BatchRouter()
        router.add_topic(b"t", route)
        rows = RecordLines()
        for line in lines:
            room = rows.buffer()
            while len(room) <= len(line):
                rows = RecordLines(capacity=1 << 20)
                room = rows.buffer()
            room[: len(line) + 1] = line + b"\n"
            rows.loaded(len(line) + 1)
            assert rows.parse()
            at, status = router.feed(rows, 0)
            while status != DONE:
                self.settle(router.partition, status)
                at, status = router.feed(rows, at)
            if self.draw.random() < self.takes_early:
                self.take(self.draw.randrange(3))
        for number, builder in enumerate(self.builders):
            while (status := builder.close()) != DONE:
                self.settle(number, status)
            self.take(number)
        return [bytes(log) for log in self.taken]


@pytest.mark.parametrize("codec", [0, 4])
def test_the_room_of_a_builder_changes_no_byte(codec: int) -> None:
    """With room for megabytes, for hardly one record, and taken at any moment, the batches are the same."""
    lines = records(codec)
    expected = Output(1 << 24, codec, 0).feed(lines)
    assert all(len(log) > 200_000 for log in expected)
    for room in (0, 5000, 17_000, 100_000):
        for takes_early in (0, 0.3):
            assert Output(room, codec, takes_early).feed(lines) == expected, (room, takes_early)


def test_the_batches_hold_and_follow_each_other() -> None:
    """Each checksum is right, and the offsets of a partition have no gap."""
    lines = records(7)
    for log in Output(0, 0, 0.5).feed(lines):
        window = Window(1, 1, 1)
        window.lend(log)
        window.scan(0, check=True)
        assert window.first_bad(0, window.count) == window.count
        ends = [(window.batch(i).base_offset, window.batch(i).last_offset + 1) for i in range(window.count)]
        assert ends[0][0] == 0
        assert all(before[1] == after[0] for before, after in pairwise(ends))
        assert window.next_at == len(log)
