"""Inputs are fetched from the first place that has them, as they are pinned; a place that has other bytes is
skipped."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.release
CONTENT = b"the source of something\n"
PLACE = "pool/main/s/some/some_1.orig.tar.gz"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone's scripts, with one input."""
    shutil.copytree(ROOT / "release", tmp_path / "clone" / "release")
    digest = hashlib.sha256(CONTENT).hexdigest()
    (tmp_path / "clone" / "release" / "inputs.txt").write_text(f"some 1 MIT debian:{PLACE} {digest}\n")
    return tmp_path / "clone"


def pool(folder: Path, content: bytes | None) -> str:
    """Return the address of a new pool that has these bytes, or nothing."""
    folder.mkdir()
    if content is not None:
        (folder / PLACE).parent.mkdir(parents=True)
        (folder / PLACE).write_bytes(content)
    return f"file://{folder}/"


def fetch(clone: Path, *pools: str) -> tuple[int, str, bytes | None]:
    """Return the exit code, the output, and the content of the cache then."""
    cache = clone.parent / "cache"
    environment = os.environ | {"KLOG_RELEASE_CACHE": str(cache), "KLOG_DEBIAN": " ".join(pools)}
    done = subprocess.run(
        [clone / "release" / "fetch.sh"], env=environment, capture_output=True, text=True, check=False
    )
    found = cache / "downloads" / Path(PLACE).name
    return done.returncode, done.stderr, found.read_bytes() if found.exists() else None


def test_a_place_that_has_it_no_more_or_has_other_bytes_is_passed_over(clone: Path, tmp_path: Path) -> None:
    pools = [pool(tmp_path / f"pool{i}", content) for i, content in enumerate((None, b"others", CONTENT))]
    code, said, found = fetch(clone, *pools)
    assert (code, found) == (0, CONTENT), said
    assert fetch(clone, pools[0])[:2] == (0, ""), "what is there is not asked for again"


def test_where_no_place_has_it_the_error_says_what_and_what_next(clone: Path, tmp_path: Path) -> None:
    code, said, found = fetch(clone, pool(tmp_path / "empty", None), pool(tmp_path / "other", b"others"))
    assert (code, found) == (1, None)
    assert f"no pool has some 1 as inputs.txt names it: {PLACE}; KLOG_DEBIAN may name one more" in said
