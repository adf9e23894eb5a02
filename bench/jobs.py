"""The jobs: the commands to run, and the ratios between them."""

from __future__ import annotations

import filecmp
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.installed import child
from bench.measure import Command, Race, count_lines, discard
from bench.table import Row
from bench.threads import thread_row, twice

CODECS = ("zstd", "gzip", "lz4", "snappy")
PRINT_ALL = ("--deep-iteration", "--print-data-log")
JSONL = ("--output", "jsonl")
TOTALS = (
    "import sys, klog; t = klog.Segment(sys.argv[1]).totals(deep={}); print(t.batches, t.records, t.bytes, t.damaged)"
)
MANY = 100_000
PLACED = 10_000
VERIFY = "import sys, klog; print(len(klog.verify_partition(klog.Partition(sys.argv[1])).findings))"
SEGMENT_START = "import klog; klog.Segment"
# As in klog: without it numpy, which pyarrow imports, starts a thread that spins.
PARQUET_START = "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; import pyarrow.parquet"


class DisagreementError(Exception):
    """Two programs that did the same work had different results; their times prove nothing."""


@dataclass(frozen=True)
class Bench:
    """The needs of every job: the corpora, the contestants' command lines, the number of rounds.

    *scale* divides the sizes; brokers run only if it is 1.  *slow* is the number of rounds of commands that take
    seconds.  *run* runs the races.
    """

    corpora: str
    scratch: str
    klog: list[str]
    peers: str
    kafka: list[str]
    scale: int
    rounds: int
    slow: int
    tell: Callable[[str], None]
    run: Callable[[Mapping[str, Command], int, str | Sequence[str], Callable[[str], None]], Race] = Race

    def log(self, name: str) -> str:
        """Return the path of the segment of corpus *name*; ``first/NAME`` has one batch."""
        return os.path.join(self.corpora, name + "-0", "0" * 20 + ".log")

    def race(self, over: str | Sequence[str], commands: Mapping[str, Command], rounds: int = 0) -> Race:
        """Run *commands* in turn, *rounds* times (the usual number if 0), with the files *over* in the page cache."""
        return self.run(commands, rounds or self.rounds, over, self.tell)

    def totals(self, path: str, deep: bool = False) -> Command:
        """Return klog's library walking *path*: CRC of every batch, *deep* also every record."""
        return python(TOTALS.format(deep), path)

    @property
    def start(self) -> Command:
        """Return the start of a command, options parsed and nothing done: once written, ``--version`` needs no
        parser."""
        return Command([*self.klog, "--version", "--version"])

    def dump(self, *words: str, sink: str = "null", target: str = "", at_most: int = 1000, jobs: int = 1) -> Command:
        """Return ``klog dump`` on *jobs* threads (0: klog's own default)."""
        threads = ("--jobs", str(jobs)) if jobs else ()
        return Command([*self.klog, "dump", *words, *threads], sink, target, at_most)

    def verify(self, path: str, *words: str, jobs: int = 1, codes: tuple[int, ...] = (0,)) -> Command:
        """Return ``klog verify``; it fails when something is found, unless that is among the exit *codes*."""
        return Command([*self.klog, "verify", path, *words, "--jobs", str(jobs)], "null", codes=codes)

    def recover(self, path: str, *words: str, jobs: int = 1, codes: tuple[int, ...] = (0,)) -> Command:
        """Return ``klog recover`` on *jobs* threads (0: klog's own default)."""
        threads = ("--jobs", str(jobs)) if jobs else ()
        return Command([*self.klog, "recover", path, *words, *threads], "null", codes=codes)

    def kafka_dump(self, path: str, *words: str, sink: str = "null", target: str = "") -> Command:
        """Return Kafka's own dump tool on *path*."""
        return Command([*self.kafka, "--files", path, *words], sink, target, self.slow)

    def peer(self, name: str, job: str, path: str, *words: str) -> Command:
        """Return a peer library walking *path*."""
        return Command([self.peers, child("peer.py"), name, job, path, *words], at_most=self.slow)

    def records(self, path: str) -> int:
        """Return how many records *path* has, as klog counts them."""
        return int(self.race(path, {"klog": self.totals(path, deep=True)}, 1).output("klog").split()[1])

    def file(self, name: str) -> str:
        """Return the path of a scratch file."""
        return os.path.join(self.scratch, name)


