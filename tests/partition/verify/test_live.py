"""`klog verify` beside a running broker: what moves is no damage."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.brokers.clients import records
from tests.conftest import run_klog

pytestmark = pytest.mark.kafka

SECONDS = 8
TURNS = 20
PATIENCE_S = 240
"""For as many turns, and everything that has to be seen: other work may share the machine."""
# Small segments, and retention that deletes them while they are looked at.
TOPICS = {
    "moving": {"internal.segment.bytes": "300000", "retention.bytes": "600000", "file.delete.delay.ms": "200"},
    "timed": {"internal.segment.bytes": "200000", "retention.ms": "1500", "file.delete.delay.ms": "0"},
    "compacting": {
        "internal.segment.bytes": "200000",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "100",
    },
    "transactions": {"internal.segment.bytes": "300000", "retention.bytes": "900000", "file.delete.delay.ms": "200"},
}
SETTINGS = {
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "100",
}


@pytest.mark.parametrize("seconds", [SECONDS, pytest.param(180, marks=pytest.mark.long)])
def test_under_load_and_retention_nothing_is_called_damage(tmp_path: Path, seconds: int) -> None:
    """Segments grow, roll, are compacted and vanish; a batch is half written when it is read."""
    over = threading.Event()
    with kafka.Cluster(kafka.NEWEST, tmp_path, port=kafka.PORT + 20, settings=SETTINGS) as cluster:
        clients.create(cluster.bootstrap, TOPICS)

        def load() -> None:
            for turn in range(10**9):
                if over.is_set():
                    return
                for topic in TOPICS:
                    transaction = "verify" if topic == "transactions" else ""
                    codec = ("none", "zstd", "lz4")[turn % 3]
                    given = [one for one in records(f"{topic} {turn}", 120) if one.key is not None]
                    clients.with_librdkafka(cluster.bootstrap, topic, codec, given, transaction=transaction)

        producer = threading.Thread(target=load)
        producer.start()
        try:
            seen: Counter[str] = Counter()
            began = time.monotonic()
            turns = 0
            while (now := time.monotonic() - began) < seconds or (
                now < PATIENCE_S and (turns <= TURNS or not seen["leftover"])
            ):
                done = run_klog("verify", "--deep", "--output", "json", "--quiet", str(cluster.data))
                found = json.loads(done.stdout)
                problems = [finding for finding in found["findings"] if finding["severity"] != "note"]
                assert not problems, problems
                assert done.exit_code == 0
                assert done.stderr == b""
                seen.update(finding["id"] for finding in found["findings"])
                turns += 1
        finally:
            over.set()
            producer.join()
        assert turns > TURNS
        assert seen["leftover"], "files on their way out were seen"
        cluster.stop()
        found = json.loads(run_klog("verify", "--deep", "--output", "json", str(cluster.data)).stdout)["findings"]
        assert not [finding for finding in found if finding["severity"] != "note"]
