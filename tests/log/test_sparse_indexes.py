"""Indexes of a terabyte that are a hole: as much is read as a file of that kind can have, and verify has a finding."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, run_klog

FILES = (f"{0:020}.index", f"{0:020}.timeindex", f"{16:020}.txnindex", f"{16:020}.snapshot", "leader-epoch-checkpoint")
COMMANDS = ("verify --deep", "recover", "describe", "dump --with-indexes", "lookup --offset 3", "space", "timeline")


@pytest.fixture(scope="module")
def log_dirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A log dir for each file, which ends a terabyte behind its beginning."""
    found = {}
    for name in FILES:
        data = tmp_path_factory.mktemp("sparse") / "data"
        shutil.copytree(FIXTURES / "modern" / "tx-0", data / "tx-0")
        shutil.copy2(FIXTURES / "modern" / "meta.properties", data)
        os.truncate(data / "tx-0" / name, 1 << 40)
        found[name] = data
    return found


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", FILES)
def test_a_hole_of_a_terabyte_is_not_read(log_dirs: dict[str, Path], name: str, command: str) -> None:
    path = log_dirs[name] / "tx-0" if command.startswith(("lookup", "dump")) else log_dirs[name]
    start = time.process_time()
    ran = run_klog(*command.split(), path)
    assert ran.exit_code in (0, 4, 8, 12), ran.stderr
    assert time.process_time() - start < 10


@pytest.mark.parametrize("name", FILES)
def test_verify_has_a_finding_about_it(log_dirs: dict[str, Path], name: str) -> None:
    found = json.loads(run_klog("verify", "--output", "json", log_dirs[name]).stdout)["findings"]
    assert any(name in (one["file"] or "") for one in found), found
