"""Keys and values of whole topics: which schema an id stands for, and what each value is by it."""

from __future__ import annotations

import copy
import gc
import json
from typing import Any
from weakref import WeakSet

import pytest
from klog.base.errors import UnsupportedError
from klog.schemas import side_decoder
from klog.schemas.decoded import Decoded
from klog.schemas.json_values import json_text
from klog.schemas.registry import Registry
from klog.schemas.schema_version import LIVE, SchemaVersion, schema_guid
from klog.schemas.side_decoder import SchemaDecoders, make_decoder

from tests.schemas.corpus import REGISTRIES, Image, registry, sides
from tests.schemas.test_framing import stored_headers
from tests.schemas.test_registry import gone, replayed, schema


@pytest.mark.corpora
@pytest.mark.parametrize("canonical", [False, True], ids=["plain", "canonical"])
@pytest.mark.parametrize("name", REGISTRIES)
def test_every_key_and_value_of_the_corpora_is_as_its_truth_says(image: Image, name: str, canonical: bool) -> None:
    """Avro, Protobuf and JSON Schema; values, errors, ids, GUIDs, messages, subjects, versions and states."""
    decoders, headers = SchemaDecoders([registry(image, name)], canonical), stored_headers(image, name)
    judged = 0
    for one in sides(name):
        place = one.topic, one.partition, one.offset
        found, right = decoders.side(one.topic, one.side).decode(one.raw, headers[place]), one.right
        assert (found is not None) == right["framed"], one
        if found is None:
            continue
        judged += 1
        result = found.decoded
        assert (result.error or ("trailing-bytes" if result.trailing else None)) == right["error"], one
        assert (found.schema_id, found.guid) == (right["id"], right["guid"]), one
        if found.row is not None:
            named = (found.row.subject, found.row.version, found.row.type, found.row.state)
            assert named == tuple(right[member] for member in ("subject", "version", "type", "state")), one
        if result.error is None:
            assert json.loads(json_text(result.value)) == one.form(canonical), one
            assert result.message == right.get("message"), one
    assert judged > 250


def record(**fields: str) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": k} for n, k in fields.items()]})


def test_an_id_that_two_leaders_handed_out_decodes_for_both_topics() -> None:
    """No registry can: it keeps one of the two."""
    found = replayed(schema("a-value", 1, 7, record(s="string")), schema("b-value", 1, 7, record(d="double")))
    decoders = SchemaDecoders([found])
    text, number = b"\0\0\0\0\7\x02x", b"\0\0\0\0\7" + bytes(8)
    for topic in ("a", "b", "c"):
        values = decoders.side(topic, "value")
        assert [one.decoded.value for one in (values.decode(text, ()), values.decode(number, ())) if one] == [
            {"s": "x"}, {"d": 0.0}
        ]  # fmt: skip
    # a value that fits neither: bytes left over are better than none
    left = decoders.side("b", "value").decode(text + b"x", ())
    assert left is not None
    assert left.decoded == Decoded({"s": "x"}, trailing=True)


def test_schemas_that_cannot_be_used_are_errors_of_their_values() -> None:
    """The bytes stay, and the run goes on."""
    lost = [{"name": "B", "subject": "b", "version": 1}]
    found = replayed(
        schema("a", 1, 1, '{"type":'), schema("a", 2, 2, '"B"', references=lost), schema("a", 3, 3, schemaType="XML"),
        schema("a", 4, 4), gone("a", 4), schema("p", 1, 5, "message", schemaType="PROTOBUF"),
    )  # fmt: skip
    values = SchemaDecoders([found]).side("a", "value")

    def error(schema_id: int) -> Any:
        one = values.decode(b"\0" + schema_id.to_bytes(4, "big") + b"\2x", ())
        return one and (one.decoded.error or one.decoded.value)

    assert [error(number) for number in range(1, 7)] == ["schema-broken"] * 3 + ["x", "schema-broken", "unknown-id"]
    assert values.decode(b"text", ()) is None
    assert values.decode(b"x", [(b"__value_schema_id", b"?")]).decoded.error == "bad-header"  # type: ignore[union-attr]


def test_many_schemas_and_ids_do_not_pile_up() -> None:
    """Random bytes name millions of ids, and a registry has tens of thousands of schemas."""
    found = replayed(*(schema(f"s{i}", 1, i, f'"{("int", "long", "string")[i % 3]}"') for i in range(1, 6000)))
    decoders = SchemaDecoders([found])
    values = decoders.side("a", "value")
    for number in range(1, 50_000):
        values.decode(b"\0" + number.to_bytes(4, "big") + b"\0", ())
    assert len(values._known) <= 2000
    assert len(decoders._decoders) <= 2000


def test_without_the_extra_the_command_to_run_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most installations have neither fastavro nor protobuf."""
    import sys

    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    monkeypatch.delitem(sys.modules, "klog.schemas.protobuf", raising=False)
    found = replayed(schema("a", 1, 1), schema("p", 1, 2, 'syntax = "proto3"; message M {}', schemaType="PROTOBUF"))
    for row in found.rows:
        with pytest.raises(UnsupportedError, match=r"pip install 'klog\[schemas\]'"):
            make_decoder(row, found)


def test_decoders_are_kept_as_far_as_their_memory_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of schemas would take hundreds of megabytes; topics that hold them give them back, too."""
    monkeypatch.setattr(side_decoder, "_MOST_BYTES", 1 << 20)
    rows = [_large(number) for number in range(1, 201)]
    decoders = SchemaDecoders([Registry("confluent", "", rows)])
    sides = [decoders.side(topic, "value") for topic in ("a", "b")]
    alive: WeakSet[object] = WeakSet()
    most = 0
    gc.collect()
    gc.freeze()  # what other tests have left: each of two hundred collections would look through it
    for row in rows:
        for side in sides:
            found = side.decode(b"\0" + row.id.to_bytes(4, "big") + b"\2" * 20, ())
            assert found is not None
            assert found.decoded.value == {f"f{i}": 1 for i in range(20)}
        alive.update(one for one in decoders._decoders.values() if one is not None)
        gc.collect()
        most = max(most, len(alive))
    size = 8 << 10
    assert 10 < most <= (1 << 20) // (size + 32 * len(rows[0].text))
    assert sides[0].decode(b"\0" + rows[0].id.to_bytes(4, "big") + b"\2" * 20, ()) is not None


def _large(number: int) -> SchemaVersion:
    fields = [{"name": f"f{i}", "type": "int", "doc": "d" * 20} for i in range(20)]
    text = json.dumps({"type": "record", "name": f"R{number}", "fields": fields})
    return SchemaVersion(
        ".", f"s{number}", 1, number, schema_guid(text, ()), "AVRO", LIVE, (), text, number, 0
    )  # fmt: skip


def test_decoders_are_sent_to_other_processes() -> None:
    """Spark's workers get them, with locks and parsed schemas left behind."""
    row = _large(7)
    decoders = SchemaDecoders([Registry("confluent", "", [row])], canonical=True, context=".eu")
    value = b"\0\0\0\0\7" + b"\2" * 20
    found = decoders.side("a", "value").decode(value, ())
    sent = copy.deepcopy(decoders)
    assert sent.context == ".eu"
    assert sent.side("a", "value").decode(value, ()) == found
    assert found is not None
    assert found.decoded.error is None
