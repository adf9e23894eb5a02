"""Class-data archives (CDS): a JVM maps Kafka's or Spark's classes instead of reading and verifying those of the jars.

That saves a good third of the CPU time of a broker's start.  There is one archive for a version of Kafka and a JDK,
beside the jars.  A broker that starts and stops writes it; other programs with the same jars use it as well.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.brokers import jars

if TYPE_CHECKING:
    from tests.brokers import kafka

PATIENCE_S = 120
STOPPED = 128 + signal.SIGTERM
STARTED = re.compile(r"(Kafka Server|\[KafkaServer id=1\]) started$", re.MULTILINE)
"""The last line of a start, with KRaft and before."""
_tried: set[Path] = set()


def options(version: str) -> list[str]:
    """Return the JVM options for the jars of *version*."""
    return mapped(jars.install(version).parent / f"classes-{jdk()}.jsa", functools.partial(_run_broker, version))


def mapped(archive: Path, run: Callable[[Path, tuple[str, ...]], bool]) -> list[str]:
    """Return the JVM options that map *archive*.

    The archive is written the first time: *run* starts and ends a JVM, in a folder and with options, and returns
    whether it ended well.  JVMs start without one while another process writes it, and where it cannot be written.
    """
    if archive not in _tried:
        _tried.add(archive)  # first: the next lines start JVMs as well
        if not archive.exists() and not _write(archive, run):
            _tried.remove(archive)
    # The JVM would print warnings about an archive that no longer fits, and to stdout.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []


@functools.cache
def jdk() -> str:
    """Return what identifies the JDK: an archive fits no other."""
    home = Path(shutil.which("java") or "/").resolve().parents[1]
    release = home / "release"
    return hashlib.sha256(bytes(home) + (release.read_bytes() if release.exists() else b"")).hexdigest()[:16]


def _await_start(broker: kafka.Cluster) -> None:
    """Wait for the end of a start: the broker listens before."""
    end = time.monotonic() + PATIENCE_S
    while not re.search(STARTED, broker.log()):
        if time.monotonic() > end:
            raise TimeoutError("the broker did not start")
        time.sleep(0.1)


def _run_broker(version: str, folder: Path, options: tuple[str, ...]) -> bool:
    from tests.brokers import kafka

    broker = kafka.Cluster(version, folder, port=kafka.PORT + 90, jvm_options=options)
    try:
        with broker:
            _await_start(broker)
            return broker.stop(PATIENCE_S) == STOPPED
    except (RuntimeError, TimeoutError, subprocess.CalledProcessError):
        return False  # the tests themselves report its faults


def _write(archive: Path, run: Callable[[Path, tuple[str, ...]], bool]) -> bool:
    """Write the archive; return False if another process is writing it."""
    with open(f"{archive}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if archive.exists():
            return True
        with tempfile.TemporaryDirectory() as folder:
            fresh = archive.with_suffix(f".{os.getpid()}")
            if run(Path(folder), (f"-XX:ArchiveClassesAtExit={fresh}",)) and fresh.exists():
                fresh.rename(archive)
        fresh.unlink(missing_ok=True)
    return True
