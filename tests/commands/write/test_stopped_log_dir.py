"""Writes into a stopped broker's log dir: a plan that can be finished and undone at any point."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.progress import Silence
from klog.change.plan import session as sessions
from klog.change.plan.find_plans import plans_of
from klog.change.plan.model import APPEND
from klog.change.plan.plan_document import load_plan, plan_pieces, read_plan
from klog.change.plan.plan_status import PlanStatus, state_of
from klog.change.plan.reporter import SilentReporter
from klog.change.plan.session import PlanOptions
from klog.commands.write.write import WriteInput, write_stopped
from klog.commands.write.write_destination import WriteOptions
from klog.data_dir.disk.disk_changes import Disk

from tests.commands.write.sources import SOURCE, TARGETS, lines, topic
from tests.conftest import FIXTURES, Ran, writable_copy
from tests.support.power import MODELS, cut_everywhere, less_pointers, tree
from tests.support.samples import some_or_all

pytestmark = [pytest.mark.corpora, pytest.mark.usefixtures("state_home")]
Klog = Callable[..., Ran]
TX = "order.tx-0"


@pytest.fixture
def source(image: Callable[[str], Path]) -> Path:
    return image(SOURCE) / "data"


@pytest.fixture
def target(image: Callable[[str], Path], tmp_path: Path) -> Path:
    """A log dir of 4.3.1 on which the topics are, empty."""
    return writable_copy(image(TARGETS["4.3.1"]) / "data", tmp_path / "data")


def test_it_plans_applies_and_is_taken_back(klog: Klog, source: Path, target: Path, tmp_path: Path) -> None:
    """Without --apply nothing changes; a plan file is carried out; undo restores every file and every time."""
    before = tree(target)
    records = tmp_path / "tx.jsonl"
    assert klog("dump", source / TX, "--output", "jsonl", "--to", records).exit_code == 0
    planned = klog("write", records, "--to", target)
    assert planned.exit_code == 0, planned.stderr
    assert "163 records, offsets 0–162, " in planned.stdout.decode()
    assert tree(target) == before
    assert klog("write", records, "--to", target, "--save-plan", tmp_path / "plan.json").exit_code == 0
    assert klog("apply", tmp_path / "plan.json").exit_code == 0
    after = tree(target)
    marker = ".kafka_cleanshutdown"
    assert after[marker] == before[marker]
    assert len(lines(klog, [target / TX])) == 163
    done = klog("undo", load_plan(str(tmp_path / "plan.json")).id, "--apply", "--backup", tmp_path / "klog-backup")
    assert done.exit_code == 0, done.stderr
    assert {**tree(target), ".lock": None} == {**before, ".lock": None}


def test_a_second_write_goes_on_where_the_first_ended(klog: Klog, source: Path, target: Path, tmp_path: Path) -> None:
    """In the same segment: the plan appends, and keeps no copy of the log; both can be taken back."""
    file = tmp_path / "idem.jsonl"
    paths = [source / "order.idem-0", source / "order.idem-1"]
    assert klog("dump", *paths, "--output", "jsonl", "--to", file).exit_code == 0
    states, backups = [tree(target)], []
    for turn in range(2):
        done = klog("write", file, "--to", target, "--apply", "--output", "json", "--set", "segment.bytes=1000000")
        assert done.exit_code == 0, done.stderr
        made = json.loads(done.stdout)
        backups.append(made["backup"])
        states.append(tree(target))
        first = {one["partition"]: one["first_offset"] for one in made["partitions"]}
        assert all(offset > 0 for offset in first.values()) == bool(turn)
        plan = load_plan(str(Path(made["backup"]) / "plan.json"))
        logs = [action for action in plan.actions if action.file.endswith(".log")]
        assert {action.do for action in logs} == {APPEND}
        assert not list(Path(made["backup"]).glob("originals/*/*.log"))
        assert read_plan(b"".join(plan_pieces(plan))) == plan._replace(staging=())
    assert klog("verify", "--deep", target).exit_code == 0
    for state in (states[1], states[0]):
        assert klog("undo", backups.pop(), "--apply", "--backup", tmp_path / "undone").exit_code == 0
        assert {**less_pointers(tree(target)), ".lock": None} == {**state, ".lock": None}
        shutil.rmtree(tmp_path / "undone")


def write_plainly(data: Path, disk: Disk, records: Path) -> None:
    """Write as the command does, on a disk that may fail; written data is not written twice."""
    if any(state_of(kept.plan) is PlanStatus.APPLIED for kept in plans_of(str(data))):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "Disk", lambda: disk)
        write_stopped(
            [WriteInput(str(records), "jsonl")], str(data), WriteOptions(1_900_000_000_000), None,
            PlanOptions("write", True, None, None, "klog write"), SilentReporter(), Silence(),
        )  # fmt: skip


@pytest.fixture
def small_target(klog: Klog, source: Path, target: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A log dir with one partition that has records, and some more for it: enough for a second segment."""
    for path in target.iterdir():
        if path.is_dir() and path.name not in (TX, "__cluster_metadata-0"):
            shutil.rmtree(path)
    records = tmp_path / "tx.jsonl"
    done = klog("dump", source / TX, "--output", "jsonl")
    found = done.stdout.splitlines(keepends=True)
    records.write_bytes(b"".join(found[:20]))
    assert klog("write", records, "--to", target, "--apply").exit_code == 0
    shutil.rmtree(tmp_path / "klog-backup")
    records.write_bytes(b"".join(found[20:110]))
    return target, records


