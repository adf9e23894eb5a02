"""The verdict takes in verify, doctor, transactions, copies and times: it is green only if all of them are clean."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from klog.commands.report.report_page import VerdictState
from klog.commands.transactions.transaction_details import TransactionDetail
from klog_cli.views import report as view
from klog_cli.views import report_verdict

from tests.commands.report.test_command import read
from tests.conftest import FIXTURES, run_klog, writable_copy
from tests.data_dir.test_log_dir import held
from tests.support.insight import STOPPED, unpack

SPLIT = [FIXTURES / "replicas/split" / name for name in ("broker-1", "broker-2", "broker-3", "controller-4")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir with an open transaction and a record from the future."""
    return unpack(tmp_path_factory.mktemp("insight"))


def report(folder: Path, *words: object) -> tuple[str, dict[str, Any]]:
    """Return the text of the page about *words* and its data."""
    run_klog("report", *words, "--to", folder / "r.html")
    parsed, found = read(folder / "r.html")
    return parsed.text, found


def lines(found: dict[str, Any], check: str) -> list[dict[str, Any]]:
    """Return the lines of one check."""
    return [one for one in found["verdict"] if one["check"] == check]


def line(found: dict[str, Any], check: str) -> dict[str, Any]:
    """Return the only line of one check."""
    (one,) = lines(found, check)
    return one


def test_an_open_transaction_and_a_time_in_the_future_are_not_clean(data: Path, tmp_path: Path) -> None:
    """The page said "Clean" about a transaction that was open for days, and about a segment pinned for months."""
    text, found = report(tmp_path, data, "--now", "2026-11-27T09:00:00Z")
    assert "Not clean: Transactions, Timestamps." in text
    assert "Clean: " not in text
    states = {one["check"]: one["state"] for one in found["verdict"]}
    assert states == {
        "verify": "clean",
        "doctor": "clean",
        "transactions": "warning",
        "replicas": "unasked",
        "audit": "warning",
    }
    assert line(found, "transactions")["said"] == "1 open, the longest for 4.6 days"
    assert line(found, "audit")["said"].startswith("1 partition with records up to 35.4 days in the future")


def test_the_command_of_a_line_shows_what_the_line_says(data: Path, tmp_path: Path) -> None:
    """It is pasted into a shell."""
    _, found = report(tmp_path, data)
    shown = run_klog(*shlex.split(line(found, "transactions")["command"])[1:], "--output", "jsonl").stdout
    assert json.loads(shown)["transactional_id"] == "tx-hung"
    assert "stuck-0" in run_klog(*shlex.split(line(found, "audit")["command"])[1:]).stdout.decode()
    for check in ("verify", "doctor"):
        assert run_klog(*shlex.split(line(found, check)["command"])[1:]).exit_code == 0


def test_a_transaction_within_its_timeout_is_none_of_the_problems(data: Path, tmp_path: Path) -> None:
    """A running broker always has open ones."""
    _, found = report(tmp_path, data, "--now", str(STOPPED))
    assert line(found, "transactions")["state"] == "clean"
    assert line(found, "transactions")["said"].startswith("1 open")


@pytest.mark.parametrize(("state", "duration", "said"), [("hanging", 5, "1 hanging"), ("open", 900_001, "1 open")])
def test_hanging_and_late_transactions_are_problems(state: Any, duration: int, said: str) -> None:
    """Without a coordinator's record the longest timeout that brokers allow decides."""
    counts = report_verdict.TransactionCounts()
    counts.take(TransactionDetail(None, 7, 0, state, 0, None, duration, 1, (), None))
    found = report_verdict.transaction_line(counts, "data")
    assert (found.state, found.said.partition(",")[0]) == (VerdictState.WARNING, said)
    assert found.command == f"klog transactions data --state {state}"


