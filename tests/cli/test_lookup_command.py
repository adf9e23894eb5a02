"""`klog lookup`: its content, its form, and its exit codes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from klog_cli.display import time_text

from tests.conftest import Ran
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record
from tests.support.lookup_logs import MS, batches_of, of_records, write_segment

Klog = Callable[..., Ran]
BASE = 368769
SECOND = 737337


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A clean log dir with two segments of 100 batches of a record, 173 bytes each, and a second partition."""
    path = tmp_path / "data" / "orders-3"
    path.parent.mkdir()
    for base in (BASE, SECOND):
        write_segment(path, base, batches_of((base + i, base + i, 173) for i in range(100)))
    write_segment(path.parent / "orders-4", 0, of_records([[Record(0, MS, b"key", None)]]))
    (path.parent / ".kafka_cleanshutdown").write_text('{"version":0}')
    (path.parent / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=fXeC61JOQie3q2pvw8VSPQ\n")
    return path


def out(ran: Ran, code: int = 0) -> str:
    assert (ran.exit_code, ran.stderr) == (code, b"")
    return ran.stdout.decode()


def test_the_trail_as_text(klog: Klog, folder: Path) -> None:
    """A line a step, as the contract shows it, remarks in a column of their own."""
    remarked = [
        (f"segment   {BASE:020}.log   base {BASE} ≤ {BASE + 60} < next base {SECOND}", "2 segments, floor search"),
        ("index     entry 1 of 4: relative 48 → offset 368817, position 8304", "3 probes, warm section from entry 0"),
        ("scan      from position 8304: batch 368829 at 10380", "13 batch headers read"),
    ]
    width = max(len(step) for step, _ in remarked)
    assert out(klog("lookup", folder, "--offset", str(BASE + 60))).splitlines() == [
        *(f"{step:{width}}   ({remark})" for step, remark in remarked),
        "batch     position 10380, 173 bytes, offset 368829, CRC holds",
        "record    offset 368829, no key, 103 bytes, 2023-11-14 22:19:28.829Z",
    ]


def test_the_trail_as_json_has_the_members_of_the_contract(klog: Klog, folder: Path) -> None:
    """Scripts use these names; the record is that of a dump."""
    found = json.loads(out(klog("lookup", folder, "--offset", str(BASE + 60), "--output", "json")))
    assert list(found) == [
        *("topic", "partition", "offset", "outcome", "segment", "index", "scan", "batch", "record", "notes", "problems")
    ]
    assert (found["topic"], found["partition"], found["offset"], found["outcome"]) == ("orders", 3, BASE + 60, "record")
    segment = {"file": f"{BASE:020}.log", "base_offset": BASE, "next_base_offset": SECOND, "segments": 2}
    assert found["segment"] == segment
    assert {name: found["index"][name] for name in ("file", "slot", "entries", "offset", "position", "probes")} == {
        "file": f"{BASE:020}.index",
        "slot": 1,
        "entries": 4,
        "offset": BASE + 48,
        "position": 8304,
        "probes": 3,
    }
    assert found["scan"] == {"from": 8304, "batches": 13}
    assert found["batch"] == {
        "position": 10380,
        "size": 173,
        "base_offset": BASE + 60,
        "last_offset": BASE + 60,
        "crc_holds": True,
        "codec": "none",
    }
    options = ("--from-offset", str(BASE + 60), "--limit", "1", "--output", "jsonl")
    assert found["record"] == json.loads(out(klog("dump", folder, *options)))
    assert (found["notes"], found["problems"]) == ([], [])
    (line,) = out(klog("lookup", folder, "--offset", str(BASE + 60), "--output", "jsonl")).splitlines()
    assert json.loads(line) == found


def test_a_time_adds_its_index(klog: Klog, folder: Path) -> None:
    asked = MS + SECOND + 5
    found = json.loads(out(klog("lookup", folder, "--timestamp", str(asked), "--output", "json")))
    assert (found["timestamp"], found["offset"]) == (asked, SECOND + 5)
    assert {"file", "slot", "entries", "timestamp", "offset", "probes"} <= set(found["time_index"])
    text = out(klog("lookup", folder, "--timestamp", "2023-11-14T22:25:37.342Z"))
    assert f"record    offset {SECOND + 5}, " in text
    assert f"largest timestamp {time_text(MS + SECOND + 99)} ≥ {time_text(asked)}" in text
    assert "\ntime      none of 5 entries is used: offset 737337" in text


@pytest.mark.parametrize(
    ("options", "code", "outcome", "word"),
    [
        (("--offset", "5"), 4, "below start", "below the log start offset"),
        (("--offset", str(SECOND + 100)), 4, "at end", "the log end offset"),
        (("--offset", str(SECOND + 101)), 4, "beyond end", "beyond the log end offset"),
        (("--offset", str(10**30)), 4, "beyond end", "beyond the log end offset"),
        (("--offset", str(BASE + 200)), 0, "gap", "the next record is 737337"),
        (("--timestamp", "2040-01-01T00:00:00Z"), 4, "nothing so late", "no timestamp is that late"),
    ],
)
def test_awkward_places_are_said_in_words(
    klog: Klog, folder: Path, options: tuple[str, str], code: int, outcome: str, word: str
) -> None:
    """Not found is 4; in a gap the next record for a consumer is found."""
    text = out(klog("lookup", folder, *options), code)
    assert word in text.split("answer    ")[1].splitlines()[0]
    assert json.loads(out(klog("lookup", folder, *options, "--output", "json"), code))["outcome"] == outcome
    ran = klog("lookup", folder, *options, "--position-only")
    assert (ran.exit_code, ran.stdout) == (code, b"0\n" if outcome == "gap" else b"\n")
    assert (word in ran.stderr.decode(), ran.stderr.count(b"\n")) == ((True, 1) if code else (False, 0))


def test_a_wrong_index_is_told_with_the_right_answer(klog: Klog, folder: Path) -> None:
    """The answer is right, the trail reports the fault, the exit code asks for a look."""
    (folder / f"{BASE:020}.index").unlink()
    text = out(klog("lookup", folder, "--offset", str(BASE + 60)), 4)
    assert "index     no file: position 0\n" in text
    assert "batch     position 10380," in text
    assert f"problem   {BASE:020}.log: there is no offset index\n" in text
    ran = klog("lookup", folder, "--offset", str(BASE + 60), "--position-only")
    assert (ran.stdout, ran.exit_code) == (b"10380\n", 4)
    assert ran.stderr.decode() == f"klog: {BASE:020}.log: there is no offset index\n"
    found = json.loads(out(klog("lookup", folder, "--offset", str(BASE + 60), "--output", "json"), 4))
    assert found["problems"] == [f"{BASE:020}.log: there is no offset index"]
    assert found["index"]["file"] is None


# where


def test_a_partition_may_be_named_in_three_ways(klog: Klog, folder: Path) -> None:
    """As it lies there, as one of its logs, or out of a log dir."""
    offset = ("--offset", str(BASE + 1), "--position-only")
    assert out(klog("lookup", folder, *offset)) == "173\n"
    assert out(klog("lookup", folder / f"{BASE:020}.log", *offset)) == "173\n"
    assert out(klog("lookup", folder.parent, "--topic", "orders", "--partition", "3", *offset)) == "173\n"


def test_a_single_log_is_searched_alone(klog: Klog, folder: Path) -> None:
    text = out(klog("lookup", folder / f"{BASE:020}.log", "--offset", str(SECOND)), 4)
    assert "only this segment was searched" in text
    text = out(klog("lookup", folder / f"{SECOND:020}.log", "--offset", str(BASE)), 4)
    assert "only this one was searched" in text


def test_a_log_on_its_way_out_has_its_own_index(klog: Klog, folder: Path) -> None:
    for kind in ("log", "index", "timeindex"):
        (folder / f"{BASE:020}.{kind}").rename(folder / f"{BASE:020}.{kind}.deleted")
    text = out(klog("lookup", folder / f"{BASE:020}.log.deleted", "--offset", str(BASE + 60)))
    assert "index     entry 1 of 4" in text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("data", "--offset", "1"), "2 partitions (orders-3, orders-4)"),
        (("data", "--topic", "orders", "--partition", "9", "--offset", "1"), "no partition 9"),
        (("data/orders-3",), "--offset N, --timestamp TIME, --batch FILE: exactly one"),
        (
            ("data/orders-3", "--offset", "1", "--timestamp", "2"),
            "--offset N, --timestamp TIME, --batch FILE: exactly one",
        ),
        (("data/orders-3", "--offset", "1", "--batch", "-"), "leave out --offset"),
        (("data/orders-3", "--timestamp=5", "--batch", "-"), "leave out --offset and the value of --timestamp"),
        (("data/orders-3", "--offset", "1", "--output", "jsonn"), "did you mean json or jsonl?"),
        (("data/orders-3", "--offset", "1", "--output", "json", "--position-only"), "leave out --output"),
        (("data/orders-3", "--timestamp", "noon"), "is not a time"),
        (("data/meta.properties", "--offset", "1"), "needs a partition directory"),
        (("nowhere", "--offset", "1"), "nowhere"),
    ],
)
def test_what_makes_no_sense_is_16(
    klog: Klog, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], word: str
) -> None:
    monkeypatch.chdir(folder.parent.parent)
    ran = klog("lookup", *arguments)
    assert (ran.exit_code, ran.stdout) == (16, b"")
    assert word in ran.stderr.decode()


