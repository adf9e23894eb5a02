"""`klog report`: the page contains the other commands' answers, and no secret."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
from pathlib import Path

import pytest

from tests.commands.report.test_page import Outline
from tests.conftest import FIXTURES, run_klog, writable_copy
from tests.oracles.plain.encode import Record, batch
from tests.support.power import tree as tree_of
from tests.support.reads import count_reads

DISK = FIXTURES / "modern"


def read(path: Path) -> tuple[Outline, dict[str, object]]:
    """Return a page, parsed, and its data."""
    parsed = Outline()
    parsed.feed(path.read_text(encoding="utf-8"))
    return parsed, json.loads(parsed.scripts[0])


def answers(*words: object) -> dict[str, object]:
    """Return the JSON output of a command."""
    found: dict[str, object] = json.loads(run_klog(*words, "--output", "json").stdout)
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a sound log dir and a damaged one."""
    target = tmp_path_factory.mktemp("report") / "report.html"
    done = run_klog("report", DISK, FIXTURES / "crash/flip-middle", "--to", target, "--now", "2026-01-01T00:00:00Z")
    assert (done.exit_code, done.stdout) == (4, b"")
    return target


def test_the_page_says_what_the_commands_say(page: Path) -> None:
    """One truth: the same numbers as of verify, space, groups, transactions and timeline."""
    paths = [DISK, FIXTURES / "crash/flip-middle"]
    _, data = read(page)
    verified = answers("verify", *paths)
    ids = {"topic_id", "cluster_id", "meaning", "node", "log_dir"}
    without = [{name: value for name, value in row.items() if name not in ids} for row in verified["findings"]]  # type: ignore[attr-defined]
    shown = [{name: value for name, value in row.items() if name not in ids} for row in data["findings"]]  # type: ignore[attr-defined]
    assert sorted(shown, key=str) == sorted(without, key=str)
    assert data["totals"] == {
        name: verified[name] for name in ("partitions", "segments", "bytes", "batches", "records")
    }
    space = answers("space", *paths, "--now", "2026-01-01T00:00:00Z")
    assert data["space"]["reasons"] == space["reasons"]  # type: ignore[index]
    assert data["groups"] == answers("groups", *paths)["groups"]
    transactions = answers("transactions", *paths, "--now", "2026-01-01T00:00:00Z")["transactions"]
    assert isinstance(transactions, list)
    first = {"hanging": 0, "open": 1}
    assert data["transactions"] == sorted(transactions, key=lambda one: first.get(one["state"], 2))
    lines = run_klog("timeline", *paths, "--output", "jsonl").stdout.splitlines()
    assert data["events"] == [json.loads(line) for line in lines][-2000:]


def test_the_next_commands_are_those_that_verify_names(page: Path) -> None:
    """The commands of the other checks are in their lines of the verdict."""
    _, data = read(page)
    commands = [one["command"] for one in data["next_commands"]]  # type: ignore[attr-defined]
    damaged = FIXTURES / "crash/flip-middle"
    assert commands == [f"klog recover {damaged}/torn-0 --salvage"]
    verdict = [one["command"] for one in data["verdict"] if one["check"] == "doctor"]  # type: ignore[attr-defined]
    assert verdict == [f"klog doctor {DISK}", f"klog doctor {damaged}"]


def test_a_clean_log_dir_exits_with_0(tmp_path: Path) -> None:
    """As verify does, whatever the other checks find: the transaction is open for years."""
    assert run_klog("report", DISK, "--to", tmp_path / "r.html", "--title", "Disk 7 & <8>").exit_code == 0
    parsed, data = read(tmp_path / "r.html")
    assert data["title"] == "Disk 7 & <8>"
    assert "Not clean: Transactions." in parsed.text
    assert os.listdir(tmp_path) == ["r.html"]


def test_redaction_leaves_no_string_of_the_disk(tmp_path: Path) -> None:
    """Names of topics, groups, members, clients, hosts, transactions, paths; Kafka's own topics stay."""
    disk = tmp_path / "s3cret"
    writable_copy(DISK, disk)
    for name in os.listdir(disk):
        if (disk / name).is_dir() and not name.startswith("__"):
            (disk / name).rename(disk / f"s3cret{name}")
    said = json.dumps([answers("groups", disk), answers("transactions", disk)])
    secrets = set(re.findall(r'"(?:group|member_id|client_id|host|transactional_id)": "([^"]+)"', said))
    secrets -= {"classic", "consumer", "share"}  # types of groups, too
    assert len(secrets) > 5
    assert run_klog("report", disk, "--redact", "--to", tmp_path / "r.html").exit_code in (0, 4)
    parsed, data = read(tmp_path / "r.html")
    text = parsed.text + json.dumps(data) + str(parsed.values)
    assert not [name for name in {*secrets, "s3cret", str(tmp_path)} if name in text]
    assert "topic-1" in text
    assert "group-1" in text


