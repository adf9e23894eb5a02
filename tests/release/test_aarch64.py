"""The file for aarch64, run by qemu in a root that holds nothing else, prints the same as the package."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, run_klog
from tests.release.root import Root
from tests.release.test_one_file import STORED, lay_values

pytestmark = pytest.mark.release
LOG_DIRS = ("modern", "legacy", "crash/torn-in-batch")
READING = ("verify --deep", "dump --output jsonl", "describe", "lookup --offset 3", "doctor", "metadata show")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    return Root(tmp_path_factory.mktemp("root"), "aarch64")


def test_its_checksums_are_the_hardwares(root: Root) -> None:
    found = root.run("--version")
    assert (found.exit_code, b"hardware CRC-32C" in found.stdout) == (0, True)


@pytest.mark.parametrize("log_dir", LOG_DIRS)
def test_what_reads_says_the_same(root: Root, tmp_path: Path, log_dir: str) -> None:
    """Every codec, and damage, at the same path in the root and outside of it."""
    outside = tmp_path / "data"
    shutil.copytree(FIXTURES / log_dir, outside)
    shutil.copytree(outside, root.folder / outside.relative_to("/"))
    for line in READING:
        command, *options = line.split()
        words = ["metadata", "show", str(outside)] if command == "metadata" else [command, str(outside), *options]
        assert root.run(*words) == run_klog(*words), line


@pytest.mark.parametrize("kind", STORED)
def test_damaged_values_are_decoded_the_same(root: Root, tmp_path: Path, kind: str) -> None:
    lay_values(root, tmp_path, kind)
    words = ["dump", str(tmp_path), "--schemas", "auto", "--output", "jsonl"]
    assert root.run(*words) == run_klog(*words)


def test_a_recovery_writes_the_same(root: Root, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "data", root.folder / "recovered"
    for folder in (ours, theirs):
        shutil.copytree(FIXTURES / "crash" / "torn-in-batch", folder)
    wanted = run_klog("recover", ours, "--apply", "--quiet")
    found = root.run("recover", root.inside(theirs), "--apply", "--quiet")
    assert (found.exit_code, found.stderr) == (wanted.exit_code, wanted.stderr)
    names = sorted(path.relative_to(ours) for path in ours.glob("*-*/*"))
    assert names
    assert [(theirs / name).read_bytes() for name in names] == [(ours / name).read_bytes() for name in names]
