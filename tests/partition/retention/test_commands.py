"""Whoever puts records under a broker names those that its first retention pass removes, and no others."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from klog.commands.doctor import partition_loader

from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch
from tests.partition.retention.disks import DAY, RECORDS, Age, disk, partition, second_disk, segment

Run = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("hasty")

OLD, NEW = Age(9), Age(1)
SEGMENT = len(segment(0, OLD))
NOTE = "the first retention pass of the broker removes"


class Case(NamedTuple):
    """Settings of the topic and of the broker, segments, and how many records are due, by which settings."""

    settings: Mapping[str, str]
    ages: tuple[Age, ...]
    due: int
    by: tuple[str, ...] = ("retention.ms",)
    broker: Mapping[str, str] = {}


CASES = {
    "default": Case({}, (OLD, OLD, NEW), 20),
    "the active segment, too": Case({}, (OLD, OLD), 20),
    "behind a young one": Case({}, (OLD, NEW, OLD), 10),
    "recent": Case({}, (NEW, NEW), 0),
    "in the future": Case({}, (Age(-400), OLD), 0),
    "off": Case({"retention.ms": "-1"}, (OLD, OLD), 0),
    "long": Case({"retention.ms": str(30 * DAY)}, (OLD, OLD), 0),
    "short": Case({"retention.ms": str(DAY // 2)}, (NEW, Age(0)), 10),
    "bytes": Case({"retention.ms": "-1", "retention.bytes": str(SEGMENT)}, (NEW, NEW, NEW), 20, ("retention.bytes",)),
    "bytes, nearly": Case({"retention.ms": "-1", "retention.bytes": str(2 * SEGMENT + 1)}, (NEW, NEW, NEW), 0),
    "both": Case({"retention.bytes": str(2 * SEGMENT)}, (NEW, OLD, OLD), 30, ("retention.bytes", "retention.ms")),
    "both off": Case({"retention.ms": "-1", "retention.bytes": "-1"}, (OLD, OLD), 0),
    "compact": Case({"cleanup.policy": "compact", "retention.ms": "1"}, (OLD, OLD), 0),
    "compact and delete": Case({"cleanup.policy": "compact,delete"}, (OLD, NEW), 10),
    "of the broker": Case({}, (OLD, OLD), 0, broker={"log.retention.ms": "-1"}),
    "of the broker, short": Case({}, (NEW, NEW), 20, broker={"log.retention.hours": "1"}),
    "of the broker, and the topic's own": Case({"retention.ms": "-1"}, (NEW,), 0, broker={"log.retention.ms": "1"}),
    "appended old": Case({}, (Age(9, log_append=True),), 10),
    "appended now": Case({}, (Age(0, log_append=True),), 0),
    "remote": Case({"remote.storage.enable": "true"}, (OLD, OLD), 0),
}


def each(names: Iterable[str] = CASES) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(CASES[name], id=name) for name in names])


# The cleaner's policy lays out segments otherwise, and node 2 has other settings of a broker.
UNCOMPACTED = [name for name, case in CASES.items() if "compact" not in case.settings.get("cleanup.policy", "")]
OF_TOPICS = [name for name, case in CASES.items() if not case.broker]


def check(ran: Ran, case: Case, whose: str, notes: str | None = None) -> None:
    """Check that the JSON and the notes of a command name the due records, or nothing."""
    assert ran.exit_code == 0, ran.stderr
    rows: list[dict[str, Any]] = json.loads(ran.stdout)["retention"]
    said = ran.stderr.decode() if notes is None else notes
    assert sum(row["records"] for row in rows) == case.due
    if not case.due:
        assert (rows, NOTE in said) == ([], False)
        return
    (row,) = rows
    assert (row["topic"], row["partition"], row["known"]) == ("orders", 0, True)
    assert row["by"] == list(case.by)
    assert f"orders: {NOTE} {case.due} {whose} (" in said
    assert "kafka-configs --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name orders" in said
    assert f"{case.by[-1]}=-1" in said


def check_applied(klog: Run, data: Path, due: int) -> None:
    """Check that doctor finds the plan's figures."""
    rows = json.loads(klog("doctor", data, "--output", "json").stdout)["retention"]
    assert sum(row["records"] for row in rows) == due


