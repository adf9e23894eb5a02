"""`klog remote attach`: its modes, its refusals, and that undo restores everything."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.cluster.remote_log.events import RemoteSegment, TopicIdPartition, copy_events, read_event
from klog.formats.checkpoint import EpochEntry
from klog.formats.remote_log import SegmentState

from tests.commands.remote.attach.clusters import RLMM, remove
from tests.conftest import FIXTURES, Ran, writable_copy
from tests.support import tiers
from tests.support.metadata_logs import MetadataLog, topic
from tests.support.power import tree
from tests.support.remote_log_values import Whose, started, updated, uuid
from tests.support.tiers import situation

Klog = Callable[..., Ran]
NOW = "--now=1795000000000"


class Place:
    """The log dir and the tier of the fixture: `fine` is complete, `gone` was deleted and left its objects."""

    def __init__(self, klog: Klog, folder: Path) -> None:
        self._klog = klog
        self.data, self.tier = tiers.unpack(folder / "tiered")
        self.objects = self.tier / "kafka-tiered-storage"

    def folder(self, topic: str) -> Path:
        """The directory with the objects of a topic's only partition."""
        return next(self.objects.glob(f"{topic}-0-*"))

    def files(self, topic: str, kind: str) -> list[Path]:
        return sorted(self.folder(topic).glob(f"*.{kind}"))

    def run(self, *words: object) -> Ran:
        return self._klog("remote", "attach", "--remote", self.tier, "--to", self.data, NOW, "-o", "json", *words)

    def attach(self, *words: object, code: int = 0) -> list[dict[str, Any]]:
        done = self.run(*words)
        assert done.exit_code == code, done
        found: list[dict[str, Any]] = json.loads(done.stdout)["attached"]
        return found

    def refused(self, *words: object, code: int = 8) -> list[str]:
        done = self.run(*words)
        assert done.exit_code == code, done
        found = json.loads(done.stdout)
        assert all(one["next"] and one["message"] for one in found["refused"])
        return [one["id"] for one in found["refused"]]

    def listed(self, topic: str) -> dict[str, Any]:
        done = self._klog("remote", "ls", self.data, "--remote", self.tier, "-t", topic, "-o", "json", "--segments")
        (row,) = json.loads(done.stdout)["partitions"]
        found: dict[str, Any] = row
        return found


@pytest.fixture
def place(klog: Klog, tmp_path: Path) -> Place:
    return Place(klog, tmp_path)


# modes


def test_all_that_is_there_needs_nothing(place: Place) -> None:
    """A second run, and a run beside a whole partition, plans no change."""
    (one,) = place.attach("-t", "fine")
    assert (one["mode"], one["done_before"], one["records_written"]) == ("metadata", True, 0)
    assert place.attach("-t", "gone", "--apply")[0]["mode"] == "topic"
    (again,) = place.attach("-t", "gone", "--apply")
    assert (again["mode"], again["done_before"]) == ("metadata", True)


def test_a_lost_local_log(place: Place, klog: Klog) -> None:
    """It begins where the remote part ends, with its epochs; the checkpoints fit; nothing else changes."""
    before = place.listed("fine")
    remove(place.data, "fine-0")
    assert klog("doctor", place.data).exit_code == 4
    (one,) = place.attach("-t", "fine", "--apply")
    assert (one["mode"], one["segments"], one["markers"]) == ("log", 6, 0)
    assert (one["remote_start_offset"], one["remote_end_offset"], one["log_end_offset"]) == (0, 99, 100)
    assert {path.name for path in (place.data / "fine-0").iterdir()} == {
        *(f"{100:020}.{kind}" for kind in ("log", "index", "timeindex", "snapshot")),
        *("leader-epoch-checkpoint", "partition.metadata"),
    }
    last = place.files("fine", "leader_epoch_checkpoint")[-1]
    assert (place.data / "fine-0/leader-epoch-checkpoint").read_bytes() == last.read_bytes()
    assert (place.data / f"fine-0/{100:020}.snapshot").read_bytes() == place.files("fine", "snapshot")[-1].read_bytes()
    for name in ("recovery-point", "replication"):
        assert "fine 0 100" in (place.data / f"{name}-offset-checkpoint").read_text().splitlines()
    after = place.listed("fine")
    assert (after["segment_list"], after["log_end_offset"]) == (before["segment_list"], 100)
    assert klog("doctor", place.data).exit_code == 0


