"""Contestants on Spark, in turn in one session: ``onspark.py MASTER ROUNDS JOB PATH …``; prints JSON.

    rows DIR TOPIC [BROKER PID]  all rows through the data source; batches made beforehand; Spark's own source, from
                        a broker whose CPU seconds are counted with it
    verify, deep, stats DIR …  klog's job; deep: verify that decodes all records
    export DIR SCRATCH  Parquet by klog's job, and by Spark's own writer
    compact DIR SCRATCH the latest values by klog's job, and by groupBy and max_by
    many DIR            all rows of many partitions; verify
    audit DIR           misrouted batches
    memory SCRATCH DIR …  the most memory that all rows of several log dirs, verify and stats need, and export and
                        compact of the first

``onspark.py alone DIR …`` does the work of the tasks of stats, without Spark.

The output for each contestant: CPU seconds of the whole tree of processes and wall seconds, medians, and its result.
Run by klog's interpreter; the first round warms up and does not count.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from statistics import median
from typing import Any

Contestant = Callable[[], object]
ALL = "count(*), sum(length(key)), sum(length(value)), sum(partition), max(offset), max(timestamp), max(timestampType)"
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
TASKS = 8
BROKER: list[str] = []
"""The process id of the broker: it is no child, and idle unless it is asked."""
TICKS = os.sysconf("SC_CLK_TCK")


def tree() -> dict[int, tuple[float, str]]:
    """Return the processes below this one, and itself: CPU seconds of each, its ended children in, and its name."""
    found: dict[int, tuple[int, float, str]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    head, _, rest = file.read().rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            found[int(name)] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS, head.partition("(")[2]
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _, _) in found.items() if parent in ours} - ours:
        ours |= more
    return {pid: found[pid][1:] for pid in ours if pid in found}


def cpu_s() -> float:
    return sum(seconds for seconds, _ in tree().values()) + (process_s(int(BROKER[0])) if BROKER else 0)


def process_s(process: int) -> float:
    with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13])) / TICKS


class Peak:
    """The most memory (bytes) that a worker and the JVM had at one time, by looking now and then."""

    def __init__(self) -> None:
        self.worker = self.jvm = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for pid, (_, name) in tree().items():
                size = 0 if pid == os.getpid() else peak_bytes(pid)
                if name.startswith("java"):
                    self.jvm = max(self.jvm, size)
                else:
                    self.worker = max(self.worker, size)

    def end(self) -> dict[str, int]:
        self._over.set()
        self._thread.join()
        return {"worker": self.worker, "jvm": self.jvm}


def peak_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def race(contestants: dict[str, Contestant], rounds: int) -> dict[str, dict[str, object]]:
    """Run all of them in turn, every other round backwards."""
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    results: dict[str, object] = {}
    for turn in range(rounds + 1):
        for name in list(contestants)[:: 1 if turn % 2 else -1]:
            cpu, wall = cpu_s(), time.perf_counter()
            results[name] = contestants[name]()
            wall = time.perf_counter() - wall
            time.sleep(0.3)  # workers count once their task is over
            if turn:
                costs[name].append((cpu_s() - cpu, wall))
    return {
        name: {"cpu": median(c for c, _ in of), "wall": median(w for _, w in of), "result": results[name]}
        for name, of in costs.items()
    }


def first_row(frame: Any) -> list[str]:
    return [str(value) for value in frame.selectExpr(*ALL.split(", ")).first()]


def rows(spark: Any, path: str, topic: str, broker: str = "", process: str = "") -> dict[str, Contestant]:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    BROKER.extend([process] if process else [])

    slices, total = _slices_and_rows(path, topic)

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(TASKS)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            from klog.jobs.spark_rows import RowQuery
            from klog.jobs.spark_rows import read as read_rows

            batch = max(islice(read_rows(slices[:1], RowQuery(columns=tuple(COLUMNS))), 20), key=len)
            for _ in range(-(-total // len(batch) // TASKS)):
                yield batch

    class Prebuilt(DataSource):
        @classmethod
        def name(cls) -> str:
            return "prebuilt"

        def schema(self) -> str:
            return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Prebuilt)
    contestants: dict[str, Contestant] = {
        "klog": lambda: first_row(spark.read.format("kafka-log").option("subscribe", topic).load(path)),
        "made beforehand": lambda: first_row(spark.read.format("prebuilt").load()),
    }
    if broker:
        kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", broker).option("minPartitions", str(TASKS))
        kafka = kafka.option("subscribe", topic)
        contestants["Kafka source"] = lambda: first_row(kafka.load())
    return contestants


def _slices_and_rows(path: str, topic: str) -> tuple[list[Any], int]:
    """Return the slices of the topic's logs, and the number of their rows."""
    from klog.data_dir.log_dir import LogDir
    from klog.jobs.slices import slice_partition
    from klog.jobs.spark_rows import RowQuery, read

    chosen = [partition for partition in LogDir(path).partitions if partition.topic == topic]
    found = [part for partition in chosen for part in slice_partition(partition)]
    return found, sum(len(batch) for batch in read(found, RowQuery(columns=("offset",))))


def partitions_of(*paths: str) -> list[Any]:
    from klog.data_dir.log_dir import LogDir
    from klog.partition.verify.verify import log_dir_facts

    log_dirs = [LogDir(path) for path in paths]
    return [(partition, log_dir_facts(log_dir)) for log_dir in log_dirs for partition in log_dir.partitions]


