"""Transactions of a log dir against their clients' actions, and the output of Kafka's tools."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from klog.commands.transactions.transaction_details import TransactionDetail, TransactionQuery, describe_transactions
from klog_cli.views import transactions

from tests.conftest import run_klog
from tests.support.insight import STOPPED, TRUTH, unpack
from tests.support.terminal import on_screen

STATES = {"commit": "committed", "abort": "aborted", "open": "open"}
SLACK_MS = 600  # a second producer fences the first one half a second after its last send


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("insight"))


def described(data: Path) -> list[TransactionDetail]:
    said: list[str] = []
    found = list(describe_transactions([str(data)], TransactionQuery(STOPPED), said.append))
    assert said == []
    return found


def test_every_transaction_of_the_clients_is_there_once(data: Path) -> None:
    """Several partitions in one, commits and aborts in turn at the same epoch, one fenced, one left open."""
    found = sorted(described(data), key=lambda one: (one.transactional_id or "", one.began or 0))
    wanted = sorted(TRUTH["transactions"], key=lambda one: (one["transactional_id"], one["from"]))
    assert [
        (one.transactional_id, one.state, one.records, [part.partition for part in one.partitions]) for one in found
    ] == [(one["transactional_id"], STATES[one["state"]], one["records"], one["partitions"]) for one in wanted]
    for one, told in zip(found, wanted, strict=True):
        assert one.began is not None
        assert told["from"] <= one.began <= told["to"]
        assert one.ended is None or one.began <= one.ended <= told["to"] + SLACK_MS


def test_the_open_one_is_that_of_the_tools(data: Path) -> None:
    (one,) = (one for one in described(data) if one.state == "open")
    words = TRUTH["tool"]["tx_hung"].splitlines()[1].split()
    assert one.coordinator is not None
    assert [one.transactional_id, one.producer_id, one.producer_epoch] == [words[1], int(words[2]), int(words[3])]
    assert [one.coordinator.timeout_ms, one.coordinator.started] == [int(words[5]), int(words[6])]
    assert (one.partitions[0].first_offset, one.partitions[0].marker_offset) == (22, None)
    assert one.abort is None


def test_the_command_prints_all_forms(data: Path) -> None:
    every = [json.loads(line) for line in run_klog("transactions", data, "--output", "jsonl").stdout.splitlines()]
    assert len(every) == len(TRUTH["transactions"])
    done = run_klog("transactions", data, "--now", str(STOPPED), "--longer-than", "30s", "--output", "json")
    assert (done.exit_code, done.stderr) == (0, b"")
    (one,) = json.loads(done.stdout)["transactions"]
    assert one == every[-1] | {"duration": STOPPED - one["began"]}
    assert one["coordinator"]["state"] == "Ongoing"
    csv = run_klog("transactions", data, "--state", "aborted", "--transactional-id", "tx-f*", "--output", "csv")
    assert [line.split(b",")[:4] for line in csv.stdout.splitlines()[1:]] == [
        [b"tx-fenced", b"3", b"0", b"aborted"]
    ] * 2
    text = run_klog("transactions", data, "--producer-id", "1").stdout.decode()
    assert text.count("  tx-b  producer 1 epoch 0, ") == 4
    assert json.loads(run_klog("transactions", data, "--producer-id", "77", "--output", "json").stdout) == {
        "transactions": []
    }


def test_without_the_coordinator_nothing_is_said_to_hang(data: Path) -> None:
    """A disk may have the data, another the coordinator: an unknown fact is reported, not guessed."""
    done = run_klog("transactions", data / "ledger-0", data / "ledger-1", "--output", "jsonl")
    assert b"no __transaction_state among the paths" in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one for one in found if one["transactional_id"] is not None or one["coordinator"] is not None] == []
    assert [one["state"] for one in found].count("open") == 1
    assert sum(one["records"] for one in found) == sum(one["records"] for one in TRUTH["transactions"])
    assert done.exit_code == 0


def test_the_coordinator_alone_tells_what_is_open(data: Path) -> None:
    """The disk with `__transaction_state` may be another one than those with the data."""
    done = run_klog("transactions", data / "__transaction_state-0", data / "__transaction_state-1", "--output", "jsonl")
    (one,) = map(json.loads, done.stdout.splitlines())
    assert (one["transactional_id"], one["state"], one["records"]) == ("tx-hung", "open", 0)
    assert one["partitions"][0]["topic"] == "ledger"
    assert one["partitions"][0]["first_offset"] is None


@pytest.fixture
def hanging(data: Path, tmp_path: Path) -> Path:
    """A disk whose coordinator has no record of the open transaction."""
    copy = Path(shutil.copytree(data, tmp_path / "data"))
    for file in copy.glob("__transaction_state-*/0*"):
        if file.suffix in (".log", ".index", ".timeindex"):
            file.write_bytes(b"")
    return copy


def test_hanging_transactions_are_first_with_their_command(hanging: Path) -> None:
    """They were the last of thousands, and their command ended a line."""
    done = run_klog("transactions", hanging)
    lines = done.stdout.decode().splitlines()
    assert done.exit_code == 4
    assert lines[0].startswith("1 transaction hangs: ")
    assert lines[0].endswith("; others: 6 committed, 7 aborted")
    assert lines[1].split()[2] == "hanging"
    assert lines[2].split() == ["ledger-0", "offsets", "22–25,", "4", "records,", "no", "marker"]
    abort = "kafka-transactions --bootstrap-server HOST:PORT abort --topic ledger --partition 0 --start-offset 22"
    assert lines[3] == f"  {abort}"
    shown = on_screen("transactions", hanging, columns=80).marked
    assert shown.startswith("[red]1 transaction hangs[]: ")
    assert "  [cyan]kafka-transactions --bootstrap-server HOST:PORT abort --topic ledger \\\n" in shown
    aborted = run_klog("transactions", hanging, "--state", "aborted").stdout.decode()
    assert aborted.startswith("7 transactions, 7 aborted\n")


def test_beyond_so_many_transactions_the_verdict_is_the_last_line(
    hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Millions of transactions are not kept in memory."""
    monkeypatch.setattr(transactions, "_MOST_KEPT", 5)
    lines = run_klog("transactions", hanging).stdout.decode().splitlines()
    assert lines[-1].startswith("1 transaction hangs: ")
    assert sum(line.startswith("2026") for line in lines) == 14


def test_no_hanging_transaction_is_said_first(data: Path) -> None:
    text = run_klog("transactions", data).stdout.decode()
    assert text.startswith("none hangs: 14 transactions, 6 committed, 7 aborted, 1 open\n")
