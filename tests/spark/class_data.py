"""A class-data archive of Spark's jars: it saves two fifths of the CPU time of a driver that runs for seconds.

It fits one installation, and is kept beside it, in the environment of this Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
from klog.spark.java import find_java, java_home

from tests.brokers import class_data
from tests.conftest import FIXTURES, ROOT

HOME = Path(pyspark.__file__).parent
CLASS_PATH = os.pathsep.join([f"{HOME}/conf", *map(str, HOME.glob("jars/slf4j-api-*.jar")), f"{HOME}/jars/*"])
"""As Spark's own scripts build it: an archive fits no other."""
BRIEF = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a JVM that lives for seconds the second compiler costs more than it gains."""
VARIABLE = "SPARK_SUBMIT_OPTS"
"""From it Spark's own scripts take the options of a driver's JVM."""

LOADED = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.createDataFrame([(1, "a"), (2, "b")], "a int, b string")
frame.selectExpr("count(*)", "count(distinct b)").first()
frame.rdd.map(len).sum()
rows = spark.read.format("kafka-log").load(sys.argv[1])
rows.selectExpr("count(distinct topic, partition, offset)").collect()
rows.mapInArrow(lambda each: each, rows.schema).collect()
for name in ("deploy.master.Master", "deploy.worker.Worker", "executor.CoarseGrainedExecutorBackend"):
    spark._jvm.java.lang.Class.forName("org.apache.spark." + name)
spark.stop()
"""


def options() -> list[str]:
    """Return the options for a JVM with the class path above; the first call writes the archive."""
    return class_data.mapped(Path(sys.prefix) / f"spark-{pyspark.__version__}-{class_data.jdk()}.jsa", _run_driver)


def _run_driver(folder: Path, options: tuple[str, ...]) -> bool:
    (folder / "loaded.py").write_text(LOADED)
    variables = environment() | {"JAVA_HOME": java_home(find_java()), VARIABLE: " ".join((*BRIEF, *options))}
    variables |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    command = [HOME / "bin" / "spark-submit", "--driver-memory", "512m", "loaded.py", FIXTURES / "modern" / "plain-1"]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, timeout=300, check=False)
    return done.returncode == 0


def map_classes() -> None:
    """Let all drivers that are started from here on map the archive."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = " ".join(options())


def environment() -> dict[str, str]:
    """Return the variables of a process without a Spark of its own that finds klog where this one does."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    path = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    drivers = {VARIABLE: os.environ.get(VARIABLE, "")}
    return plain | drivers | {"PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
