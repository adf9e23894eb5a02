"""`klog apply`, `klog undo`, `klog plans`: what operators see, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.change.plan.draft import Draft, backup_places, make_plan, staging_of
from klog.change.plan.executor import apply
from klog.change.plan.model import Plan
from klog.change.plan.plan_document import plan_pieces
from klog.change.plan.staging import Staging
from klog.data_dir.disk.disk_changes import Disk

from tests.change.plan.test_executor import NOW, end, name, original, other_process, said
from tests.change.plan.test_undo import half_done
from tests.conftest import Ran
from tests.support.power import tree

__all__ = ["original"]
Klog = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("state_home")


@pytest.fixture
def plan_file(original: Path, tmp_path: Path) -> Path:
    """A plan in the form of `--save-plan FILE`: two changes, the new file is staged beside it."""
    path = tmp_path / "plans" / "repair.json"
    (staging,) = staging_of(f"{path}.staged", [str(original)])
    draft = Draft(str(original), 0, Staging(staging, Disk()))
    draft.truncate(name(1841, "log"), 1500)
    draft.put(name(1841, "index"), [b"entries!"])
    number = "20261121-051019-recover-7f3a"
    command = f"klog recover {original} --save-plan {path}"
    plan = make_plan(number, command, [str(original)], backup_places(number, [str(original)]), [draft], NOW)
    path.write_bytes(b"".join(plan_pieces(plan)))
    return path


def backup_of(plan_file: Path) -> str:
    backup = json.loads(plan_file.read_bytes())["backup"]
    assert isinstance(backup, str)
    return backup


def test_apply_names_the_changes_and_the_command_that_undoes_them(klog: Klog, plan_file: Path, original: Path) -> None:
    done = klog("apply", plan_file)
    backup = backup_of(plan_file)
    assert (done.exit_code, done.stdout.decode()) == (
        0,
        "applied: 20261121-051019-recover-7f3a, 2 changes made\n"
        f"backup: {backup}\n"
        "next: start the broker; to undo this before the broker has run:\n"
        f"  klog undo {backup}\n",
    )
    assert done.stderr == b""
    assert (original / name(1841, "index")).read_bytes() == b"entries!"
    again = klog("apply", plan_file)
    assert (again.exit_code, again.stderr) == (0, b"")
    assert again.stdout == b"nothing to do: 20261121-051019-recover-7f3a was applied before\n"


def test_a_plan_file_may_be_moved_with_what_waits_beside_it(klog: Klog, plan_file: Path, tmp_path: Path) -> None:
    (tmp_path / "plans").rename(tmp_path / "elsewhere")
    assert klog("apply", tmp_path / "elsewhere" / "repair.json").exit_code == 0


def test_a_plan_file_without_what_waited_beside_it_changes_nothing(
    klog: Klog, plan_file: Path, original: Path, tmp_path: Path
) -> None:
    """It names the missing file: whoever moved the plan alone finds it there."""
    before = tree(original)
    (waiting,) = (tmp_path / "plans/repair.json.staged").rglob("*.index")
    waiting.unlink()
    done = klog("apply", plan_file)
    assert done.exit_code == 8
    assert f"{waiting}: gone, although the plan needs it for {name(1841, 'index')}" in done.stderr.decode()
    assert tree(original) == before
    assert not Path(backup_of(plan_file)).exists()


def test_apply_as_json_is_the_plan(klog: Klog, plan_file: Path) -> None:
    done = klog("apply", plan_file, "--output", "json", "--quiet")
    members = json.loads(done.stdout)
    assert (members["id"], members["backup"]) == ("20261121-051019-recover-7f3a", backup_of(plan_file))
    assert (members["done"], members["done_before"], len(members["actions"])) == (2, 0, 2)
    assert done.stderr == b""


def test_a_stale_plan_is_8(klog: Klog, plan_file: Path, original: Path) -> None:
    path = original / name(1841, "log")
    path.write_bytes(path.read_bytes() + b"x")
    done = klog("apply", plan_file)
    assert (done.exit_code, done.stdout) == (8, b"")
    assert done.stderr.decode() == (
        f"klog: {path}: has changed since the plan was made; nothing was started, make the plan again\n"
    )


def test_a_running_broker_is_8(klog: Klog, plan_file: Path, original: Path) -> None:
    before = tree(original)
    process = other_process(original / ".lock")
    assert said(process) == b"held"
    for arguments in (["apply", plan_file], ["undo", plan_file, "--apply"]):
        done = klog(*arguments)
        assert (done.exit_code, done.stdout) == (8, b"")
        assert f"a broker is running on {original} (pid {process.pid})" in done.stderr.decode()
    end(process)
    (original / ".lock").unlink()
    assert {**tree(original), ".": 0} == {**before, ".": 0}


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 10000, b"\xff", b'{"klog_plan":2}'])
def test_what_is_no_plan_is_8(klog: Klog, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    for command in ("apply", "undo"):
        done = klog(command, tmp_path / "plan.json")
        assert (done.exit_code, done.stdout) == (8, b"")
        assert done.stderr.count(b"\n") == 1


def test_undo_only_shows_unless_told(klog: Klog, plan_file: Path, original: Path) -> None:
    klog("apply", plan_file)
    before = tree(original)
    shown = klog("undo", plan_file)
    assert shown.exit_code == 0
    command = f"klog recover {original} --save-plan {plan_file}"
    assert shown.stdout.decode().splitlines() == [
        f"would undo 20261121-051019-recover-7f3a with 2 changes ({command})",
        f"replace  {name(1841, 'log')} (1.5 KiB → 3.3 KiB)",
        f"replace  {name(1841, 'index')} (8 B → 20 B)",
        "nothing has been changed; next:",
        f"  klog undo {plan_file} --apply",
    ]
    assert shown.stderr == b""
    assert tree(original) == before


@pytest.mark.parametrize("how", ["file", "backup", "id"])
def test_undo_takes_the_plan_s_file_its_backup_or_its_id(
    klog: Klog, plan_file: Path, original: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(original)
    klog("apply", plan_file)
    monkeypatch.chdir(original)
    what = {"file": plan_file, "backup": backup_of(plan_file), "id": "20261121-051019-recover-7f3a"}[how]
    done = klog("undo", what, "--apply", "--output", "json")
    assert done.exit_code == 0
    members = json.loads(done.stdout)
    assert members["undoes"] == "20261121-051019-recover-7f3a"
    assert tree(original) == before
    assert klog("undo", what, "--apply").stdout == b"nothing to undo: 20261121-051019-recover-7f3a\n"
    assert klog("undo", members["id"], "--apply").exit_code == 0
    assert (original / name(1841, "index")).read_bytes() == b"entries!"


def test_undo_of_what_was_used_since_is_8(klog: Klog, plan_file: Path, original: Path) -> None:
    klog("apply", plan_file)
    (original / name(1841, "log")).write_bytes(b"new")
    for arguments in ([], ["--apply"]):
        done = klog("undo", plan_file, *arguments)
        assert (done.exit_code, done.stdout) == (8, b"")
        assert b"used since" in done.stderr
    assert sorted(os.listdir(original.parent / "klog-backup")) == ["20261121-051019-recover-7f3a"]


def listed(klog: Klog, directory: Path) -> list[tuple[str, str]]:
    done = klog("plans", directory, "--output", "json")
    assert done.exit_code == (0 if b'"id"' in done.stdout else 4)
    return [(plan["command"].split()[1], plan["state"]) for plan in json.loads(done.stdout)["plans"]]


def test_plans_lists_what_was_done(klog: Klog, plan_file: Path, original: Path) -> None:
    assert listed(klog, original) == []
    done = klog("plans", original)
    assert (done.exit_code, done.stdout, done.stderr.decode()) == (4, b"", f"klog: no plans for {original}\n")
    done = klog("plans", original, "--output", "csv", "--quiet")
    assert (done.exit_code, done.stdout.count(b"\n"), done.stderr) == (4, 1, b"")
    klog("apply", plan_file)
    assert listed(klog, original) == [("recover", "applied")]
    klog("undo", plan_file, "--apply")
    assert sorted(listed(klog, original / "orders-3")) == [("recover", "taken back"), ("undo", "applied")]
    text = klog("plans", original).stdout.decode()
    title, first, second, backups = text.splitlines()
    assert title.split() == ["id", "when", "state", "changes", "command"]
    assert first.startswith("20261121-051019-recover-7f3a  2026-11-21 05:30:19Z  undone         2  klog recover ")
    assert second.split()[3:5] == ["applied", "2"]
    assert backups == f"backups are in {original.parent}/klog-backup"


def test_plans_says_what_is_half_done_and_apply_finishes_it(klog: Klog, original: Path) -> None:
    plan: Plan = half_done(original)
    done = klog("plans", original)
    assert b"half done" in done.stdout
    assert done.stdout.decode().splitlines()[-3:] == [
        f"{plan.id} is half done: finish it, or undo it:",
        f"  klog apply {plan.backups[0]}",
        f"  klog undo {plan.backups[0]}",
    ]
    finished = klog("apply", plan.backups[0])
    assert finished.exit_code == 0
    assert "had been made before" in finished.stdout.decode()
    assert listed(klog, original) == [("recover", "applied")]


def test_an_undo_is_undone_and_the_words_follow(
    klog: Klog, plan_file: Path, original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undone, redone, and each names the command for the other: by its id where that is found, with no --apply."""
    klog("apply", plan_file)
    monkeypatch.chdir(original)
    undone = klog("undo", "20261121", "--apply").stdout.decode().splitlines()
    assert undone[0] == "undone: 20261121-051019-recover-7f3a, 2 changes made"
    assert undone[2:] == ["to redo it:", f"  klog undo {os.path.basename(undone[1])}"]
    assert undone[1].startswith("backup: ")
    command = undone[3].split()[1:]
    shown = klog(*command).stdout.decode().splitlines()
    assert shown[0] == "would redo 20261121-051019-recover-7f3a with 2 changes (klog undo 20261121-051019-recover-7f3a)"
    redone = klog(*command, "--apply").stdout.decode().splitlines()
    assert redone[0] == "redone: 20261121-051019-recover-7f3a, 2 changes made"
    assert redone[2] == "to undo it:"


