"""`klog verify`: its output, and its exit codes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Ran
from tests.partition.verify.partitions import Damageable, flipped

Klog = Callable[..., Ran]
LOG = "idempotent-0/00000000000000000375.log"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Two partitions; a bit is flipped in one, and a file of the other is a leftover."""
    damageable = Damageable(tmp_path, "idempotent-0", "zstd-0")
    damageable.change(LOG, flipped(100))
    (tmp_path / "zstd-0" / f"{0:020}.log.cleaned").write_bytes(b"")
    return tmp_path


def test_a_healthy_log_dir_takes_one_line(klog: Klog) -> None:
    done = klog("verify", str(FIXTURES / "modern"))
    assert (done.exit_code, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [
        "clean: 23 partitions, 48 segments, 578.3 KiB, 1235 batches, 4331 records"
    ]


def test_a_file_of_no_segment_is_refused(klog: Klog) -> None:
    """Otherwise the whole partition would be reported as clean, or not at all."""
    file = FIXTURES / "modern/zstd-0/leader-epoch-checkpoint"
    done = klog("verify", str(file))
    assert (done.exit_code, done.stdout) == (16, b"")
    assert done.stderr.decode() == f"klog: {file}: this file belongs to no segment; name its directory\n"


def test_findings_are_grouped_and_explained_once(klog: Klog, damaged: Path) -> None:
    done = klog("verify", str(damaged))
    assert done.exit_code == 4
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("damaged: 1 case of damage, 1 note in 2 partitions, 6 segments")
    assert lines[2] == f"{damaged}/idempotent-0"
    assert lines[3].startswith(f"  damage   bad-crc   {375:020}.log @ 0 (offset ")
    assert lines[5] == f"{damaged}/zstd-0"
    assert lines[6].startswith(f"  note     leftover  {0:020}.log.cleaned: ")
    assert lines[8] == "bad-crc: a batch whose checksum does not match its bytes"
    assert lines[9].startswith("  a broker at its next start: does not check this")
    assert lines[10] == f"    klog recover {damaged}/idempotent-0 --salvage --repair-bits"
    assert not any("repairs it" in line for line in lines), "the command is on a line of its own"
    assert lines[11] == f"    klog bytes {damaged}/idempotent-0/{375:020}.log --position 0"
    assert lines[13:] == ["klog explain bad-crc leftover"]


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Three partitions without offset indexes, and a file in the log dir whose finding has the longest id."""
    log_dir = Damageable(tmp_path / "data", "tx-0", "plain-1", "zstd-0").path
    for index in log_dir.glob("*/*.index"):
        index.unlink()
    (log_dir / "meta.properties").write_text("version=1\nnode.id=x\n")
    return log_dir


def test_findings_that_repeat_are_one_line(klog: Klog, many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their number, the first of them, and one command for all partitions; the column of ids fits all of them."""
    monkeypatch.chdir(many)
    lines = klog("verify", ".").stdout.decode().splitlines()
    message = f"{0:020}.log: lookups in this segment read from its start"
    width = len("meta-properties-malformed")
    assert lines[lines.index("./plain-1") + 1] == f"  warning  {'index-missing':{width}}  {message}"
    assert lines[lines.index("./tx-0") + 1] == f"  warning  {'index-missing ×11':{width}}  e.g. {message}"
    assert any(line.startswith("  damage   meta-properties-malformed  meta.properties: ") for line in lines)
    at = lines.index("index-missing: a segment without .index")
    assert lines[at + 2 : at + 4] == ["    klog recover ./plain-1 ./tx-0 ./zstd-0 --indexes-only", ""]
    assert "--all lists each of the" in klog("verify", ".").stdout.decode()
    assert klog("recover", "./plain-1", "./tx-0", "./zstd-0", "--indexes-only", "--apply").exit_code & 1
    assert b"index-missing" not in klog("verify", ".").stdout


def test_all_of_them_are_listed_on_request(klog: Klog, many: Path) -> None:
    """The lines are as many as JSON has findings, and none says that there are more."""
    listed = klog("verify", "--all", many).stdout.decode()
    found = json.loads(klog("verify", "--output", "json", many).stdout)["findings"]
    assert listed.count("  warning  index-missing ") == sum(one["id"] == "index-missing" for one in found) > 12
    assert "--all" not in listed
    assert " ×" not in listed


def test_many_partitions_are_repaired_by_their_log_dir(klog: Klog, damaged: Path) -> None:
    """A command with a thousand paths can neither be read nor pasted."""
    for number in range(10):
        shutil.copytree(damaged / "idempotent-0", damaged / f"many-{number}")
    lines = klog("verify", damaged).stdout.decode().splitlines()
    repairs = [line for line in lines if line.startswith("    klog recover ")]
    assert repairs == [f"    klog recover {damaged} --salvage --repair-bits"]


def test_json_and_jsonl_give_the_same_findings(klog: Klog, damaged: Path) -> None:
    whole = json.loads(klog("verify", "--output", "json", str(damaged)).stdout)
    lines = [json.loads(line) for line in klog("verify", "--output", "jsonl", str(damaged)).stdout.splitlines()]
    assert whole["findings"] == lines
    assert {name: whole[name] for name in ("partitions", "segments")} == {"partitions": 2, "segments": 6}
    assert list(whole) == ["partitions", "segments", "bytes", "batches", "records", "findings"]
    first = lines[0]
    assert list(first) == [
        "id", "severity", "topic", "partition", "file", "position", "offset", "message", "broker", "fix",
        "topic_id", "cluster_id",
    ]  # fmt: skip
    assert (first["id"], first["severity"], first["topic"], first["partition"]) == (
        "bad-crc",
        "damage",
        "idempotent",
        0,
    )
    assert (first["file"], first["position"]) == (LOG, 0)
    assert "consumer" in first["broker"], "after a clean stop nobody looks"


@pytest.mark.parametrize("jobs", ["1", "2", "7"])
def test_threads_change_nothing(klog: Klog, damaged: Path, jobs: str) -> None:
    for i in range(20):
        shutil.copytree(damaged / "zstd-0", damaged / f"many-{i}")
    done = klog("verify", "--deep", "--jobs", jobs, str(damaged))
    assert done.stdout == klog("verify", "--deep", "--jobs", "3", str(damaged)).stdout


def test_a_file_is_checked_alone(klog: Klog, damaged: Path) -> None:
    done = klog("verify", "--output", "json", str(damaged / LOG))
    assert done.exit_code == 4
    found = json.loads(done.stdout)
    assert (found["segments"], [finding["id"] for finding in found["findings"]]) == (1, ["bad-crc"])
    assert klog("verify", str(damaged / "idempotent-0" / f"{210:020}.log")).exit_code == 0
    assert klog("verify", str(damaged / "idempotent-0" / f"{375:020}.timeindex")).exit_code == 4


def test_topics_and_partitions_narrow_it(klog: Klog, damaged: Path) -> None:
    assert klog("verify", "--topic", "zstd", str(damaged)).exit_code == 0
    assert klog("verify", "--topic", "idem*", str(damaged)).exit_code == 4
    assert klog("verify", "--topic", "nothing", str(damaged)).exit_code == 16


def test_samples_and_ages(klog: Klog, damaged: Path) -> None:
    """The omitted part is no gap, and no end of the log."""
    done = klog("verify", "--sample", "1/2", "--output", "json", "--topic", "idempotent", str(damaged))
    assert (done.exit_code, json.loads(done.stdout)["segments"]) == (0, 3)
    for path in damaged.glob("*/*.log"):
        os.utime(path, (0, 1_000_000_000))
    os.utime(damaged / LOG, None)
    done = klog("verify", "--since", "2h", "--output", "json", "--topic", "idempotent", str(damaged))
    assert (done.exit_code, json.loads(done.stdout)["segments"]) == (4, 1)
    for options in (["--sample", "3"], ["--sample", "1/0"], ["--sample", "x"], ["--since", "tomorrow"]):
        assert klog("verify", *options, str(damaged)).exit_code == 16


def test_what_is_no_kafka_data_is_refused(klog: Klog, tmp_path: Path) -> None:
    assert klog("verify").exit_code == 16
    (tmp_path / "dbus-1/system.d").mkdir(parents=True)
    for command in ("verify", "recover", "doctor", "space"):
        done = klog(command, tmp_path)
        assert (done.exit_code, done.stdout) == (8, b"")
        assert done.stderr.decode().startswith(f"klog: {tmp_path} is not a Kafka log dir (no meta.properties, no ")
    assert klog("verify", "--output", "xml", str(tmp_path)).exit_code == 16


def test_an_unreadable_log_is_a_finding(klog: Klog, damaged: Path) -> None:
    """The rest is still checked; the exit code reports both."""
    path = damaged / "zstd-0" / f"{0:020}.log"
    path.unlink()
    path.mkdir()
    done = klog("verify", "--output", "jsonl", str(damaged))
    assert done.exit_code in (4, 12)
    assert "bad-crc" in done.stdout.decode()
