"""`klog bytes`: which bytes are shown, how they look as text and JSON, what is refused."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Ran
from tests.data_dir.test_log_dir import held
from tests.oracles.plain.encode import Record
from tests.support.bad_sectors import spoil
from tests.support.bombs import healthy
from tests.support.lookup_logs import MS, of_records, write_segment
from tests.support.measure import measured
from tests.support.terminal import on_screen

Klog = Callable[..., Ran]
TORN = FIXTURES / "crash/flip-middle/torn-0"
FLIPPED = TORN / "00000000000000000296.log"


def shown(klog: Klog, *words: str | Path) -> dict[str, object]:
    done = klog("bytes", *words, "--output", "json")
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two batches of one record."""
    path = tmp_path / "two-0"
    write_segment(path, 0, of_records([[Record(i, MS, b"key", b"value")] for i in range(2)]))
    return path


LINE = (
    "00000000000000000000.log @ 0   batch of 76 bytes, offset 0\n"
    "         0  00 00 00 00 00 00 00 00   base offset          0\n"
    "         8  00 00 00 40               length               64 (76 with these 12 bytes)\n"
)


def test_a_batch_is_shown_field_by_field(klog: Klog, two: Path) -> None:
    """The documented form: position, bytes, name, value."""
    done = klog("bytes", two, "--offset", "0")
    text = done.stdout.decode()
    assert (done.exit_code, done.stderr) == (0, b"")
    assert text.startswith(LINE)
    assert text.endswith(
        "record 0, offset 0, 61–75\n"
        "        61  1c                        length               14\n"
        "        62  00                        attributes           0\n"
        "        63  00                        timestamp delta      0\n"
        "        64  00                        offset delta         0 → 0\n"
        '        65  06 6b 65 79               key                  3 bytes  "key"\n'
        '        69  0a 76 61 6c 75 65         value                5 bytes  "value"\n'
        "        75  00                        headers              0\n"
    )


@pytest.mark.parametrize("position", [76, 100, 151])
def test_a_position_means_the_batch_that_it_is_in(klog: Klog, two: Path, position: int) -> None:
    log = two / "00000000000000000000.log"
    found = shown(klog, log, "--position", str(position))
    assert (found["kind"], found["position"], found["size"]) == ("batch", 76, 76)


def test_a_flipped_bit_is_named_at_its_byte(klog: Klog) -> None:
    done = klog("bytes", TORN, "--offset", "301")
    text = done.stdout.decode()
    assert done.exit_code == 4
    assert text.splitlines()[0].endswith("batch of 721 bytes, offsets 301–303   CRC DOES NOT MATCH")
    assert "CRC-32C              0x43467eac, computed 0x2c0b92f3\n" in text
    assert (
        "      1209  68                        value, byte 197      bit 4 differs: 0x78 'x' would make the checksum"
        " match (klog recover --repair-bits)\n"
    ) in text
    found = shown(klog, TORN, "--offset", "303")
    assert [one["position"] for one in found["problems"]] == [835, 1010]  # type: ignore[attr-defined]


