"""Chunked logs and their manifests: from the tests' own writer of the format, and damaged in every way."""

from __future__ import annotations

import base64
import json
import random
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from klog.base.errors import KlogError
from klog.tier.aiven_manifest import ManifestError, read_manifest
from klog.tier.aiven_reader import ChunkedLog
from klog.tier.tier import Tier, TierSegment, open_tier
from klog.tier.tier_layout import BadObjectError

from tests.support.aiven_writer import Objects, segment
from tests.tier.test_layouts import ID, OTHER

PARTS = {"index": b"i" * 16, "timeindex": b"t" * 24, "snapshot": b"s" * 40, "leader_epoch_checkpoint": b"0\n0\n"}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A private key's file, and its modulus."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoding = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path_factory.mktemp("keys") / "key.pem"
    path.write_bytes(made.private_bytes(*encoding))
    return path, made.public_key().public_numbers().n


def stored(folder: Path, objects: Objects, keys: dict[str, str] | None = None) -> tuple[Tier, TierSegment]:
    """Put a segment's objects into a tier; return it, and the segment."""
    place = folder / f"t-{ID}" / "0"
    place.mkdir(parents=True, exist_ok=True)
    for kind, content in zip(("log", "indexes", "rsm-manifest"), objects, strict=True):
        (place / f"{0:020}-{OTHER}.{kind}").write_bytes(content)
    tier = open_tier(str(folder), key_files=keys)
    return tier, tier.list_segments().partitions[ID, 0].segments[OTHER]


def text_of(size: int) -> bytes:
    """Bytes that compress a little, and are different everywhere."""
    dice = random.Random(size)
    return b"".join(dice.randbytes(20) + b"abcdefgh" * 3 for _ in range(size // 44 + 1))[:size]


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 5500, 300_000])
def test_a_chunked_log_is_the_log(
    tmp_path: Path, key: tuple[Path, int], size: int, encrypted: bool, compressed: bool
) -> None:
    log = text_of(size)
    objects = segment(log, PARTS, 1000, compressed=compressed, modulus=key[1] if encrypted else None)
    tier, found = stored(tmp_path, objects, {"key1": str(key[0])})
    reader = tier.reader(found)
    opened = reader.log()
    assert (opened.size, opened.read(0, size + 10)) == (size, log)
    dice = random.Random(1)
    for _ in range(30):
        start = dice.randint(0, size)
        assert opened.read(start, 2200) == log[start : start + 2200]
    assert {part: reader.read(part) for part in PARTS} == PARTS
    assert reader.read("txnindex") is None


def test_segments_of_one_partition_may_differ(tmp_path: Path, key: tuple[Path, int]) -> None:
    """The plugin decides about compression segment by segment."""
    log = text_of(5000)
    for compressed, modulus in ((True, None), (False, key[1]), (False, None), (True, key[1])):
        tier, found = stored(
            tmp_path, segment(log, PARTS, 700, compressed=compressed, modulus=modulus), {"key1": str(key[0])}
        )
        assert tier.reader(found).log().read(0, 5000) == log


