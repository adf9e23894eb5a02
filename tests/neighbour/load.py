"""A real broker in a memory cgroup with a producer, and a consumer that lags behind; and klog beside them.

with Load(folder, data, limit) as load:
    load.phase(30)                              the broker alone
    load.phase(30, ("klog", "verify", data))    klog runs again and again
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import NamedTuple

from tests.brokers import clients, kafka
from tests.brokers.raw import Raw
from tests.neighbour.cgroup import MemoryCgroup
from tests.neighbour.page_cache import forget
from tests.neighbour.pages import MIB, Sizes
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record

TOPIC = "orders"
_SEGMENTS = {"segment.bytes": "268435456", "retention.bytes": "1610612736", "file.delete.delay.ms": "1000"}
_RETENTION = {"log.retention.check.interval.ms": "2000", "log.initial.task.delay.ms": "2000"}
_RECORDS, _RECORD_BYTES = 100, 1000
_PRODUCES, _FETCHES = 200, 20
"""Requests a second: of 100 KB and of 1 MiB, 20 MB/s each."""


class Phase(NamedTuple):
    """The measured figures of one phase: bytes that the broker read from disks, 99th percentiles in milliseconds, and
    how often klog ran."""

    disk_bytes: int
    produce_ms: float
    fetch_ms: float
    runs: int


class Load:
    """The broker, its clients, and the segments below *data*, which are not the broker's and are read by klog."""

    def __init__(self, folder: Path, data: Path, limit: int, lag: int) -> None:
        self._data, self._open = data, ExitStack()
        self._room = self._open.enter_context(MemoryCgroup(limit))
        self._broker = kafka.Cluster(kafka.NEWEST, folder, settings=_RETENTION, inside=self._room.inside)
        value = Random(1).randbytes(_RECORD_BYTES)
        self._batch = encode.batch([Record(offset, 0, None, value) for offset in range(_RECORDS)])
        self._lag = lag // len(self._batch)
        self._produced = self._fetched = 0
        """Batches."""

    def __enter__(self) -> Load:
        try:
            self._open.enter_context(self._broker)
            clients.create(self._broker.bootstrap, {TOPIC: _SEGMENTS})
            self._producer, self._consumer = (self._open.enter_context(Raw(self._broker.bootstrap)) for _ in range(2))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    def _produce(self) -> None:
        error, _ = self._producer.produce_at(TOPIC, 0, self._batch)
        assert error == 0
        self._produced += 1

    def _fetch(self) -> None:
        (answer,) = self._consumer.fetch(TOPIC, [(0, self._fetched * _RECORDS, MIB)])
        assert answer.error == 0
        self._fetched += len(answer.records) // len(self._batch)

    def _disk_bytes(self) -> int:
        """Return the bytes that the broker has read from disks; `blkio` of version 1 counts only under a limit."""
        return int(Path(f"/proc/{self._broker.process}/io").read_text().split("read_bytes: ")[1].split()[0])

    def phase(self, seconds: float, klog: Sequence[str | Path] = ()) -> Phase:
        """Measure for so many seconds; if there is a *klog* command, it runs again and again, from a cold cache.

        Before that, the pages between producer and consumer become resident, however the last phase left them.
        """
        for _ in range(self._lag):
            self._produce()
        self._fetched = self._produced - self._lag
        before, end = self._disk_bytes(), time.monotonic() + seconds
        produces, fetches = _Steady(self._produce, _PRODUCES, end), _Steady(self._fetch, _FETCHES, end)
        runs = 0
        while klog and time.monotonic() < end:
            forget(self._data)
            words = self._room.inside(*klog)
            subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            runs += 1
        percentiles = [steady.percentile_ms() for steady in (produces, fetches)]
        return Phase(self._disk_bytes() - before, percentiles[0], percentiles[1], runs)


class _Steady:
    """Calls *step* so many times a second until *end*, in a thread, and measures each from when it was due.

    A step that is late because the one before it took long counts as long.
    """

    def __init__(self, step: Callable[[], None], rate: int, end: float) -> None:
        self._step, self._rate, self._end = step, rate, end
        self._seconds: list[float] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while due < self._end:
                time.sleep(max(0.0, due - time.monotonic()))
                self._step()
                self._seconds.append(time.monotonic() - due)
                due += 1 / self._rate
        except Exception as error:
            self._error = error

    def percentile_ms(self) -> float:
        """Wait for the end; return the 99th percentile."""
        self._thread.join()
        if self._error:
            raise self._error
        return 1000 * quantiles(self._seconds, n=100)[-1]


ALONE = "the broker alone"
BROKER_SIZES = Sizes(data=6144 * MIB, broker=512 * MIB, limit=2048 * MIB)
ROUNDS, SECONDS = 5, 20


def beside(folder: Path, data: Path, commands: Mapping[str, Sequence[str | Path]]) -> dict[str, list[Phase]]:
    """Return the phases of the broker alone and beside each command, in turn, round after round."""
    folder.mkdir()
    with Load(folder, data, BROKER_SIZES.limit, BROKER_SIZES.broker) as load:
        load.phase(SECONDS / 2)  # its compiler is busy
        phases: dict[str, list[Phase]] = {name: [] for name in (ALONE, *commands)}
        for turn in range(ROUNDS):
            for name in list(phases)[:: -1 if turn % 2 else 1]:
                phases[name].append(load.phase(SECONDS, commands.get(name, ())))
        return phases