@each()
def test_doctor_names_what_the_next_start_finds(klog: Run, tmp_path: Path, case: Case) -> None:
    """A broker that was down for a week deletes the records of all that time, half a minute after its start."""
    data = disk(tmp_path / "data", case.settings, case.broker)
    partition(data / "orders-0", case.ages)
    ran = klog("doctor", data, "--output", "json")
    found = json.loads(ran.stdout)
    notes = [note["message"] for note in found["notes"] if note["id"] == "retention-due"]
    assert (found["starts"], found["loses"]) == (True, 0)
    check(ran, case, "records", "\n".join(notes))
    text = klog("doctor", data).stdout.decode()
    assert (f"LOSES NOTHING\n  After 30 s, retention deletes {case.due} records of " in text) == bool(case.due)


@each(UNCOMPACTED)
def test_write_names_what_it_writes_in_vain(klog: Run, tmp_path: Path, case: Case) -> None:
    """The batches of a log, as they are; before --apply, while the command can still be run."""
    data = disk(tmp_path / "data", case.settings, case.broker)
    partition(data / "orders-0", ())
    source = partition(tmp_path / "source" / "orders-0", case.ages)
    options = ["--set", f"segment.bytes={SEGMENT}"]  # a segment each, as in the source
    words = "write", source, "--to", data, "--output", "json", *options
    check(klog(*words), case, "of the records that are written")
    check(klog(*words, "--apply"), case, "of the records that are written")
    check_applied(klog, data, case.due)


def test_write_counts_what_is_written_and_not_what_is_there(klog: Run, tmp_path: Path) -> None:
    """Old records that are appended to a segment with new ones stay as long as these."""
    data = disk(tmp_path / "data", {})
    given = tmp_path / "orders.jsonl"
    then = int(time.time() * 1000) - 9 * DAY
    given.write_text(
        "".join(
            json.dumps({"topic": "orders", "partition": 0, "key": "k", "value": "v", "timestamp": then + n}) + "\n"
            for n in range(5)
        )
    )
    partition(data / "orders-0", (OLD, NEW))
    assert json.loads(klog("write", given, "--to", data, "--output", "json").stdout)["retention"] == []
    for file in (data / "orders-0").glob("*10.*"):
        file.unlink()
    (row,) = json.loads(klog("write", given, "--to", data, "--output", "json").stdout)["retention"]
    assert (row["records"], row["segments"]) == (5, 1)


@pytest.mark.parametrize(
    ("settings", "options", "due"),
    [
        ({}, (), 3),
        ({"message.timestamp.type": "LogAppendTime"}, (), 0),
        ({}, ("--timestamp-type", "LogAppendTime"), 0),
        ({}, ("--set", "retention.ms=-1"), 0),
        ({"retention.ms": "-1"}, ("--set", "retention.ms=1000"), 3),
    ],
)
def test_records_of_lines_are_as_old_as_the_topic_takes_them(
    klog: Run, tmp_path: Path, settings: Mapping[str, str], options: tuple[str, ...], due: int
) -> None:
    """With LogAppendTime all of them are of now; a setting that server.properties has can be given."""
    data = disk(tmp_path / "data", settings)
    partition(data / "orders-0", ())
    given = tmp_path / "orders.jsonl"
    then = int(time.time() * 1000) - 9 * DAY
    rows = [{"topic": "orders", "partition": 0, "key": "k", "value": "v", "timestamp": then + n} for n in range(3)]
    given.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = json.loads(klog("write", given, "--to", data, "--output", "json", *options).stdout)["retention"]
    assert sum(row["records"] for row in found) == due


