"""klog knows the segments that a broker knows: its cache is compared with Kafka's own, in one JVM."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from klog.cluster.remote_log.cache import EventOutcome, RemoteLogCache
from klog.cluster.remote_log.events import RemoteLogEvent, metadata_partition, read_event
from klog.cluster.remote_log.lineage import epochs_with_data, is_within_lineage
from klog.formats.checkpoint import EpochEntry
from klog.formats.internal_topics import Undecodable

from tests.oracles.remote_log_cache import RemoteLogOracle
from tests.support.remote_log_values import partition_deleted, started, updated, uuid

IDS = [uuid(1000 + number) for number in range(6)]
EVERY_QUERY = [(epoch, offset) for epoch in range(4) for offset in range(0, 64, 3)]


def taken(value: bytes) -> RemoteLogEvent:
    event = read_event(value)
    assert isinstance(event, RemoteLogEvent), event
    return event


def content(cache: RemoteLogCache) -> list[str]:
    """A cache's content, as the oracle prints Kafka's."""
    lines = []
    for one in cache.segments.values():
        custom = "null" if one.custom_metadata is None else one.custom_metadata.hex()
        epochs = "{" + ", ".join(f"{epoch}={start}" for epoch, start in one.epochs) + "}"
        facts = (one.segment_id, one.state.name, one.start_offset, one.end_offset, one.size, one.max_timestamp)
        flag = str(one.txn_index_empty).lower()
        lines.append(" ".join(map(str, ("segment", *facts, one.broker, one.event_timestamp, flag, custom, epochs))))
    for epoch, segments in cache.epochs.items():
        offsets = "".join(f"{start}={segment_id} " for start, segment_id in segments)
        highest = "null" if segments.highest is None else segments.highest
        lines.append(
            f"epoch {epoch} highest {highest} offsets {offsets}loose {' '.join(sorted(segments.unreferenced))}"
        )
    return sorted(lines)


def outcome(cache: RemoteLogCache, value: bytes) -> EventOutcome:
    event = read_event(value)
    return EventOutcome.REFUSED if isinstance(event, Undecodable) else cache.apply(event)


@st.composite
def epochs_of(draw: st.DrawFn, start: int, end: int) -> dict[int, int]:
    """Some epochs from *start* on, with empty ones between them."""
    numbers = sorted(draw(st.sets(st.integers(0, 3), min_size=1, max_size=3)))
    inside = sorted(draw(st.lists(st.integers(start, end + 1), min_size=len(numbers) - 1, max_size=len(numbers) - 1)))
    return dict(zip(numbers, [start, *inside], strict=True))


@st.composite
def first_records(draw: st.DrawFn) -> bytes:
    start = draw(st.integers(0, 50))
    end = start + draw(st.integers(0, 30))
    state = draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2, 3]))
    more = {"size": draw(st.integers(0, 9)), "at": draw(st.integers(0, 99)), "broker": draw(st.integers(1, 3))}
    custom = draw(st.sampled_from([None, None, b"", b"old"]))
    epochs = draw(epochs_of(start, end))
    empty = draw(st.booleans())
    return started(
        draw(st.sampled_from(IDS)), start, end, epochs, custom=custom, state=state, txn_index_empty=empty, **more
    )


@st.composite
def updates(draw: st.DrawFn) -> bytes:
    state = draw(st.sampled_from([0, 1, 1, 1, 1, 2, 2, 3, 3]))
    custom = draw(st.sampled_from([None, None, b"", b"new"]))
    broker, at = draw(st.integers(1, 3)), draw(st.integers(0, 99))
    return updated(draw(st.sampled_from(IDS)), state, custom=custom, broker=broker, at=at)


@st.composite
def copied(draw: st.DrawFn) -> list[bytes]:
    """A copy from its beginning to its end, perhaps with its deletion."""
    first = draw(first_records())
    event = read_event(first)
    if isinstance(event, Undecodable) or event.segment_id is None:
        return [first]
    states = draw(st.sampled_from([(1,), (1,), (1, 2), (1, 2, 3), (2, 3)]))
    return [first, *(updated(event.segment_id, state) for state in states)]


SEQUENCES = st.lists(st.one_of(copied(), copied(), updates().map(lambda one: [one])), max_size=14).map(
    lambda parts: [value for part in parts for value in part]
)


@pytest.mark.kafka
def test_the_cache_is_kafkas_after_any_events() -> None:
    """Legal and illegal transitions, overlapping copies, several epochs, in 2000 sequences."""
    with RemoteLogOracle() as oracle:
        seen = 0

        @settings(max_examples=2000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(SEQUENCES, st.booleans())
        def compare(values: list[bytes], initialized: bool) -> None:
            nonlocal seen
            seen += 1
            cache = RemoteLogCache()
            outcomes = [outcome(cache, value) for value in values]
            exceptions, theirs, found = oracle.cache(values, EVERY_QUERY, initialized=initialized)
            assert content(cache) == theirs
            ours = [cache.find(*query) for query in EVERY_QUERY]
            assert [one.segment_id if one else "-" for one in ours] == found
            refused = [name not in ("-", "RemoteResourceNotFoundException") for name in exceptions]
            assert [one is EventOutcome.REFUSED for one in outcomes] == refused

        compare()
        assert seen >= 2000


@st.composite
def lineages(draw: st.DrawFn) -> list[tuple[int, int]]:
    epochs = sorted(draw(st.sets(st.integers(0, 6), min_size=1, max_size=5)))
    starts = sorted(draw(st.lists(st.integers(0, 60), min_size=len(epochs), max_size=len(epochs))))
    return list(zip(epochs, starts, strict=True))


@pytest.mark.kafka
def test_segments_are_within_a_lineage_as_kafka_says() -> None:
    """2000 lineages; segments are cut out of them, then half of the time changed a little."""
    with RemoteLogOracle() as oracle:
        answers = {True: 0, False: 0}

        @settings(max_examples=2000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(lineages(), st.integers(0, 70), st.integers(0, 30), st.randoms(use_true_random=False))
        def compare(lineage: list[tuple[int, int]], start: int, length: int, dice: random.Random) -> None:
            end = start + length
            before = [epoch for epoch, first in lineage if first <= start]
            own = {before[-1]: start} if before else {lineage[0][0]: start}
            own |= {epoch: first for epoch, first in lineage if start < first <= end}
            if dice.random() < 0.5:
                epoch = dice.choice(sorted(own))
                own[epoch] += dice.choice([-1, 1])
                if dice.random() < 0.3:
                    own[epoch + 1] = own[epoch]
            value = started(IDS[0], max(start, 0), max(end, 0), dict(sorted(own.items())))
            event = read_event(value)
            if isinstance(event, Undecodable) or event.segment is None:
                return
            log_end = dice.choice([end, end + 1, 200])
            known = epochs_with_data([EpochEntry(*one) for one in lineage])
            ours = is_within_lineage(event.segment, known, log_end)
            answers[ours] += 1
            assert ours == oracle.is_within(value, lineage, log_end)

        compare()
        assert min(answers.values()) > 200


@pytest.mark.kafka
def test_ten_thousand_partitions_have_their_events_in_kafkas_place() -> None:
    dice = random.Random(42)
    asked = [(uuid(dice.getrandbits(128)), dice.choice([0, 1, 7, 50_000, 2**31 - 1])) for _ in range(10_000)]
    with RemoteLogOracle() as oracle:
        for count in (50, 3):
            ours = [metadata_partition(topic_id, number, count) for topic_id, number in asked]
            assert ours == oracle.metadata_partitions(count, asked)


def test_known_places() -> None:
    """The vectors of RemoteLogMetadataTopicPartitioner."""
    for topic_id, number, of_50, of_3 in (
        ("YdUsondnT3OqRYdpk5Bd4Q", 0, 40, 2),
        ("YdUsondnT3OqRYdpk5Bd4Q", 1, 44, 1),
        ("_yn1-6bzQbKpjbmNZndxpg", 0, 20, 2),
        ("AAAAAAAAAAAAAAAAAAAAAQ", 7, 46, 2),
    ):
        assert (metadata_partition(topic_id, number, 50), metadata_partition(topic_id, number, 3)) == (of_50, of_3)


def test_a_longer_copy_supersedes_shorter_ones_and_no_other() -> None:
    """Another leader copies the same offsets again; segments of which it copied less stay."""
    cache = RemoteLogCache()
    for segment_id, start, end in ((IDS[0], 0, 10), (IDS[1], 11, 20), (IDS[2], 0, 30), (IDS[3], 5, 8)):
        cache.apply(taken(started(segment_id, start, end, {0: start})))
        cache.apply(taken(updated(segment_id, 1)))
    assert list(cache.epochs[0]) == [(0, IDS[2]), (5, IDS[3])]
    assert cache.epochs[0].unreferenced == {IDS[0], IDS[1]}
    assert [found.segment_id if (found := cache.find(0, offset)) else None for offset in (4, 8, 9)] == [
        IDS[2],
        IDS[3],
        None,
    ]


def test_a_segment_ends_with_its_deletion() -> None:
    cache = RemoteLogCache()
    for value in (started(IDS[0], 0, 9, {0: 0}), updated(IDS[0], 1), updated(IDS[0], 2), updated(IDS[0], 3)):
        assert cache.apply(taken(value)) is EventOutcome.TAKEN
    assert (cache.segments, cache.deleted, list(cache.epochs[0])) == ({}, 1, [])
    assert cache.apply(taken(updated(IDS[0], 3))) is EventOutcome.DROPPED


def test_an_unknown_or_malformed_record_is_a_value() -> None:
    for value, reason in (
        (b"", "Error while reading frame version"),
        (b"\1\7\0", "Unknown metadata id 7"),
        (started(IDS[0], 5, 4, {0: 5}), "less than startOffset"),
        (started(IDS[0], 0, 4, {}), "can not be null or empty"),
        (started(IDS[0], 0, 4, {0: 0}, state=1), "cannot have the state COPY_SEGMENT_FINISHED"),
        (updated(IDS[0], 9), "state can not be null"),
        (updated(IDS[0], 1)[:-3], "Failed to deserialize"),
        (partition_deleted(5), ""),
    ):
        found = read_event(value)
        assert isinstance(found, Undecodable)
        assert reason in (found.message or "")