def python(code: str, *words: str) -> Command:
    """Return klog's interpreter running *code*."""
    return Command([sys.executable, "-c", code, *words])


def seconds(race: Race, *names: str) -> str:
    """Return the medians of *names* as text, with the number of runs behind each."""
    return ", ".join(f"{name} {race.cpu_s(name):.3f} s ({race.runs(name)})" for name in names)


def ratio(above_s: float, below_s: float) -> float | None:
    """Return one net time over another; None if the rest after the start is too short."""
    return above_s / below_s if min(above_s, below_s) > 0.002 else None


def same(race: Race, name: str, other: str, words: slice) -> None:
    """Hold two outputs against each other.  DisagreementError when the *words* of their lines differ."""
    ours, theirs = race.output(name).split()[words], race.output(other).split()[words]
    if ours != theirs:
        raise DisagreementError(f"{name} found {' '.join(ours)}, {other} found {' '.join(theirs)}")


def undamaged(race: Race, name: str) -> None:
    """DisagreementError when klog's totals report damage in a corpus that has none."""
    if race.output(name).split()[3] != "0":
        raise DisagreementError(f"{name} reports damage: {race.output(name)}")


def crc(bench: Bench) -> Iterator[Row]:
    """CRC of every batch of 16 KB: the library against the peers, the memory and Kafka's tool."""
    job, path = "CRC, 16 KB batches", bench.log("topic")
    race = bench.race(
        path,
        {
            "klog": bench.totals(path),
            "memcpy": Command([sys.executable, child("memory.py")]),
            "reading": Command([sys.executable, child("read.py"), path]),
            "aiokafka": bench.peer("aiokafka", "crc", path),
            "aiokafka fed windows": bench.peer("aiokafka", "crc", path, "windows"),
            "Kafka's dump tool": bench.kafka_dump(path),
            "klog dump": bench.dump("--files", path),
        },
    )
    undamaged(race, "klog")
    same(race, "klog", "aiokafka", slice(1))
    size, klog_s = os.path.getsize(path), race.cpu_s("klog")
    copied = race.number("memcpy")
    told = f"{size >> 20} MiB: " + seconds(race, "klog", "aiokafka")
    yield Row(job, told, race.cpu_s("aiokafka") / klog_s, at_least=5)
    yield Row(job, seconds(race, "klog", "aiokafka fed windows"), race.cpu_s("aiokafka fed windows") / klog_s)
    told = f"klog {klog_s:.3f} s, reading the file alone {race.number('reading'):.3f} s ({race.runs('reading')})"
    yield Row(job, told, klog_s / race.number("reading"))
    speeds = f"klog {size / klog_s / 1e9:.2f} GB/s, memcpy {copied / 1e9:.2f} GB/s ({race.runs('memcpy')})"
    yield Row(job, speeds, size / klog_s / copied, at_least=0.35)
    tool_s = race.cpu_s("Kafka's dump tool")
    yield Row(job, seconds(race, "klog", "Kafka's dump tool") + ", no flags", tool_s / klog_s, at_least=8)
    told = seconds(race, "klog dump", "Kafka's dump tool") + ", no flags, both print"
    yield Row(job, told, tool_s / race.cpu_s("klog dump"))


