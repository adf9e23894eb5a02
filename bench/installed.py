"""The peers that the benchmark installs for itself, under its data folder, and klog as it is found."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
KAFKA_VERSION = "4.3.1"

# The options of kafka-run-class.sh for a tool, without its JMX agent and log4j configuration, which would slow Kafka's
# start.
KAFKA_FLAGS = (
    "-Xmx256M",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)


class NotInstalledError(Exception):
    """Something the benchmark needs is not there and could not be fetched."""


def child(name: str) -> str:
    """Return the path of the script *name* that runs as a process of its own."""
    return os.path.join(HERE, "children", name)


def peers_python(data: str) -> str:
    """Return the interpreter of the peers' own environment; made the first time, with the versions in peers.txt."""
    folder = os.path.join(data, "venv")
    python = os.path.join(folder, "bin", "python")
    with open(os.path.join(HERE, "peers.txt"), encoding="ascii") as file:
        wanted = file.read()
    note = os.path.join(folder, "installed.txt")
    if _content(note) != wanted:
        venv.create(folder, with_pip=True, clear=True)
        _must([python, "-m", "pip", "install", "-q", "-r", os.path.join(HERE, "peers.txt")])
        with open(note, "w", encoding="ascii") as file:
            file.write(wanted)
    return python


def kafka_dump(data: str) -> list[str]:
    """Return the command line of Kafka's own dump tool; Maven downloads its jars the first time."""
    folder = os.path.join(data, "kafka-" + KAFKA_VERSION)
    if not os.path.exists(os.path.join(folder, "complete")):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "pom.xml"), "w", encoding="ascii") as file:
            file.write(_pom())
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs"]
        _must(["mvn", "-q", "-B", "-f", file.name, *goal])
        with open(os.path.join(folder, "complete"), "w", encoding="ascii"):
            pass
    return ["java", *KAFKA_FLAGS, "-cp", os.path.join(folder, "libs", "*"), "org.apache.kafka.tools.DumpLogSegments"]


def _pom() -> str:
    def dependency(group: str, name: str, version: str) -> str:
        coordinates = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        # One logger only, or slf4j complains on stderr at each start.
        others = "<groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>"
        return f"<dependency>{coordinates}<exclusions><exclusion>{others}</exclusion></exclusions></dependency>"

    wanted = (
        dependency("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        dependency("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        dependency("org.slf4j", "slf4j-simple", "1.7.36"),
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>klog</groupId>'
        f"<artifactId>bench</artifactId><version>1</version><dependencies>{''.join(wanted)}</dependencies></project>"
    )


def find_klog() -> list[str]:
    """Return the command line of ``klog``; this checkout is put on the path if klog is not installed.

    It is the console script beside this interpreter if there is one, for that is the one that users start.  Its byte
    code is written first, as an installation does.
    """
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONOPTIMIZE", "PYTHONPROFILEIMPORTTIME"):
        os.environ.pop(name, None)  # a user's shell has none of these; the first makes every start compile klog anew
    if _fails([sys.executable, "-c", "import klog, klog_cli.app"]):
        sources = [os.path.join(ROOT, "core"), os.path.join(ROOT, "cli")]
        os.environ["PYTHONPATH"] = os.pathsep.join([*sources, *filter(None, [os.environ.get("PYTHONPATH")])])
    if problem := _fails([sys.executable, "-c", "import klog_cli.app, klog.kernel; klog.Segment"]):
        raise NotInstalledError(f"klog does not start under {sys.executable}; build it first (make build): {problem}")
    homes = (
        "import compileall, klog, klog_cli; [compileall.compile_dir(m.__path__[0], quiet=1) for m in (klog, klog_cli)]"
    )
    _must([sys.executable, "-c", homes])
    script = os.path.join(os.path.dirname(sys.executable), "klog")
    command = [script] if os.path.exists(script) else [sys.executable, "-m", "klog_cli.app"]
    _must([*command, "--version"])
    return command


def answer(words: Sequence[str]) -> str:
    """Return the first line that a command prints on stdout or stderr; the empty string if it fails."""
    done = subprocess.run(words, capture_output=True, text=True)
    return ((done.stdout + done.stderr).splitlines() or [""])[0] if done.returncode == 0 else ""


def _content(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _fails(words: Sequence[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True)
    return (done.stderr.strip().splitlines() or ["no message"])[-1] if done.returncode else ""


def _must(words: Sequence[str]) -> None:
    try:
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotInstalledError(f"{' '.join(words)}: {error}") from None
