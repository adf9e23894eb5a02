"""`klog recover`: what operators see, what scripts read, and with which exit code."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from klog.change.plan import session
from klog.commands.recover import like_broker
from klog.data_dir.disk.disk_changes import OpenFile

from tests.change.plan.test_executor import end, other_process, said
from tests.conftest import FIXTURES, Ran
from tests.oracles.plain import encode
from tests.oracles.plain.shapes import some_records
from tests.partition.verify.partitions import Damageable, flipped
from tests.support.power import HastyDisk, PowerCutError, SteppedDisk, same, tree

Klog = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("hasty")
PLAIN, FLIPPED = f"plain-1/{0:020}.log", f"idempotent-0/{375:020}.log"
METADATA, EPOCHS = "__cluster_metadata-0", "leader-epoch-checkpoint"


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """Two partitions, one of which ends in the middle of its last batch."""
    damageable = Damageable(tmp_path / "data", "plain-1", "zstd-0")
    damageable.change(PLAIN, lambda log: log[:-10])
    return damageable.path


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A torn tail in one partition; in another a flipped bit, with intact batches behind it."""
    damageable = Damageable(tmp_path / "data", "plain-1", "idempotent-0")
    damageable.change(PLAIN, lambda log: log[:-10])
    damageable.change(FLIPPED, flipped(100))
    return damageable.path


def repaired(klog: Klog, *arguments: str | os.PathLike[str]) -> dict[str, object]:
    """Return the result of `klog recover --output json`."""
    members = json.loads(klog("recover", *arguments, "--output", "json").stdout)
    assert isinstance(members, dict)
    return members


def backups(log_dir: Path) -> list[str]:
    return sorted(path.name for path in log_dir.parent.glob("klog-backup/*"))


# exit codes, and output


def test_a_healthy_log_dir_takes_one_line(klog: Klog, tmp_path: Path) -> None:
    log_dir = Damageable(tmp_path / "data", "plain-1", "tx-0").path
    for more in ((), ("--apply",)):
        done = klog("recover", log_dir, *more)
        assert (done.exit_code, done.stdout, done.stderr) == (0, b"2 partitions: nothing to do\n", b"")
    assert backups(log_dir) == []


def test_a_plan_is_shown_and_nothing_is_changed(klog: Klog, torn: Path) -> None:
    before = tree(torn)
    done = klog("recover", torn)
    assert done.exit_code == 4
    lines = done.stdout.decode().splitlines()
    assert lines[:4] == [
        "would change 5 files in 1 of 2 partitions; loses 20 records (plain-1, offsets 93–112, 1.9 KiB)",
        "keeps 367 records (64.6 KiB); a broker would keep as many",
        "",
        f"{torn}/plain-1",
    ]
    assert lines[4].split()[:5] == ["damage", "torn-tail", f"{0:020}.log", "@", "8209"]
    assert [line.split()[:2] for line in lines[5:8]] == [
        ["cut", f"{0:020}.log"],
        ["remove", f"{113:020}.snapshot"],
        ["replace", "leader-epoch-checkpoint"],
    ]
    assert lines[-7:] == [
        "If another replica is in sync, it is safer to delete this copy, or to truncate it on a follower, and to let"
        " the broker fetch it again: klog cannot see other brokers.",
        "",
        "klog explain torn-tail",
        f"klog bytes {torn}/plain-1/{0:020}.log --position 8209",
        "",
        "nothing has been changed; next:",
        f"  klog recover {torn} --apply",
    ]
    assert done.stderr == b""
    assert tree(torn) == before
    assert backups(torn) == []


def test_a_sum_says_whether_the_records_of_all_that_is_lost_are_known(klog: Klog, tmp_path: Path) -> None:
    """The number of records in a damaged end is unknown: "at least" has a number, and zero is none."""
    data = Damageable(tmp_path / "data", "plain-1", "idempotent-0")
    data.change(PLAIN, flipped(-300))
    text = klog("recover", data.path, "--salvage").stdout.decode()
    first = (
        "would change 5 files in 1 of 2 partitions; loses an unknown number of records (plain-1, offsets 93–, 1.9 KiB)"
    )
    assert text.startswith(f"{first}\n")
    data.change(FLIPPED, flipped(100))
    text = klog("recover", data.path, "--salvage").stdout.decode()
    assert "; loses at least 25 records (2 partitions, 2.6 KiB)\n" in text
    assert "\n  loses an unknown number of records, offsets 93–, 1.9 KiB (bad-crc)\n" in text
    assert "\n  loses 25 records, offsets 375–399, 659 B (bad-crc)\n" in text