@pytest.mark.parametrize("lost", [f"{RLMM}-*", f"{RLMM}-1"])
def test_lost_metadata(place: Place, klog: Klog, lost: str) -> None:
    """The records are those that were there, but for their times; the directory is made, if it is missing."""
    facts = ("segment_id", "start_offset", "end_offset", "state", "bytes", "max_timestamp", "epochs", "objects", "role")
    before = [[one[fact] for fact in facts] for one in place.listed("fine")["segment_list"]]
    remove(place.data, lost)
    (one,) = place.attach("-t", "fine", "--apply")
    assert (one["mode"], one["records_written"], one["metadata_partition"]) == ("metadata", 12, 1)
    assert [[each[fact] for fact in facts] for each in place.listed("fine")["segment_list"]] == before
    assert klog("doctor", place.data).exit_code == 4  # `short` has lost its records, too
    assert place.attach("-t", "short", "--apply")[0]["remote_start_offset"] == 61
    assert klog("doctor", place.data).exit_code == 0


def test_records_behind_others(place: Place) -> None:
    """The log of `__remote_log_metadata` stays, byte for byte; the new records are in a segment of their own."""
    log = place.data / f"{RLMM}-1/{0:020}.log"
    before = log.read_bytes()
    (one,) = place.attach("-t", "gone", "--apply")
    assert one["records_written"] == 20
    assert log.read_bytes() == before
    assert len(list((place.data / f"{RLMM}-1").glob("*.log"))) == 2
    assert place.listed("gone")["states"] == {"COPY_SEGMENT_FINISHED": 10}


def test_a_new_topic(place: Place, klog: Klog) -> None:
    """The old id, a leader epoch above all in the tier, and no retention unless somebody wants one."""
    done = place.run("-t", "gone", "--set", "retention.ms=1000", "--apply")
    found = json.loads(done.stdout)
    (one,) = found["attached"]
    shown = json.loads(klog("metadata", "show", place.data, "-t", "gone", "-o", "json").stdout)
    (topic,) = shown["topics"]
    assert (topic["topic"], topic["topic_id"]) == ("gone", one["topic_id"])
    (partition,) = topic["partitions"]
    assert (partition["replicas"], partition["isr"], partition["leader"]) == ([1], [1], 1)
    epochs = place.files("gone", "leader_epoch_checkpoint")[-1].read_text().splitlines()[2:]
    assert partition["leader_epoch"] == one["leader_epoch"] == max(int(line.split()[0]) for line in epochs) + 1
    settings = {"remote.storage.enable": "true", "retention.ms": "1000", "retention.bytes": "-1"}
    assert shown["configs"]["topic"]["gone"] == settings
    following = " ".join(found["next"])
    assert "remote.log.storage.system.enable=true" in following
    assert "rlmm.config.remote.log.metadata.topic.num.partitions=3" in following


def test_undo_restores_the_tree(place: Place, klog: Klog) -> None:
    """All of it: the directories that were made, the records, the checkpoints, the metadata log."""
    (place.data / ".lock").touch()
    remove(place.data, "fine-0")
    before = tree(place.data)
    done = json.loads(place.run("--apply").stdout)
    assert {one["mode"] for one in done["attached"]} == {"metadata", "log", "topic"}
    assert tree(place.data) != before
    assert klog("undo", done["backup"], "--apply").exit_code == 0
    assert tree(place.data) == before


