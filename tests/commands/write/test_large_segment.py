"""The reads of a log that is appended to: the part that a broker's next start would check, and the end of its
segment."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.base import read_only
from klog.change.plan import model
from klog.change.plan.plan_document import load_plan, plan_pieces, read_plan
from klog.change.plan.plan_status import PlanStatus, state_of
from klog.commands.write import stopped_log_dir

from tests.commands.write.sources import TARGETS, lines
from tests.conftest import Ran, writable_copy
from tests.support.power import less_pointers, tree

pytestmark = [pytest.mark.corpora, pytest.mark.usefixtures("state_home")]
Klog = Callable[..., Ran]
NAME, RECORDS = "order.bytes-0", 600
SEGMENT = "segment.bytes=1000000"
LARGE, END = 8192, 2048
MARKER = ".kafka_cleanshutdown"


@pytest.fixture(autouse=True)
def _smaller_files_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test then needs 16 MiB."""
    for module in (model, stopped_log_dir):
        monkeypatch.setattr(module, "SHA256_BELOW", LARGE)
    monkeypatch.setattr(stopped_log_dir, "_END_BYTES", END)


@pytest.fixture
def target(klog: Klog, image: Callable[[str], Path], tmp_path: Path) -> Path:
    """A log dir of 4.3.1 after a clean stop, with many small batches in the active segment of one partition."""
    data = writable_copy(image(TARGETS["4.3.1"]) / "data", tmp_path / "data")
    assert write(klog, data, tmp_path, RECORDS, "--apply", "--batch-size", "100").exit_code == 0
    shutil.rmtree(tmp_path / "klog-backup")
    return data


def write(klog: Klog, data: Path, folder: Path, count: int, *words: str, config: str = SEGMENT) -> Ran:
    """Write so many records to a partition."""
    file = folder / "records.jsonl"
    record = {"topic": "order.bytes", "partition": 0, "value": "v" * 20, "timestamp": 1_900_000_000_000}
    file.write_text("".join(json.dumps(record | {"key": f"k{number}"}) + "\n" for number in range(count)))
    return klog("write", file, "--to", data, "--set", config, *words)


def end_of_batch(log: Path, position: int) -> int:
    """Return where the batch ends that has the byte at *position*."""
    content, end = log.read_bytes(), 0
    while end <= position:
        end += 12 + int.from_bytes(content[end + 8 : end + 12], "big")
    return end


