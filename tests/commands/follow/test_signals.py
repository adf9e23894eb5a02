"""^C and SIGTERM: `klog follow` ends soon, and the next run continues from the state on the disk."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.follow.following import Following
from tests.commands.follow.scripted import ScriptedCluster, end_of, log_of, of_fixture
from tests.conftest import Ran

Klog = Callable[..., Ran]
BATCHES = of_fixture("plain-2")
CANCELLED = 32
SECONDS = 30


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_how_a_continuous_copy_ends(number: signal.Signals, klog: Klog, tmp_path: Path) -> None:
    """Exit code 0, and all received records are there, closed as after a clean stop: nothing is written again."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": BATCHES}) as cluster:
        with Following(cluster.bootstrap, copy) as running:
            running.wait_for(f"^orders-0 append .* LEO={end_of(BATCHES[-1])}$")
            began = time.monotonic()
            assert running.end(number, SECONDS) == 0, running.said
            assert time.monotonic() - began < SECONDS
        assert log_of(copy, "orders-0") == b"".join(BATCHES)
        assert (copy / "orders-0" / f"{end_of(BATCHES[-1]):020}.snapshot").exists()
        before = {path: path.stat().st_mtime_ns for path in (copy / "orders-0").iterdir()}
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
        assert {path: path.stat().st_mtime_ns for path in (copy / "orders-0").iterdir()} == before
        assert not cluster.failed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_copy_that_has_not_caught_up_was_cancelled(number: signal.Signals, klog: Klog, tmp_path: Path) -> None:
    """Exit code 32; the received records are a prefix of the leader's log, and on the disk."""
    copy, wanted = tmp_path / "copy", b"".join(BATCHES)
    with ScriptedCluster({"orders": BATCHES}) as cluster:
        words = ("--rate", str(len(BATCHES[0])), "--partition-bytes", "1", "--flush", "1h")
        with Following(cluster.bootstrap, copy, *words, continuous=False) as running:
            running.wait_for("^orders-0 append ")
            assert running.end(number, SECONDS) == CANCELLED, running.said
            assert "Traceback" not in running.said
        some = log_of(copy, "orders-0")
        assert wanted.startswith(some)
        assert 0 < len(some) < len(wanted)
        point = (copy / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
        assert point == [f"orders 0 {end_of(BATCHES[_last(some)])}"]
        assert klog("verify", "--deep", copy).exit_code == 0
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
        assert log_of(copy, "orders-0") == wanted


def _last(some: bytes) -> int:
    """Return the number of the last batch in a prefix of the log."""
    size = 0
    for number, batch in enumerate(BATCHES):
        size += len(batch)
        if size == len(some):
            return number
    raise AssertionError("not whole batches")
