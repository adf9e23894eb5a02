"""Kafka's cleaner without its broker: its result is the whole broker's."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.commands.compact.oracle import (
    ENTRY_BYTES,
    CleanerError,
    CleanerOracle,
    Round,
    Step,
    append_step,
    clock_step,
    force_step,
    roll_step,
    round_said,
    rounds_said,
    rounds_step,
)
from tests.conftest import CORPORA, writable_copy
from tests.oracles.broker_load import differences
from tests.oracles.plain import decode
from tests.oracles.plain.encode import Record, batch, marker
from tests.partition.start.test_load import HIGH_WATERMARKS, as_before_its_leader

HOME = CORPORA / "compaction/v4.3.1"
BEGINNING = re.compile(r"^(\S+ \S+) \[.*Beginning cleaning of log (\S+)$", re.MULTILINE)
CLEANED = re.compile(
    r"cleaned log (\S+) \(dirty section = \[(\d+), (\d+)\]\).*?"
    r"Start size: .*?\(([\d,]+) messages\).*?End size: .*?\(([\d,]+) messages\)",
    re.DOTALL,
)


@pytest.fixture(scope="module")
def oracle() -> Iterator[CleanerOracle]:
    with CleanerOracle() as one:
        yield one


def said_by_the_cleaner(number: int) -> str:
    """Return the real cleaner's log between one `before` and its `after`."""
    return re.split(r"^== between .*\n", (HOME / "golden/cleaner.log").read_text(), flags=re.MULTILINE)[number]


def beginnings(log: str) -> list[tuple[int, str]]:
    """Return when, in ms, the cleaner began with which partition: horizons of tombstones and markers follow from it."""
    found = []
    for time, partition in BEGINNING.findall(log):
        moment = datetime.strptime(time + "000+0000", "%Y-%m-%d %H:%M:%S.%f%z")
        found.append((round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000), partition))
    return found


def figures(log: str) -> list[tuple[str, int, int, int, int]]:
    """Return partition, dirty section, messages in and out of each round that the cleaner logged."""
    found = []
    for partition, *numbers in CLEANED.findall(log):
        first, end, read, written = (int(number.replace(",", "")) for number in numbers)
        found.append((partition, first, end, read, written))
    return found


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory on a disk, as the broker's was.

    Among equally dirty partitions, the cleaner begins with the one that the file system lists first.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.kafka
@pytest.mark.corpora
@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_cleaner_alone_leaves_what_a_whole_broker_left(
    number: int, oracle: CleanerOracle, image: Callable[[str], Path], tmp_path: Path, on_disk: Path
) -> None:
    """Every file of every partition, and the order in which they were taken: else klog is held against nothing."""
    suffix = "" if number == 1 else str(number)
    before = image(f"compaction/v4.3.1/before{suffix}.tar.gz")
    cleaned = writable_copy(before, on_disk / "cleaned")
    after = writable_copy(image(f"compaction/v4.3.1/after{suffix}.tar.gz"), tmp_path / "after")
    settings = json.loads((HOME / "settings.json").read_text())
    topics = settings["topics"]
    topics["switched"]["cleanup.policy"] = "compact"  # its settings before the cleaner ran
    log = said_by_the_cleaner(number)
    begun = beginnings(log)
    steps: list[Step] = []
    for ms, _ in begun:
        steps += [clock_step(ms), rounds_step(1, retention=True)]
    steps.append(rounds_step(retention=True))
    said = oracle.visit(cleaned, steps, now_ms=begun[0][0], topic_settings=topics, broker_settings=settings["broker"])
    rounds = [one for each in (*said[1::2], said[-1]) for one in rounds_said(each)]
    assert [figures_of(one) for one in rounds] == figures(log)
    assert len(rounds) == len(begun) >= 18
    # The images leave out the internal topics, which the checkpoints of that broker name.
    written, recorded = ((folder / HIGH_WATERMARKS).read_text().splitlines()[2:] for folder in (cleaned, after))
    assert sorted(written) == sorted(line for line in recorded if not line.startswith("__"))
    as_before_its_leader(after, before)
    (cleaned / HIGH_WATERMARKS).unlink()
    (after / HIGH_WATERMARKS).unlink()
    assert differences(cleaned, after) == []


