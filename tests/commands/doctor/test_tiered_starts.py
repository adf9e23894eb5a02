"""The doctor's prediction for tiered partitions is the broker's action: objects that are left, and log starts.

The marker `long` runs each case with both versions after both kinds of stop.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.cluster.metadata.metadata_loader import read_metadata
from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.diagnosis import Diagnosis, Fate, KafkaVersion, PartitionFate
from klog.commands.doctor.start_request import StartRequest
from klog.data_dir.log_dir import LogDir
from klog.formats.batch import BatchHead, write_batch
from klog.formats.record import write_record
from klog.kernel import crc32c
from klog.tier.tier import open_tier

from tests.brokers import kafka
from tests.brokers.tiered import TASKS_S, TieredCluster
from tests.conftest import CORPORA, Ran, writable_copy
from tests.support import tiers
from tests.support.tiers import IMAGES, situation

Klog = Callable[..., Ran]
HOUSES = {kafka.NEWEST: "house", kafka.BEFORE: "house391"}
STOPS = ("clean", "killed")
RLMM = "__remote_log_metadata"
TOPICS = ("plain", "tx", "kept", "size", "cut", "late", "stopped", "local")


class House:
    """A copy of a broker's disk with its tier."""

    def __init__(self, image: Callable[[str], Path], folder: Path, version: str = kafka.NEWEST, stop: str = "clean"):
        found = situation(image, HOUSES[version])
        self.folder, self.version, self.truth = folder, version, found.truth
        self.data = writable_copy(found.data[0], folder / "data")
        self.tier = writable_copy(found.tier, folder / "tier")
        if stop == "killed":
            (self.data / ".kafka_cleanshutdown").unlink()
            lines = (self.data / "recovery-point-offset-checkpoint").read_text().split("\n")
            zeros = [" ".join([*line.split(" ")[:2], "0"]) if line.count(" ") == 2 else line for line in lines]
            (self.data / "recovery-point-offset-checkpoint").write_text("\n".join(zeros))

    def remove(self, partition: str, pattern: str = "*") -> None:
        for path in list((self.data / partition).glob(pattern)):
            path.unlink()
        if pattern == "*":
            (self.data / partition).rmdir()

    def keys(self, partition: str) -> set[str]:
        """The objects of a partition."""
        topic, _, number = partition.rpartition("-")
        folder = f"{topic}-{number}-{self.truth['topics'][topic]}"
        return {path.name for path in (self.tier / "kafka-tiered-storage" / folder).glob("*")}

    def ask(self, file: dict[str, str] | None = None, *, with_tier: bool = False) -> Diagnosis:
        version, tier = KafkaVersion(self.version[:3]), open_tier(str(self.tier)) if with_tier else None
        return diagnose(StartRequest([str(self.data)], version, 1, count_all=True, file=file or {}, tier=tier))

    def run(self, *, enabled: bool = True) -> dict[str, tuple[int, int]]:
        """Start the broker; return log start and log end of each partition some seconds later."""
        with TieredCluster(self.version, self.folder, self.tier, enabled=enabled) as cluster:
            time.sleep(TASKS_S)
            found = {}
            for topic in TOPICS:
                for number in (0, 1) if topic == "plain" else (0,):
                    ends = cluster.ends(topic, number)
                    found[f"{topic}-{number}"] = ends.earliest, ends.latest
            cluster.kill()
        return found


def rows(found: Diagnosis) -> dict[str, PartitionFate]:
    return {f"{one.topic}-{one.partition}": one for one in found.partitions}


def lose_local(house: House) -> None:
    """One lost its directory, one its segments, one its epochs; one has lost them and its log start is above 0."""
    house.remove("plain-0")
    house.remove("plain-1", "0*")
    house.remove("cut-0")
    house.remove("size-0", "leader-epoch-checkpoint")


def lose_metadata(house: House) -> None:
    for path in list(house.data.glob(f"{RLMM}-*")):
        house.remove(path.name)


def lose_both(house: House) -> None:
    lose_metadata(house)
    house.remove("plain-0")
    house.remove("cut-0")
    house.remove("late-0", "*.log")


CASES: dict[str, Callable[[House], object]] = {
    "untouched": lambda house: None,
    "local-gone": lose_local,
    "metadata-lost": lose_metadata,
    "both-lost": lose_both,
    "tiering-off": lambda house: None,
    "tier-empty": lambda house: shutil.rmtree(house.tier),
}
SAMPLE = {
    (kafka.NEWEST, "killed", "local-gone"),
    (kafka.BEFORE, "clean", "local-gone"),
    (kafka.NEWEST, "clean", "metadata-lost"),
    (kafka.NEWEST, "clean", "both-lost"),
    (kafka.BEFORE, "killed", "both-lost"),
    (kafka.NEWEST, "clean", "tiering-off"),
}


