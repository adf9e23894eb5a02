"""Log dirs as brokers leave them, made at random from a number: the input of klog and of Kafka's cleaner.

with CleanerOracle() as oracle:
    workload = make_workload(oracle, 17, folder)
    copy = shutil.copytree(workload.log_dir, …)
    rounds = workload.clean(oracle, copy)

Everything in the directory was written by Kafka itself: segments, indexes, snapshots, checkpoints.  The same number
makes the same bytes.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.commands.compact.oracle import (
    ENTRY_BYTES,
    Candidate,
    CleanerOracle,
    HighWatermarks,
    Round,
    Step,
    append_step,
    clock_step,
    log_start_step,
    retain_step,
    roll_step,
    rounds_step,
)
from tests.commands.compact.writing import HOUR_MS, SECOND_MS, Habits, Writer, random_habits

START_MS = 1_700_000_000_000
DAY_MS = 24 * HOUR_MS
SEGMENT_BYTES = (600, 2000, 6000, 30_000, 100_000, 300_000, 1_000_000)
INDEX_BYTES = (240, 4096, 65_536, 65_536)
CHECKPOINT, HIGH_WATERMARK = "cleaner-offset-checkpoint", "replication-offset-checkpoint"

SAMPLE = (12, 15, 17, 21, 25, 30, 47, 56, 59)
"""Numbers of workloads that have together all that a cleaner may meet; most others are as good."""


@dataclass(frozen=True)
class Workload:
    """A log dir, stopped cleanly, and the input of its cleaning at *now_ms*.

    *map_bytes*: memory of the key map, None for Kafka's default; *rounds*: the limit, None for all that are eligible.
    *habits* by partition, and *told*, the other actions, are for the reader of a failure.
    """

    number: int
    log_dir: Path
    now_ms: int
    topic_settings: Mapping[str, Mapping[str, str]]
    broker_settings: Mapping[str, str]
    map_bytes: int | None
    rounds: int | None
    high_watermarks: HighWatermarks
    habits: Mapping[str, Habits]
    told: tuple[str, ...]

    def clean(self, oracle: CleanerOracle, log_dir: Path) -> list[Round]:
        """Run Kafka's cleaner on *log_dir*, a copy; return its rounds."""
        return oracle.clean(
            log_dir,
            now_ms=self.now_ms,
            topic_settings=self.topic_settings,
            broker_settings=self.broker_settings,
            map_bytes=self.map_bytes,
            rounds=self.rounds,
            high_watermarks=self.high_watermarks,
        )

    def select(self, oracle: CleanerOracle, log_dir: Path) -> dict[str, Candidate]:
        """Ask what Kafka would decide about each partition of *log_dir*; started and stopped, nothing is cleaned."""
        return oracle.select(
            log_dir,
            now_ms=self.now_ms,
            topic_settings=self.topic_settings,
            broker_settings=self.broker_settings,
            high_watermarks=self.high_watermarks,
        )


def make_workload(oracle: CleanerOracle, number: int, folder: Path) -> Workload:
    """Make the workload of that *number*: its log dir is *folder*/data."""
    return _Making(oracle, number, folder).make()


def random_topic(random: Random, habits: Habits) -> dict[str, str]:
    """Return the settings of a compacted topic, those that matter to a cleaner."""
    min_lag_ms = random.choice((0, 0, 0, 0, SECOND_MS, HOUR_MS))
    # A broker refuses an append that does not fit into a segment.
    segment_bytes = [size for size in SEGMENT_BYTES if size >= habits.batch_bytes]
    settings = {
        "cleanup.policy": random.choice(("compact", "compact", "compact", "compact,delete")),
        "retention.ms": "-1",
        "internal.segment.bytes": str(random.choice(segment_bytes[:3])),
        "segment.index.bytes": str(random.choice(INDEX_BYTES)),
        "index.interval.bytes": random.choice(("0", "1", "300", "4096")),
        "delete.retention.ms": random.choice(("0", "1000", str(HOUR_MS), str(DAY_MS))),
        "min.compaction.lag.ms": str(min_lag_ms),
        "min.cleanable.dirty.ratio": random.choice(("0", "0", "0.01", "0.5")),
    }
    if random.random() < 0.2:
        settings["max.compaction.lag.ms"] = str(max(min_lag_ms, random.choice((1, SECOND_MS, DAY_MS))))
    if random.random() < 0.2:
        settings["max.message.bytes"] = "1000"
    if habits.append_time:
        settings["message.timestamp.type"] = "LogAppendTime"
    return settings