MEMORY = """
import resource, sys
from klog.tier.tier import open_tier
tier = open_tier(sys.argv[1])
found = next(iter(next(iter(tier.list_segments().partitions.values())).segments.values()))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    log, done = tier.reader(found).log(), 0
    room = memoryview(bytearray(1 << 16))
    while count := log.read_into(done, room):
        done += count
    print("read", done, end=" ")
except Exception as error:
    print(type(error).__name__, end=" ")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def memory_of(folder: Path) -> tuple[str, int]:
    """Read the one log of a tier in another process; return what became of it, and the KiB that this took."""
    ran = subprocess.run([sys.executable, "-c", MEMORY, str(folder)], capture_output=True, text=True, check=True)
    result, _, grown = ran.stdout.strip().rpartition(" ")
    return result, int(grown)


def test_a_large_log_takes_a_chunk_of_memory(tmp_path: Path) -> None:
    """64 MiB in chunks of 4 MiB, read from front to end."""
    log = text_of(1 << 22) * 16
    stored(tmp_path, segment(log, PARTS, 4 << 20, compressed=True))
    result, grown = memory_of(tmp_path)
    assert result == f"read {64 << 20}"
    assert grown < (20 << 10)


def bomb(claimed: int) -> bytes:
    """A zstd frame of a few KiB that claims *claimed* bytes."""
    frame = zstandard.compress(bytes(1 << 24))
    assert zstandard.frame_content_size(frame) == 1 << 24
    head = frame[:4] + bytes([frame[4] | 0xC0]) + struct.pack("<Q", claimed)
    return head + frame[9:]


def endless() -> bytes:
    """A frame that does not say its size, of 256 MiB."""
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(256)), packer.flush()])


@pytest.mark.parametrize("chunk", [bomb(100 << 30), endless(), b"(\xb5/\xfd", b"no frame", b""])
def test_a_chunk_that_claims_too_much_takes_no_memory(tmp_path: Path, chunk: bytes) -> None:
    log = text_of(3000)
    objects = segment(log, PARTS, 1000, compressed=True)
    manifest = json.loads(objects.manifest)
    packed = base64.b64encode(zstandard.compress(struct.pack(">iibHHi", 3, 0, 2, 10, 10, len(chunk)))).decode()
    manifest["chunkIndex"] = {
        "type": "variable",
        "originalChunkSize": 1000,
        "originalFileSize": 2001,
        "transformedChunks": packed,
    }
    first = zstandard.compress(b"x" * 1000)
    packed = base64.b64encode(zstandard.compress(struct.pack(">iibHHi", 3, 0, 2, len(first), len(first), len(chunk))))
    manifest["chunkIndex"]["transformedChunks"] = packed.decode()
    tier, found = stored(tmp_path, Objects(first + first + chunk, objects.indexes, json.dumps(manifest).encode()))
    opened = tier.reader(found).log()
    assert opened.read(0, 2000) == b"x" * 2000
    with pytest.raises(BadObjectError, match="chunk 2"):
        opened.read(2000, 1)
    result, grown = memory_of(tmp_path)
    assert result == "OSError"
    assert grown < (8 << 10)


GOOD = segment(text_of(3500), PARTS, 1000, compressed=True)


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    manifest = json.loads(GOOD.manifest)
    change(manifest)
    return json.dumps(manifest).encode()


def packed(data: bytes) -> str:
    return base64.b64encode(zstandard.compress(data)).decode()


BAD: dict[str, bytes] = {
    "no JSON": b"{",
    "bytes": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "a list": b"[]",
    "another version": changed(lambda one: one.update(version="2")),
    "no version": changed(lambda one: one.pop("version")),
    "a number for a version": changed(lambda one: one.update(version=1)),
    "no chunks": changed(lambda one: one.pop("chunkIndex")),
    "chunks of another kind": changed(lambda one: one["chunkIndex"].update(type="x" * 1000)),
    "a negative size": changed(lambda one: one["chunkIndex"].update(originalFileSize=-1)),
    "a size above all": changed(lambda one: one["chunkIndex"].update(originalFileSize=2**31)),
    "a fraction": changed(lambda one: one["chunkIndex"].update(originalFileSize=3500.0)),
    "true": changed(lambda one: one["chunkIndex"].update(originalFileSize=True)),
    "chunks of no bytes": changed(lambda one: one["chunkIndex"].update(originalChunkSize=0)),
    "a chunk of 100 GiB": changed(lambda one: one["chunkIndex"].update(originalChunkSize=100 << 30)),
    "more chunks": changed(lambda one: one["chunkIndex"].update(originalFileSize=4001)),
    "2147483647 chunks": changed(lambda one: one["chunkIndex"].update(originalFileSize=2**31 - 1, originalChunkSize=1)),
    "no base64": changed(lambda one: one["chunkIndex"].update(transformedChunks="*")),
    "no frame": changed(lambda one: one["chunkIndex"].update(transformedChunks="AAAA")),
    "a bomb": changed(lambda one: one["chunkIndex"].update(transformedChunks=base64.b64encode(bomb(1 << 40)).decode())),
    "a size bomb": changed(
        lambda one: one["chunkIndex"].update(transformedChunks=base64.b64encode(endless()).decode())
    ),
    "count 2^31": changed(
        lambda one: one["chunkIndex"].update(transformedChunks=packed(struct.pack(">iib", -(2**31), 1, 1)))
    ),
    "width 0": changed(
        lambda one: one["chunkIndex"].update(transformedChunks=packed(struct.pack(">iibi", 4, 9, 0, 9)))
    ),
    "negative sizes": changed(
        lambda one: one["chunkIndex"].update(transformedChunks=packed(struct.pack(">iib3si", 4, -9, 1, b"", 9)))
    ),
    "sizes cut short": changed(
        lambda one: one["chunkIndex"].update(transformedChunks=packed(struct.pack(">iib", 4, 9, 1)))
    ),
    "no indexes": changed(lambda one: one.pop("segmentIndexes")),
    "an index at -1": changed(lambda one: one["segmentIndexes"]["offset"].update(position=-1)),
    "no place": changed(lambda one: one["segmentIndexes"].update(offset=None)),
    "no compression": changed(lambda one: one.update(compression="yes")),
    "plain sizes that differ": changed(lambda one: one.update(compression=False)),
    "encryption that is a text": changed(lambda one: one.update(encryption="x")),
    "no aad": changed(lambda one: one.update(encryption={"dataKey": "k:x"})),
    "an aad that is no base64": changed(lambda one: one.update(encryption={"dataKey": "k:x", "aad": "*"})),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_manifest_is_refused(fault: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_manifest(BAD[fault])
    assert 0 < len(str(caught.value)) < 200


def test_unknown_members_are_ignored() -> None:
    """Later versions of the plugin add some."""
    manifest = changed(lambda one: (one.update(news={"a": 1}), one["chunkIndex"].update(more=1)))
    assert read_manifest(manifest).chunks.log_size == 3500


def test_an_older_manifest_has_no_metadata() -> None:
    assert read_manifest(GOOD.manifest).metadata is None
    assert read_manifest(changed(lambda one: one.update(remoteLogSegmentMetadata=None))).metadata is None


def test_the_packed_sizes_of_the_format() -> None:
    """The example in the description of the format: sizes 632, 620 and 522."""
    text = changed(
        lambda one: one.update(
            chunkIndex={"type": "variable", "originalChunkSize": 1000, "originalFileSize": 2500}
            | {"transformedChunks": "KLUv/SAPeQAAAAAAAwAAAmwBDAAAAAIK"}
        )
    )
    chunks = read_manifest(text).chunks
    assert [chunks.place(number) for number in range(chunks.total)] == [(0, 632), (632, 1252), (1252, 1774)]


def test_every_flipped_bit_and_every_cut_is_refused_or_without_effect(tmp_path: Path, key: tuple[Path, int]) -> None:
    """Sealed objects first: none of their bits may change a byte of the log."""
    log = text_of(900)
    objects = segment(log, PARTS, 300, compressed=True, modulus=key[1])
    tier, found = stored(tmp_path, objects, {"key1": str(key[0])})
    place = tmp_path / found.keys["log"]
    for bit in range(0, 8 * len(objects.log), 11):
        data = bytearray(objects.log)
        data[bit // 8] ^= 1 << bit % 8
        place.write_bytes(data)
        with pytest.raises(BadObjectError, match="wrong key or damaged"):
            tier.reader(found).log().read(0, 900)
    for size in range(0, len(objects.log), 7):
        place.write_bytes(objects.log[:size])
        with pytest.raises(KlogError):
            tier.reader(found).log().read(0, 900)
    place.write_bytes(objects.log)
    manifest = tmp_path / found.keys["rsm-manifest"]
    for at in range(0, len(objects.manifest), 3):
        data = bytearray(objects.manifest)
        data[at] ^= 1 << at % 7
        manifest.write_bytes(data)
        try:
            reader = tier.reader(found)
            parts = {part: reader.read(part) for part in PARTS}
            same = reader.log().read(0, reader.log().size)
        except (BadObjectError, KlogError):
            continue
        assert (same, parts) == (log, PARTS), data
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0


def test_the_first_bytes_of_a_chunk_need_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each opening of a log reads its first header; a whole chunk takes longer than everything else in a lookup."""
    text, asked = text_of(3 << 20), []
    objects = segment(text, PARTS, 1 << 20, compressed=True)
    tier, found = stored(tmp_path, objects._replace(log=objects.log[:-60_000] + bytes(60_000)))
    log, usual = tier.reader(found).log(), ChunkedLog._fetch

    def counted(self: ChunkedLog, first: int, last: int) -> dict[int, bytes]:
        asked.append(first)
        return usual(self, first, last)

    monkeypatch.setattr(ChunkedLog, "_fetch", counted)
    assert log.read(0, 61) == text[:61]
    assert log.read(40, 100) == text[40:140]
    assert log.read(0, 1 << 19) == text[: 1 << 19]
    across = (2 << 20) - (1 << 19)
    assert log.read(across, (1 << 19) + 61) == text[across : (2 << 20) + 61], "the third chunk is damaged behind that"
    assert asked == [0, 1], "the third one together with the second"
    with pytest.raises(BadObjectError, match="chunk 2"):
        log.read(2 << 20, 1 << 19)
    with pytest.raises(BadObjectError, match="chunk 2"):
        log.read(2 << 20, 61)
    assert asked == [0, 1]
    log.close()


