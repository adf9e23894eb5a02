"""Options of the data source: those of Spark's own Kafka source are accepted, unknown ones are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from klog.base.errors import UsageError
from klog.jobs.spark_rows import KAFKA_COLUMNS
from klog.spark.ranges import NAMELESS
from klog.spark.read_bounds import EARLIEST, LATEST, OffsetBound
from klog.spark.read_tasks import chosen
from klog.spark.source_options import KAFKAS_OWN, SourceOptions, Topics, read_columns, read_options

HERE = {"path": "/data/broker-1"}


def read(streaming: bool = False, **options: str) -> SourceOptions:
    return read_options(HERE | {name.replace("__", "."): value for name, value in options.items()}, streaming)


def test_with_nothing_but_a_path_all_of_it_is_read() -> None:
    """A disk has an end, and a dead broker has no subscribers."""
    found = read()
    assert found.paths == ("/data/broker-1",)
    assert found.topics == Topics()
    assert (found.starting.everywhere, found.ending.everywhere) == (EARLIEST, LATEST)
    assert found.columns == KAFKA_COLUMNS
    assert (found.isolation, found.damage, found.replicas) == ("read_uncommitted", "fail", "longest")
    assert (found.pushdown, found.tasks, found.max_offsets) == (False, None, None)


def test_a_stream_begins_at_the_end_as_sparks_own_does() -> None:
    assert read(streaming=True).starting.everywhere == LATEST


def test_names_and_words_are_in_any_case() -> None:
    """Spark hands options over in small letters, whatever the job wrote."""
    found = read_options(HERE | {"STARTINGoffsets": "Earliest", "splitbytes": "64M", "Damage": "SKIP"})
    assert (found.starting.everywhere, found.split_bytes, found.damage) == (EARLIEST, 64 << 20, "skip")


def test_what_is_about_the_cluster_is_left_alone() -> None:
    """A job that moves to a disk keeps its addresses, credentials, time-outs and groups."""
    read(
        kafka__bootstrap__servers="broker:9092",
        kafka__security__protocol="SASL_SSL",
        groupIdPrefix="x",
        kafkaConsumer__pollTimeoutMs="7",
        fetchOffset__numRetries="3",
        maxRecordsPerPartition="100",
    )


def test_an_unknown_option_is_refused_with_what_it_may_have_been() -> None:
    """A filter that is misspelt and ignored reads everything, unnoticed."""
    with pytest.raises(UsageError, match=r"no option startingoffset; did you mean startingOffsets"):
        read(startingOffset="earliest")


@pytest.mark.parametrize(
    ("options", "isolation"),
    [
        ({"kafka.isolation.level": "read_committed"}, "read_committed"),
        ({"isolation": "read_committed"}, "read_committed"),
        ({"kafka.isolation.level": "read_committed", "isolation": "read_uncommitted"}, "read_uncommitted"),
    ],
)
def test_the_consumers_isolation_counts_and_ours_before_it(options: dict[str, str], isolation: str) -> None:
    """Aborted data in the answer, since the disk has an option of its own, would be a change of more than a word."""
    assert read_options(HERE | options).isolation == isolation


def test_who_accepts_data_loss_accepts_damage() -> None:
    assert read(failOnDataLoss="false").damage == "skip"
    assert read(failOnDataLoss="false", damage="fail").damage == "fail"


def test_a_time_counts_before_times_and_those_before_offsets() -> None:
    """The order of Spark's own source."""
    each = json.dumps({"orders": {"0": 7}})
    found = read(startingOffsets=each, startingOffsetsByTimestamp=each, startingTimestamp="5")
    assert found.starting == OffsetBound("startingTimestamp", 5, by_time=True)
    found = read(endingOffsets=each, endingOffsetsByTimestamp=each)
    assert found.ending == OffsetBound("endingOffsetsByTimestamp", None, {("orders", 0): 7}, by_time=True)