def test_what_an_index_leads_to_is_compared(klog: Klog, tmp_path: Path) -> None:
    """An entry that points into a batch, and one beyond the log."""
    records = of_records([[Record(i, MS, b"k", b"v" * 3000)] for i in range(4)])
    write_segment(tmp_path / "t-0", 0, records)
    index = tmp_path / "t-0" / "00000000000000000000.index"
    size = (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size // 4
    index.write_bytes(struct.pack(">iiiiii", 1, size, 2, 2 * size + 1, 3, 99 * size))
    done = klog("bytes", index)
    text = done.stdout.decode()
    assert done.exit_code == 4
    assert "no batch begins there (index-disagrees)" in text
    assert "leads beyond" in text
    one = shown(klog, index, "--entry", "0")
    assert (one["kind"], one["position"], one["size"], one["problems"]) == ("entry", 0, 8, [])
    assert shown(klog, index, "--entry", "1")["problems"] != []
    none = klog("bytes", index, "--entry", "3")
    assert (none.exit_code, none.stdout) == (4, b"")
    assert b"no entry 3: it has 3, and the first is entry 0" in none.stderr


def test_lines_of_text_files_are_fields(klog: Klog, tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(b"0\n3\n0 0\n2 10\n1 20\n")
    done = klog("bytes", path)
    assert done.exit_code == 4
    assert done.stdout.decode() == (
        "leader-epoch-checkpoint   18 B   1 problem\n"
        '         0  30 0a                     version              "0"\n'
        '         2  33 0a                     entries              "3"\n'
        "         4  30 20 30 0a               entry 0              epoch 0, start offset 0\n"
        "         8  32 20 31 30 0a            entry 1              epoch 2, start offset 10, does not ascend: a broker"
        " drops it\n"
        "        13  31 20 32 30 0a            entry 2              epoch 1, start offset 20\n"
        "\n"
        "next: what a broker does with it, what repairs it\n"
        f"  klog verify {tmp_path}\n"
    )
    line = shown(klog, path, "--entry", "1")
    assert (line["kind"], line["position"], line["size"]) == ("line", 8, 5)
    path.write_bytes(b"0\n1\n0 x\n")
    assert "start offset is not a number" in klog("bytes", path).stdout.decode()


def test_an_empty_file_has_no_fields(klog: Klog, tmp_path: Path) -> None:
    """Brokers create checkpoints empty; an empty partition.metadata stops them."""
    for name, code in (("leader-epoch-checkpoint", 0), ("partition.metadata", 4), (f"{0:020}.log", 0)):
        path = tmp_path / name
        path.write_bytes(b"")
        done = klog("bytes", path)
        assert (done.exit_code, done.stderr) == (code, b""), name


def test_compressed_records_are_shown_decompressed(klog: Klog) -> None:
    """Their positions count from the first decompressed byte, and the text says that."""
    found = shown(klog, FIXTURES / "modern/zstd-0", "--offset", "0")
    last = found["fields"][-1]  # type: ignore[index]
    assert last["name"] == "records"
    assert last["inside"]["fields"][0] | {"hex": ""} == {
        "position": 0,
        "size": 2,
        "hex": "",
        "name": "length",
        "meaning": "bytes after this field",
        "value": last["inside"]["fields"][0]["value"],
        "part": last["inside"]["fields"][0]["part"],
    }
    text = klog("bytes", FIXTURES / "modern/zstd-0", "--offset", "0").stdout.decode()
    assert "these positions count from the first of them\n" in text


# forms


def test_raw_bytes_are_those_of_the_file(klog: Klog, tmp_path: Path) -> None:
    content = FLIPPED.read_bytes()
    assert klog("bytes", FLIPPED, "--raw").stdout == content
    assert klog("bytes", TORN, "--offset", "301", "--raw").stdout == content[818 : 818 + 721]
    assert klog("bytes", FLIPPED, "--position", "818", "--raw", "--context", "8").stdout == content[810 : 818 + 729]
    done = klog("bytes", TORN, "--offset", "301", "--raw", "--to", tmp_path / "batch.bin")
    assert (done.exit_code, (tmp_path / "batch.bin").read_bytes()) == (0, content[818 : 818 + 721])
    refused = on_screen("bytes", FLIPPED, "--raw")
    assert (refused.exit_code, "not for a terminal" in refused.plain) == (16, True)


def test_context_is_bytes_before_and_after(klog: Klog) -> None:
    found = shown(klog, FLIPPED, "--position", "818", "--context", "8")
    fields = found["fields"]
    assert isinstance(fields, list)
    assert (found["position"], found["size"]) == (810, 721 + 16)
    assert [fields[at]["part"] for at in (0, -1)] == ["bytes before it", "bytes after it"]
    assert bytes.fromhex("".join(one["hex"] for one in fields)) == FLIPPED.read_bytes()[810 : 818 + 729]


def test_a_file_takes_the_result(klog: Klog, tmp_path: Path) -> None:
    """The ending chooses the form; text has no colours in a file."""
    for name in ("out.json", "out.txt"):
        done = klog("bytes", TORN, "--offset", "304", "--to", tmp_path / name)
        assert (done.exit_code, done.stdout) == (0, b"")
    assert json.loads((tmp_path / "out.json").read_bytes())["kind"] == "batch"
    assert (tmp_path / "out.txt").read_bytes() == klog("bytes", TORN, "--offset", "304").stdout


def test_long_values_are_cut_unless_all_is_wanted(klog: Klog, tmp_path: Path) -> None:
    """The hex of the file's own bytes is whole in either case."""
    write_segment(tmp_path / "t-0", 0, of_records([[Record(0, MS, b"k", b"x" * 10_000)]]))
    short = klog("bytes", tmp_path / "t-0", "--offset", "0").stdout.decode()
    long = klog("bytes", tmp_path / "t-0", "--offset", "0", "--full").stdout.decode()
    assert "x" * 48 + '…"\n' in short
    assert short.count("xxxxxxxx\n") == 0
    assert long.count("xxxxxxxx\n") == 1249
    for more, left_out in ((), 10_000 - 4096), (("--full",), None):
        fields = shown(klog, tmp_path / "t-0", "--offset", "0", *more)["fields"]
        assert isinstance(fields, list)
        value = next(one for one in fields if one["name"] == "value")
        assert (value.get("left_out"), len(value["hex"])) == (left_out, 2 * value["size"])


def test_many_fields_are_cut_unless_all_is_wanted(klog: Klog, tmp_path: Path) -> None:
    """Six fields for each of twelve thousand headers are more than a reader can use."""
    headers = tuple((b"h", b"v") for _ in range(70_000))
    write_segment(tmp_path / "t-0", 0, of_records([[Record(0, MS, b"k", b"v", headers)]]))
    fields = shown(klog, tmp_path / "t-0", "--offset", "0")["fields"]
    assert isinstance(fields, list)
    assert (fields[-1]["name"], "--full shows them" in fields[-1]["text"]) == ("bytes", True)
    everything = shown(klog, tmp_path / "t-0", "--offset", "0", "--full")["fields"]
    assert isinstance(everything, list)
    assert sum(one["name"] == "header_key" for one in everything) == 70_000


# what is refused


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("modern/plain-1",), "a directory: add --offset N, or name one of its files"),
        (("modern/meta.properties", "--offset", "0"), "--offset goes with a partition directory"),
        (("modern/plain-1/00000000000000000000.log", "--entry", "0"), "--entry goes with an index or a snapshot"),
        (("modern/meta.properties", "--position", "9999"), "no byte 9999: the file has"),
        (("modern/meta.properties", "--position", "-1"), "no byte -1: the file has"),
        (("modern/plain-1", "--offset", "0", "--position", "0"), "at most one of them"),
        (("modern/plain-1", "--offset", "0", "--raw", "-o", "json"), "leave out --output"),
        (("modern/plain-1", "--offset", "0", "-o", "csv"), "expected one of text, json"),
    ],
)
def test_what_cannot_be_is_a_mistake_in_usage(
    klog: Klog, words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FIXTURES)
    done = klog("bytes", *words)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert told in done.stderr.decode()