def single(bench: Bench) -> Iterator[Row]:
    """The same with batches of one record, where the work per batch counts."""
    job, path = "CRC, single-record batches", bench.log("single")
    peers = {"aiokafka": 8, "kafka-python": 30}
    commands = {name: bench.peer(name, "crc", path) for name in peers}
    commands["aiokafka fed windows"] = bench.peer("aiokafka", "crc", path, "windows")
    race = bench.race(path, {"klog": bench.totals(path), **commands, "Kafka's dump tool": bench.kafka_dump(path)})
    undamaged(race, "klog")
    for name, target in peers.items():
        same(race, "klog", name, slice(1))
        yield Row(job, seconds(race, "klog", name), race.cpu_s(name) / race.cpu_s("klog"), at_least=target)
    windows = "aiokafka fed windows"
    yield Row(job, seconds(race, "klog", windows), race.cpu_s(windows) / race.cpu_s("klog"))
    tool = "Kafka's dump tool"
    yield Row(job, seconds(race, "klog", tool) + ", no flags", race.cpu_s(tool) / race.cpu_s("klog"), at_least=30)


def verify(bench: Bench) -> Iterator[Row]:
    """The library's whole check of a partition against the peers' loops, which check batches only, and Kafka's tool."""
    for corpus, name, targets in (
        ("topic", "16 KB batches", {"aiokafka": 5, "Kafka's dump tool": 8}),
        ("single", "single-record batches", {"Kafka's dump tool": 30}),
        ("large", "1 MB batches", {"Kafka's dump tool": 6}),
    ):
        path = bench.log(corpus)
        race = bench.race(
            path,
            {
                "klog": python(VERIFY, os.path.dirname(path)),
                "klog verify": bench.verify(path),
                "memcpy": Command([sys.executable, child("memory.py")]),
                "aiokafka": bench.peer("aiokafka", "crc", path),
                "Kafka's dump tool": bench.kafka_dump(path),
            },
        )
        if race.output("klog").strip() != "0":
            raise DisagreementError(f"klog finds something in {path}")
        job, klog_s, size = f"verify, {name}", race.cpu_s("klog"), os.path.getsize(path)
        for peer in ("aiokafka", "Kafka's dump tool"):
            yield Row(job, seconds(race, "klog", peer), race.cpu_s(peer) / klog_s, at_least=targets.get(peer))
            yield Row(job, seconds(race, "klog verify", peer), race.cpu_s(peer) / race.cpu_s("klog verify"))
        if corpus == "topic":
            copied = race.number("memcpy")
            speeds = f"klog {size / klog_s / 1e9:.2f} GB/s, memcpy {copied / 1e9:.2f} GB/s ({race.runs('memcpy')})"
            yield Row(job, speeds, size / klog_s / copied, at_least=0.35)
    yield from _verify_deep(bench)
    yield from _verify_many(bench)


def _verify_deep(bench: Bench) -> Iterator[Row]:
    path = bench.log("topic")
    one, two = (bench.verify(path, "--deep", jobs=jobs) for jobs in (1, 2))
    start = bench.verify(bench.log("first/plain"), "--deep")
    commands = {"1 thread": one, "2 threads": two, "both": twice(one), "start": start}
    race = bench.race(path, commands, max(9, bench.rounds))
    records = bench.records(path)
    told = f"{records / 1e6:.2f} M records: {seconds(race, '1 thread')}"
    yield Row("verify --deep", told, records / race.cpu_s("1 thread") / 1e6, "M rec/s", at_least=25)
    yield thread_row("verify --deep, threads", race)
    peak = race.peak_bytes("2 threads") / 1e6
    yield Row("memory, verify --deep", f"of {os.path.getsize(path) >> 20} MiB, 2 threads", peak, "MB", at_most=100)


def _verify_many(bench: Bench) -> Iterator[Row]:
    root = os.path.join(bench.corpora, "many")
    partitions = [entry.path for entry in os.scandir(root) if entry.is_dir()]
    files = len(partitions) * len(os.listdir(partitions[0]))
    commands = {"klog": bench.verify(root), "two processes": bench.verify(root, jobs=2), "start": bench.start}
    race = bench.race(os.path.join(root, "meta.properties"), commands, 3)
    told = f"{files} files of small partitions: {seconds(race, 'klog')} less start"
    yield Row("verify, many", told, 1e6 * (race.cpu_s("klog") - race.cpu_s("start")) / files, "µs a file", at_most=100)
    one_s, two_s, start_s = (race.best_wall_s(name) for name in commands)
    told = f"wall time, best of {race.runs('klog')}, less start: one process {one_s:.2f} s, two {two_s:.2f} s"
    yield Row("verify, many, processes", told, 1e6 * (two_s - start_s) / files, "µs a file", at_most=24)