@some_or_all
def test_power_cuts_leave_what_can_be_finished_and_taken_back(
    every: int, small_target: tuple[Path, Path], tmp_path: Path
) -> None:
    """Before any call, under any model of a disk."""
    target, records = small_target
    cuts = cut_everywhere(target, tmp_path / "cuts", lambda data, disk: write_plainly(data, disk, records), every=every)
    assert cuts > 20


def test_a_kill_at_any_call_leaves_what_the_next_run_finishes(
    small_target: tuple[Path, Path], klog: Klog, tmp_path: Path
) -> None:
    """SIGKILL in the middle of applying: `klog write` again finishes the plan first."""
    target, records = small_target
    plan = tmp_path / "plan.json"
    assert klog("write", records, "--to", target, "--save-plan", plan).exit_code == 0
    code = (
        "import os, signal, sys\n"
        "from klog.data_dir.disk.disk_changes import Disk\n"
        "from klog.change.plan import session\n"
        "left = [int(sys.argv[2])]\n"
        "class Deadly(Disk):\n"
        "    def step(self):\n"
        "        left[0] -= 1\n"
        "        if left[0] < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "for name in ('copy', 'rename', 'unlink', 'set_metadata', 'sync'):\n"
        "    def call(self, *args, _real=getattr(Disk, name)):\n"
        "        self.step()\n"
        "        return _real(self, *args)\n"
        "    setattr(Deadly, name, call)\n"
        "session.apply_plan(sys.argv[1], disk=Deadly())\n"
    )
    original = tmp_path / "original"
    shutil.copytree(target, original, symlinks=True)
    outcomes = set()
    for at in range(1, 400, 6):
        shutil.rmtree(target)
        subprocess.run(["cp", "-a", original, target], check=True)
        shutil.rmtree(tmp_path / "klog-backup", ignore_errors=True)
        died = subprocess.run(
            [sys.executable, "-c", code, str(plan), str(at)], check=False, capture_output=True, timeout=60
        )
        again = klog("apply", plan)
        assert again.exit_code == 0, (at, again.stderr)
        outcomes.add(died.returncode)
        assert len(lines(klog, [target / TX])) == 110
        assert klog("verify", "--deep", target).exit_code == 0
        if not died.returncode:
            break
    assert outcomes == {-9, 0}