def test_one_pass_serves_findings_pictures_and_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is read hardly more than verify, the headers of transactions and the bytes of its damage need."""
    disk = FIXTURES / "crash" / "flip-middle" / "torn-0"
    counted = count_reads(monkeypatch)

    def bytes_read(*words: object) -> int:
        counted.bytes.clear()
        run_klog(*words, "--quiet")
        return sum(size for path, size in counted.bytes.items() if path.endswith(".log"))

    alone = bytes_read("verify", disk, "--jobs", "1") + bytes_read("transactions", disk)
    alone += bytes_read("bytes", disk / f"{296:020}.log", "--position", "818")
    more = bytes_read("report", disk, "--jobs", "1", "--to", tmp_path / "r.html") - alone
    assert more < bytes_read("timeline", disk) / 10


def test_transactions_are_looked_for_only_where_some_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker alone is one, and a batch with a bad checksum may be one; a plain log is not read again."""
    disk = tmp_path / "disk"
    now, in_transaction = 1_800_000_000_000, {"transactional": True, "producer": (7, 0, 0)}
    marker = Record(0, now, b"\0\0\0\1", b"\0\0\0\0\0\7")
    damaged = bytearray(batch([Record(0, now, b"k", b"v")], **in_transaction))  # type: ignore[arg-type]
    damaged[-1] ^= 0xFF
    logs = {
        "plain": b"".join(batch([Record(offset, now, b"k", b"v" * 1000)]) for offset in range(1000)),
        "marker": batch([marker], control=True, **in_transaction),  # type: ignore[arg-type]
        "damaged": bytes(damaged),
    }
    for topic, content in logs.items():
        (disk / f"{topic}-0").mkdir(parents=True)
        (disk / f"{topic}-0" / f"{0:020d}.log").write_bytes(content)
    (disk / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    found = answers("transactions", disk, "--now", str(now))["transactions"]
    assert isinstance(found, list)
    assert [part["topic"] for one in found for part in one["partitions"]] == ["marker", "damaged"]
    plain = disk / "plain-0" / f"{0:020d}.log"
    counted = count_reads(monkeypatch)
    run_klog("verify", plain.parent, "--jobs", "1")
    needed = counted.of(plain)[1]
    counted.bytes.clear()
    run_klog("report", disk, "--jobs", "1", "--now", str(now), "--to", tmp_path / "r.html")
    assert sorted(read(tmp_path / "r.html")[1]["transactions"], key=str) == sorted(found, key=str)  # type: ignore[call-overload]
    # The log has no indexes and is on a disk that stopped uncleanly: verify reads it once, space for its newest record,
    # doctor as the broker does to rebuild the indexes and to recover, and to count what no broker would serve.
    assert counted.of(plain)[1] < 5.1 * needed


def test_it_changes_nothing(tmp_path: Path) -> None:
    """A report is made of evidence."""
    disk = tmp_path / "disk"
    writable_copy(DISK, disk)
    before = tree_of(disk)
    run_klog("report", disk, "--deep", "--to", tmp_path / "r.html")
    assert tree_of(disk) == before


def test_what_cannot_be_read_is_said_in_its_place(tmp_path: Path) -> None:
    """The rest of the page is right."""
    disk = tmp_path / "disk"
    writable_copy(DISK, disk)
    log = sorted((disk / "__consumer_offsets-3").glob("*.log"))[0]
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    assert run_klog("report", disk, "--to", tmp_path / "r.html").exit_code == 4
    parsed, _ = read(tmp_path / "r.html")
    assert "damaged in 1 place" in parsed.text
    assert "bad-crc" in parsed.text


@pytest.mark.parametrize(("words", "says"), [((), "needs --to FILE.html"), (("--to", "/dev/full"), "No space")])
def test_what_is_no_file_is_refused(words: tuple[str, ...], says: str) -> None:
    """The error contains the next step, or the system's message."""
    done = run_klog("report", DISK, *words)
    assert done.exit_code in (8, 16)
    assert says in done.stderr.decode()


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    """No path, or one that is nothing of Kafka's, leaves no page."""
    for words, code in (((), 16), ((tmp_path,), 8), ((tmp_path / "missing",), 16)):
        assert run_klog("report", *words, "--to", tmp_path / "r.html").exit_code == code
        assert os.listdir(tmp_path) == []


def test_the_bytes_of_a_damage_are_in_a_fold(page: Path) -> None:
    """The lines of the command that is named below them; a page to give away has none."""
    folds = re.findall(r'<details class="bytes">(.*?)</details>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(folds) == 1
    assert "bytes of torn-0/00000000000000000296.log @ 818</summary>" in folds[0]
    lines = [html.unescape(line) for line in re.findall("<code>(.*?)</code>", folds[0])]
    command = html.unescape(re.findall("<pre>(klog bytes .*)</pre>", folds[0])[0])
    printed = run_klog(*shlex.split(command)[1:]).stdout.decode().splitlines()
    assert lines == [*printed[: len(lines) - 1], "…"] if lines[-1] == "…" else lines == printed[: len(lines)]
    assert any("CRC DOES NOT MATCH" in line for line in lines)
    given_away = page.with_name("redacted.html")
    run_klog("report", FIXTURES / "crash/flip-middle", "--to", given_away, "--redact")
    assert 'class="bytes"' not in given_away.read_text(encoding="utf-8")