def test_what_is_repaired_stays_so_and_can_be_taken_back(klog: Klog, torn: Path) -> None:
    before = tree(torn)
    done = klog("recover", torn, "--apply")
    assert done.exit_code == 1
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "changed 5 files in 1 of 2 partitions; lost 20 records (plain-1, offsets 93–112, 1.9 KiB)"
    assert not [line for line in lines if "torn-tail" in line], "the preview had the findings"
    (backup,) = backups(torn)
    assert lines[-3:] == [
        f"backup: {torn.parent}/klog-backup/{backup}",
        "next: start the broker; to undo this before the broker has run:",
        f"  klog undo {torn.parent}/klog-backup/{backup}",
    ]
    again = klog("recover", torn, "--apply")
    assert (again.exit_code, again.stdout) == (0, b"2 partitions: nothing to do\n")
    assert klog("undo", torn.parent / "klog-backup" / backup, "--apply").exit_code == 0
    assert same(torn, before)


def test_damage_before_intact_batches_is_left_and_the_ways_out_are_shown(klog: Klog, damaged: Path) -> None:
    """An operator decides, with the numbers and the commands to copy; the way that loses nothing is the first."""
    before = (damaged / FLIPPED).read_bytes()
    done = klog("recover", damaged, "--apply", "--quiet")
    assert (done.exit_code, done.stderr) == (5, b"")
    text = done.stdout.decode()
    lines = text.splitlines()
    assert lines[0].endswith("; 1 partition is damaged and was left unchanged: choose")
    at = lines.index("Choose for the damaged partition")
    assert lines[at + 1 : at + 6] == [
        "  1. Repair the flipped bits: loses nothing, keeps 800 records (84.2 KiB).",
        f"       klog recover {damaged} --quiet --repair-bits",
        "  2. Cut the damage out, and keep every intact batch: loses 25 records (idempotent-0, offsets 375–399, 659 B),"
        " keeps 775 records (83.5 KiB).",
        f"       klog recover {damaged} --quiet --salvage",
        "  A broker does not check this place when it starts: the damage stays, and stops the consumers that reach it.",
    ]
    assert (damaged / FLIPPED).read_bytes() == before
    left = klog("recover", damaged)
    assert left.exit_code == 4
    assert left.stdout.decode().startswith("1 partition is damaged and was left unchanged: choose\n")


def test_each_choice_keeps_and_loses_what_it_says(klog: Klog, tmp_path: Path) -> None:
    """The first one loses nothing, and no way is offered that does nothing."""
    shutil.copytree(FIXTURES / "crash/flip-middle", tmp_path / "data")
    shown = klog("recover", tmp_path / "data").stdout.decode()
    choices = re.findall(r"  \d\. [^:]*: (loses [^,]*?)(?: \([^)]*\))?, (keeps \d+ records) .*\n +klog (.*)\n", shown)
    assert [words.split()[-1] for _, _, words in choices] == ["--repair-bits", "--salvage", "--like-broker"]
    assert choices[0][:2] == ("loses nothing", "keeps 410 records")
    for lost, kept, words in choices:
        planned = repaired(klog, *words.split()[1:])
        assert f"keeps {planned['kept']['records']} records" == kept  # type: ignore[index]
        records = sum(one["records"] for one in planned["lost"])  # type: ignore[attr-defined]
        assert lost == (f"loses {records} records" if records else "loses nothing")


def test_bits_and_other_damage_are_repaired_together(klog: Klog, tmp_path: Path) -> None:
    """One batch has a flipped bit, another one is lost: --repair-bits alone would change nothing."""
    data = Damageable(tmp_path / "data", "idempotent-0")
    data.change(FLIPPED, flipped(100))
    data.change(f"idempotent-0/{210:020}.log", lambda log: bytes(500) + log[500:])
    shown = klog("recover", data.path).stdout.decode()
    first, command, second = shown[shown.index("  1. ") :].splitlines()[:3]
    assert first.startswith("  1. Repair the flipped bits, and cut other damage out: loses ")
    assert command == f"       klog recover {data.path} --salvage --repair-bits"
    assert second.startswith("  2. Cut the damage out, and keep every intact batch: loses ")
    kept = [int(re.findall(r"keeps (\d+)", line)[0]) for line in (first, second)]
    assert kept[0] == kept[1] + 25


def test_like_a_broker_tells_what_its_start_stumbles_over(klog: Klog, damaged: Path) -> None:
    """Segments that are deleted because of earlier ones have their reason; those that no start reads are not read."""
    (damaged / ".kafka_cleanshutdown").unlink()
    (damaged / "recovery-point-offset-checkpoint").write_text("0\n2\nplain 1 0\nidempotent 0 380\n")
    damaged.joinpath(f"idempotent-0/{0:020}.log").write_bytes(b"")
    done = repaired(klog, damaged, "--like-broker")
    found = [(one["id"], one["file"]) for one in done["findings"] if one["severity"] == "damage"]  # type: ignore[attr-defined]
    assert found == [("bad-crc", FLIPPED), ("torn-tail", PLAIN)]
    lost = [(one["topic"], one["first_offset"], one["reason"]) for one in done["lost"]]  # type: ignore[attr-defined]
    assert lost == [("idempotent", 375, "bad-crc"), ("idempotent", 750, "bad-crc"), ("plain", 93, "torn-tail")]
    size = sum((damaged / f"idempotent-0/{base:020}.log").stat().st_size for base in (110, 210))
    assert done["kept"] == done["broker_would_keep"] == {"records": 375 - 110 + 93, "bytes": size + 8209}
    # An index that is missing is made anew, wherever it is: then a start does look there.
    damaged.joinpath(f"idempotent-0/{0:020}.log").write_bytes(b"\1" * 100)
    damaged.joinpath(f"idempotent-0/{0:020}.index").unlink()
    reasons = [one["reason"] for one in repaired(klog, damaged, "--like-broker")["lost"]]  # type: ignore[attr-defined]
    assert reasons == ["garbage-tail", "bad-crc", "bad-crc", "torn-tail"]


