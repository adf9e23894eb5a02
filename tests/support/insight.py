"""The log dir of a broker, and the answers of its clients and Kafka's own tools just before it stopped."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from tests.conftest import FIXTURES

TRUTH: dict[str, Any] = json.loads((FIXTURES / "insight.truth.json").read_text())
STOPPED: int = TRUTH["stopped"]


def unpack(folder: Path) -> Path:
    """Return the log dir, unpacked in *folder*."""
    with tarfile.open(FIXTURES / "insight.tar.xz") as archive:
        archive.extractall(folder)
    return folder / "data"
