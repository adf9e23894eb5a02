"""`klog dump --schemas` beside fastavro and json.dumps over the same payloads in memory, and `klog schemas list`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator

from bench.installed import child
from bench.jobs import Bench, ratio, seconds
from bench.measure import Command
from bench.table import Row

_RECORDS = 1_000_000
_SCHEMAS = 20_000


def schemas(bench: Bench) -> Iterator[Row]:
    """A million Avro values of 64 bytes as JSON lines; twenty thousand schemas listed."""
    yield from _dump(bench)
    yield from _list(bench)


def _dump(bench: Bench) -> Iterator[Row]:
    folder, count = bench.file("schemas"), str(_RECORDS // bench.scale)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    values, log_dir = child("schemavalues.py"), f"{folder}/data"
    bench.race((), {"made": Command([sys.executable, values, "make", folder, count])}, 1)
    write = [*bench.klog, "write", f"{folder}/records.jsonl", "--to", log_dir, "--quiet"]
    bench.race((), {"written": Command(write)}, 1)
    log = f"{log_dir}/orders-0/{0:020}.log"
    decoded = ["--output", "jsonl", "--schemas", "auto"]
    race = bench.race(
        log,
        {
            "klog": bench.dump(log, *decoded),
            "start": bench.dump(log, *decoded, "--limit", "1"),
            "peer": Command([sys.executable, values, "avro", folder, count], "null"),
            "peer start": Command([sys.executable, values, "avro", folder, "0"], "null"),
            "bytes": bench.dump(log, "--output", "jsonl"),
        },
    )
    told = f"starts taken off: {seconds(race, 'klog', 'peer', 'start', 'peer start')}"
    klog_s = race.cpu_s("klog") - race.cpu_s("start")
    peer_s = race.cpu_s("peer") - race.cpu_s("peer start")
    yield Row("dump --schemas, Avro", f"rate of fastavro and json.dumps, {told}", ratio(peer_s, klog_s), at_least=0.8)
    beside = race.peak_bytes("klog") - race.peak_bytes("bytes")
    yield Row("memory, dump --schemas", "beyond the same dump of bytes", beside / 1e6, "MB", at_most=100)
    shutil.rmtree(folder)


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
