"""Real brokers on attached tiers: they serve exactly the remote records, go on, and delete no object."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from tests.brokers import kafka
from tests.brokers.tiered import LEVELS, TASKS_S, TieredCluster, wait_until
from tests.commands.remote.attach.clusters import RLMM, Attached, Image, Offsets, proven, remove, told
from tests.commands.remote.attach.made_tier import EACH, make_tier
from tests.conftest import run_klog
from tests.support.tiers import Situation, situation

pytestmark = [pytest.mark.kafka, pytest.mark.corpora]
FRESH = "tiered/lost-cluster/fresh.tar.xz"
HOUSES = [
    pytest.param(kafka.NEWEST, "house", id="newest"),
    pytest.param(kafka.BEFORE, "house391", id="before", marks=pytest.mark.long),
]


def remote(found: Situation, attached: dict[str, dict[str, int]]) -> dict[str, Offsets]:
    """Return the offsets that consumers of the lost cluster got of the part that is attached."""
    return {
        name: told(found, name, one["remote_start_offset"], one["remote_end_offset"] + 1)
        for name, one in attached.items()
    }


def test_a_lost_cluster(image: Image, tmp_path: Path) -> None:
    """A new cluster, which knows nothing of the tier; DeleteRecords inside a segment; a transaction without an end."""
    found = situation(image, "lost-cluster")
    place = Attached(tmp_path / "new", image(FRESH) / "broker-1/data", found.tier)
    attached = place.attach("--from", found.data[0])
    assert {one["mode"] for one in attached.values()} == {"topic"}
    assert attached["moved-0"]["remote_start_offset"] == found.truth["delete_records"]["moved-0"]
    assert attached["tx-0"]["markers"] == 1
    wanted = remote(found, attached)
    assert wanted["tx-0"]["read_committed"] != wanted["tx-0"]["read_uncommitted"]
    proven(place, kafka.NEWEST, attached, wanted, again=True)
    undone = run_klog("undo", place.backup, "--apply")
    assert undone.exit_code == 8, "the broker has used it since"


@pytest.mark.parametrize(("version", "name"), HOUSES)
def test_a_lost_local_log(image: Image, tmp_path: Path, version: str, name: str) -> None:
    """A leader would delete the segments of these partitions within a second."""
    found = situation(image, name)
    place = Attached(tmp_path / "house", found.data[0], found.tier)
    remove(place.data, "plain-*", "cut-0")
    attached = place.attach("-t", "plain", "-t", "cut")
    assert {one["mode"] for one in attached.values()} == {"log"}
    assert {one["records_written"] for one in attached.values()} == {0}
    proven(place, version, attached, remote(found, attached))


def test_a_copy_between_log_dirs_in_the_place(image: Image, tmp_path: Path) -> None:
    """The broker makes the copy the partition; it does not start with the copy beside an attached one."""
    found = situation(image, "house")
    place = Attached(tmp_path / "house", found.data[0], found.tier)
    copy = place.data / f"cut-0.{'0123456789abcdef' * 2}-future"
    (place.data / "cut-0").rename(copy)
    aside = copy.rename(tmp_path / "aside")
    place.attach("-t", "cut")
    shutil.copytree(aside, copy)
    with pytest.raises(RuntimeError, match="DirectoryNotEmptyException"):
        TieredCluster(kafka.NEWEST, place.folder, place.tier).start()
    remove(place.data, "cut-0")
    (refused,) = place.plan("-t", "cut", codes=(8,))["refused"]
    assert refused["id"] == "future-in-place"
    wanted = told(found, "cut-0", 0, 1 << 40)[LEVELS[0]]
    with TieredCluster(kafka.NEWEST, place.folder, place.tier) as cluster:
        wait_until(lambda: _received(cluster, "cut") == wanted)


def _received(cluster: TieredCluster, topic: str) -> list[int] | None:
    """Return the offsets for a consumer; None while the broker has not read the events of the tier."""
    try:
        return [one.offset for one in cluster.consume(topic)]
    except RuntimeError:
        return None


@pytest.mark.parametrize(("version", "name"), HOUSES)
def test_lost_metadata_after_a_start(image: Image, tmp_path: Path, version: str, name: str) -> None:
    """A broker that started without them has moved the log starts: they are moved back, and all is served again."""
    found = situation(image, name)
    place = Attached(tmp_path / "house", found.data[0], found.tier)
    remove(place.data, f"{RLMM}-*")
    with TieredCluster(version, place.folder, place.tier) as cluster:
        time.sleep(TASKS_S)
        assert cluster.ends("plain").earliest == found.clients["plain-0"]["offsets"]["earliest_local"]
    topics = ("-t", "plain", "-t", "late")
    place.before = cluster.objects()
    refused = place.plan(*topics, codes=(8,))["refused"]
    assert {one["id"] for one in refused} == {"log-start-moved"}
    assert {one["next"] for one in refused} == {"--from-offset 0 moves it back"}
    attached = place.attach(*topics, "--from-offset", "0")
    assert {one["mode"] for one in attached.values()} == {"metadata"}
    proven(place, version, attached, {one: told(found, one, 0, 1 << 40) for one in attached})


def test_dead_branches(image: Image, tmp_path: Path) -> None:
    """An unclean election left segments of another history in the tier: they stay there, and are not served."""
    found = situation(image, "unclean")
    place = Attached(tmp_path / "new", image(FRESH) / "broker-1/data", found.tier)
    attached = place.attach("--set", "internal.segment.bytes=2000")
    one = attached["split-0"]
    assert one["segments"] < len({key.split(".")[0] for key in place.before})
    proven(place, kafka.NEWEST, attached, remote(found, attached))


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 50])
def test_any_number_of_partitions_of_the_metadata(image: Image, tmp_path: Path, count: int) -> None:
    """The partitioner's choice depends on the count that the new cluster has."""
    found = situation(image, "lost-cluster")
    own = {"rlmm.config.remote.log.metadata.topic.num.partitions": str(count)}
    with TieredCluster(kafka.NEWEST, tmp_path / "fresh", tmp_path / "none", settings=own) as cluster:
        time.sleep(TASKS_S)
    place = Attached(tmp_path / "new", cluster.data, found.tier)
    attached = place.attach("--from", found.data[0])
    assert len({one["metadata_partition"] for one in attached.values()}) == (1 if count == 1 else 4)
    proven(place, kafka.NEWEST, attached, remote(found, attached), settings=own)


@pytest.mark.long
def test_a_thousand_segments_of_forty_epochs(image: Image, tmp_path: Path) -> None:
    """Each epoch has segments of its own: a leader epoch below one of them would lose the rest."""
    make_tier(tmp_path / "tier", "many", 1000, 40)
    place = Attached(tmp_path / "new", image(FRESH) / "broker-1/data", tmp_path / "tier")
    attached = place.attach("--set", "internal.segment.bytes=2000")
    one = attached["many-0"]
    assert (one["segments"], one["leader_epoch"], one["records_written"]) == (1000, 40, 2000)
    every = list(range(1000 * EACH))
    proven(place, kafka.NEWEST, attached, {"many-0": dict.fromkeys(LEVELS, every)}, again=True)