def deep(bench: Bench) -> Iterator[Row]:
    """Every record decoded, nothing compressed."""
    job, path = "deep decode, plain", bench.log("topic")
    race = bench.race(
        path,
        {
            "klog": bench.totals(path, deep=True),
            "aiokafka": bench.peer("aiokafka", "deep", path),
            "aiokafka fed windows": bench.peer("aiokafka", "deep", path, "windows"),
        },
    )
    undamaged(race, "klog")
    same(race, "klog", "aiokafka", slice(2))
    records, klog_s = int(race.output("klog").split()[1]), race.cpu_s("klog")
    told = f"{records / 1e6:.2f} M records: {seconds(race, 'klog')}"
    yield Row(job, told, records / klog_s / 1e6, "M rec/s", at_least=25)
    yield Row(job, seconds(race, "klog", "aiokafka"), race.cpu_s("aiokafka") / klog_s, at_least=5)
    yield Row(job, seconds(race, "klog", "aiokafka fed windows"), race.cpu_s("aiokafka fed windows") / klog_s)


def deep_compressed(bench: Bench) -> Iterator[Row]:
    """Every record decompressed and decoded, against the codec library's own calls on the same payloads in memory."""
    beside = {"zstd": 2.2, "lz4": 4.2}
    for codec, target in (("zstd", 1.6), ("gzip", 1.6), ("lz4", 2.2), ("snappy", 2.2)):
        path = bench.log(codec)
        commands = {
            "klog": bench.totals(path, deep=True),
            "start": python(SEGMENT_START),
            "library": Command([sys.executable, child("codec.py"), codec, path]),
        }
        if codec in beside:
            commands["aiokafka"] = bench.peer("aiokafka", "deep", path)
        race = bench.race(path, commands, 2 * bench.rounds)
        undamaged(race, "klog")
        if codec in beside:
            same(race, "klog", "aiokafka", slice(2))
            told, quotient = seconds(race, "klog", "aiokafka"), race.cpu_s("aiokafka") / race.cpu_s("klog")
            yield Row(f"deep decode, {codec}", told, quotient, at_least=beside[codec])
        net_s, library_s = race.cpu_s("klog") - race.cpu_s("start"), race.number("library")
        told = f"klog {net_s:.3f} s less its start, library's calls alone {library_s:.3f} s ({race.runs('klog')})"
        yield Row(f"deep decode, {codec}", told, ratio(net_s, library_s), at_most=target)


def jsonl(bench: Bench) -> Iterator[Row]:
    """JSON lines of the large segment: rate into a file, the file system's part of it, the gain of a second thread."""
    path, out, plain = bench.log("topic"), bench.file("klog.out"), bench.file("write.out")
    records = bench.records(path)
    bench.race(path, {"klog": bench.dump(path, *JSONL, sink="file", target=out)}, 1)
    lines, size = count_lines(out), os.path.getsize(out)
    if lines != records:
        raise DisagreementError(f"klog dump wrote {lines} lines for {records} records")
    write = Command([sys.executable, child("write.py"), plain, str(size)], target=plain)
    into_file, into_null = bench.dump(path, *JSONL, sink="file", target=out), bench.dump(path, *JSONL)
    race = bench.race(path, {"file": into_file, "null": into_null, "write": write}, bench.slow + 2)
    discard(out)
    discard(plain)
    told = f"{records / 1e6:.2f} M records into {size / 1e9:.2f} GB: {seconds(race, 'file')}"
    yield Row("dump jsonl, file", told, records / race.cpu_s("file") / 1e6, "M rec/s", at_least=10)
    told = (
        f"the same into /dev/null {race.cpu_s('null'):.3f} s; writing so many bytes alone {race.number('write'):.3f} s"
    )
    yield Row("dump jsonl, /dev/null", told, records / race.cpu_s("null") / 1e6, "M rec/s")
    yield _threads(bench, path)


