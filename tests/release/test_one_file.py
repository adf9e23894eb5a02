"""The one file, in a root that holds nothing but it, says what the package says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, Ran, run_klog
from tests.support.insight import unpack

pytestmark = pytest.mark.release
LARGEST = 30 << 20


@pytest.fixture(scope="module")
def one_file() -> Path:
    (found,) = (ROOT / "dist").glob("klog-*-linux-x86_64")
    return found


@pytest.fixture(scope="module")
def root(one_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root without Python, a C library, /proc, /tmp or /dev."""
    made = tmp_path_factory.mktemp("root")
    shutil.copy(one_file, made / "klog")
    return made


def inside(root: Path, *words: str) -> Ran:
    """Run the file there.  It needs a user who may change the root."""
    if os.geteuid():
        pytest.fail("chroot needs root")
    done = subprocess.run(
        ["chroot", str(root), "/klog", *words], capture_output=True, stdin=subprocess.DEVNULL, timeout=120, check=False
    )
    return Ran(done.stdout, done.stderr, done.returncode)


def test_it_is_small(one_file: Path) -> None:
    assert one_file.stat().st_size <= LARGEST


@pytest.mark.parametrize("words", [["--help"], ["verify", "--help"], ["recover", "--help"], ["serve", "--help"]])
def test_help_is_that_of_the_package(root: Path, words: list[str]) -> None:
    found, wanted = inside(root, *words), run_klog(*words)
    assert (found.exit_code, found.stdout, found.stderr) == (wanted.exit_code, wanted.stdout, wanted.stderr)


@pytest.fixture(scope="module")
def log_dir(root: Path) -> Path:
    """Inside the root, which the package reads from outside with this path before each name."""
    return unpack(root)


@pytest.mark.parametrize("words", [["verify", "--deep"], ["dump", "--output", "jsonl"], ["describe"]])
def test_what_reads_says_the_same(root: Path, log_dir: Path, words: list[str]) -> None:
    found, wanted = inside(root, *words, f"/{log_dir.relative_to(root)}"), run_klog(*words, log_dir)
    assert wanted.stdout.replace(os.fsencode(root), b"") == found.stdout
    assert wanted.stderr.replace(os.fsencode(root), b"") == found.stderr
    assert (wanted.exit_code, bool(found.stdout)) == (found.exit_code, True)


def test_what_changes_changes_the_same(root: Path, tmp_path: Path) -> None:
    """A compaction into the log dir itself: same files with the same bytes, plans and backups left out."""
    ours, theirs = unpack(tmp_path), unpack(root / "changed")
    assert run_klog("compact", ours, "--apply", "--quiet").exit_code == 0
    assert inside(root, "compact", f"/{theirs.relative_to(root)}", "--apply", "--quiet").exit_code == 0
    assert files(ours) == files(theirs)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.log")}
