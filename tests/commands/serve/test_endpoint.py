"""Attacks of strangers on the endpoint: on its memory, its time, its threads — and its end."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.formats.structs.schema import load, names_by_key

from tests.commands.serve.serving import MOST_MIB, Serving, Wire, is_well
from tests.conftest import FIXTURES
from tests.formats.struct_writer import damaged, made_up_struct, write

MODERN = FIXTURES / "modern"


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with Serving(MODERN) as serving:
        yield serving


def fate(port: int, data: bytes) -> bytes:
    """Return the answer to *data*: nothing when the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        try:
            connection.sendall(data)
            return connection.recv(100)
        except ConnectionError:
            return b""


HEADER = struct.pack(">hhih", 1, 12, 1, 1) + b"k\0"
HOSTILE = {
    "the largest length": b"\x7f\xff\xff\xff",
    "a negative length": b"\xff\xff\xff\xff",
    "a length of nothing": b"\0\0\0\0",
    "a megabyte and one": struct.pack(">i", (1 << 20) + 1) + b"\0\3\0\0",
    "http": b"GET / HTTP/1.0\r\n\r\n",
    "tls": bytes.fromhex("1603010200010001fc0303") + bytes(200),
    "an array of 2^31": struct.pack(">i", len(HEADER) + 30)
    + HEADER
    + struct.pack(">iiiibii", -1, 500, 1, 1 << 20, 0, 0, -1)
    + b"\xff\xff\xff\xff\x0f",
    "an api that is not": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "a version that is not": struct.pack(">ihhih", 10, 1, 99, 1, -1),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_request_ends_the_connection_and_nothing_else(serving: Serving, data: bytes) -> None:
    assert fate(serving.port, data) == b""
    is_well(serving)


def test_a_request_that_asks_for_a_million_things_ends_the_connection(serving: Serving) -> None:
    """Two bytes each on the wire, two hundred in memory."""
    topics = 500_000
    body = struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", topics) + b"\0\0" * topics
    assert fate(serving.port, struct.pack(">i", len(body)) + body) == b""
    is_well(serving)


def test_asking_for_the_same_again_and_again_makes_no_larger_answer(serving: Serving) -> None:
    with Wire(serving.port) as wire:
        one = {"name": "plain", "topicId": "A" * 22}
        assert wire.ask("Metadata", 12, {"topics": [one] * 500}) == wire.ask("Metadata", 12, {"topics": [one]})
        row = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}
        body = {"maxWaitMs": 0, "minBytes": 0, "topics": [{"topic": "zstd", "partitions": [row] * 100}] * 5}
        assert [len(topic["partitions"]) for topic in wire.ask("Fetch", 12, body)["responses"]] == [1, 0, 0, 0, 0]
        groups = [{"groupId": "classic", "topics": None}] * 300
        assert len(wire.ask("OffsetFetch", 8, {"groups": groups})["groups"]) == 1


def test_random_and_slightly_wrong_requests_do_no_harm(serving: Serving) -> None:
    """Every API in every version, with made-up content, then with one to three things wrong."""
    chance = random.Random(5)
    for key, (name, _) in sorted(names_by_key("wire").items()):
        if name in ("JoinGroupRequest", "SyncGroupRequest"):
            continue  # they may wait for others; the coordinator's own tests have them
        schema = load("wire", name)
        for version in range(schema.lowest, schema.highest + 1):
            body = write(schema, made_up_struct(schema.struct, version, chance), version)
            head = struct.pack(">hhih", key, version, 1, 1) + b"k" + b"\0" * schema.flexible.hold(version)
            for data in (head + body, head + damaged(body, chance), head + chance.randbytes(chance.randrange(200))):
                with socket.create_connection(("127.0.0.1", serving.port), 10) as connection:
                    connection.sendall(struct.pack(">i", len(data)) + data)
    is_well(serving)
    assert "Traceback" not in serving.said


