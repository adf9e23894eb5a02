"""A Spark cluster on this machine: a master and two workers, each a JVM of its own, and a Python that has no klog."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from klog.spark.java import find_java, java_home

from tests.spark import class_data
from tests.spark.class_data import HOME

# The packages in the shipped archive, and paths that would lead a Python to this checkout.
NOT_THERE = ("klog", "__editable__", "distutils-precedence", "lz4", "snappy", "cramjam", "zstandard", "isal")
LOGGED = """rootLogger.level=info
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%p %c{1}: %m%n
"""


class Cluster:
    """Starts with two workers of one core each; `stop` ends all of it.

    `url` is the master's, `python` the path of an interpreter with all installed packages but klog and its codecs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.python = bare_python(folder / "python")
        (folder / "log4j2.properties").write_text(LOGGED)
        try:
            master = self._start("Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = self._said(master, r"Starting Spark master at (spark://\S+)")
            workers = [self._start_worker(number) for number in range(2)]
            for log in workers:
                self._said(log, "(Successfully registered with master)")
        except BaseException:
            self.stop()
            raise

    def _start(self, role: str, *arguments: str) -> Path:
        log = self.folder / f"{role}{len(self.processes)}.log"
        java = find_java()
        command = [java, "-cp", class_data.CLASS_PATH, "-Xmx256m", *class_data.BRIEF, *class_data.options()]
        command += [f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"]
        command += ["-Dspark.master.rest.enabled=false", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
        command += [f"org.apache.spark.deploy.{role.lower()}.{role}", *arguments]
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
        }
        plain |= {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
        plain |= {"SPARK_LOCAL_DIRS": str(self.folder / "local"), "JAVA_HOME": java_home(java)}
        with log.open("wb") as output:
            self.processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=plain,
                    cwd=self.folder,
                    start_new_session=True,  # an executor belongs to it: both can be ended at once
                )
            )
        return log

    def _start_worker(self, number: int) -> Path:
        sizes = ("--cores", "1", "--memory", "768m", "--host", "127.0.0.1", "--webui-port", "0")
        return self._start("Worker", *sizes, "--work-dir", str(self.folder / f"work{number}"), self.url)

    def _said(self, log: Path, pattern: str, seconds: float = 60) -> str:
        """Return what *pattern* finds in a log, once it is there."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.processes[-1].poll() is None:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.05)
        raise AssertionError(f"{log}: no {pattern}: {log.read_text(errors='replace')[-2000:]}")

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors, as a machine does that loses its power."""
        os.killpg(self.processes[1 + number].pid, signal.SIGKILL)

    def replace_worker(self, number: int) -> None:
        """Put another machine in the place of one that was killed."""
        self.processes[1 + number].wait()
        self._said(self._start_worker(number), "(Successfully registered with master)")
        self.processes[1 + number] = self.processes.pop()

    def stop(self) -> None:
        for process in reversed(self.processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def bare_python(folder: Path) -> Path:
    """Make a virtual environment with all installed packages, without klog and its own dependencies."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for path in HOME.parent.iterdir():
        if not path.name.startswith((*NOT_THERE, "_")) and path.suffix != ".pth":
            (site / path.name).symlink_to(path)
    return folder / "bin" / "python"