def test_like_a_broker_tells_why_it_would_not_start(klog: Klog, torn: Path) -> None:
    (torn / "plain-1" / EPOCHS).write_text("0\n3\n0 0\n")
    before = tree(torn / "plain-1")
    done = repaired(klog, torn / "plain-1", "--like-broker", "--apply")
    found = {one["id"] for one in done["findings"]}  # type: ignore[attr-defined]
    assert found >= {"epochs-malformed", "torn-tail"}
    assert "leader-epoch-checkpoint" in done["partitions"][0]["reason"]  # type: ignore[index]
    assert tree(torn / "plain-1") == before


def test_a_log_that_ends_before_it_starts_goes_for_that_reason(klog: Klog, torn: Path) -> None:
    (torn / "log-start-offset-checkpoint").write_text("0\n1\nplain 1 5000\n")
    lost = repaired(klog, torn, "--like-broker")["lost"]
    assert [(one["first_offset"], one["reason"]) for one in lost] == [(0, "log-start-beyond-end")]  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", [(), ("--like-broker",), ("--salvage",)], ids=["default", "like-broker", "salvage"])
@pytest.mark.parametrize(
    ("name", "said", "wanted"),
    [
        ("cleaner-offset", 93, 93),
        ("cleaner-offset", 94, None),
        ("cleaner-offset", 10, 10),
        ("cleaner-offset", 9, None),
        ("recovery-point-offset", 94, 93),
        ("recovery-point-offset", 12, 12),
        ("replication-offset", 94, 93),
        ("replication-offset", 93, 93),
        ("replication-offset", 50, 50),
    ],
)
def test_checkpoints_stay_within_the_log(
    klog: Klog, torn: Path, mode: tuple[str, ...], name: str, said: int, wanted: int | None
) -> None:
    """The log then ends at 93 and begins at 10: each checkpoint may have both, and nothing outside."""
    (torn / "log-start-offset-checkpoint").write_text("0\n1\nplain 1 10\n")
    (torn / "recovery-point-offset-checkpoint").write_text("0\n1\nzstd 0 5\n")
    (torn / f"{name}-checkpoint").write_text(f"0\n2\nzstd 0 5\nplain 1 {said}\n")
    (torn / ".kafka_cleanshutdown").unlink()
    assert klog("recover", torn / "plain-1", *mode, "--apply").exit_code == 1
    if mode == ("--salvage",) and name == "recovery-point-offset":
        wanted = 93  # so that no broker reads again what only the old files knew
    lines = ["zstd 0 5", *([] if wanted is None else [f"plain 1 {wanted}"])]
    assert (torn / f"{name}-checkpoint").read_text().splitlines() == ["0", str(len(lines)), *lines]
    assert (torn / "log-start-offset-checkpoint").read_text() == "0\n1\nplain 1 10\n"


