"""The values of fields are those that Kafka's own dump tool and klog's other readers give."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from klog.formats.batch import BATCH, Attributes
from klog.formats.record import RECORD, RECORD_HEADER, write_record

from tests.commands.bytes.covering import Shown, content, fields_of
from tests.conftest import FIXTURES, run_klog
from tests.support import goldens

GOLDEN = FIXTURES / "golden"
PLAIN = dict(goldens.read(GOLDEN / "plain.gz"))
DECODED = dict(goldens.read(GOLDEN / "decoded.gz"))


def by_batch(found: list[Shown]) -> Iterator[tuple[dict[str, Any], list[Shown]]]:
    """Yield the header of each v2 batch of a log, and the fields of its records."""
    header: dict[str, Any] = {}
    records: list[Shown] = []
    for one in found:
        if one.field.name == BATCH.names[0] and not one.inside:
            if header:
                yield header, records
            header, records = {"position": one.field.position}, []
        if one.field.name in BATCH.names and not one.field.part.title.startswith("record"):
            header[one.field.name] = one.field.value
        elif one.field.part.title.startswith("record"):
            records.append(one)
    if header:
        yield header, records


def kafkas_batches(text: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        if line.startswith("baseOffset:"):
            yield dict(re.findall(r"(\w+): (\S+)", line))


LOGS = [file for file in PLAIN if file.endswith((".log", ".checkpoint")) and not PLAIN[file].died]


@pytest.mark.parametrize("file", LOGS)
def test_headers_are_those_of_kafkas_tool(file: str) -> None:
    """Every batch of every fixture: offsets, counts, producers, epochs, flags, sizes, checksums."""
    wanted = [one for one in kafkas_batches(PLAIN[file].stdout.decode()) if one["magic"] == "2"]
    found = [header for header, _ in by_batch(fields_of(FIXTURES / file)) if header.get("magic") == 2]
    assert len(found) >= len(wanted)
    for header, kafka in zip(found, wanted, strict=False):
        attributes = Attributes(header["attributes"])
        assert {
            "baseOffset": header["base_offset"],
            "lastOffset": header["base_offset"] + header["last_offset_delta"],
            "count": header["records_count"],
            "baseSequence": header["base_sequence"],
            "producerId": header["producer_id"],
            "producerEpoch": header["producer_epoch"],
            "partitionLeaderEpoch": header["leader_epoch"],
            "position": header["position"],
            "size": header["size"] + 12,
            "crc": header["crc"],
        } == {name: int(kafka[name]) for name in kafka if name in _NUMBERS}
        is_append_time = bool(attributes & Attributes.LOG_APPEND_TIME)
        assert int(kafka["LogAppendTime" if is_append_time else "CreateTime"]) == header["max_timestamp"]
        assert kafka["isTransactional"] == str(bool(attributes & Attributes.TRANSACTIONAL)).lower()
        assert kafka["isControl"] == str(bool(attributes & Attributes.CONTROL)).lower()


_NUMBERS = (
    *("baseOffset", "lastOffset", "count", "baseSequence", "producerId", "producerEpoch"),
    *("partitionLeaderEpoch", "position", "size", "crc"),
)


@pytest.mark.parametrize("file", [file for file in PLAIN if file.endswith((".index", ".timeindex"))])
def test_entries_are_those_of_kafkas_tool(file: str) -> None:
    """Kafka's tool prints offsets where the file has distances to the base offset."""
    base = int(Path(file).name.split(".")[0])
    lines = re.findall(r"^(\w+): (-?\d+) (\w+): (-?\d+)$", PLAIN[file].stdout.decode(), re.MULTILINE)
    wanted = [{first: int(a), second: int(b)} for first, a, second, b in lines]
    fields = [one.field for one in fields_of(FIXTURES / file) if one.field.name != "bytes"]
    values = [(one.name, one.value) for one in fields]
    named = [("offset", base + int(value)) if name == "relative_offset" else (name, value) for name, value in values]
    found = [dict(pair) for pair in zip(named[::2], named[1::2], strict=True)]
    assert found == wanted[: len(found)]
    assert not any(any(entry.values()) for entry in wanted[len(found) :] if "position" in entry)


@pytest.mark.parametrize("file", [file for file in PLAIN if file.endswith(".snapshot")])
def test_producers_are_those_of_kafkas_tool(file: str) -> None:
    found = [one.field for one in fields_of(FIXTURES / file)]
    wanted = re.findall(
        r"producerId: (-?\d+) producerEpoch: (-?\d+) coordinatorEpoch: (-?\d+)", PLAIN[file].stdout.decode()
    )
    values = {name: [one.value for one in found if one.name == name] for name in _PRODUCER}
    assert list(zip(*values.values(), strict=True)) == [tuple(map(int, one)) for one in wanted]


