"""The wheels that `make release` builds: their tags, their content, and that they work once installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from array import array
from pathlib import Path

import pytest

from tests.conftest import ROOT, run_klog
from tests.support.insight import unpack

pytestmark = pytest.mark.release
PLATFORMS = [f"{name}_{arch}" for name in ("manylinux_2_17", "musllinux_1_2") for arch in ("x86_64", "aarch64")]
KERNEL = "klog/kernel/_window.abi3.so"  # the part that computes checksums
MACHINES = {"x86_64": 62, "aarch64": 183}  # e_machine of ELF


def wheel(platform: str) -> Path:
    (found,) = (ROOT / "dist").glob(f"klog-*-cp311-abi3-{platform}.whl")
    return found


def interpreters() -> list[str]:
    """Return each Python from 3.11 on that this machine has."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(11, 16):
        path = shutil.which(f"python3.{minor}")
        says = [path or "", "-c", "import sys, venv; print(sys.executable)"]
        if path and (done := subprocess.run(says, capture_output=True, text=True, check=False)).returncode == 0:
            found.setdefault((3, minor), done.stdout.strip())
    return [found[version] for version in sorted(found)]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_its_tags_are_true(platform: str) -> None:
    """auditwheel looks at the symbols of the C library that it needs, abi3audit at those of Python."""
    audit = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", "--json", wheel(platform)], capture_output=True, check=True
    )
    shown = json.loads(audit.stdout)
    assert (shown["overall_tag"], shown["external_libs"]) == (platform, {})
    subprocess.run([sys.executable, "-m", "abi3audit", "--strict", wheel(platform)], check=True)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_it_is_for_its_processor_and_names_no_path_of_the_builder(platform: str) -> None:
    with zipfile.ZipFile(wheel(platform)) as archive:
        kernel = archive.read(KERNEL)
        assert int.from_bytes(kernel[18:20], "little") == MACHINES[re.sub("^.*?_[0-9]+_[0-9]+_", "", platform)]
        builders = {os.fsencode(ROOT), os.fsencode(Path.home() / ".cache"), os.fsencode(sys.base_prefix) + b"/"}
        for name in archive.namelist():
            content = archive.read(name)
            assert not [path for path in builders if path in content], name


@pytest.fixture(scope="module", params=interpreters(), ids=os.path.basename)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the `klog` of a new environment, which takes all but klog from that of the tests."""
    made = tmp_path_factory.mktemp("environment")
    subprocess.run([request.param, "-m", "venv", "--without-pip", made], check=True)
    python = made / "bin" / "python"
    words = ["--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel("manylinux_2_17_x86_64")]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    (site,) = made.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n"
    )
    return made / "bin" / "klog"


def said(klog: Path, *words: str | Path) -> tuple[int, bytes, bytes]:
    done = subprocess.run([klog, *words], capture_output=True, cwd=klog.parent, env={"PATH": ""}, check=False)
    return done.returncode, done.stdout, done.stderr


def test_it_finds_the_processors_own_checksum(installed: Path) -> None:
    """A compiler without the instruction would build a kernel that is slower by ten times, and right."""
    code, stdout, _ = said(installed, "--version")
    assert code == 0
    assert stdout.strip().endswith(b"with hardware CRC-32C")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_instruction_for_the_checksum_is_in_it(platform: str) -> None:
    """crc32 of 8 bytes on x86_64, crc32cx on aarch64: also where no interpreter of the platform is at hand."""
    with zipfile.ZipFile(wheel(platform)) as archive:
        kernel = archive.read(KERNEL)
    if platform.endswith("x86_64"):
        assert re.search(rb"\xf2[\x48-\x4f]\x0f\x38\xf1", kernel)
    else:
        words = array("I", kernel[: len(kernel) // 4 * 4])
        assert any(word & 0xFFE0FC00 == 0x9AC05C00 for word in words)


@pytest.mark.parametrize("words", [["verify"], ["dump", "--output", "jsonl"]])
def test_it_says_what_the_package_says(installed: Path, tmp_path: Path, words: list[str]) -> None:
    log_dir = unpack(tmp_path)
    wanted = run_klog(*words, log_dir)
    assert said(installed, *words, log_dir) == (wanted.exit_code, wanted.stdout, wanted.stderr)
    assert wanted.stdout


def test_the_sdist_holds_what_builds_and_tests_it() -> None:
    (archive,) = (path for path in (ROOT / "dist").glob("klog-*.tar.gz") if "linux" not in path.name)
    listed = subprocess.run(["tar", "--list", "--file", archive], capture_output=True, text=True, check=True)
    names = {name.partition("/")[2] for name in listed.stdout.split()}
    assert {
        "pyproject.toml",
        "Makefile",
        "core/klog/kernel/_window.pyx",
        "core/klog/kernel/_window.pxd",
        "setup.py",
        "release/wheels.sh",
        "tests/conftest.py",
    } <= names
    assert not [name for name in names if name.endswith((".so", ".pyc", "_window.c"))]
