"""The survey of a segment: its counts, by either way to its batches."""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random

import pytest
from klog.kernel import SegmentSurvey

from tests.kernel.windows import scanned
from tests.oracles.plain.encode import BatchHeader, raw_batch

NO_NEXT = 2**63 - 1


def headers(draw: Random, odd: float) -> list[BatchHeader]:
    """Return batches that mostly continue one another; a part of them, *odd*, does not."""
    found = []
    at, epoch, time = 100, 3, 1000
    for _ in range(draw.randrange(1, 60)):
        delta = draw.randrange(3)
        base, count, timestamp, producer = at, delta + 1, time, -1
        if draw.random() < odd:
            base += draw.choice([0, 1, -1, 2**31])
            count += draw.choice([0, 5, -1])
            epoch += draw.choice([0, 1, -1])
            timestamp += draw.choice([0, -50, 50])
            producer = draw.choice([-1, 7])
        found.append(
            BatchHeader(
                base_offset=base,
                last_offset_delta=delta,
                leader_epoch=epoch,
                base_timestamp=timestamp,
                max_timestamp=timestamp,
                producer_id=producer,
                count=count,
            )
        )
        at, time = at + delta + 1, time + draw.randrange(3)
    return found


def state(survey: SegmentSurvey) -> tuple[object, ...]:
    names = ("batches", "records", "first_offset", "last_offset", "max_timestamp", "max_timestamp_offset", "end")
    more = ("max_timestamp_position", "producer_batches", "dropped", "events", "epochs")
    return tuple(getattr(survey, name) for name in (*names, *more))


@pytest.mark.parametrize("odd", [0.0, 0.05, 0.5])
def test_a_survey_does_not_depend_on_how_its_batches_are_handed_over(odd: float) -> None:
    """Batches that continue the log are taken in runs, and where a window ends is chance."""
    for seed in range(200):
        draw = Random(seed)
        batches = headers(draw, odd)
        window = scanned(b"".join(raw_batch(header, b"") for header in batches))
        whole, single = (SegmentSurvey(100, NO_NEXT, b"", b"") for _ in range(2))
        whole.walk(window, 0, window.count)
        for i in range(window.count):
            single.walk(window, i, i + 1)
        assert state(whole) == state(single), seed
        assert whole.batches == len(batches)
        assert whole.records == sum(max(header.count, 0) for header in batches)
        assert whole.producer_batches == sum(header.producer_id >= 0 for header in batches)
        times = [header.max_timestamp for header in batches]
        assert whole.max_timestamp == max(times)
        if not odd:
            assert whole.events == []
            assert whole.epochs == [(3, 100, 0)]
            assert whole.last_offset == batches[-1].base_offset + batches[-1].last_offset_delta


def test_one_batch_that_does_not_continue_is_found_among_those_that_do() -> None:
    """A gap, an epoch that falls, impossible counts: each is named, with the batch that it is about."""
    usual = [BatchHeader(base_offset=offset, last_offset_delta=0, count=1) for offset in range(20)]
    size = len(raw_batch(usual[0], b""))
    changes: tuple[tuple[dict[str, int], str], ...] = (
        ({"base_offset": 50}, "odd offset"),
        ({"base_offset": 3}, "backwards"),
        ({"leader_epoch": -2}, "odd epoch"),
        ({"count": 9}, "bad counts"),
        ({"codec": 7}, "unknown codec"),
        ({"last_offset_delta": -1}, "bad counts"),
    )
    for change, kind in changes:
        batches = [*usual[:10], replace(usual[10], **change), *usual[11:]]  # type: ignore[arg-type]
        window = scanned(b"".join(raw_batch(header, b"") for header in batches))
        survey = SegmentSurvey(0, NO_NEXT, b"", b"")
        survey.walk(window, 0, window.count)
        assert (kind, 10 * size) in [(event[0], event[1]) for event in survey.events], change


def test_index_entries_about_batches_that_merely_continue_are_compared_with_those() -> None:
    """An entry counts where its offset is, also where no other entry leads to that batch."""
    batches = [
        BatchHeader(base_offset=2 * i, last_offset_delta=1, base_timestamp=100 + i, max_timestamp=100 + i, count=2)
        for i in range(100)
    ]
    size = len(raw_batch(batches[0], b""))
    window = scanned(b"".join(raw_batch(header, b"") for header in batches))
    slots = b"".join(struct.pack(">ii", 2 * i + 1, i * size) for i in range(10, 100, 10))
    times = [struct.pack(">qi", 100 + i, 2 * i + 1) for i in range(7, 100, 7)]

    def events(offset_entries: bytes, time_entries: list[bytes]) -> list[tuple[str, int, int, int]]:
        survey = SegmentSurvey(0, NO_NEXT, offset_entries, b"".join(time_entries))
        survey.walk(window, 0, window.count)
        survey.finish()
        return survey.events

    assert events(slots, times) == []
    late = [*times[:3], struct.pack(">qi", 100 + 28, 2 * 29 + 1), *times[4:]]
    kinds = [(kind, position) for kind, position, _, _ in events(slots, late)]
    assert ("time inexact", 29 * size) in kinds
    inside = [*times[:3], struct.pack(">qi", 100 + 28, 2 * 28), *times[4:]]
    assert events(slots, inside) == [("time inside", 28 * size, 3, 56)]


def test_the_gaps_of_a_compacted_log_crowd_out_no_wrong_index_entry() -> None:
    """Only so many events are kept, and a compacted segment has thousands of gaps."""
    gapped = [BatchHeader(base_offset=2 * i, last_offset_delta=0, leader_epoch=0, count=1) for i in range(1500)]
    window = scanned(b"".join(raw_batch(header, b"") for header in gapped))
    entries = struct.pack(">ii", 2990, window.at(1495)) + struct.pack(">ii", 2994, window.at(1497) + 1)
    survey = SegmentSurvey(0, NO_NEXT, entries, b"")
    survey.walk(window, 0, window.count)
    survey.finish()
    wrong = [event for event in survey.events if event[0] != "gap"]
    assert wrong == [("index no batch", window.at(1497) + 1, 1, 2994)]
    assert survey.dropped == 0
