"""The kernel compiled once more, in another way than klog's own: with sanitizers, or so that its branches count."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KERNEL = Path(__file__).resolve().parents[2] / "core" / "klog" / "kernel"
MEMORYVIEWS = "_memoryviews"


def compiled(
    folder: Path,
    flags: Sequence[str],
    source: Path = KERNEL,
    *,
    cython: Sequence[str] = (),
    edited: Callable[[str], str] | None = None,
) -> None:
    """Compile each part of the kernel in *source*, with *flags*, into *folder*/klog/kernel, beside its source and C.

    *cython*: more options of Cython's.  *edited* changes the C of a part before it is compiled.
    """
    tree = folder / "klog" / "kernel"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(source, tree, ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__"))
    (folder / "klog" / "__init__.py").touch()
    names = [MEMORYVIEWS, *sorted(path.stem for path in tree.glob("_*.pyx"))]
    compiler = [*shlex.split(os.environ.get("CC", "gcc")), "-fPIC", "-w", *flags]
    include = [f"-I{sysconfig.get_paths()['include']}", "-Iklog/kernel"]

    def make(name: str) -> None:
        made = f"klog/kernel/{name}"
        if name == MEMORYVIEWS:
            words = [f"--generate-shared={made}.c", "--module-name", f"klog.kernel.{name}"]
        else:
            words = [f"--shared=klog.kernel.{MEMORYVIEWS}", *cython, f"{made}.pyx"]
        run([sys.executable, "-m", "cython", "-3", *words])
        if edited and name != MEMORYVIEWS:
            (folder / f"{made}.c").write_text(edited((folder / f"{made}.c").read_text()))
        run([*compiler, *include, "-c", f"{made}.c", "-o", f"{made}.o"])
        run([*compiler, "-shared", f"{made}.o", "-o", f"{made}.abi3.so"])

    def run(command: list[str]) -> None:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(make, names))
