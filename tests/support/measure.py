"""Runs a command and reports its cost: `python measure.py REPORT SECONDS [--no-privileges] -- COMMAND…`.

REPORT becomes JSON: exit (-24, SIGXCPU, after SECONDS of CPU), rss (largest, bytes), seconds (of CPU).  The run may
take much longer by the clock, because other work may share the machine; a process that only waits is killed all the
same (-9).  It is a process of its own, because a child's largest size counts from its parent's largest so far, and a
test run's is large.  `measured` is this for tests.

--no-privileges: without root's right to open everything; permissions then apply to root, too.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 10
"""The limit of seconds by the clock for each second of CPU."""

_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


@dataclass(frozen=True)
class Measured:
    """The result and the cost of a run: bytes of memory at its largest, seconds of CPU.  *stdout*: the first MiB of
    it."""

    stdout: bytes
    stderr: str
    exit_code: int
    rss: int
    seconds: float


def measured(
    command: Sequence[str | bytes], folder: Path, *, seconds: float = 300, privileges: bool = True
) -> Measured:
    """Run *command* in *folder*, which receives its output, *seconds* of CPU at most; it can import the same as this
    run."""
    report = folder / "report.json"
    limits = [str(report), str(seconds), *([] if privileges else ["--no-privileges"])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path if path)}
    with open(folder / "stdout", "w+b") as out, open(folder / "stderr", "w+b") as err:
        subprocess.run(
            [sys.executable, "-S", __file__, *limits, "--", *command],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder, env=environment, check=True,
        )  # fmt: skip
        out.seek(0)
        err.seek(0)
        facts = json.loads(report.read_text())
        said = out.read(1 << 20), err.read().decode(errors="replace")
    return Measured(*said, facts["exit"], facts["rss"], facts["seconds"])


def _drop_privileges() -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    report, seconds = sys.argv[1], float(sys.argv[2])
    split = sys.argv.index("--")
    if "--no-privileges" in sys.argv[:split] and os.geteuid() == 0:
        _drop_privileges()
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.RLIM_INFINITY))
    child = subprocess.Popen(sys.argv[split + 1 :])
    # The signals for the command are passed on to it.
    signal.signal(signal.SIGINT, lambda *_: child.send_signal(signal.SIGINT))
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(PATIENCE * seconds)
    child.kill()
    code = child.wait()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(report, "w") as out:
        json.dump({"exit": code, "rss": usage.ru_maxrss * 1024, "seconds": usage.ru_utime + usage.ru_stime}, out)


if __name__ == "__main__":
    main()
