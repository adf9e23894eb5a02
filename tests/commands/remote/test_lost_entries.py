"""Old events that are deleted from `__remote_log_metadata`: a real broker forgets the segments, and klog does not
call their objects orphans.

A broker keeps what it has read until it stops.  Then it moves the log start up to the first segment whose events are
left, and deletes nothing.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.brokers import clients, kafka
from tests.brokers.tiered import TASKS_S, Ends, TieredCluster, wait_until
from tests.conftest import Ran, run_klog, writable_copy
from tests.support import tiers

TOPIC = "__remote_log_metadata"
EXPIRE = "remote-events-expire"
OLD, DELETED, LATER = "old", "deleted", "later"
Klog = Callable[..., Ran]


def answer(*words: object, codes: tuple[int, ...] = (0, 4)) -> Any:
    done = run_klog(*words, "-o", "json")
    assert done.exit_code in codes, done
    return json.loads(done.stdout)


def rows(data: Path, tier: Path, *more: object) -> dict[str, Any]:
    """The partitions of `klog remote ls`, by topic."""
    found = answer("remote", "ls", data, "--remote", tier, "--segments", *more)["partitions"]
    return {one["topic"]: one for one in found}


def findings(data: Path, tier: Path, topic: str) -> set[str]:
    return {one["id"] for one in answer("remote", "verify", data, "--remote", tier, "-t", topic)["findings"]}


def assert_told(data: Path, tier: Path, topic: str, text: str) -> None:
    """Check that `klog remote ls` and `verify` have *text* about the holes of a topic, and the way out behind it."""
    for command in ("ls", "verify"):
        shown = run_klog("remote", command, data, "--remote", tier, "-t", topic).stdout.decode()
        assert f"{text}, and their objects are there; klog remote attach writes entries" in shown
        assert "no segment has" not in shown


def refuses_orphans(data: Path, tier: Path, *words: str) -> bool:
    """Whether nothing is listed for deletion, and the message names the records that are not there."""
    ran = run_klog("remote", "orphans", data, "--remote", tier, "--older-than", "0", *words)
    return (ran.exit_code, ran.stdout, b" begins at offset " in ran.stderr) == (8, b"", True)


class Disk(NamedTuple):
    """The disk of a stopped broker and its tier, and what consumers got before the stop."""

    folder: Path
    data: Path
    tier: Path
    ends: dict[str, Ends]
    offsets: dict[str, list[int]]


def by_retention(cluster: TieredCluster) -> None:
    """klog warns of the setting, and only as long as it is there."""
    assert EXPIRE not in findings(cluster.data, cluster.tier, OLD)
    set_retention(cluster, "1000")
    assert EXPIRE in findings(cluster.data, cluster.tier, OLD)
    wait_until(lambda: all(one.earliest == one.latest for one in metadata_ends(cluster)))
    set_retention(cluster, "-1")


def set_retention(cluster: TieredCluster, milliseconds: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry("retention.ms", milliseconds, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    client = clients.admin(cluster.bootstrap)
    client.incremental_alter_configs([resource])[resource].result(clients.WAIT_S)


def by_delete_records(cluster: TieredCluster) -> None:
    """The records stay in the segment, below the log start."""
    from confluent_kafka import TopicPartition

    places = [TopicPartition(TOPIC, number, one.latest) for number, one in enumerate(metadata_ends(cluster))]
    client = clients.admin(cluster.bootstrap)
    for done in client.delete_records(places).values():
        done.result(clients.WAIT_S)


def metadata_ends(cluster: TieredCluster) -> list[Ends]:
    return [cluster.ends(TOPIC, number) for number in range(3)]


WAYS = {"retention": by_retention, "delete-records": by_delete_records}


@pytest.fixture(scope="module", params=sorted(WAYS))
def disk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """One topic has lost its first events, another one all and is deleted itself; a third one has all of its events.

    The objects of the deleted topic are put back, as in a store that keeps them."""
    folder = tmp_path_factory.mktemp(request.param)
    tier = folder / "tier"
    settings = {"remote.storage.enable": "true", "internal.segment.bytes": "2000"}
    settings |= {"local.retention.bytes": "4000", "retention.ms": "-1"}
    with TieredCluster(kafka.NEWEST, folder, tier) as cluster:
        clients.create(cluster.bootstrap, dict.fromkeys((OLD, DELETED, LATER), settings))
        send(cluster, OLD)
        send(cluster, DELETED)
        time.sleep(TASKS_S)
        shutil.copytree(tier, folder / "kept")
        client = clients.admin(cluster.bootstrap)
        client.delete_topics([DELETED])[DELETED].result(clients.WAIT_S)
        wait_until(lambda: not any(f"{DELETED}-0" in key for key in cluster.objects()))
        before = cluster.ends(OLD)
        WAYS[request.param](cluster)
        assert cluster.ends(OLD) == before, "a running broker knows the segments"
        send(cluster, OLD)
        send(cluster, LATER)
        time.sleep(TASKS_S)
        ends = {topic: cluster.ends(topic) for topic in (OLD, LATER)}
        offsets = {topic: [one.offset for one in cluster.consume(topic)] for topic in (OLD, LATER)}
        cluster.stop()
    shutil.copytree(folder / "kept", tier, dirs_exist_ok=True)
    return Disk(folder, cluster.data, tier, ends, offsets)


def send(cluster: TieredCluster, topic: str) -> None:
    given = [one for one in clients.records(topic, 60) if len(one.value or b"") < 500]
    clients.with_librdkafka(cluster.bootstrap, topic, "none", given, partition=0, batch_num_messages=1)


@pytest.mark.kafka
def test_segments_without_events_are_no_orphans(disk: Disk) -> None:
    """They are the only copy of the first offsets: those of the deleted topic are orphans, but none may be deleted."""
    listed = rows(disk.data, disk.tier)
    old, later, deleted = listed[OLD], listed[LATER], listed[DELETED]
    assert (later["verdict"], later["entries_lost"], later["orphans"]) == ("whole", 0, 0)
    assert (deleted["verdict"], deleted["entries_lost"]) == ("orphans", 0)
    assert (old["verdict"], old["orphans"]) == ("hole", 0)
    lost = [one for one in old["segment_list"] if one["role"] == "entry-lost"]
    assert [lost[0]["start_offset"], len(lost)] == [0, old["entries_lost"]]
    assert findings(disk.data, disk.tier, OLD) == {"remote-hole", "remote-entry-lost"}
    some = f"no entry has offsets 0–{old['holes'][0][1]}: the entries of {len(lost)} segments are lost"
    assert_told(disk.data, disk.tier, OLD, some)
    assert findings(disk.data, disk.tier, LATER) == set()
    assert findings(disk.data, disk.tier, DELETED) == {"remote-orphan"}
    assert refuses_orphans(disk.data, disk.tier)


@pytest.mark.kafka
def test_a_broker_forgets_them_at_its_start(disk: Disk, tmp_path: Path) -> None:
    """It moves the log start as doctor shows, deletes no object, and then the objects are no orphans either."""
    data, tier = writable_copy(disk.data, tmp_path / "data"), writable_copy(disk.tier, tmp_path / "tier")
    told = {one["topic"]: one for one in answer("doctor", data)["partitions"]}
    assert (told[OLD]["fate"], told[OLD]["reason"]) == ("hides-remote", "remote-metadata-lost")
    lost = rows(data, tier)[OLD]["entries_lost"]
    with TieredCluster(kafka.NEWEST, tmp_path, tier) as cluster:
        before = cluster.objects()
        wait_until(lambda: cluster.ends(OLD).earliest == told[OLD]["log_start"] > 0)
        time.sleep(TASKS_S)
        assert [one.offset for one in cluster.consume(OLD)] == disk.offsets[OLD][told[OLD]["log_start"] :]
        assert cluster.ends(LATER) == disk.ends[LATER]
        assert before.items() <= cluster.objects().items()
        cluster.stop()
    old = rows(data, tier)[OLD]
    assert (old["verdict"], old["orphans"], old["entries_lost"], old["holes"]) == ("unknown", 0, lost, [])
    text = run_klog("remote", "ls", data, "--remote", tier, "-t", OLD).stdout.decode()
    assert f"{OLD}-0  unknown: {lost} segments with objects, whose entries may be lost" in text
    assert findings(data, tier, OLD) == {"remote-entry-lost"}
    assert refuses_orphans(data, tier)
    words = ("remote", "attach", "--remote", tier, "--to", data, "-t", OLD, "--from-offset", "0", "--apply")
    assert run_klog(*words).exit_code == 0
    with TieredCluster(kafka.NEWEST, tmp_path, tier) as cluster:
        wait_until(lambda: cluster.ends(OLD) == disk.ends[OLD])
        assert [one.offset for one in cluster.consume(OLD)] == disk.offsets[OLD]


@pytest.mark.kafka
def test_attach_writes_the_entries_again(disk: Disk, tmp_path: Path) -> None:
    """The command that the messages name: the broker then serves every record, and nothing is unknown any more."""
    data, tier = writable_copy(disk.data, tmp_path / "data"), writable_copy(disk.tier, tmp_path / "tier")
    words = ("remote", "attach", "--remote", tier, "--to", data, "-t", OLD, "--apply")
    assert run_klog(*words).exit_code == 0
    old = rows(data, tier)[OLD]
    assert (old["verdict"], old["entries_lost"]) == ("whole", 0)
    assert findings(data, tier, OLD) == set()
    with TieredCluster(kafka.NEWEST, tmp_path, tier) as cluster:
        time.sleep(TASKS_S)
        assert cluster.ends(OLD) == disk.ends[OLD]
        assert [one.offset for one in cluster.consume(OLD)] == disk.offsets[OLD]


# without a broker: topics `fine`, `short` with a segment that was deleted, and `gone`, which was deleted


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """The log dir and the tier of the fixture."""
    return tiers.unpack(tmp_path / "tiered")


def begin_at(data: Path, offset: int) -> None:
    """Delete the records of all partitions of the topic below *offset*."""
    path = data / "log-start-offset-checkpoint"
    kept = [line for line in path.read_text().splitlines()[2:] if not line.startswith(TOPIC)]
    lines = [*kept, *(f"{TOPIC} {number} {offset}" for number in range(3))]
    path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))


@pytest.mark.parametrize("form", ["text", "json", "keys", "csv", "jsonl"])
def test_they_are_not_listed_for_deletion(place: tuple[Path, Path], form: str) -> None:
    """No form has a key for the tool that deletes, whichever topics are chosen."""
    begin_at(place[0], 1000)
    assert refuses_orphans(*place, "-o", form)
    assert refuses_orphans(*place, "-o", form, "-t", "fine")


def test_each_command_has_the_same_answer(place: tuple[Path, Path]) -> None:
    data, tier = place
    begin_at(data, 1000)
    listed = rows(data, tier)
    shown = {topic: (one["verdict"], one["orphans"], one["entries_lost"]) for topic, one in listed.items()}
    assert shown == {"fine": ("hole", 0, 6), "short": ("hole", 0, 2), "gone": ("orphans", 10, 0)}
    assert findings(data, tier, "fine") == {"remote-metadata-lost"}, "no record of it is left"
    assert findings(data, tier, "gone") == {"remote-orphan"}
    space = {one["topic"]: set(one["reasons"]) for one in answer("space", data, "--remote", tier)["remote"]}
    assert space == {"fine": {"entry-lost"}, "short": {"entry-lost"}, "gone": {"orphan"}}
    assert b"without an entry" in run_klog("space", data, "--remote", tier).stdout


def test_a_hole_says_whether_its_segments_are_there(place: tuple[Path, Path]) -> None:
    """The entries of the first two segments of `fine` are lost: they are in the tier, until their objects are gone."""
    data, tier = place
    begin_at(data, 13)
    assert rows(data, tier)["fine"]["holes"] == [[0, 32]]
    assert_told(data, tier, "fine", "no entry has offsets 0–32: the entries of 2 segments are lost")
    start = data / "log-start-offset-checkpoint"
    start.write_text(start.read_text().replace("fine 0 0", "fine 0 5"))
    assert_told(data, tier, "fine", "no entry has offsets 5–32: the entries of 2 segments are lost")
    for first, text in (
        (0, "no segment has offsets 5–15, and no entry has offsets 16–32: the entries of 1 segment are lost"),
        (16, "no segment has offsets 5–32"),
    ):
        for path in list(tier.glob(f"*/fine-0-*/{first:020}-*")):
            path.unlink()
        for command in ("ls", "verify"):
            assert text in run_klog("remote", command, data, "--remote", tier, "-t", "fine").stdout.decode()


def test_compaction_leaves_gaps(place: tuple[Path, Path]) -> None:
    """A broker with `cleanup.policy=compact` deletes events, which have no key, from closed segments: the log start
    stays at 0.  (4.3.1 deleted 8 of 18, refused new ones, and moved the log start up at its next start.)"""
    data, tier = place
    log = data / f"{TOPIC}-1/{0:020}.log"
    content = log.read_bytes()
    at = 0
    while int.from_bytes(content[at : at + 8], "big") < 13:
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    log.write_bytes(content[at:])
    for kind in ("index", "timeindex"):
        log.with_suffix(f".{kind}").unlink()
    for words in ((), ("-t", "fine")):
        ran = run_klog("remote", "orphans", data, "--remote", tier, "--older-than", "0", *words)
        assert (ran.exit_code, ran.stdout) == (8, b"")
        assert b"partition 1 lacks records, from offset 0 on" in ran.stderr
    fine = rows(data, tier)["fine"]
    assert (fine["verdict"], fine["orphans"], fine["entries_lost"]) == ("hole", 0, 2)
    assert findings(data, tier, "fine") - {"remote-event-dropped"} == {"remote-hole", "remote-entry-lost"}
    assert_told(data, tier, "fine", "no entry has offsets 0–32: the entries of 2 segments are lost")


def test_where_the_entries_are_known_nothing_is_lost(place: tuple[Path, Path]) -> None:
    """The record at the log start is of a segment that a later one calls deleted, and all others are left."""
    data, tier = place
    shown = []
    for start in (0, 1):
        begin_at(data, start)
        listed = {
            topic: (one["verdict"], one["orphans"], one["entries_lost"]) for topic, one in rows(data, tier).items()
        }
        ids = {topic: findings(data, tier, topic) - {"remote-event-dropped"} for topic in listed}
        shown.append((listed, ids))
        assert refuses_orphans(data, tier) == (start > 0)
    listed, ids = shown[0]
    assert shown[1] == shown[0]
    assert listed == {"fine": ("whole", 0, 0), "short": ("orphans", 1, 0), "gone": ("orphans", 10, 0)}
    assert ids == {"fine": set(), "short": {"remote-orphan"}, "gone": {"remote-orphan"}}


def test_readers_name_the_way_out(place: tuple[Path, Path], tmp_path: Path) -> None:
    """No record of the first two segments is read, and each command says that their objects are there."""
    data, tier = place
    begin_at(data, 13)
    here = ("--remote", tier, "-t", "fine", "-p", "0")
    text = "no entry has offsets 0–32: the entries of 2 segments are lost, and their objects are there"
    for words in (("dump", "-o", "jsonl"), ("records", "-n", "1"), ("stats",), ("lookup", "--offset", "3")):
        ran = run_klog(words[0], data, *here, *words[1:])
        assert ran.exit_code == 4
        assert ran.stderr.decode().count(f"fine-0: {text}; klog remote attach writes entries") == 1
        assert b"neither tier" not in ran.stderr
        assert b"--remote TIER" not in ran.stdout
    shown = run_klog("fetch", data, *here, "--offset", "3")
    assert (shown.exit_code, shown.stderr.decode().count(text)) == (4, 1)
    assert b"OFFSET_OUT_OF_RANGE (1): 3 is in no segment" in shown.stdout
    refused = run_klog("remote", "fetch", data, *here, "--to", tmp_path / "strict", "--strict")
    assert (refused.exit_code, text in refused.stderr.decode()) == (8, True)
    assert not (tmp_path / "strict").exists()
    found = answer("remote", "fetch", data, *here, "--to", tmp_path / "back", codes=(4,))["partitions"][0]
    assert (found["first_offset"], found["holes"]) == (33, [[0, 32]])
    assert text in found["notes"][0]
    adopted = run_klog("adopt", data / "fine-0", "--remote", tier, "--to", tmp_path / "back", "--as", "new-0")
    assert text in (adopted.stdout + adopted.stderr).decode()


def test_a_fetch_names_a_hole_at_its_beginning(place: tuple[Path, Path], tmp_path: Path) -> None:
    """Ranges that do not ask for the offsets of the hole have none; a log start above 0 is none either."""
    data, tier = place
    assert answer("remote", "fetch", data, "--remote", tier, "-t", "fine", "--to", tmp_path / "0", codes=(0,))
    begin_at(data, 13)
    for path in list(tier.glob("*/fine-0-*/*")):
        if int(path.name[:20]) < 33:
            path.unlink()
    for number, (words, holes) in enumerate(
        (
            ((), [[0, 32]]),
            (("--from-offset", "20"), [[20, 32]]),
            (("--from-offset", "0", "--to-offset", "60"), [[0, 32]]),
            (("--from-offset", "33"), []),
            (("--from-offset", "-60"), []),
        ),
        start=1,
    ):
        to = tmp_path / str(number)
        code = 4 if holes else 0
        found = answer("remote", "fetch", data, "--remote", tier, "-t", "fine", "--to", to, *words, codes=(code,))
        assert (found["partitions"][0]["holes"], found["partitions"][0]["notes"]) == (holes, [])
    start = data / "log-start-offset-checkpoint"
    start.write_text(start.read_text().replace("fine 0 0", "fine 0 33"))
    assert answer("remote", "fetch", data, "--remote", tier, "-t", "fine", "--to", tmp_path / "9", codes=(0,))


def cut_clean(log: Path) -> None:
    content, size = log.read_bytes(), 0
    while int.from_bytes(content[size : size + 8], "big") < 6:
        size += 12 + int.from_bytes(content[size + 8 : size + 12], "big")
    log.write_bytes(content[:size])


def empty(log: Path) -> None:
    log.write_bytes(b"")


def as_directory(log: Path) -> None:
    log.unlink()
    log.mkdir()


def as_link_to_itself(log: Path) -> None:
    log.unlink()
    log.symlink_to(log.name)


def with_its_files(log: Path) -> None:
    for path in list(log.parent.iterdir()):
        path.unlink()


@pytest.mark.parametrize("lose", [cut_clean, empty, as_directory, as_link_to_itself, with_its_files])
def test_a_log_that_ends_too_early_lacks_events(place: tuple[Path, Path], lose: Callable[[Path], None]) -> None:
    """Below the high watermark, or without a log: all objects of `fine` were listed for deletion."""
    data, tier = place
    words = ("remote", "orphans", data, "--remote", tier, "--older-than", "0", "-o", "keys", "-t", "fine")
    assert (run_klog(*words).exit_code, run_klog(*words).stdout) == (0, b"")
    lose(data / f"{TOPIC}-1/{0:020}.log")
    ran = run_klog(*words)
    assert (ran.exit_code & 8, ran.stdout) == (8, b"")
    assert b"partition 1 lacks records, from offset" in ran.stderr
    fine = rows(data, tier)["fine"]
    assert (fine["orphans"], fine["entries_lost"] > 0) == (0, True)
