"""The job about compaction: rates, a broker's own cleaner on the same topic, memory, two partitions at once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from statistics import median

from bench.installed import child
from bench.jobs import CODECS, Bench, DisagreementError, seconds
from bench.measure import Command, Cost, Race, run
from bench.table import Row
from bench.threads import thread_row, twice

BROKERS = {"plain": 5, "lz4": 3}
"""The topics that Kafka's own cleaner cleans as well, and how many times less CPU klog is to need."""
MAP_BYTES = 16 << 20
RATES = {"plain": 6.0, "unique": None, "single": None, "transactions": None}
"""Topics, and the millions of records a CPU second that klog has to reach, or None."""


def compact(bench: Bench) -> Iterator[Row]:
    """`klog compact`: both passes and the digests of the output; and into a directory, against a cleaner."""
    folder = log_dirs(bench)
    for topic, target in RATES.items():
        race = bench.race(logs(folder, topic), _commands(bench, folder, topic), bench.slow)
        yield from _rates(race, topic, target)
    for codec in CODECS:
        yield _codec(bench, folder, codec)
    yield _many(bench, folder)
    yield from _memory(bench, folder)
    yield _two(bench, folder)
    for topic, factor in BROKERS.items():
        yield _cleaner(bench, folder, topic, factor)


def log_dirs(bench: Bench) -> str:
    folder = bench.file(f"compact-{bench.scale}")
    if not os.path.isdir(folder):
        bench.tell("making the log dirs to compact (once)")
        shutil.rmtree(f"{folder}.making", ignore_errors=True)
        run(Command([bench.peers, child("compactdirs.py"), bench.corpora, f"{folder}.making"]))
        os.rename(f"{folder}.making", folder)
    return folder


def logs(folder: str, topic: str) -> list[str]:
    place = os.path.join(folder, topic, f"{topic}-0")
    return sorted(os.path.join(place, name) for name in os.listdir(place) if name.endswith(".log"))


def _compact(bench: Bench, log_dir: str, *words: str, jobs: int = 1) -> Command:
    wanted = [*bench.klog, "compact", log_dir, "--policy", "compact", "--jobs", str(jobs), *words]
    return Command(wanted)


def _commands(bench: Bench, folder: str, topic: str) -> dict[str, Command]:
    return {
        "compact": _compact(bench, os.path.join(folder, topic), "--output", "json"),
        "start": _compact(bench, os.path.join(folder, "start"), "--output", "json"),
    }


def _told(race: Race) -> dict[str, int]:
    """Return the figures in the output of a compaction."""
    told: dict[str, int] = json.loads(race.output("compact"))
    return told


def _rates(race: Race, topic: str, target: float | None) -> Iterator[Row]:
    records = _told(race)["records_in"]
    rate = records / (race.cpu_s("compact") - race.cpu_s("start")) / 1e6
    told = f"{records} records: {seconds(race, 'compact', 'start')}"
    yield Row(f"compact, {topic}", told, rate, "M records/s", at_least=target)


def _codec(bench: Bench, folder: str, codec: str) -> Row:
    """The codec library's own calls: the input decompressed twice, and the remaining part compressed."""
    out = bench.file("compacted")
    shutil.rmtree(out, ignore_errors=True)
    run(_compact(bench, os.path.join(folder, codec), "--to", out))
    left = sorted(name for name in os.listdir(os.path.join(out, f"{codec}-0")) if name.endswith(".log"))[0]
    source = logs(folder, codec)
    commands = {
        **_commands(bench, folder, codec),
        "decompress": Command([sys.executable, child("codec.py"), codec, source[0]]),
        "compress": Command(
            [sys.executable, child("codec.py"), codec, os.path.join(out, f"{codec}-0", left), "compress"]
        ),
    }
    race = bench.race(source, commands, bench.slow)
    library_s = 2 * (len(source) - 1) * race.number("decompress") + race.number("compress")
    net_s = race.cpu_s("compact") - race.cpu_s("start")
    shutil.rmtree(out)
    told = f"klog {net_s:.3f} s less its start, library's calls alone {library_s:.3f} s ({race.runs('compact')})"
    return Row(f"compact, {codec}", told, net_s / library_s, at_most=1.5)