def test_half_requests_and_readers_that_stop_hold_up_nobody(serving: Serving) -> None:
    """Memory follows the received bytes, not the announced ones; and a client that reads nothing waits alone."""
    half = [socket.create_connection(("127.0.0.1", serving.port)) for _ in range(50)]
    for connection in half:
        connection.sendall(struct.pack(">i", 1 << 20) + b"\0\1")
    slow = [Wire(serving.port) for _ in range(50)]
    for wire in slow:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        row = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}
        body = {"maxWaitMs": 0, "minBytes": 0, "topics": [{"topic": "zstd", "partitions": [row]}]}
        wire.socket.sendall(wire.request("Fetch", 12, body))
    is_well(serving)
    for connection in (*half, *(wire.socket for wire in slow)):
        connection.close()


def test_more_connections_than_allowed_are_closed_at_once() -> None:
    with Serving(MODERN, "--connections", "20") as serving:
        many = [socket.create_connection(("127.0.0.1", serving.port), 10) for _ in range(300)]
        time.sleep(0.5)
        kept = 0
        for connection in many:
            connection.setblocking(False)
            try:
                kept += connection.recv(1) != b""
            except BlockingIOError:
                kept += 1
            except ConnectionError:
                pass
        assert kept == 20
        assert serving.says("was refused: there are 20 connections")
        for connection in many:
            connection.close()
        time.sleep(0.2)
        is_well(serving)
        assert serving.facts()[1] <= 22


def test_256_connections_fit() -> None:
    with Serving(MODERN) as serving:
        wires = [Wire(serving.port) for _ in range(256)]
        for wire in wires:
            assert wire.fetch("zstd", 0)["records"]
        assert serving.facts()[0] <= MOST_MIB
        for wire in wires:
            wire.socket.close()


def test_a_client_that_goes_while_it_waits_leaves_no_thread_behind(serving: Serving) -> None:
    with Wire(serving.port) as wire:
        end = wire.fetch("zstd", 0)["highWatermark"]
        row = {"partition": 0, "fetchOffset": end, "partitionMaxBytes": 1 << 20}
        body = {"maxWaitMs": 60_000, "minBytes": 1, "topics": [{"topic": "zstd", "partitions": [row]}]}
        wire.socket.sendall(wire.request("Fetch", 12, body))
        time.sleep(0.2)
        before = serving.facts()[1]
    until = time.monotonic() + 90
    while serving.facts()[1] >= before and time.monotonic() < until:
        time.sleep(0.05)
    assert serving.facts()[1] < before


def test_several_requests_at_once_are_answered_in_their_order(serving: Serving) -> None:
    with Wire(serving.port) as wire:
        requests = [wire.request("ApiVersions", 0, {}) for _ in range(3)]
        wire._asked = 1
        wire.socket.sendall(b"".join(requests))
        for number in range(1, 4):
            wire._asked = number
            assert len(wire.answer("ApiVersions", 0)["apiKeys"]) == 29


