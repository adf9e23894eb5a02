"""`klog truncate`: its cuts, its output, and its exit codes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.change.plan.test_executor import end, other_process, said
from tests.conftest import FIXTURES, Ran
from tests.partition.verify.partitions import Damageable, flipped
from tests.support.power import less_pointers, same, tree

Klog = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("hasty")
METADATA = "__cluster_metadata-0"
NOW = "--now=2025-06-15T15:10:00Z"
RISK = "If this copy becomes the leader, the other replicas truncate their logs to it"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return Damageable(tmp_path / "data", "idempotent-0", "plain-1", METADATA).path


def truncated(klog: Klog, *arguments: str | os.PathLike[str]) -> dict[str, object]:
    """Return the result of `klog truncate --output json`."""
    done = klog("truncate", *arguments, NOW, "--output", "json")
    assert done.exit_code == 0, done.stderr
    members = json.loads(done.stdout)
    assert isinstance(members, dict)
    return members


# output and effect


def test_a_cut_is_shown_and_nothing_is_changed(klog: Klog, log_dir: Path) -> None:
    before = tree(log_dir)
    done = klog("truncate", log_dir / "idempotent-0", "--to-offset", "304", NOW)
    assert done.exit_code == 0
    assert done.stdout.decode().splitlines() == [
        "cuts at 300, not 304: 304 is inside the batch 300–310",
        "loses 500 records (idempotent-0, offsets 300–799, 28.6 KiB); keeps 55.5 KiB",
        "",
        f"remove   idempotent-0/{750:020}.log .index .timeindex .snapshot (9.3 KiB)",
        f"remove   idempotent-0/{375:020}.log .index .timeindex .snapshot (17.3 KiB)",
        f"cut      idempotent-0/{210:020}.log (19.0 KiB → 16.7 KiB)",
        f"replace  idempotent-0/{210:020}.index (24 B → 16 B)",
        f"create   idempotent-0/{300:020}.snapshot (56 B)",
        f"remove   idempotent-0/{700:020}.snapshot (102 B)",
        f"remove   idempotent-0/{800:020}.snapshot (56 B)",
        "replace  idempotent-0/leader-epoch-checkpoint (14 B → 8 B)",
        "replace  recovery-point-offset-checkpoint (378 B → 378 B)",
        "replace  replication-offset-checkpoint (378 B → 378 B)",
        "index.interval.bytes 4096 (default)",
        "",
        f"{RISK}; consumers that had read further will see other records under the offsets they know.",
        "",
        "nothing has been changed; next:",
        f"  klog truncate {log_dir}/idempotent-0 --to-offset 304 {NOW} --apply",
    ]
    assert done.stderr == b""
    assert tree(log_dir) == before
    assert not (log_dir.parent / "klog-backup").exists()


def test_what_is_cut_stays_cut_and_can_be_taken_back(klog: Klog, log_dir: Path) -> None:
    before = tree(log_dir)
    done = klog("truncate", log_dir / "idempotent-0", "--to-offset", "300", NOW, "--apply")
    assert done.exit_code == 0
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == ["cut at 300", "lost 500 records (idempotent-0, offsets 300–799, 28.6 KiB); kept 55.5 KiB"]
    backup = lines[-3].removeprefix("backup: ")
    assert lines[-2:] == [
        "next: start the broker; to undo this before the broker has run:",
        f"  klog undo {backup}",
    ]
    assert klog("verify", log_dir).exit_code == 0
    again = klog("truncate", log_dir / "idempotent-0", "--to-offset", "300", NOW, "--apply")
    assert (again.exit_code, again.stdout, again.stderr) == (0, b"nothing to do: the log ends at 300\n", b"")
    assert klog("recover", log_dir).stdout == b"2 partitions: nothing to do\n"
    shown = klog("undo", backup).stdout.decode().splitlines()
    assert shown[1:4] == [
        f"replace  idempotent-0/{210:020}.log (16.7 KiB → 19.0 KiB)",
        f"create   idempotent-0/{375:020}.log (17.1 KiB)",
        f"create   idempotent-0/{750:020}.log (9.2 KiB)",
    ]
    assert f"create   idempotent-0/{750:020}.snapshot .timeindex .index (88 B)" in shown[4:]
    assert klog("undo", backup, "--apply").exit_code == 0
    assert same(log_dir, before)


def test_json_has_the_plan_and_where_the_log_ends(klog: Klog, log_dir: Path) -> None:
    members = truncated(klog, log_dir / "idempotent-0", "--to-offset", "760", "--apply")
    assert set(members) >= {
        "klog_plan", "id", "created", "command", "log_dirs", "findings", "losses", "actions", "kept", "lost", "backup",
        "applied", "to_offset", "log_end_offset", "settings",
    }  # fmt: skip
    assert (members["applied"], members["to_offset"], members["log_end_offset"]) == (True, 760, 760)
    (lost,) = members["losses"]  # type: ignore[misc]
    size = (FIXTURES / f"modern/idempotent-0/{750:020}.log").stat().st_size
    assert lost == {
        "topic": "idempotent", "partition": 0, "first_offset": 760, "last_offset": 799, "records": 40,
        "bytes": size - (log_dir / f"idempotent-0/{750:020}.log").stat().st_size, "reason": "truncated",
    }  # fmt: skip
    assert members["lost"] == members["losses"]
    assert members["settings"] == {
        "index.interval.bytes": {"value": 4096, "origin": "default", "name": "index.interval.bytes"}
    }
    nothing = truncated(klog, log_dir / "idempotent-0", "--to-offset", "760", "--apply")
    assert (nothing["id"], nothing["actions"], nothing["applied"]) == (None, [], False)
    assert nothing["kept"] == members["kept"]
    assert klog("undo", str(members["backup"]), "--apply").exit_code == 0


# where to


def test_a_time_cuts_at_the_first_record_as_late(klog: Klog, log_dir: Path) -> None:
    """And a second run, which finds none as late, has nothing to do."""
    partition = log_dir / "plain-1"
    dumped = klog("dump", partition, "--output", "jsonl").stdout.splitlines()
    times = {row["offset"]: row["timestamp"] for row in map(json.loads, dumped)}
    first = next(offset for offset, time in sorted(times.items()) if time >= times[60])
    members = truncated(klog, partition, "--to-timestamp", str(times[60]), "--apply")
    assert (members["to_offset"], members["log_end_offset"]) == (first, members["log_end_offset"])
    left = [json.loads(row) for row in klog("dump", partition, "--output", "jsonl").stdout.splitlines()]
    assert left
    assert all(row["timestamp"] < times[60] for row in left)
    assert truncated(klog, partition, "--to-timestamp", str(times[60]))["actions"] == []


def test_a_time_is_said_to_be_taken_for_utc(klog: Klog, log_dir: Path) -> None:
    done = klog("truncate", log_dir / "plain-1", "--to-timestamp", "2025-06-15T15:06:41", NOW)
    assert done.exit_code == 0
    assert "UTC" in done.stderr.decode()


def test_a_time_that_the_indexes_cannot_be_asked_for_comes_after_their_repair(klog: Klog, log_dir: Path) -> None:
    (log_dir / f"idempotent-0/{210:020}.index").unlink()
    done = klog("truncate", log_dir / "idempotent-0", "--to-timestamp", "1750000002950", NOW)
    assert (done.exit_code, done.stdout) == (4, b"")
    assert done.stderr.decode().endswith(f"; first: klog recover {log_dir}/idempotent-0\n")


def test_to_the_log_start_everything_goes(klog: Klog, log_dir: Path) -> None:
    members = truncated(klog, log_dir / "plain-1", "--to-log-start", "--apply")
    assert (members["to_offset"], members["log_end_offset"]) == (0, 0)
    assert members["kept"] == {"records": 0, "bytes": 0}
    assert (log_dir / f"plain-1/{0:020}.log").read_bytes() == b""
    assert klog("verify", log_dir).exit_code == 0


# which partition


def test_a_log_dir_narrowed_to_one_partition_will_do(klog: Klog, log_dir: Path) -> None:
    before = tree(log_dir / "idempotent-0")
    assert truncated(klog, log_dir, "--topic", "plain", "--to-offset", "50", "--apply")["to_offset"] == 50
    assert tree(log_dir / "idempotent-0") == before
    done = klog("truncate", log_dir, "--to-offset", "50", NOW)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert "name one, or narrow with --topic and --partition" in done.stderr.decode()


def test_the_metadata_log_is_never_cut(klog: Klog, log_dir: Path) -> None:
    before = tree(log_dir)
    done = klog("truncate", log_dir / METADATA, "--to-offset", "10", "--apply")
    assert (done.exit_code, done.stdout) == (8, b"")
    assert "the metadata log is not cut" in done.stderr.decode()
    assert same(log_dir, before)


# plans, backups, brokers


def test_a_plan_is_saved_and_carried_out_later(klog: Klog, log_dir: Path, tmp_path: Path) -> None:
    before, file = tree(log_dir), tmp_path / "cut.json"
    done = klog("truncate", log_dir / "idempotent-0", "--to-offset", "300", NOW, "--save-plan", file)
    assert done.stdout.decode().endswith(f"nothing has been changed; next:\n  klog apply {file}\n")
    assert tree(log_dir) == before
    assert klog("apply", file).exit_code == 0
    assert "ends at 300" in klog("truncate", log_dir / "idempotent-0", "--to-offset", "300").stdout.decode()
    assert klog("undo", file, "--apply").exit_code == 0
    assert same(log_dir, before)


def test_originals_go_where_they_are_told_to_but_never_into_a_log_dir(
    klog: Klog, log_dir: Path, tmp_path: Path
) -> None:
    before = tree(log_dir)
    cut = (log_dir / "plain-1", "--to-offset", "50", "--apply", "--backup")
    assert klog("truncate", *cut, log_dir / "originals").exit_code == 8
    assert same(log_dir, before)
    assert truncated(klog, *cut, tmp_path / "originals")["backup"] == str(tmp_path / "originals")
    assert klog("undo", tmp_path / "originals", "--apply").exit_code == 0
    assert {**less_pointers(tree(log_dir)), ".lock": None} == {**before, ".lock": None}


def test_a_running_broker_is_8_and_a_plan_beside_it_may_be_stale(klog: Klog, log_dir: Path) -> None:
    before = tree(log_dir)
    process = other_process(log_dir / ".lock")
    assert said(process) == b"held"
    try:
        done = klog("truncate", log_dir / "plain-1", "--to-offset", "50", "--apply")
        assert (done.exit_code, done.stdout) == (8, b"")
        assert f"a broker is running on {log_dir} (pid {process.pid})" in done.stderr.decode()
        planned = klog("truncate", log_dir / "plain-1", "--to-offset", "50")
        assert f"a broker is running on {log_dir}: what is planned now may be stale" in planned.stderr.decode()
    finally:
        end(process)
    (log_dir / ".lock").unlink()
    assert {**tree(log_dir), ".": None} == {**before, ".": None}


# settings


def test_a_cut_index_follows_the_interval_of_its_topic(klog: Klog, tmp_path: Path) -> None:
    log_dir = Damageable(tmp_path / "data", "dense-0", METADATA).path
    index = log_dir / f"dense-0/{98:020}.index"
    theirs = (FIXTURES / f"modern/dense-0/{98:020}.index").read_bytes()
    done = klog("truncate", log_dir / "dense-0", "--to-offset", "140", NOW, "--apply")
    assert "index.interval.bytes 1 (topic)\n" in done.stdout.decode()
    assert theirs.startswith(index.read_bytes())
    assert index.stat().st_size > len(theirs) // 2
    klog("undo", done.backup, "--apply")
    done = klog("truncate", log_dir / "dense-0", "--to-offset", "140", NOW, "--apply", "--index-interval", "64KiB")
    assert "index.interval.bytes 65536 (option)\n" in done.stdout.decode()
    assert index.read_bytes() == b""


def test_quiet_says_nothing_but_the_result(klog: Klog, log_dir: Path) -> None:
    done = klog("truncate", log_dir / "plain-1", "--to-offset", "50", "--quiet", "--apply")
    assert (done.exit_code, done.stderr) == (0, b"")
    assert done.stdout.startswith("cut at 40, not 50: 50 was inside the batch 40–59\n".encode())


def test_at_the_log_start_the_cut_is_where_it_was_asked_for(klog: Klog, tmp_path: Path) -> None:
    """The log starts inside a batch, and ends there: nothing of the batch is left that would move the cut."""
    log_dir = Damageable(tmp_path / "data", "trimmed-0").path
    done = klog("truncate", log_dir / "trimmed-0", "--to-log-start", NOW)
    assert done.stdout.startswith(b"cuts at 137\n")


# what cannot be done


def test_damage_in_what_is_to_stay_is_4_and_says_what_can_be_done(klog: Klog, tmp_path: Path) -> None:
    damageable = Damageable(tmp_path / "data", "idempotent-0")
    damageable.change(f"idempotent-0/{375:020}.log", flipped(100))
    before = tree(damageable.path)
    done = klog("truncate", damageable.path / "idempotent-0", "--to-offset", "500", "--apply")
    assert (done.exit_code, done.stdout) == (4, b"")
    message = done.stderr.decode()
    assert "cut there (--to-offset 375), or first: klog recover " in message
    assert message.count("\n") == 1
    assert same(damageable.path, before)
    assert klog("truncate", damageable.path / "idempotent-0", "--to-offset", "375", "--apply").exit_code == 0
    assert klog("verify", damageable.path).exit_code == 0


class Wrong(NamedTuple):
    arguments: tuple[str, ...]
    says: str


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong((), "--to-offset, --to-timestamp, --to-log-start: exactly one of them"),
        Wrong(("--to-offset", "5", "--to-log-start"), "--to-offset, --to-timestamp, --to-log-start: exactly one"),
        Wrong(("--to-offset", "0", "--to-timestamp", "5"), "--to-offset, --to-timestamp, --to-log-start: exactly one"),
        Wrong(("--to-offst", "5"), "--to-offset"),
        Wrong(("--to-offset", "five"), "five"),
        Wrong(("--to-offset", "-1"), "--to-offset -1: the log starts at 0"),
        Wrong(("--to-timestamp", "yesterdy"), "'yesterdy' is not a time"),
        Wrong(("--to-offset", "5", "--output", "jsno"), "did you mean json?"),
        Wrong(("--to-offset", "5", "--apply", "--save-plan", "x"), "--apply and --save-plan: one of them"),
        Wrong(("--to-offset", "5", "--index-interval", "4X"), "'4X' is not a size"),
        Wrong(("--to-offset", "5", "--producer-expiration", "soon"), "'soon' is not a duration"),
        Wrong(("--to-offset", "5", "--topic", "plane"), "did you mean plain?"),
    ],
    ids=lambda wrong: " ".join(wrong.arguments),
)
def test_what_is_asked_wrongly_is_16_and_says_what_was_expected(klog: Klog, log_dir: Path, wrong: Wrong) -> None:
    before = tree(log_dir)
    done = klog("truncate", log_dir / "plain-1", *wrong.arguments)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert wrong.says in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert tree(log_dir) == before


def test_what_is_no_partition_is_16(klog: Klog, log_dir: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", log_dir / f"plain-1/{0:020}.log", log_dir / "meta.properties"):
        done = klog("truncate", path, "--to-offset", "5")
        assert (done.exit_code, done.stdout, done.stderr.count(b"\n")) == (16, b"", 1), path
    shutil.rmtree(log_dir / "plain-1")
    assert klog("truncate", log_dir / "plain-1", "--to-offset", "5").exit_code == 16
