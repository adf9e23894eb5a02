"""`klog fetch`: its content, its form, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Ran
from tests.oracles.plain.encode import Record
from tests.support.lookup_logs import MS, of_records, write_segment

Klog = Callable[..., Ran]
NAMES = {
    "topic",
    "partition",
    "offset",
    "error",
    "high_watermark",
    "last_stable_offset",
    "log_start_offset",
    "bytes",
    "batches",
    "partial",
    "aborted",
}


@pytest.fixture
def five(tmp_path: Path) -> Path:
    """Five batches of one record of 1 KB, 1094 bytes each, whose high watermark was written down at 4."""
    path = tmp_path / "five-0"
    write_segment(path, 0, of_records([[Record(i, MS, None, b"v" * 1024)] for i in range(5)]))
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nfive 0 4\n")
    return path


def test_the_text_names_the_batches_and_what_is_cut(klog: Klog, five: Path) -> None:
    """The documented example, for people."""
    ran = klog("fetch", five, "--offset", "0", "--max-bytes", "3500", "--partial", "--quiet")
    assert (ran.exit_code, ran.stderr) == (0, b"")
    assert ran.stdout.decode() == (
        "five-0 from offset 0, at most 3.4 KiB: 3.4 KiB of 00000000000000000000.log\n"
        "log start 0, high watermark 5, last stable offset 5\n"
        "\n"
        "offsets  position  bytes\n"
        "      0         0   1094\n"
        "      1      1094   1094\n"
        "      2      2188   1094\n"
        "218 B of the next batch, which begins at offset 3: a consumer drops this part\n"
    )


def test_the_json_has_every_field(klog: Klog, five: Path) -> None:
    """The same for programs, by the names that the contract gives."""
    ran = klog("fetch", five, "--offset", "3", "--max-bytes", "3500", "--partial", "--output", "json")
    told = json.loads(ran.stdout)
    assert (ran.exit_code, set(told)) == (0, NAMES)
    assert told["batches"] == [
        {"base_offset": 3, "last_offset": 3, "position": 3282, "size": 1094},
        {"base_offset": 4, "last_offset": 4, "position": 4376, "size": 1094},
    ]
    assert (told["bytes"], told["partial"], told["aborted"], told["error"]) == (2188, None, [], 0)
    told = json.loads(klog("fetch", five, "--offset", "0", "--max-bytes", "1100", "--partial", "--output=json").stdout)
    assert told["partial"] == {"base_offset": None, "bytes": 6}


@pytest.mark.parametrize(
    ("options", "size", "note"),
    [
        (("--end", "checkpoint"), 4376, ""),
        (("--end", "checkpoint", "--isolation", "log_end"), 5470, ""),
        (("--min-bytes", "6000"), 5470, "fewer than 6000 bytes: a broker gives this answer after fetch.max.wait.ms"),
    ],
)
def test_who_asks_and_how_far_it_goes(klog: Klog, five: Path, options: tuple[str, ...], size: int, note: str) -> None:
    """Consumers read to the high watermark, followers to the log's end; too little makes a broker wait."""
    ran = klog("fetch", five, "--offset", "0", "--output", "json", *options)
    assert (ran.exit_code, json.loads(ran.stdout)["bytes"]) == (0, size)
    assert note in ran.stderr.decode()


def test_aborted_transactions_are_told_to_who_leaves_them_out(klog: Klog) -> None:
    """read_committed is a matter of the consumer: a broker returns all records, and lists the aborted ones."""
    asked = ("fetch", FIXTURES / "modern", "--topic", "tx", "--offset", "0", "--max-bytes", "1", "--output", "json")
    committed = json.loads(klog(*asked, "--isolation", "read_committed", "--max-bytes", "1MiB").stdout)
    assert committed["last_stable_offset"] == 648
    later = json.loads(klog(*asked, "--isolation=read_committed", "--offset", "50", "--max-bytes=8KiB").stdout)
    assert {"producer_id", "first_offset"} == set(later["aborted"][0])
    assert json.loads(klog(*asked).stdout)["aborted"] == []


def test_beyond_the_end_is_told_with_an_exit_code(klog: Klog, five: Path) -> None:
    """A script must not take an error for an empty answer."""
    ran = klog("fetch", five, "--offset", "9")
    assert ran.exit_code == 4
    assert "OFFSET_OUT_OF_RANGE (1): 9 is beyond the log's end" in ran.stdout.decode()
    ran = klog("fetch", five, "--offset", "-1", "--output", "json")
    assert (ran.exit_code, json.loads(ran.stdout)["high_watermark"]) == (4, -1)


def test_damage_is_handed_out_and_said(klog: Klog, five: Path) -> None:
    """A broker does the same; but the user must not believe that all is well."""
    log = five / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[2 * 1094 + 500] ^= 0xFF
    log.write_bytes(content)
    ran = klog("fetch", five, "--offset", "0", "--output", "json")
    assert (ran.exit_code, json.loads(ran.stdout)["bytes"]) == (4, 5470)
    assert "sent as it is" in ran.stderr.decode()
    assert "@ 2188 (offset 2): bad CRC" in ran.stderr.decode()
    assert klog("fetch", five, "--offset", "3", "--output", "json").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{}", "--offset", "0", "--isolation", "commited"), "did you mean read_committed"),
        (("{}", "--offset", "0", "--end", "now"), "expected one of log, checkpoint"),
        (("{}", "--offset", "0", "--output", "jsonl"), "expected one of text, json"),
        (("{}", "--offset", "0", "--max-bytes", "lots"), "not a size"),
        (("{}/00000000000000000000.log", "--offset", "0"), "name the partition's directory"),
        (("nowhere", "--offset", "0"), "nowhere"),
        ((str(FIXTURES / "modern"), "--offset", "0"), "name one, or narrow"),
    ],
)
def test_what_makes_no_sense_is_said(klog: Klog, five: Path, arguments: tuple[str, ...], said: str) -> None:
    """Wrong use has its own exit code, and the message the next step."""
    ran = klog("fetch", *(argument.format(five) for argument in arguments))
    assert (ran.exit_code, ran.stdout) == (16, b"")
    assert said in ran.stderr.decode()
