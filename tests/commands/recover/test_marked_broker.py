"""Log dirs of killed brokers after `recover --mark-clean`: real brokers continue as if they had recovered them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.brokers import kafka
from tests.brokers.wreck import Wreck
from tests.conftest import Ran

UNCLEAN = "UNCLEAN partition change for"
"""It applies to a replica that was removed from the ISR, and returns as a leader."""


@pytest.fixture(
    scope="module",
    params=[kafka.NEWEST, *(pytest.param(version, marks=pytest.mark.long) for version in (kafka.BEFORE, kafka.LEGACY))],
)
def wreck(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wreck]:
    with Wreck(request.param, tmp_path_factory.mktemp(request.param)) as one:
        yield one


def mark(wreck: Wreck, klog: Callable[..., Ran], *options: str) -> Ran:
    wreck.restore()
    sizes = ("--index-interval", "512", "--segment-index-bytes", "65536")
    return klog("recover", str(wreck.data), "--mark-clean", "--apply", *sizes, *options)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_broker_starts_at_once_and_goes_on_as_if_it_had_recovered(wreck: Wreck, klog: Callable[..., Ran]) -> None:
    """Sequences, open transactions, last stable offsets: the same, without a line of recovery; its clients continue."""
    wreck.restore()
    assert wreck.start()
    recovered = wreck.state()
    assert recovered.duplicate == (0, recovered.ends["sequence"][1] - 10)
    stable, end = recovered.ends["open"]
    assert stable == end - 20
    done = mark(wreck, klog)
    assert done.exit_code == 1, done
    marker = (wreck.data / ".kafka_cleanshutdown").read_bytes()
    assert marker == (b'{"version":0,"brokerEpoch":-1}' if wreck.cluster.kraft else b"")
    assert wreck.start() == []
    assert wreck.state() == recovered
    assert wreck.go_on() == (stable, end + 5)


@pytest.mark.kafka
@pytest.mark.slow
def test_what_the_marker_claims_decides_elections(wreck: Wreck, klog: Callable[..., Ran]) -> None:
    """The broker counts by default as one that has recovered; on its operator's word as one that lost nothing."""
    struck = {}
    for epoch in ("none", "registered"):
        done = mark(wreck, klog, "--broker-epoch", epoch)
        if not wreck.cluster.kraft and epoch == "registered":
            assert done.exit_code == 8, done
            assert not (wreck.data / ".kafka_cleanshutdown").exists()
            continue
        assert done.exit_code == 1, done
        said = len(wreck.cluster.log())
        assert wreck.start() == []
        struck[epoch] = UNCLEAN in wreck.cluster.log()[said:]
    has_eligible_replicas = wreck.cluster.version == kafka.NEWEST
    assert struck == {"none": has_eligible_replicas} | ({"registered": False} if wreck.cluster.kraft else {})