def test_a_new_log_dir_has_no_broker_and_no_note(klog: Run, tmp_path: Path) -> None:
    """Its retention is another broker's business."""
    source = partition(tmp_path / "source" / "orders-0", (OLD,))
    ran = klog("write", source, "--to", tmp_path / "new", "--output", "json")
    assert ran.exit_code == 0
    assert "retention" not in json.loads(ran.stdout)
    assert NOTE not in ran.stderr.decode()


@each()
def test_adopt_names_what_comes_home_in_vain(klog: Run, tmp_path: Path, case: Case) -> None:
    """A partition from a backup is as old as the backup."""
    data = disk(tmp_path / "data", case.settings, case.broker)
    partition(data / "orders-0", ())
    source = partition(tmp_path / "source" / "orders-0", case.ages)
    words = "adopt", source, "--to", data, "--output", "json"
    check(klog(*words), case, "of the records that are adopted")
    check(klog(*words, "--apply"), case, "of the records that are adopted")
    check_applied(klog, data, case.due)


@each(OF_TOPICS)
def test_replicas_plan_names_what_a_new_copy_gets_in_vain(klog: Run, tmp_path: Path, case: Case) -> None:
    """A copy on another disk is for nothing if the broker deletes it at once."""
    data = disk(tmp_path / "data", case.settings, nodes=(1, 2))
    partition(data / "orders-0", case.ages)
    other = second_disk(tmp_path / "other")
    ran = klog("replicas", "plan", data, other, "--output", "json")
    check(ran, case, "of the records that are copied")


@pytest.mark.parametrize(
    ("ages", "there", "due"),
    [((OLD, OLD), 1, 10), ((OLD, OLD, OLD), 1, 20), ((OLD, NEW), 1, 0), ((OLD, OLD, NEW), 1, 10), ((OLD, OLD), 2, 0)],
)
def test_replicas_plan_counts_what_a_copy_gets(
    klog: Run, tmp_path: Path, ages: tuple[Age, ...], there: int, due: int
) -> None:
    """The copy's present records are as old as before, and no reason for a note."""
    data = disk(tmp_path / "data", {}, nodes=(1, 2))
    partition(data / "orders-0", ages)
    other = second_disk(tmp_path / "other")
    shutil.copytree(data / "orders-0", other / "orders-0")
    for base in range(RECORDS * there, RECORDS * len(ages), RECORDS):
        for path in (other / "orders-0").glob(f"{base:020}.*"):
            path.unlink()
    ran = klog("replicas", "plan", data, other, "--output", "json")
    assert ran.exit_code == 0, ran.stderr
    assert sum(row["records"] for row in json.loads(ran.stdout)["retention"]) == due
    assert (NOTE in ran.stderr.decode()) == bool(due)


@each(OF_TOPICS)
def test_only_broker_names_what_it_copies_in_vain(klog: Run, tmp_path: Path, case: Case) -> None:
    """One node gets everything, and keeps the part that the settings keep."""
    data = disk(tmp_path / "data", case.settings, nodes=(1, 2))
    partition(data / "orders-0", case.ages)
    other = second_disk(tmp_path / "other")
    words = "metadata", "plan", data, other, "--only-broker", "2", "--output", "json"
    check(klog(*words), case, "of the records that are copied")
    check(klog(*words, "--apply"), case, "of the records that are copied")
    check_applied(klog, other, case.due)


@pytest.mark.parametrize(("of_node", "due"), [("1", 20), ("2", 0), ("", 0)])
@pytest.mark.parametrize("command", ["replicas", "metadata"])
def test_the_settings_of_the_broker_that_gets_a_copy_count(
    klog: Run, tmp_path: Path, command: str, of_node: str, due: int
) -> None:
    """A broker deletes by its own settings, not by those of the one that it has a copy from."""
    data = disk(tmp_path / "data", {}, {"log.retention.ms": "-1"}, nodes=(1, 2), of_node=of_node)
    partition(data / "orders-0", (OLD, OLD))
    more = ("--only-broker", "2") if command == "metadata" else ()
    ran = klog(command, "plan", data, second_disk(tmp_path / "other"), *more, "--output", "json")
    assert sum(row["records"] for row in json.loads(ran.stdout)["retention"]) == due


