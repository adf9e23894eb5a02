"""Values of seven fields in Avro, with an enum, a union and a list of records; and the peer that decodes them.

``schemavalues.py make FOLDER COUNT`` writes ``FOLDER/records.jsonl``, which `klog write` turns into a log with a
registry's topic, and ``FOLDER/payloads``.  ``schemavalues.py avro FOLDER COUNT`` reads the payloads and makes JSON of
the first COUNT: fastavro and json.dumps, in memory.
"""

from __future__ import annotations

import io
import json
import random
import sys
from base64 import b64encode

import fastavro

FRAME = b"\0\0\0\0\7"
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


def values(count: int) -> list[bytes]:
    numbers, schema, made = random.Random(17), fastavro.parse_schema(json.loads(json.dumps(ORDER))), []
    for number in range(count):
        lines = [{"sku": f"sku-{numbers.randrange(10_000):05}", "count": numbers.randrange(9)} for _ in range(2)]
        order = {
            "id": number * 1000, "customer": f"customer-{numbers.randrange(10_000)}", "number": numbers.randrange(100),
            "total": numbers.randrange(100_000) / 100, "state": numbers.choice(("NEW", "PAID", "SENT")),
            "note": numbers.choice((None, "gift wrap")), "lines": lines,
        }  # fmt: skip
        value = io.BytesIO()
        fastavro.schemaless_writer(value, schema, order)
        made.append(value.getvalue())
    return made


def make(folder: str, count: int) -> None:
    made = values(count)
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1}
    stored = {"subject": "orders-value", "version": 1, "id": 7, "schema": json.dumps(ORDER), "deleted": False}
    with open(f"{folder}/records.jsonl", "w", encoding="ascii") as records:
        records.write(json.dumps({"topic": "_schemas", "key": json.dumps(key), "value": json.dumps(stored)}) + "\n")
        for number, value in enumerate(made):
            text = b64encode(FRAME + value).decode()
            records.write(f'{{"topic":"orders","partition":0,"key":"{number}","value_base64":"{text}"}}\n')
    with open(f"{folder}/payloads", "wb") as payloads:
        payloads.writelines(bytes([len(value)]) + value for value in made)


def avro(folder: str, count: int) -> None:
    with open(f"{folder}/payloads", "rb") as file:
        content, at, payloads = file.read(), 0, []
    while at < len(content):
        payloads.append(content[at + 1 : at + 1 + content[at]])
        at += 1 + content[at]
    schema = fastavro.parse_schema(ORDER)
    for payload in payloads[:count]:
        json.dumps(fastavro.schemaless_reader(io.BytesIO(payload), schema))


if __name__ == "__main__":
    {"make": make, "avro": avro}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
