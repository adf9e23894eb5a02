"""Values of seven fields with an enum, an optional field and a list of records; and the peers that decode them.

``schemavalues.py make FOLDER COUNT`` writes ``FOLDER/records.jsonl``, which `klog write` turns into a log with a
registry's topic and the topics orders (Avro), messages (Protobuf) and texts (JSON Schema), and ``FOLDER/avro`` and
``FOLDER/protobuf`` with the payloads.  ``schemavalues.py PEER FOLDER COUNT`` decodes the first COUNT of them in memory:
avro (fastavro and json.dumps), table (fastavro and pyarrow), protobuf (upb, MessageToDict and json.dumps).
"""

from __future__ import annotations

import io
import json
import random
import sys
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import fastavro

FRAMES = {"orders": b"\0\0\0\0\7", "messages": b"\0\0\0\0\x08\0", "texts": b"\0\0\0\0\x09"}
PROTO = """syntax = "proto3"; package shop;
message Order {
  int64 id = 1; string customer = 2; int32 number = 3; double total = 4; State state = 5; optional string note = 6;
  repeated Line lines = 7;
  enum State { NEW = 0; PAID = 1; SENT = 2; }
}
message Line { string sku = 1; int32 count = 2; }
"""
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "sku", "type": "string"}, {"name": "count", "type": "int"}],
}
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "number", "type": "int"},
        {"name": "total", "type": "double"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID", "SENT"]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
    ],
}


def orders(count: int) -> Iterator[dict[str, Any]]:
    numbers = random.Random(17)
    for number in range(count):
        lines = [{"sku": f"sku-{numbers.randrange(10_000):05}", "count": numbers.randrange(9)} for _ in range(2)]
        yield {
            "id": number * 1000, "customer": f"customer-{numbers.randrange(10_000)}", "number": numbers.randrange(100),
            "total": numbers.randrange(100_000) / 100, "state": numbers.choice(("NEW", "PAID", "SENT")),
            "note": numbers.choice((None, "gift wrap")), "lines": lines,
        }  # fmt: skip


def message_class() -> Any:
    """Return the class of PROTO's first message, by a descriptor that klog has no part in."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order, line = file.message_type.add(name="Order"), file.message_type.add(name="Line")
    state = order.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID", "SENT")):
        state.value.add(name=name, number=number)
    int32, int64, text = kinds.TYPE_INT32, kinds.TYPE_INT64, kinds.TYPE_STRING
    fields = {"id": int64, "customer": text, "number": int32, "total": kinds.TYPE_DOUBLE}
    for number, (name, kind) in enumerate(fields.items(), 1):
        order.field.add(name=name, number=number, type=kind, label=1)
    order.field.add(name="state", number=5, type=kinds.TYPE_ENUM, type_name=".shop.Order.State", label=1)
    order.oneof_decl.add(name="_note")
    order.field.add(name="note", number=6, type=text, label=1, proto3_optional=True, oneof_index=0)
    order.field.add(name="lines", number=7, type=kinds.TYPE_MESSAGE, type_name=".shop.Line", label=3)
    line.field.add(name="sku", number=1, type=text, label=1)
    line.field.add(name="count", number=2, type=int32, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def encoded(count: int) -> dict[str, list[bytes]]:
    """Return the values of each topic, without framing."""
    schema, message = fastavro.parse_schema(json.loads(json.dumps(ORDER))), message_class()
    made: dict[str, list[bytes]] = {topic: [] for topic in FRAMES}
    for order in orders(count):
        value = io.BytesIO()
        fastavro.schemaless_writer(value, schema, order)
        made["orders"].append(value.getvalue())
        known = {name: one for name, one in order.items() if one is not None}
        known["state"] = ("NEW", "PAID", "SENT").index(order["state"])
        made["messages"].append(message(**known).SerializeToString())
        made["texts"].append(json.dumps(order).encode())
    return made


def make(folder: str, count: int) -> None:
    made = encoded(count)
    schemas = {"orders": ("AVRO", json.dumps(ORDER)), "messages": ("PROTOBUF", PROTO), "texts": ("JSON", "{}")}
    with open(f"{folder}/records.jsonl", "w", encoding="ascii") as records:
        for topic, (kind, text) in schemas.items():
            key = {"keytype": "SCHEMA", "subject": f"{topic}-value", "version": 1, "magic": 1}
            stored = {"subject": f"{topic}-value", "version": 1, "id": FRAMES[topic][4], "schemaType": kind}
            stored |= {"schema": text, "deleted": False}
            line = {"topic": "_schemas", "key": json.dumps(key), "value": json.dumps(stored)}
            records.write(json.dumps(line) + "\n")
        for topic, values in made.items():
            for number, value in enumerate(values):
                text = b64encode(FRAMES[topic] + value).decode()
                records.write(f'{{"topic":"{topic}","partition":0,"key":"{number}","value_base64":"{text}"}}\n')
    for name, topic in (("avro", "orders"), ("protobuf", "messages")):
        with open(f"{folder}/{name}", "wb") as payloads:
            payloads.writelines(bytes([len(value)]) + value for value in made[topic])


def payloads_of(folder: str, name: str, count: int) -> list[bytes]:
    with open(f"{folder}/{name}", "rb") as file:
        content, at, payloads = file.read(), 0, []
    while at < len(content):
        payloads.append(content[at + 1 : at + 1 + content[at]])
        at += 1 + content[at]
    return payloads[:count]


def avro(folder: str, count: int) -> None:
    schema = fastavro.parse_schema(ORDER)
    for payload in payloads_of(folder, "avro", count):
        json.dumps(fastavro.schemaless_reader(io.BytesIO(payload), schema))


def table(folder: str, count: int) -> None:
    import pyarrow

    schema, payloads = fastavro.parse_schema(ORDER), payloads_of(folder, "avro", count)
    pyarrow.Table.from_pylist([fastavro.schemaless_reader(io.BytesIO(payload), schema) for payload in payloads])


def protobuf(folder: str, count: int) -> None:
    from google.protobuf.json_format import MessageToDict

    message = message_class()
    for payload in payloads_of(folder, "protobuf", count):
        json.dumps(MessageToDict(message.FromString(payload)))


if __name__ == "__main__":
    ways = {"make": make, "avro": avro, "table": table, "protobuf": protobuf}
    ways[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
