"""Keys and values of the corpora, each by the schema that its id means for its topic."""

from __future__ import annotations

from typing import Any

import klog
import pytest
from klog.schemas.decoded import Decoded
from klog.schemas.framing import Framed
from klog.schemas.registry import Registry
from klog.schemas.schema_version import SchemaReference, SchemaVersion
from klog.schemas.side_decoder import DecodedSide, SchemaDecoder

from tests.schemas.corpus import REGISTRIES, Image, data, registry, sides

TYPES = {None, "PROTOBUF"}
PROTO = 'syntax = "proto3"; message {} {{ int32 {} = 1; }}'


@pytest.mark.corpora
@pytest.mark.parametrize("canonical", [False, True], ids=["plain", "canonical"])
@pytest.mark.parametrize("name", REGISTRIES)
def test_every_key_and_value_of_the_corpora_is_as_its_truth_says(name: str, canonical: bool, image: Image) -> None:
    """Framing, schema, value and error, from the data dir with the broker's own records and headers."""
    decoder = SchemaDecoder(registry(image, name), canonical)
    records: dict[Any, klog.Record] = {}
    for log in data(image, name).glob("*-*/*.log"):
        topic, _, number = log.parent.name.rpartition("-")
        for batch in klog.Segment(str(log)).batches():
            assert isinstance(batch, klog.Batch)
            records.update(((topic, int(number), one.offset), one) for one in batch.records())
    seen = 0
    for side in sides(name):
        right, record = side.right, records[side.topic, side.partition, side.offset]
        if right.get("type") not in TYPES:
            continue
        content = record.key if side.side == "key" else record.value
        found = decoder.side(side.topic, side.side).decode(content, record.headers)
        seen += 1
        if not right["framed"]:
            assert found is None
            continue
        assert found is not None
        assert found.decoded == wanted(right, canonical)
        row = found.row
        assert (row and (row.subject, row.version, row.state)) == (
            None if right["id"] is None or "subject" not in right
            else (right["subject"], right["version"], right["state"])
        )  # fmt: skip
    assert seen > 200


def wanted(right: dict[str, Any], canonical: bool) -> Decoded:
    error = None if right["error"] == "trailing-bytes" else right["error"]
    value = right.get("canonical", right.get("plain")) if canonical else right.get("plain")
    return Decoded(value, right.get("message"), error, bool(right["trailing"]))


def row(subject: str, text: str, **more: Any) -> SchemaVersion:
    given = {"context": ".", "version": 1, "id": 7, "guid": f"{hash(text) % (1 << 128):032x}", "type": "PROTOBUF"}
    given |= {"state": "live", "references": (), "offset": 0, "timestamp": 0}
    return SchemaVersion(**given | {"subject": subject, "text": text} | more)


def decode(rows: list[SchemaVersion], framed: Framed, topic: str = "t", context: str | None = None) -> DecodedSide:
    return SchemaDecoder(Registry("confluent", "x", rows), context=context).side(topic, "value").decode_framed(framed)


def test_the_subject_of_the_topic_comes_first() -> None:
    """Two leaders handed out one id: each topic's values decode by its own schema."""
    rows = [row("t-value", PROTO.format("T", "t")), row("u-value", PROTO.format("U", "u"))]
    for topic in ("t", "u"):
        found = decode(rows, Framed(7, b"\0\x08\5"), topic)
        assert found.decoded == Decoded({topic: 5}, topic.upper())
        assert found.row == rows["tu".index(topic)]


def test_a_candidate_that_does_not_decode_gives_way_to_the_next() -> None:
    """The first error is the answer only if no candidate decodes."""
    rows = [row("a", PROTO.format("A", "a")), row("b", PROTO.format("A", "a") + "message B { }", offset=1)]
    assert decode(rows, Framed(7, b"\2\2")).row == rows[1]
    assert decode(rows, Framed(7, b"\2\4")) == DecodedSide(7, rows[0], Decoded(None, None, "bad-message-index"))
    rows[0] = rows[0]._replace(text="message {")
    assert decode(rows, Framed(7, b"\0")).row == rows[1]
    assert decode(rows[:1], Framed(7, b"\0")) == DecodedSide(7, rows[0], Decoded(None, None, "schema-broken"))


def test_the_context_that_is_asked_for_comes_first() -> None:
    rows = [row("t-value", PROTO.format("T", "t")), row(":.eu:x", PROTO.format("E", "e"), context=".eu")]
    assert decode(rows, Framed(7, b"\0")).decoded.message == "T"
    assert decode(rows, Framed(7, b"\0"), context=".eu").decoded.message == "E"


def test_ids_and_headers_without_a_schema() -> None:
    assert decode([], Framed(8, b"")) == DecodedSide(8, None, Decoded(None, None, "unknown-id"))
    assert decode([], Framed(None, b"", error="bad-header")).decoded == Decoded(None, None, "bad-header")
    strange = row("t-value", "?", type="XML")
    assert decode([strange], Framed(7, b"")).decoded.error == "schema-broken"


def test_the_reason_why_a_schema_is_broken() -> None:
    one = row("t-value", "message {")
    gone = row("t-value", "message A {}", references=(SchemaReference("x.proto", "x", 3),))
    decoder = SchemaDecoder(Registry("confluent", "x", [one, gone]))
    assert decoder.why_broken(one) == "line 1: a name expected before '{'"
    assert decoder.why_broken(gone) == "no x version 3"
    assert decoder.why_broken(row("t", "message A {}")) is None


def test_decoders_that_are_kept_have_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of 10 000 schemas is not in memory twice; each id still decodes."""
    rows = [row("t-value", PROTO.format(f"M{at}", "a"), id=at, version=at) for at in range(1, 60)]
    monkeypatch.setattr("klog.schemas.side_decoder._MOST_TEXT", 10 * len(rows[0].text))
    decoder = SchemaDecoder(Registry("confluent", "x", rows))
    values = decoder.side("t", "value")
    for _ in range(2):
        for at in range(1, 60):
            assert values.decode(b"\0" + at.to_bytes(4, "big") + b"\0", ()) == DecodedSide(
                at, rows[at - 1], Decoded({"a": 0}, f"M{at}")
            )  # fmt: skip
            assert len(decoder._decoders) <= 11
    assert len(values._known) <= 11
