"""The part that may be cleaned: each bound, each reason, each refusal; then the same questions to Kafka's own
manager."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from klog.base.errors import UnreadableError
from klog.cluster.metadata.metadata_image import TOPIC_RESOURCE
from klog.cluster.metadata.topic_config import SettingOrigin, TopicConfig
from klog.commands.compact.log_to_clean import (
    CleaningBound,
    CleaningLimit,
    DirtyStart,
    Eligibility,
    LastRecord,
    LogSections,
    examine,
    filthiest,
)
from klog.commands.compact.topic_rules import Refusal, RefusalReason, TopicRules
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition, segments_between

from tests.oracles.plain import encode
from tests.oracles.plain.encode import Producer, Record
from tests.support.metadata_logs import MetadataLog, config, topic

NOW_MS = 1_750_000_000_000
T = NOW_MS - 1_000_000
"""When most records were written."""
COMPACT = {"cleanup.policy": "compact"}


class Log:
    """A partition `t-0` that is written segment by segment."""

    def __init__(self, data: Path, directory: str = "t-0") -> None:
        self.data, self.path = data, data / directory
        self.path.mkdir(parents=True)
        self.end = 0

    def segment(self, *batches: bytes | int, base: int | None = None, times: Sequence[tuple[int, int]] = ()) -> int:
        """Write a segment; a number is so many records, a batch each.  *times*: of its time index.  Return its size."""
        base = self.end if base is None else base
        self.end = base
        content = b""
        for each in batches:
            if isinstance(each, bytes):
                content += each
                continue
            for _ in range(each):
                content += data(self.end)
                self.end += 1
        name = f"{base:020d}"
        (self.path / f"{name}.log").write_bytes(content)
        (self.path / f"{name}.index").touch()
        entries = times or ([(T, self.end - 1)] if content else [])
        (self.path / f"{name}.timeindex").write_bytes(encode.time_entries(base, entries))
        return len(content)

    def says(self, kind: str, offset: int, name: str = "t 0") -> None:
        """Write one of the log dir's checkpoints."""
        (self.data / f"{kind}-checkpoint").write_text(f"0\n1\n{name} {offset}\n")

    def snapshot(self, offset: int, *producers: Producer) -> None:
        (self.path / f"{offset:020d}.snapshot").write_bytes(encode.snapshot(producers))

    def examine(self, options: dict[str, str], everything: bool = False) -> LogSections | Refusal:
        """Ask, with the topic's settings as options, `_` for `.`."""
        given = {**COMPACT, **{name.replace("_", "."): text for name, text in options.items()}}
        log_dir = LogDir(str(self.data))
        partition = log_dir.partition(self.path.name)
        return examine(
            partition, TopicRules.of(TopicConfig(log_dir, given), partition.topic), NOW_MS, everything=everything
        )

    def sections(self, everything: bool = False, **options: str) -> LogSections:
        found = self.examine(options, everything)
        assert isinstance(found, LogSections), found
        return found

    def refused(self, **options: str) -> Refusal:
        found = self.examine(options)
        assert isinstance(found, Refusal), found
        return found


