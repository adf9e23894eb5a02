"""Every image of a crash: repaired in each way, looked at again, repaired again, taken back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.partition.verify.images import CRASHES, unpacked
from tests.support.power import tree
from tests.support.samples import sampled

MODES = ((), ("--like-broker",), ("--salvage",))
NOW = "--now=2026-11-21T06:00:00Z"


def problems(klog: Callable[..., Ran], log_dir: Path) -> set[tuple[str, str]]:
    """Return what `klog verify --deep` finds above a note: ids and files."""
    found = json.loads(klog("verify", "--deep", str(log_dir), "--output", "json").stdout)["findings"]
    return {(one["id"], one["file"]) for one in found if one["severity"] != "note"}


@pytest.mark.corpora
@pytest.mark.parametrize("mode", MODES, ids=("default", "like-broker", "salvage"))
@pytest.mark.parametrize("image", sampled(CRASHES, 2), ids=[image.name for image in CRASHES])
def test_a_crash_is_repaired_and_the_repair_taken_back(
    image: Path, mode: tuple[str, ...], tmp_path: Path, klog: Callable[..., Ran]
) -> None:
    """The state afterwards is the announced one; a second run finds nothing to do; undo leaves no trace."""
    log_dir = unpacked(image, tmp_path / "data")
    before = tree(log_dir)
    planned = klog("recover", str(log_dir), *mode, NOW, "--output", "json")
    assert tree(log_dir) == before
    assert not (tmp_path / "klog-backup").exists()
    said = json.loads(planned.stdout)
    done = klog("recover", str(log_dir), *mode, NOW, "--apply", "--output", "json")
    result = json.loads(done.stdout)
    assert [(one["do"], one["file"], one.get("after")) for one in result["actions"]] == [
        (one["do"], one["file"], one.get("after")) for one in said["actions"]
    ]
    assert done.exit_code in ((1, 5) if result["actions"] else (0, 4)), done
    assert bool(done.exit_code & 4) == bool(result["left"] or any(one["reason"] for one in result["partitions"]))
    if mode != ("--like-broker",):
        left = {(one["id"], one["file"]) for one in result["left"]}
        unmendable = {"offset-gap", "offsets-missing", "sequence-gap"}
        assert {one for one in problems(klog, log_dir) if one[0] not in unmendable} == left
        again = json.loads(klog("recover", str(log_dir), *mode, NOW, "--output", "json").stdout)
        assert again["actions"] == []
    if result["actions"]:
        assert klog("undo", result["backup"], "--apply").exit_code == 0
    assert tree(log_dir) == before
    shutil.rmtree(tmp_path / "klog-backup", ignore_errors=True)
