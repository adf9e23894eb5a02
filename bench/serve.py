"""`klog serve` beside a real broker, which has the same log dir at the same time: the server's cost of a gigabyte."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import NamedTuple

from bench.broker import Broker, cpu_s
from bench.installed import child
from bench.jobs import Bench, DisagreementError
from bench.marked import copy_in_first_epoch
from bench.measure import CommandFailedError
from bench.table import Row

TOPIC = "plain"
KIB = 1 << 10
LIMITS = {8192 * KIB: 0.9, 1024 * KIB: 1.05, 64 * KIB: 1.3}
"""Bytes that a fetch may bring, and at most how much more than the broker klog may need."""
BUSY, IDLE = 8, 100
MOST_CONNECTIONS, MOST_MIB = 256, 64
MOST_S = 0.3
ALL_TOPICS = bytes.fromhex("0000000f 0003 000c 00000001 ffff 00 00 00 00 00")
"""Metadata, version 12, of all topics."""
WARMING = 8
"""The number of full reads from the broker, of each size, before it is measured: Java has compiled it by then."""
CLOSE = 0.1
"""The fetched bytes may differ by this part: the broker sends partial batches, and those count for nothing."""


class Fetched(NamedTuple):
    """The work of a server for clients: bytes, its CPU seconds, and the seconds until the last of them had all."""

    size: int
    cpu_s: float
    wall_s: float


class Server(NamedTuple):
    """A process that listens on a port of this machine."""

    process: int
    port: int

    def memory_mib(self) -> float:
        """Return its resident size."""
        with open(f"/proc/{self.process}/status", encoding="ascii") as file:
            return int(re.findall(r"VmRSS:\s+(\d+)", file.read())[0]) / KIB


def serve(bench: Bench) -> Iterator[Row]:
    """Raw fetches of three sizes, many connections at once, the memory of as many as are allowed; a large disk."""
    yield _first_answer(bench)
    broker = Broker(bench)
    try:
        bench.tell("making a log dir for a broker")
        broker.make({TOPIC: 1})
        copy_in_first_epoch(bench.log("plain"), os.path.join(broker.emptied(TOPIC, 0), "0" * 20 + ".log"))
        broker.forget()
        broker.start()
        with _started(bench, broker.data) as klog:
            try:
                servers = {
                    "klog": Server(klog.pid, _port(klog)),
                    "broker": Server(broker.process, int(broker.address.rpartition(":")[2])),
                }
                yield from _compared(bench, servers)
                yield _crowded(servers["klog"])
            finally:
                klog.send_signal(signal.SIGTERM)
    finally:
        broker.remove()


def _started(bench: Bench, folder: str) -> subprocess.Popen[str]:
    words = [*bench.klog, "serve", folder, "--listen", "127.0.0.1:0", "--quiet"]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def _port(klog: subprocess.Popen[str]) -> int:
    assert klog.stderr is not None
    line = klog.stderr.readline()
    found = re.fullmatch(r"klog serve: listening on .*:(\d+)\n", line)
    if found is None:
        raise CommandFailedError(f"klog serve did not start: {line}")
    return int(found[1])


def _compared(bench: Bench, servers: dict[str, Server]) -> Iterator[Row]:
    bench.tell("warming the broker up")
    for limit in LIMITS:
        for _ in range(WARMING):
            _fetched(servers["broker"], limit, 1, 0)
    for limit, at_most in LIMITS.items():
        job = f"serve, {limit // KIB} KiB a fetch"
        race = _race(bench, servers, limit, 1, 0)
        yield _cpu(job, race, at_most)
        if limit == max(LIMITS):
            yield _speed(job, race)
    limit = 8192 * KIB
    job = f"serve, {limit // KIB} KiB a fetch, {BUSY} busy and {IDLE} idle connections"
    race = _race(bench, servers, limit, BUSY, IDLE)
    yield _cpu(job, race, LIMITS[limit])
    yield _speed(job, race)


def _race(bench: Bench, servers: dict[str, Server], limit: int, busy: int, idle: int) -> dict[str, list[Fetched]]:
    """Return the results of each server, round by round; the first round only warms them up."""
    found: dict[str, list[Fetched]] = {name: [] for name in servers}
    rounds = 2 * bench.slow + 1
    for turn in range(rounds + 1):
        bench.tell(f"round {turn} of {rounds}: {limit // KIB} KiB, {busy} connections")
        for name in list(servers)[:: 1 if turn % 2 else -1]:
            found[name].append(_fetched(servers[name], limit, busy, idle))
        sizes = {name: rounds[-1].size for name, rounds in found.items()}
        if abs(sizes["klog"] - sizes["broker"]) > CLOSE * sizes["broker"]:
            raise DisagreementError(f"fetched: {sizes}")
    return {name: all_of_it[1:] for name, all_of_it in found.items()}


def _fetched(server: Server, limit: int, busy: int, idle: int) -> Fetched:
    """Have so many clients fetch all there is."""
    with ExitStack() as stack:
        for _ in range(idle):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        before = cpu_s(server.process)
        words = [sys.executable, child("fetcher.py"), "127.0.0.1", str(server.port), TOPIC, str(limit)]
        clients = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(busy)]
        told = [client.communicate()[0].split() for client in clients]
        if any(client.returncode for client in clients):
            raise CommandFailedError("a fetching client failed")
        size, wall_s = sum(int(size) for size, _, _ in told), max(float(seconds) for _, _, seconds in told)
        return Fetched(size, cpu_s(server.process) - before, wall_s)


def _speed(job: str, found: dict[str, list[Fetched]]) -> Row:
    middle = {name: median(one.size / one.wall_s for one in rounds) for name, rounds in found.items()}
    told = ", ".join(f"{name} {speed / 1e6:.0f} MB/s ({len(found[name])})" for name, speed in middle.items())
    return Row(job, f"wall: {told}", middle["klog"] / middle["broker"], at_least=1)


def _cpu(job: str, found: dict[str, list[Fetched]], at_most: float) -> Row:
    middle = {name: median(one.cpu_s / one.size * 1e9 for one in rounds) for name, rounds in found.items()}
    told = ", ".join(f"{name} {seconds:.3f} s/GB ({len(found[name])})" for name, seconds in middle.items())
    return Row(job, f"CPU of the server: {told}", middle["klog"] / middle["broker"], at_most=at_most)


def _crowded(klog: Server) -> Row:
    with ExitStack() as stack:
        request = bytes.fromhex("0000000a 0012 0000 00000001 ffff")  # ApiVersions, version 0, no client id
        for _ in range(MOST_CONNECTIONS):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", klog.port)))
            link.sendall(request)
            link.recv(4)
        job = f"serve, {MOST_CONNECTIONS} connections"
        return Row(job, "resident memory", klog.memory_mib(), "MiB", at_most=MOST_MIB)


def _first_answer(bench: Bench) -> Row:
    """The time from the start of the process to the answer with all topics of a large disk."""
    folder = bench.file("serve-many")
    if not os.path.isdir(folder):
        shutil.copytree(os.path.join(bench.corpora, "many"), folder, copy_function=os.link)
        for name in os.listdir(folder):
            if os.path.isdir(os.path.join(folder, name)):
                topic, _, _ = name.rpartition("-")
                known = base64.urlsafe_b64encode(hashlib.md5(topic.encode()).digest())[:22].decode()
                with open(os.path.join(folder, name, "partition.metadata"), "w", encoding="ascii") as file:
                    file.write(f"version: 0\ntopic_id: {known}")
    waits = list[float]()
    size = 0
    for _ in range(2 * bench.slow + 1):
        began = time.perf_counter()
        with _started(bench, folder) as klog:
            with socket.create_connection(("127.0.0.1", _port(klog))) as link:
                link.sendall(ALL_TOPICS)
                (size,) = struct.unpack(">i", link.recv(4, socket.MSG_WAITALL))
                if len(link.recv(size, socket.MSG_WAITALL)) != size:
                    raise CommandFailedError("klog serve broke off its answer")
            waits.append(time.perf_counter() - began)
            klog.kill()
    count = sum(os.path.isdir(os.path.join(folder, name)) for name in os.listdir(folder))
    told = f"{count} partitions, all told in {size // KIB} KiB; the fastest {min(waits):.3f} s ({len(waits)})"
    return Row("serve, from start to Metadata", told, median(waits), "s wall", at_most=MOST_S)
