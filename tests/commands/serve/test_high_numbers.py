"""A directory with a high number in its name: nothing is proportional to that number."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import pytest
from klog.base.errors import UnsupportedError
from klog.commands.serve.serve_options import Missing, ServeOptions
from klog.commands.serve.view import View

from tests.conftest import run_klog
from tests.oracles.plain.encode import Record, batch

HIGHEST = 2**31 - 2


def log_dir(folder: Path, *names: str) -> Path:
    data = folder / "data"
    for name in names:
        (data / name).mkdir(parents=True)
        (data / name / f"{0:020}.log").write_bytes(batch([Record(0, 1, b"k", b"v")]))
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    return data


@pytest.mark.parametrize("number", [HIGHEST, 90_000_000])
@pytest.mark.parametrize("missing", ["empty", "offline"])
def test_a_topic_of_too_many_partitions_is_refused(tmp_path: Path, number: int, missing: Missing) -> None:
    """Clients receive all partitions; memory for two thousand million of them ended the process."""
    data = log_dir(tmp_path, f"t-{number}", "u-0")
    with pytest.raises(UnsupportedError, match=rf"^t: {number + 1} partitions, .*; check {data}/t-{number}; ") as told:
        View.open([str(data)], ServeOptions(missing=missing))
    assert "--missing omit" in str(told.value)


def test_only_those_that_are_there_are_listed_when_asked_for(tmp_path: Path) -> None:
    data = log_dir(tmp_path, f"t-{HIGHEST}", "t-3")
    tracemalloc.start()
    try:
        view = View.open([str(data)], ServeOptions(missing="omit"))
        assert view.topics["t"].indexes == (3, HIGHEST)
        named = ", ".join(f"t-{number}" for number in (0, 1, 2, *range(4, 11)))
        assert view.notes[1] == f"{HIGHEST - 1} partitions are not on this disk, and not listed: {named}, …"
        assert view.partition("t", HIGHEST) is not None
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_hundreds_of_partitions_are_listed(tmp_path: Path) -> None:
    """A disk with only the last partition of a topic is no rarity."""
    view = View.open([str(log_dir(tmp_path, "t-300"))])
    assert view.topics["t"].indexes == range(301)
    assert view.notes[1].startswith("300 partitions are not on this disk, and shown empty: t-0, t-1, ")


@pytest.mark.parametrize(
    "command",
    ["groups", "transactions", "describe", "space", "doctor", "audit headers", "verify", "timeline", "replicas diff"],
)
def test_other_commands_count_no_partitions_that_are_not_there(tmp_path: Path, command: str) -> None:
    """`groups` and `transactions` made a set of all numbers below the highest one."""
    names = (f"__consumer_offsets-{HIGHEST}", f"__transaction_state-{HIGHEST}", f"t-{HIGHEST}")
    data = log_dir(tmp_path, *names)
    start = time.process_time()
    ran = run_klog(*command.split(), data)
    assert ran.exit_code in (0, 4, 8), ran.stderr
    assert time.process_time() - start < 5
