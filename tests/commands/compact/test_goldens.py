"""Log dirs that brokers have cleaned: klog leaves their results, and the untouched parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from klog.commands.compact.log_cleaner import CleanerOptions
from klog.commands.compact.record_retention import CleanerRelease
from klog.formats.batch import Attributes
from klog.log.segment import Batch, Segment

from tests.commands.compact.recorded import Compactor, Recorded
from tests.conftest import FIXTURES, writable_copy
from tests.oracles.broker_load import differences

RELEASES = {"v4.3.1": CleanerRelease.V4_3, "v3.9.1": CleanerRelease.V3_9, "v2.8.2": CleanerRelease.V2_8}
EVERY = [Recorded(version, number) for version in RELEASES for number in (1, 2, 3)]
NAMES = [f"{one.version}-{one.number}" for one in EVERY]
MAP_BYTES = 1 << 20
OTHER_LIBRARIES = ("keys-snappy-0", "keys-zstd-0")
"""A broker's Java libraries compress to other bytes than klog's."""

OF_A_START = ("leader-epoch-checkpoint", "meta.properties")
"""A broker's start writes them: the epoch of the leader that it becomes; by 2.8 the time of day."""

COMPACT = {"cleanup.policy": "compact"}
HORIZON = int(Attributes.DELETE_HORIZON)

CLOCK_MS = {(Recorded("v3.9.1", 3), "shapes-gzip-0"): -1}
"""The time at which the broker has read its clock, according to its horizons, a little before the time in its log."""

Image = Callable[[str], Path]


class Kept(NamedTuple):
    """A batch, without the effects of compression: place, size, checksum."""

    header: tuple[int, ...]
    records: list[object]


def kept(partition: Path) -> list[Kept]:
    """Return the content of a partition."""
    return [_kept(batch) for log in sorted(partition.glob("*.log")) for batch in _batches(log)]


def _batches(log: Path) -> Iterator[Batch]:
    for batch in Segment(str(log)).batches():
        assert isinstance(batch, Batch), batch
        assert batch.crc_holds
        yield batch


def _kept(batch: Batch) -> Kept:
    return Kept(
        (
            batch.magic, batch.base_offset, batch.last_offset, batch.base_timestamp, batch.max_timestamp,
            batch.attributes, batch.records_count, batch.leader_epoch, batch.producer_id, batch.producer_epoch,
            batch.base_sequence,
        ),
        list(batch.records()),
    )  # fmt: skip


@pytest.fixture
def sides(recorded: Recorded, image: Image, tmp_path: Path) -> tuple[Path, Path]:
    """A log dir before its cleaning, as a broker's start leaves it; and after."""
    ours, after = (writable_copy(image(recorded.archive(side)), tmp_path / side) for side in ("before", "after"))
    for partition in ours.iterdir():
        for snapshot in sorted(partition.glob("*.snapshot"))[:-1]:
            if not snapshot.with_suffix(".log").exists():
                snapshot.unlink()  # a start drops those at no segment's beginning, except the newest
    return ours, after


def begun(recorded: Recorded) -> list[tuple[int, str]]:
    """Return the clock at the beginning of each partition's round."""
    return [(ms + CLOCK_MS.get((recorded, partition), 0), partition) for ms, partition in recorded.begun]


@pytest.mark.corpora
@pytest.mark.parametrize("recorded", EVERY, ids=NAMES)
def test_the_records_that_a_broker_has_kept_are_kept(recorded: Recorded, sides: tuple[Path, Path]) -> None:
    """The same records in the same batches, with the same horizons, up to the same checkpoint: none more, none less."""
    ours, after = sides
    choices = CleanerOptions(MAP_BYTES, release=RELEASES[recorded.version])
    Compactor(ours, choices, recorded.topics, recorded.broker).all_of(begun(recorded))
    names = sorted(path.name for path in ours.iterdir() if path.is_dir())
    assert len(names) >= 12
    for name in names:
        assert kept(ours / name) == kept(after / name), name
    assert differing(ours, after, "cleaner-offset-checkpoint") == []