_PRODUCER = ("producer_id", "producer_epoch", "coordinator_epoch")


# records


def rows_of(header: dict[str, Any], records: list[Shown]) -> Iterator[tuple[int, bytes | None, bytes | None, int]]:
    """Yield offset, key, value and the number of headers of each record of a batch."""
    row: dict[str, Any] = {}
    for one in records:
        name = one.field.name
        if name == RECORD[0].name and row:
            yield row["offset"], row["key"], row["value"], row["headers"]
            row = {}
        row.setdefault(name, one.field.value)
        if name == "offset_delta":
            row["offset"] = header["base_offset"] + one.field.value
        if name in ("key", "value"):
            row[name] = content(one)
    if row:
        yield row["offset"], row["key"], row["value"], row["headers"]


def unquoted(row: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in row:
        return binascii.a2b_base64(row[f"{name}_base64"])
    text = row.get(name)
    return None if text is None else text.encode()


RECORDS = [
    *("modern/plain-1", "modern/tx-0", "modern/zstd-0", "modern/gzip-0", "modern/lz4-broker-0", "modern/snappy-0"),
    *("modern/idempotent-0", "compaction/after/tx-later-0", "modern/logappend-0"),
]


@pytest.mark.parametrize("folder", RECORDS)
def test_records_are_those_of_the_dump(folder: str) -> None:
    """Offset, key, value and headers of every record, of all codecs."""
    for log in sorted((FIXTURES / folder).glob("*.log")):
        lines = map(json.loads, run_klog("dump", log, "--output", "jsonl", "--no-control").stdout.splitlines())
        wanted = [(one["offset"], unquoted(one, "key"), unquoted(one, "value"), len(one["headers"])) for one in lines]
        found = [
            row
            for header, records in by_batch(fields_of(log))
            if not header["attributes"] & Attributes.CONTROL
            for row in rows_of(header, records)
        ]
        assert found == wanted


@pytest.mark.parametrize("folder", sorted(path.name for path in (FIXTURES / "legacy").iterdir() if path.is_dir()))
def test_messages_are_those_of_the_dump(folder: str) -> None:
    """The keys and values of the old formats, in wrappers and alone."""
    for log in sorted((FIXTURES / "legacy" / folder).glob("*.log")):
        lines = list(map(json.loads, run_klog("dump", log, "--output", "jsonl").stdout.splitlines()))
        shown = [one for one in fields_of(log) if one.field.inside is None]
        offsets = [one.field for one in shown if one.field.name == "offset" and "wrapper" not in one.field.part.title]
        old = [line["offset"] for line in lines if "leader_epoch" not in line]
        assert [int(one.text.rpartition("→")[2] or one.value) for one in offsets] == old
        for name in ("key", "value"):
            found = [content(one) for one in shown if one.field.name == name]
            assert list(filter(None, found)) == list(filter(None, (unquoted(line, name) for line in lines)))


def test_the_declared_fields_are_those_that_are_written() -> None:
    """`write_record`, the kernel's reader and this view share one declaration."""
    assert [field.name for field in RECORD][3:] == ["offset_delta", "key", "value", "headers"]
    assert len(RECORD_HEADER) == 2
    assert write_record(1, 2, b"k", None) == bytes((14, 0, 2, 4, 2)) + b"k" + bytes((1, 0))


# internal topics


def flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a JSON value with their paths."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flat(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from flat(inner, f"{path}[{at}]")
    else:
        yield path, value


def leaf(one: Shown) -> Any:
    found = content(one)
    return one.field.value if found is None else binascii.b2a_base64(found, newline=False).decode()


@pytest.mark.parametrize("file", sorted(DECODED))
def test_records_of_internal_topics_are_those_of_kafkas_tool(file: str) -> None:
    """Every value of every key and payload that Kafka's decoders print."""
    lines = DECODED[file].stdout.decode("utf-8", "replace").splitlines()
    records = [line for line in lines if line.startswith("| offset:") and "isTransactional" not in line]
    found: dict[str, dict[str, Any]] = {}
    for one in fields_of(FIXTURES / file):
        title = re.match(r"record \d+, offset (\d+)", one.field.part.title)
        if title:
            found.setdefault(title[1], {})[one.field.name] = leaf(one)
    compared = 0
    for line in records:
        offset = re.match(r"\| offset: (\d+)", line)
        assert offset
        for part, text in re.findall(r" (key|payload): (\{.*?\})(?= payload: |$)", line):
            name, first = ("key", "type") if part == "key" else ("value", "version")
            printed = json.loads(text)
            assert found[offset[1]][f"{name}.{first}"] == int(printed[first])
            compared += 1
            for path, value in flat(printed["data"], name):
                if path in found[offset[1]] or value is not None:
                    assert found[offset[1]].get(path) == value, (line, path)
    assert compared or not any(" payload: {" in line for line in records)
