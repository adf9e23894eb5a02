"""The .deb and the .rpm that `make release` builds: installed into an empty root, run, removed, and nothing is left."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT, run_klog
from tests.support.insight import unpack

pytestmark = pytest.mark.release
DEBS = {"x86_64": "amd64", "aarch64": "arm64"}
INSTALLED = {
    "usr/bin/klog",
    "usr/share/man/man1/klog.1.gz",
    "usr/share/bash-completion/completions/klog",
    "usr/share/fish/vendor_completions.d/klog.fish",
}
ZSH = {"deb": "usr/share/zsh/vendor-completions/_klog", "rpm": "usr/share/zsh/site-functions/_klog"}


def package(kind: str, arch: str) -> Path:
    pattern = f"klog_*_{DEBS[arch]}.deb" if kind == "deb" else f"klog-*-1.{arch}.rpm"
    (found,) = (ROOT / "dist").glob(pattern)
    return found


def run(*words: str | Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def manager(kind: str, root: Path, *, install: Path | None) -> None:
    """Install the package into *root*, or remove klog from it."""
    if kind == "rpm":
        what = ["--install", install] if install else ["--erase", "klog"]
        run("rpm", "--root", root, "--force-debian", "--dbpath", "/var/lib/rpm", *what)
    else:
        (root / "var/lib/dpkg/updates").mkdir(parents=True, exist_ok=True)
        (root / "var/lib/dpkg/status").touch()
        run("dpkg", f"--root={root}", *(["--install", install] if install else ["--purge", "klog"]))


def outside_the_database(root: Path) -> set[str]:
    """Return the files in *root*, without the package manager's own."""
    owners = {"var", "var/lib", "var/lib/dpkg", "var/lib/rpm", "var/cache"}
    inside = {path.relative_to(root).as_posix() for path in root.rglob("*")}
    return {name for name in inside - owners if not name.startswith(("var/lib/dpkg/", "var/lib/rpm/"))}


@pytest.mark.parametrize("kind", ["deb", "rpm"])
def test_it_installs_runs_and_leaves_nothing(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    manager(kind, root, install=package(kind, "x86_64"))
    assert outside_the_database(root) >= INSTALLED | {ZSH[kind]}
    log_dir = unpack(root)
    inside = subprocess.run(["chroot", root, "/usr/bin/klog", "verify", "/data"], capture_output=True, check=False)
    wanted = run_klog("verify", log_dir)
    assert (inside.returncode, bool(inside.stdout)) == (wanted.exit_code, True)
    assert inside.stdout == wanted.stdout.replace(bytes(root), b"")
    run("rm", "-r", log_dir)
    manager(kind, root, install=None)
    left = outside_the_database(root)
    if kind == "rpm":  # it keeps directories that no package owns: here those that belong to a host's own packages
        left = {name for name in left if "klog" in name or not (root / name).is_dir()}
    assert left == set()


@pytest.mark.parametrize("arch", DEBS)
def test_it_depends_on_nothing(arch: str) -> None:
    told = run("dpkg-deb", "--field", package("deb", arch))
    fields = dict(line.split(": ", 1) for line in told.splitlines() if not line.startswith(" "))
    assert fields["Architecture"] == DEBS[arch]
    assert not fields.keys() & {"Depends", "Pre-Depends", "Recommends", "Suggests"}
    needs = run("rpm", "--query", "--requires", "--package", package("rpm", arch)).split("\n")
    assert not [need for need in needs if need and not need.startswith("rpmlib(")]
    assert run("rpm", "--query", "--queryformat", "%{ARCH}", "--package", package("rpm", arch)) == arch


@pytest.mark.parametrize("arch", DEBS)
def test_lintian_finds_no_fault(arch: str) -> None:
    assert run("lintian", "--allow-root", "--fail-on", "error,warning", package("deb", arch)) == ""


@pytest.mark.parametrize("arch", DEBS)
@pytest.mark.parametrize("kind", ["deb", "rpm"])
def test_it_holds_the_one_file(kind: str, arch: str, tmp_path: Path) -> None:
    """Byte for byte: rpm's scripts strip files, if they may."""
    (one_file,) = (ROOT / "dist").glob(f"klog-*-linux-{arch}")
    digest = hashlib.sha256(one_file.read_bytes()).hexdigest()
    if kind == "deb":
        run("dpkg-deb", "--extract", package(kind, arch), tmp_path)
        assert hashlib.sha256((tmp_path / "usr/bin/klog").read_bytes()).hexdigest() == digest
    else:
        digests = "[%{FILENAMES} %{FILEDIGESTS}\n]"
        told = run("rpm", "--query", "--queryformat", digests, "--package", package(kind, arch))
        assert f"/usr/bin/klog {digest}" in told.splitlines()
