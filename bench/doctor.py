"""`klog doctor` beside `klog describe` after a clean stop, and beside `klog verify` where the start recovers."""

from __future__ import annotations

import os
import shutil
from base64 import urlsafe_b64encode
from collections.abc import Iterator

from bench.jobs import Bench, seconds
from bench.measure import Command
from bench.metadata import directory_id, topic_id, write
from bench.table import Row

_PER_TOPIC = 50
_MARKER = ".kafka_cleanshutdown"


def doctor(bench: Bench) -> Iterator[Row]:
    """Many small partitions after both kinds of stop, and 1 GiB that the start recovers; its memory."""
    many = _disk(bench, "many")
    large = _disk(bench, "large")
    for log_dir in (many, large):
        shutil.copytree(log_dir, f"{log_dir}-killed", copy_function=os.link)
        os.unlink(os.path.join(f"{log_dir}-killed", _MARKER))
    race = bench.race(
        os.path.join(large, "topic0-0", "0" * 20 + ".log"),
        {
            "doctor": _doctor(bench, many),
            "describe": Command([*bench.klog, "describe", many], "null"),
            "doctor, killed": _doctor(bench, f"{many}-killed"),
            "verify": bench.verify(many, codes=(0, 1, 4, 5)),
            "doctor, large": _doctor(bench, f"{large}-killed"),
            "verify, large": bench.verify(large, codes=(0, 1, 4, 5)),
        },
        bench.slow,
    )
    told = f"many small partitions after a clean stop against describe: {seconds(race, 'doctor', 'describe')}"
    yield Row("doctor, clean stop", told, race.cpu_s("doctor") / race.cpu_s("describe"), at_most=1.5)
    told = f"the same after a kill, all to recover, against verify: {seconds(race, 'doctor, killed', 'verify')}"
    yield Row("doctor, killed", told, race.cpu_s("doctor, killed") / race.cpu_s("verify"), at_most=1.1)
    told = f"one large segment to recover against verify: {seconds(race, 'doctor, large', 'verify, large')}"
    yield Row("doctor, large", told, race.cpu_s("doctor, large") / race.cpu_s("verify, large"), at_most=1.1)
    yield Row("memory, doctor", "largest resident size", race.peak_bytes("doctor, killed") / 1e6, "MB", at_most=150)
    shutil.rmtree(bench.file("doctor"))


def _doctor(bench: Bench, log_dir: str) -> Command:
    return Command([*bench.klog, "doctor", log_dir, "--output", "json", "--quiet"], "null")


def _disk(bench: Bench, name: str) -> str:
    """Return a log dir of node 1 with a metadata log that has all of its partitions there."""
    root = bench.file(os.path.join("doctor", name))
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root)
    if name == "many":
        source = os.path.join(bench.corpora, "many")
        names = [entry.name for entry in os.scandir(source) if entry.is_dir()]
        for one in names:
            shutil.copytree(os.path.join(source, one), os.path.join(root, one), copy_function=os.link)
    else:
        names = ["topic0-0"]
        shutil.copytree(os.path.join(bench.corpora, "topic-0"), os.path.join(root, "topic0-0"), copy_function=os.link)
        shutil.rmtree(os.path.join(root, "topic0-0", "windows"), ignore_errors=True)
    for one in names:
        number = int(one.removeprefix("topic").partition("-")[0])
        with open(os.path.join(root, one, "partition.metadata"), "w", encoding="ascii") as file:
            file.write(f"version: 0\ntopic_id: {_text(topic_id(number))}")
    topics = -(-len(names) // _PER_TOPIC)
    write(root, topics, min(_PER_TOPIC, len(names)), 0, "topic{}", alone=True)
    with open(os.path.join(root, "meta.properties"), "a", encoding="ascii") as file:
        file.write(f"directory.id={_text(directory_id(1))}\n")
    with open(os.path.join(root, _MARKER), "w", encoding="ascii"):
        pass
    return root


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")