def test_like_a_broker_looks_for_nothing_where_nothing_is_lost(
    klog: Klog, torn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second pass over a log that is only missing its indexes would cost as much as the first."""
    (torn / PLAIN).write_bytes((FIXTURES / "modern" / PLAIN).read_bytes())
    (torn / ".kafka_cleanshutdown").unlink()
    monkeypatch.setattr(like_broker, "PartitionSurvey", None)
    assert klog("recover", torn, "--like-broker", "--apply").exit_code == 1


def test_salvage_keeps_what_it_cuts_out(klog: Klog, damaged: Path) -> None:
    cut_out = (damaged / FLIPPED).read_bytes()[:659]
    done = klog("recover", damaged, "--salvage", "--apply")
    assert done.exit_code == 1
    (backup,) = (damaged.parent / "klog-backup").iterdir()
    found = sorted(path for path in (backup / "lost+found").rglob("*") if path.is_file())
    assert cut_out in [path.read_bytes() for path in found]
    assert any(path.suffix == ".json" for path in found)
    assert klog("verify", damaged).exit_code in (0, 4)
    assert repaired(klog, damaged, "--salvage")["actions"] == []


def test_a_single_flipped_bit_is_put_right_when_that_is_asked_for(klog: Klog, tmp_path: Path) -> None:
    damageable = Damageable(tmp_path / "data", "idempotent-0")
    before = tree(damageable.path)
    damageable.change(FLIPPED, flipped(100))
    assert (
        f"\n       klog recover {damageable.path} --repair-bits\n" in klog("recover", damageable.path).stdout.decode()
    )
    done = klog("recover", damageable.path, "--repair-bits", "--apply")
    assert done.exit_code == 1
    told = "  one flipped bit: bit 0 of byte 100 (the records) (chance of misdiagnosis: 1 in 830 000)"
    assert told in done.stdout.decode().splitlines()
    assert (damageable.path / FLIPPED).read_bytes() == before[FLIPPED][0]
    assert klog("verify", damageable.path).exit_code == 0


@pytest.mark.parametrize("way", [(), ("--salvage",)])
def test_a_bit_of_a_large_batch_is_told_and_stays(klog: Klog, tmp_path: Path, way: tuple[str, ...]) -> None:
    """Other damage looks like that once in 500: certified, it could never be seen again."""
    records = [encode.Record(0, 1_700_000_000_000, b"photo", bytes(1 << 20))]
    log = encode.batch(records) + encode.batch(some_records(1))
    path = tmp_path / "data" / "photos-0" / f"{0:020}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(flipped(5000, 3)(bytearray(log)))
    assert "--repair-bits" not in klog("verify", tmp_path / "data").stdout.decode()
    told = (
        "not repaired, because its batch is too large: one flipped bit: bit 3 of byte 5000 (the records) (chance of"
        " misdiagnosis: 1 in 510; at the bound, 100 KiB: 1 in 5 200)"
    )
    planned = repaired(klog, tmp_path / "data", "--repair-bits", *way)
    assert planned["partitions"][0]["notes"] == [told]  # type: ignore[index]
    done = klog("recover", tmp_path / "data", "--repair-bits", "--apply", *way)
    assert f"  {told}" in done.stdout.decode().splitlines()
    assert path.read_bytes() == (encode.batch(some_records(1)) if way else flipped(5000, 3)(bytearray(log)))


def test_a_partition_that_cannot_be_read_does_not_stop_the_others(klog: Klog, torn: Path) -> None:
    path = torn / "zstd-0" / "leader-epoch-checkpoint"
    path.unlink()
    path.mkdir()
    done = klog("recover", torn, "--apply")
    assert done.exit_code == 1 + 4 + 8
    assert f"nothing is changed here: {path}: not a regular file" in done.stdout.decode()
    assert (torn / PLAIN).stat().st_size == 8209
    found = repaired(klog, torn)["partitions"]
    assert isinstance(found, list)
    assert [(one["directory"], one["result"], one["reason"] is None) for one in found] == [
        ("plain-1", "clean", True),
        ("zstd-0", "failed", False),
    ]


# json


def test_json_has_the_plan_and_what_came_of_each_partition(klog: Klog, damaged: Path) -> None:
    planned = repaired(klog, damaged)
    assert set(planned) >= {
        "klog_plan", "id", "created", "command", "log_dirs", "findings", "losses", "actions", "broker_would_keep",
        "kept", "lost", "backup", "applied", "partitions", "left",
    }  # fmt: skip
    assert planned["klog_plan"] == 1
    assert planned["applied"] is False
    assert planned["log_dirs"] == [str(damaged)]
    assert planned["command"] == f"klog recover {damaged} --output json"
    (lost,) = planned["losses"]  # type: ignore[misc]
    assert lost == {
        "topic": "plain", "partition": 1, "first_offset": 93, "last_offset": 112, "records": 20, "bytes": 1981,
        "reason": "torn-tail",
    }  # fmt: skip
    assert planned["lost"] == planned["losses"]
    assert planned["kept"] == {"records": 868, "bytes": 94411}
    assert planned["broker_would_keep"] == {"records": 868, "bytes": 96392}
    findings = planned["findings"]
    assert isinstance(findings, list)
    assert [(one["id"], one["file"], one["position"]) for one in findings] == [
        ("bad-crc", FLIPPED, 0),
        ("torn-tail", PLAIN, 8209),
    ]
    left = planned["left"]
    assert isinstance(left, list)
    assert [one["id"] for one in left] == ["bad-crc"]
    first, second = planned["partitions"]  # type: ignore[misc]
    assert (first["topic"], first["partition"], first["result"], first["actions"]) == ("idempotent", 0, "left", 0)
    assert (second["topic"], second["partition"], second["result"], second["left"]) == ("plain", 1, "to repair", [])
    assert sorted(first["choices"]) == ["like-broker", "salvage"]
    actions = planned["actions"]
    assert isinstance(actions, list)
    cut = next(one for one in actions if one["file"] == PLAIN)
    assert (cut["do"], cut["before"]["size"], cut["after"]["size"]) == ("truncate", 10190, 8209)
    assert second["actions"] == len([one for one in actions if one["file"].startswith("plain-1/")])


def test_json_of_what_was_done_leads_to_its_undo(klog: Klog, torn: Path) -> None:
    before = tree(torn)
    done = repaired(klog, torn, "--apply")
    assert done["applied"] is True
    assert isinstance(done["backup"], str)
    assert (Path(done["backup"]) / "plan.json").is_file()
    (plain, _) = done["partitions"]  # type: ignore[misc]
    assert plain["result"] == "repaired"
    assert klog("undo", str(done["backup"]), "--apply").exit_code == 0
    assert same(torn, before)


def test_json_when_there_is_nothing_to_do(klog: Klog, tmp_path: Path) -> None:
    members = repaired(klog, Damageable(tmp_path / "data", "plain-1").path, "--apply")
    assert (members["id"], members["actions"], members["applied"]) == (None, [], False)
    assert members["kept"] == members["broker_would_keep"] == {"records": 113, "bytes": 10200}


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_threads_change_nothing(klog: Klog, damaged: Path, jobs: str) -> None:
    ours, theirs = (repaired(klog, damaged, "--jobs", count) for count in (jobs, "2"))
    for its_own in ("id", "created", "command", "backup", "backups"):
        ours.pop(its_own, None)
        theirs.pop(its_own, None)
    assert ours == theirs


# plans, and where things go


@pytest.mark.parametrize("is_beside", [True, False], ids=["beside", "on another file system"])
def test_a_plan_is_saved_and_carried_out_later(
    klog: Klog, torn: Path, tmp_path: Path, elsewhere: Path, is_beside: bool
) -> None:
    folder = (tmp_path if is_beside else elsewhere) / "plans"
    folder.mkdir()
    before, file = tree(torn), folder / "repair.json"
    done = klog("recover", torn, "--save-plan", file)
    assert done.exit_code == 4
    assert f"nothing has been changed; next:\n  klog apply {file}\n" in done.stdout.decode()
    assert tree(torn) == before
    assert klog("apply", file).exit_code == 0
    assert klog("verify", torn).exit_code == 0
    assert klog("recover", torn).exit_code == 0
    assert klog("undo", file, "--apply").exit_code == 0
    assert same(torn, before)


@pytest.mark.parametrize("how", [("--apply",), ("--save-plan", "plan.json")], ids=["applied", "saved"])
def test_a_full_disk_is_8_and_leaves_nothing_behind(
    klog: Klog, damaged: Path, tmp_path: Path, how: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New content is written before anything is changed; without room for it nothing has happened."""

    class Full(HastyDisk):
        def write(self, file: OpenFile, data: bytes | bytearray | memoryview) -> None:
            if file.path.endswith(EPOCHS):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.path)
            super().write(file, data)

    (damaged / f"idempotent-0/{110:020}.index").unlink()
    before = tree(damaged)
    monkeypatch.setattr(session, "Disk", Full)
    monkeypatch.chdir(tmp_path)
    done = klog("recover", damaged, *how)
    assert (done.exit_code, done.stdout) == (8, b"")
    assert "No space left on device" in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert same(damaged, before)
    assert [name for name in sorted(os.listdir(tmp_path)) if name != "state"] == ["data"]


