"""A log dir with a registry of a few schemas, and a topic `orders`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.oracles.plain.encode import Record, batch
from tests.schemas.random_avro import zigzag


def make(folder: Path, schemas: list[tuple[str, int, int, str]], records: list[Record], kind: str = "AVRO") -> None:
    """Make a log dir with a registry's topic, and a topic `orders`."""
    stored = []
    for subject, version, number, text in schemas:
        key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
        value = {"subject": subject, "version": version, "id": number, "schema": text, "schemaType": kind}
        stored.append(Record(len(stored), key=json.dumps(key).encode(), value=json.dumps(value).encode()))
    for name, content in (("_schemas-0", stored), ("orders-0", records)):
        (folder / name).mkdir()
        (folder / name / f"{0:020}.log").write_bytes(batch(content))


ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "tags", "type": {"type": "array", "items": "string"}}],
    }
)


def order(number: int, *tags: str) -> bytes:
    items = b"".join(zigzag(len(tag)) + tag.encode() for tag in tags)
    blocks = zigzag(len(tags)) + items if tags else b""
    return b"\0\0\0\0\7" + zigzag(number) + blocks + b"\0"
