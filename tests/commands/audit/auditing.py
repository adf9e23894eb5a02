"""Shared by the tests of `klog audit`: the images with misrouted batches, their truth, and rows by place."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.conftest import CORPORA, run_klog

UNPACKED = ("modern/data", "legacy/data", "v39/data", "v39/data1")
"""Log dirs of the large corpora that are no archives."""
ARCHIVES = sorted(
    str(path.relative_to(CORPORA))
    for name in ("answers", "append", "compaction", "replicas")
    for path in (CORPORA / name).rglob("*.tar.*")
    if "-" not in path.parent.name
)
"""Images without misrouted batches, and no other change of a log by hand."""
Place = tuple[str, int]
"""A partition as its directory is called, and an offset."""


def truth_of(name: str) -> dict[str, Any]:
    """Return the true changes of an image."""
    with gzip.open(CORPORA / "misrouted" / f"{name}.truth.json.gz") as file:
        found: dict[str, Any] = json.load(file)
    return found


def disks(image: Callable[[str], Path], name: str) -> list[str]:
    """Return the log dirs of an image's two brokers."""
    return [str(image(f"misrouted/{name}-{number}.tar.xz") / "data") for number in (1, 2)]


def log_dirs(folder: Path) -> list[Path]:
    """Return the log dirs in an image."""
    return sorted({path.parent for path in folder.rglob("*-offset-checkpoint")})


def audit(*arguments: object, exit_code: int | None = None) -> dict[str, Any]:
    """Run `klog audit misrouted` with JSON output; *exit_code*: the required one, None: 4 with rows and 0 without."""
    done = run_klog("audit", "misrouted", *map(str, arguments), "--output", "json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == ((4 if found["misrouted"] else 0) if exit_code is None else exit_code), done.stderr
    return found


def place(of: dict[str, Any]) -> Place:
    """Return where a row, a home or a twin is."""
    return f"{of['topic']}-{of['partition']}", of["first_offset"]


def places(rows: Sequence[dict[str, Any]]) -> set[Place]:
    """Return where rows are."""
    return {place(row) for row in rows}
