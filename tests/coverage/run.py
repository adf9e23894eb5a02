"""Runs tests with branches counted, in klog's Python and in its kernel: `make coverage`.

    python -m tests.coverage -n 2 tests/change/plan tests/kernel
    python -m tests.coverage --more -n 2 tests/commands/recover

Arguments are pytest's, but for --more: what earlier runs have counted counts as well, while the kernel is the same.
The tests meet a second core/: links to the sources, and a kernel that counts (see `kernel`).  Processes that tests
start, and those that klog forks, are counted too; those that are killed are not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.coverage import kernel
from tests.coverage.kernel import CORE, ROOT

FOLDER = ROOT / "build/coverage"
LEFT_OUT = ("kafka", "spark", "browser", "strace", "release", "long")
"""Brokers and Spark wait more than they test; what strace slows down counts for nothing more."""
_ENDING = '''"""Child processes that leave without a goodbye have counted, too."""

import ctypes
import os
import sys

_exit = os._exit


def _leave(status):
    for name, module in list(sys.modules.items()):
        if name.startswith("klog.kernel._") and not name.endswith("._memoryviews"):
            ctypes.CDLL(module.__file__).klog_counts_written()
    _exit(status)


os._exit = _leave
'''


def second_core(folder: Path, kernel: Path) -> Path:
    """Make a core/ of links whose kernel is that in *kernel*; return it."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted(CORE.rglob("*")):
        inside = folder / path.relative_to(CORE)
        if path.is_dir() and path.name != "__pycache__":
            inside.mkdir(parents=True)
        elif path.suffix not in (".pyc", ".so", ".c"):
            inside.symlink_to(path)
    for part in kernel.glob("*.so"):
        (folder / "klog/kernel" / part.name).symlink_to(part)
    return folder


def forget() -> None:
    """Remove what earlier runs have counted."""
    shutil.rmtree(FOLDER / "data", ignore_errors=True)
    for old in (FOLDER / "kernel/klog/kernel").glob("*.gcda"):
        old.unlink()


def run(arguments: Sequence[str]) -> int:
    """Run pytest with everything counted; return its exit code."""
    (FOLDER / "data").mkdir(parents=True, exist_ok=True)
    (FOLDER / "site").mkdir(exist_ok=True)
    (FOLDER / "site/sitecustomize.py").write_text(_ENDING)
    settings = FOLDER / "settings"
    settings.write_text(
        f"[run]\nbranch = true\nparallel = true\ncore = ctrace\ndata_file = {FOLDER}/data/.coverage\n"
        "disable_warnings = no-data-collected\n"
        f"source = {CORE}/klog, {ROOT}/cli/klog_cli\npatch = subprocess, fork, _exit\n"
        "[report]\nomit = *.pyx\nexclude_also =\n    if TYPE_CHECKING:\n    \\.\\.\\.$\n    @(typing\\.)?overload\n"
    )
    path = [FOLDER / "core", ROOT / "cli", FOLDER / "site"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    environment.pop("KLOG_COUNTS", None)
    markers = " and ".join(f"not {marker}" for marker in LEFT_OUT)
    options = ["-q", "-p", "no:cacheprovider", "-m", markers]
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", *options, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def counted() -> Counter[str]:
    """Return how many branches there are, and how many were taken, by where they are."""
    coverage = [sys.executable, "-m", "coverage"]
    settings = f"--rcfile={FOLDER}/settings"
    subprocess.run([*coverage, "combine", "--append", "--quiet", settings], cwd=ROOT, check=True)
    report = FOLDER / "report.json"
    subprocess.run([*coverage, "json", "--quiet", settings, "-o", str(report)], cwd=ROOT, check=True)
    sums: Counter[str] = Counter()
    for name, file in json.loads(report.read_text())["files"].items():
        place = "/".join(Path(name).parts[:2])
        sums[f"branches: {place}"] += file["summary"]["num_branches"]
        sums[f"branches taken: {place}"] += file["summary"]["covered_branches"]
    for name, (there, taken) in kernel.branches(FOLDER / "kernel").items():
        place = "core/klog/kernel, C" if name.endswith(".h") else "core/klog/kernel, Cython"
        sums[f"branches: {place}"] += there
        sums[f"branches taken: {place}"] += taken
    return sums


def main() -> None:
    """Build, run, and leave the counts where `make tested` looks for them."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--more"]
    module = kernel.build(FOLDER / "kernel")
    if arguments == sys.argv[1:]:
        forget()
    second_core(FOLDER / "core", module)
    status = run(arguments)
    sums = counted()
    for name, there in sums.items():
        if name.startswith("branches: ") and there:
            place = name.partition(": ")[2]
            print(f"{place}: {sums[f'branches taken: {place}']} of {there} branches")
    if folder := os.environ.get("KLOG_COUNTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "branches.json").write_text(json.dumps(sums))
    if status > 1:
        raise SystemExit(status)