def _many(bench: Bench, folder: str) -> Row:
    log_dir = os.path.join(folder, "small")
    words = _compact(bench, log_dir).words
    # The output for thousands of partitions would enlarge this process, and with it the apparent need of later ones.
    commands = {**_commands(bench, folder, "start"), "compact": Command(words, "null"), "verify": bench.verify(log_dir)}
    race = bench.race(os.path.join(folder, "small", "meta.properties"), commands, bench.slow)
    partitions = sum(entry.is_dir() for entry in os.scandir(os.path.join(folder, "small")))
    told = f"{partitions} small partitions: {seconds(race, 'compact', 'verify')}"
    return Row("compact, many", told, 1000 * (race.cpu_s("compact") - race.cpu_s("start")) / partitions, "ms each")


def _memory(bench: Bench, folder: str) -> Iterator[Row]:
    log_dir = os.path.join(folder, "unique")
    words = ("--output", "json", "--map-memory", str(MAP_BYTES))
    race = bench.race(logs(folder, "unique"), {"compact": _compact(bench, log_dir, *words)}, 1)
    rounds = json.loads(race.output("compact"))["partitions"][0]["rounds"]
    keys = rounds[0]["keys"]
    told = f"a map of {MAP_BYTES >> 20} MiB, {len(rounds)} rounds: {race.cpu_s('compact'):.2f} s"
    yield Row("memory, compact", told, (race.peak_bytes("compact") - MAP_BYTES) / 1e6, "MB beside it", at_most=80)
    yield Row("map, full", f"{keys} keys in {MAP_BYTES} bytes", MAP_BYTES / keys, "bytes a key", at_most=27)


def _two(bench: Bench, folder: str) -> Row:
    """Two partitions on two threads; the control compacts a partition in each of two processes."""
    pair, plain = (os.path.join(folder, name) for name in ("pair", "plain"))
    one = _compact(bench, plain)
    commands = {
        "1 thread": _compact(bench, pair),
        "2 threads": _compact(bench, pair, jobs=2),
        "one": one,
        "both": twice(one),
        "start": _compact(bench, os.path.join(folder, "start")),
    }
    race = bench.race(logs(folder, "plain"), commands, bench.slow + 2)
    return thread_row("compact, two partitions", race, "one")


def _cleaner(bench: Bench, folder: str, topic: str, factor: int) -> Row:
    """The whole command with all that it writes, against the thread of a broker's cleaner."""
    source = os.path.join(folder, topic)
    out, copy = bench.file("compacted"), bench.file("cleaned")
    ours: list[Cost] = []
    theirs: list[float] = []
    left: set[int] = set()
    for turn in range(bench.slow):
        bench.tell(f"round {turn + 1} of {bench.slow}: a broker's cleaner cleans {topic}")
        shutil.rmtree(out, ignore_errors=True)
        ours.append(run(_compact(bench, source, "--to", out, "--output", "json")))
        left.add(json.loads(ours[-1].output)["records_out"])
        _copy(source, copy)
        done = subprocess.run([sys.executable, child("cleaner.py"), copy, topic], capture_output=True, text=True)
        if done.returncode:
            raise DisagreementError(f"Kafka's cleaner on {topic}: {done.stderr[-300:]}")
        theirs.append(float(done.stdout.split()[-1]))
        left.add(int(done.stdout.split()[-2]))
    for path in (out, copy):
        shutil.rmtree(path)
    if len(left) != 1:
        raise DisagreementError(f"klog and Kafka's cleaner leave different numbers of records: {left}")
    klog_s, thread_s = median(cost.cpu_s for cost in ours), median(theirs)
    told = f"klog {klog_s:.3f} s, whole process, into a directory; cleaner's thread {thread_s:.2f} s ({len(ours)})"
    return Row(f"compact, {topic}, cleaner", told, thread_s / klog_s, at_least=factor)


def _copy(source: str, target: str) -> None:
    """Copy a log dir, logs by a second name: they are read and removed, never written."""

    def put(one: str, other: str) -> None:
        (os.link if one.endswith(".log") else shutil.copy)(one, other)

    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, copy_function=put)
