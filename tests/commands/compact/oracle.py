"""The result of Kafka's own cleaner for a log dir, with a stopped clock, in milliseconds.

with CleanerOracle() as oracle:
    for round in oracle.clean(folder, topic_settings={"orders": {"cleanup.policy": "compact"}}, now_ms=...):
        print(round.partition, round.next_dirty)
    oracle.select(folder, ...)         what would be cleaned, and why not; the directory is started and stopped, no more
    oracle.visit(folder, steps, ...)   anything in between: appends, rolls, moves of the clock, forced ranges
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from tests.brokers.kafka import NEWEST, Jvm

NOTHING: Mapping[str, str] = MappingProxyType({})
ALL_ROUNDS = 10_000
ENTRY_BYTES = 24
"""The bytes of one slot in the broker's map."""

Step: TypeAlias = dict[str, str | int | bool]
HighWatermarks: TypeAlias = Literal["end", "checkpoint"]
"""`end`: those of a single replica that leads; `checkpoint`: the values in replication-offset-checkpoint, else 0."""


class CleanerError(Exception):
    """The directory could not be started, stepped through or stopped; contains Kafka's message."""


@dataclass(frozen=True)
class Round:
    """One cleaning of one partition.

    From *first_dirty* up to *first_uncleanable* was to be cleaned; *next_dirty* is the checkpoint afterwards, None when
    the round failed with *error*.  *map_entries*: keys in the map at its end.  *cpu_ns*: the CPU time of the thread.
    Other figures are Kafka's CleanerStats.
    """

    partition: str
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    ratio: float
    next_dirty: int | None = None
    map_messages: int = 0
    map_bytes: int = 0
    map_entries: int = 0
    messages_read: int = 0
    messages_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    invalid_messages: int = 0
    buffer_utilization: float = 0.0
    cpu_ns: int = field(default=0, compare=False)
    error: str = ""


class SegmentSeen(NamedTuple):
    """A segment as the broker sees it: *largest_timestamp_ms* is what min.compaction.lag.ms is held against."""

    base_offset: int
    size: int
    largest_timestamp_ms: int


class LastRecord(NamedTuple):
    """The entry that keeps a producer's last batch: *offset* of its last data, None when only a marker is known."""

    producer_id: int
    offset: int | None
    epoch: int


@dataclass(frozen=True)
class Candidate:
    """The decision about a compacted partition before any cleaning.

    *bound* is the first uncleanable offset before it is rounded down to a segment's base.
    """

    partition: str
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    ratio: float
    bound: int
    checkpoint_rewritten: bool
    delay_ms: int
    eligible: bool
    log_start: int
    last_stable: int
    high_watermark: int
    log_end: int
    segments: tuple[SegmentSeen, ...]
    producers: tuple[LastRecord, ...]


class CleanerOracle(Jvm):
    """Kafka's LogManager, LogCleanerManager and Cleaner in one JVM, one step after the other.

    A log dir is started as a broker starts it (recovery included, unless it was stopped cleanly) and stopped cleanly;
    producers that expired by the clock are forgotten at the start.  High watermarks are checkpointed as a broker does.
    Files that a broker deletes after a delay are deleted at once.  Topics without settings here have the broker's.
    """

    def __init__(self, version: str = NEWEST, seconds: float = 300) -> None:
        super().__init__(version, "CleanMany", seconds=seconds)

    def __enter__(self) -> CleanerOracle:
        return self

    def visit(
        self,
        log_dir: Path,
        steps: Iterable[Step],
        *,
        now_ms: int,
        topic_settings: Mapping[str, Mapping[str, str]],
        broker_settings: Mapping[str, str] = NOTHING,
        map_bytes: int | None = None,
        high_watermarks: HighWatermarks = "end",
    ) -> list[object]:
        """Start *log_dir*, do *steps*, stop; return the output of each step.

        *topic_settings* by topic, *broker_settings* by property; *map_bytes* is the memory of the map, 24 bytes a slot
        (None: Kafka's 128 MiB).  Raises CleanerError.
        """
        request = {
            "log_dir": str(log_dir),
            "now_ms": now_ms,
            "broker": dict(broker_settings),
            "topics": {topic: dict(settings) for topic, settings in topic_settings.items()},
            "high_watermarks": high_watermarks,
            "steps": list(steps),
        } | ({} if map_bytes is None else {"map_bytes": map_bytes})
        answer = self._ask(json.dumps(request))
        if answer is None:
            raise CleanerError(f"{log_dir}: no answer within {self.seconds} s, or the JVM ended")
        code, state, said, message = answer
        if code:
            raise CleanerError(f"{log_dir}: {state.decode()}: {message.decode()}")
        found: list[object] = json.loads(said)
        return found

    def clean(
        self,
        log_dir: Path,
        *,
        now_ms: int,
        topic_settings: Mapping[str, Mapping[str, str]],
        broker_settings: Mapping[str, str] = NOTHING,
        map_bytes: int | None = None,
        rounds: int | None = None,
        partition: str | None = None,
        high_watermarks: HighWatermarks = "end",
        retention: bool = False,
    ) -> list[Round]:
        """Clean the filthiest log again and again, as long as one is eligible or *rounds* times; return the rounds.

        *partition*: this directory alone.  *retention*: after each round also what cleanup.policy=delete, and a log
        start that was moved, take away, as a broker does it.  A partition that fails is not tried again.
        """
        said = self.visit(
            log_dir,
            [rounds_step(rounds, partition, retention=retention)],
            now_ms=now_ms,
            topic_settings=topic_settings,
            broker_settings=broker_settings,
            map_bytes=map_bytes,
            high_watermarks=high_watermarks,
        )
        return rounds_said(said[0])

    def select(
        self,
        log_dir: Path,
        *,
        now_ms: int,
        topic_settings: Mapping[str, Mapping[str, str]],
        broker_settings: Mapping[str, str] = NOTHING,
        high_watermarks: HighWatermarks = "end",
    ) -> dict[str, Candidate]:
        """Return what would be decided about each compacted partition, by its directory's name."""
        said = self.visit(
            log_dir,
            [{"do": "select"}],
            now_ms=now_ms,
            topic_settings=topic_settings,
            broker_settings=broker_settings,
            high_watermarks=high_watermarks,
        )
        return candidates_said(said[0])


