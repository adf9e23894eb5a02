"""A root for each platform of a wheel: Debian's C library or its musl, a Python for it, and klog as pip installs it.

Only klog runs there, with PYTHONPATH as its only variable; qemu runs files of another processor.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT, Ran
from tests.release.root import READERS, run

DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
PYTHON_OF_DEBIAN = "/usr/bin/python3"
APT = """
APT::Architecture "{arch}";
APT::Architectures "{arch}";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
"""


def wheel(platform: str) -> Path:
    """Return the wheel of a platform that `make release` has left in dist/."""
    (found,) = (ROOT / "dist").glob(f"klog-*-cp311-abi3-{platform}.whl")
    return found


class Platform:
    """The root *folder* for *platform*, as wheels name it: `musllinux_1_2_aarch64`."""

    def __init__(self, folder: Path, platform: str) -> None:
        self.folder = folder
        self.arch = next(arch for arch in DEBIAN if platform.endswith(f"_{arch}"))
        self.start: list[str] = []
        for name in ("lib", "usr/lib", "site"):
            (folder / name).mkdir(parents=True)
        if self.arch in READERS:
            shutil.copy(READERS[self.arch], folder / "reader")
            self.start = ["/reader"]
        if platform.startswith("musllinux"):
            self._bring_musl(platform)
        else:
            self._bring_glibc(platform)

    def run(self, *words: str | Path) -> Ran:
        """Run klog there, in `/`."""
        command = ["chroot", str(self.folder), *self.start, *self.python, "/site/bin/klog", *map(os.fspath, words)]
        alone = ["unshare", "--map-root-user"] if os.geteuid() else []
        return run([*alone, *command], {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": "/site"})

    def _bring_musl(self, platform: str) -> None:
        """The Python that is linked from the parts of the one file, with its codecs: PyPI has no lz4 for musl."""
        self.python = ["/klog/python"]
        unpack_debian(self.folder, DEBIAN[self.arch], "musl")
        script = ROOT / "tests" / "release" / "musl_python.sh"
        made = subprocess.run(
            [script, self.folder / "klog"],
            env={**os.environ, "KLOG_ARCH": self.arch},
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        shutil.copytree(ROOT / "build" / f"release-{self.arch}" / "site", self.folder / "site", dirs_exist_ok=True)
        self._install(platform, "3.13", "--no-deps", "--no-index")

    def _bring_glibc(self, platform: str) -> None:
        """Debian's Python, and klog's dependencies from PyPI."""
        self.python = [PYTHON_OF_DEBIAN]
        unpack_debian(self.folder, DEBIAN[self.arch], "python3")
        version = (self.folder / PYTHON_OF_DEBIAN.lstrip("/")).readlink().name.removeprefix("python")
        newer = (f"manylinux_2_{minor}_{self.arch}" for minor in (28, 26, 24))
        more = [word for name in newer for word in ("--platform", name)]
        self._install(platform, version, *more, "--constraint", str(ROOT / "requirements.lock"))

    def _install(self, platform: str, version: str, *options: str) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:"]
        place = ["--target", str(self.folder / "site"), "--platform", platform, "--python-version", version]
        done = subprocess.run(
            [*pip, *place, *options, str(wheel(platform))], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def unpack_debian(root: Path, arch: str, package: str) -> None:
    """Unpack a package of Debian's and its dependencies; this machine's own apt only lends its sources."""
    folder = root.parent / f"{root.name}-apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "apt.conf").write_text(APT.format(arch=arch, folder=folder))
    environment = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
    for words in (["update"], ["install", "--yes", "--download-only", package]):
        done = subprocess.run(["apt-get", "-qq", *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for archive in sorted((folder / "cache" / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", archive, root], check=True)
    shutil.rmtree(folder)
