"""Spark Connect: a server elsewhere, and a client without a JVM."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from klog.spark.java import find_java, java_home

from tests.conftest import FIXTURES, Ran
from tests.partition.verify.partitions import Damageable, flipped
from tests.spark import class_data
from tests.spark.class_data import HOME
from tests.spark.cluster import bare_python

pytestmark = [pytest.mark.spark, pytest.mark.slow]

STARTED = re.compile(r"Spark Connect server started at: \S*?:(\d+)")
LOGGED = """rootLogger.level=error
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%p %c{1}: %m%n
logger.connect.name=org.apache.spark.sql.connect
logger.connect.level=info
"""
SOURCE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
frame = spark.read.format("kafka-log").option("subscribe", "plain,zstd").load(sys.argv[2])
print(*frame.selectExpr("count(*)", "count(distinct topic, partition, offset)").first())
spark.stop()
"""


class Server:
    """A server of Spark Connect on a free port, whose tasks run in *python*; `url` is its address."""

    def __init__(self, folder: Path, python: str, path: str) -> None:
        log = folder / "server.log"
        (folder / "log4j2.properties").write_text(LOGGED)
        java = find_java()
        command = [java, "-cp", class_data.CLASS_PATH, "-Xmx512m", *class_data.BRIEF, *class_data.options()]
        command += [f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"]
        command += ["--add-opens=java.base/java.nio=ALL-UNNAMED", "org.apache.spark.deploy.SparkSubmit"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
        conf = {
            "spark.connect.grpc.binding.port": "0",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}
        plain |= {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": java_home(java)}
        plain |= {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "PYTHONPATH": path}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "spark-internal"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=plain,
                cwd=folder,
            )
        self.url = f"sc://127.0.0.1:{self._port(log)}"

    def _port(self, log: Path) -> str:
        end = time.monotonic() + 120
        while time.monotonic() < end and self._process.poll() is None:
            found = STARTED.search(log.read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.05)
        self.stop()
        raise AssertionError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose Python has no klog."""
    folder = tmp_path_factory.mktemp("bare")
    server = Server(folder, str(bare_python(folder / "python")), "")
    yield server.url
    server.stop()


@pytest.fixture(scope="module")
def equipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with klog in its Python."""
    path = os.pathsep.join(path for path in sys.path if path)
    server = Server(tmp_path_factory.mktemp("equipped"), sys.executable, path)
    yield server.url
    server.stop()


def run(*words: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Run klog's Python as one does who has no Spark of his own."""
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, env=class_data.environment(), check=False, timeout=240)


def test_the_commands_run_on_a_server_that_has_no_klog(bare: str, klog: Callable[..., Ran], tmp_path: Path) -> None:
    """klog is sent to the workers as well; the result is that of a run on this machine."""
    damageable = Damageable(tmp_path / "data", "idempotent-0", "zstd-0", "gzip-0", "tx-0")
    damageable.change("idempotent-0/00000000000000000375.log", flipped(100))
    data = tmp_path / "data"
    done = run("-m", "klog_cli.app", "spark", "verify", "--output", "json", data, "--master", bare)
    alone = klog("verify", "--output", "json", data)
    assert (done.stdout, done.stderr, done.returncode) == (alone.stdout, b"", 4)
    out = tmp_path / "out"
    done = run("-m", "klog_cli.app", "spark", "export", data, "--to", out, "--master", bare)
    assert done.returncode == 4, done.stderr
    manifest = json.loads((out / "_klog_manifest.json").read_text())
    there = sum(one["records"] for one in manifest["files"])
    counted = run("-m", "klog_cli.app", "spark", "stats", "--output", "jsonl", data, "--master", bare)
    assert sum(json.loads(line)["records"] for line in counted.stdout.splitlines()) == there > 0


def test_the_data_source_is_found_by_a_server_that_has_klog(equipped: str) -> None:
    """The client needs nothing of it."""
    done = run("-c", SOURCE, equipped, FIXTURES / "modern")
    rows, different = map(int, done.stdout.split())
    assert rows == different > 0, done.stderr
