"""What a repair does not do when there is no need: operators run it over thousands of partitions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.plan.json_file import plan_pieces, read_plan
from klog.plan.model import Plan
from klog.recover import like_broker

from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log dir with an intact log that has lost its indexes."""
    folder = tmp_path / "data" / "orders-0"
    folder.mkdir(parents=True)
    (folder.parent / "meta.properties").write_text("version=0\nbroker.id=1\n")
    batches = (
        batch([Record(i, 1_750_000_000_000 + i, b"k", b"v" * 100) for i in range(at, at + 10)]) for at in (0, 10)
    )
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    return folder.parent


def test_a_log_without_indexes_is_read_once(
    data: Path, klog: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a broker would keep of an intact log needs no second look: everything."""

    def read_again(*_: object) -> None:
        raise AssertionError("a broker's start was played")

    monkeypatch.setattr(like_broker, "play", read_again)
    planned = klog("recover", data, "--output=json")
    assert planned.exit_code == 4
    assert json.loads(planned.stdout)["broker_would_keep"]["records"] == 20


def test_a_plan_for_an_intact_log_loads_nothing_that_changes_or_salvages(data: Path, klog: Callable[..., Ran]) -> None:
    """Loading it all took a fifth of what reading a gigabyte does."""
    assert klog("recover", data, "--apply", "--quiet").exit_code == 1
    shutil.rmtree(data.parent / "klog-backup")
    unwanted = (
        "klog.plan.executor",
        "klog.recover.salvage",
        "klog.recover.like_broker",
        "klog.recover.mark_clean",
        "json",
    )
    code = f"""
import sys
from klog_cli.app import main
sys.argv = ["klog", "recover", {str(data)!r}]
print(main(), *sorted(set({unwanted!r}) & set(sys.modules)))
"""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True)
    assert done.stdout.decode().splitlines()[-1] == "0", done.stderr


def test_a_plan_is_written_in_pieces_that_are_small() -> None:
    """In one piece a plan of a hundred thousand findings would be several hundred megabytes."""
    findings = tuple({"id": "index-missing", "file": f"orders-0/{number:020}.log"} for number in range(1000))
    plan = Plan("p", "now", "klog", ("/data",), ("/backup",), (), findings=findings)
    pieces = list(plan_pieces(plan))
    assert read_plan(b"".join(pieces)) == plan
    assert max(map(len, pieces)) < 100