# Steps of a visit, and the parsing of their output.


def clock_step(now_ms: int) -> Step:
    """Move the clock; producers that expire by it are forgotten only at the next start."""
    return {"do": "clock", "now_ms": now_ms}


def append_step(partition: str, file: Path, position: int, size: int) -> Step:
    """Append batches as a follower does: offsets, times and epochs as they are, all of them in one segment.

    The segment's modification time becomes the clock's.  Print the log end.
    """
    return {"do": "append", "partition": partition, "file": str(file), "position": position, "size": size}


def roll_step(partition: str) -> Step:
    """Begin a new segment; print its base offset."""
    return {"do": "roll", "partition": partition}


def watermark_step(partition: str, offset: int) -> Step:
    """Move the high watermark; print its new value."""
    return {"do": "watermark", "partition": partition, "offset": offset}


def log_start_step(partition: str, offset: int) -> Step:
    """Move the log start, as DeleteRecords does; not beyond the high watermark.  Print whether it moved."""
    return {"do": "log start", "partition": partition, "offset": offset}


def select_step() -> Step:
    """Ask what would be decided about each compacted partition; read it with candidates_said."""
    return {"do": "select"}


def rounds_step(rounds: int | None = None, partition: str | None = None, *, retention: bool = False) -> Step:
    """Clean as CleanerOracle.clean does; read it with rounds_said."""
    step: Step = {"do": "rounds", "most": ALL_ROUNDS if rounds is None else rounds, "retention": retention}
    return step if partition is None else step | {"partition": partition}


def force_step(partition: str, first_dirty: int, first_uncleanable: int) -> Step:
    """Clean one round over a range of one's own, eligible or not; *first_uncleanable* is the base of a segment.

    Parse its output with round_said.
    """
    return {"do": "force", "partition": partition, "first_dirty": first_dirty, "first_uncleanable": first_uncleanable}


def retain_step() -> Step:
    """Delete segments of compacted logs by age, size and log start; print their number."""
    return {"do": "retain"}


def delete_due_step() -> Step:
    """Delete the due segments of every log; print the base offsets of the remaining ones, by directory."""
    return {"do": "delete due"}


def round_said(said: object) -> Round:
    """Return the round in the output of a force step."""
    assert isinstance(said, dict)
    return Round(**said)


def rounds_said(said: object) -> list[Round]:
    """Return the rounds in the output of a rounds step."""
    assert isinstance(said, list)
    return [round_said(each) for each in said]


def candidates_said(said: object) -> dict[str, Candidate]:
    """Return the output of a select step, by partition."""
    assert isinstance(said, list)
    found = {}
    for each in said:
        each["segments"] = tuple(SegmentSeen(*segment) for segment in each["segments"])
        lasts = sorted(each["producers"])
        each["producers"] = tuple(LastRecord(id_, None if at < 0 else at, epoch) for id_, at, epoch in lasts)
        found[each["partition"]] = Candidate(**each)
    return found
