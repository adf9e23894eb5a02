"""Answers of real brokers, damaged at random: each ends in its content or in one KlogError, and soon."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections.abc import Callable

import pytest
from klog.base.errors import KlogError
from klog.commands.follow.client.cluster import EpochAnswer, OffsetAnswer
from klog.formats.error_codes import ErrorCode
from klog.formats.follow_file import GroupOffset

from tests.commands.follow.client.recorded import TOPIC, VERSIONS, answers, everything, played

NUMBERS = (-1, 0, 1, 127, 128, 255, 0x7FFF, 0x7FFFFFFF, -0x80000000, 1 << 20)


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_answers_are_understood(version: str) -> None:
    """An answer that is damaged below must be right before: topics, settings, offsets, epochs, groups and records."""
    topics, configs, (earliest, latest), ends, groups, fetched = everything(played(answers(version)))
    names = {topic.name: topic for topic in topics.topics}
    assert len(names[TOPIC].partitions) == 2
    assert configs == {TOPIC: {"retention.ms": "1234567890123"}}
    assert earliest[TOPIC, 0].offset == 0
    assert latest[TOPIC, 0] in (OffsetAnswer(ErrorCode.NONE, 0, 0), OffsetAnswer(ErrorCode.NONE, 12, 0))
    assert ends[TOPIC, 0] == EpochAnswer(ErrorCode.NONE, 0, 12)
    assert groups["readers"][0][:3] == GroupOffset(TOPIC, 0, 7, -1, "")[:3]
    (row,) = fetched["responses"][0]["partitions"]
    assert row["highWatermark"] == 12
    assert len(row["records"]) > 1000


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return an answer with one to three damages: bits, numbers, cuts, repetitions."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        # Records are a fetcher's business: what precedes them is damaged more often.
        at = chance.randrange(min(len(changed), chance.choice((8, 40, 200, 1 << 20))) or 1)
        kind = chance.randrange(6)
        if kind == 0 and changed:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at : at + 4] = struct.pack(">i", chance.choice(NUMBERS))
        elif kind == 2:
            changed[at : at + 1] = bytes((chance.choice((0, 1, 0x7F, 0x80, 0xFF)),))
        elif kind == 3:
            changed[at : at + chance.randrange(1, 50)] = b""
        elif kind == 4:
            changed[at:at] = changed[at : at + chance.randrange(1, 50)]
        else:
            changed = changed[:at]
    if chance.random() < 0.7:  # else the size in front is no longer the right one
        changed[:4] = struct.pack(">i", len(changed) - 4)
    return bytes(changed)


def damage_one(chance: random.Random) -> Callable[[bytes], bytes]:
    """Return what damages one answer out of those of a conversation, so that each kind gets its turn."""
    left = chance.randrange(13)

    def change(data: bytes) -> bytes:
        nonlocal left
        left -= 1
        return mutated(data, chance) if left == -1 else data

    return change


@pytest.mark.parametrize("seconds", [pytest.param(2, id="some"), pytest.param(300, marks=pytest.mark.long, id="all")])
@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_answers_end_in_one_error(version: str, seconds: float) -> None:
    """A byte of a broker is worth no more than one of a disk; no other exception, no hang, no memory."""
    known, seed, right, wrong = answers(version), 0, 0, 0
    until = time.monotonic() + seconds
    tracemalloc.start()
    try:
        while time.monotonic() < until:
            chance, seed = random.Random(seed), seed + 1
            began, said = time.monotonic(), ""
            try:
                everything(played(known, damage_one(chance)))
            except KlogError as error:
                said = str(error)
            wrong, right = wrong + bool(said), right + (not said)
            assert "\n" not in said
            assert time.monotonic() - began < 100, seed
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert min(wrong, right) > 0