def test_a_plan_of_nothing_can_be_carried_out(klog: Klog, tmp_path: Path) -> None:
    """A script that plans and applies need not look in between."""
    log_dir = Damageable(tmp_path / "data", "plain-1").path
    assert klog("recover", log_dir, "--save-plan", tmp_path / "plan.json").exit_code == 0
    assert sorted(os.listdir(tmp_path)) == ["data", "plan.json"]
    done = klog("apply", tmp_path / "plan.json")
    assert (done.exit_code, done.stdout.split(b": ")[0]) == (0, b"nothing to do")


def test_originals_go_where_they_are_told_to(klog: Klog, torn: Path, tmp_path: Path) -> None:
    done = repaired(klog, torn, "--apply", "--backup", tmp_path / "originals")
    assert done["backup"] == str(tmp_path / "originals")
    assert backups(torn) == []
    assert (torn / f"{done['id']}.klog-backup").is_file()
    assert klog("undo", tmp_path / "originals", "--apply").exit_code == 0


@pytest.mark.parametrize("how", [(), ("--apply",), ("--save-plan", "plan.json")], ids=["shown", "applied", "saved"])
def test_nothing_is_ever_put_into_a_log_dir(
    klog: Klog, torn: Path, tmp_path: Path, how: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that no broker accepts stops it; a command that would make one is refused."""
    monkeypatch.chdir(tmp_path)
    before = tree(torn)
    done = klog("recover", torn, *how, "--backup", torn / "originals")
    assert (done.exit_code, done.stdout) == (8, b"")
    assert f"{torn}/originals: lies in the log dir {torn}, where a broker would stop over it" in done.stderr.decode()
    assert same(torn, before)
    monkeypatch.chdir(torn)
    assert klog("recover", torn, "--save-plan", "plan.json").exit_code == 8
    assert same(torn, before)


# which partitions


def test_log_dirs_of_one_broker_are_one_plan(klog: Klog, torn: Path, tmp_path: Path) -> None:
    """One of them has the metadata log, with the settings of the topics in all."""
    other = Damageable(tmp_path / "other", "dense-0").path
    (other / f"dense-0/{98:020}.index").unlink()
    shutil.copytree(FIXTURES / "modern" / METADATA, torn / METADATA)
    before = tree(torn), tree(other)
    planned = repaired(klog, torn, other)
    assert planned["log_dirs"] == [str(torn), str(other)]
    dense = planned["partitions"][-1]  # type: ignore[index]
    assert dense["settings"]["index.interval.bytes"] == {"value": 1, "origin": "topic", "name": "index.interval.bytes"}
    done = klog("recover", torn, other, "--apply")
    assert done.exit_code == 1
    assert f"{torn}/{METADATA} is not touched" in done.stderr.decode()
    assert f"{torn}/recovery-point-offset-checkpoint" in done.stdout.decode()
    assert (other / f"dense-0/{98:020}.index").read_bytes() == (
        FIXTURES / f"modern/dense-0/{98:020}.index"
    ).read_bytes()
    assert klog("undo", done.backup, "--apply").exit_code == 0
    assert same(torn, before[0])
    assert same(other, before[1])


@pytest.mark.parametrize("narrowed", [("--topic", "plain"), ("--topic", "*", "--partition", "1"), ("--partition", "1")])
def test_topics_and_partitions_narrow_it(klog: Klog, damaged: Path, narrowed: tuple[str, ...]) -> None:
    """Faults elsewhere do not affect the exit code."""
    before = tree(damaged / "idempotent-0")
    assert klog("recover", damaged, *narrowed, "--apply").exit_code == 1
    assert klog("recover", damaged, *narrowed).exit_code == 0
    assert tree(damaged / "idempotent-0") == before
    assert klog("recover", damaged).exit_code == 4


def test_a_partition_directory_is_a_path_too(klog: Klog, damaged: Path) -> None:
    before = tree(damaged / "idempotent-0")
    done = klog("recover", damaged / "plain-1", "--apply")
    assert done.exit_code == 1
    assert done.backup.startswith(f"{damaged.parent}/klog-backup/")
    assert tree(damaged / "idempotent-0") == before
    assert klog("recover", f"{damaged}/plain-1/", damaged / "plain-1").stdout == b"1 partition: nothing to do\n"


# brokers, and runs that did not end


def test_a_running_broker_is_8_and_a_plan_beside_it_may_be_stale(klog: Klog, torn: Path) -> None:
    before = tree(torn)
    process = other_process(torn / ".lock")
    assert said(process) == b"held"
    try:
        done = klog("recover", torn, "--apply")
        assert (done.exit_code, done.stdout) == (8, b"")
        assert f"a broker is running on {torn} (pid {process.pid})" in done.stderr.decode()
        planned = klog("recover", torn)
        assert f"a broker is running on {torn}: what is planned now may be stale" in planned.stderr.decode()
    finally:
        end(process)
    (torn / ".lock").unlink()
    assert {**tree(torn), ".": None} == {**before, ".": None}
    assert backups(torn) == []


def test_the_next_run_finishes_what_was_interrupted(
    klog: Klog, torn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(torn)

    class Interrupted(SteppedDisk):
        def __init__(self) -> None:
            super().__init__(tmp_path)

        def step(self, *words: str) -> None:
            super().step(*words)
            if words[0] == "unlink" and words[1].endswith(".snapshot"):
                raise PowerCutError

    monkeypatch.setattr(session, "Disk", Interrupted)
    assert b"PowerCutError" in klog("recover", torn, "--apply").stderr
    (backup,) = backups(torn)
    assert b"half done" in klog("plans", torn).stdout
    monkeypatch.setattr(session, "Disk", HastyDisk)
    done = klog("recover", torn, "--apply")
    assert done.exit_code == 0
    assert f"finishing {backup}, which was interrupted" in done.stderr.decode()
    assert done.stdout == b"2 partitions: nothing to do\n"
    assert (torn / PLAIN).stat().st_size == 8209
    assert klog("undo", torn.parent / "klog-backup" / backup, "--apply").exit_code == 0
    assert same(torn, before)


# options


def test_only_indexes_leave_the_logs_alone(klog: Klog, torn: Path) -> None:
    log, index = (torn / PLAIN).read_bytes(), torn / f"zstd-0/{0:020}.index"
    index.unlink()
    done = klog("recover", torn, "--indexes-only", "--apply")
    assert done.exit_code == 5
    assert index.read_bytes() == (FIXTURES / f"modern/zstd-0/{0:020}.index").read_bytes()
    assert (torn / PLAIN).read_bytes() == log
    assert klog("recover", torn, "--indexes-only").exit_code == 4


def test_a_partition_that_is_named_leaves_the_checkpoints_of_the_others_alone(klog: Klog, torn: Path) -> None:
    """A file that a broker refuses concerns the whole log dir, which was not requested."""
    bad = torn / "replication-offset-checkpoint"
    bad.write_text("0\n3\nzstd 0 5\nnonsense\nplain 1 50\n")
    for narrow in ((torn / "plain-1",), (torn, "--topic", "plain")):
        files = {one["file"] for one in repaired(klog, *narrow)["actions"]}  # type: ignore[attr-defined]
        assert f"plain-1/{0:020}.log" in files
        assert bad.name not in files
    assert klog("recover", torn, "--apply").exit_code == 1
    assert bad.read_text() == "0\n2\nzstd 0 5\nplain 1 50\n"


def test_a_transaction_index_that_is_missing_is_made_anew_and_none_where_nothing_was_aborted(
    klog: Klog, tmp_path: Path
) -> None:
    """Without its entries a consumer would receive aborted records."""
    log_dir = Damageable(tmp_path / "data", "tx-0", "plain-1").path
    there = {path.relative_to(log_dir): path.read_bytes() for path in log_dir.rglob("*.txnindex")}
    assert any(there.values())
    for path in there:
        (log_dir / path).unlink()
    (log_dir / f"plain-1/{0:020}.index").unlink()
    assert klog("recover", log_dir, "--apply").exit_code == 1
    found = {path.relative_to(log_dir): path.read_bytes() for path in log_dir.rglob("*.txnindex")}
    assert found == {path: content for path, content in there.items() if content}


def test_a_log_start_beyond_the_end_is_forgotten_and_draws_nothing_after_it(klog: Klog, torn: Path) -> None:
    """The high watermark is below it then, and right: raised, it would promise records that are not there."""
    starts, marks = torn / "log-start-offset-checkpoint", torn / "replication-offset-checkpoint"
    starts.write_text("0\n1\nplain 1 5000\n")
    marks.write_text("0\n1\nplain 1 50\n")
    assert klog("recover", torn / "plain-1", "--apply").exit_code == 1
    assert (starts.read_text(), marks.read_text()) == ("0\n0\n", "0\n1\nplain 1 50\n")


def test_a_cut_takes_the_transactions_that_ended_there_out_of_their_index(klog: Klog, tmp_path: Path) -> None:
    """An entry whose marker is lost would abort a producer's next records there."""
    damageable = Damageable(tmp_path / "data", "tx-0", clean=False)
    log, index = f"tx-0/{646:020}.log", damageable.path / f"tx-0/{646:020}.txnindex"
    assert index.stat().st_size == 34
    damageable.change(log, lambda content: content[:40])
    assert klog("recover", damageable.path, "--apply").exit_code == 1
    assert not index.exists() or index.read_bytes() == b""
    assert klog("verify", damageable.path, "--deep").exit_code == 0


@pytest.mark.parametrize(("start", "snapshots"), [(0, {"93"}), (93, set()), (92, {"93"})])
def test_a_snapshot_at_the_log_start_is_none(klog: Klog, torn: Path, start: int, snapshots: set[str]) -> None:
    """A broker removes it again: at the start of its log there is no state."""
    for path in (torn / "plain-1").glob("*.snapshot"):
        path.unlink()
    (torn / "log-start-offset-checkpoint").write_text(f"0\n1\nplain 1 {start}\n")
    klog("recover", torn / "plain-1", "--apply")
    assert {str(int(path.stem)) for path in (torn / "plain-1").glob("*.snapshot")} == snapshots


def test_below_the_recovery_point_nobody_looks_when_that_is_asked_for(klog: Klog, damaged: Path) -> None:
    lines = "0\n2\nplain 1 0\nidempotent 0 760\n"
    (damaged / "recovery-point-offset-checkpoint").write_text(lines)
    found = repaired(klog, damaged, "--from-recovery-point")["findings"]
    assert isinstance(found, list)
    assert [one["file"] for one in found if one["severity"] == "damage"] == [PLAIN]
    assert "bad-crc" in klog("recover", damaged).stdout.decode()


def test_settings_are_told_where_an_index_is_made_anew(klog: Klog, tmp_path: Path) -> None:
    """An index made with another interval than the topic's is right, but cannot be compared."""
    log_dir = Damageable(tmp_path / "data", "dense-0", METADATA).path
    index, theirs = log_dir / f"dense-0/{98:020}.index", FIXTURES / f"modern/dense-0/{98:020}.index"
    index.unlink()
    sizes = {}
    for options, origin in (((), "1 (topic)"), (("--index-interval", "2KiB"), "2048 (option)")):
        done = klog("recover", log_dir, *options, "--apply")
        assert f"  index.interval.bytes {origin}, segment.index.bytes 10485760 (default)\n" in done.stdout.decode()
        sizes[origin] = index.stat().st_size
        assert klog("undo", done.backup, "--apply").exit_code == 0
    assert sizes["1 (topic)"] == theirs.stat().st_size > sizes["2048 (option)"] > 0


def test_the_time_decides_which_producers_a_snapshot_has(klog: Klog, tmp_path: Path) -> None:
    """A day after their last write they are forgotten, by whatever clock the command is given."""
    log_dir = Damageable(tmp_path / "data", "idempotent-0").path
    path = log_dir / f"idempotent-0/{750:020}.snapshot"
    sizes = []
    for now in ("2025-06-15T15:10:00Z", "2027-06-15T15:10:00Z"):
        path.write_bytes(b"damaged")
        assert klog("recover", log_dir, "--now", now, "--apply").exit_code == 1
        sizes.append(path.stat().st_size)
    assert sizes[0] > sizes[1]


def test_records_of_damaged_batches_are_written_apart(klog: Klog, tmp_path: Path) -> None:
    """Before anything is changed, and never back into the log."""
    damageable = Damageable(tmp_path / "data", "plain-1")
    damageable.change(PLAIN, flipped(8209 + 18))
    before = tree(damageable.path)
    done = klog("recover", damageable.path, "--rescue-records", tmp_path / "records.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert f"{len(rows)} records of damaged batches are in {tmp_path}/records.jsonl" in done.stderr.decode()
    assert len(rows) == 20
    assert {row["offset"] for row in rows} == set(range(93, 113))
    assert tree(damageable.path) == before


def test_the_metadata_log_is_not_touched_and_costs_no_exit_code(klog: Klog, tmp_path: Path) -> None:
    log_dir = Damageable(tmp_path / "data", "plain-1", METADATA).path
    path = max((log_dir / METADATA).glob("*.log"))
    path.write_bytes(path.read_bytes()[:-5])
    done = klog("recover", log_dir, "--apply")
    assert (done.exit_code, done.stdout) == (0, b"1 partition: nothing to do\n")
    assert done.stderr.decode() == f"klog: {log_dir}/{METADATA} is not touched\n"


class Wrong(NamedTuple):
    arguments: tuple[str, ...]
    says: str


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(("--like-brokr",), "--like-broker"),
        Wrong(("--salvge",), "--salvage"),
        Wrong(("--output", "jsn"), "did you mean json?"),
        Wrong(("--like-broker", "--salvage"), "one of them"),
        Wrong(("--apply", "--save-plan", "x"), "'klog apply' carries out a plan that was saved"),
        Wrong(("--topic", "plan"), "did you mean plain?"),
        Wrong(("--partition", "7"), "7"),
        Wrong(("--now", "yesterdy"), "'yesterdy' is not a time"),
        Wrong(("--index-interval", "4X"), "'4X' is not a size"),
        Wrong(("--segment-index-bytes", "-1"), "-1"),
        Wrong(("--producer-expiration", "soon"), "'soon' is not a duration"),
        Wrong(("--jobs", "0"), "--jobs"),
    ],
    ids=lambda wrong: " ".join(wrong.arguments),
)
def test_what_is_asked_wrongly_is_16_and_says_what_was_expected(klog: Klog, torn: Path, wrong: Wrong) -> None:
    before = tree(torn)
    done = klog("recover", torn, *wrong.arguments)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert wrong.says in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert tree(torn) == before


