"""Rows of the result, and how they are printed and saved."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

LIBRARIES = ("lz4", "python-snappy", "cramjam", "zstandard", "isal", "pyarrow", "typer")
HEAD = ("job", "measured (CPU seconds of the whole process unless said otherwise)", "result", "target", "")


@dataclass(frozen=True)
class Row:
    """One comparison.

    Without *at_least* and *at_most* it is for information.  *value* None: it could not be measured.
    """

    job: str
    measured: str
    value: float | None
    unit: str = "×"
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the target, if there is one, is met."""
        if self.value is None:
            return False
        enough = self.at_least is None or self.value >= self.at_least
        return enough and (self.at_most is None or self.value <= self.at_most)

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return the row as text, in the order of HEAD."""
        if self.at_least is None and self.at_most is None and self.value is not None:
            return self.job, self.measured, _amount(self.value, self.unit), "", ""
        bound = f"≥ {_amount(self.at_least, self.unit)}" if self.at_least is not None else ""
        if self.at_most is not None:
            bound = f"≤ {_amount(self.at_most, self.unit)}"
        result = "-" if self.value is None else _amount(self.value, self.unit)
        return self.job, self.measured, result, bound, "ok" if self.holds else "MISS"


def _amount(value: float, unit: str) -> str:
    digits = f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits} {unit}"


def text(rows: Sequence[Row]) -> str:
    """Return the rows as an aligned table."""
    cells = [HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def markdown(rows: Sequence[Row], facts: Sequence[str]) -> str:
    """Return the whole result as a page."""
    lines = [f"# Benchmark of {time.strftime('%Y-%m-%d')}", "", *(f"* {fact}" for fact in facts), ""]
    lines += ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row.cells()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def cpu_name() -> str:
    """Return the processor's name as /proc/cpuinfo has it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith(("model name", "Model"))]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def facts(peers_python: str) -> list[str]:
    """Return the conditions of the figures: machine, versions, load."""
    with open("/proc/meminfo", encoding="ascii") as file:
        memory = int(file.readline().split()[1]) / 2**20
    names = "'aiokafka', 'kafka-python', 'crc32c'"
    asked = f"from importlib.metadata import version; print(', '.join(n + ' ' + version(n) for n in ({names})))"
    peers = subprocess.run([peers_python, "-c", asked], capture_output=True, text=True).stdout.strip()
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()
    return [
        f"{cpu_name()}, {os.cpu_count()} cores, {memory:.0f} GiB; Linux {platform.release()}",
        f"Python {platform.python_version()}; " + ", ".join(f"{name} {_version(name)}" for name in LIBRARIES),
        f"klog {_version('klog')}, {'of this checkout' if _is_ours() else 'installed'}",
        f"peers: {peers}; Kafka 4.3.1 on {java[0] if java else 'no Java'}",
        f"load at the start {os.getloadavg()[0]:.1f}",
    ]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _is_ours() -> bool:
    """Whether the measured klog is that of this checkout."""
    asked = "import klog; print(klog.__path__[0])"
    home = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True).stdout.strip()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return home.startswith(root + os.sep)


def save(folder: str, page: str) -> str:
    """Write *page* to FOLDER/<date>-<cpu>.md and return its path."""
    os.makedirs(folder, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", cpu_name().lower()).strip("-")
    path = os.path.join(folder, f"{time.strftime('%Y-%m-%d')}-{name}.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)
    return path
