"""`klog remote verify`, `fetch`, `dump --remote` and `lookup --remote` beside the same bytes as a local log."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import join, quote

from bench.installed import HERE, child
from bench.jobs import Bench
from bench.measure import Command
from bench.table import Row

_CHUNK_BYTES = 4 << 20
_WHOLE = 1 << 31
_FETCHED = 4
"""Segments of 1 GiB that are fetched."""
_OBJECTS, _OBJECT_BYTES = 128, 32 << 20
"""Segments in a bucket, as many bytes as above, and the size of each."""


def remote(bench: Bench) -> Iterator[Row]:
    """One segment in each layout, and four that are fetched."""
    folder = bench.file("remote")
    _made(bench, folder, 1, _WHOLE, _CHUNK_BYTES)
    yield from _read(bench, folder)
    yield from _lookup(bench, folder)
    _made(bench, folder, _FETCHED)
    yield from _fetch(bench, folder)
    _made(bench, folder, _OBJECTS, _OBJECT_BYTES)
    yield from _from_s3(bench, folder)
    shutil.rmtree(folder)


def _made(bench: Bench, folder: str, count: int, limit: int = _WHOLE, *chunk: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    numbers = map(str, (count, limit, *chunk))
    words = [sys.executable, child("remotetier.py"), folder, bench.log("topic"), *numbers]
    subprocess.run(
        words, check=True, cwd=os.path.dirname(HERE), env={**os.environ, "PYTHONPATH": os.path.dirname(HERE)}
    )


def _logs(folder: str) -> list[str]:
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".log")]


def _mib(folder: str) -> str:
    return f"{sum(map(os.path.getsize, _logs(folder))) >> 20} MiB"


def _read(bench: Bench, folder: str) -> Iterator[Row]:
    """Verify, and JSON lines."""
    tier, local, data = (f"{folder}/{name}" for name in ("tier", "local/topic-0", "data"))
    jsonl = ("--output", "jsonl", "--jobs", "1")
    (chunks,) = _logs(f"{folder}/aiven")
    commands = {
        "remote verify": Command([*bench.klog, "remote", "verify", data, "--remote", tier], "null"),
        "verify": bench.verify(local),
        "dump --remote": Command([*bench.klog, "dump", data, "--remote", tier, "-t", "topic", *jsonl], "null"),
        "dump": Command([*bench.klog, "dump", local, *jsonl], "null"),
        "dump of chunks": Command(
            [*bench.klog, "dump", data, "--remote", f"{folder}/aiven", "-t", "topic", *jsonl], "null"
        ),
        "zstd -d": Command([sys.executable, "-c", _DECOMPRESS, chunks], "null"),
    }
    race = bench.race([*_logs(f"{folder}/tier"), chunks], commands, bench.slow)
    cpu, told = race.cpu_s, _mib(f"{folder}/tier")
    text = f"{told}, 16 KiB batches: {cpu('remote verify'):.2f} s, klog verify of the local log {cpu('verify'):.2f} s"
    yield Row("remote verify", text, cpu("remote verify") / cpu("verify"), at_most=1.5)
    text = f"JSON lines of {told}: {cpu('dump --remote'):.2f} s, of the local log {cpu('dump'):.2f} s"
    yield Row("dump --remote", text, cpu("dump --remote") / cpu("dump"), at_most=1.2)
    beside = cpu("dump") + cpu("zstd -d")
    text = f"chunks of 4 MiB, zstd: {cpu('dump of chunks'):.2f} s, local dump and decompression {beside:.2f} s"
    yield Row("dump --remote, aiven", text, cpu("dump of chunks") / beside, at_most=1.2)
    for name in ("remote verify", "dump --remote", "dump of chunks"):
        yield Row(f"memory, {name}", f"largest resident size, {told}", race.peak_bytes(name) / 1e6, "MB", at_most=150)


_DECOMPRESS = """
import sys, zstandard
with open(sys.argv[1], 'rb') as file:
    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    while reader.read(1 << 20):
        pass
"""


def _lookup(bench: Bench, folder: str) -> Iterator[Row]:
    records = bench.records(f"{folder}/local/topic-0/{0:020}.log")
    asked = ("--offset", str(records // 2))
    where = [f"{folder}/data", "-t", "topic", "-p", "0", "--remote"]
    commands = {
        "local": Command([*bench.klog, "lookup", f"{folder}/local/topic-0", *asked]),
        "remote": Command([*bench.klog, "lookup", *where, f"{folder}/tier", *asked]),
        "chunks": Command([*bench.klog, "lookup", *where, f"{folder}/aiven", *asked]),
    }
    race = bench.race((), commands)
    for name in ("remote", "chunks"):
        more = 1000 * (race.cpu_s(name) - race.cpu_s("local"))
        told = f"{name}, in the middle of {_mib(f'{folder}/tier')}: {race.cpu_s(name):.3f} s"
        yield Row("lookup --remote", f"{told}, local {race.cpu_s('local'):.3f} s", more, "ms more", at_most=20)


def _fetch(bench: Bench, folder: str) -> Iterator[Row]:
    tier, back = f"{folder}/tier", f"{folder}/back"
    logs = _logs(tier)
    fetch = [*bench.klog, "remote", "fetch", f"{folder}/data", "--remote", tier, "--to", back, "--quiet"]
    copy = f"mkdir {quote(back)} && cp {join(logs)} {quote(back)} && sync {quote(back)}/*"
    commands = {
        "fetch": Command(["sh", "-c", f"rm -rf {quote(back)} && sync {quote(folder)} && {join(fetch)}"], "null"),
        "cp": Command(["sh", "-c", f"rm -rf {quote(back)} && sync {quote(folder)} && {copy}"], "null"),
    }
    race = bench.race(logs, commands, bench.slow)
    ours, theirs = race.best_wall_s("fetch"), race.best_wall_s("cp")
    told = f"{_mib(tier)}, wall time, best of {race.runs('fetch')}: {ours:.2f} s, cp and sync {theirs:.2f} s"
    yield Row("remote fetch", told, ours / theirs, at_most=1.3)
    told = f"largest resident size, {_mib(tier)}"
    yield Row("memory, remote fetch", told, race.peak_bytes("fetch") / 1e6, "MB", at_most=150)


def _from_s3(bench: Bench, folder: str) -> Iterator[Row]:
    """Fetch from moto, beside a bare loop of obstore."""
    from tests.support.s3_server import environment, s3_server, upload

    back, tier = "/dev/shm/klog-bench-fetch", f"{folder}/tier"  # the loop writes nothing
    with s3_server() as url:
        upload(url, Path(f"{folder}/absent"), "tier")
        names = [f"{name}={value}" for name, value in environment(url).items() if name.startswith("AWS_")]
        loop = ["env", *names, sys.executable, child("s3loop.py"), "tier"]
        bench.race((), {"put": Command([*loop, tier], "null")}, 1)
        fetch = ["env", *names, *bench.klog, "remote", "fetch", f"{folder}/data", "--remote", "s3://tier", "--to", back]
        commands = {"fetch": Command([*fetch, "--quiet"], "null", back), "loop": Command(loop, "null")}
        race = bench.race((), commands, bench.slow)
    ours, theirs = race.best_wall_s("fetch"), race.best_wall_s("loop")
    shutil.rmtree(back)
    told = f"{_mib(tier)} from moto into memory, eight at once, wall time: {ours:.2f} s, obstore alone {theirs:.2f} s"
    yield Row("remote fetch, S3", told, theirs / ours, at_least=0.7)
    yield Row("memory, remote fetch, S3", "largest resident size", race.peak_bytes("fetch") / 1e6, "MB", at_most=200)