def test_settings_that_are_not_known_are_called_so(klog: Run, tmp_path: Path) -> None:
    """Without a metadata log the topic's settings are unknown: Kafka's defaults are an assumption."""
    data = disk(tmp_path / "data", {})
    partition(data / "orders-0", (OLD,))
    for path in (data / "__cluster_metadata-0").iterdir():
        path.unlink()
    (data / "__cluster_metadata-0").rmdir()
    (data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    found = json.loads(klog("doctor", data, "--kafka-version", "2.8", "--output", "json").stdout)
    assert [row["known"] for row in found["retention"]] == [False]
    assert any("the topic's own settings are not known" in note["message"] for note in found["notes"])


def test_the_file_of_the_broker_counts(klog: Run, tmp_path: Path) -> None:
    """server.properties is not in a log dir; with it a default is no assumption."""
    data = disk(tmp_path / "data", {})
    partition(data / "orders-0", (OLD,))
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={data}\nnode.id=1\nlog.retention.hours=-1\n")
    assert json.loads(klog("doctor", "--server-properties", file, "--output", "json").stdout)["retention"] == []
    file.write_text(f"log.dirs={data}\nnode.id=1\nlog.retention.hours=1\n")
    (row,) = json.loads(klog("doctor", "--server-properties", file, "--output", "json").stdout)["retention"]
    assert row["settings"]["retention.ms"] == {
        "value": 3_600_000, "origin": "server.properties", "name": "log.retention.hours"
    }  # fmt: skip


@pytest.mark.parametrize(("file_age", "clean", "due"), [(9, True, 10), (1, True, 0), (1, False, 10), (9, False, 10)])
def test_a_log_without_time_index_is_as_old_as_its_file(
    klog: Run, tmp_path: Path, file_age: int, clean: bool, due: int
) -> None:
    """A broker makes an empty time index where none is, and rebuilds it where it recovers the segment."""
    data = disk(tmp_path / "data", {})
    path = partition(data / "orders-0", (OLD,), time_index=False)
    then = time.time() - file_age * DAY / 1000
    os.utime(path / f"{0:020}.log", (then, then))
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
    found = json.loads(klog("doctor", data, "--output", "json").stdout)
    assert sum(row["records"] for row in found["retention"]) == due


def test_of_very_large_logs_offsets_are_counted(klog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doctor answers at once, however much is due; --records counts all the same."""
    data = disk(tmp_path / "data", {})
    path = partition(data / "orders-0", (OLD,))
    gap = batch([Record(offset, int(time.time() * 1000) - 9 * DAY) for offset in (15, 19)], base_offset=12)
    (path / f"{0:020}.log").write_bytes(segment(0, OLD) + gap)
    monkeypatch.setattr(partition_loader, "_MOST_RETAINED_BYTES", 100)
    (row,) = json.loads(klog("doctor", data, "--output", "json").stdout)["retention"]
    assert (row["records"], row["exact"]) == (20, False)
    assert "retention deletes up to 20 records" in klog("doctor", data).stdout.decode()
    (row,) = json.loads(klog("doctor", data, "--records", "--output", "json").stdout)["retention"]
    assert (row["records"], row["exact"]) == (12, True)


def test_of_many_topics_the_worst_are_named(klog: Run, tmp_path: Path) -> None:
    """A broker with a thousand topics that was down for a month must not print a thousand lines."""
    data = disk(tmp_path / "data", {})
    partition(data / "orders-0", (OLD,))
    (data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    for number in range(12):
        partition(data / f"more{number}-0", (OLD, OLD))
    found = json.loads(klog("doctor", data, "--kafka-version", "2.8", "--output", "json").stdout)
    notes = [note["message"] for note in found["notes"] if note["id"] == "retention-due"]
    assert len(notes) == 4
    assert notes[-1].startswith("10 more topics: it removes 190 records")
    assert len(found["retention"]) == 13
