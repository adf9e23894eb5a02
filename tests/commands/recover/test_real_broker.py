"""A real broker starts on the repaired files, serves the promised records, and continues from there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.brokers.wreck import TOPICS, Wreck
from tests.conftest import Ran
from tests.oracles.plain.decode import Batch, scan

Served = list[tuple[int, "bytes | None", "bytes | None"]]

# The log lines of a broker that has found, cut, dropped or created something in a log.
COMPLAINT = re.compile(
    r"WARN|ERROR|Corruption found|Found invalid|Found file|Could not find|Rebuilding|Truncating|Deleting segment"
)


@pytest.fixture
def wreck(tmp_path: Path) -> Iterator[Wreck]:
    with Wreck(kafka.NEWEST, tmp_path) as one:
        yield one


def batches(partition: Path) -> list[Batch]:
    """Return the intact batches of a partition's logs, by a decoder of our own."""
    found = (one for log in sorted(partition.glob("*.log")) for one in scan(log.read_bytes()))
    return [one for one in found if isinstance(one, Batch)]


def promised(partition: Path) -> Served:
    """Return the records that a consumer has to be handed."""
    data = [one for one in batches(partition) if not one.control]
    return [(record.offset, record.key, record.value) for one in data for record in one.records]


def served(wreck: Wreck, topic: str, isolation: str = "read_uncommitted") -> Served:
    found = clients.consume(wreck.cluster.bootstrap, topic, isolation)
    return [(one.offset, one.key, one.value) for one in found]


def logs_of(wreck: Wreck, topic: str) -> list[Path]:
    return sorted((wreck.data / f"{topic}-0").glob("*.log"))


def tear(wreck: Wreck, topic: str) -> None:
    log = logs_of(wreck, topic)[-1]
    log.write_bytes(log.read_bytes()[:-20])


def flip(wreck: Wreck, topic: str) -> None:
    """Flip a byte in the middle of a batch in the middle of the first log."""
    log = logs_of(wreck, topic)[0]
    content = bytearray(log.read_bytes())
    data = [one for one in scan(bytes(content)) if isinstance(one, Batch) and not one.control]
    middle = data[len(data) // 2]
    content[middle.position + middle.size // 2] ^= 0xFF
    log.write_bytes(content)


def torn_and_without_indexes(wreck: Wreck) -> None:
    """A torn tail, and missing files that can be rebuilt from the log: nothing intact is lost."""
    tear(wreck, "ended")
    for name in ("sequence-0/*index", "sequence-0/*.snapshot", "open-0/*.txnindex"):
        for path in wreck.data.glob(name):
            path.unlink()
    (wreck.data / "sequence-0/leader-epoch-checkpoint").write_text("0\n1\n")
    for path in wreck.data.glob("open-0/*.index"):
        path.write_bytes(b"\x7f" * 64)


def holes(wreck: Wreck) -> None:
    """Damage behind which only salvage keeps the rest: a flipped byte in the middle of two logs, a torn tail in one of
    them."""
    flip(wreck, "sequence")
    flip(wreck, "ended")
    tear(wreck, "ended")


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("mode", "damage", "lost"),
    [((), torn_and_without_indexes, {"ended": 1}), (("--salvage",), holes, {"sequence": 1, "ended": 2})],
    ids=("default", "salvage"),
)
def test_a_broker_serves_what_was_kept_and_goes_on_from_there(
    mode: tuple[str, ...],
    damage: Callable[[Wreck], None],
    lost: dict[str, int],
    wreck: Wreck,
    klog: Callable[..., Ran],
) -> None:
    """Busy clients continue: an idempotent producer, a transaction that is still open."""
    before = {topic: len(batches(wreck.data / f"{topic}-0")) for topic in TOPICS}
    damage(wreck)
    said = recovered(klog, wreck, *mode)
    kept = {log: log.read_bytes() for topic in TOPICS for log in logs_of(wreck, topic)}
    wanted = {topic: promised(wreck.data / f"{topic}-0") for topic in TOPICS}
    for topic in TOPICS:
        assert len(batches(wreck.data / f"{topic}-0")) == before[topic] - lost.get(topic, 0), topic
    assert {one["topic"] for one in said["lost"]} == lost.keys()
    complaints = start(wreck)
    assert complaints == []
    assert {topic: served(wreck, topic) for topic in TOPICS} == wanted
    stable, end = wreck.go_on()
    assert stable == end - 25
    again = list(clients.records("after", 20))
    clients.with_librdkafka(wreck.cluster.bootstrap, "ended", "zstd", again, transaction="after")
    assert len(served(wreck, "ended", "read_committed")) >= 10
    assert served(wreck, "ended")[: len(wanted["ended"])] == wanted["ended"]
    wreck.cluster.stop()
    for log, content in kept.items():
        assert log.read_bytes()[: len(content)] == content, log
    for topic in TOPICS:
        assert promised(wreck.data / f"{topic}-0")[: len(wanted[topic])] == wanted[topic]


def recovered(klog: Callable[..., Ran], wreck: Wreck, *mode: str) -> dict[str, Any]:
    sizes = ("--index-interval=512", "--segment-index-bytes=65536")
    ran = klog("recover", wreck.data, *mode, *sizes, "--apply", "--output=json")
    assert ran.exit_code == 1, ran
    said: dict[str, Any] = json.loads(ran.stdout)
    assert said["left"] == []
    return said


def start(wreck: Wreck) -> list[str]:
    """Start the broker; return its complaints about the logs of the topics."""
    said = len(wreck.cluster.log())
    wreck.start()
    lines = wreck.cluster.log()[said:].splitlines()
    return [line for line in lines if COMPLAINT.search(line) and any(f"{topic}-0" in line for topic in TOPICS)]


@pytest.mark.kafka
def test_a_broker_that_runs_keeps_its_log_dir_to_itself(tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """Nothing may be changed under a broker; a plan beside it may be stale, and is marked as such."""
    with kafka.Cluster(kafka.NEWEST, tmp_path / "broker") as cluster:
        clients.create(cluster.bootstrap, {"busy": {}})
        clients.with_librdkafka(cluster.bootstrap, "busy", "lz4", clients.records("busy", 60))
        index = next((cluster.data / "busy-0").glob("*.index"))
        index.write_bytes(b"\x7f" * index.stat().st_size)
        partition = {path.name: path.read_bytes() for path in sorted((cluster.data / "busy-0").iterdir())}
        refused = klog("recover", cluster.data, "--apply")
        assert refused.exit_code == 8
        assert b"a broker is running" in refused.stderr
        planned = klog("recover", cluster.data)
        assert planned.exit_code == 4
        assert b"may be stale" in planned.stderr
        assert partition == {path.name: path.read_bytes() for path in sorted((cluster.data / "busy-0").iterdir())}
        assert not (tmp_path / "broker/klog-backup").exists()
