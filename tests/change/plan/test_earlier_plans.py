"""Plans that the code before pointers in log dirs has made are found, listed, applied and undone.

`fixtures/plans.tar.xz` was made by the code of commit 9442b9e5, in `/klog-golden`: copies of one log dir with a torn
tail, each with a plan in another state, and the user's state directory with its notes.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Ran
from tests.support.power import Tree, less_pointers, tree

Klog = Callable[..., Ran]
MADE_IN = b"/klog-golden"
SAVED = "saved/plan.json"


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the log dirs: the paths in plans and pointers lead into it."""
    root = tmp_path / "golden"
    owner = f'"uid":{os.getuid()},"gid":{os.getgid()}'.encode()
    times: list[tuple[Path, int]] = []
    with tarfile.open(FIXTURES / "plans.tar.xz") as archive:
        for member in archive:
            archive.extract(member, root, filter="data")
            times.append((root / member.name, int(Decimal(member.pax_headers.get("mtime", member.mtime)) * 10**9)))
    for path, _ in times:
        if path.is_file() and (path.name == "plan.json" or MADE_IN in path.read_bytes()[:200]):
            text = path.read_bytes().replace(MADE_IN, bytes(root)).replace(b'"uid":0,"gid":0', owner)
            path.write_bytes(text)
    for path, modified_ns in reversed(times):
        os.utime(path, ns=(modified_ns, modified_ns))
    digest = hashlib.sha256(os.fsencode(os.path.realpath(root / "home/data"))).hexdigest()[:32]
    (root / "state/klog/log-dirs/DIGEST").rename(root / "state/klog/log-dirs" / digest)
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
    return root


def listed(klog: Klog, data: Path) -> list[dict[str, object]]:
    ran = klog("plans", data, "--output", "json")
    assert ran.exit_code == 0
    found: list[dict[str, object]] = json.loads(ran.stdout)["plans"]
    return found


def content(data: Path) -> Tree:
    """Return a log dir's content, without klog's files beside Kafka's."""
    found = less_pointers(tree(data, directory_times=False))
    return {name: facts for name, facts in found.items() if name != ".lock"}


@pytest.mark.parametrize("name", ["beside", "elsewhere", "home"])
def test_an_applied_plan_is_listed_and_undone(golden: Path, klog: Klog, name: str) -> None:
    """The backup is beside the log dir; a pointer leads to it, beside the log dir or in the user's home."""
    data = golden / name / "data"
    (plan,) = listed(klog, data)
    assert plan["state"] == "applied"
    assert klog("undo", plan["backup"], "--apply", "--backup", golden / name / "back").exit_code == 0
    assert content(data) == content(golden / "untouched/data")
    assert [row["state"] for row in listed(klog, data)] == ["taken back", "applied"]


@pytest.mark.parametrize("name", ["beside", "elsewhere", "home"])
def test_a_plan_is_found_by_its_id_from_anywhere(
    golden: Path, klog: Klog, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (plan,) = listed(klog, golden / name / "data")
    monkeypatch.chdir("/")
    assert klog("undo", plan["id"]).exit_code == 0


def test_a_saved_plan_is_applied_and_undone(golden: Path, klog: Klog) -> None:
    data = golden / "saved/data"
    assert klog("apply", golden / SAVED).exit_code == 0
    assert content(data) == content(golden / "beside/data")
    (plan,) = listed(klog, data)
    assert klog("undo", plan["backup"], "--apply").exit_code == 0
    assert content(data) == content(golden / "untouched/data")


@pytest.mark.parametrize("command", ["apply", "undo"])
def test_a_plan_that_is_half_done_keeps_others_back_until_it_is_ended(golden: Path, klog: Klog, command: str) -> None:
    data = golden / "half/data"
    (plan,) = listed(klog, data)
    assert plan["state"] == "half done"
    assert b"is half done" in klog("recover", data).stderr
    assert klog(command, plan["backup"], *["--apply"] * (command == "undo")).exit_code == 0
    assert content(data) == content(golden / ("beside" if command == "apply" else "untouched") / "data")


def test_an_undo_is_listed_and_undone(golden: Path, klog: Klog) -> None:
    data = golden / "undone/data"
    plans = listed(klog, data)
    assert [plan["state"] for plan in plans] == ["taken back", "applied"]
    assert klog("undo", plans[1]["backup"], "--apply").exit_code == 0
    assert content(data) == content(golden / "beside/data")


def test_nothing_is_written_into_the_home(golden: Path, klog: Klog) -> None:
    before = tree(golden / "state")
    data = golden / "untouched/data"
    done = klog("recover", data, "--apply", "--backup", golden / "kept")
    assert done.exit_code == 1
    assert klog("undo", golden / "kept", "--apply").exit_code == 0
    assert tree(golden / "state") == before
