"""The begin and end of a stream's micro-batches, and reasons to stop: no Spark runs here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from klog.base.errors import DamagedError, UnreadableError, UsageError
from klog.jobs.spark_rows import KAFKA_COLUMNS
from klog.log.log_end import LogEnd
from klog.spark.micro_batches import Offsets, StreamReader, shares
from klog.spark.read_tasks import Task
from klog.spark.source_options import read_options
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.oracles.plain.encode import Record
from tests.support.lookup_logs import MS, of_records, write_segment

ALL = ReadAllAvailable()


def write(
    data: Path, directory: str, end: int, *, base: int = 0, epochs: Sequence[tuple[int, int]] = ((4, 0),)
) -> Path:
    """Write a segment of *directory* from *base* to *end*, batches of ten, in *epochs*: (epoch, first offset)."""
    data.mkdir(exist_ok=True)
    (data / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    batches = []
    for first in range(base, end, 10):
        epoch = next(epoch for epoch, start in reversed(epochs) if start <= first)
        records = [Record(offset, MS + offset, None, b"v") for offset in range(first, min(first + 10, end))]
        batches += of_records([records], leader_epoch=epoch)
    return write_segment(data / directory, base, batches, interval=100)


def reader(data: Path, **options: str) -> StreamReader:
    given = {"path": str(data), "startingOffsets": "earliest"} | options
    return StreamReader(read_options(given, streaming=True), KAFKA_COLUMNS)


def at(**offsets: int) -> Offsets:
    return {name: {"offset": offset, "epoch": 4, "topic_id": None} for name, offset in offsets.items()}


def read(stream: StreamReader, start: Offsets, end: Offsets) -> list[tuple[str, int]]:
    """Return what the tasks of a micro-batch read."""
    found: list[tuple[str, int]] = []
    for task in stream.partitions(start, end):
        assert isinstance(task, Task)
        for batch in stream.read(task):
            found += zip(batch.column("topic").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    return sorted(found)


def test_a_new_stream_begins_where_it_is_told(tmp_path: Path) -> None:
    write(tmp_path / "d", "a-0", 50)
    assert reader(tmp_path / "d").initialOffset() == {"a-0": {"offset": 0, "epoch": -1, "topic_id": None}}
    assert reader(tmp_path / "d", startingOffsets="latest").initialOffset() == {**at(), "a-0": at(a=50)["a"]}
    given = json.dumps({"a": {"0": 12}})
    assert reader(tmp_path / "d", startingOffsets=given).initialOffset()["a-0"]["offset"] == 12


def test_a_micro_batch_ends_behind_the_last_whole_batch(tmp_path: Path) -> None:
    """A broker is writing: what is half there comes with the next one."""
    log = write(tmp_path / "d", "a-0", 50)
    whole = log.stat().st_size
    write(tmp_path / "d", "a-0", 60)
    with log.open("r+b") as file:
        file.truncate(whole + 40)
    stream = reader(tmp_path / "d")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert end["a-0"] == {"offset": 50, "epoch": 4, "topic_id": None}
    assert read(stream, start, end) == [("a", offset) for offset in range(50)]
    write(tmp_path / "d", "a-0", 60)
    assert read(stream, end, stream.latestOffset(end, ALL)) == [("a", offset) for offset in range(50, 60)]


def test_where_nothing_is_new_the_offset_is_the_same_to_the_letter(tmp_path: Path) -> None:
    """Spark compares texts: another order of names would be an endless row of empty micro-batches."""
    for name in ("b-0", "a-0"):
        write(tmp_path / "d", name, 50)
    stream = reader(tmp_path / "d")
    start = {"b-0": at(a=50)["a"], "gone-0": at(a=0)["a"], "a-0": at(a=50)["a"]}
    stream = reader(tmp_path / "d", failOnDataLoss="false")
    assert json.dumps(stream.latestOffset(start, ALL)) == json.dumps(start)


def test_offsets_survive_json(tmp_path: Path) -> None:
    """A checkpoint is text."""
    write(tmp_path / "d", "a-0", 50)
    stream = reader(tmp_path / "d")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    assert json.loads(json.dumps(end)) == end


def test_a_partition_that_is_new_is_read_from_its_start(tmp_path: Path) -> None:
    write(tmp_path / "d", "a-0", 50)
    stream = reader(tmp_path / "d", startingOffsets="latest")
    start = stream.initialOffset()
    write(tmp_path / "d", "a-1", 20)
    end = stream.latestOffset(start, ALL)
    assert end["a-1"]["offset"] == 20
    assert len(read(stream, start, end)) == 20


def test_a_trigger_takes_no_more_than_it_may(tmp_path: Path) -> None:
    """Everything comes in its turn, and the end of one micro-batch is the start of the next."""
    write(tmp_path / "d", "a-0", 90)
    write(tmp_path / "d", "b-0", 10)
    stream = reader(tmp_path / "d", maxOffsetsPerTrigger="20")
    assert stream.getDefaultReadLimit() == ReadMaxRows(20)
    assert reader(tmp_path / "d").getDefaultReadLimit() == ALL
    start, found, sizes = stream.initialOffset(), [], []
    while (end := stream.latestOffset(start, ReadMaxRows(20))) != start:
        rows = read(stream, start, end)
        found += rows
        sizes.append(len(rows))
        start = end
    assert max(sizes) <= 20
    assert sorted(found) == [("a", offset) for offset in range(90)] + [("b", offset) for offset in range(10)]


def test_shares_are_in_proportion_and_none_is_nothing() -> None:
    assert shares({"a": 0, "b": 5}, {"a": 1000, "b": 6}, 100) == {"a": 99, "b": 6}
    assert shares({"a": 0}, {"a": 10}, 100) == {"a": 10}
    assert shares({"a": 3, "b": 3}, {"a": 3, "b": 13}, 5) == {"a": 3, "b": 8}


def test_what_is_ahead_of_its_end_takes_nothing_from_others(tmp_path: Path) -> None:
    """A run that was planned to end earlier than another one came."""
    write(tmp_path / "d", "a-0", 50)
    write(tmp_path / "d", "b-0", 60)
    stream = reader(tmp_path / "d")
    stream.prepareForTriggerAvailableNow()
    write(tmp_path / "d", "a-0", 100)
    end = stream.latestOffset({"a-0": at(a=90)["a"]}, ReadMaxRows(20))
    assert {name: position["offset"] for name, position in end.items()} == {"a-0": 90, "b-0": 20}


def test_available_now_ends_where_the_logs_ended_then(tmp_path: Path) -> None:
    """A job from cron must end, however fast the broker writes."""
    write(tmp_path / "d", "a-0", 50)
    stream = reader(tmp_path / "d")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    write(tmp_path / "d", "a-0", 90)
    write(tmp_path / "d", "b-0", 10)
    end = stream.latestOffset(start, ALL)
    assert {name: position["offset"] for name, position in end.items()} == {"a-0": 50}
    assert stream.latestOffset(end, ALL) == end


def test_a_log_that_was_cut_back_and_written_anew_ends_the_stream(tmp_path: Path) -> None:
    """Records with offsets that were handed out before are other records now: to go on would lose and mix histories."""
    write(tmp_path / "d", "a-0", 50)
    stream = reader(tmp_path / "d", failOnDataLoss="false")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    write(tmp_path / "d", "a-0", 80, epochs=((4, 0), (6, 40)))
    for where in ((end, end), (start, end)):
        with pytest.raises(DamagedError, match="a-0: offset 49 was written in leader epoch 4 and is now of epoch 6"):
            stream.partitions(*where)
    with pytest.raises(DamagedError, match="new checkpoint"):
        stream.latestOffset(end, ALL)


def test_the_start_of_a_micro_batch_is_looked_at_too(tmp_path: Path) -> None:
    """After a restart its end may be from after the cut, and its start from before it."""
    write(tmp_path / "d", "a-0", 80, epochs=((4, 0), (6, 30)))
    end: Offsets = {"a-0": {"offset": 80, "epoch": 6, "topic_id": None}}
    with pytest.raises(DamagedError, match="offset 39 was written in leader epoch 4 and is now of epoch 6"):
        reader(tmp_path / "d").partitions(at() | {"a-0": at(a=40)["a"]}, end)


def test_a_new_leader_goes_on_where_the_old_one_ended(tmp_path: Path) -> None:
    """That is no other history."""
    write(tmp_path / "d", "a-0", 80, epochs=((4, 0), (6, 50)))
    stream = reader(tmp_path / "d")
    end = stream.latestOffset({"a-0": at(a=50)["a"]}, ALL)
    assert end["a-0"] == {"offset": 80, "epoch": 6, "topic_id": None}
    assert len(read(stream, {"a-0": at(a=50)["a"]}, end)) == 30


def test_what_has_nothing_new_is_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of thousands of partitions are silent, and there is a trigger every second."""
    write(tmp_path / "d", "a-0", 50)
    monkeypatch.setattr("klog.spark.micro_batches.epoch_at", None)
    start = {"a-0": at(a=50)["a"]}
    assert reader(tmp_path / "d").latestOffset(start, ALL) == start