def test_a_jump_into_a_chunk_decompresses_no_more_than_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup reads on a little behind its first read; a reader that goes on gets each chunk in one piece."""
    text, plain = text_of(4 << 20), []
    tier, found = stored(tmp_path, segment(text, PARTS, 1 << 20, compressed=True))
    usual = ChunkedLog._plain

    def counted(self: ChunkedLog, number: int, *given: Any) -> Any:
        kept = usual(self, number, *given)
        plain.append((number, kept.start, kept.start + len(kept.data)))
        return kept

    monkeypatch.setattr(ChunkedLog, "_plain", counted)

    def read(*spans: tuple[int, int]) -> list[tuple[int, int, int]]:
        plain.clear()
        log = tier.reader(found).log()
        assert [log.read(*one) for one in spans] == [text[at : at + size] for at, size in spans]
        log.close()
        return list(plain)

    half, chunk = 3 << 19, 1 << 20
    jump = (1, chunk // 2, (chunk // 2 + 4096) * 17 // 16)
    assert read((half, 4096), (half + 4096, 16384)) == [jump]
    assert read((half, 4096), (half - 4096, 4096)) == [jump, (1, 0, chunk)]
    assert read((half, 4096), (half + 4096, 1 << 17)) == [jump, (1, 0, chunk)]
    assert read(((2 << 20) - 4096, 4096)) == [(1, chunk - 4096, chunk)]
    assert read((half, 1 << 20)) == [(1, chunk // 2, chunk), (2, 0, chunk)]
    whole = [(number, 0, chunk) for number in range(4)]
    assert read(*((at, 1 << 18) for at in range(0, 4 << 20, 1 << 18))) == whole
    assert read((0, 61), *((at, 1 << 18) for at in range(0, 4 << 20, 1 << 18))) == whole


def test_an_opened_log_is_read_as_far_as_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first header takes one block of its chunk, if nothing is encrypted; a damaged block is reported as ever."""
    text, sizes = text_of(2 << 20), []
    whole = segment(text, PARTS, 1 << 20, compressed=True)
    for number, (objects, most) in enumerate(
        (
            (whole, (1 << 17) + 64),
            (segment(text, PARTS, 1 << 20), 1 << 20),
            (whole._replace(log=bytes(1000) + whole.log[1000:]), 1 << 20),
        )
    ):
        tier, found = stored(tmp_path / str(number), objects)
        log: Any = tier.reader(found).log()
        usual = log._stored.read
        monkeypatch.setattr(log._stored, "read", lambda at, size, usual=usual: sizes.append(size) or usual(at, size))
        if number == 2:
            with pytest.raises(BadObjectError, match="chunk 0"):
                log.read(0, 61)
        else:
            assert log.read(0, 61) == text[:61]
        assert most / 2 < sum(sizes) <= most
        sizes.clear()
        log.close()


def test_a_bad_chunk_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over the log looks for the next batch behind it, block by block."""
    objects = segment(text_of(100_000), PARTS, 50_000, compressed=True)
    tier, found = stored(tmp_path, objects._replace(log=b"\0" * 1000 + objects.log[1000:]))
    log = tier.reader(found).log()
    asked: list[int] = []
    usual = ChunkedLog._fetch

    def counted(self: ChunkedLog, first: int, last: int) -> dict[int, bytes]:
        asked.append(first)
        return usual(self, first, last)

    monkeypatch.setattr(ChunkedLog, "_fetch", counted)
    view = memoryview(bytearray(4096))
    for position in range(0, 49_000, 4096):
        with pytest.raises(OSError, match="chunk 0"):
            log.read_into(position, view)
    assert log.read(60_000, 10) == text_of(100_000)[60_000:60_010]
    assert asked == [0, 1]
    log.close()
