"""`klog timeline` as operators call it: options, forms, exit codes, damaged and hostile disks; it only reads."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.commands.timeline.timeline_event import KINDS
from klog.formats.batch import BatchHead, write_batch
from klog.kernel import crc32c

from tests.conftest import FIXTURES, Ran, run_klog, writable_copy
from tests.oracles.plain.encode import Record, batch
from tests.support.damage import cases, sources
from tests.support.lookup_logs import MS, of_records, write_segment
from tests.support.measure import measured

Klog = Callable[..., Ran]
MODERN = FIXTURES / "modern"
FIELDS = (
    *("time", "clock", "kind", "message", "log_dir", "topic", "topic_id", "partition", "offset", "epoch", "node"),
    *("group", "transactional_id", "producer_id", "file", "position", "commits"),
)


def rows(*arguments: object, code: int = 0) -> list[dict[str, Any]]:
    done = run_klog("timeline", "--output", "jsonl", *map(str, arguments))
    assert done.exit_code == code, done
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def modern() -> list[dict[str, Any]]:
    return rows(MODERN)


def test_rows_have_the_fields_that_apply(modern: list[dict[str, Any]]) -> None:
    """Scripts depend on names and on absent members."""
    assert {name for row in modern for name in row} == set(FIELDS)
    for row in modern:
        assert list(row) == [name for name in FIELDS if name in row]
        assert row["kind"] in KINDS
        assert row["clock"] in ("broker", "producer", "file")
        assert None not in row.values()
    assert [row["time"] for row in modern] == sorted(row["time"] for row in modern)


def test_text_says_the_same_a_line_an_event(klog: Klog, modern: list[dict[str, Any]]) -> None:
    """Whoever reads and whoever parses see the same story."""
    lines = klog("timeline", MODERN).stdout.decode().splitlines()
    assert len(lines) == len(modern)
    for line, row in zip(lines, modern, strict=True):
        assert line.split()[2:4] == [row["clock"], row["kind"]]
        assert row["message"] in line


def test_options_narrow_it_and_nothing_else(modern: list[dict[str, Any]]) -> None:
    """Each filter gives its part of the whole story, in its order."""
    middle = modern[len(modern) // 2]["time"]
    assert rows(MODERN, "--from-time", middle) == [row for row in modern if row["time"] >= middle]
    assert rows(MODERN, "--to-time", middle) == [row for row in modern if row["time"] < middle]
    near = [row for row in modern if abs(row["time"] - middle) <= 2000]
    assert rows(MODERN, "--around", middle, "--window", "2s") == near
    assert rows(MODERN, "--limit", 7) == modern[:7]
    some = [row for row in modern if row["kind"] in ("roll", "txn-abort")]
    assert rows(MODERN, "--kind", "roll,txn-abort") == some
    assert rows(MODERN, "--group", "classic*") == [row for row in modern if row.get("group", "").startswith("classic")]
    of_tx = rows(MODERN, "--topic", "tx")
    assert [row for row in of_tx if row["kind"] != "commit"] == [row for row in modern if row.get("topic") == "tx"]
    assert {row["topic"] for row in rows(MODERN, "--topic", "t*", "--topic", "dense")} >= {"tx", "trimmed", "dense"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no disk"),
        (["--around", "1", "--from-time", "1"], "give --around or"),
        (["--from-time", "5", "--to-time", "5"], "not after"),
        (["--kind", "txn-comit"], "did you mean txn-commit"),
        (["--window", "long"], "not a duration"),
        (["--around", "soon"], "not a time"),
        (["--output", "xml"], "expected one of text, json, jsonl, csv"),
        (["/nowhere"], "/nowhere"),
    ],
)
def test_what_makes_no_sense_is_refused(klog: Klog, arguments: list[str], said: str) -> None:
    """In one line with the next step, before anything is read."""
    paths = [] if said in ("no disk", "/nowhere") else [str(MODERN)]
    done = klog("timeline", *paths, *arguments, *(["--around", "1"] if arguments[:1] == ["--window"] else []))
    assert (done.exit_code, done.stdout) == (16, b"")
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_a_partition_that_is_named_is_told_alone(modern: list[dict[str, Any]]) -> None:
    """With the facts about it in its log dir's metadata log; the rest of the cluster is another question."""
    found = rows(MODERN / "trimmed-0")
    assert {row["topic"] for row in found} == {"trimmed"}
    assert {row.get("partition") for row in found} == {0, None}
    assert {row["kind"] for row in found if "partition" not in row} == {"topic-created", "config-changed"}
    of_it = [row for row in modern if row.get("topic") == "trimmed" and row.get("partition") in (0, None)]
    assert found == [row for row in of_it if row["kind"] != "commit" and "transactional_id" not in row]


def test_many_events_of_a_log_take_little_memory(tmp_path: Path) -> None:
    """Each batch here is of a new producer, and each is an event: memory does not grow with them."""
    folder = tmp_path / "data" / "orders-0"
    folder.mkdir(parents=True)
    with open(folder / f"{0:020}.log", "wb") as log:
        for number in range(80_000):
            head = BatchHead(number, 0, 0, 0, MS + number, MS + number, 1, number, 0, 0)
            log.write(write_batch(head, b"\x0c\0\0\0\x01\x01\0", crc32c))
    command = [sys.executable, "-m", "klog_cli.app", "timeline", str(tmp_path / "data"), "--jobs", "1"]
    done = measured(command, tmp_path)
    assert done.exit_code == 0, done.stderr
    assert b"producer 0 begins" in done.stdout
    assert done.rss < 120 << 20