def test_a_log_that_is_shorter_ends_the_stream(tmp_path: Path) -> None:
    write(tmp_path / "d", "a-0", 50)
    stream = reader(tmp_path / "d")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    write(tmp_path / "d", "a-0", 30)
    with pytest.raises(DamagedError, match="a-0: ends at offset 30, and it was read up to 50"):
        stream.latestOffset(end, ALL)


def test_a_topic_that_was_made_anew_ends_the_stream(tmp_path: Path) -> None:
    """Same name, same epoch, and longer already: only the id tells."""
    write(tmp_path / "d", "a-0", 50)
    identity = tmp_path / "d" / "a-0" / "partition.metadata"
    identity.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    stream = reader(tmp_path / "d")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    identity.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    write(tmp_path / "d", "a-0", 80)
    with pytest.raises(DamagedError, match="created again"):
        stream.latestOffset(end, ALL)


@pytest.mark.parametrize("gone", ["the directory", "the first segment", "all segments"])
def test_what_vanished_before_it_was_read_is_data_loss(tmp_path: Path, gone: str) -> None:
    """Retention was faster than the stream: that must be heard, unless somebody has said that it does not matter."""
    for base, end in ((0, 50), (50, 90)):
        write(tmp_path / "d", "a-0", end, base=base)
    write(tmp_path / "d", "b-0", 10)
    start = at() | {"a-0": at(a=20)["a"], "b-0": at(a=10)["a"]}
    folder = tmp_path / "d" / "a-0"
    for file in sorted(folder.iterdir()):
        if gone != "the first segment" or file.name.startswith(f"{0:020}"):
            file.unlink()
    if gone == "the directory":
        folder.rmdir()
    with pytest.raises(DamagedError, match=r"a-0: .*20.*failOnDataLoss=false"):
        reader(tmp_path / "d").latestOffset(start, ALL)
    stream = reader(tmp_path / "d", failOnDataLoss="false")
    end = stream.latestOffset(start, ALL)
    rest = range(50, 90) if gone == "the first segment" else ()
    assert read(stream, start, end) == [("a", offset) for offset in rest]


