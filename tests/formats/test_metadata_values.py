"""Records and batches of the metadata log are written as Kafka writes them: every real one, and any that is made up."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.formats.batch import BatchHead, write_batch
from klog.formats.control import control_record, kraft_control
from klog.formats.damage import Damage
from klog.formats.internal_topics import (
    MetadataRecord,
    Undecodable,
    metadata_record,
    metadata_value,
    new_metadata_record,
)
from klog.formats.record import write_record
from klog.formats.structs.schema import UNKNOWN_TAGS, load, names_by_key
from klog.kernel import crc32c
from klog.log.segment import Batch, Segment

from tests.conftest import CORPORA
from tests.formats import struct_writer

RECORDS = [name for names in names_by_key("metadata").values() for name in names]
VERSIONS = [
    (name, version)
    for name in RECORDS
    for version in range(load("metadata", name).lowest, load("metadata", name).highest + 1)
]


def batches(path: Path) -> Iterator[Batch]:
    for batch in Segment(str(path)).batches():
        if isinstance(batch, Damage):
            assert batch.is_unfinished, batch
            return
        yield batch


def rebuilt(batch: Batch, seen: Counter[tuple[str, int]]) -> bytes:
    """Return the batch made anew from the content of its records."""
    records = b""
    for record in batch.records():
        assert not isinstance(record, Damage)
        key, value = record.key, record.value
        if batch.is_control:
            control = control_record(key, value)
            assert control.type_id is not None
            seen[control.name, control.data["version"]] += 1
            key, value = kraft_control(control.type_id, control.data)
        else:
            found = metadata_record(value)
            assert isinstance(found, MetadataRecord)
            seen[found.name, found.version] += 1
            value = metadata_value(found)
        records += write_record(record.timestamp - batch.base_timestamp, record.offset - batch.base_offset, key, value)
    head = BatchHead(
        batch.base_offset, batch.leader_epoch, batch.attributes, batch.last_offset_delta,
        batch.base_timestamp, batch.max_timestamp, batch.records_count,
    )  # fmt: skip
    return write_batch(head, records, crc32c)


@pytest.mark.corpora
def test_real_metadata_logs_are_written_again_byte_for_byte(image: Callable[[str], Path]) -> None:
    """Logs and snapshots that controllers of 4.3.1 and 3.9.1 wrote."""
    places = [image(f"replicas/{name}.tar.xz") for name in ("quorum", "three-combined-static", "split")]
    files = [path for place in places for path in sorted(place.glob("*/__cluster_metadata-0/*"))]
    files += sorted(CORPORA.glob("v39/data/__cluster_metadata-0/*"))
    files += sorted(CORPORA.glob("modern/data/__cluster_metadata-0/*"))
    seen: Counter[tuple[str, int]] = Counter()
    for path in files:
        if path.suffix in (".log", ".checkpoint") and path.name[0].isdigit():
            content = path.read_bytes()
            for batch in batches(path):
                at = batch.position
                assert rebuilt(batch, seen) == content[at : at + batch.size], (path, batch.base_offset)
    names = {name for name, _ in seen}
    assert {"LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"} <= names
    assert {("PARTITION_CHANGE_RECORD", 1), ("PARTITION_CHANGE_RECORD", 2), ("REGISTER_BROKER_RECORD", 4)} <= {*seen}
    assert sum(seen.values()) > 2000


def known(value: Any) -> Any:
    """Return a struct, or its content, without the tagged fields that no schema has."""
    if isinstance(value, dict):
        return {name: known(one) for name, one in value.items() if name != UNKNOWN_TAGS}
    return [known(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("name", "version"), VERSIONS)
@given(seed=st.integers(0, 2**32))
def test_any_record_is_read_as_it_was_written(name: str, version: int, seed: int) -> None:
    schema = load("metadata", name)
    data = known(struct_writer.made_up_struct(schema.struct, version, random.Random(seed)))
    record = new_metadata_record(name, version, data)
    value = metadata_value(record)
    assert value.endswith(struct_writer.write(schema, data, version))
    again = metadata_record(value)
    assert isinstance(again, MetadataRecord)
    assert (again.type, again.name, again.version) == (record.type, record.name, version)
    assert metadata_value(again) == value
    assert again.data == data or "value" in data  # NaN is not equal to itself


@pytest.mark.parametrize("type_id", [2, 3, 4, 5, 6])
@given(seed=st.integers(0, 2**32))
def test_any_control_record_is_read_as_it_was_written(type_id: int, seed: int) -> None:
    name = ("LeaderChangeMessage", "SnapshotHeaderRecord", "SnapshotFooterRecord", "KRaftVersionRecord", "VotersRecord")
    data = struct_writer.made_up_struct(load("control", name[type_id - 2]).struct, 0, random.Random(seed))
    data = known(data) | {"version": 0}
    key, value = kraft_control(type_id, data)
    found = control_record(key, value)
    assert (found.type_id, found.failure) == (type_id, "")
    assert found.data == data
    assert kraft_control(type_id, found.data) == (key, value)


@given(seed=st.integers(0, 2**32))
def test_a_damaged_value_is_no_record_or_another(seed: int) -> None:
    """Never an exception, whatever the bytes are."""
    chance = random.Random(seed)
    name, version = chance.choice(VERSIONS)
    data = known(struct_writer.made_up_struct(load("metadata", name).struct, version, chance))
    found = metadata_record(struct_writer.damaged(metadata_value(new_metadata_record(name, version, data)), chance))
    assert isinstance(found, MetadataRecord | Undecodable)


@pytest.mark.parametrize("value", [None, b"", b"\0" * 300, bytes(range(256)), "€".encode()])
@pytest.mark.parametrize("key", [None, b"", b"\0\0\0\6"])
def test_a_record_of_a_batch_is_read_as_it_was_written(key: bytes | None, value: bytes | None, tmp_path: Path) -> None:
    """Null is not empty, and lengths take as many bytes as they need."""
    path = tmp_path / f"{7:020d}.log"
    head = BatchHead(7, 3, 0, 1, 1_800_000_000_000, 1_800_000_000_070, 2)
    path.write_bytes(write_batch(head, write_record(0, 0, key, value) + write_record(70, 1, value, key), crc32c))
    (batch,) = batches(path)
    first, second = batch.records()
    assert not isinstance(first, Damage)
    assert not isinstance(second, Damage)
    assert (first.offset, first.timestamp, first.key, first.value) == (7, 1_800_000_000_000, key, value)
    assert (second.offset, second.timestamp, second.key, second.value) == (8, 1_800_000_000_070, value, key)