def test_what_is_no_log_dir_is_16(klog: Klog, torn: Path, tmp_path: Path) -> None:
    for arguments in ((), (tmp_path / "nowhere",), (torn / PLAIN,), (torn, tmp_path / "nowhere")):
        done = klog("recover", *arguments)
        assert (done.exit_code, done.stdout, done.stderr.count(b"\n")) == (16, b"", 1), arguments


def test_thousands_of_changes_stay_readable(klog: Klog, tmp_path: Path) -> None:
    """An operator looks for what happens to the logs; JSON has the rest."""
    folder = tmp_path / "data" / "many-0"
    folder.mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").touch()
    for base in range(0, 300, 3):
        (folder / f"{base:020}.log").write_bytes(encode.batch(some_records(base)))
    last = folder / f"{297:020}.log"
    last.write_bytes(last.read_bytes()[:-1])
    done = klog("recover", tmp_path / "data")
    lines = done.stdout.decode().splitlines()
    assert len(lines) < 60
    assert any(line.startswith(f"  cut      {297:020}.log") for line in lines)
    assert any(line.startswith("  damage   torn-tail") for line in lines)
    assert f"  create   {0:020}.index .timeindex and 98 more like it (1.2 KiB)" in lines
    every = klog("recover", tmp_path / "data", "--all").stdout.decode().splitlines()
    assert f"  create   {0:020}.index .timeindex (12 B)" in every
    planned = repaired(klog, tmp_path / "data")["actions"]
    assert isinstance(planned, list)
    shown = [line for line in every if line.startswith(("  create", "  cut", "  remove", "  replace"))]
    in_partition = [one for one in planned if one["file"].startswith("many-0/")]
    assert sum(1 + line.count(" .") for line in shown) == len(in_partition)


def test_it_is_a_process_like_any_other(klog_process: Klog, torn: Path) -> None:
    """With the real disk, into pipes: what scripts do."""
    done = klog_process("recover", torn, "--apply")
    assert done.exit_code == 1
    assert klog_process("recover", torn).exit_code == 0
