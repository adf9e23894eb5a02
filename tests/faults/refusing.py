"""Runs klog, many times in one process, on files that this user may not read; a program: see `Refusing`.

Root may read everything: the program gives up that right, and is started anew.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
_PR_CAPBSET_DROP = 24
AGAIN = "again"
_ROOT = Path(__file__).resolve().parents[2]


class Answer(NamedTuple):
    """The answer of a command.  *was_asked*: whether it asked the system for what cannot be read."""

    exit_code: int
    stdout: str
    stderr: str
    was_asked: bool


def answers(
    folder: Path, commands: Iterable[str], refused: Mapping[str, str], mode: int = 0
) -> dict[tuple[str, str], Answer]:
    """Run each of *commands* in *folder* twice with everything, and once without each of *refused*.

    *refused*: names, to paths below *folder*, which get that *mode*.  The names of the other runs: "" and AGAIN.
    """
    wanted = json.dumps({"commands": list(commands), "refused": dict(refused), "mode": mode})
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.refusing", folder],
        input=wanted,
        text=True,
        capture_output=True,
        cwd=_ROOT,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTHONUTF8": "1"},
        preexec_fn=_without_rights,
        check=False,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    return {(name, command): Answer(*facts) for name, command, facts in rows}


def _without_rights() -> None:
    """Give up root's right to read everything: for the next process."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH) if os.geteuid() == 0 else ():
        if ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError("the capability stays")


class _Watch:
    """Sees whether a path is opened or listed."""

    def __init__(self) -> None:
        self.path, self.was_asked = "", False
        sys.addaudithook(self._see)

    def _see(self, event: str, about: tuple[object, ...]) -> None:
        is_asking = self.path and event in ("open", "os.listdir", "os.scandir") and isinstance(about[0], str)
        if is_asking and os.path.abspath(str(about[0])) == self.path:
            self.was_asked = True


def main() -> None:
    """Answer what stdin asks for."""
    from tests.support.every_command import run

    wanted = json.load(sys.stdin)
    folder, watch, found = Path(sys.argv[1]), _Watch(), []
    os.chdir(folder)
    for name, path in {"": "", AGAIN: "", **wanted["refused"]}.items():
        mode = os.stat(path).st_mode & 0o777 if path else 0
        if path:
            os.chmod(path, wanted["mode"])
        for command in wanted["commands"]:
            watch.path, watch.was_asked = os.path.abspath(path) if path else "", False
            ran = run(command)
            said = (ran.exit_code, ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace"))
            found.append((name, command, (*said, watch.was_asked)))
        watch.path = ""
        if path:
            os.chmod(path, mode)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