def everything() -> list[object]:
    cases = [(version, stop, name) for version in HOUSES for stop in STOPS for name in CASES]
    return [
        pytest.param(*case, marks=[] if case in SAMPLE else [pytest.mark.long], id="-".join(case)) for case in cases
    ]


@pytest.mark.kafka
@pytest.mark.corpora
@pytest.mark.parametrize(("version", "stop", "name"), everything())
def test_a_start(image: Callable[[str], Path], tmp_path: Path, version: str, stop: str, name: str) -> None:
    """Objects go exactly where `forgets-remote` was told, log starts move where `hides-remote` was."""
    house = House(image, tmp_path / "house", version, stop)
    CASES[name](house)
    is_off = name == "tiering-off"
    told = rows(house.ask({"node.id": "1"} if is_off else None, with_tier=name == "both-lost"))
    before = {one: house.keys(one) for one in told if one.rpartition("-")[0] in house.truth["topics"]}
    did = house.run(enabled=not is_off)
    for one, ends in did.items():
        row = told[one]
        assert (row.log_start, row.log_end) == ends, (one, row)
        told_gone = re.findall(r"deletes (\d+) segment", row.message)
        assert (row.fate is Fate.FORGETS_REMOTE) == bool(told_gone)
        gone = {key.partition(".")[0] for key in before[one] - house.keys(one)}
        assert len(gone) == sum(map(int, told_gone)), (one, row)
    harmed = {one for one in did if told[one].fate in (Fate.FORGETS_REMOTE, Fate.HIDES_REMOTE)}
    if name in ("untouched", "tier-empty"):
        assert not harmed
    elif name == "local-gone":
        rebuilt = stop == "killed"  # recovery takes the epochs of size-0 from its segments
        assert {"plain-0", "plain-1", "cut-0", *(() if rebuilt else ("size-0",))} <= harmed
    else:
        assert {"plain-0", "plain-1", "tx-0", "cut-0", "size-0", "late-0"} <= harmed
    for one in harmed:
        assert told[one].lost_records > 0


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), IMAGES)
def test_disks_as_brokers_left_them(image: Callable[[str], Path], name: str, moment: str) -> None:
    """No false alarm, and log starts and ends as clients were told; followers and controllers, too."""
    found = situation(image, name, moment)
    for data in found.data:
        told = diagnose(StartRequest([str(data)]))
        assert (told.is_harmless, told.loses) == (True, 0), (data, told)
        assert not {note.id for note in told.notes} & {"rlmm-damaged", "tiering-off"}
        for one, row in rows(told).items() if data == found.leader else ():
            if one in found.clients and row.directory is not None:
                offsets = found.clients[one]["offsets"]
                assert (row.log_start, row.log_end) == (offsets["earliest"], offsets["latest"]), one


@pytest.mark.corpora
def test_a_replica_that_another_one_can_fill_forgets_nothing(image: Callable[[str], Path], tmp_path: Path) -> None:
    """A follower without its directory fetches from the leader, and leaves the objects alone; the leader is one of the
    two brokers here, and alone may lead."""
    found, fates = situation(image, "unclean"), {}
    for node in (1, 2):
        data = writable_copy(
            next(one for one in found.data if one.parent.name == f"broker-{node}"), tmp_path / f"{node}"
        )
        shutil.rmtree(data / "split-0")
        fates[node] = rows(diagnose(StartRequest([str(data)])))["split-0"].fate
    known = read_metadata(LogDir(str(found.leader)))
    assert known is not None
    registration = known.partition("split", 0)
    assert registration is not None
    (leader,) = {*registration.isr, *registration.elr, *registration.last_known_elr}
    assert fates == {leader: Fate.FORGETS_REMOTE, 3 - leader: Fate.CREATES}


def disk(folder: Path) -> Path:
    """The log dir of the fixture, which no corpus has to be there for."""
    return tiers.unpack(folder / "tiered")[0]


def answer(klog: Klog, data: Path, *more: object) -> Any:
    return json.loads(klog("doctor", data, "-o", "json", *more).stdout)