def test_offsets_are_given_for_each_partition() -> None:
    found = read(startingOffsets='{"orders": {"0": 23, "1": -2}}', endingOffsets='{"orders": {"0": -1, "1": 42}}')
    assert [found.starting.of(("orders", number)) for number in (0, 1)] == [23, EARLIEST]
    assert [found.ending.of(("orders", number)) for number in (0, 1)] == [LATEST, 42]
    assert found.starting.named == {("orders", 0), ("orders", 1)}


def test_who_names_one_partition_names_all() -> None:
    """Silence about a partition could mean all of it or nothing of it."""
    with pytest.raises(UsageError, match=r"startingOffsets: nothing for orders-1; .*-2 is for the earliest"):
        read(startingOffsets='{"orders": {"0": 23}}').starting.of(("orders", 1))
    assert read(startingOffsets="earliest").starting.of(NAMELESS) == EARLIEST


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("startingOffsets", "latest", "leaves nothing"),
        ("startingOffsets", '{"a": {"0": -1}}', "leaves nothing"),
        ("endingOffsets", "earliest", "leaves nothing"),
        ("endingOffsets", '{"a": {"0": -2}}', "leaves nothing"),
        ("startingOffsets", "23", "expected JSON"),
        ("startingOffsets", '{"a": [1]}', "expected JSON"),
        ("startingOffsets", '{"a": {"x": 1}}', "expected JSON"),
        ("startingOffsets", '{"a": {"0": -3}}', "expected JSON"),
        ("startingOffsets", '{"a": {"0": 9223372036854775808}}', "expected JSON"),
        ("startingOffsets", '{"a": {"0": true}}', "expected JSON"),
        ("startingOffsets", "[" * 100_000, "expected JSON"),
        ("startingOffsetsByTimestamp", '{"a": {"0": -1}}', "expected JSON"),
        ("startingTimestamp", "yesterday", "not a time in milliseconds"),
        ("endingTimestamp", "-5", "not a time in milliseconds"),
        ("subscribe", " , ", "no topic"),
        ("subscribePattern", "", "empty"),
        ("subscribePattern", "(", "no regular expression"),
        ("assign", "orders", "expected JSON"),
        ("assign", '{"orders": []}', "expected JSON"),
        ("assign", '{"orders": [-1]}', "expected JSON"),
        ("assign", "{}", "expected JSON"),
        ("isolation", "read_comitted", "none of read_uncommitted, read_committed; did you mean read_committed"),
        ("kafka.isolation.level", "1", "none of"),
        ("damage", "ignore", "none of fail, skip, column"),
        ("replicas", "shortest", "none of longest, all, leader-epoch"),
        ("includeHeaders", "yes", "none of true, false"),
        ("splitBytes", "64 MB/s", "is not a size"),
        ("splitBytes", "100", "not between 4096 bytes"),
        ("splitBytes", "4g", "not between"),
        ("minPartitions", "0", "from 1 up"),
        ("maxOffsetsPerTrigger", "many", "from 1 up"),
        ("columns", "key,vaule", "no column 'vaule'; did you mean value"),
        ("columns", "key,key", "twice"),
        ("columns", "", "no column ''"),
        ("paths", "/data", "not a JSON list"),
    ],
)
def test_what_makes_no_sense_is_refused(option: str, value: str, said: str) -> None:
    """In one line that names the option, before anything is read."""
    here = {} if option == "paths" else HERE
    with pytest.raises(UsageError, match=said) as refused:
        read_options(here | {option: value})
    assert str(refused.value).startswith(option)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    with pytest.raises(UsageError, match="availableNow"):
        read(streaming=True, **{option: "latest"})


def test_only_one_says_which_topics() -> None:
    with pytest.raises(UsageError, match="subscribe and assign: at most one"):
        read(subscribe="orders", assign='{"orders": [0]}')


def test_topics_are_told_apart() -> None:
    assert read(subscribe="orders, payments,orders").topics == Topics(subscribed=("orders", "payments"))
    assert read(subscribePattern="ord.*").topics == Topics(pattern="ord.*")
    assert read(assign='{"orders": [1, 0]}').topics == Topics(assigned={"orders": frozenset((0, 1))})