def figures_of(one: Round) -> tuple[str, int, int | None, int, int]:
    return one.partition, one.first_dirty, one.next_dirty, one.messages_read, one.messages_written


# The log of the specification's example: the text's statement about each record is Kafka's result.

TOPIC = {"orders": {"cleanup.policy": "compact", "delete.retention.ms": "1000", "min.cleanable.dirty.ratio": "0"}}
NOBODY = (-1, -1, -1)


def example_batches() -> list[list[bytes]]:
    """Return the batches of each segment; the first marker aborts 5 and 6."""

    def data(offset: int, *pairs: tuple[bytes | None, bytes | None], producer: tuple[int, int, int] = NOBODY) -> bytes:
        records = [Record(offset + i, 900_000 + offset + i, *pair) for i, pair in enumerate(pairs)]
        return batch(records, producer=producer, transactional=producer[0] == 7)

    abort = marker(8, commit=False, timestamp=900_008, producer_id=7, producer_epoch=0, coordinator_epoch=0)
    return [
        [data(0, (b"A", b"a1"), (b"B", b"b1")), data(2, (None, b"x")), data(3, (b"C", b"c1"), (b"A", b"a2"))],
        [
            data(5, (b"B", b"b2"), producer=(7, 0, 0)),
            data(6, (b"D", b"d1"), producer=(7, 0, 1)),
            data(7, (b"C", None)),
            abort,
            data(9, (b"E", b"e1")),
        ],
        [data(10, (b"A", b"a3"), (b"F", None)), data(12, (b"G", b"g1"), producer=(9, 0, 0)), data(13, (b"G", b"g2"))],
        [data(14, (b"H", b"h1"))],
    ]


def write_example(oracle: CleanerOracle, folder: Path) -> Path:
    """Let Kafka write the example into *folder*; return the log dir."""
    log_dir = folder / "data"
    partition = log_dir / "orders-0"
    partition.mkdir(parents=True)
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    steps: list[Step] = []
    with open(folder / "chunks", "wb") as file:
        for segment in example_batches():
            steps += [roll_step("orders-0")] if steps else []
            for chunk in segment:
                steps.append(append_step("orders-0", folder / "chunks", file.tell(), len(chunk)))
                file.write(chunk)
    oracle.visit(log_dir, steps, now_ms=950_000, topic_settings=TOPIC)
    return log_dir


def offsets(log_dir: Path) -> list[int]:
    """Return the offsets of all records, segment by segment."""
    found = []
    for log in sorted((log_dir / "orders-0").glob("*.log")):
        for one in decode.scan(log.read_bytes()):
            assert isinstance(one, decode.Batch)
            found += [record.offset for record in one.records]
    return found


