"""`klog metadata plan` on the disks of real clusters: its writes, its refusals, and its undo."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.cluster.metadata.metadata_loader import ClusterMetadata, read_metadata
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.batch import BATCH, CRC_START, OVERHEAD
from klog.kernel import crc32c
from klog.log.segment import Segment

from tests.change.plan.test_executor import end, other_process, said
from tests.commands.replicas.test_copy_plan import batches, trees
from tests.conftest import FIXTURES, writable_copy
from tests.support.power import tree

Run = Callable[..., Any]
Image = Callable[[str], Path]
pytestmark = [pytest.mark.usefixtures("hasty")]

ADDRESSES = "1@new-1:9093,2@new-2:9094,3@[fe80::1]:9095"
NODES = (1, 2, 3)


@pytest.fixture
def quorum(tmp_path: Path) -> Path:
    """The metadata logs of a dynamic quorum; node 2 was killed earlier, its log is 13 offsets shorter."""
    writable_copy(FIXTURES / "replicas" / "quorum", tmp_path / "disks")
    return tmp_path / "disks"


def taken(image: Image, name: str, tmp_path: Path) -> Path:
    shutil.copytree(image(f"replicas/{name}.tar.xz"), tmp_path / "disks", symlinks=True)
    return tmp_path / "disks"


def disks(root: Path) -> list[Path]:
    return sorted(root.glob("broker-*"))


def metadata_log(disk: Path) -> Partition:
    found = LogDir(str(disk)).metadata_log
    assert found is not None
    return found


def content(disk: Path) -> bytes:
    """Return the metadata log of a disk as one piece."""
    partition = metadata_log(disk)
    return b"".join(Path(partition.file(files.log)).read_bytes() for files in partition.segments)


def state(disk: Path) -> ClusterMetadata:
    found = read_metadata(LogDir(str(disk)))
    assert found is not None
    assert not found.problems
    return found


def planned(klog: Run, root: Path, *options: object, code: int = 0) -> Any:
    ran = klog("metadata", "plan", *disks(root), *map(str, options), "--output", "json")
    assert ran.exit_code == code, ran.stderr
    return json.loads(ran.stdout)


def refused(klog: Run, root: Path, *options: object, code: int = 8, among: list[Path] | None = None) -> str:
    """Run with --apply; return the output of a run without a change."""
    before = trees(root)
    ran = klog("metadata", "plan", *(among or disks(root)), *map(str, options), "--apply")
    assert ran.exit_code == code, ran.stderr
    assert not ran.stdout
    assert trees(root) == before
    assert not (root / "klog-backup").exists()
    return ran.stderr.decode()


# ---------------------------------------------------------------- voters


def test_all_logs_become_the_base_and_get_the_same_bytes(klog: Run, quorum: Path) -> None:
    """Kafka does not notice when one log has a voters record where the others have something else."""
    before = {disk: content(disk) for disk in disks(quorum)}
    base = max(before.values(), key=len)
    made = planned(klog, quorum, "--voters", ADDRESSES, "--apply")["metadata"]
    after = {disk: content(disk) for disk in disks(quorum)}
    assert len(set(after.values())) == 1
    (log,) = set(after.values())
    assert log[: len(base)] == base
    assert len(log) > len(base)
    assert made["base"] == {"node": 1, "offset": 117, "epoch": 5}
    assert made["appended"] == [{"offset": 117, "epoch": 6, "records": ["VOTERS"]}]
    assert made["extended"] == {"2": 13}
    assert not made["cut"]
    for disk in disks(quorum):
        assert metadata_log(disk).epochs is not None
        assert batches(metadata_log(disk))[-1][:3] == (117, 117, 6)
        assert metadata_log(disk).leader_epoch == 6
        found = klog("verify", disk / "__cluster_metadata-0", "--deep", "--output", "json")
        assert [one["severity"] for one in json.loads(found.stdout)["findings"]] in ([], ["note"]), found.stdout


def test_voters_keep_what_is_not_said(klog: Run, quorum: Path) -> None:
    before = state(quorum / "broker-1")
    planned(klog, quorum, "--voters", ADDRESSES, "--apply")
    for disk in disks(quorum):
        after = state(disk)
        assert [str(voter.endpoints[0]) for voter in after.quorum.voters or ()] == [
            "CONTROLLER://new-1:9093",
            "CONTROLLER://new-2:9094",
            "CONTROLLER://[fe80::1]:9095",
        ]
        for old, new in zip(before.quorum.voters or (), after.quorum.voters or (), strict=True):
            assert (new.id, new.directory_id, new.kraft_versions) == (old.id, old.directory_id, old.kraft_versions)
        assert (after.partitions, after.brokers, after.configs) == (before.partitions, before.brokers, before.configs)
        assert after.end_offset == 118


def test_the_epoch_is_above_all_that_any_disk_knows(klog: Run, quorum: Path) -> None:
    """A node may have voted in an epoch in which nothing was written."""
    file = quorum / "broker-2" / "__cluster_metadata-0" / "quorum-state"
    file.write_text(file.read_text().replace('"leaderEpoch":4', '"leaderEpoch":41'))
    assert planned(klog, quorum, "--voters", ADDRESSES)["metadata"]["appended"][0]["epoch"] == 42


def test_it_goes_back_to_every_byte(klog: Run, quorum: Path) -> None:
    before = trees(quorum)
    made = planned(klog, quorum, "--voters", ADDRESSES, "--apply")
    assert trees(quorum) != before
    assert klog("undo", made["backup"], "--apply").exit_code == 0
    assert trees(quorum) == before


def test_after_a_start_it_does_not_go_back(klog: Run, quorum: Path) -> None:
    """A node that runs writes its epoch into quorum-state before anything else."""
    made = planned(klog, quorum, "--voters", ADDRESSES, "--apply")
    used = quorum / "broker-3" / "__cluster_metadata-0" / "quorum-state"
    used.write_text(used.read_text().replace('"leaderEpoch":5', '"leaderEpoch":6'))
    before = trees(quorum)
    ran = klog("undo", made["backup"], "--apply")
    assert ran.exit_code == 8
    assert trees(quorum) == before


def test_a_plan_is_saved_and_applied_later(klog: Run, quorum: Path, tmp_path: Path) -> None:
    """The bytes are those of the plan, also when they are written tomorrow."""
    file = tmp_path / "plan.json"
    before = trees(quorum)
    made = planned(klog, quorum, "--voters", ADDRESSES, "--save-plan", file)
    assert trees(quorum) == before
    assert klog("apply", file).exit_code == 0
    assert len({content(disk) for disk in disks(quorum)}) == 1
    assert made["metadata"]["appended"][0]["offset"] == 117


def test_disks_with_other_directory_ids(klog: Run, quorum: Path) -> None:
    """Partitions name directories by their ids: they come along."""
    ids = {}
    for node in NODES:
        properties = quorum / f"broker-{node}" / "meta.properties"
        ids[node] = f"{'NewIdOfThisDisk':A<21}{'AQg'[node - 1]}"
        properties.write_text(re.sub(r"(?m)^directory\.id=.*", f"directory.id={ids[node]}", properties.read_text()))
    said = refused(klog, quorum, "--voters", ADDRESSES)
    assert "--directory-ids disks" in said
    before = state(quorum / "broker-1")
    made = planned(klog, quorum, "--voters", ADDRESSES, "--directory-ids", "disks", "--apply")["metadata"]
    assert [one["offset"] for one in made["appended"]] == [117, 118]
    after = state(quorum / "broker-2")
    assert {voter.id: voter.directory_id for voter in after.quorum.voters or ()} == ids
    for topic_id, partitions in before.partitions.items():
        for number, known in partitions.items():
            found = after.partitions[topic_id][number]
            assert found.directories == tuple(ids[node] for node in known.replicas)
            assert found == known._replace(directories=found.directories, partition_epoch=known.partition_epoch + 1)


def test_a_voter_that_is_left_out(klog: Run, quorum: Path) -> None:
    """Two of three are a majority; the third follows, if it is not ahead."""
    two = disks(quorum)[1:]
    said = refused(klog, quorum, "--voters", ADDRESSES, among=two)
    assert "the disk of voter 1 is not given" in said
    said = refused(klog, quorum, "--voters", ADDRESSES, "--without", "1", "--without", "2", among=two[1:])
    assert "no majority" in said
    ran = klog("metadata", "plan", *two, "--voters", ADDRESSES, "--without", "1", "--apply", "--output", "json")
    assert ran.exit_code == 0, ran.stderr
    made = json.loads(ran.stdout)["metadata"]
    assert made["extended"] == {"2": 13}
    assert any("node 1 may start later" in line for line in made["next"])
    assert content(two[0]) == content(two[1])


def test_one_voter_that_is_left(klog: Run, quorum: Path) -> None:
    """Nothing but the voters changes, also in the log of a former voter, which may go on as a broker."""
    two = disks(quorum)[1:]
    before = state(two[1])
    others = tree(two[1])
    assert "add-controller" not in str(planned(klog, quorum, "--voters", ADDRESSES))
    ran = klog("metadata", "plan", *two, "--only-voter", "2", "--voter", "new:9093", "--apply", "--output", "json")
    assert ran.exit_code == 0, ran.stderr
    made = json.loads(ran.stdout)["metadata"]
    assert made["base"]["node"] == 3
    assert made["extended"] == {"2": 13}
    assert made["appended"] == [{"offset": 117, "epoch": 6, "records": ["VOTERS"]}]
    assert any("nodes 1, 3" in line for line in made["next"])
    assert any("on node 2: controller in process.roles" in line for line in made["next"])
    assert any("add-controller" in line for line in made["next"])
    assert {name.partition("/")[0] for name, _ in tree(two[1]).items() ^ others.items()} == {"__cluster_metadata-0"}
    assert content(two[0]) == content(two[1])
    assert any("nodes whose log the plan leaves as it is (1)" in line for line in made["next"])
    after = state(two[0])
    (voter,) = after.quorum.voters or ()
    (old,) = [one for one in before.quorum.voters or () if one.id == 2]
    assert voter == old._replace(endpoints=voter.endpoints)
    assert [str(one) for one in voter.endpoints] == ["CONTROLLER://new:9093"]
    assert (after.partitions, after.brokers, after.configs) == (before.partitions, before.brokers, before.configs)


def test_one_voter_on_a_disk_with_another_directory_id(klog: Run, quorum: Path) -> None:
    properties = quorum / "broker-1" / "meta.properties"
    properties.write_text(re.sub(r"(?m)^directory\.id=.*", f"directory.id={'NewId':A<21}Q", properties.read_text()))
    before = state(quorum / "broker-1")
    assert "--directory-ids disks" in refused(klog, quorum, "--only-voter", 1)
    made = planned(klog, quorum, "--only-voter", 1, "--directory-ids", "disks", "--apply")["metadata"]
    assert [set(one["records"]) for one in made["appended"]] == [{"VOTERS"}, {"PARTITION_CHANGE"}]
    after = state(quorum / "broker-1")
    assert [voter.directory_id for voter in after.quorum.voters or ()] == [f"{'NewId':A<21}Q"]
    for topic_id, partitions in before.partitions.items():
        for number, known in partitions.items():
            found = dict(zip(known.replicas, after.partitions[topic_id][number].directories, strict=True))
            assert found == dict(zip(known.replicas, known.directories, strict=True)) | (
                {1: f"{'NewId':A<21}Q"} if 1 in known.replicas else {}
            )


def test_one_voter_of_a_static_quorum(klog: Run, image: Image, tmp_path: Path) -> None:
    root = taken(image, "three-combined-static", tmp_path)
    assert "controller.quorum.voters=2@b:9" in refused(klog, root, "--only-voter", 2, "--voter", "b:9")


def test_a_base_that_is_not_the_best(klog: Run, quorum: Path) -> None:
    """The excess of the others is cut; not below the newest snapshot of one."""
    said = refused(klog, quorum, "--voters", ADDRESSES, "--base", "2")
    assert "00000000000000000117-0000000005.checkpoint" in said
    (quorum / "broker-3/__cluster_metadata-0/00000000000000000117-0000000005.checkpoint").unlink()
    base = content(quorum / "broker-2")
    before = trees(quorum)
    made = planned(klog, quorum, "--voters", ADDRESSES, "--base", "2", "--apply")
    assert made["metadata"]["cut"] == {"1": 13, "3": 13}
    assert {(loss["topic"], loss["first_offset"], loss["last_offset"]) for loss in made["losses"]} == {
        ("__cluster_metadata", 104, 116)
    }
    assert {content(disk)[: len(base)] for disk in disks(quorum)} == {base}
    assert len({content(disk) for disk in disks(quorum)}) == 1
    assert klog("undo", made["backup"], "--apply").exit_code == 0
    assert trees(quorum) == before


def test_a_fork_that_kafka_does_not_see_is_mended(klog: Run, quorum: Path) -> None:
    """One batch with other bytes, of the same epoch, and the same batches behind it: ends and epochs are all alike."""
    log = quorum / "broker-1/__cluster_metadata-0/00000000000000000103.log"
    data = bytearray(log.read_bytes())
    first = BATCH.read(data)
    second = first[1] + OVERHEAD
    assert BATCH.read(data, second)[0] == 104
    data[second + BATCH.offsets["max_timestamp"] + 7] ^= 0x01
    size = BATCH.read(data, second)[1] + OVERHEAD
    crc = crc32c(memoryview(data)[second + CRC_START : second + size])
    data[second + BATCH.offsets["crc"] : second + BATCH.offsets["crc"] + 4] = crc.to_bytes(4, "big")
    log.write_bytes(data)
    base = content(quorum / "broker-3")
    assert len(content(quorum / "broker-1")) == len(base)
    said = refused(klog, quorum, "--voters", ADDRESSES, code=16)
    assert (
        "the logs of nodes 1 and 3 end at the same offset and differ from offset 104 on: choose one with --base" in said
    )
    said = refused(klog, quorum, "--voters", ADDRESSES, "--base", "1")
    assert "broker-3/__cluster_metadata-0: it diverges from the base at offset 104" in said
    made = planned(klog, quorum, "--voters", ADDRESSES, "--base", "3", "--apply")["metadata"]
    assert (made["cut"], made["extended"]) == ({"1": 13}, {"1": 13, "2": 13})
    assert {content(disk)[: len(base)] for disk in disks(quorum)} == {base}
    assert len({content(disk) for disk in disks(quorum)}) == 1


def test_an_unfinished_last_batch_goes_first(klog: Run, quorum: Path) -> None:
    whole = content(quorum / "broker-1")
    for node in (1, 2):
        log = max((quorum / f"broker-{node}" / "__cluster_metadata-0").glob("*.log"))
        with log.open("ab") as file:
            file.write(whole[:70])  # a batch that ends behind the file
            file.truncate(file.tell() - 5)
    made = planned(klog, quorum, "--voters", ADDRESSES, "--apply")["metadata"]
    assert made["base"]["offset"] == 117
    assert "the log of node 1 is truncated after its last complete batch" in made["next"]
    assert {content(disk)[: len(whole)] for disk in disks(quorum)} == {whole}
    assert len({content(disk) for disk in disks(quorum)}) == 1


def test_a_disk_without_the_log_gets_all_of_it(klog: Run, quorum: Path) -> None:
    shutil.rmtree(quorum / "broker-2" / "__cluster_metadata-0")
    before = trees(quorum)
    made = planned(klog, quorum, "--voters", ADDRESSES, "--apply")
    assert made["metadata"]["extended"] == {"2": 117}
    assert len({content(disk) for disk in disks(quorum)}) == 1
    assert state(quorum / "broker-2").partitions == state(quorum / "broker-1").partitions
    assert klog("undo", made["backup"], "--apply").exit_code == 0
    assert trees(quorum) == before


def test_a_log_that_begins_at_a_snapshot_is_given_with_it(klog: Run, quorum: Path) -> None:
    """If the base begins later than another log ends, only a snapshot contains the part between."""
    for node in (1, 3):
        for file in (quorum / f"broker-{node}" / "__cluster_metadata-0").iterdir():
            if file.suffix in (".log", ".index", ".timeindex", ".snapshot") and file.name < "00000000000000000092":
                file.unlink()
    for file in (quorum / "broker-2" / "__cluster_metadata-0").iterdir():
        if file.name[0] == "0" and file.name > "00000000000000000067":
            file.unlink()
    made = planned(klog, quorum, "--voters", ADDRESSES, "--apply")["metadata"]
    assert made["extended"] == {"2": 50}
    assert len({content(disk) for disk in disks(quorum)}) == 1
    assert state(quorum / "broker-2").partitions == state(quorum / "broker-1").partitions


# ---------------------------------------------------------------- refusals


@pytest.mark.corpora
def test_static_voters_are_in_the_configuration(klog: Run, image: Image, tmp_path: Path) -> None:
    root = taken(image, "three-combined-static", tmp_path)
    said = refused(klog, root, "--voters", ADDRESSES)
    assert "controller.quorum.voters=1@new-1:9093,2@new-2:9094,3@[fe80::1]:9095" in said


@pytest.mark.parametrize(
    ("voters", "reason"),
    [
        ("1@a:1,2@b:2,9@c:3", "node 9 is not a voter; the voters of the newest set are 1, 2, 3"),
        ("1@a:1,2@b:2", "the address of voter 3 is missing"),
        ("1@a:1,2@b:2,2@c:3", "node 2 is named twice"),
        ("1@a:1,2@b:2,3@user@c:3", "user@c is not a host's name"),
        ("1@a:1,2@b:2,3@::1:9093", "an IPv6 address is in brackets"),
        ("1@a:1,2@b:2,3@[::1]", "expected HOST:PORT"),
        ("1@a:1,2@b:2,3@[::1:9093", "expected HOST:PORT"),
        ("1@a:1,2@b:2,3@c:0", "0 is not a port from 1 to 65535"),
        ("1@a:1,2@b:2,3@c:70000", "70000 is not a port"),
        ("1@a:1,2@b:2,3@c:", "nothing is not a port"),
        ("1@a:1,2@b:2,3@:9", "the host is missing"),
        ("1@a:1,2@b:2,c:3", "expected ID@HOST:PORT"),
        ("1@a:1,2@b:2,-3@c:3", "expected ID@HOST:PORT"),
        ("1@a:1,2@b:2,99999999999@c:3", "expected ID@HOST:PORT"),
        ("", "expected ID@HOST:PORT"),
        ("1@a:1,2@b:2,3@gr\u00fcn:3", "is not a host's name"),
    ],
)
def test_addresses_that_are_none(klog: Run, quorum: Path, voters: str, reason: str) -> None:
    assert reason in refused(klog, quorum, "--voters", voters, code=16)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "one of --voters, --only-voter and --only-broker"),
        (("--voters", ADDRESSES, "--only-broker", 1), "one of --voters, --only-voter and --only-broker"),
        (("--only-voter", 1, "--only-broker", 1), "one of --voters, --only-voter and --only-broker"),
        (("--voters", ADDRESSES, "--keep", "newest"), "--keep goes with --only-broker"),
        (("--voters", ADDRESSES, "--voter", "a:1"), "--voter goes with --only-voter and --only-broker"),
        (("--only-voter", 1, "--without", 2), "--without goes with --voters"),
        (("--only-voter", 1, "--repair"), "--repair goes with --only-broker"),
        (("--only-voter", 7), "--only-voter 7: no disk of node 7 is given"),
        (("--voters", ADDRESSES, "--without", 1), "the disk of node 1 is given"),
        (("--voters", ADDRESSES, "--without", 8), "--without 8: node 8 is not a voter"),
        (("--voters", ADDRESSES, "--base", 7), "no disk of node 7"),
        (("--voters", ADDRESSES, "--directory-ids", "new"), "expected one of keep, disks"),
        (("--only-broker", 1, "--directory-ids", "disks"), "--directory-ids goes with --voters"),
        (("--only-broker", 7), "no disk of node 7 is given"),
        (("--only-broker", 1, "--voter", "a:0"), "0 is not a port"),
        (("--only-broker", 1, "--keep", 9), "no disk of node 9"),
        (("--only-broker", 1, "--choose", "x"), "expected TOPIC-PARTITION=NODE"),
    ],
)
def test_options_that_do_not_go_together(klog: Run, quorum: Path, options: tuple[object, ...], reason: str) -> None:
    assert reason in refused(klog, quorum, *options, code=16)


def test_damage_in_the_base(klog: Run, quorum: Path) -> None:
    """A flipped bit in one of the two logs that are ahead; below a snapshot it is not cut away either."""
    log = quorum / "broker-1/__cluster_metadata-0/00000000000000000079.log"
    data = bytearray(log.read_bytes())
    data[700] ^= 0xFF
    log.write_bytes(data)
    assert "--without 1" in refused(klog, quorum, "--voters", ADDRESSES)  # node 3 is the base
    assert "00000000000000000079.log" in refused(klog, quorum, "--voters", ADDRESSES, "--base", 1)
    two = disks(quorum)[1:]
    assert klog("metadata", "plan", *two, "--voters", ADDRESSES, "--without", "1").exit_code == 0


def test_a_log_with_damage_ends_where_its_node_truncates_it(klog: Run, quorum: Path) -> None:
    """Each start recovers the metadata log from its beginning: behind the damage it has nothing to be ahead with."""
    log = quorum / "broker-1/__cluster_metadata-0/00000000000000000103.log"
    data = bytearray(log.read_bytes())
    positions = {one.base_offset: one.position for one in Segment(str(log)).batches()}  # type: ignore[union-attr]
    data[positions[104] + 70] ^= 0xFF
    log.write_bytes(data)
    ran = klog("metadata", "plan", *disks(quorum), "--voters", ADDRESSES, "--apply", "--output", "json")
    assert ran.exit_code == 0, ran.stderr
    made = json.loads(ran.stdout)["metadata"]
    assert made["base"] == {"node": 3, "offset": 117, "epoch": 5}
    assert made["extended"] == {"1": 13, "2": 13}
    assert any("the log of node 1 is truncated after its last complete batch" in one for one in made["next"])
    logs = [LogDir(str(disk)).metadata_log for disk in disks(quorum)]
    assert {(one.log_end.offset, one.log_end.damage) for one in logs} == {(118, None)}  # type: ignore[union-attr]
    compared = klog("metadata", "compare", *disks(quorum))
    assert (compared.exit_code, b"all one history" in compared.stdout) == (0, True), compared


def test_a_gap_in_the_base(klog: Run, quorum: Path) -> None:
    for node in (1, 3):
        (quorum / f"broker-{node}/__cluster_metadata-0/00000000000000000079.log").unlink()
    assert "92, 79 was expected" in refused(klog, quorum, "--voters", ADDRESSES)


def test_a_log_dir_in_use(klog: Run, quorum: Path) -> None:
    """One lock of three is held: nothing is touched on any disk."""
    (quorum / "broker-2" / ".lock").touch()
    holder = other_process(quorum / "broker-2" / ".lock")
    try:
        assert said(holder) == b"held"
        assert "broker-2" in refused(klog, quorum, "--voters", ADDRESSES)
    finally:
        end(holder)


def test_a_disk_of_another_cluster(klog: Run, quorum: Path) -> None:
    properties = quorum / "broker-3" / "meta.properties"
    properties.write_text(re.sub(r"(?m)^cluster\.id=.*", "cluster.id=AnotherClusterEntirely", properties.read_text()))
    assert "disks of 2 clusters" in refused(klog, quorum, "--voters", ADDRESSES)


def test_an_unreadable_quorum_state(klog: Run, quorum: Path) -> None:
    (quorum / "broker-3/__cluster_metadata-0/quorum-state").write_text("{")
    assert "quorum-state" in refused(klog, quorum, "--voters", ADDRESSES)