def test_the_words_about_a_lost_local_log(klog: Klog, tmp_path: Path) -> None:
    """The loss, what it is about, and the way out, before the start; the ids are explained."""
    data = disk(tmp_path)
    shutil.rmtree(data / "fine-0")
    ran = klog("doctor", data, "-o", "json")
    found = json.loads(ran.stdout)
    row = next(one for one in found["partitions"] if one["topic"] == "fine")
    assert ran.exit_code == 4
    assert (row["fate"], row["reason"], row["lost_records"]) == ("forgets-remote", "remote-local-gone", 100)
    assert row["lost_bytes"] > 0
    assert found["loses"] == 100
    assert [step["command"] for step in found["next"]] == [
        f"klog remote attach --remote TIER --to {data} --topic fine --apply"
    ]
    text = klog("doctor", data).stdout.decode()
    assert "STARTS, LOSES 100 RECORDS" in text
    assert "deletes 6 segments in remote storage, offsets 0–99" in text
    for name in ("remote-local-gone", "forgets-remote", "hides-remote", "tiering-off", "rlmm-damaged"):
        assert klog("explain", name).exit_code == 0


def test_a_stray_directory_leaves_its_segments_to_be_deleted(klog: Klog, tmp_path: Path) -> None:
    """Without `partition.metadata` the local log is set aside, and an empty one leads; the file is all that lacks."""
    data = disk(tmp_path)
    (data / "fine-0/partition.metadata").unlink()
    found = answer(klog, data)
    row = next(one for one in found["partitions"] if one["topic"] == "fine")
    assert (row["fate"], row["becomes"], row["lost_records"]) == ("strays", "empty", 110)
    assert "deletes 6 segments" in row["message"]
    assert "partition.metadata with the lines" in found["next"][0]["manual"]


def test_a_partition_of_which_only_objects_are_left(klog: Klog, tmp_path: Path) -> None:
    """The broker begins at offset 0, and deletes nothing, for it knows nothing: only the tier shows what is lost."""
    data, tier = disk(tmp_path), tmp_path / "tiered/tier"
    lines = (data / "log-start-offset-checkpoint").read_text()
    shutil.rmtree(data / "fine-0")
    whole = answer(klog, data, "--remote", tier)
    for path in list(data.glob(f"{RLMM}-*")):
        shutil.rmtree(path)
    found = answer(klog, data, "--remote", tier)
    row = next(one for one in found["partitions"] if one["topic"] == "fine")
    assert (row["fate"], row["reason"], row["lost_records"]) == ("hides-remote", "remote-metadata-lost", 100)
    assert (row["log_start"], row["lost_bytes"]) == (0, next(
        one["lost_bytes"] for one in whole["partitions"] if one["topic"] == "fine"
    ))  # fmt: skip
    assert "offsets 0–99 are in remote storage without an entry" in row["message"]
    blind = answer(klog, data)
    assert [(one["id"], one["message"].partition(":")[0]) for one in blind["notes"]] == [
        ("remote-metadata-lost", "fine-0")
    ]
    assert klog("remote", "attach", "--remote", tier, "--to", data, "-t", "fine", "--apply").exit_code == 0
    healed = answer(klog, data, "--remote", tier)
    row = next(one for one in healed["partitions"] if one["topic"] == "fine")
    assert (row["fate"], row["lost_records"], row["log_start"]) == ("serves", 0, 0)
    assert (data / "log-start-offset-checkpoint").read_text().count("fine") == lines.count("fine")


def test_remote_storage_that_is_off_in_the_brokers_file(klog: Klog, tmp_path: Path) -> None:
    data, file = disk(tmp_path), tmp_path / "server.properties"
    for line, fate in (("", "hides-remote"), ("remote.log.storage.system.enable=true\n", "serves")):
        file.write_text(f"process.roles=broker,controller\nnode.id=1\nlog.dirs={data}\n{line}")
        found = answer(klog, data, "--server-properties", file)
        row = next(one for one in found["partitions"] if one["topic"] == "fine")
        assert row["fate"] == fate
        assert [note["id"] for note in found["notes"]].count("tiering-off") == (fate != "serves")
        assert row["log_start"] == (100 if fate != "serves" else 0)
    assert found["next"] == []


