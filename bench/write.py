"""`klog write` beside its peers: aiokafka's encoder, klog's own dump, the codecs, and memcpy."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

from bench.installed import child
from bench.jobs import Bench, python, seconds
from bench.measure import Command, run
from bench.table import Row

RECORDS = 2_000_000
ENCODER = "aiokafka's encoder"
_MAKE = """
import sys
with open(sys.argv[1], "w") as file:
    for i in range(int(sys.argv[2])):
        file.write('{"topic":"t","partition":0,"offset":%d,"timestamp":%d,"key":"key-%06d","value":"%s","headers":[]}\\n'
                   % (i, 1_700_000_000_000 + i, i % 100_000, "x" * 90))
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


def write(bench: Bench) -> Iterator[Row]:
    """JSON lines, Parquet, a log, and one of the codecs; all into new log dirs."""
    count = RECORDS // bench.scale
    lines, parquet, log_dir = (bench.file(name) for name in ("write.jsonl", "write.parquet", "written"))
    _clear(bench)
    run(python(_MAKE, lines, str(count)))
    run(_write(bench, lines, log_dir))
    run(Command([*bench.klog, "dump", log_dir, "--output", "parquet", "--to", parquet]))
    log = os.path.join(log_dir, "t-0", "0" * 20 + ".log")
    race = bench.race(
        [lines, parquet, log],
        {
            "start": bench.start,
            "dump": bench.dump("--output", "jsonl", os.path.dirname(log)),
            "JSON lines": _write(bench, lines, bench.file("out.1")),
            "Parquet": _write(bench, parquet, bench.file("out.2")),
            "pyarrow alone": python("import sys, pyarrow.parquet as p; p.read_table(sys.argv[1])", parquet),
            ENCODER: Command([bench.peers, child("encode.py"), str(count)]),
            "log": _write(bench, os.path.dirname(log), bench.file("out.3")),
            "memcpy": Command([sys.executable, child("memory.py")]),
            "zstd": _write(bench, lines, bench.file("out.4"), "--codec", "zstd"),
            "zstd alone": python(_COMPRESS, log, "zstd"),
        },
        3,
    )
    told = f"{count} records of 100 bytes, printed against written: {seconds(race, 'dump', 'JSON lines')}"
    yield Row("write, JSON lines", told, race.cpu_s("dump") / race.cpu_s("JSON lines"), at_least=0.5)
    told = f"the encoder, which writes no file, against all: {seconds(race, 'Parquet', ENCODER)}"
    yield Row("write, Parquet", told, race.cpu_s(ENCODER) / race.cpu_s("Parquet"), at_least=1.5)
    size, own_s = os.path.getsize(log), race.cpu_s("log") - race.cpu_s("start")
    copied = race.number("memcpy")
    told = f"{size >> 20} MiB: klog {size / own_s / 1e9:.2f} GB/s without its start, memcpy {copied / 1e9:.2f} GB/s"
    yield Row("write, a log", told, size / own_s / copied, at_least=0.35)
    both = race.cpu_s("zstd alone") + race.cpu_s("JSON lines")
    told = f"against the codec and the uncompressed job: {seconds(race, 'zstd', 'zstd alone', 'JSON lines')}"
    yield Row("write, zstd", told, race.cpu_s("zstd") / both, at_most=1.3)
    told = f"largest resident size, {count} records"
    yield Row("memory, write", told, race.peak_bytes("JSON lines") / 1e6, "MB", at_most=64 + 40)
    _clear(bench)


def _write(bench: Bench, path: str, to: str, *words: str) -> Command:
    """Return a write into a new log dir, which is removed first."""
    shell = 'rm -rf "$1"; shift; exec "$@"'
    return Command(["sh", "-c", shell, "sh", to, *bench.klog, "write", path, "--to", to, "--quiet", *words], "null")


def _clear(bench: Bench) -> None:
    for name in ("written", "out.1", "out.2", "out.3", "out.4"):
        shutil.rmtree(bench.file(name), ignore_errors=True)
    for name in ("write.jsonl", "write.parquet"):
        if os.path.exists(bench.file(name)):
            os.unlink(bench.file(name))
