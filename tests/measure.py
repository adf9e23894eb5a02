"""Runs a command and says what it cost: `python measure.py REPORT SECONDS [--no-privileges] -- COMMAND…`.

REPORT becomes JSON: exit (-9 after SECONDS), rss (largest, bytes), seconds.  A process of its own, because a child's
largest size counts from its parent's at the fork, and a test run's is large.

--no-privileges: without root's right to open everything, so that permissions mean something to root, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time

_PR_CAPBSET_DROP = 24
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


def _drop_privileges() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    report, seconds = sys.argv[1], float(sys.argv[2])
    split = sys.argv.index("--")
    if "--no-privileges" in sys.argv[:split] and os.geteuid() == 0:
        _drop_privileges()
    began = time.monotonic()
    child = subprocess.Popen(sys.argv[split + 1 :])
    # What is meant for the command is handed on to it.
    signal.signal(signal.SIGINT, lambda *_: child.send_signal(signal.SIGINT))
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(seconds)
    child.kill()
    code = child.wait()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(report, "w") as out:
        json.dump({"exit": code, "rss": usage.ru_maxrss * 1024, "seconds": time.monotonic() - began}, out)


if __name__ == "__main__":
    main()
