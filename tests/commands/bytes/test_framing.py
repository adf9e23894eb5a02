"""`klog bytes --schemas`: the framing of keys and values, field by field, in front of data and in headers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from klog.commands.bytes.byte_view import ByteChoice
from klog.schemas.side_decoder import SchemaDecoders

from tests.commands.bytes.covering import fields_of, is_known
from tests.conftest import run_klog
from tests.oracles.plain.encode import Record
from tests.schemas.corpus import REGISTRIES, Image, data, registry, sides, truth
from tests.schemas.small_registry import ORDER, make, order

SIDES = ("key", "value")


def fields(path: Path, offset: int, *options: str) -> list[dict[str, Any]]:
    """Return the fields of one record, those inside of compressed bytes too."""
    done = run_klog("bytes", path, "--offset", str(offset), "--schemas", "auto", "--output", "json", "--full", *options)
    waiting, found = json.loads(done.stdout)["fields"], list[dict[str, Any]]()
    for one in waiting:
        found.append(one)
        found += one.get("inside", {}).get("fields", ())
    return [one for one in found if f"offset {offset}," in one["part"]]


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_the_fields_of_the_corpora_say_what_the_truth_says(image: Image, name: str) -> None:
    """Ids, GUIDs, decoded values and errors of every key and value; and each byte is in one field, once."""
    path, schemas = data(image, name), SchemaDecoders([registry(image, name)])
    found: dict[tuple[str, int, int, str], dict[str, Any]] = {}
    for partition in sorted(one for one in path.iterdir() if one.is_dir() and not one.name.startswith("_")):
        for log in sorted(filter(is_known, partition.glob("*.log"))):
            topic, _, number = partition.name.rpartition("-")
            for shown in fields_of(log, ByteChoice(is_full=True, schemas=schemas)):
                side = shown.field.name.partition(".")[0].removeprefix("header_")
                if ", offset " in shown.field.part.title:
                    offset = int(shown.field.part.title.split(", offset ")[1].partition(",")[0])
                    found.setdefault((topic, int(number), offset, side), {})[shown.field.name] = shown.field
    judged = 0
    for one in sides(name):
        right, here = one.right, found.get((one.topic, one.partition, one.offset, one.side), {})
        assert (f"{one.side}.data" in here or f"{one.side}.magic" in here) == (right["framed"] and bool(one.raw)), one
        if not right["framed"] or not one.raw:
            continue
        judged += 1
        ids = here.get(f"{one.side}.schema_id")
        if ids is not None:
            assert ids.value == right["id"], one
        if "plain" in right and right["plain"] is not None and len(one.raw) > 6 and f"{one.side}.data" in here:
            assert json.loads(here[f"{one.side}.data"].text) == right["plain"], one
        problems = [field.problem for field in here.values() if field.problem]
        assert bool(problems) == (right["error"] is not None), (one, problems)
    assert judged > 200


@pytest.mark.corpora
def test_a_guid_in_a_header_and_message_indexes(image: Image) -> None:
    """The value of the header is taken apart, and the value itself is bare data."""
    path, topics = data(image, "confluent"), truth("confluent")["topics"]
    right = [one for one in truth("confluent")["records"] if one["topic"] == topics["guid"]]
    one = next(each for each in right if each["value"].get("message") and each["value"]["guid"])
    found = fields(path / f"{topics['guid']}-{one['partition']}", one["offset"])
    names = [each["name"] for each in found]
    assert [name for name in names if name.startswith("header_value.")][:2] == [
        "header_value.magic",
        "header_value.schema_guid",
    ]
    assert "header_value.message_indexes" in names
    guid = next(each for each in found if each["value"] == one["value"]["guid"])
    assert f"id {one['value']['id']}, " in guid["text"]
    value = next(each for each in found if each["name"] == "value.data")
    assert json.loads(value["text"]) == one["value"]["plain"]
    proto = next(each for each in truth("confluent")["records"] if each["topic"] == topics["prototext"])
    found = fields(path / f"{topics['prototext']}-{proto['partition']}", proto["offset"])
    indexes = next(each for each in found if each["name"] == "value.message_indexes")
    assert (indexes["value"], indexes["text"]) == ("00", proto["value"]["message"])


def test_the_text_names_the_schema_and_shows_the_value(tmp_path: Path) -> None:
    """An id that is not known, and bytes behind the value, are problems; without --schemas nothing changes."""
    records = [Record(0, key=b"k", value=order(1, "vip")), Record(1, key=None, value=b"\0\0\0\x9c\x40x"),
               Record(2, key=b"\0" * 8, value=order(3) + b"zz")]  # fmt: skip
    make(tmp_path, [("orders-value", 1, 7, ORDER)], records)
    path = tmp_path / "orders-0"
    plain = run_klog("bytes", path, "--offset", "0")
    assert (plain.exit_code, b"schema" in plain.stdout) == (0, False)
    done = run_klog("bytes", path, "--offset", "0", "--schemas", "auto")
    text = done.stdout.decode()
    assert done.exit_code == 4
    assert "00                        value.magic          0" in text
    assert "00 00 00 07               value.schema id      7  orders-value version 1, AVRO, live" in text
    assert 'value.data           {"id":1,"tags":["vip"]}' in text
    assert "40000, no record of the registry's topic has it" in text
    assert '{"id":3,"tags":[]}, bytes are left over behind the value' in text
    assert "key                  8 bytes" in text
    raw = run_klog("bytes", path, "--offset", "0", "--schemas", "auto", "--raw", "--to", tmp_path / "raw")
    assert raw.exit_code == 16