# the facts of the metadata


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"topic": "no.such"}, "the cluster has no topic no.such: create it on a broker first"),
        ({"topic": "__cluster_metadata"}, "only controllers write the metadata log"),
        ({"partition": 9}, "no such partition 9"),
    ],
)
def test_what_the_metadata_contradict_is_refused(
    change: dict[str, object], why: str, klog: Klog, target: Path, tmp_path: Path
) -> None:
    """Before anything is touched."""
    before = tree(target)
    record = {"topic": "order.bytes", "partition": 0, "key": "k", "value": "v", **change}
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps(record))
    done = klog("write", file, "--to", target, "--apply")
    assert (done.exit_code, why in done.stderr.decode()) == (8, True), done.stderr
    assert tree(target) == before
    assert not (tmp_path / "klog-backup").exists()


def test_a_later_leader_epoch_than_the_clusters_is_refused(klog: Klog, target: Path, tmp_path: Path) -> None:
    """A broker that starts over one drops the whole history of epochs."""
    file = tmp_path / "one.jsonl"
    file.write_text('{"topic":"order.bytes","key":"k","value":"v","leader_epoch":9}')
    for words in (("--leader-epoch", "9"), ("--leader-epoch", "keep")):
        done = klog("write", file, "--to", target, "--apply", *words)
        assert done.exit_code == 8, done
        assert b"by the metadata" in done.stderr


def test_another_topic_id_is_refused(klog: Klog, target: Path, tmp_path: Path) -> None:
    """A broker would rename the directory, and serve an empty one."""
    metadata = target / "order.bytes-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAEA\n")
    file = tmp_path / "one.jsonl"
    file.write_text('{"topic":"order.bytes","key":"k","value":"v"}')
    done = klog("write", file, "--to", target, "--apply")
    assert done.exit_code == 8
    assert b"of topic AAAAAAAAAAAAAAAAAAAAEA" in done.stderr


def test_the_settings_of_the_topic_are_used(klog: Klog, source: Path, target: Path) -> None:
    """Those of the metadata log: the same segments as the broker's own."""
    assert klog("write", source / "order.full-0", "--to", target, "--keep-offsets", "--apply").exit_code == 0
    names = {path.name for path in (source / "order.full-0").glob("*.log")}
    assert {path.name for path in (target / "order.full-0").glob("*.log")} == names
    assert topic("full").settings["segment.index.bytes"] == "64"
    assert MODELS


def write_one(klog: Klog, target: Path, folder: Path, name: str, *words: str) -> Ran:
    """Write one record to partition 0 of a topic."""
    file = folder / "one.jsonl"
    file.write_text(
        json.dumps({"topic": name, "partition": 0, "key": "k", "value": "v", "timestamp": 1_900_000_000_000})
    )
    return klog("write", file, "--to", target, *words)


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("node.id", "7", "its replicas are on 1, and this is the log dir of node 7"),
        ("directory.id", "AAAAAAAAAAAAAAAAAAAAEA", "assigned to another log dir of node 1"),
    ],
)
def test_a_partition_that_belongs_elsewhere_is_refused(
    setting: str, value: str, why: str, klog: Klog, target: Path, tmp_path: Path
) -> None:
    """A broker would rename the directory, or serve the one that it has elsewhere."""
    properties = target / "meta.properties"
    text, count = re.subn(rf"(?m)^{re.escape(setting)}=.*", f"{setting}={value}", properties.read_text())
    assert count == 1
    properties.write_text(text)
    before = tree(target)
    done = write_one(klog, target, tmp_path, "order.bytes", "--apply")
    assert (done.exit_code, why in done.stderr.decode()) == (8, True), done.stderr
    assert tree(target) == before


