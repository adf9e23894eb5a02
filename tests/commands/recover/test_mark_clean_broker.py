"""The effect of a clean-shutdown marker on brokers, observed: `recover --mark-clean` has to produce the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import kafka
from tests.brokers.wreck import Wreck
from tests.oracles.broker_load import MARKER, Loader

NOBODYS = '{"version":0,"brokerEpoch":-1}'
"""A marker that stops the recovery, and has a broker epoch that no marker has."""


# Before the fixture's brokers are there, which stay until the end and have the same port.
@pytest.mark.kafka
@pytest.mark.slow
def test_the_epoch_in_a_marker_decides_whether_replicas_are_struck_off(tmp_path: Path) -> None:
    """4.x with eligible leader replicas: only the registered epoch, in all log dirs, counts as "nothing was lost"."""
    with Wreck(kafka.NEWEST, tmp_path) as wreck:
        epoch = registered_epoch(wreck)
        struck = {}
        for name, marker in (("none", None), ("nobody's", -1), ("another", epoch + 1), ("its own", epoch)):
            wreck.restore()
            if marker is not None:
                recover_and_mark(wreck, f'{{"version":0,"brokerEpoch":{marker}}}')
            said = len(wreck.cluster.log())
            wreck.start()
            # A replica that was removed from the ISR becomes a leader again only by an unclean election.
            struck[name] = "UNCLEAN partition change for" in wreck.cluster.log()[said:]
    assert struck == {"none": True, "nobody's": True, "another": True, "its own": False}


# The marker in versions that no longer change: klog's own markers are tested with all three in test_marked_broker.
@pytest.fixture(
    scope="module",
    params=[kafka.NEWEST, *(pytest.param(version, marks=pytest.mark.long) for version in (kafka.BEFORE, kafka.LEGACY))],
)
def wreck(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wreck]:
    with Wreck(request.param, tmp_path_factory.mktemp(request.param)) as one:
        yield one


def recover_and_mark(wreck: Wreck, marker: str = NOBODYS) -> None:
    """Do the same as a broker between an unclean start and a clean stop, and mark the log dir with *marker*."""
    # ZooKeeper brokers know no identities of topics; without them the loader would set all partitions aside.
    nameless = [path for path in wreck.data.glob("*-*") if path.is_dir() and not (path / "partition.metadata").exists()]
    for path in nameless:
        (path / "partition.metadata").write_text("version: 0\ntopic_id: " + "A" * 21 + "Q")
    with Loader() as loader:
        assert loader.load(wreck.data, wreck.settings).ok
    for path in nameless:
        (path / "partition.metadata").unlink()
    (wreck.data / MARKER).write_text(marker)


# The normal run has the same with klog's own markers, in test_marked_broker.
@pytest.mark.kafka
@pytest.mark.long
def test_a_marked_log_dir_goes_on_as_if_the_broker_had_recovered_it(wreck: Wreck) -> None:
    """Three versions: sequences, open transactions and the last stable offset are the same, without a recovery."""
    wreck.restore()
    assert wreck.start()
    recovered = wreck.state()
    assert recovered.duplicate == (0, recovered.ends["sequence"][1] - 10)
    stable, end = recovered.ends["open"]
    assert stable == end - 20
    wreck.restore()
    recover_and_mark(wreck)
    assert wreck.start() == []
    assert wreck.state() == recovered
    assert wreck.go_on() == (stable, end + 5)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_marker_without_snapshots_forgets_transactions_and_duplicates(wreck: Wreck) -> None:
    """Why a marker may only be written where snapshots are in order: no error, but undecided records are readable."""
    wreck.restore()
    recover_and_mark(wreck)
    for path in wreck.data.glob("*/*.snapshot"):
        path.unlink()
    assert wreck.start() == []
    state = wreck.state()
    stable, end = state.ends["open"]
    assert stable == end
    error, offset = state.duplicate
    assert (error, offset) == (0, state.ends["sequence"][1])


def registered_epoch(wreck: Wreck) -> int:
    """Return the broker epoch of the last registration in the metadata log."""
    log = wreck.killed / "__cluster_metadata-0/00000000000000000000.log"
    done = kafka.DumpTool().run("--cluster-metadata-decoder", "--files", str(log))
    found = re.findall(r'"REGISTER_BROKER_RECORD".*?"brokerEpoch":(\d+)', done.stdout.decode())
    assert found, done
    return int(found[-1])
