"""`recover --mark-clean`: the marked state is that after a broker's own recovery; anything in doubt is left alone."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from klog.base.errors import PlanError
from klog.change.plan.draft import Draft, backup_places, make_plan
from klog.change.plan.executor import apply
from klog.change.plan.find_plans import plans_of
from klog.change.plan.model import PUT, REMOVE, STAGED, TRUNCATE, Action, Plan, file_state
from klog.change.plan.plan_rules import check_plan
from klog.change.plan.staging import Staging
from klog.commands.recover.mark_clean import mark_clean
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import Selection
from klog.formats.checkpoint import read_offsets
from klog.formats.producer_snapshot import read_snapshot, write_snapshot
from klog.kernel import crc32c
from klog.partition.repair.recover_outcome import RecoverMode, RecoverOptions

from tests.conftest import Ran
from tests.oracles.broker_load import MARKER, differences
from tests.partition.verify.images import CRASHES, unpacked
from tests.partition.verify.partitions import Damageable, flipped
from tests.support.bad_sectors import spoil
from tests.support.metadata_logs import MetadataLog, config, topic, uuid, value
from tests.support.power import MODELS, PowerCutDisk, PowerCutError, cut_everywhere, tree

Klog = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("state_home")
NOW_MS = 1_750_000_060_000
NOW = f"--now={NOW_MS}"
NOBODYS = b'{"version":0,"brokerEpoch":-1}'
PARTITIONS = ("idempotent-0", "plain-1", "tx-0", "tx-open-0")
POINTS = "recovery-point-offset-checkpoint"


def killed(folder: Path, *partitions: str) -> Damageable:
    """A log dir of real data as a kill leaves it: no marker, preallocated indexes, recovery points of some time ago."""
    data = Damageable(folder, *(partitions or PARTITIONS))
    (folder / MARKER).unlink()
    (folder / POINTS).write_text("0\n2\nplain 1 0\nidempotent 0 375\n")
    for log in {max(path.glob("*.log")) for path in folder.iterdir() if path.is_dir()}:
        for kind in (".index", ".timeindex"):
            with log.with_suffix(kind).open("ab") as index:
                index.write(bytes(12 * 40))
    return data


def marking(klog: Klog, *arguments: object) -> Ran:
    return klog("recover", *map(str, arguments), "--mark-clean", NOW, "--apply", "--output", "json")


def plan_of(done: Ran) -> dict[str, list[dict[str, object]]]:
    plan: dict[str, list[dict[str, object]]] = json.loads(done.stdout)
    return plan


# the rest


def test_everything_is_as_after_a_brokers_start_and_stop(klog: Klog, tmp_path: Path) -> None:
    """But for recovery points, which a stop sets to the log ends, and the marker itself."""
    data, like = killed(tmp_path / "one/data").path, killed(tmp_path / "two/data").path
    assert klog("recover", str(like), "--like-broker", NOW, "--apply").exit_code == 1
    done = marking(klog, data)
    assert done.exit_code == 1, done
    assert [line.split(":")[0] for line in differences(data, like)] == [POINTS]
    ends = {(one.topic, one.partition): one.offset for one in read_offsets((data / POINTS).read_bytes()).entries}
    assert ends == {("idempotent", 0): 800, ("plain", 1): 113, ("tx", 0): 648, ("tx-open", 0): 45}
    assert (data / MARKER).read_bytes() == NOBODYS
    assert (data / MARKER).stat().st_mode == (data / "meta.properties").stat().st_mode
    assert klog("verify", "--deep", str(data)).exit_code == 0


def test_the_marker_is_put_last_and_goes_first(klog: Klog, tmp_path: Path) -> None:
    """In several log dirs it is written after the repairs of all of them. Killed before that, a broker recovers as
    ever."""
    dirs = [killed(tmp_path / "a/data", "plain-1", "tx-0").path, killed(tmp_path / "b/data", "idempotent-0").path]
    before = [tree(path) for path in dirs]
    plan = plan_of(marking(klog, *dirs))
    last = [(one["do"], one["file"], one.get("log_dir", 0)) for one in plan["actions"]][-4:]
    assert last == [("put", POINTS, 0), ("put", POINTS, 1), ("put", MARKER, 0), ("put", MARKER, 1)] or last[-2:] == [
        ("put", MARKER, 0),
        ("put", MARKER, 1),
    ]
    assert sum(one["file"] == MARKER for one in plan["actions"]) == 2
    back = plan_of(klog("undo", str(plan["backup"]), "--output", "json"))
    assert [(one["do"], one["file"]) for one in back["actions"]][:2] == [("remove", MARKER)] * 2
    assert klog("undo", str(plan["backup"]), "--apply").exit_code == 0
    assert [tree(path) for path in dirs] == before


@pytest.mark.corpora
@pytest.mark.parametrize("image", CRASHES, ids=[image.name for image in CRASHES])
def test_an_image_of_a_crash_is_marked_as_its_broker_left_it_or_not_touched(
    image: Path, tmp_path: Path, klog: Klog
) -> None:
    """With the marker a broker checks nothing: a marked log dir has no fault, and is its own result."""
    log_dir, like = unpacked(image, tmp_path / "data"), unpacked(image, tmp_path / "like/data")
    (log_dir / MARKER).unlink(missing_ok=True)
    (like / MARKER).unlink(missing_ok=True)
    before = tree(log_dir)
    done = marking(klog, log_dir)
    said = plan_of(done)
    if said["marked"]:
        assert done.exit_code == 1, done
        klog("recover", str(like), "--like-broker", NOW, "--apply")
        assert {line.split(":")[0] for line in differences(log_dir, like)} <= {POINTS}
        found = json.loads(klog("verify", "--deep", str(log_dir), "--output", "json").stdout)["findings"]
        unmendable = {"offset-gap", "offsets-missing", "sequence-gap"}
        assert {one["id"] for one in found if one["severity"] != "note"} <= unmendable
        assert klog("undo", str(said["backup"]), "--apply").exit_code == 0
    else:
        assert done.exit_code in (4, 8), done
        assert said["refused"]
        assert not (tmp_path / "klog-backup").exists()
    assert tree(log_dir) == before


def test_epochs_that_the_start_itself_brings_back_are_no_obstacle(klog: Klog, tmp_path: Path) -> None:
    """From the batches of the segments that it recovers; from others it would not."""
    data = killed(tmp_path / "data", "idempotent-0").path
    (data / "idempotent-0/leader-epoch-checkpoint").unlink()
    assert marking(klog, data).exit_code == 4, "below the recovery point no broker looks"
    (data / POINTS).write_text("0\n0\n")
    done = marking(klog, data)
    assert done.exit_code == 1, done
    assert klog("verify", "--deep", str(data)).exit_code == 0


def test_what_a_broker_loads_besides_is_made_ready_too(klog: Klog, tmp_path: Path) -> None:
    """It loads partitions on the move and those it has set aside; it never recovers those that it deletes."""
    data = killed(tmp_path / "data").path
    one = "0123456789abcdef0123456789abcdef"
    for name, state in (("plain-1", "stray"), ("tx-0", "future"), ("idempotent-0", "delete")):
        (data / name).rename(data / f"{name}.{one}-{state}")
    done = marking(klog, data)
    assert done.exit_code == 1, done
    touched = {str(action["file"]).rpartition("/")[0] for action in plan_of(done)["actions"]}
    assert touched == {"", f"plain-1.{one}-stray", f"tx-0.{one}-future", "tx-open-0"}
    points = (data / POINTS).read_text()
    assert "tx 0 648\n" in points
    assert "plain 1 0\n" in points, "recovery points are about partitions in use"


def test_a_log_dir_of_a_zookeeper_broker_gets_an_empty_marker(klog: Klog, tmp_path: Path) -> None:
    data = killed(tmp_path / "data", "plain-1").path
    (data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    assert marking(klog, data).exit_code == 1
    assert (data / MARKER).read_bytes() == b""


# refusals


def write(content: str) -> Callable[[bytearray], bytes]:
    return lambda _: content.encode()


def wrong(data: bytearray) -> bytes:
    """A sound snapshot that contains later records."""
    found = read_snapshot(bytes(data), crc32c).producers
    return write_snapshot([one._replace(last_offset=5000) for one in found], crc32c)


REFUSED: tuple[tuple[str, str, Callable[[bytearray], bytes | bytearray | None], int, str], ...] = (
    ("damage in the middle", "idempotent-0/00000000000000000110.log", flipped(2000), 4, "bad-crc"),
    ("an index below the recovery point", "idempotent-0/00000000000000000000.index", flipped(7), 4, "index-disagrees"),
    ("a wrong snapshot", "idempotent-0/00000000000000000210.snapshot", wrong, 4, "snapshot-disagrees"),
    ("no partition.metadata", "plain-1/partition.metadata", lambda _: None, 4, "metadata-missing"),
    ("bad epochs", "plain-1/leader-epoch-checkpoint", write("0\nx\n"), 4, ""),
    ("a bad checkpoint", "replication-offset-checkpoint", write("0\n7\n"), 4, "checkpoint-malformed"),
    ("a log start beyond the end", "log-start-offset-checkpoint", write("0\n1\nplain 1 5000\n"), 4, "log-start-beyond"),
    ("no meta.properties", "meta.properties", lambda _: None, 8, "meta.properties"),
    ("bad meta.properties", "meta.properties", write("version=7\n"), 12, "meta.properties"),
)


@pytest.mark.parametrize(
    ("file", "change", "code", "why"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED]
)
def test_what_a_marker_would_hide_keeps_the_whole_log_dir_as_it_is(
    klog: Klog, tmp_path: Path, file: str, change: Callable[[bytearray], bytes | None], code: int, why: str
) -> None:
    """One bad partition, and the others are not touched either: the marker is about all."""
    data = killed(tmp_path / "data")
    data.change(file, change)
    before = tree(data.path)
    done = marking(klog, data.path)
    assert done.exit_code == code, done
    assert why in plan_of(done)["refused"][0]["reason"]
    assert plan_of(done)["marked"] == plan_of(done)["actions"] == plan_of(done)["lost"] == []
    assert tree(data.path) == before
    assert not (tmp_path / "klog-backup").exists()


def test_a_torn_end_that_a_broker_would_not_come_by_keeps_a_log_dir_from_being_marked(
    klog: Klog, tmp_path: Path
) -> None:
    """It lies below the recovery point, nothing follows, and with or without the marker it would not be cut."""
    data = Damageable(tmp_path / "data", "plain-1").path
    (data / MARKER).unlink()
    (data / POINTS).write_text("0\n1\nplain 1 113\n")
    log = data / "plain-1/00000000000000000000.log"
    with log.open("ab") as file:
        file.write(log.read_bytes()[:50])
    (data / "plain-1/00000000000000000113.log").touch()
    before = tree(data)
    done = marking(klog, data)
    assert (done.exit_code, tree(data)) == (4, before)
    assert "not only damage" in plan_of(done)["refused"][0]["reason"]
    assert klog("recover", str(data), NOW, "--apply").exit_code == 1
    assert marking(klog, data).exit_code == 1


def test_a_directory_that_stops_a_broker_keeps_its_log_dir_from_being_marked(klog: Klog, tmp_path: Path) -> None:
    data = killed(tmp_path / "data", "plain-1").path
    (data / "lost+found").mkdir()
    assert (marking(klog, data).exit_code, (data / MARKER).exists()) == (4, False)


def test_tiered_storage_is_not_looked_at_and_so_not_marked(klog: Klog, tmp_path: Path) -> None:
    """The remote part of a log decides about its start; signs are the cache, and the topic's own setting."""
    data = killed(tmp_path / "data", "plain-1").path
    (data / "remote-log-index-cache").mkdir()
    assert marking(klog, data).exit_code == 8
    (data / "remote-log-index-cache").rmdir()
    meta = (data / "meta.properties").read_bytes()
    log = MetadataLog(data)
    (data / "meta.properties").write_bytes(meta)
    log.add(topic("plain", 1), config(2, "plain", "remote.storage.enable", "true"))
    done = marking(klog, data)
    assert done.exit_code == 8
    assert "tiered" in plan_of(done)["refused"][0]["reason"]
    log.add(config(2, "plain", "remote.storage.enable", "false"))
    assert marking(klog, data).exit_code == 1