def test_a_topic_with_further_replicas_wants_the_same_on_each(klog: Klog, tmp_path: Path) -> None:
    """Whoever leads first decides; the same command on every log dir writes the same bytes."""
    disks = [writable_copy(FIXTURES / "replicas/behind" / f"broker-{node}", tmp_path / f"{node}") for node in (1, 2)]
    before = [tree(disk) for disk in disks]
    unknown = write_one(klog, disks[0], tmp_path, "orders", "--apply")
    assert (unknown.exit_code, b"--metadata DIR names the log dir that has it" in unknown.stderr) == (8, True), (
        unknown.stderr
    )
    metadata = ("--metadata", str(FIXTURES / "replicas/behind/controller-4"))
    refused = write_one(klog, disks[0], tmp_path, "orders", "--apply", *metadata)
    assert (refused.exit_code, b"orders has 3 replicas" in refused.stderr) == (8, True), refused.stderr
    assert [tree(disk) for disk in disks] == before
    logs = []
    for disk in disks:
        done = write_one(klog, disk, tmp_path, "orders", "--one-replica", "--apply", *metadata)
        assert done.exit_code == 0, done.stderr
        logs.append(b"".join(path.read_bytes() for path in sorted((disk / "orders-0").glob("*.log"))))
    assert logs[0] == logs[1]
    assert tree(disks[0]) != before[0]


def test_a_plan_is_stale_once_its_partition_was_used(klog: Klog, target: Path, tmp_path: Path) -> None:
    """A broker has rolled a segment in between: the planned batches would precede its records."""
    assert write_one(klog, target, tmp_path, "order.bytes", "--save-plan", str(tmp_path / "plan.json")).exit_code == 0
    (target / "order.bytes-0" / f"{9:020}.log").write_bytes(b"")
    before = tree(target)
    done = klog("apply", tmp_path / "plan.json")
    assert done.exit_code == 8, done.stdout
    assert tree(target) == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--partitions", "3"), "--partitions 3: order.bytes is there, and has 1 partition"),
        (("--topic-id", "AAAAAAAAAAAAAAAAAAAAEA"), "--topic-id AAAAAAAAAAAAAAAAAAAAEA: order.bytes is there, and is "),
        (("--topic", "order.byts"), "create it on a broker first; did you mean order.bytes"),
    ],
)
def test_what_is_said_of_a_topic_must_hold(
    words: tuple[str, ...], why: str, klog: Klog, target: Path, tmp_path: Path
) -> None:
    """Options that describe another topic than the cluster has are no wishes that can be left out in silence."""
    before = tree(target)
    done = write_one(klog, target, tmp_path, "order.bytes", "--apply", *words)
    assert (done.exit_code, why in done.stderr.decode()) == (8, True), done.stderr
    assert tree(target) == before


def test_a_log_is_not_written_to_itself(klog: Klog, target: Path, tmp_path: Path) -> None:
    """Doubled records cannot be intended; as another topic, and from a file that lies in the log dir, it works."""
    assert write_one(klog, target, tmp_path, "order.bytes", "--apply").exit_code == 0
    source = target / "order.bytes-0"
    for given in (source, target):
        done = klog("write", given, "--to", target)
        assert (done.exit_code, b"is read and written: --topic NAME" in done.stderr) == (8, True), done.stderr
    assert klog("write", source, "--to", target, "--topic", "order.full", "--apply").exit_code == 0
    assert len(lines(klog, [target / "order.full-0"])) == 1
    inside = target / "records.jsonl"
    inside.write_bytes((tmp_path / "one.jsonl").read_bytes())
    assert klog("write", inside, "--to", target, "--apply").exit_code == 0
    assert len(lines(klog, [source])) == 2


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("meta.properties", b"meta.properties: "),
        ("__cluster_metadata-0/00000000000000000000.log", b"the metadata log is damaged: "),
    ],
)
def test_what_says_where_records_belong_is_sound(
    file: str, told: bytes, klog: Klog, target: Path, tmp_path: Path
) -> None:
    """In half a metadata log a topic may be another one, and its leader epoch an old one."""
    path = next(target.rglob(file))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content if b"log" in told else b"version=7\n")
    for snapshot in target.glob("__cluster_metadata-0/*.checkpoint"):
        snapshot.unlink()
    before = tree(target)
    (tmp_path / "records.jsonl").write_text('{"topic":"order.tx","partition":0,"value":"v"}\n')
    refused = klog("write", tmp_path / "records.jsonl", "--to", target, "--apply")
    assert refused.exit_code in (8, 12), refused  # a malformed file is a problem that is left
    assert told in refused.stderr
    assert tree(target) == before