def verify(spark: Any, *paths: str, is_deep: bool = False) -> dict[str, Contestant]:
    from klog.base.progress import Silence
    from klog.jobs.verify import verify_in_tasks
    from klog.partition.verify.segment_pass import SurveyOptions
    from klog.spark.run import SparkRunner

    def run() -> int:
        found: list[Any] = []
        request = SurveyOptions(deep=is_deep)
        verify_in_tasks(SparkRunner(spark), partitions_of(*paths), request, Silence(), found.append)
        return sum(checked.totals.records for checked in found)

    return {"klog": run}


def deep(spark: Any, *paths: str) -> dict[str, Contestant]:
    return verify(spark, *paths, is_deep=True)


def stats(spark: Any, *paths: str) -> dict[str, Contestant]:
    from klog.base.progress import Silence
    from klog.jobs.stats import count_records
    from klog.log.reader import MAX_BATCH_BYTES
    from klog.spark.run import SparkRunner

    def run() -> int:
        partitions = [part for part, _ in partitions_of(*paths)]
        return sum(one.records for one in count_records(partitions, MAX_BATCH_BYTES, SparkRunner(spark), Silence()))

    return {"klog": run}


def audit(spark: Any, path: str) -> dict[str, Contestant]:
    from klog.base.progress import Silence
    from klog.commands.audit.audit import MEMORY_BYTES, AuditOptions, audit_misrouted
    from klog.commands.audit.audited_partitions import AuditQuery
    from klog.commands.audit.headers import AuditWorkers
    from klog.spark.run import SparkRunner

    def run() -> list[int]:
        workers = AuditWorkers(SparkRunner(spark), MEMORY_BYTES, Silence())
        found = audit_misrouted(AuditQuery([path]), AuditOptions(), workers)
        return [len(found.rows), found.totals.batches, peak_bytes(os.getpid())]

    return {"klog": run}


def many(spark: Any, path: str) -> dict[str, Contestant]:
    return {"rows": lambda: first_row(spark.read.format("kafka-log").load(path)), "verify": verify(spark, path)["klog"]}


def emptied(path: str) -> str:
    shutil.rmtree(path, ignore_errors=True)
    return path


def export(spark: Any, path: str, scratch: str) -> dict[str, Contestant]:
    from klog.base.progress import Silence
    from klog.jobs.export import ExportOptions, export_records
    from klog.spark.run import SparkRunner

    def ours() -> int:
        partitions, to = [part for part, _ in partitions_of(path)], emptied(os.path.join(scratch, "ours"))
        export_records(partitions, to, ExportOptions(""), "read_uncommitted", SparkRunner(spark), Silence())
        return int(spark.read.parquet(os.path.join(scratch, "ours")).count())

    def theirs() -> int:
        frame = spark.read.format("kafka-log").option("includeHeaders", "true").load(path)
        writer = frame.write.partitionBy("topic", "partition").option("compression", "zstd")
        writer.parquet(emptied(os.path.join(scratch, "theirs")))
        return int(spark.read.parquet(os.path.join(scratch, "theirs")).count())

    return {"klog": ours, "Spark's writer": theirs}


def compact(spark: Any, path: str, scratch: str) -> dict[str, Contestant]:
    from klog.base.progress import Silence
    from klog.jobs.export import ExportOptions, export_latest_values
    from klog.spark.run import SparkRunner

    def ours() -> int:
        partitions, to = [part for part, _ in partitions_of(path)], emptied(os.path.join(scratch, "ours"))
        export_latest_values(partitions, to, ExportOptions(""), SparkRunner(spark), Silence())
        return int(spark.read.parquet(os.path.join(scratch, "ours")).count())

    def theirs() -> int:
        frame = spark.read.format("kafka-log").load(path).where("key is not null")
        last = frame.groupBy("topic", "partition", "key").agg(_last())
        last.write.option("compression", "zstd").parquet(emptied(os.path.join(scratch, "theirs")))
        return int(spark.read.parquet(os.path.join(scratch, "theirs")).where("last.value is not null").count())

    return {"klog": ours, "groupBy": theirs}


def _last() -> Any:
    from pyspark.sql import functions

    return functions.max_by(functions.struct("value", "offset", "timestamp"), "offset").alias("last")


def alone(*paths: str) -> None:
    """Do the work of the tasks of `stats`, without Spark."""
    from klog.jobs.stats import StatsMerger, StatsOptions
    from klog.jobs.stats import stats as job

    partitions = [partition for partition, _ in partitions_of(*paths)]
    merger = StatsMerger(partitions)
    for result in job([partition.path for partition in partitions], StatsOptions(bytes(16))):
        merger.take(result)
    print(sum(one.records for one in merger.merged()))


def memory(spark: Any, scratch: str, *paths: str) -> dict[str, Contestant]:
    """Each with the most memory that it needs."""
    frame = spark.read.format("kafka-log").option("replicas", "all")
    some = paths[0]
    jobs: dict[str, Contestant] = {
        "rows": lambda: first_row(frame.load(list(paths))),
        "verify": verify(spark, *paths)["klog"],
        "stats": stats(spark, *paths)["klog"],
        "export": export(spark, some, scratch)["klog"],
        "compact": compact(spark, some, scratch)["klog"],
    }

    def watched(job: Contestant) -> Contestant:
        def run() -> object:
            peak = Peak()
            result = job()
            return {**peak.end(), "result": result}

        return run

    return {name: watched(job) for name, job in jobs.items()}


def main(master: str, rounds: str, job: str, *words: str) -> None:
    from klog.spark.session import session

    conf = {"spark.driver.memory": "1g"}
    if jars := os.environ.get("BENCH_SPARK_JARS"):
        conf["spark.jars"] = jars
    with session(master, conf) as ours:
        contestants = globals()[job](ours.spark, *words)
        print(json.dumps(race(contestants, int(rounds))))


if __name__ == "__main__":
    if sys.argv[1] == "alone":
        alone(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
