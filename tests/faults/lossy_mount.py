"""The file system of lossy.c, compiled and mounted."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT

SOURCE = Path(__file__).with_name("lossy.c")
_SECONDS = 30


class Unreadable(NamedTuple):
    """Unreadable bytes of a file, by its path below the mount."""

    path: str
    start: int
    size: int


@functools.cache
def program() -> Path:
    """Return the compiled program; it is made anew when its source is another."""
    made = ROOT / "build" / f"lossy-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    if not made.exists():
        made.parent.mkdir(exist_ok=True)
        ours = made.with_name(f"{made.name}.{os.getpid()}")
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True
        )
        subprocess.run(
            ["cc", "-O1", "-Wall", "-Wextra", "-Werror", SOURCE, "-o", ours, *flags.stdout.split()], check=True
        )
        ours.rename(made)
    return made


@contextmanager
def mounted(
    place: Path, backing: Path, journal: Path, *, cut_at: int | None = None, unreadable: Iterable[Unreadable] = ()
) -> Iterator[None]:
    """Mount *backing* on the empty directory *place*; afterwards *journal* is complete.

    *cut_at*: before this call the power goes.
    """
    words = [f"{bad.path}:{bad.start}:{bad.size}" for bad in unreadable]
    at = str(-1 if cut_at is None else cut_at)
    server = subprocess.Popen([program(), place, backing, journal, at, *words])
    try:
        _wait_for(server, place)
        yield
    finally:
        server.terminate()  # it unmounts by itself
        server.wait(_SECONDS)
    assert not os.path.ismount(place)


def _wait_for(server: subprocess.Popen[bytes], place: Path) -> None:
    end = time.monotonic() + _SECONDS
    outside = place.parent.stat().st_dev
    while place.stat().st_dev == outside:
        assert server.poll() is None, "lossy did not start: is there a /dev/fuse, and may this user mount?"
        assert time.monotonic() < end, "lossy does not answer"
        time.sleep(0.002)
