"""`klog records`: the same records as `klog dump` and real consumers have, in a form for people."""

from __future__ import annotations

import json
import struct
import uuid
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients
from tests.commands.serve.serving import Serving
from tests.conftest import CORPORA, FIXTURES, extract, run_klog
from tests.oracles.plain.encode import Record, batch
from tests.support.reads import count_reads
from tests.support.samples import sampled
from tests.support.terminal import on_screen


def partitions_in(root: Path) -> list[Path]:
    """Return the partition directories with logs below *root*."""
    return sorted({path.parent for path in root.rglob("*-[0-9]*/*.log")})


PARTITIONS = sorted(path for path in FIXTURES.glob("*/*-[0-9]*") if path.is_dir() and any(path.glob("*.log")))
ARCHIVES = sorted(
    str(path.relative_to(CORPORA)) for kind in ("compaction", "crash") for path in CORPORA.glob(f"{kind}/*/*.gz")
)
LETTERS = "%o|%T|%K|%S|%k|%v|%h|%t|%p\\n"


def rows(path: Path, *options: str) -> list[dict[str, Any]]:
    """Return the records of a dump, without damage."""
    ran = run_klog("dump", path, "--output", "jsonl", *options)
    return [row for line in ran.stdout.splitlines() if "damage" not in (row := json.loads(line))]


