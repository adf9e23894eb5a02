"""The lines of `klog dump --output jsonl`, from the documented rules and Python's own json."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from tests.oracles.plain.control import control_type, coordinator_epoch
from tests.oracles.plain.decode import Batch, Damage, Record

Value = str | int | bool | None | list[object] | dict[str, object]


def _text(data: bytes) -> str | None:
    """Return *data* as text, None if it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _named(name: str, data: bytes | None) -> dict[str, Value]:
    if data is None:
        return {name: None}
    text = _text(data)
    return {name + "_base64": base64.b64encode(data).decode()} if text is None else {name: text}


def _paired(data: bytes | None) -> object:
    if data is None:
        return None
    text = _text(data)
    return {"base64": base64.b64encode(data).decode()} if text is None else text


def record_object(batch: Batch, record: Record, topic: str | None, partition: int | None) -> dict[str, Value]:
    """Return the object of *record*, its keys in the documented order."""
    line: dict[str, Value] = {"offset": record.offset, "timestamp": record.timestamp}
    if batch.timestamp_type == "LogAppendTime":
        line["timestamp_type"] = "LogAppendTime"
    if batch.control:
        line |= _control(record)
    else:
        line |= _named("key", record.key) | _named("value", record.value)
        line["headers"] = [[_paired(name), _paired(value)] for name, value in record.headers]
    if topic is not None:
        line |= {"partition": partition, "topic": topic}
    for name, number in (("leader_epoch", batch.leader_epoch), ("producer_id", batch.producer_id),
                         ("producer_epoch", batch.producer_epoch), ("sequence", record.sequence)):  # fmt: skip
        if number != -1:
            line[name] = number
    if batch.transactional:
        line["transactional"] = True
    line["position"] = batch.position
    return line


def _control(record: Record) -> dict[str, Value]:
    kind = control_type(record.key)
    line: dict[str, Value] = {"control": kind}
    if kind in ("ABORT", "COMMIT"):
        line["coordinator_epoch"] = coordinator_epoch(record.value)
    return line


def damage_object(damage: Damage, file: str) -> dict[str, Value]:
    """Return the object of *damage*."""
    line: dict[str, Value] = {"damage": damage.kind, "position": damage.position, "offset": damage.offset}
    if damage.stored is not None:
        line |= {"stored": damage.stored, "computed": damage.computed}
    return line | {"file": file}


def line(content: dict[str, Value]) -> str:
    """Return *content* as one line: no blanks, text as it is but for what JSON must escape."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def record_lines(batch: Batch, topic: str | None = None, partition: int | None = None) -> Iterator[str]:
    """Yield the line of each record of *batch*."""
    for record in batch.records:
        yield line(record_object(batch, record, topic, partition))