def test_a_partition_without_segments_is_refused(klog: Klog, folder: Path) -> None:
    (folder.parent / "orders-4" / f"{0:020}.log").unlink()
    ran = klog("lookup", folder.parent / "orders-4", "--offset", "1")
    assert (ran.exit_code, ran.stdout) == (16, b"")


# many


def test_many_are_answered_in_the_order_asked(klog: Klog, folder: Path, tmp_path: Path) -> None:
    """Sorted inside, for speed; outside a line for each, as it was asked."""
    offsets = [SECOND + 7, BASE, 5, BASE + 99, BASE + 150, SECOND + 500, BASE]
    asked = tmp_path / "asked"
    asked.write_text("\n".join(map(str, offsets)) + "\n\n")
    first, second = f"{BASE:020}.log", f"{SECOND:020}.log"
    assert out(klog("lookup", folder, "--batch", asked), 4).splitlines() == [
        f"{SECOND + 7} {second} 1211 record",
        f"{BASE} {first} 0 record",
        "5 - - below start",
        f"{BASE + 99} {first} 17127 record",
        f"{BASE + 150} {second} 0 gap",
        f"{SECOND + 500} {second} - beyond end",
        f"{BASE} {first} 0 record",
    ]
    ran = klog("lookup", folder, "--batch", asked, "--position-only")
    assert (ran.exit_code, ran.stdout) == (4, b"1211\n0\n\n17127\n0\n\n0\n")
    assert ran.stderr.decode() == f"klog: {folder}: 2 not found, an empty line for each\n"
    lines = [
        json.loads(line) for line in out(klog("lookup", folder, "--batch", asked, "--output", "jsonl"), 4).splitlines()
    ]
    assert [line["offset"] for line in lines] == offsets
    for line in lines:
        single = klog("lookup", folder, "--offset", str(line["offset"]), "--output", "json")
        alone = json.loads(single.stdout)
        assert {**line, "notes": []} == {**alone, "notes": []}


