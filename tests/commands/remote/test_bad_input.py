"""Absurd entries and names, in the metadata and in the tier, are findings or rows, and no path is made of them."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.cluster.remote_log.test_remote_log import written
from tests.commands.remote.test_ls import Klog, document
from tests.oracles.plain.encode import Record, batch
from tests.support import tiers
from tests.support.metadata_logs import MetadataLog, topic, value
from tests.support.remote_log_values import Whose, started, updated, uuid

LAST = 2**63 - 1
ABSURD = {
    "the last offset": started(uuid(1), 0, LAST, {0: 0}),
    "only the last offset": started(uuid(1), LAST, LAST, {0: LAST}),
    "a negative size": started(uuid(1), 0, 9, {0: 0}, size=-(2**31)),
    "a negative timestamp": started(uuid(1), 0, 9, {0: 0}, max_timestamp=-(2**63), at=-(2**63)),
    "negative epochs": started(uuid(1), 0, 9, {-5: 0, -(2**31): 4}),
    "epochs before the segment": started(uuid(1), 100, 109, {0: -50, 1: 5}),
    "epochs behind the segment": started(uuid(1), 0, 9, {0: 0, 1: LAST}),
    "epochs in a wrong order": started(uuid(1), 0, 9, {0: 9, 1: 3, 2: 0}),
    "thousands of epochs": started(uuid(1), 0, 9999, {epoch: epoch for epoch in range(9999)}),
    "a topic that is a path": started(uuid(1), 0, 9, {0: 0}, whose=Whose("../../etc", 0, uuid(7))),
    "a topic without letters": started(uuid(1), 0, 9, {0: 0}, whose=Whose("", 0, uuid(7))),
    "control characters": started(uuid(1), 0, 9, {0: 0}, whose=Whose("a\x1b[31m\0\n", 0, uuid(7))),
    "a negative partition": started(uuid(1), 0, 9, {0: 0}, whose=Whose("orders", -1, uuid(7))),
    "long custom metadata": started(uuid(1), 0, 9, {0: 0}, custom=b"x" * 100_000),
}


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """The log dir and the tier of the fixture."""
    return tiers.unpack(tmp_path / "tiered")


def append(data: Path, *values: bytes) -> None:
    """Append records to partition 1 of the topic, behind its last one."""
    log = data / f"__remote_log_metadata-1/{0:020}.log"
    content, at, end = log.read_bytes(), 0, 0
    while at < len(content):
        end = int.from_bytes(content[at : at + 8], "big") + int.from_bytes(content[at + 23 : at + 27], "big") + 1
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    log.write_bytes(content + batch([Record(end + i, 1, None, value) for i, value in enumerate(values)]))


def disk(folder: Path, values: list[bytes]) -> tuple[Path, Path]:
    """A log dir with these records, a local log, and a tier with objects of their segments."""
    data, tier = folder / "data", folder / "tier"
    log = MetadataLog(data)
    registration = {"replicas": [1], "isr": [1], "removingReplicas": [], "addingReplicas": [], "leader": 1}
    registration |= {"leaderEpoch": 0, "partitionEpoch": 0, "directories": [uuid(5)]}
    log.add(topic("__remote_log_metadata", 99), topic("orders", 7))
    log.add(value("Partition", partitionId=0, topicId=uuid(99), **registration))
    meta = (data / "meta.properties").read_text()
    written(data, values)
    (data / "meta.properties").write_text(meta)
    (data / "orders-0").mkdir()
    (data / "orders-0" / f"{50:020}.log").touch()
    (data / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 5\n")
    (data / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(7)}\n")
    place = tier / f"orders-0-{uuid(7)}"
    place.mkdir(parents=True)
    for start in (0, 100):
        for kind in ("log", "index", "timeindex", "leader_epoch_checkpoint", "snapshot"):
            (place / f"{start:020}-{uuid(1)}.{kind}").write_bytes(b"\0" * 24)
    return data, tier


@pytest.mark.parametrize("name", ABSURD)
def test_an_absurd_entry_is_a_value(klog: Klog, tmp_path: Path, name: str) -> None:
    data, tier = disk(tmp_path, [ABSURD[name], updated(uuid(1), 1)])
    for words in (
        *(("ls", data), ("ls", data, "--remote", tier, "--segments"), ("ls", "--remote", tier, "--segments")),
        *(("verify", data, "--remote", tier, "--deep"), ("orphans", data, "--remote", tier, "--older-than", "0")),
    ):
        ran = klog("remote", *words)
        assert ran.exit_code in (0, 4), (words, ran.stderr)
        assert b"Traceback" not in ran.stderr
        assert b"\x1b" not in ran.stdout
    assert klog("describe", data).exit_code in (0, 4)


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_in_the_topic_and_in_objects(klog: Klog, tmp_path: Path, seed: int) -> None:
    """Records cut and flipped, objects of random bytes, of all sizes."""
    dice = random.Random(seed)
    values = []
    for number in range(30):
        good = dice.choice([*ABSURD.values(), updated(uuid(1), dice.randrange(4)), started(uuid(number), 0, 9, {0: 0})])
        data = bytearray(good[: dice.choice([len(good), dice.randrange(len(good))])])
        if data and dice.random() < 0.5:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        values.append(bytes(data))
    folder, tier = disk(tmp_path, values)
    for path in sorted(tier.rglob("*")):
        if path.is_file():
            path.write_bytes(dice.randbytes(dice.choice([0, 1, 8, 12, 500])))
    for words in (
        ("ls", folder, "--remote", tier),
        ("ls", "--remote", tier),
        ("verify", folder, "--remote", tier, "--deep"),
    ):
        ran = klog("remote", *words, "-o", "json")
        assert ran.exit_code in (0, 4), (words, ran.stderr)


def test_an_event_with_another_name_of_a_topic(klog: Klog, place: tuple[Path, Path]) -> None:
    """A broker keeps it under that name. The objects stay those of the topic: all of them were called orphans."""
    data, tier = place
    (topic_id,) = {path.name.removeprefix("fine-0-") for path in tier.glob("*/fine-0-*")}
    value = started(uuid(9), 0, 9, {0: 0}, whose=Whose("other", 0, topic_id))
    append(data, value, updated(uuid(9), 1, whose=Whose("other", 0, topic_id)))
    words = ("remote", "orphans", data, "--remote", tier, "--older-than", "0", "-o", "keys")
    assert b"fine-0" not in klog(*words).stdout
    ran = klog("remote", "ls", data, "--remote", tier, "-t", "fine", "-t", "other", "-o", "json")
    shown = [(one["topic"], one["verdict"], one["orphans"]) for one in document(ran, 4)["partitions"]]
    assert shown == [("fine", "whole", 0), ("other", "damaged", 0)]


def test_an_entry_with_fifty_thousand_epochs(klog: Klog, place: tuple[Path, Path]) -> None:
    """A record of a megabyte: it took a minute for each look at it."""
    data, tier = place
    (topic_id,) = {path.name.removeprefix("fine-0-") for path in tier.glob("*/fine-0-*")}
    whose = Whose("fine", 0, topic_id)
    value = started(uuid(9), 16, 32, dict.fromkeys(range(50_000), 16), whose=whose)
    append(data, value, updated(uuid(9), 1, whose=whose))
    begun = time.process_time()
    ran = klog("remote", "ls", data, "--remote", tier, "-t", "fine", "--segments", "-o", "json")
    assert time.process_time() - begun < 20
    assert len(document(ran, 4)["partitions"][0]["segment_list"]) == 7
