"""Each wheel, installed where it belongs: in a root of Debian's musl or of another processor."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, run_klog
from tests.release.platforms import Platform
from tests.support.insight import unpack

pytestmark = pytest.mark.release
PLATFORMS = ("manylinux_2_17_aarch64", "musllinux_1_2_x86_64", "musllinux_1_2_aarch64")
"""`test_wheels.py` has the fourth, which runs on this machine."""


@pytest.fixture(scope="module", params=PLATFORMS)
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return Platform(tmp_path_factory.mktemp("platform") / "root", request.param)


def test_it_finds_the_processors_own_checksum(platform: Platform) -> None:
    """The kernel is loaded, or there would be no answer; it names its kind of arithmetic."""
    found = platform.run("--version")
    assert (found.exit_code, found.stderr) == (0, b"")
    assert found.stdout.strip().endswith(b"with hardware CRC-32C")


@pytest.mark.parametrize("source", ["insight", "modern", "legacy", "crash/torn-in-batch"])
def test_it_says_what_the_package_says(platform: Platform, tmp_path: Path, source: str) -> None:
    """Every codec, old formats and damage, at the same path in the root and outside of it."""
    outside = tmp_path / "data"
    if source == "insight":
        outside = unpack(tmp_path)
    else:
        shutil.copytree(FIXTURES / source, outside)
    shutil.copytree(outside, platform.folder / outside.relative_to("/"))
    for words in (["verify", "--deep"], ["dump", "--output", "jsonl"], ["describe"]):
        wanted = run_klog(*words, outside)
        assert platform.run(*words, outside) == wanted, words
        assert wanted.stdout
