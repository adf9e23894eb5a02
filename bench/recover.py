"""The job about recovery: against verify, and against a real broker's own recovery of the same segments."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from statistics import median

from bench.broker import LOADED, Broker, Started
from bench.installed import child
from bench.jobs import Bench, DisagreementError, seconds
from bench.measure import Command, Cost, Race, forget, run, warm
from bench.table import Row

TOPICS = {"plain": 5, "single": 20}
"""The partitions that a broker recovers, and how many times less CPU klog is to need."""
BASE = "0" * 20
DELETED = "9" * 20 + ".log.deleted"
INDEX_ENTRY = struct.Struct(">ii")
# The whole command, then the bytes that it had written according to its output.
WRITTEN = """
import sys, klog_cli.app
try:
    sys.exit(klog_cli.app.main())
finally:
    sys.stderr.write(open('/proc/self/io').read())
"""


def recover(bench: Bench) -> Iterator[Row]:
    """`klog recover` against `klog verify`, a broker's own recovery, and its limits of memory and of bytes written."""
    # Otherwise the plan would be noted under the user's home.
    os.environ["XDG_STATE_HOME"] = bench.file("state")
    folder = log_dirs(bench)
    yield from _planning(bench, folder)
    yield _many(bench)
    yield from _memory(bench, folder)
    yield _links(bench)
    if bench.scale == 1:
        yield from _brokers(bench, folder)
    shutil.rmtree(bench.file("state"), ignore_errors=True)


def log_dirs(bench: Bench) -> str:
    """Return the folder of the log dirs that are recovered, made the first time."""
    folder = bench.file(f"recover-{bench.scale}")
    if not os.path.isdir(folder):
        bench.tell("making the log dirs to recover (once)")
        shutil.rmtree(f"{folder}.making", ignore_errors=True)
        words = [child("logdirs.py"), bench.corpora, f"{folder}.making", str(bench.scale)]
        run(Command([sys.executable, *words]))
        os.rename(f"{folder}.making", folder)
    return folder


def logs(log_dir: str) -> list[str]:
    """Return the paths of the logs of the one partition in *log_dir*."""
    folder = next(entry.path for entry in os.scandir(log_dir) if entry.is_dir())
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".log"))


def _planning(bench: Bench, folder: str) -> Iterator[Row]:
    plain, bare = (os.path.join(folder, name) for name in ("plain", "bare"))
    commands = {
        "verify": bench.verify(plain),
        "recover": bench.recover(plain),
        "verify, no indexes": bench.verify(bare, codes=(4,)),
        "recover, no indexes": bench.recover(bare, codes=(4,)),
    }
    race = bench.race(logs(plain), commands, 2 * bench.rounds)
    size = f"{sum(map(os.path.getsize, logs(plain))) >> 20} MiB in {len(logs(plain))} segments: "
    for which in ("", ", no indexes"):
        pair = f"recover{which}", f"verify{which}"
        yield Row(f"recover{which}", size + seconds(race, *pair), _times(race, *pair), at_most=1.1)
    applied = [_apply(bench, bare, "--jobs", "1") for _ in range(bench.slow)]
    applied_s = median(cost.cpu_s for cost in applied)
    told = f"{size}recover --apply {applied_s:.3f} s ({len(applied)}), {seconds(race, 'verify, no indexes')}"
    yield Row("recover --apply, no indexes", told, applied_s / race.cpu_s("verify, no indexes"))


def _times(race: Race, name: str, other: str) -> float:
    return race.cpu_s(name) / race.cpu_s(other)


def _apply(bench: Bench, log_dir: str, *words: str) -> Cost:
    """Repair a copy of *log_dir*, whose files have second names; DisagreementError when something is left to repair."""
    copy = _copied(bench, log_dir)
    bench.tell(f"recover --apply of {os.path.basename(log_dir)}")
    cost = run(bench.recover(copy, "--apply", *words, jobs=0, codes=(1,)))
    _nothing_left(bench, copy)
    return cost


def _copied(bench: Bench, log_dir: str) -> str:
    shutil.rmtree(bench.file("repaired"), ignore_errors=True)
    copy = os.path.join(bench.file("repaired"), os.path.basename(log_dir))
    shutil.copytree(log_dir, copy, copy_function=os.link)
    return copy


def _nothing_left(bench: Bench, log_dir: str) -> None:
    done = subprocess.run([*bench.klog, "recover", log_dir], capture_output=True, text=True)
    shutil.rmtree(bench.file("repaired"))
    if done.returncode:
        raise DisagreementError(f"after recover --apply there is still something to repair: {done.stdout[-200:]}")


def _many(bench: Bench) -> Row:
    root = os.path.join(bench.corpora, "many")
    commands = {"recover": bench.recover(root), "verify": bench.verify(root)}
    race = bench.race(os.path.join(root, "meta.properties"), commands, bench.slow)
    partitions = sum(entry.is_dir() for entry in os.scandir(root))
    told = f"{partitions} small partitions: {seconds(race, 'recover', 'verify')}"
    return Row("recover, many", told, _times(race, "recover", "verify"), at_most=1.3)


