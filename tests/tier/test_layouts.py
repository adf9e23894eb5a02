"""The objects that real brokers stored are plain again: the bytes of segments, and the records that consumers got."""

from __future__ import annotations

import base64
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.errors import UsageError
from klog.tier.local_layout import LocalLayout
from klog.tier.stores import MissingObjectError, StoredObject
from klog.tier.tier import LAYOUTS, Tier, TierListing, open_tier
from klog.tier.tier_layout import PARTS, BadObjectError, EncryptedObjectError

from tests.conftest import CORPORA
from tests.oracles.plain import decode
from tests.support.tiers import IMAGES, Situation, situation

KEY = {"key1": str(CORPORA / "tiered/aiven-encrypted/private.pem")}


def opened(found: Situation) -> tuple[Tier, TierListing]:
    tier = open_tier(str(found.tier), key_files=KEY if "encrypted" in found.name else None)
    return tier, tier.list_segments()


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), IMAGES)
def test_every_segment_has_the_size_that_its_metadata_say(image: Callable[[str], Path], name: str, moment: str) -> None:
    """Damaged ones aside, whose damages the truth lists; the plain bytes are whole batches of the segment's offsets."""
    found = situation(image, name, moment)
    tier, listing = opened(found)
    assert tier.layout is not None
    assert tier.layout.name == ("aiven" if "aiven" in name else "local")
    read = 0
    for entry in found.truth["segments"][moment]:
        segment = listing.segment(entry["topic_id"], entry["partition"], entry["segment_id"])
        if name == "damaged" or entry["state"] != "COPY_SEGMENT_FINISHED":
            continue
        assert segment is not None
        reader = tier.reader(segment)
        log = reader.log()
        data = log.read(0, log.size + 1)
        assert (log.size, len(data)) == (entry["size"], entry["size"])
        batches = list(decode.scan(data))
        assert all(isinstance(one, decode.Batch) and one.fault is None for one in batches)
        offsets = [one.base_offset for one in batches if isinstance(one, decode.Batch)]
        assert all(entry["start_offset"] <= offset <= entry["end_offset"] for offset in offsets)
        epochs = reader.read("leader_epoch_checkpoint")
        assert epochs is not None
        assert epochs.startswith(b"0\n")
        assert {part: reader.read(part) for part in PARTS[1:]}["index"] is not None
        read += 1
    assert read or name == "damaged"


def data_records(batch: decode.Batch | decode.Damage) -> tuple[decode.Record, ...]:
    assert isinstance(batch, decode.Batch)
    return () if batch.control else batch.records


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["aiven-plain", "aiven-zstd", "aiven-encrypted", "aiven391", "lost-cluster-aiven"])
def test_chunked_logs_have_the_records_that_consumers_got(image: Callable[[str], Path], name: str) -> None:
    found = situation(image, name)
    tier, listing = opened(found)
    ids = found.truth["topics"]
    compared = 0
    for partition, answers in found.clients.items():
        topic, _, number = partition.rpartition("-")
        got = {one[0]: one for one in answers["uncommitted"]}
        segments = listing.partitions[ids[topic], int(number)].segments if got else {}
        for segment in segments.values():
            log = tier.reader(segment).log()
            for record in (each for batch in decode.scan(log.read(0, log.size)) for each in data_records(batch)):
                if record.offset >= answers["offsets"]["earliest"]:
                    key, value = (None if text is None else text.decode() for text in (record.key, record.value))
                    assert [record.timestamp, key, value] == got[record.offset][1:4]
                    compared += 1
    assert compared > 300


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["aiven-plain", "aiven-zstd", "aiven-encrypted", "house"])
def test_any_range_of_a_log_is_that_range(image: Callable[[str], Path], name: str) -> None:
    """Ranges within a chunk, over several, across the end, and behind it."""
    tier, listing = opened(situation(image, name))
    dice = random.Random(7)
    for partition in listing.partitions.values():
        for segment in partition.segments.values():
            log = tier.reader(segment).log()
            whole = log.read(0, log.size)
            for _ in range(20):
                start, size = dice.randint(0, log.size + 5), dice.randint(0, 2500)
                assert log.read(start, size) == whole[start : start + size]
                room = bytearray(size)
                count = log.read_into(start, memoryview(room))
                assert room[:count] == whole[start : start + size]