def test_open_transactions_are_there_however_many_others_are(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were the last, and left out of a page that had no more room."""
    monkeypatch.setattr(view, "_MOST_TRANSACTIONS", 2)
    _, found = report(tmp_path, data)
    assert [one["state"] for one in found["transactions"]] == ["open", "aborted", "committed"]


def test_diverged_copies_are_a_line_and_mark_their_partitions(tmp_path: Path) -> None:
    """The headline named nothing but damage, and the copies of a partition had the same heading."""
    text, found = report(tmp_path, *SPLIT)
    one = line(found, "replicas")
    assert one["state"] == "damage"
    assert one["said"].startswith("3 partitions: 3 diverged; 3 partitions may lose records: do not start")
    assert one["command"] == f"klog replicas diff {' '.join(map(str, SPLIT))}"
    starts = lines(found, "doctor")
    assert [start["subject"] for start in starts] == [f"Next start of node {node}" for node in (1, 2, 3, 4)]
    assert [start["state"] for start in starts] == ["damage", "damage", "damage", "clean"]
    assert starts[0]["said"].startswith("a broker 4.3 starts, and loses 166 records in 3 partitions")
    assert text.count("copies: diverged") == 8
    for broker in (1, 2):
        assert f"pairs-0 node {broker}, {SPLIT[broker - 1]}" in text


def test_equal_copies_are_clean(tmp_path: Path) -> None:
    """The disks of two brokers, one of them a copy of the other's."""
    broker = FIXTURES / "replicas/split/broker-1"
    for node in (1, 2):
        disk = writable_copy(broker, tmp_path / str(node))
        meta = (disk / "meta.properties").read_text()
        lines_of = [one for one in meta.splitlines() if not one.startswith("directory.id")]
        (disk / "meta.properties").write_text("\n".join(lines_of).replace("node.id=1", f"node.id={node}") + "\n")
    _, found = report(tmp_path, tmp_path / "1", tmp_path / "2")
    assert line(found, "replicas")["state"] == "clean"
    assert line(found, "replicas")["said"] == "3 partitions: 3 same"


def test_a_broker_that_does_not_start_is_a_line(data: Path, tmp_path: Path) -> None:
    """The log is clean, and the broker does not start; `--redact` leaves out the names in the reason."""
    disk = writable_copy(data, tmp_path / "s3cret")
    (disk / "lost+found").mkdir()
    text, found = report(tmp_path, disk)
    one = line(found, "doctor")
    assert (one["state"], one["said"]) == ("damage", "a broker 4.3 does not start (foreign-directory)")
    assert "lost+found" in one["detail"]
    assert "Not clean: " in text
    text, found = report(tmp_path, disk, "--redact")
    assert "does not start (foreign-directory)" in text
    assert "s3cret" not in text + json.dumps(found)
    assert "lost+found" not in text + json.dumps(found)


def test_a_disk_of_zookeepers_time_is_judged_by_its_own_version(tmp_path: Path) -> None:
    """A broker of 4.x would set all of it aside."""
    text, found = report(tmp_path, FIXTURES / "legacy")
    assert line(found, "doctor")["said"].startswith("a broker 2.8 starts, and loses nothing")
    assert line(found, "doctor")["command"] == f"klog doctor --kafka-version 2.8 {FIXTURES / 'legacy'}"
    assert "Clean: 4 checks found nothing." in text


def test_the_disk_of_a_running_broker_has_no_next_start(tmp_path: Path) -> None:
    """A broker whose lock is held does not start; that is no problem of the disk."""
    disk = writable_copy(FIXTURES / "legacy", tmp_path / "disk")
    (disk / ".lock").touch()
    with held(disk / ".lock"):
        text, found = report(tmp_path, disk)
    assert (line(found, "doctor")["state"], line(found, "doctor")["detail"]) == ("unasked", "")
    assert "Clean: 3 checks found nothing." in text


def test_partitions_alone_have_no_start(tmp_path: Path) -> None:
    """A check that needs a whole log dir is not asked, and does not count."""
    text, found = report(tmp_path, FIXTURES / "modern/plain-1")
    assert line(found, "doctor")["state"] == "unasked"
    assert "Clean: 3 checks found nothing." in text


def test_what_a_check_cannot_do_is_not_clean(tmp_path: Path) -> None:
    """The disks of two clusters: whose transactions they are is not known."""
    other = writable_copy(FIXTURES / "modern", tmp_path / "other")
    meta = (other / "meta.properties").read_text()
    (other / "meta.properties").write_text(meta.replace("cluster.id=f", "cluster.id=g"))
    text, found = report(tmp_path, FIXTURES / "modern", other)
    assert (line(found, "transactions")["state"], line(found, "transactions")["said"]) == ("warning", "not known")
    assert "Not clean: " in text


def test_the_bar_of_contents_counts(data: Path, tmp_path: Path) -> None:
    """It says where there is something to see."""
    text, _ = report(tmp_path, data)
    for said in ("Verdict 2 problems", "Partitions 18", "Groups 5", "Transactions 1 open", "Findings 0"):
        assert said in text


def test_healthy_partitions_are_folded_and_sick_ones_drawn(data: Path, tmp_path: Path) -> None:
    """Seven screens of grey bars were before the timeline."""
    text, _ = report(tmp_path, data)
    assert "16 healthy partitions" in text
    sick = text[: text.index("16 healthy partitions")]
    assert "12.2 KiB, timestamps in the future." in sick
    assert "1.6 KiB, 1 open transaction." in sick
    assert "damages:" not in text
    assert "none." not in text


def test_events_and_transactions_name_their_subject(data: Path, tmp_path: Path) -> None:
    """A rebalance of which group?  An open transaction of whom, and where?"""
    run_klog("report", data, "--to", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    events = page[page.index('id="events"') : page.index('id="groups"')]
    assert "Group or transactional id" in events
    for subject in ("g-classic", "g-share", "tx-a", "tx-hung", "node 1"):
        assert f"<td>{subject}</td>" in events
    assert "<td>ledger-0 22–25</td>" in page


def test_reasons_have_a_colour_and_a_meaning(data: Path, tmp_path: Path) -> None:
    """Dirty, behind and active are no words of everybody."""
    run_klog("report", data, "--to", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    for reason, meaning in (
        ("active", "the segment that is written to"),
        ("behind", "due, but a segment before it is not"),
        ("dirty", "will be cleaned"),
    ):
        assert f'class="swatch r {reason}"' in page
        assert meaning in page


def test_redaction_hides_groups_and_transactional_ids_of_events(data: Path, tmp_path: Path) -> None:
    """The new column is made of the words that replace them."""
    text, _ = report(tmp_path, data, "--redact")
    for name in ("g-classic", "g-share", "tx-a", "tx-hung", "ledger", "stuck"):
        assert name not in text
    assert "transaction-1" in text
    assert "1 open, the longest for" in text