@pytest.mark.parametrize("command", ["apply", "undo", "plans"])
def test_unknown_forms_are_usage(klog: Klog, original: Path, command: str) -> None:
    done = klog(command, original, "--output", "jsn")
    assert done.exit_code == 16
    assert b"did you mean json" in done.stderr


SLOW = """
import sys, time
from klog.data_dir.disk.disk_changes import Disk
from klog_cli import app
truncate = Disk.truncate
def slowly(*arguments):
    truncate(*arguments)
    print("acting", file=sys.stderr, flush=True)
    time.sleep(20)
Disk.truncate = slowly
sys.argv = ["klog", "apply", sys.argv[1]]
sys.exit(app.main())
"""


def test_an_interrupt_says_how_to_go_on(klog: Klog, plan_file: Path, original: Path) -> None:
    """After ^C the operator must learn that the log dir is between two states."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", SLOW, str(plan_file)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)
    assert process.stderr is not None
    assert process.stderr.readline() == b"acting\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 32
    assert f"'klog apply {backup_of(plan_file)}' finishes it" in errors.decode()
    assert klog("apply", plan_file).exit_code == 0
    assert (original / name(1841, "index")).read_bytes() == b"entries!"


def test_names_that_cannot_be_printed_are_shown_all_the_same(klog: Klog, original: Path) -> None:
    """Topics are free of control characters, but plans are only files."""
    directory = original / "a\x1b[31m-\udcff-0"
    directory.mkdir()
    path = f"{directory.name}/{0:020}.index"
    (original / path).write_bytes(b"entries")
    draft = Draft(str(original), 0, Staging(None, Disk()))
    draft.remove(path)
    plan = make_plan("x", "klog", [str(original)], backup_places("x", [str(original)]), [draft], NOW)
    (original.parent / "p.json").write_bytes(b"".join(plan_pieces(plan)))
    apply(plan, Disk())
    shown = klog("undo", original.parent / "p.json")
    assert shown.exit_code == 0
    assert b"\x1b" not in shown.stdout
    assert klog("undo", original.parent / "p.json", "--apply").exit_code == 0
    assert (original / path).read_bytes() == b"entries"