@pytest.mark.corpora
@pytest.mark.parametrize("recorded", EVERY, ids=NAMES)
def test_like_a_broker_every_file_is_the_brokers(recorded: Recorded, sides: tuple[Path, Path]) -> None:
    """Logs, three kinds of indexes, snapshots, checkpoints; what gzip and lz4 have compressed as well."""
    ours, after = sides
    epochs = {path: path.read_bytes() for path in ours.rglob("leader-epoch-checkpoint")}
    choices = CleanerOptions(MAP_BYTES, like_broker=True, release=RELEASES[recorded.version])
    Compactor(ours, choices, recorded.topics, recorded.broker).all_of(begun(recorded))
    for name in OTHER_LIBRARIES:
        assert kept(ours / name) == kept(after / name), name
    of_libraries = tuple(f"{name}/{log.name}" for name in OTHER_LIBRARIES for log in (after / name).glob("*.log"))
    assert differing(ours, after, without=(*OF_A_START, *of_libraries)) == []
    assert {path: path.read_bytes() for path in epochs} == epochs


@pytest.mark.corpora
@pytest.mark.parametrize("recorded", EVERY, ids=NAMES)
def test_what_a_broker_has_left_clean_is_taken_for_clean(recorded: Recorded, sides: tuple[Path, Path]) -> None:
    """Its rounds were complete: for the same bytes klog reports the same, and refuses none of them."""
    _, after = sides
    compactor = Compactor(after, CleanerOptions(MAP_BYTES), recorded.topics, recorded.broker)
    looked = compactor.look(recorded.begun[-1][0])
    assert len(looked.outcomes) >= 12
    assert [(one.partition.directory, one.sections.reason) for one in looked.eligible if one.sections] == []
    assert [str(one.refused) for one in looked.outcomes if one.refused is not None] == []


def differing(ours: Path, after: Path, *only: str, without: Sequence[str] = ()) -> list[str]:
    """Return in which files the sides differ, of *only* these, *without* those, which are ends of paths."""
    lines = [(line.split(":")[0], line) for line in differences(ours, after)]
    return [line for file, line in lines if (not only or file in only) and not file.endswith(tuple(without))]


# without the collection: the round of which fixtures/ has a part

DAY_MS = 86_400_000
AT_ONCE = {"delete.retention.ms": "0"}
OF_FIXTURES = {
    "grouping": {"internal.segment.bytes": "3000"},
    "idempotent": {"internal.segment.bytes": "8000", **AT_ONCE},
    "keys-lz4": {"internal.segment.bytes": "2000"},
    "keys-none": {"internal.segment.bytes": "8000"},
    "shapes": {"internal.segment.bytes": "8000"},
    "tombstones-now": {"internal.segment.bytes": "8000", **AT_ONCE},
    "tx-later": {"internal.segment.bytes": "4000"},
}
SOON_MS = 1_750_003_600_000
"""An hour after the records were written: no producer is forgotten yet."""


@pytest.mark.parametrize("like_broker", [False, True])
def test_the_brokers_part_in_a_clone_alone(tmp_path: Path, like_broker: bool) -> None:
    """Seven partitions, file by file; the broker's horizons show the times of the changes."""
    ours, after = (writable_copy(FIXTURES / "compaction" / side, tmp_path / side) for side in ("before", "after"))
    topics = {name: {**COMPACT, **given} for name, given in OF_FIXTURES.items()}
    begun = []
    for name, given in topics.items():
        set_then = [one.header[3] for one in kept(after / f"{name}-0") if one.header[5] & HORIZON]
        retention = int(given.get("delete.retention.ms", DAY_MS))
        begun.append((max(set_then, default=SOON_MS + retention) - retention, f"{name}-0"))
    Compactor(ours, CleanerOptions(MAP_BYTES, like_broker), topics).all_of(begun)
    assert sum(bool(one.header[5] & HORIZON) for name in topics for one in kept(ours / f"{name}-0")) >= 2
    assert differing(ours, after, without=OF_A_START) == []