class _Making:
    """A workload while it is made: some runs of a broker, each with appends and perhaps some cleaning."""

    def __init__(self, oracle: CleanerOracle, number: int, folder: Path) -> None:
        self.oracle, self.number, self.folder = oracle, number, folder
        self.random = Random(number)
        self.log_dir, self.chunks = folder / "data", folder / "chunks"
        self.clock_ms = START_MS + number * DAY_MS
        self.told: list[str] = []
        self.topics: dict[str, dict[str, str]] = {}
        self.writers: dict[str, Writer] = {}
        self.broker: dict[str, str] = {}
        if self.random.random() < 0.4:
            self.broker["log.cleaner.io.buffer.size"] = self.random.choice(("400", "3000", "20000"))
        if self.random.random() < 0.2:
            self.broker["log.cleaner.io.buffer.load.factor"] = self.random.choice(("0.5", "0.75", "1.0"))

    def make(self) -> Workload:
        self.log_dir.mkdir(parents=True)
        for each in range(self.random.choice((1, 1, 2, 3))):
            self._add_topic(f"topic-{each}")
        runs = self.random.choice((1, 2, 2, 3, 4))
        for run in range(runs):
            # A log that was just cleaned needs no cleaning.
            self._run(run, cleans=self.random.random() < (0.7 if run + 1 < runs else 0.1))
        self._change_settings()
        ends = self._ends()
        high_watermarks = self._watermarks_back(ends)
        self._move_checkpoint(ends)
        self._settle_times()
        self.chunks.unlink(missing_ok=True)
        return Workload(
            number=self.number,
            log_dir=self.log_dir,
            now_ms=self.clock_ms,
            topic_settings=self.topics,
            broker_settings=self.broker,
            map_bytes=self._map_bytes(),
            rounds=self.random.choice((None, None, None, 1)),
            high_watermarks=high_watermarks,
            habits={partition: writer.habits for partition, writer in self.writers.items()},
            told=tuple(self.told),
        )

    def _change_settings(self) -> None:
        """Let operators have changed decisions since the topics were written; seldom."""
        for topic, settings in self.topics.items():
            if self.random.random() < 0.3:
                other = random_topic(self.random, self.writers[f"{topic}-0"].habits)
                names = ("internal.segment.bytes", "delete.retention.ms", "index.interval.bytes")
                settings |= {name: other[name] for name in names}
                self.told.append(f"{topic}: settings changed")

    def _add_topic(self, topic: str) -> None:
        habits = random_habits(self.random)
        self.topics[topic] = random_topic(self.random, habits)
        partition = f"{topic}-0"
        (self.log_dir / partition).mkdir()
        identity = base64.urlsafe_b64encode(self.random.randbytes(16)).decode().rstrip("=").replace("-", "A")
        (self.log_dir / partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {identity}\n")
        self.writers[partition] = Writer(self.random, habits, self.clock_ms, magic=habits.magics[0])

    def _run(self, run: int, *, cleans: bool) -> None:
        """Start the broker, append, sometimes clean, stop."""
        self.clock_ms += self.random.choice((SECOND_MS, 2 * HOUR_MS, 2 * DAY_MS))
        began_ms, steps = self.clock_ms, []
        for partition, writer in self.writers.items():
            magics = writer.habits.magics
            writer.magic = magics[min(run, len(magics) - 1)]
            writer.at_segment_start = True
            steps += self._appends(partition, writer)
        if cleans:
            steps += self._cleaning()
        self.oracle.visit(
            self.log_dir,
            steps,
            now_ms=began_ms,
            topic_settings=self.topics,
            broker_settings=self.broker,
            map_bytes=self._map_bytes(),
        )

    def _appends(self, partition: str, writer: Writer) -> list[Step]:
        steps: list[Step] = []
        for _ in range(self.random.choice((5, 20, 60))):
            writer.clock_ms = self.clock_ms
            steps += self._append(partition, writer.chunk(self.random.choice((1, 1, 3))))
            self.clock_ms = writer.clock_ms + self.random.choice((0, 0, 5, SECOND_MS))
            steps.append(clock_step(self.clock_ms))
            if self.random.random() < 0.05:
                steps.append(roll_step(partition))
                writer.at_segment_start = True
        if self.random.random() < 0.6:
            steps += self._append(partition, writer.settle(all_of_them=self.random.random() < 0.6))
        if self.random.random() < 0.8:
            steps.append(roll_step(partition))
        if self.random.random() < 0.15:
            at = self.random.randrange(writer.next_offset + 1)
            steps.append(log_start_step(partition, at))
            self.told.append(f"{partition}: log start moved to {at}")
        return steps

    def _append(self, partition: str, batches: list[bytes]) -> list[Step]:
        """Append them at once, if a broker could: the segment and its indexes must have room for all."""
        settings = self.topics[partition.rsplit("-", 1)[0]]
        roomy = int(settings["segment.index.bytes"]) == max(INDEX_BYTES)
        fits = sum(map(len, batches)) <= int(settings["internal.segment.bytes"])
        steps = []
        with open(self.chunks, "ab") as file:
            for chunk in [b"".join(batches)] if roomy and fits and batches else batches:
                steps.append(append_step(partition, self.chunks, file.tell(), len(chunk)))
                file.write(chunk)
        return steps

    def _cleaning(self) -> list[Step]:
        """Some rounds; then time for markers and tombstones to pass, and some more."""
        steps: list[Step] = [rounds_step(self.random.choice((None, 1)))]
        for _ in range(self.random.choice((0, 0, 2))):
            self.clock_ms += self.random.choice((SECOND_MS, 2 * DAY_MS))
            steps += [clock_step(self.clock_ms), rounds_step(1)]
        if self.random.random() < 0.3:
            steps.append(retain_step())
        self.told.append(f"cleaned before, at {self.clock_ms}")
        return steps

    def _map_bytes(self) -> int | None:
        slots = self.random.choice((None, None, None, 5, 20, 60, 200))
        return None if slots is None else slots * ENTRY_BYTES + self.random.randrange(ENTRY_BYTES)

    def _ends(self) -> dict[str, tuple[int, int]]:
        """Return log start and log end of each partition."""
        self.clock_ms += self.random.choice((0, SECOND_MS, 2 * HOUR_MS, 2 * DAY_MS))
        found = self.oracle.select(self.log_dir, now_ms=self.clock_ms, topic_settings=self.topics)
        return {partition: (each.log_start, each.log_end) for partition, each in found.items()}

    def _watermarks_back(self, ends: Mapping[str, tuple[int, int]]) -> HighWatermarks:
        """Let high watermarks lag behind, as those of a stopped follower do; seldom."""
        if self.random.random() > 0.15:
            return "end"
        self.told.append("high watermarks behind the log end")
        lagging = {partition: self.random.randrange(start, end + 1) for partition, (start, end) in ends.items()}
        _write_checkpoint(self.log_dir / HIGH_WATERMARK, lagging)
        return "checkpoint"

    def _move_checkpoint(self, ends: Mapping[str, tuple[int, int]]) -> None:
        """Put the cleaner's checkpoint where it never was, or nowhere; seldom."""
        file = self.log_dir / CHECKPOINT
        checkpoint = _read_checkpoint(file)
        for partition, (start, end) in ends.items():
            where = self.random.choice(("", "", "", "", "missing", "inside", "beyond", "below"))
            at = {
                "inside": self.random.randrange(start, end + 1),
                "beyond": end + self.random.choice((1, 1000)),
                "below": self.random.randrange(start + 1),
            }
            if where in at:
                checkpoint[partition] = at[where]
            elif where == "missing":
                checkpoint.pop(partition, None)
            if where:
                self.told.append(f"{partition}: cleaner's checkpoint {where} [{start}, {end}]")
        if checkpoint or file.exists():
            _write_checkpoint(file, checkpoint)

    def _settle_times(self) -> None:
        """Give this run's time to logs that have the time of day: those that nothing was appended to."""
        for log in self.log_dir.glob("*/*.log"):
            if log.stat().st_mtime > self.clock_ms / 1000:
                os.utime(log, ns=(self.clock_ms * 1_000_000,) * 2)


def _read_checkpoint(file: Path) -> dict[str, int]:
    lines = file.read_text().splitlines()[2:] if file.exists() else []
    return {"-".join(line.split()[:2]): int(line.split()[2]) for line in lines}


def _write_checkpoint(file: Path, offsets: Mapping[str, int]) -> None:
    lines = [f"{' '.join(partition.rsplit('-', 1))} {offset}" for partition, offset in sorted(offsets.items())]
    file.write_text("".join(f"{line}\n" for line in ("0", len(lines), *lines)))
