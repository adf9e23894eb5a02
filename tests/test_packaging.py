"""The packages that users install: the sdist compiles from its own files alone, and the wheel holds all that klog
needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import klog
import pytest

from tests.conftest import extract

ROOT = Path(__file__).parent.parent
# Left over from building here; in the copy they could stand in for something that the sdist lacks.
BUILT = shutil.ignore_patterns(".*", "*.so", "_*.c", "*.egg-info", "__pycache__", "build", "dist", "data", "results")
SHARED = ("man/man1/klog.1", "bash-completion/completions/klog.bash", "zsh/site-functions/_klog")


def build(what: str, source: Path, target: Path) -> Path:
    """Return the one file that `python -m build` makes of *source*."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{what}", "--outdir", target, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (made,) = target.iterdir()
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this tree, unpacked.

    Its kernel is compiled without optimization and debug symbols, in a third of the time: here it is the files that
    count.
    """
    folder = tmp_path_factory.mktemp("sdist")
    for name in ("core", "cli", "docs", "completions"):
        shutil.copytree(ROOT / name, folder / "tree" / name, ignore=BUILT)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, folder / "tree")
    settings = folder / "tree" / "setup.py"
    written = settings.read_text(encoding="utf-8")
    assert written.count('"-O3"') == 1
    settings.write_text(written.replace('"-O3"', '"-O0", "-g0"'), encoding="utf-8")
    extract(build("sdist", folder / "tree", folder / "made"), folder / "unpacked")
    return folder / "unpacked" / f"klog-{klog.__version__}"


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that this sdist makes, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build("wheel", sdist, folder / "made")) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def files(root: Path, *folders: str) -> list[str]:
    """Return the paths, relative to *root*, of all that somebody wrote in *folders* of it."""
    found = [path.relative_to(root) for folder in folders for path in (root / folder).rglob("*") if path.is_file()]
    return sorted(
        str(path) for path in found if path.suffix not in (".so", ".pyc", ".c") and "egg-info" not in str(path)
    )


def test_the_sdist_holds_every_source_file(sdist: Path) -> None:
    """A new kind of file in the package is forgotten in the sdist first, and noticed by users only."""
    assert files(sdist, "core", "cli", "completions", "docs") == files(ROOT, "core", "cli", "completions", "docs")


def test_each_folder_of_modules_is_a_package() -> None:
    """Without its `__init__.py` a folder works in a checkout, and is in no wheel and not in the one file."""
    folders = {path.parent for root in ("core", "cli") for path in (ROOT / root).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_wheel_made_from_the_sdist_runs(wheel: Path, tmp_path: Path) -> None:
    """The kernel was compiled from the sdist's own files, and what runs is that one, not this checkout's."""
    program = "import klog.kernel._window as k, klog_cli.app as app; print(k.__file__, flush=True); app.main()"
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    command = [sys.executable, "-c", program, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    kernel, version = done.stdout.splitlines()[:2]
    assert Path(kernel).parent == wheel / "klog" / "kernel"
    assert klog.__version__ in version


def test_the_wheel_brings_licence_types_manual_page_and_completions(wheel: Path) -> None:
    """Distributions and type checkers look for these in fixed places."""
    data = wheel / f"klog-{klog.__version__}.data" / "data" / "share"
    assert [name for name in SHARED if not (data / name).is_file()] == []
    assert (wheel / "klog" / "py.typed").is_file()
    assert (wheel / f"klog-{klog.__version__}.dist-info" / "licenses" / "LICENSE").is_file()


def test_what_is_frozen_does_not_tell_where_it_lay(tmp_path: Path) -> None:
    """The one file is the same from every clone: no name of a folder is in its code, and none decides an order."""
    made = []
    for clone in (tmp_path / "clone", tmp_path / "another" / "folder"):
        shutil.copytree(ROOT / "core" / "klog", clone / "klog", ignore=BUILT)
        command = [sys.executable, ROOT / "release" / "freeze.py", clone / "modules", clone]
        subprocess.run(command, check=True, cwd=clone, env={**os.environ, "PYTHONHASHSEED": str(len(made))})
        made.append([(clone / f"modules.{kind}").read_bytes() for kind in ("bin", "c")])
        assert made[-1][1].count(b'"klog') > 100
        assert not [content for content in made[-1] if os.fsencode(tmp_path) in content or b"/core/" in content]
    assert made[0] == made[1]


def test_the_lock_names_exact_versions_and_no_index() -> None:
    """A lock with a range is none, and an address in it would bind everybody to one machine's mirror."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [line.split("#")[0].strip() for line in lines if not line.startswith("#")]
    assert [pin for pin in pins if pin.count("==") < 1 or pin.startswith("-")] == []
    assert [line for line in lines if "://" in line] == []