def test_a_log_that_cannot_be_read_stops_or_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that refuses is no log without news, but may be one where loss is no failure."""
    write(tmp_path / "d", "a-0", 50)

    def refuse(path: str, *_: object) -> LogEnd:
        raise UnreadableError(f"{path}: cannot read: Input/output error")

    monkeypatch.setattr("klog.data_dir.partition.find_log_end", refuse)
    with pytest.raises(UnreadableError):
        reader(tmp_path / "d").latestOffset({}, ALL)
    assert reader(tmp_path / "d", failOnDataLoss="false").latestOffset({}, ALL) == {}


def test_a_stream_follows_one_copy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="replicas: a stream follows one copy"):
        reader(tmp_path, replicas="all")


def test_nothing_undecided_is_handed_out_to_who_wants_committed_data(tmp_path: Path) -> None:
    """An open transaction may still abort: behind it nothing counts yet."""
    batches = of_records([[Record(offset, MS, None, b"v")] for offset in range(5)])
    batches += of_records([[Record(5, MS, None, b"?")]], transactional=True, producer=(9, 0, 0))
    batches += of_records([[Record(6, MS, None, b"v")]])
    write(tmp_path / "d", "b-0", 10)
    write_segment(tmp_path / "d" / "a-0", 0, batches)
    stream = reader(tmp_path / "d", isolation="read_committed")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert {name: position["offset"] for name, position in end.items()} == {"a-0": 5, "b-0": 10}
    assert [row for row in read(stream, start, end) if row[0] == "a"] == [("a", offset) for offset in range(5)]
    assert reader(tmp_path / "d").latestOffset(start, ALL)["a-0"]["offset"] == 7
