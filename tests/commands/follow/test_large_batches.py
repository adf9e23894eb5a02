"""Batches larger than the limit, and leaders that make a client wait: neither costs other partitions."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.formats.structs.schema import Data
from klog.formats.wire_messages import ApiRequest

from tests.commands.follow.client.fake_broker import answer_bytes
from tests.commands.follow.following import batches
from tests.commands.follow.scripted import ScriptedCluster
from tests.commands.follow.test_histories import follow, log
from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch

Klog = Callable[..., Ran]
SMALL = log("small", 0, 50)
ALL = ("aaa", "large", "zzz", "zzzz")


def large(size: int) -> bytes:
    return batch([Record(0, 1_700_000_000_000, b"k", bytes(size))])


@pytest.mark.parametrize("size", [20_000_000, 48_000_000])
def test_a_large_batch_is_copied_beside_small_ones(klog: Klog, tmp_path: Path, size: int) -> None:
    """It may be as large as its topic lets batches be; later ones in an answer are not in its way."""
    topics = dict.fromkeys(ALL, SMALL) | {"large": [large(size)]}
    copy = tmp_path / "copy"
    with ScriptedCluster(topics) as cluster:
        cluster.settings["large"] = {"max.message.bytes": "100000000"}
        for _ in range(2):
            ran, rows = follow(klog, cluster, copy, "--timeout", "20s")
            assert (ran.exit_code, ran.stderr) == (0, b"")
            assert {name for name, row in rows.items() if row["error"] is None} == {*ALL}
    for name, wanted in topics.items():
        assert batches(copy / f"{name}-0") == b"".join(wanted)


@pytest.mark.parametrize("settings", [{}, {"max.message.bytes": "1048588"}])
def test_a_batch_that_is_too_large_costs_no_other_partition(
    klog: Klog, tmp_path: Path, settings: dict[str, str]
) -> None:
    """If its topic has no setting for such a size, it alone is given up, and the message names the remedy."""
    topics = dict.fromkeys(ALL, SMALL) | {"large": [large(48_000_000)]}
    copy = tmp_path / "copy"
    with ScriptedCluster(topics) as cluster:
        cluster.settings["large"] = settings
        ran, rows = follow(klog, cluster, copy, "--timeout", "20s")
        assert ran.exit_code == 8, ran
        assert b"large-0: " in ran.stderr
        assert b"--fetch-bytes 480001" in ran.stderr
        assert ran.stderr.count(b"\n") == 1
        assert {name for name, row in rows.items() if row["error"] is None} == {"aaa", "zzz", "zzzz"}
        for name in ("aaa", "zzz", "zzzz"):
            assert batches(copy / f"{name}-0") == b"".join(SMALL)
        ran, _ = follow(klog, cluster, copy, "--timeout", "20s", "--fetch-bytes", "48MiB")
        assert (ran.exit_code, ran.stderr) == (0, b"")
    assert batches(copy / "large-0") == topics["large"][0]


@pytest.mark.parametrize("ms", [2**31 - 1, 100_000])
@pytest.mark.parametrize("with_records", [True, False])
def test_a_throttle_time_without_end_is_given_up(klog: Klog, tmp_path: Path, ms: int, with_records: bool) -> None:
    """--timeout holds, also where the first answer had records."""

    def throttled(request: ApiRequest, body: Data) -> Data:
        assert request.body is not None
        for topic in body["responses"]:
            for row in topic["partitions"]:
                row["highWatermark"] = 100
                row["records"] = row["records"] if with_records else b""
        return body | {"throttleTimeMs": ms}

    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": SMALL}, {"Fetch": throttled}) as cluster:
        began = time.monotonic()
        ran, _ = follow(klog, cluster, copy, "--timeout", "2s")
        assert time.monotonic() - began < 15
        assert ran.exit_code == 8, ran
        assert b"given up: no data arrives within" in ran.stderr
    assert batches(copy / "orders-0") == (b"".join(SMALL) if with_records else b"")


def test_a_throttle_time_that_ends_is_waited_for(klog: Klog, tmp_path: Path) -> None:
    """It takes a second of it, while records arrive."""
    told: list[int] = []

    def throttled(_: ApiRequest, body: Data) -> Data:
        told.append(1)
        return body | {"throttleTimeMs": 1000 if len(told) == 1 else 0}

    with ScriptedCluster({"orders": SMALL}, {"Fetch": throttled}) as cluster:
        ran, _ = follow(klog, cluster, tmp_path / "copy", "--timeout", "2s", "--partition-bytes", "1")
        assert (ran.exit_code, ran.stderr) == (0, b"")
    assert batches(tmp_path / "copy" / "orders-0") == b"".join(SMALL)


def test_an_answer_that_drips_is_no_answer(klog: Klog, tmp_path: Path) -> None:
    """Its size gives it no time in advance: forty megabytes would have had ten minutes."""

    def dripping(request: ApiRequest, body: Data) -> bytes:
        whole = answer_bytes(request, body)
        return (40 << 20).to_bytes(4, "big") + whole[4:]

    with ScriptedCluster({"orders": SMALL}, {"Fetch": dripping}) as cluster:
        began = time.monotonic()
        ran, _ = follow(klog, cluster, tmp_path / "copy", "--timeout", "1s")
        assert time.monotonic() - began < 30
        assert ran.exit_code == 8, ran
