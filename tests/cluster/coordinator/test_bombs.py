"""Records of coordinators that unpack to more than their few bytes: a bound, and a sentence about the omitted ones."""

from __future__ import annotations

import resource
import struct
import tracemalloc
from pathlib import Path

import pytest
from klog.cluster.coordinator.consumer_groups import group_images
from klog.cluster.coordinator.coordinator_records import latest_records
from klog.cluster.coordinator.transactional_ids import transaction_images
from klog.data_dir.partition import Partition
from klog.formats.codec import CodecError
from klog.formats.internal_topics import CONSUMER_OFFSETS, Undecodable, coordinator_record, metadata_record
from klog.formats.sparing_codec import sparing_codecs
from klog.formats.structs.read import RECORD_ELEMENTS

from tests.commands.serve.coordinator_logs import T, write_batches
from tests.oracles.plain import compress
from tests.oracles.plain.encode import Record, batch, unsigned_varint
from tests.support import group_records
from tests.support.bomb_dirs import BOMBS, commits


def partition_of(folder: Path, name: str, codec: str = "zstd") -> Partition:
    return Partition(str(BOMBS[name].write(folder / "data", codec) / BOMBS[name].directory))


def peak_mib() -> int:
    """Return the most memory that this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@pytest.mark.parametrize("codec", compress.CODECS[1:])
def test_a_transaction_of_three_million_topics_is_undecodable(tmp_path: Path, codec: str) -> None:
    """It took 800 MB, from 944 bytes."""
    notes: list[str] = []
    before = peak_mib()
    assert not list(transaction_images([partition_of(tmp_path, "topics of a transaction", codec)], note=notes.append))
    assert peak_mib() - before < 300
    (note,) = notes
    assert note.endswith("1 records that cannot be decoded")


def test_a_batch_that_unpacks_to_too_much_is_named(tmp_path: Path) -> None:
    notes: list[str] = []
    assert not list(group_images([partition_of(tmp_path, "members of a group")], lambda _: None, note=notes.append))
    (note,) = notes
    assert "bad compression: more than 34121152 bytes when decompressed" in note


def test_what_members_embed_counts_with_their_group() -> None:
    """Each part alone would be within the limit."""
    numbers = RECORD_ELEMENTS // 2 - 10
    topic = struct.pack(">i", 1) + struct.pack(">h1si", 1, b"t", numbers) + bytes(4 * numbers)
    assignment = b"\0\0" + topic + b"\xff" * 4
    member = struct.pack(">h", 0) + b"\xff\xff" + struct.pack(">hh", 0, 0) + bytes(8)
    member += struct.pack(">i", 0) + struct.pack(">i", len(assignment)) + assignment
    head = struct.pack(">hh8sihhq", 3, 8, b"consumer", 1, -1, -1, 0)

    def group(members: int) -> object:
        return coordinator_record(
            CONSUMER_OFFSETS, struct.pack(">hh1s", 2, 1, b"g"), head + struct.pack(">i", members) + member * members
        )

    assert not isinstance(group(2), Undecodable)
    assert group(3) == Undecodable(f"it has more than {RECORD_ELEMENTS} elements", is_too_large=True)


def test_tags_that_nobody_knows_are_elements() -> None:
    """A topic of the metadata log that has too many is undecodable, and one with many is read."""

    def topic(tags: int) -> bytes:
        return b"\1\2\0" + unsigned_varint(3) + b"t1" + b"\1" * 16 + unsigned_varint(tags) + b"\x64\0" * tags

    assert not isinstance(metadata_record(topic(RECORD_ELEMENTS)), Undecodable)
    found = metadata_record(topic(RECORD_ELEMENTS + 1))
    assert isinstance(found, Undecodable)
    assert found.is_too_large


def test_keys_beyond_those_that_so_few_bytes_can_have_are_left_out(tmp_path: Path) -> None:
    """A log of a megabyte had 5.9 GB of groups; with sixteen bytes a key it may have all of them."""
    count = 450_000
    log = commits("zstd", 5, count)
    allowed = (1 << 18) + len(log) // 16
    assert allowed < count
    write_batches(tmp_path / "__consumer_offsets-0", log)
    notes: list[str] = []
    latest = latest_records(Partition(str(tmp_path / "__consumer_offsets-0")), note=notes.append)
    assert abs(sum(1 for _ in latest.records()) - allowed) <= 700  # the bytes of a batch count with its first record
    assert latest.left_out == count - sum(1 for _ in latest.records())
    (note,) = notes
    assert note.endswith(f"{latest.left_out} records are left out: too many keys for a log of so few bytes")


def test_a_plain_log_has_as_many_keys_as_it_likes(tmp_path: Path) -> None:
    """Its memory follows its bytes, and there is no message."""
    count = (1 << 18) + 50_000
    write_batches(tmp_path / "__consumer_offsets-0", commits("none", 5, count))
    notes: list[str] = []
    latest = latest_records(Partition(str(tmp_path / "__consumer_offsets-0")), note=notes.append)
    assert sum(1 for _ in latest.records()) == count
    assert not notes


def test_many_batches_may_unpack_to_more_with_each(tmp_path: Path) -> None:
    """Sixty-four times their bytes, and 32 MiB: a log that compresses well is read whole."""
    text = b"".join(struct.pack(">q", at * 2654435761) for at in range(1 << 17))
    packed = compress.zstd_stream(text)
    sparing = sparing_codecs()[4]
    for _ in range(200):
        assert len(sparing(packed, 2)) == len(text)
    bomb = compress.zstd_stream(bytes(20 << 20))
    few = sparing_codecs()[4]
    few(bomb, 2)
    with pytest.raises(CodecError, match="for its few bytes"):
        few(bomb, 2)


def test_a_record_written_again_and_again_needs_no_room(tmp_path: Path) -> None:
    """The keys count that are there, not the records."""
    log = b"".join(
        batch([Record(at, T, struct.pack(">h", 1) + b"k%d" % (at % 7), None if at % 3 else b"v")]) for at in range(5000)
    )
    write_batches(tmp_path / "__consumer_offsets-0", log)
    latest = latest_records(Partition(str(tmp_path / "__consumer_offsets-0")))
    assert latest.left_out == 0
    assert {key[2:] for key, _ in latest.records()} <= {b"k%d" % at for at in range(7)}


def test_groups_are_decoded_one_after_the_other(tmp_path: Path) -> None:
    """All at once, as objects, they took seven times the bytes of their log: 2 GB for one of 300 MB."""
    path = tmp_path / "__consumer_offsets-0"
    path.mkdir()
    pairs = [group_records.commit(f"group-{number:06}", T, each) for number in range(300) for each in range(50)]
    records = [Record(offset, T, key, value) for offset, (key, value) in enumerate(pairs)]
    log = path / f"{0:020}.log"
    log.write_bytes(b"".join(batch(records[at : at + 1000]) for at in range(0, len(records), 1000)))
    tracemalloc.start()
    count = sum(len(group.offsets) for group in group_images([Partition(str(path))], lambda _: None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == len(records)
    assert peak < 6 * log.stat().st_size, (peak, log.stat().st_size)
