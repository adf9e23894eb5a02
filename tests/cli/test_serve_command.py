"""`klog serve`: its options, its first lines, and its refusals before it listens."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.serve.serving import Serving, Wire
from tests.conftest import FIXTURES, Ran
from tests.support.rolled_back import data, metadata, partition

Klog = Callable[..., Ran]
MODERN = FIXTURES / "modern"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "nothing to serve: name a log dir, or several of one cluster"),
        ([MODERN, "--listen", "9092"], "--listen 9092: expected HOST:PORT"),
        ([MODERN, "--listen", "127.0.0.1:70000"], "--listen 127.0.0.1:70000: expected HOST:PORT"),
        ([MODERN, "--listen", "::1:9092"], "expected HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092"),
        ([MODERN, "--listen", "0.0.0.0:0"], "--expose allows that"),
        ([MODERN, "--listen", "192.0.2.1:0"], "--expose allows that"),
        ([MODERN, "--listen", "some.host:0"], "--expose allows that"),
        ([MODERN, "--listen", "0.0.0.0:0", "--expose"], "clients need an address to connect to: --advertise HOST"),
        ([MODERN, "--listen", "192.0.2.1:0", "--expose"], "--listen 192.0.2.1:0: "),
        ([MODERN, "--advertise", "host:port"], "--advertise host:port: expected HOST:PORT"),
        ([MODERN, "--end", "checkpoints"], "--end checkpoints: expected one of log, checkpoint"),
        ([MODERN, "--damaged", "no"], "--damaged no: expected one of skip, stop, serve"),
        ([MODERN, "--output", "json"], "--output json: expected one of text, jsonl"),
        ([MODERN, "--send-buffer", "big"], "'big' is not a size"),
        ([MODERN, "--at-time", "later"], "'later' is not a time"),
        ([MODERN, "--connections", "0"], "--connections"),
        ([MODERN, "--topic", "plian"], "plian"),
    ],
)
def test_what_makes_no_sense_is_said_before_anybody_can_connect(klog: Klog, options: list[str], said: str) -> None:
    ran = klog("serve", *options)
    assert (ran.exit_code, ran.stdout) == (16, b"")
    assert said in ran.stderr.decode()
    assert "listening" not in ran.stderr.decode()


def test_a_port_that_is_taken_is_said(klog: Klog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ran = klog("serve", MODERN, "--listen", f"127.0.0.1:{other.getsockname()[1]}")
    assert ran.exit_code == 16
    assert b"Address already in use" in ran.stderr


def test_a_path_that_is_not_there_is_said(klog: Klog, tmp_path: Path) -> None:
    ran = klog("serve", tmp_path / "nowhere")
    assert ran.exit_code != 0
    assert b"nowhere" in ran.stderr


def test_the_start_says_what_is_served_and_what_is_not_here() -> None:
    with Serving(MODERN) as serving, Wire(serving.port) as wire:
        wire.ask("ApiVersions", 0, {})
        assert serving.end() == 0
    first, *rest = serving.said.splitlines()
    assert first == f"klog serve: listening on {serving.bootstrap}"
    assert any("fXeC61JOQie3q2pvw8VSPQ" in line for line in rest)
    assert any("plain-0" in line for line in rest)


def raised_log_start(folder: Path, epochs: list[tuple[int, int]]) -> Path:
    """Write a partition of offsets 0 to 7 whose log start is 6 by the checkpoint, with these leader epochs."""
    metadata(folder, leader_epoch=1, next_producer_id=None)
    path = partition(folder, [data(offset, offset // 4) for offset in range(0, 8, 2)], epochs)
    (folder / "log-start-offset-checkpoint").write_text("0\n1\norders 0 6\n")
    return path


@pytest.mark.parametrize(
    ("epochs", "is_named"),
    [
        ([(0, 2), (1, 4)], True),
        ([(1, 6)], False),  # DeleteRecords
        ([(0, 0), (1, 4)], False),  # epochs that were rebuilt from the log
    ],
)
def test_records_below_a_log_start_that_no_broker_has_raised(
    epochs: list[tuple[int, int]], is_named: bool, tmp_path: Path
) -> None:
    """Clients get none of them: the start names the partition, and serves the rest."""
    path = raised_log_start(tmp_path / "data", epochs)
    with Serving(path.parent) as serving, Wire(serving.port) as wire:
        wire.ask("ApiVersions", 0, {})
        assert serving.end() == 0
    said = f"klog: {path}: the log start 6 hides records, and the leader epochs begin at 2 (log-start-raised)"
    assert (said in serving.said.splitlines()) is is_named
    assert ("log-start-raised" in serving.said) is is_named


def test_one_that_is_not_served_is_not_named(tmp_path: Path) -> None:
    """The best copy is served, and another topic is not."""
    path = raised_log_start(tmp_path / "data", [(0, 2), (1, 4)])
    fine = shutil.copytree(path.parent, tmp_path / "fine")
    (fine / "log-start-offset-checkpoint").unlink()
    (fine / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n2 2\n")
    with Serving(path.parent, fine) as serving, Wire(serving.port) as wire:
        wire.ask("ApiVersions", 0, {})
        assert serving.end() == 0
    assert "log-start-raised" not in serving.said


def test_quiet_leaves_the_line_that_scripts_wait_for() -> None:
    with Serving(MODERN, "--quiet") as serving, Wire(serving.port) as wire:
        wire.ask("ApiVersions", 0, {})
        serving.end()
    assert serving.said == f"klog serve: listening on {serving.bootstrap}\n"


@pytest.mark.parametrize(
    ("advertised", "host", "port"),
    [("broker.example", "broker.example", 0), ("broker.example:19092", "broker.example", 19092), ("[::1]:7", "::1", 7)],
)
def test_clients_are_sent_where_the_operator_says(advertised: str, host: str, port: int) -> None:
    """Through a tunnel or out of a container the address that is listened on means something else."""
    with Serving(MODERN, "--advertise", advertised) as serving, Wire(serving.port) as wire:
        (node,) = wire.ask("Metadata", 9, {"topics": []})["brokers"]
        assert (node["host"], node["port"]) == (host, port or serving.port)


def test_beyond_this_machine_it_says_who_can_read() -> None:
    with (
        Serving(MODERN, "--expose", "--advertise", "127.0.0.1", listen="0.0.0.0:0") as serving,
        Wire(serving.port) as wire,
    ):
        assert wire.fetch("zstd", 0)["records"]
        assert serving.end() == 0
    assert "anyone who reaches this port can read everything" in serving.said


def test_topics_are_chosen_and_internal_ones_only_on_demand() -> None:
    def names(*options: str) -> list[str]:
        with Serving(MODERN, *options) as serving, Wire(serving.port) as wire:
            return [one["name"] for one in wire.ask("Metadata", 9, {"topics": None})["topics"]]

    assert names("--topic", "z*", "--topic", "tx") == ["tx", "zstd"]
    internal = {"__consumer_offsets", "__transaction_state"}
    assert internal <= set(names("--internal"))
    assert "__cluster_metadata" not in names("--internal")


def test_damage_is_told_once_and_summed_up_in_the_end() -> None:
    with Serving(FIXTURES / "crash" / "flip-middle") as serving:
        for _ in range(2):
            with Wire(serving.port) as wire:
                offset, end = 0, 1
                while offset < end:
                    row = wire.fetch("torn", offset)
                    end = row["highWatermark"]
                    offset = _after(row["records"], offset)
                    if not row["records"]:
                        break
        assert offset == end
        assert serving.end() == 0
    told = [line for line in serving.said.splitlines() if "torn-0" in line and "left out" in line]
    assert len(told) == 1, serving.said
    assert "left out: 1 damaged stretch, 721 bytes, in 1 partition" in serving.said.splitlines()[-1]


def _after(records: bytes, offset: int) -> int:
    """Return the offset behind the last batch of *records*."""
    position = 0
    while position < len(records):
        base = int.from_bytes(records[position : position + 8], "big")
        offset = base + int.from_bytes(records[position + 23 : position + 27], "big") + 1
        position += 12 + int.from_bytes(records[position + 8 : position + 12], "big")
    return offset