@pytest.mark.parametrize(
    ("topics", "meant"),
    [
        (Topics(), {("orders", 0), ("orders", 1), ("old-orders", 0), (None, None)}),
        (
            Topics(subscribed=("orders", "__consumer_offsets")),
            {("orders", 0), ("orders", 1), ("__consumer_offsets", 0)},
        ),
        (Topics(pattern="ord.*|__.*"), {("orders", 0), ("orders", 1)}),
        (Topics(pattern="order"), set()),
        (Topics(assigned={"orders": frozenset((1,))}), {("orders", 1)}),
    ],
)
def test_internal_topics_are_only_read_by_name(topics: Topics, meant: set[tuple[str | None, int | None]]) -> None:
    """A pattern is the whole name's, as in Kafka's clients, and finds no internal topic there either."""
    assert "__consumer_offsets" in KAFKAS_OWN
    there = [("orders", 0), ("orders", 1), ("old-orders", 0), ("__consumer_offsets", 0), (None, None)]
    assert {(topic, number) for topic, number in there if topics.mean(topic, number)} == meant


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ({"path": "/a"}, ("/a",)),
        ({"path": "/a, /b"}, ("/a", "/b")),
        ({"paths": '["/a,b", "/c*"]'}, ("/a,b", "/c*")),
        ({"path": "/a/"}, ("/a",)),
        ({"path": "file:/a/, file:///b//c*"}, ("/a", "/b/c*")),
        ({"paths": '["FILE:/a", "/b/./c"]'}, ("/a", "/b/c")),
    ],
)
def test_there_may_be_several_paths(options: dict[str, str], paths: tuple[str, ...]) -> None:
    assert read_options(options).paths == paths


def test_a_comma_in_a_name_that_is_there_is_no_list(tmp_path: Path) -> None:
    folder = tmp_path / "one,two"
    folder.mkdir()
    assert read_options({"path": str(folder)}).paths == (str(folder),)


def test_however_log_dirs_are_named_they_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that counts twice, or whose path means something else in a task, is loss or repetition."""
    monkeypatch.chdir(tmp_path)
    for name in ("b1", "b2"):
        (tmp_path / name / "orders-0").mkdir(parents=True)
        (tmp_path / name / "orders-0" / f"{0:020}.log").write_bytes(b"")
        (tmp_path / name / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    ways = (
        "b1,b2",
        "b1/,./b2//",
        f"file:{tmp_path}/b1/,file://{tmp_path}/b2",
        "b*",
        f"file:{tmp_path}/b[12]/",
        "b1,b*",
    )
    for path in (*ways, "b1/orders-0/,b2/orders-0", "b?/orders-*/"):
        for replicas, count in (("all", 2), ("longest", 1)):
            found = chosen(read_options({"path": path, "replicas": replicas}))
            expected = [str(tmp_path / name / "orders-0") for name in ("b1", "b2")[:count]]
            assert [one.path for one in found] == expected, path
            assert [(one.topic, one.number) for one in found] == [("orders", 0)] * count


def test_a_directory_whose_name_looks_like_an_address_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file:" / "x").mkdir(parents=True)
    assert read_options({"path": "file:/x"}).paths == (str(tmp_path / "file:" / "x"),)


@pytest.mark.parametrize("options", [{}, {"path": ""}, {"path": "/a", "paths": '["/b"]'}, {"paths": "[]"}])
def test_there_is_a_path_and_it_is_said_once(options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="path"):
        read_options(options)


def test_columns_are_those_asked_for_and_what_others_bring() -> None:
    assert read_columns(HERE | {"includeHeaders": "true"}) == (*KAFKA_COLUMNS, "headers")
    assert read_columns(HERE | {"columns": "offset, key", "damage": "column"}) == ("offset", "key", "damage")
    assert read_columns(HERE | {"columns": "headers,damage", "damage": "column", "includeHeaders": "true"}) == (
        "headers",
        "damage",
    )
