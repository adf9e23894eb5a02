"""Random damage to the log dirs of brokers that were killed: the same cases whenever the seed is the same.

for case in cases(1, sources()):
    case.make(folder)                        a log dir with one to three damages
    loader.load(folder, case.settings, now_ms=case.now_ms)
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import FIXTURES, writable_copy
from tests.support.damage_kinds import KINDS, OFTEN, RECOVERY_POINTS, set_entry, within

EARLY_MS, LATE_MS = 1_750_000_000_000, 1_795_900_000_000
"""Before any producer of the fixtures and corpora was idle for a day, and after all of them were."""


@dataclass(frozen=True)
class Source:
    """A log dir to take partitions from.  It is only read."""

    label: str
    folder: Path


@dataclass(frozen=True)
class Case:
    """A damaged log dir: *make* writes it to a folder that is not there yet."""

    name: str
    make: Callable[[Path], None]
    settings: dict[str, str]
    now_ms: int


def sources() -> list[Source]:
    """Return the sources in the fixtures: the wreck of a 4.3.1 broker, and data of 4.3.1 and of 2.8.2 that were
    closed."""
    return [Source(path.replace("/", "-"), FIXTURES / path) for path in ("crash/torn-in-batch", "modern", "legacy")]


def corpora_sources(image: Callable[[str], Path], corpora: Path) -> list[Source]:
    """Return the further sources in the corpora: wrecks of 4.3.1 and 3.9.1, and all data of 2.8.2 and 3.9.1.

    *image* unpacks an archive of the corpora.
    """
    wrecks = ("v4.3.1-kill", "v3.9.1-kill", "v4.3.1-torn-in-batch", "v3.9.1-torn-in-batch")
    unpacked = [Source(name, image(f"crash/{name}/before.tar.gz")) for name in wrecks]
    return [*unpacked, Source("legacy", corpora / "legacy/data"), Source("v39", corpora / "v39/data")]


def cases(seed: int, given: Sequence[Source], count: int = 200) -> Iterator[Case]:
    """Yield *count* cases; number n of a seed is the same for any count."""
    for number in range(count):
        yield case(seed, number, given)


def case(seed: int, number: int, given: Sequence[Source]) -> Case:
    """Return case *number* of *seed*."""
    chance = random.Random(f"{seed}/{number}")
    source = chance.choice(given)
    picked = [chance.choice(KINDS + OFTEN) for _ in range(chance.choice((1, 1, 2, 3)))]
    settings = {"log.index.size.max.bytes": "16384", "log.index.interval.bytes": chance.choice(("4096", "4096", "512"))}
    name = f"{seed}/{number} {source.label}: {', '.join(kind.__name__ for kind in picked)}"

    def make(folder: Path) -> None:
        again = random.Random(f"{seed}/{number}/make")
        partitions = _begin(source, folder, again)
        for kind in picked:
            _damage(kind, again, again.choice(partitions[:2]))

    return Case(name, make, settings, chance.choice((EARLY_MS, EARLY_MS, LATE_MS)))


def _damage(kind: Callable[[random.Random, Path], None], chance: random.Random, partition: Path) -> None:
    """Do the damage, unless an earlier one has removed its object."""
    if partition.is_dir() and list(partition.glob("*.log")):
        kind(chance, partition)


def _begin(source: Source, folder: Path, chance: random.Random) -> list[Path]:
    """Copy one to three partitions as a kill leaves them: no marker, recovery points that lag behind."""
    folder.mkdir()
    for path in sorted(source.folder.iterdir()):
        if path.is_file() and path.name not in (".lock", ".kafka_cleanshutdown"):
            shutil.copyfile(path, folder / path.name)
    whole = [path for path in sorted(source.folder.iterdir()) if any(log.stat().st_size for log in path.glob("*.log"))]
    whole = [path for path in whole if path.name != "__cluster_metadata-0"]
    chosen = chance.sample(whole, min(len(whole), chance.choice((1, 2, 3))))
    partitions = [writable_copy(path, folder / path.name) for path in chosen]
    for partition in partitions:
        if not (partition / "partition.metadata").exists():  # 2.8.2 writes none unless its topics have identities
            (partition / "partition.metadata").write_text("version: 0\ntopic_id: " + "A" * 21 + "Q")
        set_entry(folder / RECOVERY_POINTS, partition, chance.choice((None, 0, within(chance, partition))))
    if chance.random() < 0.15:  # as if it had been closed: then only load-time repairs are due
        (folder / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return partitions