def test_many_times_come_with_a_bare_timestamp(klog_process: Klog, folder: Path) -> None:
    times = [MS + SECOND + 7, MS + BASE, MS + 10**9]
    asked = "".join(f"{moment}\n" for moment in times).encode()
    for options in (("--batch", "-", "--timestamp"), ("--timestamp", "--batch", "-"), ("--timestamp", "--batch=-")):
        assert out(klog_process("lookup", str(folder), *options, stdin=asked), 4).splitlines() == [
            f"{times[0]} {SECOND + 7} {SECOND:020}.log 1211 record",
            f"{times[1]} {BASE} {BASE:020}.log 0 record",
            f"{times[2]} - - - nothing so late",
        ]


def test_nothing_asked_is_nothing_answered(klog_process: Klog, folder: Path) -> None:
    assert out(klog_process("lookup", str(folder), "--batch", "-")) == ""


@pytest.mark.parametrize("line", ["x", "1 2", "٣", "--5", "1.5", "9" * 40])
def test_a_line_that_is_no_number_is_named(klog: Klog, folder: Path, tmp_path: Path, line: str) -> None:
    (tmp_path / "asked").write_text(f"1\n{line}\n")
    ran = klog("lookup", folder, "--batch", tmp_path / "asked")
    assert ran.exit_code == 16
    assert "asked, line 2" in ran.stderr.decode()


