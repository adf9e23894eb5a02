"""The Homebrew formula is Ruby, and names the archives by their own sums."""

from __future__ import annotations

import hashlib
import re
import subprocess

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.release
HOME = "https://forge.example.com/klog"


def test_the_formula_names_the_archives_by_their_sums() -> None:
    said = subprocess.run([ROOT / "release" / "formula.sh", HOME], capture_output=True, text=True, check=True)
    assert (
        subprocess.run(["ruby", "-c"], input=said.stdout, capture_output=True, text=True, check=True).stdout
        == "Syntax OK\n"
    )
    assert "@" not in said.stdout
    archives = dict(re.findall(r'url "(.*)"\n\s+sha256 "(.*)"', said.stdout))
    assert len(archives) == 2
    for address, digest in archives.items():
        folder, _, name = address.rpartition("/")
        assert folder.startswith(f"{HOME}/releases/download/v")
        assert hashlib.sha256((ROOT / "dist" / name).read_bytes()).hexdigest() == digest