@pytest.mark.kafka
def test_a_log_that_is_appended_is_cleaned_as_the_rules_say(oracle: CleanerOracle, tmp_path: Path) -> None:
    """Superseded, aborted and keyless records are removed; tombstones, markers and everything above the map stay."""
    log_dir = write_example(oracle, tmp_path)
    assert offsets(log_dir) == list(range(15))
    (only,) = oracle.clean(log_dir, now_ms=1_000_000, topic_settings=TOPIC)
    assert offsets(log_dir) == [1, 7, 8, 9, 10, 11, 13, 14]
    assert sorted(path.name for path in log_dir.glob("orders-0/*.log")) == [f"{base:020}.log" for base in (0, 14)]
    assert (log_dir / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 14\n"
    assert (only.map_messages, only.messages_read, only.messages_written, only.invalid_messages) == (14, 13, 7, 1)
    assert (only.first_dirty, only.first_uncleanable, only.next_dirty, only.map_entries) == (0, 14, 14, 6)


@pytest.mark.kafka
def test_a_map_that_fills_up_ends_the_round(oracle: CleanerOracle, tmp_path: Path) -> None:
    """Four slots at 0.9 hold three keys: the fourth keyed record ends the first round, in the middle of a batch."""
    log_dir = write_example(oracle, tmp_path)
    (first,) = oracle.clean(log_dir, now_ms=1_000_000, topic_settings=TOPIC, map_bytes=4 * ENTRY_BYTES, rounds=1)
    assert (first.next_dirty, first.map_entries) == (4, 3)
    assert offsets(log_dir) == [0, 1, 3, *range(4, 15)]
    rest = oracle.clean(log_dir, now_ms=1_000_000, topic_settings=TOPIC, map_bytes=4 * ENTRY_BYTES)
    assert [one.first_dirty for one in rest] == [4, *(one.next_dirty for one in rest[:-1])]
    assert rest[-1].next_dirty == 14
    assert offsets(log_dir) == [1, 7, 8, 9, 10, 11, 13, 14]


@pytest.mark.kafka
def test_what_would_be_selected_is_said_and_nothing_is_cleaned(oracle: CleanerOracle, tmp_path: Path) -> None:
    """A high watermark of 7 lies in the second segment, so only the first may be cleaned; a lag can keep that too."""
    log_dir = write_example(oracle, tmp_path)
    (log_dir / HIGH_WATERMARKS).write_text("0\n1\norders 0 7\n")
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 99\n")
    before = {path.name: path.read_bytes() for path in log_dir.glob("orders-0/*.log")}
    found = oracle.select(log_dir, now_ms=1_000_000, topic_settings=TOPIC, high_watermarks="checkpoint")["orders-0"]
    assert (found.bound, found.first_dirty, found.first_uncleanable, found.high_watermark) == (7, 0, 5, 7)
    assert found.checkpoint_rewritten
    assert found.eligible
    assert found.cleanable_bytes == found.segments[0].size == len(before[f"{0:020}.log"])
    assert found.producers == ((7, 6, 0), (9, 12, 0))
    assert [segment.base_offset for segment in found.segments] == [0, 5, 10, 14]
    lagging = {"orders": TOPIC["orders"] | {"min.compaction.lag.ms": "200000"}}
    found = oracle.select(log_dir, now_ms=1_000_000, topic_settings=lagging)["orders-0"]
    assert (found.bound, found.cleanable_bytes, found.eligible) == (0, 0, False)
    assert {path.name: path.read_bytes() for path in log_dir.glob("orders-0/*.log")} == before


@pytest.mark.kafka
def test_a_range_can_be_forced_on_the_cleaner(oracle: CleanerOracle, tmp_path: Path) -> None:
    """`--all` cleans logs that no broker would look at: a log whose checkpoint is at the end already."""
    log_dir = write_example(oracle, tmp_path)
    oracle.clean(log_dir, now_ms=1_000_000, topic_settings=TOPIC)
    assert oracle.clean(log_dir, now_ms=2_000_000, topic_settings=TOPIC) == []
    said = oracle.visit(log_dir, [force_step("orders-0", 0, 14)], now_ms=2_000_000, topic_settings=TOPIC)
    assert (round_said(said[0]).first_dirty, round_said(said[0]).next_dirty) == (0, 14)
    assert offsets(log_dir) == [1, 8, 9, 10, 13, 14], "the horizons of 7 and 11 have passed"


@pytest.mark.kafka
def test_what_fails_is_told_and_the_next_visit_works(oracle: CleanerOracle, tmp_path: Path) -> None:
    """One odd directory must not end a run over hundreds."""
    log_dir = write_example(oracle, tmp_path)
    with pytest.raises(CleanerError, match="UnexpectedAppendOffset"):
        oracle.visit(
            log_dir,
            [append_step("orders-0", tmp_path / "chunks", 0, len(example_batches()[0][0]))],
            now_ms=950_000,
            topic_settings=TOPIC,
        )
    assert len(oracle.clean(log_dir, now_ms=1_000_000, topic_settings=TOPIC)) == 1


@pytest.mark.kafka
def test_a_round_that_fails_leaves_its_partition_alone(oracle: CleanerOracle, tmp_path: Path) -> None:
    """A broker marks such a partition and continues: the checkpoint must not move."""
    log_dir = write_example(oracle, tmp_path)
    log = log_dir / "orders-0" / f"{5:020}.log"
    content = bytearray(log.read_bytes())
    content[len(example_batches()[1][0]) + 16] ^= 0xFF  # the magic of the second batch
    log.write_bytes(content)
    (failed,) = oracle.clean(log_dir, now_ms=1_000_000, topic_settings=TOPIC)
    assert failed.next_dirty is None
    assert "magic" in failed.error
    assert (log_dir / "cleaner-offset-checkpoint").read_text() == "0\n1\norders 0 0\n"