def _threads(bench: Bench, path: str) -> Row:
    one, two = bench.dump(path, *JSONL), bench.dump(path, *JSONL, jobs=2)
    commands = {"1 thread": one, "2 threads": two, "both": twice(one)}
    commands["start"] = bench.dump(bench.log("first/plain"), *JSONL)
    return thread_row("dump jsonl, threads", bench.race(path, commands, max(9, bench.rounds)))


def against_kafka(bench: Bench) -> Iterator[Row]:
    """Every record printed, against Kafka's tool on the same sink, each less its start on a file of one batch."""
    yield from _printed(bench, "plain", {"null": 16, "file": 12, "pipe": 22})
    for codec in CODECS:
        yield from _printed(bench, codec, {"null": 12})
    yield from _printed(bench, "large", {"null": 5})


def _printed(bench: Bench, corpus: str, targets: Mapping[str, float]) -> Iterator[Row]:
    path, first = bench.log(corpus), bench.log("first/" + corpus)
    formats: dict[str, tuple[str, ...]] = {"text": PRINT_ALL, "jsonl": JSONL}
    commands = {"Kafka start": bench.kafka_dump(first, *PRINT_ALL)}
    for kind, words in formats.items():
        commands[f"{kind} start"] = bench.dump(first, *words)
    for sink in targets:
        # Only the sink that is a file has a target: a run removes its own first.
        kafkas, *ours = (bench.file(name + ".out") if sink == "file" else "" for name in ("Kafka", *formats))
        commands[f"Kafka {sink}"] = bench.kafka_dump(path, *PRINT_ALL, sink=sink, target=kafkas)
        for (kind, words), target_file in zip(formats.items(), ours, strict=True):
            commands[f"{kind} {sink}"] = bench.dump(path, *words, sink=sink, target=target_file)
    race = bench.race(path, commands)
    if "file" in targets:
        _same_print(bench, path)
    for sink, target in targets.items():
        kafka_s = race.cpu_s(f"Kafka {sink}") - race.cpu_s("Kafka start")
        where = "/dev/null" if sink == "null" else sink
        for kind in formats:
            klog_s = race.cpu_s(f"{kind} {sink}") - race.cpu_s(f"{kind} start")
            runs = f"({race.runs(f'{kind} {sink}')}/{race.runs(f'Kafka {sink}')})"
            told = f"less start: klog {klog_s:.3f} s, Kafka's dump tool {kafka_s:.2f} s {runs}"
            yield Row(f"dump {kind}, {corpus}, {where}", told, ratio(kafka_s, klog_s), at_least=target)


def _same_print(bench: Bench, path: str) -> None:
    """Compare the files that the two wrote.  DisagreementError if they differ."""
    kafkas, text, json_lines = (bench.file(name + ".out") for name in ("Kafka", "text", "jsonl"))
    if not filecmp.cmp(kafkas, text, shallow=False):
        raise DisagreementError(f"the text of klog dump is not what Kafka's tool prints: compare {text} with {kafkas}")
    records = bench.records(path)
    if count_lines(json_lines) != records:
        raise DisagreementError(f"klog dump wrote {count_lines(json_lines)} JSON lines for {records} records")
    for path in (kafkas, text, json_lines):
        discard(path)


