"""The rate of a replication quota: the figures of Kafka's own class."""

from __future__ import annotations

import random
import subprocess

import pytest
from klog.commands.simulate.simulated_replicas import ReplicationQuota

from tests.brokers import kafka

RECORDED = ((0, 500), (300, 600), (1200, 400), (2600, 3000))


@pytest.mark.parametrize(
    ("now", "rate"),
    [(0, 500), (300, 1100), (1200, 1250), (2500, 600), (2600, 1730.77), (4000, 1125), (9000, 500), (12_900, 291.26)],
)
def test_the_rate_at_each_moment(now: int, rate: float) -> None:
    """At least a second counts, so that one large fetch is no burst; bytes older than eleven do not count."""
    quota = ReplicationQuota(None)
    for at, size in RECORDED:
        if at <= now:
            quota.record(size, at)
    assert quota.rate(now) == pytest.approx(rate, abs=0.005)


def test_the_limit_itself_is_not_exceeded() -> None:
    quota = ReplicationQuota(1100)
    assert not quota.is_exceeded(0)
    quota.record(500, 0)
    quota.record(600, 300)
    assert not quota.is_exceeded(300)
    quota.record(1, 400)
    assert quota.is_exceeded(400)
    assert not quota.is_exceeded(2000)


def test_no_limit_is_never_exceeded() -> None:
    quota = ReplicationQuota(None)
    quota.record(1 << 60, 0)
    assert not quota.is_exceeded(0)


def test_windows_of_an_hour_ago_are_used_again() -> None:
    """Their number is fixed: a simulation of days needs no more memory than one of seconds."""
    quota = ReplicationQuota(10)
    for second in range(3600):
        quota.record(7, second * 1000)
    assert quota.rate(3_599_500) == pytest.approx(7 * 11 * 1000 / 10_500)
    assert quota.rate(3_700_000) == 0
    assert len(quota._windows) == 12


def test_the_first_window_begins_with_the_first_question() -> None:
    """A broker asks before it has sent anything: bytes that it sends a second later are spread over that second."""
    quota = ReplicationQuota(None)
    assert quota.rate(0) == 0
    quota.record(3000, 900)
    assert quota.rate(2000) == 1500


@pytest.mark.kafka
def test_the_rate_is_the_one_of_kafkas_own_class() -> None:
    """Bursts, pauses longer than all windows, questions before the first bytes and between them."""
    chance = random.Random(11)
    requests, rates = [], []
    for _ in range(200):
        requests.append("new")
        quota, now = ReplicationQuota(None), chance.randrange(5000)
        for _ in range(60):
            now += chance.randrange(chance.choice((300, 300, 300, 2500, 14_000)))
            if chance.random() < 0.5:
                size = chance.randrange(5000)
                requests.append(f"record {now} {size}")
                quota.record(size, now)
            else:
                requests.append(f"measure {now}")
                rates.append(quota.rate(now))
    command = kafka.program(kafka.NEWEST, "ReplicationRate")
    done = subprocess.run(command, input="\n".join(requests), capture_output=True, text=True, check=True, timeout=120)
    assert [float(line) for line in done.stdout.split()] == pytest.approx(rates)
