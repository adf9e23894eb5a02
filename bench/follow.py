"""`klog follow` beside the least that a copy has to do, and beside Kafka's own consumers; and without new records."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.broker import Broker, cpu_s
from bench.installed import child
from bench.jobs import Bench, DisagreementError, seconds
from bench.marked import copy_in_first_epoch
from bench.measure import Command
from bench.table import Row

TOPIC, MANY = "plain", "many"
PARTITIONS, IDLE_S = 1000, 30
MIB = 1 << 20
LOOP, PERF, CONSOLE = "receive, checksum, write", "consumer-perf-test", "console consumer"


def follow(bench: Bench) -> Iterator[Row]:
    """A log of one partition in pieces of 1 and of 8 MiB; a thousand partitions without new records."""
    broker = Broker(bench)
    try:
        bench.tell("making a log dir for a broker")
        broker.make({TOPIC: 1, MANY: PARTITIONS})
        log = os.path.join(broker.emptied(TOPIC, 0), "0" * 20 + ".log")
        copy_in_first_epoch(bench.log("plain"), log)
        broker.forget()
        broker.start()
        yield from _copied(bench, broker, log)
        yield from _idle(bench, broker)
    finally:
        broker.remove()
        for name in ("followed", "followed-nothing"):
            shutil.rmtree(bench.file(name), ignore_errors=True)


def _copied(bench: Bench, broker: Broker, log: str) -> Iterator[Row]:
    size, records = os.path.getsize(log), bench.records(log)
    host, _, port = broker.address.rpartition(":")
    commands = {}
    for mib in (1, 8):
        loop = [sys.executable, child("fetcher.py"), host, port, TOPIC, str(mib * MIB), bench.file("fetched.out")]
        commands[f"klog, {mib} MiB"] = _follow(
            bench, broker, "followed", "--topic", TOPIC, "--partition-bytes", f"{mib}MiB"
        )
        commands[f"{LOOP}, {mib} MiB"] = Command(loop, target=bench.file("fetched.out"))
    # The cost of each before the first byte: the same, for an empty partition.
    commands["klog, nothing"] = _follow(bench, broker, "followed-nothing", "--topic", MANY, "--partition", "0")
    loop = [sys.executable, child("fetcher.py"), host, port, MANY, str(MIB), bench.file("fetched.out")]
    commands["loop, nothing"] = Command(loop, target=bench.file("fetched.out"))
    java = [*bench.kafka[: bench.kafka.index("-cp") + 2], "org.apache.kafka.tools"]
    wanted = ["--bootstrap-server", broker.address, "--topic", TOPIC]
    perf = [*java[:-1], f"{java[-1]}.ConsumerPerformance", *wanted, "--num-records", str(records)]
    console = [*java[:-1], f"{java[-1]}.consumer.ConsoleConsumer", *wanted]
    console += ["--from-beginning", "--max-messages", str(records)]
    commands |= {PERF: Command(perf, at_most=bench.slow), CONSOLE: Command(console, "null", at_most=bench.slow)}
    race = bench.race(log, commands, bench.slow + 2)
    copied = os.path.join(bench.file("followed"), f"{TOPIC}-0", "0" * 20 + ".log")
    if os.path.getsize(copied) != size:
        raise DisagreementError(f"the copy has {os.path.getsize(copied)} bytes, the broker {size}")
    for mib in (1, 8):
        klog, loop_name = f"klog, {mib} MiB", f"{LOOP}, {mib} MiB"
        own_s = race.cpu_s(klog) - race.cpu_s("klog, nothing")
        least_s = race.cpu_s(loop_name) - race.cpu_s("loop, nothing")
        told = f"{size >> 20} MiB: klog {own_s:.3f} s, {loop_name} {least_s:.3f} s, both without their start"
        yield Row(f"follow, {mib} MiB a partition", told, own_s / least_s, at_most=1.5)
        told = f"with it: {seconds(race, klog, loop_name)}"
        yield Row(f"follow, {mib} MiB a partition", told, race.cpu_s(klog) / race.cpu_s(loop_name))
        for name, at_least in ((PERF, 3), (CONSOLE, 8)):
            told = seconds(race, klog, name)
            yield Row(f"follow, {mib} MiB a partition", told, race.cpu_s(name) / race.cpu_s(klog), at_least=at_least)


def _follow(bench: Bench, broker: Broker, name: str, *words: str) -> Command:
    """Return a follow into a new copy of that *name*, which is removed first."""
    shell, copy = 'rm -rf "$1"; shift; exec "$@"', bench.file(name)
    klog = [*bench.klog, "follow", broker.address, "--to", copy, "--quiet", *words]
    return Command(["sh", "-c", shell, "sh", copy, *klog], "null")


def _idle(bench: Bench, broker: Broker) -> Iterator[Row]:
    """Measure the cost of a copy that has caught up, after its start."""
    bench.tell(f"{PARTITIONS} partitions, {IDLE_S} s")
    copy = bench.file("followed")
    shutil.rmtree(copy, ignore_errors=True)
    words = [*bench.klog, "follow", broker.address, "--to", copy, "--quiet", "--max-wait", "500ms"]
    # 10 MiB are requested at a time.
    yield Row("memory, follow", "largest resident size", _peak_bytes(words) / 1e6, "MB", at_most=2 * 10 + 64)
    with subprocess.Popen([*words, "--continuous"], stdout=subprocess.DEVNULL) as klog:
        try:
            time.sleep(IDLE_S / 3)
            before, began = cpu_s(klog.pid), time.perf_counter()
            time.sleep(IDLE_S)
            part = (cpu_s(klog.pid) - before) / (time.perf_counter() - began)
        finally:
            klog.send_signal(signal.SIGTERM)
    yield Row(f"follow, {PARTITIONS} partitions caught up", "of a core", 100 * part, "%", at_most=1)


def _peak_bytes(words: list[str]) -> int:
    """Return the peak memory of a command; its own, since that of the process that it was forked from may be larger."""
    peak = 0
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            with open(f"/proc/{process.pid}/status", encoding="ascii", errors="replace") as file:
                found = re.search(r"VmHWM:\s+(\d+)", file.read())
            peak = max(peak, int(found[1]) << 10 if found else 0)
            time.sleep(0.05)
    return peak
