"""Clients with impossible requests: honest clients are served beside them, and nothing of theirs stays."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.formats.structs.schema import Data

from tests.commands.serve.hostile import attacked, made_up, recorded
from tests.commands.serve.serving import MOST_MIB, Serving, Wire, is_well
from tests.conftest import FIXTURES, writable_copy

SEED = 20
MOST_GROWTH_MIB = 8
"""In the second half of the time; some requests are larger than all before them."""


@pytest.mark.parametrize(
    "seconds", [pytest.param(5, marks=pytest.mark.slow), pytest.param(600, marks=pytest.mark.long)]
)
def test_spoilt_requests_harm_nobody(tmp_path: Path, seconds: int) -> None:
    """Those of real clients and of every API, with bits flipped, cut, repeated, spliced, lengths grown."""
    folder = writable_copy(FIXTURES / "modern", tmp_path / "data")
    requests = [*made_up(random.Random(SEED)), *(2 * recorded(folder, ("tx", "zstd")))]
    waited, largest, early = [], 0, 0
    with Serving(folder) as serving:
        with Wire(serving.port, "honest") as wire:
            expected = wire.fetch("tx", 0)
            threads = serving.facts()[1]
            with attacked(serving.port, requests, SEED) as sent:
                until = time.monotonic() + seconds
                in_the_middle = until - seconds / 2
                while time.monotonic() < until:
                    began = time.monotonic()
                    assert wire.fetch("tx", 0) == expected
                    waited.append(time.monotonic() - began)
                    largest = max(largest, serving.facts()[0])
                    early = largest if began < in_the_middle else early
                    time.sleep(0.01)
            settled = time.monotonic() + 90
            while serving.facts()[1] > threads and time.monotonic() < settled:
                time.sleep(0.1)
            assert serving.facts()[1] == threads
        assert "Traceback" not in serving.said, serving.said
        assert serving.process.poll() is None
    waited.sort()
    after = f"{waited[len(waited) // 2]:.4f} to {waited[-1]:.4f} s"
    how = f"{sum(sent)} requests, {early} MiB, then {largest}; answered after {after}"
    print(how)
    assert largest <= MOST_MIB, how
    assert largest - early <= MOST_GROWTH_MIB, how
    assert waited[-1] < 5, how
    assert sum(sent) > 50 * seconds, how


# ---------------------------------------------------------------- memory, and the 256 connections


@pytest.fixture
def serving() -> Iterator[Serving]:
    with Serving(FIXTURES / "modern") as serving:
        yield serving
        assert "Traceback" not in serving.said


def slow(port: int) -> Wire:
    wire = Wire(port)
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return wire


def joining(group: str, data: bytes = b"") -> Data:
    fields = {"groupId": group, "memberId": "", "protocolType": "consumer", "groupInstanceId": None}
    times = {"sessionTimeoutMs": 1_800_000, "rebalanceTimeoutMs": 1_800_000}
    return fields | times | {"protocols": [{"name": "range", "metadata": data}]}


def test_all_but_a_byte_of_a_large_request_from_everybody(serving: Serving) -> None:
    """A megabyte each: that was 300 MiB for half a minute."""
    many = [socket.create_connection(("127.0.0.1", serving.port)) for _ in range(250)]
    for connection in many:
        connection.setblocking(False)
        try:
            connection.send(struct.pack(">i", 1 << 20) + b"\0\1" + bytes((1 << 20) - 10))
        except BlockingIOError:
            pass
    time.sleep(1)
    is_well(serving)
    for connection in many:
        connection.close()


def test_large_answers_that_nobody_reads(serving: Serving) -> None:
    """Groups with as much as fits, described to everybody: that was 30 MiB for each."""
    with Wire(serving.port) as wire:
        codes = [wire.ask("JoinGroup", 3, joining(f"g{number}", bytes(1_000_000)))["errorCode"] for number in range(20)]
        assert (codes[0], codes[-1]) == (0, 81)
    wires = [slow(serving.port) for _ in range(250)]
    for wire in wires:
        groups = {"groups": [f"g{number}" for number in range(20)], "includeAuthorizedOperations": False}
        wire.socket.sendall(wire.request("DescribeGroups", 3, groups))
    time.sleep(1)
    is_well(serving)
    for wire in wires:
        wire.socket.close()


def test_large_requests_of_those_who_then_wait_or_do_not_read(serving: Serving) -> None:
    """The request is not held in memory beside the answer."""
    row = {"partition": 0, "fetchOffset": 10, "partitionMaxBytes": 1 << 20}
    much = [{"topic": "x" * 32_000, "partitions": [1]}] * 30
    body = {"maxWaitMs": 60_000, "minBytes": 1 << 30, "topics": [{"topic": "zstd", "partitions": [row]}]}
    wires = [slow(serving.port) for _ in range(250)]
    for wire in wires:
        wire.socket.sendall(wire.request("Fetch", 11, body | {"forgottenTopicsData": much}))
    is_well(serving)
    for wire in wires:
        wire.socket.close()


def test_who_hangs_up_while_its_group_gathers_leaves_no_thread_behind(serving: Serving) -> None:
    with Wire(serving.port) as leader:
        assert not leader.ask("JoinGroup", 3, joining("g"))["errorCode"]
        before = serving.facts()[1]
        waiting = [Wire(serving.port) for _ in range(20)]
        for wire in waiting:
            wire.socket.sendall(wire.request("JoinGroup", 3, joining("g")))
        until = time.monotonic() + 90
        while serving.facts()[1] < before + 20 and time.monotonic() < until:
            time.sleep(0.1)
        assert serving.facts()[1] == before + 20
        for wire in waiting:
            wire.socket.close()
        until = time.monotonic() + 90
        while serving.facts()[1] > before and time.monotonic() < until:
            time.sleep(0.1)
        assert serving.facts()[1] == before


def test_two_thousand_connections(serving: Serving) -> None:
    """256 are kept; when they go, there is room again."""
    many = [socket.create_connection(("127.0.0.1", serving.port), 10) for _ in range(2000)]
    time.sleep(0.5)
    assert serving.facts()[1] <= 258
    assert serving.facts()[0] <= MOST_MIB
    for connection in many:
        connection.close()
    time.sleep(0.5)
    is_well(serving)


def test_readers_of_a_byte_a_second_and_those_who_stop_keep_nobody_waiting(serving: Serving) -> None:
    row = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}
    body = {"maxWaitMs": 0, "minBytes": 0, "topics": [{"topic": "zstd", "partitions": [row]}]}
    wires = [slow(serving.port) for _ in range(100)]
    for wire in wires:
        for _ in range(20):
            wire.socket.sendall(wire.request("Fetch", 12, body))
    for _ in range(3):
        for wire in wires[:50]:
            assert wire.exactly(1)
        is_well(serving)
        time.sleep(0.3)
    for wire in wires:
        wire.socket.close()


def test_a_name_that_grows_when_it_is_made_text_ends_the_connection(serving: Serving) -> None:
    """Each byte that is no UTF-8 becomes three, and a string of 60 000 bytes cannot be answered with."""
    body = struct.pack(">hhihih", 15, 0, 1, -1, 1, 20_000) + b"\xff" * 20_000
    with socket.create_connection(("127.0.0.1", serving.port), 10) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert connection.recv(1) == b""
    is_well(serving)
    assert serving.says("too long to be serialized")