def test_a_plan_that_is_applied_later(place: Place, klog: Klog, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    place.attach("-t", "gone", "--save-plan", plan)
    assert not (place.data / "gone-0").exists()
    assert klog("apply", plan).exit_code == 0
    assert (place.data / "gone-0/partition.metadata").exists()


def test_another_place_of_the_bucket_changes_nothing(place: Place) -> None:
    """Nothing is written to the tier: no name, no time."""
    before = tree(place.tier)
    remove(place.data, "fine-0")
    place.attach("--apply")
    assert tree(place.tier) == before


# refusals


def test_a_topic_of_the_name_with_another_id(place: Place, klog: Klog) -> None:
    """--replace removes it, and keeps its records in the backup."""
    folder = place.folder("gone")
    folder.rename(folder.with_name(f"fine-0-{folder.name[-22:]}"))
    shutil.rmtree(next(one for one in place.objects.glob("fine-0-*") if one.name != f"fine-0-{folder.name[-22:]}"))
    assert place.refused("-t", "fine") == ["topic-id-differs"]
    done = json.loads(place.run("-t", "fine", "--replace", "--apply").stdout)
    (one,) = done["attached"]
    assert (one["topic_id"], one["mode"], done["losses"][0]["reason"]) == (folder.name[-22:], "topic", "replaced")
    shown = json.loads(klog("metadata", "show", place.data, "-t", "fine", "-o", "json").stdout)
    assert [each["topic_id"] for each in shown["topics"]] == [folder.name[-22:]]
    assert klog("doctor", place.data).exit_code == 0


def test_two_topics_of_one_name(place: Place) -> None:
    """A tier of two clusters, or a topic that was made anew: the id chooses, and they are never mixed."""
    folder = place.folder("gone")
    for number in (1, 2):
        shutil.copytree(folder, folder.with_name(f"both-0-{uuid(number)}"))
    assert place.refused("-t", "both") == ["topic-id-differs"] * 2
    assert place.attach("-t", "both", "--topic-id", uuid(2))[0]["topic_id"] == uuid(2)


def test_a_hole(place: Place) -> None:
    """--from-offset begins behind it."""
    start = place.files("gone", "log")[3].name[:20]
    for path in place.folder("gone").glob(f"{start}-*"):
        path.unlink()
    assert place.refused("-t", "gone") == ["hole"]
    following = int(place.files("gone", "log")[3].name[:20])
    (one,) = place.attach("-t", "gone", "--from-offset", str(following))
    assert (one["remote_start_offset"], one["segments"]) == (following, 6)
    assert place.refused("-t", "gone", "--from-offset", "100000") == ["hole"]


@pytest.mark.parametrize("topic", ["fine", "gone"])
def test_a_copy_between_log_dirs_in_the_place_of_the_partition(place: Place, topic: str) -> None:
    """A broker makes it the partition at the next start, and does not start with both; elsewhere it is no matter."""
    remove(place.data, "fine-0")
    copy = place.data / f"{topic}-0.{'0123456789abcdef' * 2}-future"
    copy.mkdir()
    done = place.run("-t", topic, "--apply")
    assert done.exit_code == 8
    (one,) = json.loads(done.stdout)["refused"]
    assert (one["id"], one["next"]) == ("future-in-place", f"klog doctor {place.data}")
    assert str(copy) in one["message"]
    assert not (place.data / f"{topic}-0").exists()
    copy.rename(copy.with_name(copy.name.replace("-0.", "-1.")))
    assert place.attach("-t", topic)


@pytest.mark.parametrize("at", [0, 4, 9])
def test_a_cut_log(place: Place, at: int) -> None:
    """Inside of a batch it is damage, whether another segment follows or not; an intact one is never attached half."""
    log = place.files("gone", "log")[at]
    log.write_bytes(log.read_bytes()[:-7])
    assert place.refused("-t", "gone")[0] in ("damaged", "hole")


def test_the_log_of_another_segment(place: Place) -> None:
    """Its batches are not those of the name: a broker would skip offsets, or serve some twice."""
    one, other = (path.read_bytes() for path in place.files("gone", "log")[3:5])
    for path, content in zip(place.files("gone", "log")[3:5], (other, one), strict=True):
        path.write_bytes(content)
    assert place.refused("-t", "gone")[0] in ("damaged", "hole")


def test_offsets_that_no_log_has(place: Place) -> None:
    """A name of twenty nines is not written into a record of 64 bits."""
    for path in list(place.folder("gone").glob("*")):
        if path.name[:20] == place.files("gone", "log")[-1].name[:20]:
            path.rename(path.with_name("9" * 20 + path.name[20:]))
    (one,) = place.attach("-t", "gone", "--apply")
    assert one["segments"] == 9


@pytest.mark.parametrize("marker", [True, False])
def test_after_a_kill(place: Place, klog: Klog, marker: bool) -> None:
    """Without the marker of a clean stop the broker recovers: markers and records are found as they were written."""
    if not marker:
        (place.data / ".kafka_cleanshutdown").unlink()
    remove(place.data, "fine-0", f"{RLMM}-1")
    attached = place.attach("-t", "fine", "-t", "short", "-t", "gone", "--apply")
    assert {one["mode"] for one in attached} == {"log", "metadata", "topic"}
    assert klog("doctor", place.data).exit_code == 0
    assert klog("remote", "verify", place.data, "--remote", place.tier, "--deep").exit_code in (0, 4)


def test_two_log_dirs(place: Place, klog: Klog, tmp_path: Path) -> None:
    """The topic of the metadata may be in another log dir than the metadata log; both are changed by one plan."""
    second = place.data.with_name("data2")
    second.mkdir()
    meta = (place.data / "meta.properties").read_text()
    other = re.sub(r"(?m)^directory\.id=.*$", f"directory.id={uuid(99)}", meta)
    (second / "meta.properties").write_text(other)
    (place.data / f"{RLMM}-1").rename(second / f"{RLMM}-1")
    (second / ".kafka_cleanshutdown").write_bytes((place.data / ".kafka_cleanshutdown").read_bytes())
    for name in ("recovery-point", "replication"):
        (second / f"{name}-offset-checkpoint").write_text(f"0\n1\n{RLMM} 1 58\n")
    (one,) = place.attach("-t", "gone", "--to", second, "--apply")
    assert one["records_written"] == 20
    assert len(list((second / f"{RLMM}-1").glob("*.log"))) == 2
    assert f"{RLMM} 1 78" in (second / "recovery-point-offset-checkpoint").read_text()
    assert (place.data / "gone-0").is_dir()


@pytest.mark.corpora
def test_a_node_that_is_not_the_only_controller(klog: Klog, place: Place, image: Callable[[str], Path]) -> None:
    """The others would not have the topic in their metadata logs."""
    broker = situation(image, "unclean").data[0]
    done = klog("remote", "attach", "--remote", place.tier, "--to", broker, "-o", "json", "-t", "gone")
    assert done.exit_code == 8
    assert [one["id"] for one in json.loads(done.stdout)["refused"]] == ["several-controllers"]


def test_a_lost_cluster_that_is_alive(place: Place, tmp_path: Path) -> None:
    """Both would delete in one tier."""
    other = tmp_path / "other"
    shutil.copytree(place.data, other)
    holder = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    )
    command = [sys.executable, "-c", holder, str(other / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert place.refused("-t", "gone", "--from", str(other)) == ["lock-held"]
        process.communicate(b"\n")


@pytest.mark.corpora
def test_a_key_prefix_that_is_glued_to_the_name(klog: Klog, tmp_path: Path, image: Callable[[str], Path]) -> None:
    """Aiven's plugin puts `key.prefix` in front as it is."""
    fresh = writable_copy(image("tiered/lost-cluster/fresh.tar.xz") / "broker-1/data", tmp_path / "data")
    tier = writable_copy(situation(image, "lost-cluster-aiven").tier, tmp_path / "tier")
    for folder in list(tier.glob("**/moved-*")):
        folder.rename(folder.with_name(f"pre-{folder.name}"))
    words = ("remote", "attach", "--remote", tier, "--to", fresh, "-o", "json", "-t", "pre-moved", "--as", "moved")
    (one,) = json.loads(klog(*words).stdout)["attached"]
    assert (one["topic"], one["mode"]) == ("moved", "topic")


def test_a_missing_index(place: Place) -> None:
    """A copy that did not end: it is left out at the end of the log, and a hole before that."""
    place.files("gone", "timeindex")[-1].unlink()
    (one,) = place.attach("-t", "gone")
    assert one["segments"] == 9
    place.files("gone", "index")[2].unlink()
    assert place.refused("-t", "gone") == ["hole"]


def test_an_entry_whose_object_is_another(place: Place) -> None:
    """The metadata know the size: a broker would skip the rest without an error."""
    remove(place.data, "fine-0")
    log = place.files("fine", "log")[2]
    log.write_bytes(log.read_bytes()[:-7])
    assert place.refused("-t", "fine") == ["damaged"]


def test_unknown_epochs(place: Place) -> None:
    for path in place.files("gone", "leader_epoch_checkpoint"):
        path.write_text("0\n1\n")
    assert place.refused("-t", "gone") == ["epochs-unknown"]


def test_a_local_log_that_goes_another_way(place: Place, klog: Klog) -> None:
    """A leader began empty, and took records: they go only with --replace."""
    start = f"{0:020}"
    for path in list((place.data / "fine-0").glob("0*")):
        path.rename(path.with_name(path.name.replace(path.name[:20], start)) if path.suffix == ".log" else path)
    other = place.data / f"fine-0/{start}.log"
    other.write_bytes((place.data / f"{RLMM}-1/{start}.log").read_bytes())
    (place.data / "fine-0/leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    assert place.refused("-t", "fine") == ["target-not-empty"]
    done = json.loads(place.run("-t", "fine", "--replace", "--apply").stdout)
    assert (done["attached"][0]["mode"], done["losses"][0]["reason"]) == ("log", "replaced")
    assert klog("doctor", place.data).exit_code == 0


def test_a_tier_that_is_not_the_clusters(place: Place) -> None:
    """The metadata have finished segments that are not in it."""
    remove(place.data, "fine-0")
    for path in place.folder("fine").glob(f"{place.files('fine', 'log')[0].name[:20]}-*"):
        path.unlink()
    assert place.refused("-t", "fine") == ["has-entries"]


def test_a_broker_that_never_had_remote_storage(klog: Klog, place: Place, tmp_path: Path) -> None:
    MetadataLog(tmp_path / "bare").add(topic("orders", 7))
    done = klog("remote", "attach", "--remote", place.tier, "--to", tmp_path / "bare")
    assert done.exit_code == 8
    assert b"start its broker once" in done.stderr


def test_the_log_dirs_of_two_clusters(klog: Klog, place: Place, tmp_path: Path) -> None:
    """Both are node 1; one line says that it is one broker at a time."""
    other = writable_copy(FIXTURES / "modern", tmp_path / "other")
    done = klog("remote", "attach", "--remote", place.tier, "--to", place.data, "--to", other)
    assert (done.exit_code, done.stdout, done.stderr.count(b"\n")) == (16, b"", 1)
    assert b"of different clusters" in done.stderr


def test_a_compacted_topic(place: Place) -> None:
    assert place.refused("-t", "gone", "--set", "cleanup.policy=compact") == ["compacted"]


def test_another_name(place: Place) -> None:
    """Storage managers look for objects by the topic's name: only a glued key prefix can be taken away."""
    assert place.run("-t", "gone", "--as", "other").exit_code == 16
    assert place.attach("-t", "gone", "--as", "gone")[0]["topic"] == "gone"


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--set", "x"), 16), (("--epochs", "rewrite"), 16), (("--producers", "all"), 16), (("-t", "none"), 4)],
)
def test_wrong_words(place: Place, words: tuple[str, ...], code: int) -> None:
    assert place.run(*words).exit_code == code


def test_one_refusal_among_others(place: Place) -> None:
    """The others go on, and the exit code has the problem."""
    for path in place.files("gone", "leader_epoch_checkpoint"):
        path.write_text("0\n1\n")
    remove(place.data, "fine-0")
    assert place.refused("--apply", code=4) == ["epochs-unknown"]
    assert (place.data / "fine-0").is_dir()


# records


def test_records_are_those_of_a_broker() -> None:
    """Byte for byte as an independent encoder writes them, also for a thousand segments."""
    whose = TopicIdPartition("orders", 3, uuid(7))
    for number in range(1000):
        epochs = (EpochEntry(number, 10 * number), EpochEntry(number + 40, 10 * number + 5))
        segment = RemoteSegment(
            uuid(100 + number), 10 * number, 10 * number + 9, epochs, number, 5, 1, 6,
            SegmentState.COPY_SEGMENT_FINISHED, b"x" * (number % 3) or None, number % 2 == 0,
        )  # fmt: skip
        custom, theirs = segment.custom_metadata, Whose("orders", 3, uuid(7))
        began, ended = copy_events(whose, segment)
        assert began == started(
            segment.segment_id, segment.start_offset, segment.end_offset, dict(epochs), whose=theirs,
            size=number, txn_index_empty=segment.txn_index_empty,
        )  # fmt: skip
        assert ended == updated(segment.segment_id, 1, whose=theirs, at=6, custom=custom)
        assert getattr(read_event(began), "segment_id", None) == segment.segment_id