def time_index(bench: Bench) -> Iterator[Row]:
    """The check of a time index must grow with the file, not with its square."""
    job, check = "check .timeindex", "--verify-index-only"
    paths = {name: _time_index(bench, name) for name in ("single-0", "quarter-0", "tiny-0", "tiny-1", "first/single-0")}
    race = bench.race(
        bench.log("single"),
        {
            "klog, whole": bench.dump("--files", paths["single-0"], check),
            "klog, quarter": bench.dump("--files", paths["quarter-0"], check),
            "klog, start": bench.dump("--files", paths["first/single-0"], check),
            "Kafka, 4 MiB": bench.kafka_dump(paths["tiny-1"], check),
            "Kafka, 1 MiB": bench.kafka_dump(paths["tiny-0"], check),
            "Kafka, start": bench.kafka_dump(paths["first/single-0"], check),
        },
    )
    parts = (("klog", "whole", "quarter", "single-0", "quarter-0"), ("Kafka", "4 MiB", "1 MiB", "tiny-1", "tiny-0"))
    for who, large, small, large_name, small_name in parts:
        start_s = race.cpu_s(f"{who}, start")
        large_s, small_s = race.cpu_s(f"{who}, {large}") - start_s, race.cpu_s(f"{who}, {small}") - start_s
        sizes = os.path.getsize(paths[large_name]) / os.path.getsize(paths[small_name])
        entries = [os.path.getsize(paths[name]) // 12 for name in (large_name, small_name)]
        times = f"{entries[0]} entries {large_s:.3f} s, {entries[1]} entries {small_s:.3f} s"
        told = f"{who} less start: {times}; time per entry, the former over the latter"
        growth = ratio(large_s, small_s * sizes)
        yield Row(job, told, growth, at_most=1.3 if who == "klog" else None)


def _time_index(bench: Bench, name: str) -> str:
    return os.path.join(bench.corpora, name, "0" * 20 + ".timeindex")


def parquet(bench: Bench) -> Iterator[Row]:
    """An export, against pyarrow writing the same columns again from memory."""
    path, out, again = bench.log("plain"), bench.file("plain.parquet"), bench.file("again.parquet")
    race = bench.race(
        path,
        {
            "klog": bench.dump(path, "--output", "parquet", "--to", out),
            "pyarrow": Command([sys.executable, child("parquet.py"), out, again]),
            "klog's start": bench.start,
            "import": python(PARQUET_START),
            "bare": python("pass"),
        },
    )
    discard(out)
    discard(again)
    start_s = race.cpu_s("klog's start") + race.cpu_s("import") - race.cpu_s("bare")
    klog_s, writing_s = race.cpu_s("klog") - start_s, race.number("pyarrow")
    beside = f"writing alone {writing_s:.3f} s ({race.runs('klog')})"
    told = f"klog {klog_s:.3f} s less its start and pyarrow's import, {beside}"
    yield Row("Parquet", told, ratio(klog_s, writing_s), at_most=1.3)


def ten_records(bench: Bench) -> Iterator[Row]:
    """A range from the middle of the large segment, found through the index."""
    path = bench.log("topic")
    middle = bench.records(path) // 2
    words = [*bench.klog, "dump", path, *JSONL, "--from-offset", str(middle), "--to-offset", str(middle + 10)]
    commands = {"ten records": Command(words), "start": bench.start}
    race = bench.race(path, commands, 3 * bench.rounds)
    lines = race.output("ten records").splitlines()
    if len(lines) != 10 or not lines[0].startswith(f'{{"offset":{middle},'):
        raise DisagreementError(f"asked for 10 records from offset {middle}, got {len(lines)}: {lines[:1]}")
    beyond_ms = 1000 * (race.cpu_s("ten records") - race.cpu_s("start"))
    told = f"from the middle of {os.path.getsize(path) >> 20} MiB: " + seconds(race, "ten records", "start")
    yield Row("10 records", told, beyond_ms, "ms more", at_most=30)


def lookup(bench: Bench) -> Iterator[Row]:
    """One offset from the middle of the large segment, and a hundred thousand at once."""
    path, asked = bench.log("topic"), bench.file("offsets")
    records = bench.records(path)
    chance = random.Random(1)
    with open(asked, "w", encoding="ascii") as file:
        file.writelines(f"{chance.randrange(records)}\n" for _ in range(MANY))
    one = Command([*bench.klog, "lookup", path, "--offset", str(records // 2)])
    many = Command([*bench.klog, "lookup", path, "--batch", asked], at_most=bench.slow)
    commands = {
        "lookup": one,
        "start": bench.start,
        "Kafka's dump tool, start": bench.kafka_dump(bench.log("first/plain")),
        "many": many,
        "many as JSON lines": Command([*many.words, *JSONL], "null", at_most=bench.slow),
    }
    race = bench.race(path, commands, 3 * bench.rounds)
    discard(asked)
    answers = race.output("many").splitlines()
    if f"record    offset {records // 2}, " not in race.output("lookup") or len(answers) != MANY:
        raise DisagreementError(f"lookup of offset {records // 2} or of {MANY} offsets: {len(answers)} answers")
    size = f"{os.path.getsize(path) >> 20} MiB: "
    beyond_ms = 1000 * (race.cpu_s("lookup") - race.cpu_s("start"))
    yield Row("lookup", "in " + size + seconds(race, "lookup", "start"), beyond_ms, "ms more", at_most=25)
    tool_s = race.cpu_s("Kafka's dump tool, start")
    told = f"the same {beyond_ms:.1f} ms, the start of Kafka's dump tool alone {1000 * tool_s:.0f} ms"
    yield Row("lookup", told, 1000 * tool_s / beyond_ms, at_least=8)
    told = seconds(race, "lookup", "Kafka's dump tool, start") + ", starts of both included"
    yield Row("lookup", told, tool_s / race.cpu_s("lookup"))
    for name, target in (("many", 2.0), ("many as JSON lines", None)):
        told = f"{MANY} offsets in {size}{seconds(race, name)}"
        yield Row("lookup --batch", told, race.cpu_s(name), "s", at_most=target)


def assign(bench: Bench) -> Iterator[Row]:
    """The replicas of ten thousand partitions, with the start of the process."""
    brokers, racks = zip(*((str(node), f"{node}:{'abc'[node % 3]}") for node in range(30)), strict=True)
    place = (*bench.klog, "assign", "--brokers", ",".join(brokers), "--racks", ",".join(racks))
    size = ("--partitions", str(PLACED), "--replication", "3")
    commands = {
        "kraft": Command([*place, *size, "--seed", "1", "--output", "json"], "null"),
        "classic": Command([*place, *size, "--algorithm", "classic", "--start-index", "1", "--output", "json"], "null"),
    }
    race = bench.race(__file__, commands, 2 * bench.rounds)
    for name in commands:
        told = f"{PLACED} partitions of 3 replicas over 30 brokers in 3 racks: {seconds(race, name)}"
        yield Row(f"assign, {name}", told, race.best_wall_s(name), "s", at_most=1)


def start(bench: Bench) -> Iterator[Row]:
    """The cost of a start."""
    commands = {
        "klog --version": Command([*bench.klog, "--version"]),
        "import klog": python("import klog"),
        "python -c pass": python("pass"),
    }
    race = bench.race(__file__, commands, 3 * bench.rounds)
    for name, target in (("klog --version", 4.5), ("import klog", 2.5)):
        told = seconds(race, name, "python -c pass")
        yield Row("start", told, race.cpu_s(name) / race.cpu_s("python -c pass"), at_most=target)


def memory(bench: Bench) -> Iterator[Row]:
    """The most memory that a dump of the large segment ever holds, with klog's own number of threads."""
    path = bench.log("topic")
    formats: dict[str, tuple[str, ...]] = {"text": PRINT_ALL, "jsonl": JSONL}
    race = bench.race(path, {kind: bench.dump(path, *words, jobs=0) for kind, words in formats.items()}, 2)
    for kind in formats:
        told = f"largest resident size of 2 dumps of {os.path.getsize(path) >> 20} MiB, default threads"
        yield Row(f"memory, dump {kind}", told, race.peak_bytes(kind) / 1e6, "MB", at_most=80)


JOBS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "start": start,
    "assign": assign,
    "crc": crc,
    "single": single,
    "verify": verify,
    "deep": deep,
    "deep-compressed": deep_compressed,
    "jsonl": jsonl,
    "kafka": against_kafka,
    "timeindex": time_index,
    "parquet": parquet,
    "ten-records": ten_records,
    "lookup": lookup,
    "memory": memory,
}
