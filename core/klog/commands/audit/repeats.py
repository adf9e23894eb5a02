"""Batches that a partition has twice: a producer without idempotence sent again, or a broker took them again."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from klog.commands.audit.batches import BatchContent
from klog.commands.audit.header_survey import HeaderSurvey
from klog.commands.audit.misrouted import TwinSearch
from klog.commands.audit.twins import Repeats, TwinPlace, repeats_in

_MOST_COMPARED: Final = 100
"""The number of repeated batches of a partition that are compared beyond digest and CRC."""


class RepeatedBatches(NamedTuple):
    """Batches that a partition has once more: how many, the first of them, and whether one has a producer id."""

    batches: int
    place: TwinPlace
    content: BatchContent
    has_producer: bool


def repeated_batches(survey: HeaderSurvey, search: TwinSearch) -> dict[int, RepeatedBatches]:
    """Return the repeated batches of judged partitions, by the places of the partitions."""
    counts: Counter[int] = Counter()
    kept: dict[int, list[Repeats]] = {}
    for one in repeats_in(survey.table.repeated(), survey.names):
        partition = one.first.partition
        if survey.partitions[partition].is_judged:
            counts[partition] += one.batches
            some = kept.setdefault(partition, [])
            some.append(one)
            if len(some) > 2 * _MOST_COMPARED:
                kept[partition] = _earliest(some)
    kept = {partition: _earliest(some) for partition, some in kept.items()}
    contents = search.read(place for some in kept.values() for one in some for place in (one.first, one.second))
    found: dict[int, RepeatedBatches] = {}
    for partition, some in kept.items():
        for place, content in _same(some, contents):
            if content.header.last_offset < survey.partitions[partition].log_start:
                continue
            has_producer = content.header.producer_id >= 0
            before = found.setdefault(partition, RepeatedBatches(counts[partition], place, content, has_producer))
            found[partition] = before._replace(has_producer=before.has_producer or has_producer)
    return found


def _earliest(some: list[Repeats]) -> list[Repeats]:
    return sorted(some, key=lambda one: one.second.number)[:_MOST_COMPARED]


def _same(some: list[Repeats], contents: dict[TwinPlace, BatchContent]) -> list[tuple[TwinPlace, BatchContent]]:
    """Return those that really are equal, with the content of the second place."""
    pairs = [(one.second, contents.get(one.first), contents.get(one.second)) for one in some]
    return [
        (place, again)
        for place, first, again in pairs
        if first is not None and again is not None and first.equals(again) == "same-bytes"
    ]
