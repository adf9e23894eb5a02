"""Builds the kernel with sanitizers and runs drivers on it."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.kernel_parts import KERNEL, compiled

ROOT = Path(__file__).resolve().parents[2]
SANITIZERS = "-fsanitize=address,undefined"


def build(folder: Path, source: Path = KERNEL) -> Path:
    """Compile the kernel in *source* with sanitizers into *folder*; return the folder of its parts.

    Without optimization: with the sanitizers' checks, that takes gcc ten times as long, for calls that spend most of
    their time in Python.  A report needs only the line numbers of -g's output.
    """
    compiled(folder, ["-g1", "-O0", "-fno-omit-frame-pointer", SANITIZERS], source)
    return folder / "klog" / "kernel"


def _library(name: str) -> str:
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    found = subprocess.run([*compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True)
    return os.path.realpath(found.stdout.strip())


def environment() -> dict[str, str]:
    """Return the variables for a process that loads the kernel: the sanitizer first, Python's objects in memory it
    watches."""
    return os.environ | {
        "LD_PRELOAD": _library("libasan.so"),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "core", ROOT / "cli"))),
    }


def _driver(kernel: Path, options: argparse.Namespace, number: int) -> subprocess.Popen[bytes]:
    share = -(-options.inputs // options.jobs) if options.inputs else 0
    limits = ["--seconds", str(options.seconds), "--inputs", str(share)]
    command = [sys.executable, "-m", "tests.fuzz.driver", str(kernel), "--seed", str(options.seed + number), *limits]
    return subprocess.Popen(command, env=environment(), cwd=ROOT, stdout=subprocess.PIPE)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the kernel under sanitizers.")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time (default: 60, unless --inputs)")
    parser.add_argument("--inputs", type=int, default=0, help="stop after this many mutated batches and messages")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeat a run (default: the clock)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    parser.add_argument("--keep", type=Path, help="folder for the built kernel, used again when it is there")
    parser.add_argument("--source", type=Path, default=KERNEL, help="another kernel's sources, with a planted mistake")
    options = parser.parse_args(arguments)
    if not options.inputs and not options.seconds:
        options.seconds = 60.0
    return options


def _kernel(options: argparse.Namespace, folder: Path) -> Path:
    if not options.keep:
        return build(folder, options.source)
    built: Path = options.keep / "klog" / "kernel"
    return built if built.is_dir() else build(options.keep, options.source)


def main(arguments: list[str] | None = None) -> int:
    """Run; return 0, or 1 if anything was found."""
    options = _options(arguments)
    folder = Path(tempfile.mkdtemp(prefix="klog-fuzz-"))
    try:
        kernel = _kernel(options, folder)
        began = time.monotonic()
        drivers = [_driver(kernel, options, number) for number in range(options.jobs)]
        outputs = [driver.communicate()[0].decode() for driver in drivers]
        seconds = time.monotonic() - began
    finally:
        shutil.rmtree(folder)
    done = sum(int(output.split()[0]) for output in outputs if output.strip())
    print(f"{done} mutated batches and messages in {seconds:.1f} s: {done / seconds:.0f} a second, seed {options.seed}")
    failed = [driver.returncode for driver in drivers if driver.returncode]
    if failed:
        print(
            f"FAILED: {len(failed)} of {len(drivers)} drivers (exit {failed}); what they found stands above",
            file=sys.stderr,
        )
    return 1 if failed or any(not output.strip() for output in outputs) else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
