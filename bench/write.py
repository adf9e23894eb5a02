"""`klog write` beside its peers: aiokafka's encoder, klog's own dump, codecs, memcpy, a producer with its broker."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from statistics import median

from bench.broker import Broker, cpu_s
from bench.installed import child
from bench.jobs import Bench, python, seconds
from bench.measure import Command, discard, run
from bench.table import Row

RECORDS = 2_000_000
ENCODER = "aiokafka's encoder"
_MAKE = """
import sys
with open(sys.argv[1], "w") as file:
    for i in range(int(sys.argv[2])):
        file.write('{"topic":"t","partition":%d,"offset":%d,"timestamp":%d,"key":"key-%06d","value":"%s","headers":[]}\\n'
                   % (i % int(sys.argv[3]), i, 1_700_000_000_000 + i, i % 100_000, "x" * 90))
"""
_COMPRESS = """
import sys
from klog.formats.batch import Codec
from klog.formats.codec import Compressor
compress, size = Compressor().functions[Codec[sys.argv[2].upper()]], 0
with open(sys.argv[1], "rb") as log:
    while piece := log.read(16384):
        size += len(compress(piece, 2))
print(size)
"""
_COPY = """
import os, sys
from klog.kernel import crc32c
source, target = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
window = memoryview(bytearray(1 << 20))
while size := os.readv(source, [window]):
    crc32c(window[:size])
    os.write(target, window[:size])
