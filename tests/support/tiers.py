"""Log dirs and tiers of real brokers with remote storage: the situations in `corpora/tiered`, each with its truth.

The truths were told by Kafka's clients and by a reader that shares no code with klog."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import CORPORA, FIXTURES

IMAGES = tuple(
    (archive.parent.name, archive.name.removesuffix(".tar.xz"))
    for archive in sorted((CORPORA / "tiered").glob("*/*.tar.xz"))
    if not archive.name.startswith("fresh")
)
"""Situation and moment (`before`, `after`) of each archive with a tier."""


def unpack(folder: Path) -> tuple[Path, Path]:
    """Unpack `fixtures/tiered.tar.xz` in *folder*; return its log dir and its tier."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(FIXTURES / "tiered.tar.xz") as archive:
        archive.extractall(folder)
    return folder / "data", folder / "tier"


class Situation(NamedTuple):
    """An unpacked archive: *data* are the log dirs.  *moment*: before or after another start of the broker."""

    name: str
    moment: str
    data: tuple[Path, ...]
    tier: Path
    truth: dict[str, Any]

    @property
    def clients(self) -> dict[str, Any]:
        """The answers that clients got just before the stop that made the image, by partition."""
        asked = "healthy" if "healthy" in self.truth else "clients"
        is_told = self.moment == "after" or self.name.rstrip("391") not in ("interrupted", "killed")
        return self.truth[asked] if is_told else {}

    @property
    def leader(self) -> Path:
        """The log dir of the last leader."""
        return next(one for one in self.data if one.parent.name == f"broker-{self.truth.get('leader', 1)}")


def made(folder: Path, moment: str) -> Situation:
    """Unpack one that `situations.py` has just made in *folder*."""
    with tarfile.open(folder / f"{moment}.tar.xz") as archive:
        archive.extractall(folder / moment)
    truth = json.loads(gzip.decompress((folder / "truth.json.gz").read_bytes()))
    data = tuple(sorted((folder / moment).glob("broker-*/data")))
    return Situation(folder.name, moment, data, folder / moment / "tier", truth)


def situation(image: Callable[[str], Path], name: str, moment: str = "before") -> Situation:
    """Unpack one; *image* is the fixture."""
    folder = image(f"tiered/{name}/{moment}.tar.xz")
    truth = json.loads(gzip.decompress((CORPORA / "tiered" / name / "truth.json.gz").read_bytes()))
    return Situation(name, moment, tuple(sorted(folder.glob("broker-*/data"))), folder / "tier", truth)
