"""The events of real brokers' `__remote_log_metadata`: the same segments as in an independent reader's truth."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from klog.base.errors import KlogError
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.cluster.remote_log.events import TopicIdPartition, metadata_partition
from klog.cluster.remote_log.lineage import chain, history_of, holes, is_within_lineage
from klog.cluster.remote_log.remote_log import RemoteLog, metadata_of, read_remote_log
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition_identity import IdentityError
from klog.formats.checkpoint import EpochEntry, epochs_in_force

from tests.conftest import CORPORA, writable_copy
from tests.oracles.plain.encode import Record, batch
from tests.support.metadata_logs import MetadataLog, topic, value
from tests.support.remote_log_values import Whose, partition_deleted, started, updated, uuid
from tests.support.tiers import IMAGES, situation

TOPIC = "__remote_log_metadata"
ONE, TWO, THREE = uuid(1), uuid(2), uuid(3)


def log_dirs(folders: Sequence[Path]) -> list[LogDir]:
    return [LogDir(str(folder)) for folder in folders]


def rows(remote_log: RemoteLog) -> list[dict[str, Any]]:
    """The known segments, as the truths have them."""
    found = [
        {
            "topic": whose.topic,
            "topic_id": whose.topic_id,
            "partition": whose.number,
            "segment_id": one.segment_id,
            "state": one.state.name,
            "start_offset": one.start_offset,
            "end_offset": one.end_offset,
            "size": one.size,
            "max_timestamp": one.max_timestamp,
            "epochs": {str(epoch): start for epoch, start in one.epochs},
            "txn_index_empty": one.txn_index_empty,
            "custom": None if one.custom_metadata is None else one.custom_metadata.hex(),
        }
        for whose, cache in remote_log.caches.items()
        for one in cache.ordered()
    ]
    return ordered(found)


def ordered(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda one: [one[name] for name in ("topic", "topic_id", "partition", "segment_id")])


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), IMAGES)
def test_the_segments_of_real_brokers(image: Callable[[str], Path], name: str, moment: str) -> None:
    found = situation(image, name, moment)
    dirs = log_dirs(found.data)
    remote_log = read_remote_log(dirs, cluster=metadata_of(dirs))
    assert rows(remote_log) == ordered(found.truth["segments"][moment])
    deleted = {f"{whose} {whose.topic_id}": cache.deleted for whose, cache in remote_log.caches.items()}
    assert deleted == found.truth["deleted_segments"][moment]
    idle = (remote_log.dropped, remote_log.refused, remote_log.misplaced)
    assert (remote_log.count, remote_log.faults, [one.count for one in idle]) == (3, [], [0, 0, 0])


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), IMAGES)
def test_the_chain_reaches_as_far_as_brokers_answered(image: Callable[[str], Path], name: str, moment: str) -> None:
    """ListOffsets -5; a partition with `remote.log.copy.disable` answers -1 after a restart, whatever it has."""
    found = situation(image, name, moment)
    remote_log = read_remote_log(log_dirs(found.data))
    caches = {(str(whose), whose.topic_id): cache for whose, cache in remote_log.caches.items()}
    for name, answers in found.clients.items():
        partition, offsets = LogDir(str(found.leader)).partition(name), answers["offsets"]
        cache = caches.get((name, partition.topic_id or ""))
        if cache is None or name == "stopped-0":
            continue
        assert partition.epochs is not None
        epochs = epochs_in_force(partition.epochs.entries)
        links = list(chain(cache, epochs, offsets["earliest"]))
        assert (links[-1].last if links else -1) == offsets["latest_tiered"]
        assert holes(links, offsets["earliest"], partition.segments[0].base_offset) == []
        assert [one.segment.segment_id for one in links if one.is_dead_tail] == (
            [one.segment.segment_id for one in links if not is_within_lineage(one.segment, epochs, offsets["latest"])]
        )
        shown, end = history_of(cache.segments.values()), links[-1].last if links else -1
        assert [one.epoch for one in shown] == [one.epoch for one in epochs if one.start_offset <= end]


@pytest.fixture
def model() -> Iterator[ModuleType]:
    """The corpora's own reader of the topic, which shares nothing with klog."""
    folder = CORPORA / "tiered/make"
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("tier_model", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tier_model"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(folder))
    for name in ("tier_model", "decode"):
        sys.modules.pop(name, None)


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["house391", "orphans", "unclean"])
def test_at_any_time_it_is_a_replay_up_to_then(image: Callable[[str], Path], model: ModuleType, name: str) -> None:
    found = situation(image, name)
    events = model.events(found.data)
    for time in sorted({event["ts"] for event in events} | {0}):
        caches: dict[tuple[str, str, int], Any] = {}
        for event in events:
            if event["ts"] <= time:
                whose = (event["topic"], event["topic_id"], event["partition"])
                caches.setdefault(whose, model.Cache()).apply(event)
        theirs = {
            (*whose, one["segment_id"], model.STATES[one["state"]])
            for whose in caches
            for one in caches[whose].segments.values()
        }
        ours = read_remote_log(log_dirs(found.data), until_ms=time)
        found_rows = [
            [one[key] for key in ("topic", "topic_id", "partition", "segment_id", "state")] for one in rows(ours)
        ]
        assert {tuple(one) for one in found_rows} == theirs


