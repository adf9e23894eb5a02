"""Java: its path, and the JVM of Spark's driver."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import time
from collections.abc import Mapping

from klog.base.errors import SparkError, UnsupportedError
from klog.data_dir.disk.disk_changes import Scratch

OLDEST = 17
_STEP_SECONDS = 0.02
_SHOWN_BYTES = 64 << 10
_THROWN = re.compile(r"(?:^|\s)(?:[a-z]\w*\.)+\w+(?:Exception|Error): (.+)")
_PORT = struct.Struct(">ii")


def find_java() -> str:
    """Return the path of a `java` that Spark can use: from KLOG_JAVA_HOME, JAVA_HOME or PATH, the first that exists.

    Raises UnsupportedError, with the package to install, if there is none, or it is too old.
    """
    install = f"install a JRE of {OLDEST} or newer (Debian: openjdk-17-jre-headless) or name one in KLOG_JAVA_HOME"
    for name in ("KLOG_JAVA_HOME", "JAVA_HOME"):
        home = os.environ.get(name)
        java = os.path.join(home, "bin", "java") if home else None
        if java is not None and not os.access(java, os.X_OK):
            raise UnsupportedError(f"{name}={home}: there is no bin/java in it; {install}")
        if java is not None:
            break
    else:
        folders = os.environ.get("PATH", "").split(os.pathsep)
        javas = (os.path.join(folder, "java") for folder in folders if folder)
        java = next((path for path in javas if os.path.isfile(path) and os.access(path, os.X_OK)), None)
    if java is None:
        raise UnsupportedError(f"Spark needs Java, and there is none in PATH; {install}")
    version = java_version(java)
    if version is not None and version < OLDEST:
        raise UnsupportedError(f"{java}: Java {version} is too old for Spark; {install}")
    return java


def java_home(java: str) -> str:
    """Return the directory that JAVA_HOME would name for the executable *java*."""
    return os.path.dirname(os.path.dirname(os.path.realpath(java)))


def java_version(java: str) -> int | None:
    """Return the feature version of *java*, such as 17, from the `release` file beside it; None if it is not there.

    Starting the JVM to get it would take half a second.
    """
    try:
        with open(os.path.join(java_home(java), "release"), encoding="utf-8", errors="replace") as file:
            found = next((line for line in file if line.startswith("JAVA_VERSION=")), "")
    except OSError:
        return None
    numbers = found.partition("=")[2].strip().strip('"').split(".")
    if numbers[0] == "1" and len(numbers) > 1:  # 1.8.0_292
        numbers = numbers[1:]
    return int(numbers[0]) if numbers[0].isdecimal() else None


class Gateway:
    """The JVM of a driver, started by Spark's own scripts, so that the environment's configuration applies.

    It has a process session of its own: a ^C in the terminal reaches klog alone.  Its output is written to a file.  It
    ends when its stdin is closed, and therefore with this process.
    """

    def __init__(self, home: str, conf: Mapping[str, str], scratch: Scratch, environment: Mapping[str, str]) -> None:
        """Start it with the Spark in *home*.  Raises SparkError with its last output if it does not start."""
        self._log = os.path.join(scratch.path, "driver.log")
        connection = os.path.join(scratch.path, "connection")
        command = [os.path.join(home, "bin", "spark-submit")]
        command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        variables = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": connection}
        with scratch.create("driver.log") as log:
            self.process = subprocess.Popen(
                [*command, "pyspark-shell"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**environment, **variables},
                start_new_session=True,
            )
        try:
            while not os.path.exists(connection):
                if self.process.poll() is not None:
                    raise SparkError(f"Spark's JVM ended with code {self.process.returncode}: {self.last_words()}")
                time.sleep(_STEP_SECONDS)
        except BaseException:
            self.stop()
            raise
        with open(connection, "rb") as file:
            content = file.read()
        self.port, size = _PORT.unpack_from(content)
        self.secret = content[_PORT.size : _PORT.size + size].decode()

    def last_words(self) -> str:
        """Return the line of the JVM's output that most likely gives the reason of a failure."""
        with open(self._log, "rb") as file:
            file.seek(max(0, os.path.getsize(self._log) - _SHOWN_BYTES))
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines()]
        thrown = [found[1] for line in lines if (found := _THROWN.search(line))]
        wrong = [line for line in lines if line.startswith(("Error", "error"))]
        return next(iter(thrown or wrong or [line for line in lines[-1:] if line]), "it printed nothing")

    def stop(self) -> None:
        """End it, and with it the Python workers that it started."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()