def data(offset: int, count: int = 1, timestamp: int = T, *, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A batch; of a producer it is part of a transaction."""
    records = [Record(offset + i, timestamp, b"k%d" % i, b"v" * 100) for i in range(count)]
    return encode.batch(records, producer=producer, transactional=producer[0] >= 0)


def marker(offset: int, producer_id: int, *, commit: bool = True) -> bytes:
    return encode.marker(offset, commit=commit, timestamp=T, producer_id=producer_id, producer_epoch=3,
                         coordinator_epoch=0)  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A log without owner, without segments yet."""
    return Log(tmp_path / "data")


@pytest.fixture
def four(log: Log) -> Log:
    """Segments 0, 10 and 20 of ten records each, and the active one, 30, with two."""
    for count in (10, 10, 10, 2):
        log.segment(count)
    return log


def ranges(sections: LogSections) -> list[tuple[int, int]]:
    parts = (sections.clean, sections.dirty, sections.uncleanable, sections.active)
    return [(part.first_offset, part.end_offset) for part in parts]


def bases(sections: LogSections) -> list[list[int]]:
    parts = (sections.clean, sections.dirty, sections.uncleanable, sections.active)
    return [[files.base_offset for files in part.segments] for part in parts]


# ---------------------------------------------------------------- where it is dirty from


def test_a_log_that_was_never_cleaned_is_dirty_from_its_start(four: Log) -> None:
    found = four.sections()
    assert (found.first_dirty, found.because, found.checkpoint) == (0, DirtyStart.NO_CHECKPOINT, None)
    assert ranges(found) == [(0, 0), (0, 30), (30, 30), (30, 32)]
    assert bases(found) == [[], [0, 10, 20], [], [30]]
    assert (found.log_start, found.log_end, found.first_uncleanable) == (0, 32, 30)
    assert (found.dirty_ratio, found.verdict, found.eligible) == (1.0, Eligibility.DIRTY, True)
    assert found.reason == "dirty ratio 1, above 0.5"


def test_it_is_dirty_from_the_cleaners_checkpoint_on(four: Log) -> None:
    four.says("cleaner-offset", 0)
    assert (four.sections().first_dirty, four.sections().because) == (0, DirtyStart.CHECKPOINT)
    four.says("cleaner-offset", 10)
    found = four.sections()
    assert (found.first_dirty, found.because) == (10, DirtyStart.CHECKPOINT)
    assert ranges(found) == [(0, 10), (10, 30), (30, 30), (30, 32)]
    assert bases(found) == [[0], [10, 20], [], [30]]
    assert found.dirty_ratio == found.dirty.bytes / (found.clean.bytes + found.dirty.bytes) == pytest.approx(2 / 3)


def test_a_segment_in_which_the_cleaner_stopped_counts_to_both_parts(four: Log) -> None:
    """The broker's sums overlap there, and its ratio decides about the first log."""
    four.says("cleaner-offset", 15)
    found = four.sections()
    assert ranges(found) == [(0, 15), (15, 30), (30, 30), (30, 32)]
    assert bases(found) == [[0, 10], [10, 20], [], [30]]
    assert found.dirty_ratio == pytest.approx(2 / 4)
    assert (found.verdict, found.reason) == (Eligibility.NOT_DIRTY, "dirty ratio 0.5, not above 0.5")


@pytest.mark.parametrize("checkpoint", [30, 31, 32])
def test_a_checkpoint_in_the_active_segment_leaves_nothing_to_clean(four: Log, checkpoint: int) -> None:
    four.says("cleaner-offset", checkpoint)
    found = four.sections(max_compaction_lag_ms="1")
    assert (found.because, found.verdict, found.eligible) == (DirtyStart.CHECKPOINT, Eligibility.NOTHING, False)
    assert ranges(found) == [(0, checkpoint), (checkpoint,) * 2, (checkpoint,) * 2, (checkpoint, 32)]
    assert (found.dirty.bytes, found.dirty_ratio, found.first_uncleanable) == (0, 0.0, 30)
    assert found.reason == "nothing is dirty below the active segment, from offset 30"


@pytest.mark.parametrize(("checkpoint", "because"), [(11, DirtyStart.BELOW_START), (33, DirtyStart.BEYOND_END)])
def test_a_checkpoint_outside_of_the_log_counts_as_none(four: Log, checkpoint: int, because: DirtyStart) -> None:
    """Retention has overtaken it, or the log was cut behind it: the cleaned part is unknown."""
    four.says("log-start-offset", 12)
    four.says("cleaner-offset", checkpoint)
    found = four.sections()
    assert (found.first_dirty, found.because, found.checkpoint) == (12, because, checkpoint)
    assert ranges(found) == [(12, 12), (12, 30), (30, 30), (30, 32)]
    assert bases(found) == [[0, 10], [10, 20], [], [30]]  # what lies below the log's start is written again too


def test_all_of_it_is_dirty_when_all_is_asked_for(four: Log) -> None:
    """Neither the checkpoint nor the ratio counts, but what must not be cleaned must not."""
    four.says("cleaner-offset", 20)
    four.says("replication-offset", 25)
    found = four.sections(everything=True, min_cleanable_dirty_ratio="1")
    assert (found.first_dirty, found.because, found.checkpoint) == (0, DirtyStart.ALL, 20)
    assert (found.verdict, found.reason) == (Eligibility.ALL, "the complete log was requested")
    assert bases(found) == [[], [0, 10], [20], [30]]


# ---------------------------------------------------------------- up to where


def test_it_is_cleaned_up_to_the_segment_with_the_high_watermark(four: Log) -> None:
    """Above it nothing is certain: a newer value for a key may be cut off again, and the older would be lost."""
    four.says("replication-offset", 29)
    found = four.sections()
    assert found.bounds == (CleaningBound(29, CleaningLimit.HIGH_WATERMARK), CleaningBound(30, CleaningLimit.ACTIVE))
    assert (found.high_watermark, found.first_uncleanable) == (29, 20)
    assert ranges(found) == [(0, 0), (0, 20), (20, 30), (30, 32)]
    assert bases(found) == [[], [0, 10], [20], [30]]


def test_a_high_watermark_below_what_was_cleaned_leaves_nothing_to_clean(four: Log) -> None:
    """The checkpoint of the high watermark is written seldom; the cleaned part is not held back afterwards."""
    four.says("replication-offset", 5)
    four.says("cleaner-offset", 15)
    found = four.sections()
    assert (found.verdict, found.first_uncleanable) == (Eligibility.NOTHING, 10)
    assert ranges(found) == [(0, 15), (15, 15), (15, 30), (30, 32)]
    assert bases(found) == [[0, 10], [], [10, 20], [30]]


@pytest.mark.parametrize(("checkpointed", "counts"), [(30, 30), (33, 32), (-1, 0)])
def test_a_high_watermark_is_inside_of_the_log(four: Log, checkpointed: int, counts: int) -> None:
    four.says("replication-offset", checkpointed)
    found = four.sections()
    assert CleaningBound(counts, CleaningLimit.HIGH_WATERMARK) in found.bounds
    assert found.first_uncleanable == min(counts, 30)


def test_without_a_high_watermark_the_end_of_the_log_counts(four: Log) -> None:
    four.says("replication-offset", 5, "other 0")
    found = four.sections()
    assert (found.high_watermark, found.bounds, found.first_uncleanable) == (
        None,
        (CleaningBound(30, CleaningLimit.ACTIVE),),
        30,
    )


@pytest.mark.parametrize(("lag", "first_uncleanable"), [(500, 30), (501, 20), (2000, 10), (10**9, 0)])
def test_segments_that_are_too_young_are_not_cleaned(log: Log, lag: int, first_uncleanable: int) -> None:
    """The largest timestamps of segments need not grow: the first segment that is too young ends it."""
    for age in (500_000, 1000, 500):
        log.segment(10, times=[(NOW_MS - age, log.end + 9)])
    log.segment(1)
    found = log.sections(min_compaction_lag_ms=str(lag))
    assert found.first_uncleanable == first_uncleanable
    expected = {20: NOW_MS - 500, 10: NOW_MS - 1000, 0: NOW_MS - 500_000}
    young = [bound for bound in found.bounds if bound.limit is CleaningLimit.MIN_LAG]
    assert [(bound.offset, bound.timestamp_ms) for bound in young] == [
        (offset, timestamp) for offset, timestamp in expected.items() if offset == first_uncleanable
    ]


def test_a_young_segment_that_was_cleaned_holds_nothing_back(log: Log) -> None:
    log.segment(10, times=[(NOW_MS, 9)])
    log.segment(10)
    log.segment(1)
    log.says("cleaner-offset", 10)
    assert log.sections(min_compaction_lag_ms="1000").first_uncleanable == 20


def test_a_segment_without_timestamps_is_as_old_as_its_file(log: Log) -> None:
    """Messages of before 0.10 have none, and an empty segment has no messages."""
    log.segment(encode.message(0, 0, b"k", b"v"), times=[(-1, 0)])
    os.utime(log.path / f"{0:020d}.log", ns=(0, (NOW_MS - 1001) * 1_000_000))
    log.segment(base=1)
    os.utime(log.path / f"{1:020d}.log", ns=(0, (NOW_MS - 999) * 1_000_000))
    log.segment(1, base=2)
    found = log.sections(min_compaction_lag_ms="1000")
    assert found.bounds[0] == CleaningBound(1, CleaningLimit.MIN_LAG, timestamp_ms=NOW_MS - 999)
    assert str(found.bounds[0]) == "segment 1, too young by min.compaction.lag.ms"
    assert log.sections(min_compaction_lag_ms="1002").bounds[0].timestamp_ms == NOW_MS - 1001


def test_the_log_is_asked_where_the_time_index_is_missing(four: Log) -> None:
    """Its file may be old, after a copy, and its content young."""
    (four.path / f"{10:020d}.timeindex").unlink()
    os.utime(four.path / f"{10:020d}.log", ns=(0, 0))
    assert four.sections(min_compaction_lag_ms="1000000").first_uncleanable == 30
    assert four.sections(min_compaction_lag_ms="1000001").first_uncleanable == 0
    (four.path / f"{0:020d}.timeindex").write_bytes(encode.time_entries(0, [(1, 9)]))
    assert four.sections(min_compaction_lag_ms="1000001").first_uncleanable == 10


# ---------------------------------------------------------------- transactions and producers


def test_an_open_transaction_holds_back_what_follows(log: Log) -> None:
    """It is undecided whether its records count, and the records that they replace must be kept until then."""
    log.segment(5)
    log.segment(data(5, 2, producer=(7, 3, 0)), data(7, 2, producer=(8, 3, 0)), base=5)
    log.segment(marker(9, 8), data(10), base=9)
    log.segment(data(11), base=11)
    found = log.sections()
    assert found.bounds[0] == CleaningBound(5, CleaningLimit.TRANSACTION, 7)
    assert found.first_uncleanable == 5
    assert str(found.bounds[0]) == "a transaction of producer 7, open since offset 5"
    assert found.producers == {7: LastRecord(6, 3), 8: LastRecord(8, 3)}
    log.segment(marker(12, 7, commit=False), base=12)
    assert [bound.limit for bound in log.sections().bounds] == [CleaningLimit.ACTIVE]


def test_a_transaction_that_ended_above_the_high_watermark_is_still_open(log: Log) -> None:
    """A replica that is cut to the high watermark loses the marker, and may get another one."""
    log.segment(data(0, 4, producer=(7, 3, 0)), base=0)
    log.segment(data(4, 4), base=4)
    log.segment(marker(8, 7), data(9), base=8)
    log.segment(data(10), base=10)
    log.says("replication-offset", 9)
    assert [bound.limit for bound in log.sections().bounds] == [CleaningLimit.HIGH_WATERMARK, CleaningLimit.ACTIVE]
    log.says("replication-offset", 8)
    found = log.sections()
    assert found.bounds[0] == CleaningBound(0, CleaningLimit.TRANSACTION, 7)
    assert (found.verdict, found.dirty.bytes) == (Eligibility.NOTHING, 0)
    assert found.reason == "nothing is dirty below a transaction of producer 7, open since offset 0"
    assert found.producers == {7: LastRecord(3, 3)}


def test_a_snapshot_spares_reading_the_log(four: Log) -> None:
    """A broker after a clean stop has left one at the end; its content counts."""
    four.snapshot(32, Producer(7, 2, 5, 21, 0, T), Producer(8, 4, timestamp=T, transaction_start=12))
    found = four.sections()
    assert found.producers == {7: LastRecord(21, 2), 8: LastRecord(None, 4)}
    assert found.bounds[0] == CleaningBound(12, CleaningLimit.TRANSACTION, 8)
    four.says("log-start-offset", 15)
    assert four.sections().bounds[0] == CleaningBound(15, CleaningLimit.TRANSACTION, 8)


def test_the_log_is_followed_from_the_newest_good_snapshot_on(log: Log) -> None:
    """A broken one is worth nothing to a broker.  One above the high watermark does not contain the open ones."""
    log.segment(data(0, 2, producer=(5, 3, 0)), base=0)
    log.segment(data(2, 2, producer=(6, 3, 0)), base=2)
    log.segment(data(4, producer=(6, 3, 2)), base=4)
    log.snapshot(2, Producer(9, 1, 0, 1, 0, T))
    log.snapshot(4, Producer(8, 1, 0, 1, 0, T))
    log.says("replication-offset", 4)
    broken = log.path / f"{4:020d}.snapshot"
    content = broken.read_bytes()
    broken.write_bytes(content[:-1] + bytes([content[-1] ^ 0xFF]))
    found = log.sections()
    assert found.producers == {9: LastRecord(1, 1), 6: LastRecord(4, 3)}
    assert found.bounds[0] == CleaningBound(2, CleaningLimit.TRANSACTION, 6)
    log.snapshot(5, Producer(4, 1, 0, 1, 0, T))
    found = log.sections()
    assert found.producers == {4: LastRecord(1, 1)}
    assert found.bounds[0] == CleaningBound(2, CleaningLimit.TRANSACTION, 6)


def test_a_transaction_that_began_below_the_logs_start_is_known_from_a_later_snapshot(four: Log) -> None:
    """Those of before the start count no more, and the one at the end is above the high watermark."""
    four.says("log-start-offset", 15)
    four.says("replication-offset", 25)
    four.snapshot(10, Producer(8, 4, timestamp=T, transaction_start=9))
    four.snapshot(32, Producer(8, 4, timestamp=T, transaction_start=9))
    assert four.sections().bounds[0] == CleaningBound(15, CleaningLimit.TRANSACTION, 8)
    four.snapshot(32, Producer(8, 4, timestamp=T, transaction_start=25))
    assert four.sections().bounds[0] == CleaningBound(25, CleaningLimit.HIGH_WATERMARK)


def test_producers_that_were_idle_for_long_are_not_active(four: Log) -> None:
    """Nothing is kept for their sake; one with an open transaction is never idle."""
    day = 86_400_000
    four.snapshot(
        32,
        Producer(7, 2, 5, 21, 0, NOW_MS - day + 1),
        Producer(8, 2, 5, 22, 0, NOW_MS - day),
        Producer(9, 2, 5, 25, 0, 0, transaction_start=25),
    )
    assert set(four.sections().producers) == {7, 9}
    assert set(four.sections(producer_id_expiration_ms="1000").producers) == {9}


def test_a_producer_that_wrote_since_the_snapshot_is_active_however_old_its_records(log: Log) -> None:
    """A broker that starts forgets those of the snapshot alone, before it reads on."""
    log.segment(5)
    log.segment(data(5, timestamp=1, producer=(7, 3, 0)), marker(6, 7), base=5)
    log.snapshot(5, Producer(6, 2, 5, 4, 0, 1))
    assert log.sections().producers == {7: LastRecord(5, 3)}


def test_producers_are_not_followed_where_nothing_is_dirty(four: Log) -> None:
    """On a log dir of thousands of clean logs that would be most of the work."""
    four.snapshot(32, Producer(7, 2, 5, 21, 0, T))
    four.says("cleaner-offset", 30)
    assert four.sections().producers == {}


# ---------------------------------------------------------------- whether, and which first


@pytest.mark.parametrize(("ratio", "eligible"), [("0", True), ("0.49", True), ("0.5", False), ("1", False)])
def test_a_log_is_cleaned_when_its_dirty_part_is_above_the_least_ratio(four: Log, ratio: str, eligible: bool) -> None:
    four.says("cleaner-offset", 15)
    assert four.sections(min_cleanable_dirty_ratio=ratio).eligible is eligible


def test_a_log_that_has_been_dirty_for_too_long_is_cleaned_whatever_its_ratio(log: Log) -> None:
    """The first batch of each dirty segment with a timestamp counts; the limit itself is not too long yet."""
    log.segment(10)
    log.segment(data(10, timestamp=NOW_MS - 5000), data(11, timestamp=1), base=10)
    log.segment(data(12, timestamp=NOW_MS - 9000), base=12)
    log.segment(data(13, timestamp=0), base=13)
    log.segment(data(14, timestamp=5), base=14)
    log.says("cleaner-offset", 10)
    found = log.sections(min_cleanable_dirty_ratio="1", max_compaction_lag_ms="8999")
    assert (found.verdict, found.eligible, found.overdue_ms) == (Eligibility.OVERDUE, True, 1)
    assert found.reason == "dirty for 1 ms longer than max.compaction.lag.ms"
    found = log.sections(min_cleanable_dirty_ratio="1", max_compaction_lag_ms="9000")
    assert (found.verdict, found.eligible, found.overdue_ms) == (Eligibility.NOT_DIRTY, False, 0)
    log.says("cleaner-offset", 13)
    assert log.sections(max_compaction_lag_ms="1").overdue_ms == 0


def test_the_filthiest_log_comes_first(tmp_path: Path) -> None:
    """The broker's choice; between equals, where it has none, the order is always the same."""
    found = []
    for directory, cleaned in (("b-10", 0), ("b-9", 0), ("a-0", 10), ("c-0", 20), ("d-0", 30)):
        log = Log(tmp_path / directory, directory)
        for count in (10, 10, 10, 1):
            log.segment(count)
        log.says("cleaner-offset", cleaned, directory.replace("-", " "))
        found.append(log.sections())
    assert [one.partition.directory for one in filthiest(found)] == ["b-9", "b-10", "a-0"]


def test_segments_are_chosen_as_kafkas_ranges_choose_them(four: Log) -> None:
    """From the one that holds the first offset on; an empty range is empty even inside of a segment."""
    segments = LogDir(str(four.data)).partition("t-0").segments

    def chosen(first: int, end: int) -> list[int]:
        return [files.base_offset for files in segments_between(segments, first, end)]

    assert chosen(0, 30) == [0, 10, 20]
    assert chosen(15, 21) == [10, 20]
    assert chosen(15, 15) == chosen(20, 10) == []
    assert chosen(-5, 1) == [0]
    assert chosen(40, 50) == [30]


# ---------------------------------------------------------------- the topic's settings


@pytest.fixture
def told(tmp_path: Path) -> Log:
    """A log dir whose metadata log has a compacted topic t, and other policies for u and v."""
    metadata = MetadataLog(tmp_path / "data")
    metadata.add(*(topic(name, number) for number, name in enumerate("tuv")))
    metadata.add(config(TOPIC_RESOURCE, "t", "cleanup.policy", "compact,delete"))
    metadata.add(config(TOPIC_RESOURCE, "t", "delete.retention.ms", "5"))
    metadata.add(config(TOPIC_RESOURCE, "u", "cleanup.policy", "delete"))
    metadata.add(config(TOPIC_RESOURCE, "v", "cleanup.policy", "compact"))
    metadata.add(config(TOPIC_RESOURCE, "v", "remote.storage.enable", "true"))
    return Log(tmp_path / "data")


def ask(data: Path, directory: str, options: dict[str, str] | None = None) -> LogSections | Refusal:
    """Examine one more partition of *data*, with only the log dir and *options*."""
    if not (data / directory).exists():
        Log(data, directory).segment(1)
    log_dir = LogDir(str(data))
    partition = log_dir.partition(directory)
    return examine(partition, TopicRules.of(TopicConfig(log_dir, options or {}), partition.topic), NOW_MS)


def test_settings_come_with_their_origin(told: Log) -> None:
    rules = TopicRules.of(TopicConfig(LogDir(str(told.data)), {"segment.bytes": "77"}), "t")
    assert (rules.policy.words, rules.policy.origin) == (("compact", "delete"), SettingOrigin.TOPIC)
    assert (rules.delete_retention_ms.number, rules.delete_retention_ms.origin) == (5, SettingOrigin.TOPIC)
    assert (rules.segment_bytes.number, rules.segment_bytes.origin) == (77, SettingOrigin.OPTION)
    assert (rules.min_dirty_ratio.ratio, rules.min_dirty_ratio.origin) == (0.5, SettingOrigin.DEFAULT)
    assert (rules.remote_storage.flag, rules.max_message_bytes.number) == (False, 1_048_588)
    assert [rules.index_bytes.number, rules.index_interval_bytes.number] == [10 << 20, 4096]
    assert [rules.min_lag_ms.number, rules.max_lag_ms.number] == [0, 2**63 - 1]
    assert rules.producer_expiration_ms.number == 86_400_000


def test_a_topic_that_is_compacted_and_deleted_from_is_compacted(told: Log) -> None:
    assert isinstance(ask(told.data, "t-1"), LogSections)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_kafkas_own_topics_are_known(told: Log, name: str) -> None:
    assert isinstance(ask(told.data, f"{name}-3"), LogSections)


@pytest.mark.parametrize(
    ("directory", "ground", "says"),
    [
        ("u-0", RefusalReason.POLICY, "cleanup.policy=delete; --policy compact compacts it anyway"),
        ("w-0", RefusalReason.POLICY, "the topic's cleanup.policy is unknown here; --metadata DIR"),
        ("v-0", RefusalReason.TIERED, "remote.storage.enable=true"),
        ("__cluster_metadata-0", RefusalReason.METADATA_LOG, "the metadata log has no keys"),
    ],
)
def test_what_is_not_known_to_be_compacted_is_refused(
    told: Log, directory: str, ground: RefusalReason, says: str
) -> None:
    """Records without keys, or whose older ones count too, would be lost."""
    found = ask(told.data, directory)
    assert isinstance(found, Refusal)
    assert (found.ground, found.path, found.needs_recover) == (ground, str(told.data / directory), False)
    assert says in str(found)
    assert str(found).startswith(f"{told.data / directory}: ")
    despite = ask(told.data, directory, COMPACT)
    assert isinstance(despite, LogSections if ground is RefusalReason.POLICY else Refusal)


# ---------------------------------------------------------------- obstacles


@pytest.mark.parametrize("state", ["delete", "future", "stray"])
def test_a_directory_that_is_not_in_use_is_left_alone(tmp_path: Path, state: str) -> None:
    log = Log(tmp_path / "data", f"t-0.{'0' * 32}-{state}")
    log.segment(1)
    found = log.refused()
    assert (found.ground, found.needs_recover) == (RefusalReason.NOT_CURRENT, False)
    assert f"not in use (-{state})" in str(found)


@pytest.mark.parametrize("suffix", ["log.cleaned", "timeindex.swap", "log.deleted", "snapshot.deleted"])
def test_an_operation_that_did_not_end_has_to_be_settled_first(four: Log, suffix: str) -> None:
    """A swap that a broker would finish can replace what would be cleaned."""
    (four.path / f"{10:020d}.{suffix}").touch()
    found = four.refused()
    assert (found.ground, found.needs_recover) == (RefusalReason.UNFINISHED, True)
    assert str(found).endswith(f"{suffix}: left by an interrupted operation; first: klog recover {four.path}")


def test_segments_that_overlap_have_to_be_settled_first(four: Log) -> None:
    """Two records of one offset: compaction cannot decide which one counts."""
    with (four.path / f"{10:020d}.log").open("ab") as file:
        file.write(data(20))
    found = four.refused()
    assert (found.ground, found.needs_recover) == (RefusalReason.OVERLAP, True)
    assert f"{10:020d}.log reaches to offset 20, and {20:020d}.log begins there or below" in str(found)


@pytest.mark.parametrize("base", [10, 30])
def test_damage_between_entries_has_to_be_settled_first(four: Log, base: int) -> None:
    magic = 16
    with (four.path / f"{base:020d}.log").open("ab") as file:
        file.write(data(base + 10)[:magic] + b"\x09" + data(base + 10)[magic + 1 :])
    found = four.refused()
    assert (found.ground, found.needs_recover) == (RefusalReason.DAMAGED, True)
    assert f"t-0: {base:020d}.log @ " in str(found)
    assert f"first: klog recover {four.path}" in str(found)


def test_a_torn_tail_of_the_active_segment_is_not_in_the_way(four: Log) -> None:
    """A broker that died leaves one; it is not read by compaction, and a start cuts it."""
    with (four.path / f"{30:020d}.log").open("ab") as file:
        file.write(data(32)[:-1])
    found = four.sections()
    assert (found.log_end, found.eligible) == (32, True)
    (four.path / f"{20:020d}.log").write_bytes((four.path / f"{30:020d}.log").read_bytes())
    assert four.refused().ground is RefusalReason.DAMAGED


def test_damage_where_producers_have_to_be_followed_has_to_be_settled_first(four: Log) -> None:
    """The state behind it would be a guess, and an open transaction could be overlooked."""
    log = four.path / f"{30:020d}.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 0xFF
    log.write_bytes(content)
    found = four.refused()
    assert (found.ground, "bad CRC" in found.what) == (RefusalReason.DAMAGED, True)
    four.snapshot(32)
    assert four.sections().eligible


def test_a_log_that_starts_beyond_its_end_has_to_be_settled_first(four: Log) -> None:
    four.says("log-start-offset", 33)
    found = four.refused()
    assert (found.ground, found.needs_recover) == (RefusalReason.DAMAGED, True)
    assert "starts at offset 33 by log-start-offset-checkpoint, and ends at 32" in str(found)


def test_names_that_no_broker_writes_are_refused(four: Log) -> None:
    (four.path / "5.log").touch()
    assert four.refused().ground is RefusalReason.NAMES


def test_a_partition_without_a_segment_is_refused_and_one_that_cannot_be_listed_raises(log: Log) -> None:
    assert log.refused().ground is RefusalReason.NO_SEGMENT
    partition = Partition(str(log.path))
    log.path.rmdir()
    with pytest.raises(UnreadableError, match="cannot be listed"):
        examine(partition, TopicRules.of(TopicConfig(None, COMPACT), "t"), NOW_MS)


def test_a_log_of_nothing_but_an_active_segment_has_nothing_to_clean(log: Log) -> None:
    log.segment(3)
    found = log.sections(everything=True)
    assert (found.verdict, ranges(found)) == (Eligibility.NOTHING, [(0, 0), (0, 0), (0, 0), (0, 3)])
