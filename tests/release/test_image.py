"""The image of `release/Containerfile` holds the one file alone, and runs it as the user `nobody` without write
permission."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES, ROOT, run_klog
from tests.release.root import one_file, run

pytestmark = pytest.mark.release
WITHOUT_A_DAEMON = ("--storage-driver", "vfs")
CHROOT = ("--isolation", "chroot")


class Buildah:
    """buildah with a store of its own, in which klog's image is."""

    def __init__(self, folder: Path) -> None:
        places = ("--root", str(folder / "images"), "--runroot", str(folder / "state"))
        self.start = ("buildah", *WITHOUT_A_DAEMON, *places)
        recipe = ("--file", str(ROOT / "release" / "Containerfile"), "--build-arg", f"FILE={one_file().name}")
        self("bud", *CHROOT, "--quiet", *recipe, "--tag", "klog", str(ROOT / "dist"))

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self.start, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    if os.geteuid():
        pytest.fail("only root may make an image with buildah here")
    made = Buildah(tmp_path_factory.mktemp("buildah"))
    yield made
    made("rm", "--all")


@pytest.fixture(scope="module")
def settings(buildah: Buildah) -> dict[str, Any]:
    """Return the settings for a container runtime."""
    told: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", "klog"))
    return dict(told["OCIv1"]["config"])


@pytest.fixture
def inside(buildah: Buildah) -> Path:
    """The root of a new container, as it lies on this machine."""
    return Path(buildah("mount", buildah("from", "klog").strip()).strip())


def test_it_holds_the_one_file_and_nothing_else(inside: Path, settings: dict[str, Any]) -> None:
    assert [path.relative_to(inside).as_posix() for path in inside.rglob("*")] == ["klog"]
    assert (inside / "klog").read_bytes() == one_file().read_bytes()
    assert (settings["Entrypoint"], settings["Cmd"], settings["User"]) == (["/klog"], ["--help"], "65534:65534")


def test_a_container_reads_a_log_dir(buildah: Buildah) -> None:
    volume = ("--volume", f"{FIXTURES / 'modern'}:/data:ro")
    wanted = run_klog("verify", FIXTURES / "modern")
    found = buildah("run", *CHROOT, *volume, buildah("from", "klog").strip(), "--", "/klog", "verify", "/data")
    assert found.encode() == wanted.stdout


def test_it_runs_as_nobody_in_a_root_that_cannot_be_written(
    inside: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    """As the Job of docs/release.md does.  A file that the user `nobody` may not read is reported, and not treated as
    damage."""
    data = tmp_path / "data"
    shutil.copytree(FIXTURES / "crash" / "flip-middle", data)
    (inside / "data").mkdir()
    words = [*settings["Entrypoint"], "verify", "--deep", "/data"]
    mounts = 'mount --rbind "$0" "$0" && mount -o remount,bind,ro "$0" && mount --bind "$1" "$0/data" &&'
    mounts += ' mount -o remount,bind,ro "$0/data" && shift && exec chroot --userspec="$USER" "$0" "$@"'
    command = ["unshare", "--mount", "sh", "-c", mounts, str(inside), str(data), *words]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "USER": settings["User"]}
    wanted = run_klog("verify", "--deep", data)
    found = run(command, environment)
    assert (found.exit_code, found.stderr) == (wanted.exit_code, wanted.stderr)
    assert found.stdout == wanted.stdout.replace(bytes(data), b"/data")
    refused = run([*command[:-3], "recover", "/data", "--apply", "--quiet"], environment)
    assert (refused.exit_code, b"Traceback" in refused.stderr) == (8, False)
    (next(data.glob("*-0/*.log"))).chmod(0o600)
    assert run(command, environment).exit_code & 8
