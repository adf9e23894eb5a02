"""A root that holds nothing but the one file: no Python, no C library, no shell, no /proc, /tmp or /dev."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.conftest import FIXTURES, ROOT, Ran
from tests.support.insight import unpack

PATIENCE_S = 600
NOBODY = 65534
WAY = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
"""The path of chroot.  Nothing else is in the environment of what runs."""
READERS = {"aarch64": "/usr/bin/qemu-aarch64-static"}
"""The emulator for files of another processor."""


def one_file(arch: str = "x86_64") -> Path:
    """Return the file that `make release` has left in dist/."""
    (found,) = (path for path in (ROOT / "dist").glob(f"klog-*-linux-{arch}") if path.is_file())
    return found


class Root:
    """The file of *arch* in a root of its own, which is *folder*."""

    def __init__(self, folder: Path, arch: str = "x86_64") -> None:
        folder.chmod(0o755)
        self.folder = folder
        self.start: tuple[str, ...] = ("/klog",)
        shutil.copy(one_file(arch), folder / "klog")
        if arch in READERS:
            shutil.copy(READERS[arch], folder / "reader")
            self.start = ("/reader", "/klog")

    def command(self, *words: str | os.PathLike[str], user: int = 0) -> list[str]:
        """Return what runs klog there, in `/`.  Who is no root becomes it in a namespace of its own."""
        alone = ["unshare", "--map-root-user"] if os.geteuid() else []
        chroot = ["chroot", *([f"--userspec={user}:{user}"] if user else []), str(self.folder)]
        return [*alone, *chroot, *self.start, *map(os.fspath, words)]

    def run(self, *words: str | os.PathLike[str], user: int = 0, environment: Mapping[str, str] = WAY) -> Ran:
        """Run klog there."""
        return run(self.command(*words, user=user), environment)

    def inside(self, path: Path) -> str:
        """Return how a path of this machine below the root is named in it."""
        return f"/{path.relative_to(self.folder)}"


def run(command: Sequence[str], environment: Mapping[str, str] = WAY, cwd: Path | None = None) -> Ran:
    """Run a command without input."""
    done = subprocess.run(
        command,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        env=dict(environment),
        cwd=cwd,
        check=False,
    )
    return Ran(done.stdout, done.stderr, done.returncode)


def lay_fixtures(folder: Path) -> None:
    """Copy all test files of brokers to *folder*."""
    shutil.copytree(FIXTURES, folder)
    (folder / "insight").mkdir()
    unpack(folder / "insight")


def log_dirs(folder: Path) -> Iterator[Path]:
    """Yield the log dirs below *folder*, as they are named from it."""
    for place, names, _ in os.walk(folder):
        if any(name.rpartition("-")[2].isdigit() and list(Path(place, name).glob("*.log")) for name in names):
            yield Path(place).relative_to(folder)