def test_nothing_found_is_said(klog: Klog) -> None:
    """An empty answer looks like a broken one."""
    done = klog("timeline", MODERN, "--kind", "damage")
    assert (done.exit_code, done.stdout) == (0, b"")
    assert done.stderr == b"klog: no event of kind damage in 23 partitions\n"
    assert klog("timeline", MODERN, "--kind", "damage", "--quiet").stderr == b""
    done = klog("timeline", MODERN, "--kind", "damage,txn-abort", "--topic", "plain", "--to-time", "1000")
    sentence = "no event of kind damage or txn-abort of topic plain before 1970-01-01 00:00:01.000Z in 23 partitions"
    assert (done.exit_code, done.stdout, done.stderr.decode()) == (4, b"", f"klog: {sentence}\n")
    done = klog("timeline", MODERN / "plain-1", "--group", "g*", "--partition", "plain-2", "--output", "json")
    sentence = "no event of group g* of partition plain-2 in plain-1"
    assert (done.exit_code, json.loads(done.stdout), done.stderr.decode()) == (4, {"events": []}, f"klog: {sentence}\n")


def test_reading_leaves_no_trace(tmp_path: Path) -> None:
    """A story must not change its subject."""
    data = writable_copy(MODERN, tmp_path / "data")
    before = {
        path: (path.stat().st_mtime_ns, path.stat().st_atime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in data.rglob("*")
        if path.is_file()
    }
    times = {path: (path.stat().st_mtime_ns, path.stat().st_atime_ns) for path in before}
    rows(data)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_atime_ns) for path in times} == times
    assert set(before) == {path for path in data.rglob("*") if path.is_file()}


def test_a_tail_that_a_broker_is_writing_is_no_damage(klog: Klog, tmp_path: Path) -> None:
    """Beside a running broker the last batch may be half there; after a crash the same bytes are a torn tail."""
    data = writable_copy(MODERN, tmp_path / "data")
    log = max((data / "plain-1").glob("*.log"))
    content = log.read_bytes()
    log.write_bytes(content[:-7])
    assert [row["kind"] for row in rows(data, "--kind", "damage", code=4)] == ["damage"]
    with open(data / ".lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        script = f"import fcntl; fcntl.lockf(open({str(data / '.lock')!r}, 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        assert os.system(f"python3 -c {json.dumps(script)} 2>/dev/null") != 0  # the lock is held for other processes
        from tests.conftest import run_klog_process

        done = run_klog_process("timeline", str(data), "--kind", "damage")
    assert (done.exit_code, done.stdout) == (0, b""), done


def test_names_from_the_disk_stay_text(klog: Klog, tmp_path: Path) -> None:
    """A transactional id or a group may be anything that a client liked; a line stays a line."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    group = 'g\n"]\x1b[31m\u2028</script>'.encode()
    key = b"\0\1" + len(group).to_bytes(2, "big") + group + b"\0\1t" + bytes(4)
    value = b"\0\3" + (7).to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\0\0" + bytes(8)
    write_segment(data / "__consumer_offsets-0", 0, of_records([[Record(0, MS, key, value)]]))
    lines = klog("timeline", data, "--kind", "commit").stdout.decode().splitlines()
    assert len(lines) == 1
    assert "\x1b" not in lines[0]
    (row,) = rows(data, "--kind", "commit")
    assert row["group"] == group.decode()
    assert row["message"] == "1 commit: t-0 = 7"


HOSTILE = [b"", b"\0", b"\0\1\x7f\xff", b"\xff\xff" * 9, b"\0\2\0\1g", b"\0\3\0\1g", b"\0\0\0\1x", b"\0\5\0\1g\0\1m"]


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_records_that_are_none_are_passed_over(tmp_path: Path, topic: str) -> None:
    """Any bytes in the place of keys and values: no exception, they are counted, and the rest of the log is shown."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    records = [
        Record(offset, MS + offset, key, value)
        for offset, (key, value) in enumerate((k, v) for k in [None, *HOSTILE] for v in [None, *HOSTILE])
    ]
    batches = of_records([[record] for record in records])
    odd = batch([Record(len(records), MS, b"\0\0\0\1", None)], control=True, transactional=True, producer=(1, 0, -1))
    write_segment(data / f"{topic}-0", 0, [*batches, (len(records), MS, odd)])
    found = rows(data, code=4)
    assert [row["offset"] for row in found if row["kind"] == "last-record"] == [len(records)]


@pytest.mark.parametrize("number", range(24))
def test_damaged_disks_are_told_as_far_as_they_can_be_read(tmp_path: Path, number: int) -> None:
    """Whatever has been done to files: an answer, in order, and damage of logs where verify has it."""
    case = list(cases(11, sources(), 24))[number]
    case.make(tmp_path / "data")
    done = run_klog("timeline", "--output", "jsonl", tmp_path / "data")
    assert done.exit_code in (0, 4), (case.name, done.stderr)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["time"] for row in found] == sorted(row["time"] for row in found)
    verified = json.loads(run_klog("verify", "--output", "json", tmp_path / "data").stdout)["findings"]
    ids = {"bad-crc", "bad-length", "bad-magic", "short-header", "torn-tail", "zeroed", "garbage-tail"}
    expected = sorted((one["file"], one["position"], one["id"]) for one in verified if one["id"] in ids)
    told = [row for row in found if row["kind"] == "damage"]
    assert sorted((row["file"], row["position"], row["message"].split(":")[0]) for row in told) == expected
