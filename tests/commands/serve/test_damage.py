"""Disks that crashed: real clients read on to the end, nothing damaged is handed out, the sum is that of a check."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage, Location
from klog.log.segment import Segment
from klog.partition.verify.log_checks import IDS

from tests.brokers import kafka
from tests.commands.dump.test_consumer import received
from tests.commands.serve.readers import READERS, Row
from tests.commands.serve.serving import Serving, Wire
from tests.conftest import CORPORA, run_klog
from tests.support.samples import sampled

pytestmark = [pytest.mark.corpora, pytest.mark.slow]
IMAGES = sorted(path.parent.name for path in (CORPORA / "crash").glob("*/before.tar.gz")) or ["no corpora"]
Image = Callable[[str], Path]


def log_dir(image: Image, name: str) -> Path:
    folder = image(f"crash/{name}/before.tar.gz")
    return folder if (folder / "meta.properties").exists() else next(folder.glob("*/meta.properties")).parent


def partitions(folder: Path) -> list[Partition]:
    """Return those that are served; the tree has others, on their way out."""
    found = [Partition(str(path)) for path in sorted(folder.glob("*-[0-9]*")) if path.is_dir()]
    return [one for one in found if one.topic is not None and not one.topic.startswith("__") and one.segments]


def intact(partition: Partition) -> list[Row]:
    """Return the records of a partition that `klog dump` shows, which passes over damage as well."""
    rows: list[Row] = []
    ran = run_klog("dump", partition.path, "--output", "jsonl", "--no-control")
    for line in ran.stdout.decode().split("\n")[:-1]:
        if "headers" not in json.loads(line):
            continue  # it reports damage
        one = received(line)
        if one.offset >= (partition.log_start_offset or 0):
            assert json.loads(line)["partition"] == partition.number
            place = str(partition.topic), partition.number or 0, one.offset
            rows.append((*place, one.timestamp, one.key, one.value, one.headers))
    return rows


def damages(partition: Partition) -> dict[Location, int]:
    """Return where `klog verify` finds bytes in the logs that are no batches, and how many there are in each place."""
    each = (Segment(str(Path(partition.path) / files.log)).batches() for files in partition.segments)
    sizes = {found.place: found.size or 0 for batches in each for found in batches if isinstance(found, Damage)}
    ran = run_klog("verify", partition.path, "--output", "jsonl")
    told = {(one["file"], one.get("position")) for one in map(json.loads, ran.stdout.splitlines()) if is_lost(one)}
    name = os.path.basename(partition.path)
    return {place: size for place, size in sizes.items() if (f"{name}/{Path(place.file).name}", place.position) in told}


def is_lost(finding: dict[str, Any]) -> bool:
    """Whether a finding concerns bytes that no consumer receives."""
    return finding["severity"] == "damage" and finding["id"] in (*IDS.values(), "garbage-tail")


def leads_on(partition: Partition) -> bool:
    """Whether something follows damage: another batch, or another segment."""
    found = [list(Segment(str(Path(partition.path) / files.log)).batches()) for files in partition.segments]
    while found[-1] and isinstance(found[-1][-1], Damage):
        found[-1].pop()
    return any(isinstance(one, Damage) for batches in found for one in batches)


@pytest.mark.parametrize("name", sampled(IMAGES, 5))
def test_all_that_is_intact_is_read_and_what_is_not_is_summed_up(image: Image, name: str) -> None:
    folder = log_dir(image, name)
    there = partitions(folder)
    with Serving(folder) as serving:
        for topic in sorted({str(one.topic) for one in there}):
            expected = sorted(row for one in there if one.topic == topic for row in intact(one))
            for client, read in READERS.items():
                assert read(serving.bootstrap, topic, "read_uncommitted", None) == expected, (client, topic)
        serving.end()
        lost = {one.path: found for one in there if (found := damages(one))}
        count, size = sum(map(len, lost.values())), sum(size for found in lost.values() for size in found.values())
        what = f"{count} damaged stretch{'es' * (count != 1)}, {size} bytes"
        where = f"{len(lost)} partition{'s' * (len(lost) != 1)}"
        told = [line for line in serving.said.splitlines() if line.startswith("klog: left out: ")]
        assert told == ([f"klog: left out: {what}, in {where}"] if lost else [])


@pytest.mark.parametrize("name", sampled(IMAGES, 5))
def test_damage_is_an_error_where_it_begins_if_that_is_wanted(image: Image, name: str) -> None:
    folder = log_dir(image, name)
    with Serving(folder, "--damaged", "stop") as serving, Wire(serving.port) as wire:
        for partition in partitions(folder):
            stops = leads_on(partition)
            offset, error, seen = partition.log_start_offset or 0, 0, -1
            while not error and offset != seen:
                answer = wire.fetch(str(partition.topic), offset, partition=partition.number or 0)
                seen, error, data = offset, answer["errorCode"], answer["records"]
                while data:
                    offset = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
                    data = data[12 + int.from_bytes(data[8:12], "big") :]
            assert error == (2 if stops else 0), partition.path


@pytest.mark.kafka
@pytest.mark.parametrize("name", ["v4.3.1-flip-middle", "v3.9.1-zeroed-segment"])
def test_java_reads_on_over_damage(image: Image, name: str) -> None:
    folder = log_dir(image, name)
    with Serving(folder) as serving:
        for one in partitions(folder):
            consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
            where = ("--topic", str(one.topic), "--partition", str(one.number), "--offset", "earliest")
            shown = ("--timeout-ms", "6000", "--formatter-property", "print.offset=true")
            at = ("--bootstrap-server", serving.bootstrap)
            done = kafka.Tools().run_class(consumer, *at, *where, *shown)
            found = [int(offset) for offset in re.findall(rb"(?m)^Offset:(\d+)\t", done.stdout)]
            assert found == [row[2] for row in intact(one)]
            assert found