def long_log(data: Path) -> Path:
    """Return a log of nine megabytes: the same batch again and again, but for its offset, which no checksum covers."""
    folder = data / "long-0"
    folder.mkdir(parents=True)
    log = folder / f"{0:020}.log"
    batch = bytearray((MODERN / "zstd-0" / f"{0:020}.log").read_bytes())
    size = 12 + struct.unpack_from(">i", batch, 8)[0]
    count = struct.unpack_from(">i", batch, 57)[0]
    with log.open("wb") as file:
        for number in range(9_000_000 // size):
            struct.pack_into(">q", batch, 0, number * count)
            file.write(batch[:size])
    (data / "meta.properties").write_bytes((MODERN / "meta.properties").read_bytes())
    return log


def test_a_file_that_becomes_shorter_ends_the_connection_and_is_said(tmp_path: Path) -> None:
    """Else the client would wait for ever for the rest of an answer that was begun."""
    log = long_log(tmp_path)
    with Serving(tmp_path, "--damaged", "serve") as serving, Wire(serving.port) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        row = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 30}
        body = {"maxWaitMs": 0, "minBytes": 0, "topics": [{"topic": "long", "partitions": [row]}]}
        wire.socket.sendall(wire.request("Fetch", 12, body))
        wire.exactly(4)
        os.truncate(log, 1000)
        with pytest.raises((EOFError, ConnectionError)):
            wire.exactly(8_000_000)
        assert serving.says("shorter")
        assert f"{log} @ " in serving.said
        assert serving.end(signal.SIGINT) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once(number: signal.Signals) -> None:
    """With clients that are idle or wait for more: nothing of theirs is lost."""
    serving = Serving(MODERN)
    with Wire(serving.port) as wire, Wire(serving.port):
        end = wire.fetch("zstd", 0)["highWatermark"]
        row = {"partition": 0, "fetchOffset": end, "partitionMaxBytes": 1 << 20}
        body = {"maxWaitMs": 60_000, "minBytes": 1, "topics": [{"topic": "zstd", "partitions": [row]}]}
        wire.socket.sendall(wire.request("Fetch", 12, body))
        time.sleep(0.2)
        began = time.monotonic()
        assert serving.end(number) == 0
        assert time.monotonic() - began < 20  # alone on a machine it is a tenth of a second
        assert "Traceback" not in serving.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_middle_of_a_large_response_is_no_reason_to_stay(tmp_path: Path, number: signal.Signals) -> None:
    """Eight mebibytes are on their way, the client takes its time, and whoever ends it learns that one was cut off."""
    long_log(tmp_path)
    serving = Serving(tmp_path)
    with Wire(serving.port) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        row = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 8 << 20}
        body = {"maxWaitMs": 0, "minBytes": 0, "topics": [{"topic": "long", "partitions": [row]}]}
        wire.socket.sendall(wire.request("Fetch", 12, body))
        assert int.from_bytes(wire.exactly(4), "big") > 7 << 20
        wire.exactly(3 << 20)
        began = time.monotonic()
        assert serving.end(number) == 32
        assert time.monotonic() - began < 20  # alone on a machine it is a tenth of a second
        with pytest.raises((EOFError, ConnectionError)):
            wire.exactly(8 << 20)


def test_it_says_when_it_cut_a_client_off() -> None:
    serving = Serving(MODERN, "--send-buffer", "4KiB")
    with Wire(serving.port) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        row = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 20}
        body = {"maxWaitMs": 0, "minBytes": 0, "topics": [{"topic": "zstd", "partitions": [row]}]}
        for _ in range(20):
            wire.socket.sendall(wire.request("Fetch", 12, body))
        wire.exactly(4)  # the first answer has begun
        assert serving.end(signal.SIGINT) == 32
    assert "while a client was being answered" in serving.said


def test_requests_are_lines_on_stdout(tmp_path: Path) -> None:
    with (
        (tmp_path / "requests").open("wb") as file,
        Serving(MODERN, "--output", "jsonl", stdout=file.fileno()) as serving,
    ):
        with Wire(serving.port, "me") as wire:
            wire.ask("ApiVersions", 3, {"clientSoftwareName": "tool", "clientSoftwareVersion": "1.0"})
            size = len(wire.fetch("zstd", 0)["records"])
            wire.ask("ApiVersions", 0, {})  # when this is answered, the line about the other is written
        serving.end()
    rows = [json.loads(line) for line in (tmp_path / "requests").read_text().splitlines()[:2]]
    assert [(row["api"], row["version"], row["client_id"], row["software"]) for row in rows] == [
        ("ApiVersions", 3, "me", "tool 1.0"),
        ("Fetch", 12, "me", "tool 1.0"),
    ]
    assert rows[1]["bytes"] > size
    assert list(rows[1]) == ["client", "client_id", "software", "api", "version", "ms", "bytes"]


def test_nobody_reading_the_requests_any_more_stops_nothing() -> None:
    serving = Serving(MODERN, "--output", "jsonl", stdout=subprocess.PIPE)
    assert serving.process.stdout is not None
    serving.process.stdout.close()
    with serving:
        for _ in range(3):
            is_well(serving)
