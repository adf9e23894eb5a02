"""`klog remote orphans`: exactly the objects that no entry owns, and nothing where an entry may be lost."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.remote_log.test_remote_log import written
from tests.commands.remote.test_ls import Klog, document
from tests.support import tiers
from tests.support.metadata_logs import MetadataLog, topic, uuid, value
from tests.support.remote_log_values import started, updated
from tests.support.tiers import situation

TOPIC = "__remote_log_metadata"
KINDS = ("log", "index", "timeindex", "leader_epoch_checkpoint", "snapshot")


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """The log dir and the tier of the fixture."""
    return tiers.unpack(tmp_path / "tiered")


def orphans(klog: Klog, data: Path, tier: Path, *more: str) -> Any:
    return document(klog("remote", "orphans", data, "--remote", tier, "--older-than", "0", "-o", "json", *more), 0, 4)


def test_deleted_topics_and_segments_of_a_store_that_keeps_all(klog: Klog, place: tuple[Path, Path]) -> None:
    found = orphans(klog, *place)
    assert (found["segments"], found["objects"], found["young"], found["foreign"]) == (11, 55, 0, [])
    assert {(one["topic"], one["why"]) for one in found["orphans"]} == {
        *(("gone", "topic-deleted"), ("short", "called-deleted"))
    }
    assert found["bytes"] == sum((place[1] / key).stat().st_size for one in found["orphans"] for key in one["keys"])
    keys = klog("remote", "orphans", place[0], "--remote", place[1], "--older-than", "0", "-o", "keys")
    assert keys.stdout.decode().splitlines() == [key for one in found["orphans"] for key in one["keys"]]
    assert keys.exit_code == 4
    lines, rows = (
        klog("remote", "orphans", place[0], "--remote", place[1], "--older-than", "0", "-o", form).stdout.decode()
        for form in ("jsonl", "csv")
    )
    assert [json.loads(line) for line in lines.splitlines()] == found["orphans"]
    assert [row["keys"].split() for row in csv.DictReader(io.StringIO(rows))] == [
        one["keys"] for one in found["orphans"]
    ]


@pytest.mark.parametrize("named", ["-p 99", "-p fine-1", "-t none", "-t fine -p 3", f"--topic-id {chr(65) * 22}"])
def test_a_partition_that_is_not_there_has_none(klog: Klog, place: tuple[Path, Path], named: str) -> None:
    """It was called free of orphans, exit code 0: a script that misspells a name believed it."""
    command = ("remote", "orphans", place[0], "--remote", place[1], "--older-than", "0")
    for more, output in (((), b""), (("-o", "keys"), b"")):
        done = klog(*command, *named.split(), *more)
        assert (done.exit_code, done.stdout, done.stderr.count(b"\n")) == (4, output, 1)
    fine = klog(*command, "-p", "fine-0")
    assert (fine.exit_code, fine.stdout, fine.stderr) == (0, b"no orphans\n", b"")


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["house", "house391", "stuck", "unclean", "killed", "aiven-zstd", "damaged"])
def test_clean_tiers_have_none(klog: Klog, image: Callable[[str], Path], name: str) -> None:
    """Unfinished copies and stuck deletions have entries; `damaged` has one fileset without."""
    found = situation(image, name)
    shown = orphans(klog, *found.data[:1], found.tier)
    assert [one["why"] for one in shown["orphans"]] == (["no-entry"] if name == "damaged" else [])
    assert len(shown["foreign"]) == (name == "damaged")


def test_young_objects_may_be_a_copy_under_way(klog: Klog, place: tuple[Path, Path]) -> None:
    data, tier = place
    newest = max(path.stat().st_mtime for path in tier.rglob("*") if path.is_file())
    for age, young in ((3599, 11), (3601, 0)):
        now = ["--now", str(int((newest + age) * 1000))]
        ran = klog("remote", "orphans", data, "--remote", tier, "-o", "json", *now)
        shown = json.loads(ran.stdout)
        assert (shown["young"], shown["segments"], ran.exit_code) == (young, 11 - young, 0 if young else 4)
        assert (b"left out" in ran.stderr) == bool(young)


def made(folder: Path, dice: random.Random) -> tuple[Path, Path, set[str]]:
    """A log dir and a tier with random entries; and the ids of the segments that nothing owns."""
    data, tier, lost = folder / "data", folder / "tier", set()
    log = MetadataLog(data)
    registration = {"replicas": [1], "isr": [1], "removingReplicas": [], "addingReplicas": [], "leader": 1}
    registration |= {"leaderEpoch": 0, "partitionEpoch": 0, "directories": [uuid(5)]}
    log.add(topic(TOPIC, 99), topic("orders", 7))
    log.add(value("Partition", partitionId=0, topicId=uuid(99), **registration))
    events = []
    for number in range(12):
        segment_id, start = uuid(1000 + number), number * 10
        history = [
            started(segment_id, start, start + 9, {0: start}),
            *(updated(segment_id, state) for state in (1, 2, 3)),
        ]
        known = history[: dice.randint(0, 4)]
        events += known
        if dice.random() < 0.8:
            place = tier / f"orders-0-{uuid(7)}"
            place.mkdir(parents=True, exist_ok=True)
            for kind in dice.sample(KINDS, dice.randint(1, 5)):
                (place / f"{start:020}-{segment_id}.{kind}").write_bytes(b"x" * dice.randint(0, 9))
            if len(known) in (0, 4):
                lost.add(segment_id)
    meta = (data / "meta.properties").read_text()
    written(data, events or [None])
    (data / "meta.properties").write_text(meta)
    tier.mkdir(exist_ok=True)
    return data, tier, lost


@pytest.mark.parametrize("seed", range(100))
def test_of_any_entries_the_orphans_are_those_without(klog: Klog, tmp_path: Path, seed: int) -> None:
    """Segments in every state, with and without objects, in 100 random tiers."""
    data, tier, lost = made(tmp_path, random.Random(seed))
    found = orphans(klog, data, tier, "--remote-layout", "local")
    assert {one["segment_id"] for one in found["orphans"]} == lost
    assert {one["why"] for one in found["orphans"]} <= {"no-entry", "called-deleted"}


def no_partition(data: Path) -> None:
    shutil.rmtree(data / f"{TOPIC}-1")


def no_topic(data: Path) -> None:
    for number in range(3):
        shutil.rmtree(data / f"{TOPIC}-{number}")


def no_metadata_log(data: Path) -> None:
    shutil.rmtree(data / "__cluster_metadata-0")


def a_flipped_bit(data: Path) -> None:
    log = next((data / f"{TOPIC}-1").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[100] ^= 0xFF
    log.write_bytes(content)


def a_log_that_begins_late(data: Path) -> None:
    (data / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 1 5\n")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (no_partition, "partition 1 of 3 is not in these log dirs"),
        (no_topic, "the log dirs have no partition of it"),
        (no_metadata_log, "no log dir has a metadata log"),
        (a_flipped_bit, "bad CRC"),
        (a_log_that_begins_late, "partition 1 begins at offset 5"),
    ],
)
def test_where_entries_may_be_lost_nothing_is_called_an_orphan(
    klog: Klog, place: tuple[Path, Path], damage: Callable[[Path], None], text: str
) -> None:
    """Somebody will delete what is printed here."""
    damage(place[0])
    for form in ("text", "json", "keys"):
        ran = klog("remote", "orphans", place[0], "--remote", place[1], "--older-than", "0", "-o", form)
        assert ran.exit_code & 8
        assert ran.stdout == b""
        assert text in ran.stderr.decode()
        assert "klog remote attach" in ran.stderr.decode() or damage is no_metadata_log


@pytest.mark.parametrize("words", [(), ("data",), ("--remote", "tier")])
def test_both_sides_are_needed(
    klog: Klog, place: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(place[0].parent)
    ran = klog("remote", "orphans", *words)
    assert (ran.exit_code, b"name log dirs and --remote TIER" in ran.stderr) == (16, True)


def test_nothing_is_changed(klog: Klog, place: tuple[Path, Path]) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = [path for each in place for path in each.rglob("*")]
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    before = state()
    orphans(klog, *place)
    assert state() == before
    assert os.listdir(place[0].parent) == ["data", "tier"] or sorted(os.listdir(place[0].parent)) == ["data", "tier"]


def test_log_dirs_that_are_older_than_the_tier(klog: Klog, place: tuple[Path, Path]) -> None:
    """Segments that brokers have copied since have no event in them. The objects are the newest of all."""
    data, tier = place
    for path in tier.rglob("*"):
        os.utime(path, (1, 1))
    words = ("remote", "orphans", data, "--remote", tier, "--older-than", "0", "-o", "keys")
    before = klog(*words)
    assert (before.exit_code, before.stderr) == (4, b"")
    segment = tier / "kafka-tiered-storage/fine-0-Gx-pU3OuR6GV8SYM89TsrQ"
    assert segment.is_dir()
    for path in segment.glob(f"{0:020}-*"):
        copied = path.with_name(f"{100:020}-{uuid(77)}{path.suffix}")
        copied.write_bytes(path.read_bytes())
    ran = klog(*words)
    assert ran.stdout.count(b"\n") == before.stdout.count(b"\n") + 5
    assert b"1 segment stored after the latest event in these log dirs, 20" in ran.stderr
    assert b"these log dirs are too old" in ran.stderr