def content(row: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in row:
        return b64decode(row[f"{name}_base64"])
    value = row.get(name)
    return None if value is None else value.encode()


def formatted(row: dict[str, Any]) -> bytes:
    """Return a record as kcat prints `LETTERS`."""
    key, value = content(row, "key"), content(row, "value")
    headers = []
    for name, text in row.get("headers", ()):
        name, text = (b64decode(one["base64"]) if isinstance(one, dict) else one for one in (name, text))
        name, text = (one.encode() if isinstance(one, str) else one for one in (name, text))
        headers.append(name + b"=" + (b"NULL" if text is None else text))
    numbers = [row["offset"], row["timestamp"], *(-1 if one is None else len(one) for one in (key, value))]
    fields = [*(b"%d" % number for number in numbers), key or b"", value or b"", b",".join(headers)]
    return b"|".join([*fields, row["topic"].encode(), b"%d" % row["partition"]]) + b"\n"


@pytest.mark.parametrize("path", PARTITIONS, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_the_same_records_as_a_dump(path: Path) -> None:
    compare_with_dump(path)


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["modern/data", "legacy/data", "v39/data", "v39/data1", "public/kafkalite"])
def test_the_same_records_as_a_dump_of_a_corpus(name: str) -> None:
    """Real brokers of six versions wrote these."""
    partitions = partitions_in(CORPORA / name)
    assert len(partitions) > 3
    for path in partitions:
        compare_with_dump(path)


@pytest.mark.corpora
@pytest.mark.parametrize("name", sampled(ARCHIVES, 12))
def test_the_same_records_as_a_dump_of_an_image(name: str, tmp_path: Path) -> None:
    """Wrecks of killed brokers, and logs that cleaners of three versions rewrote."""
    extract(CORPORA / name, tmp_path)
    for path in partitions_in(tmp_path):
        compare_with_dump(path)


def compare_with_dump(path: Path) -> None:
    """The last, the first, ranges and offsets before the log end; none of them is a control record in a format."""
    every = rows(path)
    middle = every[len(every) // 2]["offset"] if every else 0
    for options, expected in [
        ((), every[-10:]),
        (("-n", "7"), every[-7:]),
        (("--head", "-n", "7"), every[:7]),
        (("--from-offset", str(middle), "-n", "3"), [row for row in every if row["offset"] >= middle][:3]),
        (("--to-offset", str(middle)), [row for row in every if row["offset"] < middle]),
        (("--from-offset", "-5"), rows(path, "--from-offset", "-5")),
        (("--isolation", "read_committed", "-n", "5"), rows(path, "--isolation", "read_committed")[-5:]),
        *with_key(every),
    ]:
        shown = run_klog("records", path, *options, "--format", LETTERS)
        data = [row for row in expected if "control" not in row]
        assert shown.stdout == b"".join(map(formatted, data)), options
        lines = run_klog("records", path, *options, "--output", "jsonl").stdout.splitlines()
        assert [row for line in lines if "damage" not in (row := json.loads(line))] == expected
        document = json.loads(run_klog("records", path, *options, "--output", "json").stdout)
        assert [row for row in document["records"] if "damage" not in row] == expected


def with_key(every: list[dict[str, Any]]) -> list[tuple[tuple[str, ...], list[dict[str, Any]]]]:
    """Return the options that select the records with the key of the last record with a plain one, and these."""
    keys = [row["key"] for row in every if isinstance(row.get("key"), str) and row["key"].isalnum()]
    return [(("--key", keys[-1], "-n", "9"), [row for row in every if row.get("key") == keys[-1]][-9:])] if keys else []


@pytest.mark.parametrize("topic", ["tx", "zstd", "logappend", "idempotent", "gzip", "lz4-broker", "dense"])
def test_a_format_is_what_a_consumer_is_handed(topic: str) -> None:
    """All letters of kcat."""
    with Serving(FIXTURES / "modern") as serving:
        received = clients.consume(serving.bootstrap, topic, "read_committed")
    path = FIXTURES / f"modern/{topic}-0"
    shown = run_klog("records", path, "--from-offset", "0", "--isolation", "read_committed", "--format", LETTERS)
    assert shown.stdout == b"".join(received_line(one, topic) for one in received)
    assert received


def received_line(one: clients.Received, topic: str) -> bytes:
    """Return what kcat prints of a message in the format `LETTERS`."""
    lengths = (-1 if content is None else len(content) for content in (one.key, one.value))
    headers = b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in one.headers)
    numbers = [b"%d" % number for number in (one.offset, one.timestamp, *lengths)]
    return b"|".join([*numbers, one.key or b"", one.value or b"", headers, topic.encode(), b"0"]) + b"\n"


def test_each_transaction_has_its_outcome() -> None:
    """A record that no read_committed consumer receives is marked; a marker names the producer of its transaction."""
    path = FIXTURES / "modern/tx-0"
    committed = {row["offset"] for row in rows(path, "--isolation", "read_committed")}
    every = run_klog("records", path, "--from-offset", "0").stdout.decode().splitlines()[2:]
    shown = [line for line in every if not line.strip().startswith("headers  ")]
    assert len(shown) == len(rows(path))
    for line, row in zip(shown, rows(path), strict=True):
        assert int(line.split()[0]) == row["offset"]
        if "control" in row:
            assert line.endswith(f"-- {row['control']} of producer {row['producer_id']} --")
        elif row.get("transactional"):
            assert (f"txn {row['producer_id']} aborted" in line) == (row["offset"] not in committed)
    open_ones = run_klog("records", FIXTURES / "modern/tx-open-0", "--from-offset", "0").stdout.decode()
    assert " open  " in open_ones


def write(folder: Path, *records: Record) -> Path:
    (folder / "t-0").mkdir(parents=True, exist_ok=True)
    (folder / "t-0" / f"{0:020}.log").write_bytes(batch(list(records)))
    return folder / "t-0"


def test_typed_keys_and_values(tmp_path: Path) -> None:
    one = uuid.UUID(int=7)
    path = write(
        tmp_path,
        Record(0, 10**12, struct.pack(">i", 42), struct.pack(">d", 1.5)),
        Record(1, 10**12, struct.pack(">q", -7), b'{"a":[1,2]}'),
        Record(2, 10**12, one.bytes, b"\xff\0"),
    )

    def cells(*options: str) -> list[bytes]:
        return run_klog("records", path, "--format", "%k %v\\n", *options).stdout.splitlines()

    assert cells("--key-as", "int32", "--value-as", "float64", "--key", "42") == [b"42 1.5"]
    assert cells("--key-as", "int64", "--key", "-7") == [b'-7 {"a":[1,2]}']
    assert cells("--key-as", "uuid", "--value-as", "hex", "--key", str(one)) == [str(one).encode() + b" ff00"]
    found = run_klog("search", path, "--key", "42", "--key-as", "int32", "--output", "jsonl").stdout
    assert json.loads(found)["offset"] == 0
    pretty = run_klog("records", path, "--from-offset", "1", "--to-offset", "2", "--pretty").stdout.decode()
    assert [line.strip() for line in pretty.splitlines()[-6:]][1:] == ['"a": [', "1,", "2", "]", "}"]
    refused = run_klog("records", path, "--key", "x", "--key-as", "int32")
    assert (refused.exit_code, refused.stderr) == (16, b"klog: --key x: not of the form int32 (--key-as)\n")


def test_headers_have_a_line_of_their_own(tmp_path: Path) -> None:
    path = write(tmp_path, Record(0, 10**12, None, None, ((b"trace", b"a\tb"), (b"nul", None))))
    shown = run_klog("records", path).stdout.decode().splitlines()
    assert shown[2].split()[3:] == ["null", "null", "tombstone"]
    assert shown[3].strip() == "headers  trace=a\\tb  nul=null"


def test_damage_is_in_its_place_with_the_command_that_shows_its_bytes() -> None:
    path = FIXTURES / "crash/flip-middle/torn-0"
    ran = run_klog("records", path, "--from-offset", "299", "-n", "4")
    lines = ran.stdout.decode().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("bad CRC: "))
    assert lines[at - 1].split()[0] == "300"
    assert lines[at + 1] == f"klog bytes {path}/00000000000000000296.log --position 818"
    assert lines[at + 2].split()[0] == "304"
    assert ran.exit_code == 4