def test_problems_of_many_are_told_once(klog: Klog, folder: Path, tmp_path: Path) -> None:
    (folder / f"{BASE:020}.index").unlink()
    (tmp_path / "asked").write_text("".join(f"{BASE + i}\n" for i in range(100)))
    ran = klog("lookup", folder, "--batch", tmp_path / "asked", "--position-only")
    assert ran.stdout.decode().split() == [str(173 * i) for i in range(100)]
    assert (ran.exit_code, ran.stderr.decode()) == (4, f"klog: {BASE:020}.log: there is no offset index\n")


def test_more_than_fit_at_once_are_answered(klog: Klog, folder: Path, tmp_path: Path) -> None:
    """A chunk at a time, so that memory stays bounded."""
    chance = Random(2)
    offsets = [BASE + chance.randrange(100) for _ in range(100_500)]
    (tmp_path / "asked").write_text("".join(f"{offset}\n" for offset in offsets))
    answers = out(klog("lookup", folder, "--batch", tmp_path / "asked", "--position-only")).splitlines()
    assert answers == [str(173 * (offset - BASE)) for offset in offsets]


# the display of hostile content


def test_keys_are_shown_on_one_line(klog: Klog, tmp_path: Path) -> None:
    """A key is data: it must not move a terminal's cursor, nor fill its screen."""
    folder = tmp_path / "orders-3"
    keys = [b"plain", b"\xff\x00", b"new\nline\x1b[2J", b"k" * 500, b"", None, "größe".encode()]
    groups = [[Record(i, -1 if i == 5 else MS, key, None if i == 5 else b"value")] for i, key in enumerate(keys)]
    write_segment(folder, 0, of_records(groups))
    shown = [out(klog("lookup", folder, "--offset", str(i))).split("record    ")[1].splitlines()[0] for i in range(7)]
    assert shown[0] == 'offset 0, key "plain", 5 bytes, 2023-11-14 22:13:20.000Z'
    assert "key hex:ff00," in shown[1]
    assert f"key hex:{keys[2].hex()}," in shown[2]  # type: ignore[union-attr]
    assert "… (500 bytes)" in shown[3]
    assert 'key "",' in shown[4]
    assert shown[5] == "offset 5, no key, null, no timestamp"
    assert 'key "größe",' in shown[6]


def test_a_value_of_many_megabytes_is_a_json_string(klog: Klog, tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    value = b"\x01" * (20 << 20)
    write_segment(folder, 0, of_records([[Record(0, MS, b"k", value)]]))
    found = json.loads(out(klog("lookup", folder, "--offset", "0", "--output", "jsonl")))
    assert found["record"]["value"] == value.decode()
    assert found["record"]["position"] == 0


def test_nothing_is_changed_by_looking(klog: Klog, folder: Path) -> None:
    """Read-only media and evidence: not even a missing index is made."""
    (folder / f"{BASE:020}.index").unlink()
    before = sorted((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir())
    klog("lookup", folder, "--offset", str(BASE + 60))
    klog("lookup", folder, "--timestamp", str(MS + BASE + 60))
    assert sorted((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()) == before


def test_a_log_that_may_not_be_read_is_8(klog: Klog, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int, *rest: object, **more: object) -> int:
        if str(path).endswith(".log"):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, *rest, **more)  # type: ignore[arg-type]

    real = os.open
    monkeypatch.setattr(os, "open", refuse)
    ran = klog("lookup", folder, "--offset", str(BASE))
    assert (ran.exit_code, ran.stdout) == (8, b"")
    assert "Permission denied" in ran.stderr.decode()


def test_a_transaction_of_a_fixture_is_explained(klog: Klog) -> None:
    from tests.conftest import FIXTURES

    text = out(klog("lookup", FIXTURES / "modern" / "tx-0", "--offset", "5"))
    assert "producer 1016 that was aborted at 16: read_committed consumers do not receive it" in text


def test_an_index_of_another_version_is_as_good(klog: Klog, tmp_path: Path) -> None:
    """Entries of followers have the last offset of an append and the position of its first batch."""
    folder = tmp_path / "orders-3"
    write_segment(folder, 0, batches_of((i, i, 100) for i in range(50)))
    (folder / f"{0:020}.index").write_bytes(encode.offset_entries(0, [(49, 2000)]))
    assert "batch     position 3000," in out(klog("lookup", folder, "--offset", "30"))