def test_an_offset_without_a_batch_is_said(klog: Klog, tmp_path: Path) -> None:
    """Beyond the end there is nothing to show; in a gap the batch behind it is."""
    beyond = klog("bytes", FIXTURES / "modern/plain-1", "--offset", "99999")
    assert (beyond.exit_code, beyond.stdout) == (4, b"")
    assert b"beyond the log end offset 113" in beyond.stderr
    write_segment(tmp_path / "t-0", 0, of_records([[Record(at, MS, b"k", b"v")] for at in (0, 5)]))
    gap = klog("bytes", tmp_path / "t-0", "--offset", "3")
    assert gap.exit_code == 4
    assert gap.stdout.startswith(b"00000000000000000000.log @ 70   batch of 70 bytes, offset 5\n")
    assert b"the next record is 5" in gap.stderr


# what is no damage, and what cannot be read


def test_a_batch_that_a_broker_is_writing_is_no_problem(klog: Klog, two: Path) -> None:
    """Its lock tells; without the lock the same bytes are a torn tail."""
    log = two / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-5])
    (two.parent / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    (two.parent / ".lock").touch()
    for words in ((log,), (log, "--position", "80")):
        assert klog("bytes", *words).exit_code == 4
        with held(two.parent / ".lock"):
            done = klog("bytes", *words)
            assert done.exit_code == 0
            assert "batch of 76 bytes, offset 1, unfinished" in done.stdout.decode()


@pytest.mark.parametrize("partial", [False, True])
def test_unreadable_bytes_are_named_and_the_others_are_shown(
    klog: Klog, tmp_path: Path, partial: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen batches of 1 KiB, and one bad sector in the middle."""
    write_segment(tmp_path / "t-0", 0, of_records([[Record(i, MS, b"k", b"v" * 1000)] for i in range(16)]))
    log = tmp_path / "t-0" / "00000000000000000000.log"
    (tmp_path / "t-0" / "00000000000000000000.index").unlink()
    spoil(monkeypatch, range(8192, 8704), partial=partial)
    done = klog("bytes", log, "--output", "json")
    fields = json.loads(done.stdout)["fields"]
    assert done.exit_code == 12
    assert any("Input/output error" in one.get("problem", "") for one in fields)
    assert [one["value"] for one in fields if one["name"] == "base_offset"][-1] == 15
    last = klog("bytes", log, "--position", str(log.stat().st_size - 1))
    assert b"batch of 1071 bytes, offset 15" in last.stdout
    assert klog("bytes", log, "--position", "8200").exit_code == 12


# hostile data


def test_control_characters_are_escaped(klog: Klog, tmp_path: Path) -> None:
    """Keys, values, properties and names of JSON members come from a disk."""
    bad = b"\x1b[31m\x9b\r\n\xff\xed\xa0\x80"
    write_segment(tmp_path / "t-0", 0, of_records([[Record(0, MS, bad, b"\x1b]0;x\x07" + "‮".encode())]]))
    (tmp_path / "meta.properties").write_bytes(b"version=1\nnode.id=1\n\\ud800=\\u001b[31m\ncluster.id=\\ud801x\n")
    (tmp_path / "quorum-state").write_bytes(b'{"\\ud800\\u001b":"\\ud801","a":NaN,"leaderId":1}')
    for words in (("t-0", "--offset", "0"), ("meta.properties",), ("quorum-state",)):
        screen = on_screen("bytes", tmp_path / words[0], *words[1:])
        assert not set(screen.plain) & {"\x1b", "\x07", "\x9b", "\r", "‮"}
        done = klog("bytes", tmp_path / words[0], *words[1:])
        assert not set(done.stdout) & {0x1B, 0x07, 0x0D}
        json.loads(klog("bytes", tmp_path / words[0], *words[1:], "-o", "json").stdout)


def test_control_characters_in_names_are_escaped(klog: Klog, tmp_path: Path) -> None:
    """The name of a directory is in the heading, in notes and in the command to paste."""
    folder = tmp_path / "a\x1b[31m\u202e-0"
    write_segment(folder, 0, of_records([[Record(0, MS, b"k", b"v")]]))
    log = folder / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:-1])
    for words in ((log,), (log, "--position", "0"), (folder, "--offset", "7"), (log, "--position", "999")):
        screen = on_screen("bytes", *words)
        assert not set(screen.plain) & {"\x1b", "\u202e"}
        assert screen.exit_code in (4, 16)


# a log dir, and much of it


def test_a_log_dir_is_narrowed_to_a_partition(klog: Klog) -> None:
    wanted = klog("bytes", FIXTURES / "modern/plain-1", "--offset", "5").stdout
    assert klog("bytes", FIXTURES / "modern", "-t", "plain", "-p", "1", "--offset", "5").stdout == wanted
    assert klog("bytes", FIXTURES / "modern", "-p", "plain-1", "--offset", "5").stdout == wanted
    several = klog("bytes", FIXTURES / "modern", "-t", "plain", "--offset", "5")
    assert (several.exit_code, b"name one, or narrow with" in several.stderr) == (16, True)


def test_a_large_log_is_shown_batch_by_batch(tmp_path: Path) -> None:
    """Sixteen times the log takes no more memory."""
    peaks = []
    for mebibytes in (1, 16):
        (tmp_path / "t-0").mkdir(exist_ok=True)
        (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(healthy(mebibytes))
        command = [sys.executable, "-m", "klog_cli.app", "bytes", str(tmp_path / "t-0" / "00000000000000000000.log")]
        ran = measured([*command, "--output", "json"], tmp_path, seconds=300)
        assert ran.exit_code == 0
        peaks.append(ran.rss)
    assert peaks[1] < peaks[0] + (16 << 20)


# a terminal


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    screen = on_screen("bytes", TORN, "--offset", "301", columns=columns)
    assert max(map(len, screen.plain.splitlines())) <= columns


def test_colours_mark_what_contradicts() -> None:
    """Red is the checksum and the flipped bit; positions are dim."""
    marked = on_screen("bytes", TORN, "--offset", "301", columns=160).marked
    assert "[red]CRC DOES NOT MATCH[]" in marked
    assert "0x43467eac, [red]computed 0x2c0b92f3[]" in marked
    assert "[dim]      1209[]  68" in marked
    assert "[red]bit 4 differs: 0x78 'x'" in marked
    assert "[bold]00000000000000000296.log[] @ 818   [bold]batch of 721 bytes, offsets 301–303[]" in marked
