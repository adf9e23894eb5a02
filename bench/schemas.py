"""`klog dump` and `export` with `--schemas` beside decoders of the same payloads in memory, and `klog schemas list`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator

from bench.installed import child
from bench.jobs import Bench, ratio, seconds
from bench.measure import Command, Race
from bench.table import Row

_RECORDS = 1_000_000
_SCHEMAS = 20_000
_LINES = ("--output", "jsonl")


def schemas(bench: Bench) -> Iterator[Row]:
    """A million values of 64 bytes in each format, as JSON lines and columns; twenty thousand schemas listed."""
    folder, count = bench.file("schemas"), str(_RECORDS // bench.scale)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    values = child("schemavalues.py")
    bench.race((), {"made": Command([sys.executable, values, "make", folder, count])}, 1)
    write = [*bench.klog, "write", f"{folder}/records.jsonl", "--to", f"{folder}/data", "--quiet"]
    bench.race((), {"written": Command(write)}, 1)
    os.unlink(f"{folder}/records.jsonl")
    yield from _dump(bench, folder, ("Avro", "orders", "avro"), "fastavro and json.dumps")
    yield from _dump(bench, folder, ("Protobuf", "messages", "protobuf"), "upb, MessageToDict and json.dumps")
    yield from _texts(bench, folder)
    yield from _columns(bench, folder)
    yield from _cores(bench, folder)
    shutil.rmtree(folder)
    yield from _list(bench)


def _peer(bench: Bench, folder: str, way: str, *, is_start: bool = False) -> Command:
    count = "0" if is_start else str(_RECORDS // bench.scale)
    return Command([sys.executable, child("schemavalues.py"), way, folder, count], "null")


def _rate(race: Race) -> float:
    klog_s = race.cpu_s("klog") - race.cpu_s("start")
    return ratio(race.cpu_s("peer") - race.cpu_s("peer start"), klog_s)


def _dump(bench: Bench, folder: str, what: tuple[str, str, str], peer: str) -> Iterator[Row]:
    name, topic, way = what
    log = _log(folder, topic)
    race = bench.race(
        log,
        {
            "klog": bench.dump(log, *_LINES, "--schemas", "auto"),
            "start": bench.dump(log, *_LINES, "--schemas", "auto", "--limit", "1"),
            "peer": _peer(bench, folder, way),
            "peer start": _peer(bench, folder, way, is_start=True),
            "bytes": bench.dump(log, *_LINES),
        },
    )
    told = f"starts taken off: {seconds(race, 'klog', 'peer', 'start', 'peer start')}"
    yield Row(f"dump --schemas, {name}", f"rate of {peer}, {told}", _rate(race), at_least=0.8)
    beside = race.peak_bytes("klog") - race.peak_bytes("bytes")
    told = "beyond the same dump of bytes"
    yield Row(f"memory, dump --schemas, {name}", told, beside / 1e6, "MB", at_most=100)


def _texts(bench: Bench, folder: str) -> Iterator[Row]:
    log = _log(folder, "texts")
    commands = {"klog": bench.dump(log, *_LINES, "--schemas", "auto"), "bytes": bench.dump(log, *_LINES)}
    race = bench.race(log, commands)
    told = f"rate of the same dump without: {seconds(race, 'klog', 'bytes')}"
    yield Row("dump --schemas, JSON Schema", told, ratio(race.cpu_s("bytes"), race.cpu_s("klog")), at_least=0.3)


def _columns(bench: Bench, folder: str) -> Iterator[Row]:
    log, parquet = _log(folder, "orders"), ("--output", "parquet")
    race = bench.race(
        log,
        {
            "klog": bench.dump(log, *parquet, "--schemas", "auto"),
            "start": bench.dump(log, *parquet, "--schemas", "auto", "--limit", "1"),
            "peer": _peer(bench, folder, "table"),
            "peer start": _peer(bench, folder, "table", is_start=True),
            "bytes": bench.dump(log, *parquet),
        },
    )
    told = f"starts taken off: {seconds(race, 'klog', 'peer', 'start', 'peer start')}"
    yield Row("Parquet --schemas, Avro", f"rate of fastavro and pyarrow, {told}", _rate(race), at_least=0.8)
    beside = race.peak_bytes("klog") - race.peak_bytes("bytes")
    yield Row("memory, Parquet --schemas", "beyond the same file of bytes", beside / 1e6, "MB", at_most=100)


def _cores(bench: Bench, folder: str) -> Iterator[Row]:
    words = [*bench.klog, "export", f"{folder}/data", "-t", "orders", "--schemas", "auto", "--output", "jsonl"]
    commands = {jobs: Command([*words, "--jobs", jobs, "--to", f"{folder}/out-{jobs}"], "null") for jobs in ("1", "2")}
    race = bench.race(_log(folder, "orders"), commands, 1)
    one, two = race.best_wall_s("1"), race.best_wall_s("2")
    told = f"two processes beside one, on the clock: {one:.2f} and {two:.2f} s"
    yield Row("export --schemas, two cores", told, ratio(one, two))


def _log(folder: str, topic: str) -> str:
    return f"{folder}/data/{topic}-0/{0:020}.log"


def _list(bench: Bench) -> Iterator[Row]:
    path = bench.file("schemas.jsonl")
    count = _SCHEMAS // bench.scale
    with open(path, "w", encoding="ascii") as file:
        for number in range(count):
            field = {"name": f"f{number}", "type": ["null", "string"]}
            schema = {"type": "record", "name": f"R{number}", "fields": [{"name": "id", "type": "long"}, field]}
            key = {"keytype": "SCHEMA", "subject": f"s{number % 2000}", "version": number // 2000 + 1, "magic": 1}
            value = {
                "subject": key["subject"],
                "version": key["version"],
                "id": number + 1,
                "schema": json.dumps(schema),
            }
            file.write(json.dumps({"key": json.dumps(key), "value": json.dumps(value)}) + "\n")
    words = ["schemas", "list", path, "--output", "jsonl"]
    race = bench.race(path, {"list": Command([*bench.klog, *words], "null"), "start": bench.start})
    told = f"{count} schema records, beyond klog's start: {seconds(race, 'list', 'start')}"
    yield Row("schemas list", told, race.cpu_s("list") - race.cpu_s("start"), "s", at_most=1 / bench.scale)
    os.unlink(path)
