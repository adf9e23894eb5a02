"""Fetched logs in a cluster without remote storage: real brokers serve them as the tiered one did."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.conftest import run_klog
from tests.support.tiers import situation

pytestmark = [pytest.mark.kafka, pytest.mark.corpora]
TOPICS = ("cut", "size", "late", "tx", "stopped")


@pytest.mark.parametrize(
    ("version", "name"),
    [(kafka.NEWEST, "house"), pytest.param(kafka.BEFORE, "house391", marks=pytest.mark.long)],
)
def test_a_fetched_log_is_served_as_the_tiered_broker_served_it(
    image: Callable[[str], Path], tmp_path: Path, version: str, name: str
) -> None:
    """Every record in both isolation levels, and producers go on behind it; also without a fetch before.

    The transaction that was open is aborted by the adoption, so that more records behind it are committed.
    """
    found, back = situation(image, name), tmp_path / "back"
    chosen = [word for topic in TOPICS for word in ("-t", topic)]
    done = run_klog("remote", "fetch", *found.data, "--remote", found.tier, *chosen, "--to", back)
    assert done.exit_code == 0, done.stderr
    cluster = kafka.Cluster(version, tmp_path / "home")
    with cluster:
        clients.create(cluster.bootstrap, {topic: {"retention.ms": "-1"} for topic in (*TOPICS, "left")})
    adopted = run_klog("adopt", back, "--to", cluster.data, "--apply")
    assert adopted.exit_code == 0, adopted.stderr
    words = ("--as", "left-0", "--remote", found.tier, "--to", cluster.data, "--apply")
    assert run_klog("adopt", found.leader / "late-0", *words).exit_code == 0
    with cluster:
        served_as(cluster.bootstrap, "left", found.clients["late-0"])
        for topic in TOPICS:
            served_as(cluster.bootstrap, topic, found.clients[f"{topic}-0"])
        given = [one for one in clients.records("more", 8) if one.key]
        clients.with_librdkafka(cluster.bootstrap, "tx", "none", given, enable_idempotence=True)
        rows = clients.consume(cluster.bootstrap, "tx", "read_committed")
        assert [one.key for one in rows[-len(given) :]] == [one.key for one in given]


def served_as(bootstrap: str, topic: str, told: dict[str, Any]) -> None:
    rows = clients.consume(bootstrap, topic, "read_uncommitted")
    ours = [(one.offset, one.timestamp, _text(one.key), _text(one.value)) for one in rows]
    assert ours == [tuple(row[:4]) for row in told["uncommitted"]]
    committed = [one.offset for one in clients.consume(bootstrap, topic, "read_committed")]
    assert committed[: len(told["committed"])] == told["committed"]
    assert len(committed) == len(told["committed"]) or topic == "tx"


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