def _memory(bench: Bench, folder: str) -> Iterator[Row]:
    for name in ("bare", "thousands"):
        log_dir = os.path.join(folder, name)
        segments = len(logs(log_dir))
        planned = bench.race(logs(log_dir)[0], {"plan": bench.recover(log_dir, jobs=0, codes=(4,))}, 2)
        applied = _apply(bench, log_dir)
        size = f"{sum(map(os.path.getsize, logs(log_dir))) >> 20} MiB in {segments} segments, default threads"
        peak = planned.peak_bytes("plan") / 1e6
        yield Row("memory, recover", f"{size}: {planned.cpu_s('plan'):.2f} s", peak, "MB", at_most=120)
        peak = applied.peak_bytes / 1e6
        yield Row("memory, recover --apply", f"{size}: {applied.cpu_s:.2f} s", peak, "MB", at_most=120)


def _links(bench: Bench) -> Row:
    """Originals are kept by a second name: nothing is copied."""
    log_dir = bench.file("replaced/data")
    folder = os.path.join(log_dir, "topic-0")
    shutil.rmtree(bench.file("replaced"), ignore_errors=True)
    os.makedirs(folder)
    source = os.path.dirname(bench.log("topic"))
    with open(os.path.join(log_dir, "meta.properties"), "w", encoding="ascii") as file:
        file.write("version=0\nbroker.id=1\n")
    for name in (f"{BASE}.log", DELETED):
        os.link(bench.log("topic"), os.path.join(folder, name))
    for name in (f"{BASE}.index", f"{BASE}.timeindex", "leader-epoch-checkpoint"):
        shutil.copy(os.path.join(source, name), folder)
    with open(os.path.join(folder, f"{BASE}.index"), "r+b") as file:
        offset, position = INDEX_ENTRY.unpack(file.read(INDEX_ENTRY.size))
        file.seek(0)
        file.write(INDEX_ENTRY.pack(offset, position + 1))
    words = [sys.executable, "-c", WRITTEN, "recover", log_dir, "--apply", "--jobs", "1", "--quiet"]
    done = subprocess.run(words, capture_output=True, text=True)
    io = dict(line.split(": ") for line in done.stderr.splitlines() if ": " in line)
    left = sorted(os.listdir(folder))
    shutil.rmtree(bench.file("replaced"))
    if done.returncode != 1 or DELETED in left:
        raise DisagreementError(f"recover --apply ends with {done.returncode} and leaves {left}: {done.stderr[-200:]}")
    size = os.path.getsize(bench.log("topic")) >> 20
    told = f"recover --apply replaces the index of {size} MiB and removes a segment of {size} MiB: bytes written"
    return Row("backups by link", told, max(int(io["wchar"]), int(io["write_bytes"])) / 1e6, "MB", at_most=4)


def _brokers(bench: Bench, folder: str) -> Iterator[Row]:
    broker = Broker(bench)
    pristine = f"{broker.data}.pristine"
    try:
        broker.make(dict.fromkeys(TOPICS, 1))
        os.rename(broker.data, pristine)
        for topic, target in TOPICS.items():
            yield from _against_broker(bench, broker, pristine, os.path.join(folder, topic), target)
    finally:
        broker.remove()


def _started(broker: Broker, pristine: str, topic: str = "", segments: str = "") -> Started:
    """Start a broker as after a kill, with the files in the directory *segments* in place of the topic's own, if any.

    Logs get a second name, so that all read the same pages; everything else is copied.
    """
    shutil.rmtree(broker.data, ignore_errors=True)
    shutil.copytree(pristine, broker.data)
    broker.forget()
    if topic:
        folder = broker.emptied(topic, 0)
        for name in os.listdir(segments):
            put = os.link if name.endswith(".log") else shutil.copy
            put(os.path.join(segments, name), os.path.join(folder, name))
    try:
        return broker.start(LOADED)
    finally:
        broker.end(signal.SIGKILL)


def _against_broker(bench: Bench, broker: Broker, pristine: str, log_dir: str, target: int) -> Iterator[Row]:
    files, topic = logs(log_dir), os.path.basename(log_dir)
    before = [os.stat(file) for file in files]
    for file in files:
        forget(file)
    ours: list[Cost] = []
    theirs: list[Started] = []
    idle: list[Started] = []
    for turn in range(bench.slow):
        for file in files:
            warm(file)
        bench.tell(f"round {turn + 1} of {bench.slow}: a broker recovers {topic}")
        idle.append(_started(broker, pristine))
        ours.append(run(bench.recover(log_dir)))
        theirs.append(_started(broker, pristine, topic, os.path.dirname(files[0])))
        ours.append(run(bench.recover(log_dir)))
    if [(one.st_size, one.st_mtime_ns) for one in before] != [
        (one.st_size, one.st_mtime_ns) for one in map(os.stat, files)
    ]:
        raise DisagreementError(f"the broker has changed the logs in {log_dir}")
    klog_s = median(cost.cpu_s for cost in ours)
    broker_s = median(one.loading_cpu_s for one in theirs) - median(one.loading_cpu_s for one in idle)
    runs = f"({len(ours)}/{len(theirs)})"
    size = f"{sum(one.st_size for one in before) >> 20} MiB: "
    told = f"{size}klog {klog_s:.3f} s, broker's recovery less its idle start {broker_s:.2f} s {runs}"
    yield Row(f"recover, {topic}, broker", told, broker_s / klog_s, at_least=target)
    klog_wall_s, broker_wall_s = median(cost.wall_s for cost in ours), median(one.loaded_ms for one in theirs) / 1000
    told = f"wall time: klog {klog_wall_s:.2f} s with its start, broker's loading {broker_wall_s:.2f} s, a thread each"
    yield Row(f"recover, {topic}, broker", told, broker_wall_s / klog_wall_s)