os.fsync(target)
"""
PRODUCED = 2_000_000
MANY = 1000
"""Partitions that are open at once."""


def write(bench: Bench) -> Iterator[Row]:
    """JSON lines, Parquet, a log, and one of the codecs; all into new log dirs."""
    count = RECORDS // bench.scale
    lines, parquet, csv, log_dir = _made(bench, count)
    spread = bench.file("spread.jsonl")
    run(python(_MAKE, spread, str(count), str(MANY)))
    log = os.path.join(log_dir, "t-0", "0" * 20 + ".log")
    few, few_dir = bench.file("few.jsonl"), bench.file("few")
    run(python(_MAKE, few, "100", "1"))
    run(write_command(bench, few, few_dir))
    race = bench.race(
        [lines, parquet, csv, log, spread],
        {
            "start": write_command(bench, os.path.join(few_dir, "t-0"), bench.file("out.7")),
            "dump": bench.dump("--output", "jsonl", os.path.dirname(log)),
            "JSON lines": write_command(bench, lines, bench.file("out.1")),
            "Parquet": write_command(bench, parquet, bench.file("out.2")),
            "pyarrow alone": python("import sys, pyarrow.parquet as p; p.read_table(sys.argv[1])", parquet),
            ENCODER: Command([bench.peers, child("encode.py"), str(count)]),
            "log": write_command(bench, os.path.dirname(log), bench.file("out.3")),
            "CSV": write_command(bench, csv, bench.file("out.5")),
            "a thousand": write_command(bench, spread, bench.file("out.6"), "--partitions", str(MANY)),
            "loop": Command(
                [sys.executable, "-c", _COPY, log, bench.file("copied.log")], target=bench.file("copied.log")
            ),
            "bare": python("import klog.kernel"),
            "memcpy": Command([sys.executable, child("memory.py")]),
            "zstd": write_command(bench, lines, bench.file("out.4"), "--codec", "zstd"),
            "zstd alone": python(_COMPRESS, log, "zstd"),
        },
        3,
    )
    told = f"{count} records of 100 bytes, printed against written: {seconds(race, 'dump', 'JSON lines')}"
    yield Row("write, JSON lines", told, race.cpu_s("dump") / race.cpu_s("JSON lines"), at_least=0.5)
    yield Row("write, CSV", seconds(race, "CSV", "dump"), race.cpu_s("dump") / race.cpu_s("CSV"))
    told = f"the encoder, which writes no file, against all: {seconds(race, 'Parquet', ENCODER)}"
    yield Row("write, Parquet", told, race.cpu_s(ENCODER) / race.cpu_s("Parquet"), at_least=1.5)
    size, own_s = os.path.getsize(log), race.cpu_s("log") - race.cpu_s("start")
    copied = race.number("memcpy")
    klog = f"klog {size / own_s / 1e9:.2f} GB/s, less a write of 100 records"
    told = f"{size >> 20} MiB: {klog}; memcpy {copied / 1e9:.2f} GB/s"
    yield Row("write, a log", told, size / own_s / copied, at_least=0.35)
    loop_s = race.cpu_s("loop") - race.cpu_s("bare")
    told = f"a loop of read, CRC and write, each less its start: {loop_s:.3f} s; klog {own_s:.3f} s"
    yield Row("write, a log, loop", told, own_s / loop_s)
    both = race.cpu_s("zstd alone") + race.cpu_s("JSON lines")
    told = f"against the codec and the uncompressed job: {seconds(race, 'zstd', 'zstd alone', 'JSON lines')}"
    yield Row("write, zstd", told, race.cpu_s("zstd") / both, at_most=1.3)
    for name in ("JSON lines", "Parquet", "log", "a thousand"):
        batches_mb = (MANY if name == "a thousand" else 1) * 16384 / 1e6
        told = f"{name}: largest resident size, {count} records; pyarrow and the pages of it that decode are 50 MB"
        told = told if name == "Parquet" else told.split(";")[0]
        yield Row("memory, write", told, race.peak_bytes(name) / 1e6, "MB", at_most=64 + batches_mb)
    _clear(bench)


def write_and_produce(bench: Bench) -> Iterator[Row]:
    """JSON lines and Parquet beside Kafka's producer-perf-test and the broker that it sends to."""
    lines, parquet, _, _ = _made(bench, PRODUCED)
    broker = Broker(bench)
    produced_s = []
    words = [*bench.kafka[:-1], "org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--throughput", "-1"]
    try:
        bench.tell("making a log dir for a broker")
        broker.make({"t": 1})
        broker.start()
        for turn in range(bench.slow):
            bench.tell(f"round {turn + 1} of {bench.slow}: a producer and its broker")
            before_s = cpu_s(broker.process)
            size = ["--num-records", str(PRODUCED), "--record-size", "100"]
            sent = run(Command([*words, *size, "--bootstrap-server", broker.address], "null"))
            produced_s.append(sent.cpu_s + cpu_s(broker.process) - before_s)
    finally:
        broker.remove()
    commands = {
        "JSON lines": write_command(bench, lines, bench.file("out.1")),
        "Parquet": write_command(bench, parquet, bench.file("out.2")),
    }
    race = bench.race([lines, parquet], commands)
    for name, target in (("JSON lines", 10), ("Parquet", 20)):
        both_s = median(produced_s)
        told = f"{PRODUCED} records of 100 bytes: {seconds(race, name)}, producer-perf-test and broker {both_s:.2f} s"
        yield Row(f"write, {name}, producer", told, both_s / race.cpu_s(name), at_least=target)
    _clear(bench)


def _made(bench: Bench, count: int) -> tuple[str, str, str, str]:
    """Return JSON lines, Parquet, CSV and a log dir of the same records."""
    lines, parquet, csv = (bench.file(f"write.{kind}") for kind in ("jsonl", "parquet", "csv"))
    log_dir = bench.file("written")
    _clear(bench)
    run(python(_MAKE, lines, str(count), "1"))
    run(write_command(bench, lines, log_dir))
    for kind, path in (("parquet", parquet), ("csv", csv)):
        run(Command([*bench.klog, "dump", log_dir, "--output", kind, "--to", path]))
    return lines, parquet, csv, log_dir


def write_command(bench: Bench, path: str, to: str, *words: str) -> Command:
    """Return a write into a new log dir, which is removed first."""
    shell = 'rm -rf "$1"; shift; exec "$@"'
    return Command(["sh", "-c", shell, "sh", to, *bench.klog, "write", path, "--to", to, "--quiet", *words], "null")


def _clear(bench: Bench) -> None:
    for name in ("written", "few", *(f"out.{number}" for number in range(1, 8))):
        shutil.rmtree(bench.file(name), ignore_errors=True)
    for name in ("few.jsonl", "write.jsonl", "write.parquet", "write.csv", "spread.jsonl", "copied.log"):
        discard(bench.file(name))
