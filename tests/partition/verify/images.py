"""The images of the corpora that tests of checks run over."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import CORPORA, extract

CRASHES = sorted(path.parent for path in CORPORA.glob("crash/*/before.tar.gz"))


def unpacked(image: Path, folder: Path, archive: str = "before") -> Path:
    """Unpack an archive of an image, with its modification times; return the log dir."""
    extract(image / f"{archive}.tar.gz", folder)
    return folder
