"""Kafka's jars, fetched by Maven the first time, and the classes of tests/java.

They stay in KLOG_KAFKA_CACHE.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

CACHE = Path(os.environ.get("KLOG_KAFKA_CACHE", Path.home() / ".cache" / "klog-kafka"))
COMPILED_WITH = "4.3.1"

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>klog.tests</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
{}
</dependencies></project>
"""
NEEDED = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
LOGGER = "org.slf4j:slf4j-simple:1.7.36"
BROKER_AND_TOOLS = ("org.apache.kafka:kafka_2.13:{0}", "org.apache.kafka:kafka-tools:{0}")
CLIENTS = ("org.apache.kafka:kafka-clients:{0}",)
MIRROR_MAKER = ("org.apache.kafka:connect-mirror:{0}",)
# Spark's own Kafka source, to compare with.  Not every release of its parts is to be had; these go together.
SPARK_SOURCE = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.commons:commons-pool2:2.12.1",
    "org.apache.kafka:kafka-clients:3.9.1",
)
# Kafka's own storage manager for tests, LocalTieredStorage, and the classes that it needs.
TIERED = tuple(
    f"org.apache.kafka:{name}:{{0}}:jar:test"
    for name in ("kafka-storage", "kafka-clients", "kafka-server-common", "kafka-storage-api")
)
# Other back ends of slf4j that Kafka's own dependencies bring; two at once make it print a warning.
OTHER_LOGGERS = ("slf4j-reload4j", "slf4j-log4j12", "log4j-slf4j-impl", "log4j-slf4j2-impl")


def install(version: str) -> Path:
    """Return the folder with the jars of *version*; Maven fetches them the first time."""
    return filled(CACHE / version, _fetch_with_all_they_need, version, *BROKER_AND_TOOLS)


def install_clients(version: str) -> Path:
    """Return the folder with the jars of the Java clients of *version*; Maven fetches them the first time."""
    return filled(CACHE / f"clients-{version}", _fetch_with_all_they_need, version, *CLIENTS)


def install_mirror_maker(version: str) -> Path:
    """Return the folder with the jars of MirrorMaker 2 and all it needs; Maven fetches them the first time."""
    return filled(CACHE / f"mirror-maker-{version}", _fetch_with_all_they_need, version, *MIRROR_MAKER)


def _fetch_with_all_they_need(folder: Path, version: str, *coordinates: str) -> None:
    needed = (NEEDED.format(*each.format(version).split(":")) for each in (*coordinates, LOGGER))
    (folder / "pom.xml").write_text(POM.format("\n".join(needed)))
    _maven(folder, "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs")
    for name in OTHER_LOGGERS:
        for jar in (folder / "libs").glob(f"{name}-*.jar"):
            jar.unlink()


def install_spark_source() -> Path:
    """Return the folder with the jars of Spark's Kafka source; Maven fetches them the first time."""
    return filled(CACHE / "spark-source", _fetch_each, *SPARK_SOURCE)


def install_tiered(version: str) -> Path:
    """Return the folder with the storage manager of *version*; Maven fetches it the first time."""
    return filled(CACHE / f"tiered-{version}", _fetch_each, *(each.format(version) for each in TIERED))


def _fetch_each(folder: Path, *coordinates: str) -> None:
    for each in coordinates:
        _maven(folder, "dependency:copy", f"-Dartifact={each}", "-DoutputDirectory=libs")


def fetch(folder: Path, coordinates: str) -> None:
    """Let Maven fetch one file into folder/libs."""
    _fetch_each(folder, coordinates)


def filled(place: Path, fill: Callable[..., None], *what: str) -> Path:
    """Return place/libs, filled by *fill* the first time.

    It is filled under another name and renamed: an interrupted download or a second test run never leaves half of it.
    """
    if not (place / "libs").is_dir():
        fresh = place.with_name(f"{place.name}.{os.getpid()}")
        fresh.mkdir(parents=True)
        fill(fresh, *what)
        try:
            fresh.rename(place)
        except OSError:  # another run was faster
            shutil.rmtree(fresh)
    return place / "libs"


def _maven(folder: Path, *goal: str) -> None:
    subprocess.run(["mvn", "-q", "-B", "-Dstyle.color=never", *goal], cwd=folder, check=True)


def programs() -> Path:
    """Return the folder with the classes of tests/java; the compiler makes them when a source has changed."""
    sources = sorted((Path(__file__).parents[1] / "java").glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    return filled(CACHE / f"programs-{digest}", _compile, *map(str, sources))


def _compile(folder: Path, *sources: str) -> None:
    command = ["javac", "--release", "17", "-cp", f"{install(COMPILED_WITH)}/*", "-d", str(folder / "libs"), *sources]
    subprocess.run(command, check=True)