@pytest.mark.corpora
def test_objects_of_the_local_layout_are_the_files_of_the_segment(image: Callable[[str], Path]) -> None:
    """The topic `kept` has all its segments in both places."""
    found = situation(image, "house")
    tier, listing = opened(found)
    (partition,) = [one for one in listing.partitions.values() if one.topic == "kept"]
    for segment in partition.segments.values():
        reader, local = tier.reader(segment), found.leader / "kept-0"
        stem = f"{segment.start_offset:020}"
        assert reader.log().read(0, 1 << 20) == (local / f"{stem}.log").read_bytes()
        assert reader.read("index") == (local / f"{stem}.index").read_bytes()
        assert reader.read("timeindex") == (local / f"{stem}.timeindex").read_bytes()
    assert len(partition.segments) > 5


@pytest.mark.corpora
def test_encrypted_objects_need_their_key(image: Callable[[str], Path], tmp_path: Path) -> None:
    """Without it the sizes are known; a wrong one is said, not taken for damage alone."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    place = situation(image, "aiven-encrypted").tier
    other = tmp_path / "other.pem"
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL)
    other.write_bytes(key.private_bytes(*encoding, serialization.NoEncryption()))
    for files, error, text in (
        ({}, EncryptedObjectError, "--remote-keys key1=FILE"),
        ({"key2": str(other)}, EncryptedObjectError, "--remote-keys key1=FILE"),
        ({"key1": str(other)}, BadObjectError, "wrong key or damaged"),
    ):
        tier = open_tier(str(place), key_files=files)
        segment = next(one for part in tier.list_segments().partitions.values() for one in part.segments.values())
        log = tier.reader(segment).log()
        assert log.size > 0
        with pytest.raises(error, match=text):
            log.read(0, 1)
        with pytest.raises(OSError, match=text):
            log.read_into(0, memoryview(bytearray(1)))
        with pytest.raises(error, match=text):
            tier.reader(segment).read("timeindex")


@pytest.mark.parametrize(("content", "text"), [(b"nothing", "no RSA private key"), (b"", "no RSA private key")])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(UsageError, match=text):
        open_tier(str(tmp_path), key_files={"k": str(tmp_path / "key")})
    with pytest.raises(UsageError, match="cannot open"):
        open_tier(str(tmp_path), key_files={"k": str(tmp_path / "absent")})


# names

ID, OTHER = (base64.urlsafe_b64encode(bytes([number]) * 16).decode().rstrip("=") for number in (1, 2))
STEM = f"{12:020}-{OTHER}"
LOCAL, AIVEN = f"a-b-3-{ID}/{STEM}", f"a-b-{ID}/3/{STEM}"


def tree(folder: Path, *keys: str) -> Path:
    for key in keys:
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(b"x")
    return folder


@pytest.mark.parametrize(
    ("key", "layout"),
    [
        *((f"kafka-tiered-storage/{LOCAL}.log", "local"), (f"{LOCAL}.snapshot", "local")),
        *((f"{AIVEN}.rsm-manifest", "aiven"), (f"some/prefix/{AIVEN}.log", "aiven"), (f"pre-{AIVEN}.indexes", "aiven")),
    ],
)
def test_the_layout_is_recognised_by_a_key(tmp_path: Path, key: str, layout: str) -> None:
    tier = open_tier(str(tree(tmp_path / "t", key, "README")))
    assert tier.layout is not None
    assert tier.layout.name == layout
    listing = tier.list_segments()
    (segment,) = listing.partitions[ID, 3].segments.values()
    assert (segment.segment_id, segment.start_offset, list(segment.keys.values())) == (OTHER, 12, [key])
    assert (listing.objects, listing.foreign, listing.foreign_count) == (2, ["README"], 1)


def test_a_place_with_other_things_is_no_tier(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no tier: it has 'x\.log'; expected LocalTieredStorage"):
        open_tier(str(tree(tmp_path, "x.log")))
    assert {name: open_tier(str(tmp_path), name).list_segments().foreign_count for name in LAYOUTS} == {
        "local": 1,
        "aiven": 1,
    }


def test_an_empty_place_is_a_tier_without_objects(tmp_path: Path) -> None:
    (tmp_path / "kafka-tiered-storage").mkdir()
    tier = open_tier(str(tmp_path))
    assert (tier.layout, vars(tier.list_segments())) == (None, vars(TierListing()))


@pytest.mark.parametrize(
    "key",
    [
        *(
            f"{LOCAL}.logs",
            f"{LOCAL}",
            f"a-b-3-{ID}/12-{OTHER}.log",
            f"a-b-3-{ID}x/{STEM}.log",
            f"a b-3-{ID}/{STEM}.log",
        ),
        *(
            f"a-b-3-{ID}/x/{STEM}.log",
            f"x/a-b-3-{ID}/{STEM}.log",
            f"a-b-x-{ID}/{STEM}.log",
            f"a-b-3-{ID}/{STEM}.indexes",
        ),
        f"{'t' * 250}/{STEM}.log",
    ],
)
def test_other_names_are_foreign(tmp_path: Path, key: str) -> None:
    listing = open_tier(str(tree(tmp_path, f"{LOCAL}.log", key))).list_segments()
    assert listing.foreign == [key]


def test_a_second_object_of_one_part_is_foreign(tmp_path: Path) -> None:
    """Two starts of one segment id, or the part below another prefix: the first counts, and the other is named."""
    again = f"a-b-3-{ID}/{13:020}-{OTHER}.index"
    listing = open_tier(str(tree(tmp_path, f"{LOCAL}.log", again)), "local").list_segments()
    assert (listing.objects, len(listing.foreign)) == (2, 1)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    tier = open_tier(str(tree(tmp_path, f"{LOCAL}.log")))
    (segment,) = tier.list_segments().partitions[ID, 3].segments.values()
    reader = tier.reader(segment)
    assert reader.read("txnindex") is None
    for part in ("index", "timeindex", "leader_epoch_checkpoint", "snapshot"):
        with pytest.raises(MissingObjectError, match=part):
            reader.read(part)


def test_parts_of_a_segment_may_have_two_prefixes(tmp_path: Path) -> None:
    """The setting key.prefix was changed: each part has the key that it was found under."""
    keys = {"log": f"old/{AIVEN}.log", "indexes": f"old/{AIVEN}.indexes", "rsm-manifest": f"new/{AIVEN}.rsm-manifest"}
    listing = open_tier(str(tree(tmp_path, *keys.values()))).list_segments()
    (segment,) = listing.partitions[ID, 3].segments.values()
    assert segment.keys == keys
    assert (listing.foreign, set(segment.sizes)) == ([], set(keys))


def test_a_listing_of_many_objects_is_small() -> None:
    """100 000 segments of six objects take less than 120 MB, keys included."""
    layout, listing, segments = LocalLayout(), TierListing(), 3000
    tracemalloc.start()
    try:
        for number in range(segments):
            segment_id = base64.urlsafe_b64encode(number.to_bytes(16, "big")).decode().rstrip("=")
            for part in PARTS:
                key = f"kafka-tiered-storage/orders-{number % 10}-{ID}/{number:020}-{segment_id}.{part}"
                listing.add(StoredObject(key, number * 1000, number), layout.parse(key))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert listing.objects == 6 * segments
    assert used / segments < 1200