def test_a_record_of_the_metadata_that_no_broker_reads(klog: Klog, tmp_path: Path) -> None:
    """The broker stops reading the topic there: nothing is claimed about its segments, and the place is named."""
    data = disk(tmp_path)
    log = data / f"{RLMM}-1/00000000000000000000.log"
    first = log.read_bytes()
    head = BatchHead(58, 1, 0, 0, 1, 1, 1)
    log.write_bytes(first + write_batch(head, write_record(0, 0, None, b"\x07\x00\x00"), crc32c))
    found = answer(klog, data)
    assert [note["id"] for note in found["notes"]] == ["rlmm-damaged"]
    assert f"{RLMM}-1, offset 58" in found["notes"][0]["message"]


# with the tier


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), IMAGES)
def test_objects_that_a_broker_will_miss(klog: Klog, image: Callable[[str], Path], name: str, moment: str) -> None:
    """Exactly those of the damages; the copies of index files are as their objects."""
    found = situation(image, name, moment)
    keys = ("--remote-keys", f"key1={CORPORA / 'tiered/aiven-encrypted/private.pem'}")
    told = answer(klog, found.leader, "--remote", found.tier, *keys)
    assert told["starts"]
    missing = [note["message"].split(":")[0] for note in told["notes"] if note["id"] == "remote-objects-missing"]
    kinds = ("log-missing", "index-missing", "timeindex-missing", "all-missing", "first-missing")
    assert sorted(missing) == (sorted(f"d-{kind}-0" for kind in kinds) if name == "damaged" else [])
    assert "stale-index-cache" not in {note["id"] for note in told["notes"]}


def test_a_tier_that_is_empty(klog: Klog, tmp_path: Path) -> None:
    """The broker starts, and serves nothing of it: consumers stop at the first offset."""
    data = disk(tmp_path)
    (tmp_path / "none").mkdir()
    found = answer(klog, data, "--remote", tmp_path / "none")
    assert [note["id"] for note in found["notes"]] == ["remote-objects-missing"] * 2
    assert "fine-0: 6 segments without objects" in found["notes"][0]["message"]
    assert "consumers stop at offset 0 for ever" in found["notes"][0]["message"]


def test_an_index_that_is_not_the_tiers_any_more(klog: Klog, tmp_path: Path) -> None:
    """A broker believes its copy, so that damage in the tier is hidden, and a repair is not seen."""
    data = disk(tmp_path)
    copy = next((data / "remote-log-index-cache").glob("0_*.index"))
    copy.write_bytes(copy.read_bytes() + bytes(8))
    found = answer(klog, data, "--remote", tmp_path / "tiered/tier")
    assert [note["id"] for note in found["notes"]] == ["stale-index-cache"]
    assert copy.name in found["notes"][0]["message"]


def test_the_way_out_names_the_tier(klog: Klog, tmp_path: Path) -> None:
    """The commands can be pasted; after them the same question has the answer that nothing is lost."""
    data, tier = disk(tmp_path), tmp_path / "tiered/tier"
    shutil.rmtree(data / "fine-0")
    for path in list(data.glob(f"{RLMM}-*")):
        shutil.rmtree(path)
    found = answer(klog, data, "--remote", tier)
    for step in found["next"]:
        assert klog(*step["command"].split()[1:]).exit_code == 0, step
    assert len(found["next"]) == 2
    again = answer(klog, data, "--remote", tier)
    assert {one["fate"] for one in again["partitions"]} <= {"serves", "creates"}


@pytest.mark.corpora
@pytest.mark.parametrize("start", [50, 60, 70])
def test_segments_of_a_dead_branch_are_no_loss(image: Callable[[str], Path], tmp_path: Path, start: int) -> None:
    """DeleteRecords after an unclean election: the log has no epoch of the branch any more, and a leader deletes its
    segments. Other segments have all of these offsets, and were what consumers got. One of them alone is a loss."""
    found = situation(image, "unclean")
    data = writable_copy(found.leader, tmp_path / "data")
    checkpoint = data / "split-0/leader-epoch-checkpoint"
    assert checkpoint.read_text() == "0\n2\n0 0\n2 60\n"
    checkpoint.write_text(f"0\n2\n0 {start}\n2 60\n" if start < 60 else f"0\n1\n2 {start}\n")
    starts = data / "log-start-offset-checkpoint"
    starts.write_text(starts.read_text().replace("split 0 0", f"split 0 {start}"))

    def fate() -> PartitionFate:
        rows = diagnose(StartRequest([str(data)], count_all=True)).partitions
        return next(one for one in rows if one.topic == "split")

    assert (fate().fate, fate().lost_records) == (Fate.SERVES, 0)
    checkpoint.write_text("0\n1\n9 145\n")
    assert (fate().fate, fate().lost_records) == (Fate.FORGETS_REMOTE, 145 - start)