def test_nothing_in_the_range() -> None:
    ran = run_klog("records", FIXTURES / "modern/plain-1", "--from-offset", "5000")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (4, b"", b"klog: plain-1 ends at 113\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--format", "%q"), "--format: %q is unknown"),
        (("--follow", "--head"), "--follow goes on at the log end"),
        (("--follow", "--output", "json"), "with --follow, add --output jsonl"),
        (("--format", "%o", "--output", "jsonl"), "leave out --format"),
        (("--value-as", "avro"), "--value-as avro: expected one of"),
    ],
)
def test_mistakes_are_named(options: tuple[str, ...], said: str) -> None:
    ran = run_klog("records", FIXTURES / "modern/plain-1", *options)
    assert ran.exit_code == 16
    assert said in ran.stderr.decode()


def test_the_last_records_cost_a_few_kib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index leads to the last part of a log of 20 MB."""
    partition = tmp_path / "t-0"
    partition.mkdir()
    log, index, size = partition / f"{0:020}.log", bytearray(), 0
    with log.open("wb") as file:
        for number in range(2000):
            if number:
                index += struct.pack(">ii", number * 10, size)
            size += file.write(batch([Record(number * 10 + i, 10**12, b"k", b"v" * 1000) for i in range(10)]))
    log.with_suffix(".index").write_bytes(index)
    reads = count_reads(monkeypatch)
    shown = run_klog("records", partition, "--format", "%o\\n").stdout.split()
    assert shown == [b"%d" % offset for offset in range(19990, 20000)]
    assert reads.of(log)[1] < 200_000


def test_a_screen_cuts_values_and_dims_what_was_aborted() -> None:
    for columns in (60, 80, 100, 120):
        shown = on_screen("records", FIXTURES / "modern/tx-0", "-n", "9", columns=columns)
        assert all(len(line) <= columns for line in shown.plain.splitlines())
    lines = shown.marked.splitlines()
    assert lines[1].startswith("[bold]offset[]  [bold]time (UTC)[]")
    assert sum(line.startswith("[dim]") and "[red]aborted[]" in line for line in lines) == 3
    assert lines[-1].endswith("-- COMMIT of producer 1016 --[]")
    assert "…" in shown.plain
    assert "…" not in on_screen("records", FIXTURES / "modern/tx-0", "-n", "9", "--full", columns=80).plain