# logs to order


def written(folder: Path, values: Sequence[bytes | None], number: int = 0, count: int = 1) -> LogDir:
    """A log dir with *count* partitions of the topic; *values* are the records of partition *number*."""
    for each in range(count):
        partition = folder / f"{TOPIC}-{each}"
        partition.mkdir(parents=True)
        (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(99)}\n")
        content = [Record(i, 100 + i, None, value) for i, value in enumerate(values)] if each == number else []
        (partition / f"{0:020}.log").write_bytes(batch(content) if content else b"")
    (folder / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=1\n")
    return LogDir(str(folder))


def test_events_that_change_nothing_are_counted_and_named(tmp_path: Path) -> None:
    """A dropped, a refused and a misplaced one, each with its place; a null value is nothing."""
    misplaced = next(
        one for one in (Whose("other", n, uuid(11)) for n in range(9)) if metadata_partition(uuid(11), one.number, 2)
    )
    values = [
        *(started(ONE, 0, 9, {0: 0}), updated(ONE, 1), updated(TWO, 1), b"\7", None, updated(ONE, 0)),
        started(THREE, 0, 9, {0: 0}, whose=misplaced),
    ]
    data = written(tmp_path / "data", values, number=0, count=2)
    found = read_remote_log([data], cluster=of_partitions(tmp_path / "metadata", 2))
    assert [one.segment_id for cache in found.caches.values() for one in cache.ordered()] == [ONE]
    assert [(one.place.offset, one.event and one.event.segment_id) for one in found.dropped.named] == [
        (2, TWO),
        (5, ONE),
    ]
    assert [(one.place, one.reason) for one in found.refused.named] == [
        (
            (0, 3, 103),
            "Could not deserialize metadata record due to unknown frame version 7(only frame version 1 is supported)",
        )
    ]
    assert [(one.place.offset, one.event and one.event.partition) for one in found.misplaced.named] == [(6, misplaced)]
    assert found.events == 6


def of_partitions(folder: Path, count: int) -> ClusterMetadata:
    """The content of a metadata log in which the topic has *count* partitions."""
    log = MetadataLog(folder)
    log.add(topic(TOPIC, 99))
    known = {"replicas": [1], "isr": [1], "removingReplicas": [], "addingReplicas": [], "leader": 1}
    known |= {"leaderEpoch": 0, "partitionEpoch": 0, "directories": [uuid(5)]}
    for number in range(count):
        log.add(value("Partition", partitionId=number, topicId=uuid(99), **known))
    found = metadata_of([LogDir(str(folder))])
    assert found is not None
    return found


@pytest.mark.parametrize("missing", [(2,), (1, 2), (0, 2), ()])
def test_the_partitions_that_were_read_need_not_be_all(tmp_path: Path, missing: tuple[int, ...]) -> None:
    """Two of three passed for a topic of two: events were taken for misplaced, and segments had no entry."""
    whose = [Whose("orders", number, uuid(11)) for number in range(9)]
    for number in range(3):
        if number not in missing:
            own = [one for one in whose if metadata_partition(one.topic_id, one.number, 3) == number]
            written(tmp_path / str(number), [started(uuid(20 + one.number), 0, 9, {0: 0}, whose=one) for one in own])
            (tmp_path / f"{number}/{TOPIC}-0").rename(tmp_path / f"{number}/{TOPIC}-{number}")
    dirs = log_dirs([tmp_path / str(number) for number in range(3) if number not in missing])
    found, sure = read_remote_log(dirs), read_remote_log(dirs, cluster=of_partitions(tmp_path / "metadata", 3))
    assert (found.count, found.misplaced.count, sure.count, sure.misplaced.count) == (None, 0, 3, 0)
    for one in whose:
        partition = TopicIdPartition(*one)
        cache, certain = found.cache(partition), sure.cache(partition)
        assert (cache is None) == (certain is None) == (metadata_partition(one.topic_id, one.number, 3) in missing)
        if cache is not None and certain is not None:
            assert cache.segments == certain.segments != {}
    nobody = TopicIdPartition("other", 0, uuid(12))
    assert found.cache(nobody) is None, "its events may be in a partition that was not read"
    assert (sure.cache(nobody) is None) == (metadata_partition(uuid(12), 0, 3) in missing)


def test_an_update_cannot_begin_a_copy(tmp_path: Path) -> None:
    """A broker's consumer of the topic ends with such a record of a segment whose copy has begun."""
    values = [started(ONE, 0, 9, {0: 0}), updated(ONE, 0)]
    found = read_remote_log([written(tmp_path / "data", values)])
    assert [(one.place.offset, one.reason) for one in found.refused.named] == [(1, "an update cannot begin a copy")]


def test_ids_that_are_asked_for_are_known_as_deleted(tmp_path: Path) -> None:
    values = [value for one in (ONE, TWO) for value in (started(one, 0, 9, {0: 0}), updated(one, 2), updated(one, 3))]
    found = read_remote_log([written(tmp_path / "data", values)], watched={ONE, THREE})
    assert found.deleted_ids == {ONE}
    assert [cache.deleted for cache in found.caches.values()] == [2]


def test_a_deleted_partition_has_no_segments(tmp_path: Path) -> None:
    """No released broker writes these records; all read them."""
    values = [started(ONE, 0, 9, {0: 0}), partition_deleted(0), partition_deleted(2)]
    assert read_remote_log([written(tmp_path / "data", values[:2])]).caches
    assert not read_remote_log([written(tmp_path / "other", values)]).caches


def test_copies_of_the_topic_count_once_and_complete_each_other(tmp_path: Path) -> None:
    """One disk is behind, and what is damaged in one copy is read from the other."""
    values = [started(ONE, 0, 9, {0: 0}), updated(ONE, 1), started(TWO, 10, 19, {0: 10}), updated(TWO, 1)]
    whole, behind = written(tmp_path / "a", values), written(tmp_path / "b", values[:2])
    assert [
        one.state.name for cache in read_remote_log([behind, whole]).caches.values() for one in cache.ordered()
    ] == [*("COPY_SEGMENT_FINISHED", "COPY_SEGMENT_FINISHED")]
    assert read_remote_log([behind, whole]).events == 4
    log = tmp_path / "b" / f"{TOPIC}-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[80] ^= 0xFF
    log.write_bytes(data)
    found = read_remote_log([behind, whole])
    assert (found.events, len(found.faults)) == (4, 1)


def begins_at(folder: Path, offset: int) -> LogDir:
    """The log dir, of whose partition of the topic the records below *offset* were deleted."""
    (folder / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {offset}\n")
    return LogDir(str(folder))


def test_records_below_the_log_start_are_not_read(tmp_path: Path) -> None:
    """A broker does not read them either; that a segment was deleted is known without the events before."""
    values = [started(ONE, 0, 9, {0: 0}), updated(ONE, 1), started(TWO, 10, 19, {0: 10}), updated(TWO, 1)]
    values += [updated(ONE, 2), updated(ONE, 3), updated(THREE, 2)]
    written(tmp_path / "data", values)
    whose = TopicIdPartition(*Whose())
    for start, known, deleted in ((0, {TWO}, {ONE}), (1, {TWO}, {ONE}), (2, {TWO}, {ONE}), (4, set(), {ONE})):
        found = read_remote_log([begins_at(tmp_path / "data", start)], watched={ONE, TWO, THREE})
        assert (found.starts, found.lacks_events(whose)) == ({0: start}, start > 0)
        assert (found.caches[whose].segments.keys(), found.deleted_ids) == (known, deleted)
    late = read_remote_log([begins_at(tmp_path / "data", 6)], watched={ONE, TWO, THREE})
    assert (late.caches[whose].segments, late.deleted_ids) == ({}, set())


@pytest.mark.parametrize(
    ("spans", "start"),
    [
        (((0, 4), (2, 4)), 0),  # the other copy has them
        (((2, 4), (0, 4)), 0),
        (((0, 2), (2, 4)), 0),
        (((0, 1), (2, 4)), 2),  # an old disk, and nothing shows the records between
        (((0, 1), (1, 2), (2, 4)), 0),
        (((3, 4), (2, 4)), 2),
        (((0, 4), (0, 2)), 0),
    ],
)
def test_copies_have_every_record_from_an_offset_on(
    tmp_path: Path, spans: tuple[tuple[int, int], ...], start: int
) -> None:
    """Each copy has the records from its log start to its end: a hole between two copies is one in the topic."""
    values = [started(ONE, 0, 9, {0: 0}), updated(ONE, 1), started(TWO, 10, 19, {0: 10}), updated(TWO, 1)]
    dirs = []
    for number, (first, end) in enumerate(spans):
        written(tmp_path / str(number), values[:end])
        dirs.append(begins_at(tmp_path / str(number), first))
    found = read_remote_log(dirs, cluster=of_partitions(tmp_path / "metadata", 1))
    assert (found.starts, found.events) == ({0: start}, 4 - start)
    assert found.lacks_events(TopicIdPartition(*Whose())) == (start > 0)


def test_copies_that_differ_are_refused(tmp_path: Path) -> None:
    dirs = [written(tmp_path / "a", [updated(ONE, 1)]), written(tmp_path / "b", [updated(TWO, 1)])]
    with pytest.raises(KlogError, match=r"different records at offset 0"):
        read_remote_log(dirs)


def test_log_dirs_of_two_clusters_are_refused(tmp_path: Path) -> None:
    dirs = [written(tmp_path / name, [updated(ONE, 1)]) for name in "ab"]
    (tmp_path / "b" / "meta.properties").write_text("version=1\ncluster.id=xyz\nnode.id=1\n")
    with pytest.raises(IdentityError):
        read_remote_log([dirs[0], LogDir(str(tmp_path / "b"))])


@pytest.mark.corpora
def test_reading_leaves_no_trace(image: Callable[[str], Path], tmp_path: Path) -> None:
    source = writable_copy(situation(image, "stuck").data[0], tmp_path / "data")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in source.rglob("*") if path.is_file()}
    read_remote_log([LogDir(str(source))])
    assert {
        path: (path.stat().st_mtime_ns, path.read_bytes()) for path in source.rglob("*") if path.is_file()
    } == before
    shutil.rmtree(source)


# lineages


def cache_of(*segments: tuple[str, int, int, dict[int, int]], folder: Path) -> Any:
    values = [value for one, *facts in segments for value in (started(one, *facts), updated(one, 1))]  # type: ignore[arg-type]
    return next(iter(read_remote_log([written(folder, values)]).caches.values()))


def test_a_dead_tail_is_cut_and_the_rest_looked_up_anew(tmp_path: Path) -> None:
    """The only segment with the last offsets of epoch 0 goes on with offsets of the dead leader."""
    cache = cache_of((ONE, 42, 62, {0: 42}), (TWO, 60, 69, {2: 60}), folder=tmp_path / "data")
    links = list(chain(cache, [EpochEntry(0, 0), EpochEntry(2, 60)], 45))
    assert [(one.first, one.last, one.segment.segment_id, one.is_dead_tail) for one in links] == [
        *((45, 59, ONE, True), (60, 69, TWO, False))
    ]


def test_a_segment_that_goes_on_with_the_history_is_read_through(tmp_path: Path) -> None:
    cache = cache_of((ONE, 10, 69, {0: 10, 2: 60}), (TWO, 60, 65, {2: 60}), folder=tmp_path / "data")
    links = list(chain(cache, [EpochEntry(0, 0), EpochEntry(2, 60)], 0))
    assert [(one.first, one.last, one.segment.segment_id) for one in links] == [(10, 69, ONE)]
    assert holes(links, 0, 80) == [(0, 9), (70, 79)]
    assert holes(links, 20, 60) == []


def test_a_hole_ends_at_the_next_segment_of_any_later_epoch(tmp_path: Path) -> None:
    cache = cache_of((ONE, 0, 9, {0: 0}), (TWO, 40, 49, {1: 40}), (THREE, 60, 69, {1: 60}), folder=tmp_path / "data")
    links = list(chain(cache, [EpochEntry(0, 0), EpochEntry(1, 30)], 0))
    assert holes(links, 0, 70) == [(10, 39), (50, 59)]
