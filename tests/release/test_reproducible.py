"""A release made once more in a folder of another name is the same, byte for byte, and names no folder here."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.release
CACHE = Path(
    os.environ.get("KLOG_RELEASE_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "klog-release")
)
PLACES = {os.fsencode(place) for place in (ROOT, CACHE, sys.base_prefix, f"{Path.home()}/.")} - {b"/usr"}
"""The names that no file may contain: the clone, the cache, the Python of this machine, hidden folders in the home."""


def contents(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the bytes of a file, and of all packed ones."""
    yield file.name, file.read_bytes()
    if file.name.endswith(".tar.gz"):
        with tarfile.open(file) as archive:
            for member in archive:
                packed = archive.extractfile(member) if member.isfile() else None
                yield (
                    f"{file.name}/{member.name}",
                    repr(member.get_info()).encode() + (packed.read() if packed else b""),
                )
    elif file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            yield from ((f"{file.name}/{name}", wheel.read(name)) for name in wheel.namelist())
    elif file.suffix in (".deb", ".rpm"):
        ways = [["rpm2cpio"]] if file.suffix == ".rpm" else [["dpkg-deb", f"--{of}-tarfile"] for of in ("fsys", "ctrl")]
        for way in ways:
            yield f"{file.name} {way[-1]}", subprocess.run([*way, file], capture_output=True, check=True).stdout


@pytest.mark.parametrize("kind", ["klog-*-linux-*64", "*.cdx.json", "*.tar.gz", "*.whl", "*.deb", "*.rpm"])
def test_no_file_names_a_folder_of_the_machine_or_the_machine(kind: str) -> None:
    """Packed ones are unpacked: a path cannot be seen in compressed data."""
    files = sorted((ROOT / "dist").glob(kind))
    assert len(files) >= 2
    name = socket.gethostname().encode()
    names = {name} if len(name) > 7 and kind in ("*.deb", "*.rpm") else set()
    assert [
        (inside, place)
        for file in files
        for inside, read in contents(file)
        for place in PLACES | names
        if place in read
    ] == []


@pytest.mark.parametrize("cache", ["the same cache", pytest.param("a cache of its own", marks=pytest.mark.long)])
def test_a_clone_in_another_folder_makes_the_same(cache: str, tmp_path: Path) -> None:
    """In minutes where the libraries are in the cache; without, in as long as the first release took."""
    assert subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT, check=False).returncode == 0, (
        "not what dist/ is of"
    )
    clone = tmp_path / "another" / "of-another-name"
    clone.parent.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    environment = dict(os.environ)
    if cache == "a cache of its own":
        shutil.copytree(CACHE / "downloads", tmp_path / "cache" / "downloads")
        environment["KLOG_RELEASE_CACHE"] = str(tmp_path / "cache")
    done = subprocess.run([clone / "release" / "all.sh"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs, ours = ((folder / "dist" / "SHA256SUMS").read_text().splitlines() for folder in (clone, ROOT))
    assert theirs == ours
    assert len(ours) >= 15