def test_a_partition_in_two_log_dirs_keeps_both_from_being_marked(klog: Klog, tmp_path: Path) -> None:
    dirs = [killed(tmp_path / name / "data", "plain-1").path for name in ("a", "b")]
    done = marking(klog, *dirs)
    assert (done.exit_code, [(one / MARKER).exists() for one in dirs]) == (8, [False, False])
    assert len(plan_of(done)["refused"]) == 2
    (dirs[1] / "plain-1").rename(dirs[1] / "plain-1.0123456789abcdef0123456789abcdef-future")
    assert marking(klog, *dirs).exit_code == 1


def test_a_log_dir_with_the_metadata_log_alone_is_not_marked(klog: Klog, tmp_path: Path) -> None:
    """No log manager looks at it there; beside other log dirs it is only passed over."""
    data = killed(tmp_path / "data", "plain-1").path
    MetadataLog(tmp_path / "metadata")
    assert marking(klog, tmp_path / "metadata").exit_code == 8
    assert marking(klog, tmp_path / "metadata", data).exit_code == 1
    assert not (tmp_path / "metadata" / MARKER).exists()


def test_what_cannot_be_read_keeps_a_log_dir_from_being_marked(
    klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = killed(tmp_path / "data").path
    spoil(monkeypatch, range(15000, 15001))
    done = marking(klog, data)
    assert done.exit_code & 12, done
    assert not (data / MARKER).exists()


def test_one_log_dir_is_marked_though_another_cannot_be(klog: Klog, tmp_path: Path) -> None:
    """The broker then recovers the other one itself."""
    good, bad = killed(tmp_path / "a/data", "tx-0"), killed(tmp_path / "b/data", "plain-1")
    bad.change("plain-1/00000000000000000000.log", flipped(300))
    before = tree(bad.path)
    done = marking(klog, good.path, bad.path)
    assert done.exit_code == 5, done
    assert ((good.path / MARKER).exists(), tree(bad.path)) == (True, before)


@pytest.mark.parametrize(
    "arguments",
    [
        ("{}/plain-1",),
        ("{}", "--topic", "plain"),
        ("{}", "--partition", "1"),
        ("{}", "--like-broker"),
        ("{}", "--salvage"),
        ("{}", "--indexes-only"),
        ("{}", "--repair-bits"),
        ("{}", "--rescue-records", "{}/../rescued"),
        ("{}", "--broker-epoch", "7"),
    ],
)
def test_parts_of_log_dirs_and_other_ways_are_refused(klog: Klog, tmp_path: Path, arguments: Sequence[str]) -> None:
    data = killed(tmp_path / "data", "plain-1").path
    before = tree(data)
    done = klog("recover", *(word.format(data) for word in arguments), "--mark-clean", "--apply")
    assert (done.exit_code, tree(data)) == (16, before), done
    assert klog("recover", str(data), "--broker-epoch", "registered").exit_code == 16


# markers that are there


def test_a_marked_log_dir_is_left_as_it_is(klog: Klog, tmp_path: Path) -> None:
    data = Damageable(tmp_path / "data", "plain-1").path
    before = tree(data)
    done = marking(klog, data)
    assert (done.exit_code, tree(data)) == (0, before)
    assert plan_of(done)["marked_before"] == [str(data)]


def test_markers_of_one_broker_never_say_different_things(klog: Klog, tmp_path: Path) -> None:
    """4.3.1 takes the epoch of the last one for all of them: then a log dir that lost records would count as whole."""
    data, other = killed(tmp_path / "a/data", "plain-1").path, Damageable(tmp_path / "b/data", "tx-0").path
    done = marking(klog, data, other)
    assert [(data / MARKER).read_bytes(), (other / MARKER).read_bytes()] == [NOBODYS, NOBODYS]
    assert [one.get("log_dir", 0) for one in plan_of(done)["actions"] if one["file"] == MARKER] == [1, 0]
    stranger = Damageable(tmp_path / "c/data", "tx-0").path
    (stranger / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=fXeC61JOQie3q2pvw8VSPQ\n")
    before = tree(stranger)
    assert marking(klog, killed(tmp_path / "d/data", "plain-1").path, stranger).exit_code == 1
    assert tree(stranger) == before


def test_what_was_repaired_before_is_not_taken_back_below_a_marker(klog: Klog, tmp_path: Path) -> None:
    """A broker would trust the wrong index that is restored; once the marker is deleted, all can be undone."""
    data = killed(tmp_path / "data")
    data.change("idempotent-0/00000000000000000000.index", flipped(7))
    before = tree(data.path)
    repaired = json.loads(klog("recover", str(data.path), NOW, "--apply", "--output", "json").stdout)["backup"]
    between = tree(data.path)
    done = marking(klog, data.path)
    assert done.exit_code == 1, done
    marked = tree(data.path)
    refused = klog("undo", repaired, "--apply")
    assert (refused.exit_code, tree(data.path)) == (8, marked)
    assert b"undo that plan first" in refused.stderr
    assert klog("undo", str(plan_of(done)["backup"]), "--apply").exit_code == 0
    assert tree(data.path) == between
    assert klog("undo", repaired, "--apply").exit_code == 0
    assert tree(data.path) == before


@pytest.mark.parametrize(
    "command",
    [
        ("recover", "{}"),
        ("recover", "{}", "--like-broker"),
        ("recover", "{}", "--salvage"),
        ("recover", "{}", "--indexes-only"),
        ("truncate", "{}/plain-1", "--to-offset", "60"),
    ],
    ids=" ".join,
)
def test_no_other_command_touches_the_marker(klog: Klog, tmp_path: Path, command: tuple[str, ...]) -> None:
    """It is the broker's word about its logs, and no repair makes it truer or falser."""
    for name in ("marked", "unmarked"):
        data = killed(tmp_path / name / "data")
        if name == "marked":
            (data.path / MARKER).write_bytes(b"of a broker")
        data.change("plain-1/00000000000000000000.index", lambda _: b"\1" * 8)
        before = (data.path / MARKER).stat() if name == "marked" else None
        done = klog(*(word.format(data.path) for word in command), "--apply", "--output", "json")
        assert plan_of(done)["actions"], done
        assert (data.path / MARKER).exists() == (before is not None)
        if before is not None:
            assert (data.path / MARKER).stat().st_mtime_ns == before.st_mtime_ns
            assert (data.path / MARKER).read_bytes() == b"of a broker"


# the registered epoch


class Registered:
    """A killed log dir with a metadata log in which node 1 has registered."""

    def __init__(self, folder: Path) -> None:
        self.data = killed(folder, "plain-1").path
        meta = (self.data / "meta.properties").read_bytes()
        self.log = MetadataLog(self.data)
        (self.data / "meta.properties").write_bytes(meta)
        self.log.add(topic("plain", 1), *(self.registration(epoch) for epoch in (7, 19)))

    def registration(self, epoch: int) -> bytes:
        fields = {"incarnationId": uuid(9), "endPoints": [], "features": [], "rack": None, "fenced": False}
        return value("RegisterBroker", brokerId=1, brokerEpoch=epoch, logDirs=[uuid(5)], **fields)

    def mark(self, klog: Klog, *others: Path) -> Ran:
        return marking(klog, self.data, *others, "--broker-epoch=registered")


def test_the_registered_epoch_is_that_of_the_last_registration(klog: Klog, tmp_path: Path) -> None:
    """Its controller then counts the broker as one that lost nothing: only on its operator's word."""
    wreck = Registered(tmp_path / "data")
    assert wreck.mark(klog).exit_code == 1
    assert (wreck.data / MARKER).read_bytes() == b'{"version":0,"brokerEpoch":19}'


def _missing(wreck: Registered) -> None:
    shutil.rmtree(wreck.log.path)


def _damaged(wreck: Registered) -> None:
    content = bytearray(wreck.log.log.read_bytes())
    content[90] ^= 0xFF
    wreck.log.log.write_bytes(content)
    wreck.log.add(wreck.registration(30))


def _anothers(wreck: Registered) -> None:
    (wreck.data / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=fXeC61JOQie3q2pvw8VSPQ\n")


def _struck_off(wreck: Registered) -> None:
    wreck.log.add(value("UnregisterBroker", brokerId=1, brokerEpoch=19))


def _torn(wreck: Registered) -> None:
    log = wreck.data / "plain-1/00000000000000000000.log"
    with log.open("ab") as file:
        file.write(log.read_bytes()[:50])


def _behind(wreck: Registered) -> None:
    (wreck.data / "replication-offset-checkpoint").write_text("0\n1\nplain 1 5000\n")


def _with_zookeeper(wreck: Registered) -> None:
    (wreck.data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")


@pytest.mark.parametrize(
    "change",
    [_missing, _damaged, _anothers, _struck_off, _torn, _behind, _with_zookeeper],
    ids=lambda one: one.__name__,
)
def test_the_registered_epoch_is_not_claimed_where_anything_speaks_against_it(
    klog: Klog, tmp_path: Path, change: Callable[[Registered], None]
) -> None:
    """A replica that lies is elected as if it were complete, and the others cut their logs to its own."""
    wreck = Registered(tmp_path / "data")
    change(wreck)
    before = tree(wreck.data)
    done = wreck.mark(klog)
    assert done.exit_code & 8, done
    assert tree(wreck.data) == before
    assert not (tmp_path / "klog-backup").exists()


def test_with_the_registered_epoch_all_log_dirs_are_marked_or_none(klog: Klog, tmp_path: Path) -> None:
    wreck, other = Registered(tmp_path / "a/data"), killed(tmp_path / "b/data", "tx-0")
    other.change("tx-0/00000000000000000000.log", flipped(300))
    before = tree(wreck.data)
    assert wreck.mark(klog, other.path).exit_code == 12
    assert tree(wreck.data) == before
    marked = Damageable(tmp_path / "c/data", "tx-0").path
    assert wreck.mark(klog, marked).exit_code == 8, "what was lost there nobody knows"
    assert tree(wreck.data) == before
    (marked / MARKER).write_text('{"version":0,"brokerEpoch":19}')
    assert wreck.mark(klog, marked).exit_code == 1


# the power


def mark(data: Path, disk: Disk, log_dirs: Sequence[Path] = ()) -> None:
    """Plan and apply as the command does, on *disk*."""
    places = [str(one) for one in log_dirs or (data,)]
    targets = [Selection(one, one.partitions) for one in map(LogDir, places)]
    backups = backup_places("20261121-060000-recover-0000", places)
    staging = [Staging(os.path.join(backup, STAGED), disk) for backup in backups]
    found = mark_clean(targets, RecoverOptions(RecoverMode.DEFAULT, NOW_MS, mark_clean=True), staging, {})
    plan = make_plan("20261121-060000-recover-0000", "klog", places, backups, found.recovery.drafts, NOW_MS)
    if plan.actions:
        apply(plan, disk)


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
def test_the_power_may_go_at_any_call(tmp_path: Path, model: str) -> None:
    """Finished by another run, or taken back, at each of them."""
    original = killed(tmp_path / "original", "plain-1", "tx-open-0").path
    assert cut_everywhere(original, tmp_path, mark, models=(model,)) > 50


@pytest.mark.parametrize("model", [MODELS[0], MODELS[2]])
def test_no_marker_reaches_the_disk_before_the_logs_that_it_speaks_of(tmp_path: Path, model: str) -> None:
    """A killed broker leaves its last batches in memory, and with the marker none is ever going to sync them."""
    original = killed(tmp_path / "original", "plain-1", "tx-open-0").path
    names = [f"{partition}/00000000000000000000.log" for partition in ("plain-1", "tx-open-0")]
    whole = {name: (original / name).read_bytes() for name in names}
    seen = set()
    at = 0
    while "done" not in seen:
        root = tmp_path / "cut"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(original, root / "data")
        disk = PowerCutDisk(root, at)
        for path in whole:
            disk.forget_end(str(root / "data" / path), 100)
        try:
            mark(root / "data", disk)
            seen.add("done")
        except PowerCutError:
            pass
        disk.lose_power(model, Random(at))
        lost = [path for path, content in whole.items() if (root / "data" / path).read_bytes() != content]
        begun = any(kept.plan for kept in plans_of(str(root / "data")))
        if (root / "data" / MARKER).exists() or begun:
            assert not lost, f"call {at}: {lost}"
            seen.add("marked")
        elif lost:
            seen.add("lost")
        at += 1
    assert seen == {"done", "marked", "lost"}


# plans


def _marker_plan(tmp_path: Path, *actions: tuple[str, str]) -> Plan:
    data = killed(tmp_path / "data", "plain-1").path
    (data / MARKER).write_bytes(NOBODYS)
    draft = Draft(str(data), 0, Staging(None, Disk()))
    for do, file in actions:
        if do == PUT:
            draft.put(file, [b"content"])
        elif do == REMOVE:
            draft.remove(file)
        else:
            before = file_state(str(data / file))
            assert before is not None
            draft.actions.append(Action(TRUNCATE, file, before, before._replace(size=1, digest=f"crc32c:{0:08}")))
    return make_plan("x", "klog", [str(data)], [str(tmp_path / "backup")], [draft], NOW_MS)


@pytest.mark.parametrize(
    "actions",
    [
        [(TRUNCATE, MARKER)],
        [(PUT, MARKER), (PUT, POINTS)],
        [(PUT, MARKER), (REMOVE, "plain-1/00000000000000000000.index")],
        [(PUT, POINTS), (REMOVE, MARKER)],
    ],
)
def test_plans_in_which_a_marker_stands_while_files_change_are_refused(
    tmp_path: Path, actions: list[tuple[str, str]]
) -> None:
    """After a kill in between, a broker would treat the files as complete."""
    with pytest.raises(PlanError):
        check_plan(_marker_plan(tmp_path, *actions))
    check_plan(_marker_plan(tmp_path / "again", *reversed(actions[1:]), *actions[:1])) if actions[1:] else None


def test_a_saved_plan_marks_later_unless_a_log_has_changed(klog: Klog, tmp_path: Path) -> None:
    data = killed(tmp_path / "data", "plain-1", "tx-0").path
    saved = tmp_path / "plan.json"
    assert klog("recover", str(data), "--mark-clean", NOW, "--save-plan", str(saved)).exit_code == 0
    log = data / "tx-0/00000000000000000000.log"
    times = log.stat()
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    assert klog("apply", str(saved)).exit_code == 8
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert klog("apply", str(saved)).exit_code == 0
    assert (data / MARKER).read_bytes() == NOBODYS