def flip(log: Path, position: int) -> None:
    """Flip a byte, and keep the file's time."""
    status = log.stat()
    with log.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0xFF]))
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many bytes of each log are read, by its path."""
    found: dict[str, int] = {}
    for name in ("read", "read_into"):
        original = getattr(read_only.ReadOnlyFile, name)

        def counted(file: read_only.ReadOnlyFile, *given: Any, _original: Callable[..., Any] = original) -> Any:
            result = _original(file, *given)
            if file.path.endswith(".log"):
                found[file.path] = found.get(file.path, 0) + (result if isinstance(result, int) else len(result))
            return result

        monkeypatch.setattr(read_only.ReadOnlyFile, name, counted)
    return found


def test_of_a_large_segment_only_the_end_is_read(
    klog: Klog, target: Path, tmp_path: Path, read: dict[str, int]
) -> None:
    """Planned, applied and undone; the plan contains the byte from which its digest counts."""
    log = target / NAME / f"{0:020}.log"
    size = log.stat().st_size
    assert size > 6 * LARGE
    before = tree(target)
    done = write(klog, target, tmp_path, 3, "--apply", "--output", "json")
    assert done.exit_code == 0, done.stderr
    made = json.loads(done.stdout)
    assert made["partitions"][0]["first_offset"] == RECORDS
    assert 0 < read.pop(str(log)) < size
    plan = load_plan(str(Path(made["backup"]) / "plan.json"))
    (action,) = (one for one in plan.actions if one.file.endswith(".log"))
    assert action.before is not None
    assert action.after is not None
    assert action.before.digest_start == action.after.digest_start == size - END
    assert read_plan(b"".join(plan_pieces(plan))) == plan._replace(staging=())
    assert klog("undo", made["backup"], "--apply", "--backup", tmp_path / "undone").exit_code == 0
    assert read[str(log)] < size
    assert {**less_pointers(tree(target)), ".lock": None} == {**before, ".lock": None}
    (undone,) = (one for one in (tmp_path / "undone").rglob("plan.json"))
    assert klog("undo", undone.parent, "--apply", "--backup", tmp_path / "done again").exit_code == 0
    assert len(lines(klog, [target / NAME])) == RECORDS + 3
    assert klog("verify", "--deep", target).exit_code == 0


@pytest.mark.parametrize("turns", [pytest.param(4, id="some"), pytest.param(100, marks=pytest.mark.long, id="all")])
def test_a_kill_at_any_moment_is_finished_or_taken_back(turns: int, klog: Klog, target: Path, tmp_path: Path) -> None:
    """kill -9 from outside, at random, while a plan appends: `klog apply` finishes it, or `klog undo` takes it back."""
    before, chance, seconds = tree(target), random.Random("moments"), 0.2
    backup, plan, states = tmp_path / "backup", tmp_path / "plan.json", Counter[str]()
    count = 8000
    words = ("--save-plan", str(plan), "--backup", str(backup))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for turn in range(turns):
        assert write(klog, target, tmp_path, count, *words, config="segment.bytes=40000").exit_code == 0
        command = [sys.executable, "-m", "klog_cli.app", "apply", str(plan)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as apply:
            until = time.monotonic() + 60
            while not (backup / "unfinished").exists() and apply.poll() is None:
                assert time.monotonic() < until
            began = time.monotonic()
            if turn:
                time.sleep(seconds * chance.random())
                apply.kill()
            apply.wait(60)
            seconds = seconds if turn else time.monotonic() - began
        made = load_plan(str(plan))
        states[state_of(made).name] += 1
        if turn % 2 == 0:
            assert klog("apply", plan).exit_code == 0
            assert klog("verify", "--deep", target).exit_code == 0
            assert len(lines(klog, [target / NAME])) == RECORDS + count
        if state_of(made) is not PlanStatus.NOT_BEGUN:
            done = klog("undo", backup, "--apply", "--backup", tmp_path / "undone")
            assert done.exit_code == 0, done.stderr
        assert {**less_pointers(tree(target)), ".lock": None} == {**before, ".lock": None}
        for folder in (backup, tmp_path / "undone", Path(f"{plan}.staged")):
            shutil.rmtree(folder, ignore_errors=True)
        plan.unlink()
    assert {*states} <= {"PLANNING", "NOT_BEGUN", "HALF_DONE", "APPLIED"}


@pytest.mark.parametrize("how", ["end", "time", "size"])
def test_a_plan_for_a_large_segment_is_stale_once_it_was_used(
    how: str, klog: Klog, target: Path, tmp_path: Path
) -> None:
    """It also holds if only the time of the file shows that."""
    log = target / NAME / f"{0:020}.log"
    assert write(klog, target, tmp_path, 3, "--save-plan", str(tmp_path / "plan.json")).exit_code == 0
    if how == "end":
        flip(log, log.stat().st_size - END + 5)
    elif how == "time":
        os.utime(log, ns=(0, 0))
    else:
        with log.open("ab") as file:
            file.write(b"more")
    before = tree(target)
    done = klog("apply", tmp_path / "plan.json")
    assert (done.exit_code, b"has changed since the plan was made" in done.stderr) == (8, True), done.stderr
    assert tree(target) == before


@pytest.mark.parametrize("place", ["segment", "older"])
def test_nothing_is_appended_behind_what_a_broker_would_cut(
    place: str, klog: Klog, target: Path, tmp_path: Path
) -> None:
    """Without the marker its start reads all from the segment of the recovery point on, also segments before the last.

    It checks nothing below the marker, and appends behind; neither does this check the files of the last stop.
    """
    if place == "older":
        assert write(klog, target, tmp_path, 600, "--apply", config="segment.bytes=9000").exit_code == 0
    logs = sorted((target / NAME).glob("*.log"))
    assert (len(logs) > 1) == (place == "older")
    flip(logs[0], end_of_batch(logs[0], 4000) - 1)
    said = write(klog, target, tmp_path, 3)
    assert said.exit_code == 0, said.stderr
    (target / MARKER).unlink()
    known = target / "recovery-point-offset-checkpoint"
    known.write_text(known.read_text().replace(f"order.bytes 0 {RECORDS}", "order.bytes 0 20"))
    if place == "older":
        text = known.read_text()
        known.write_text(text.replace(f"order.bytes 0 {2 * RECORDS}", "order.bytes 0 20"))
    assert "order.bytes 0 20" in known.read_text()
    before = tree(target)
    refused = write(klog, target, tmp_path, 3, "--apply")
    assert refused.exit_code == 8
    assert f"{logs[0].name} @ ".encode() in refused.stderr
    assert b"first: klog recover" in refused.stderr
    assert tree(target) == before


def test_what_lies_behind_the_recovery_point_is_read(klog: Klog, target: Path, tmp_path: Path) -> None:
    """Even below a marker: a broker writes both at a clean stop, so they belong together."""
    log = target / NAME / f"{0:020}.log"
    flip(log, log.stat().st_size - 3)
    known = target / "recovery-point-offset-checkpoint"
    known.write_text(known.read_text().replace(f"order.bytes 0 {RECORDS}", "order.bytes 0 20"))
    refused = write(klog, target, tmp_path, 3)
    assert (refused.exit_code, b"nothing is appended; first: klog recover" in refused.stderr) == (8, True), (
        refused.stderr
    )
