"""The segment manifest of Aiven's plugin, version 1: JSON that says where the chunks of a log and its indexes are.

Nothing in it is believed: sizes are compared with each other, counts with sizes, before anything is made of them.
"""

from __future__ import annotations

import binascii
import json
from array import array
from itertools import accumulate
from typing import Any, Final, NamedTuple

import zstandard

from klog.tier.tier_layout import EPOCHS, INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX

MOST_MANIFEST_BYTES: Final = 16 << 20
_MOST_SEGMENT_BYTES: Final = 2**31 - 1
MOST_CHUNK_BYTES: Final = 64 << 20
"""A larger chunk is not read: all of it has to be in memory.  The plugin's default is 4 MiB."""
_MOST_CHUNKS: Final = 1 << 22
_SEALED_BYTES: Final = 12 + 16
"""The IV and the tag of an encrypted chunk."""
_INDEXES: Final = {
    "offset": INDEX,
    "timestamp": TIME_INDEX,
    "producerSnapshot": SNAPSHOT,
    "leaderEpoch": EPOCHS,
    "transaction": TXN_INDEX,
}
_VERSION: Final = "1"
_WIDTHS: Final = (1, 2, 3, 4)


class ManifestError(ValueError):
    """The bytes are not a manifest of version 1, or its parts contradict each other."""


class Chunks(NamedTuple):
    """The chunks of a log: *size* plain bytes in each but the last, *log_size* in all.

    *ends*: where each ends in the object, if their stored sizes differ; else *stored* bytes each, *last* in the last.
    """

    size: int
    log_size: int
    ends: array[int] | None
    stored: int = 0
    last: int = 0

    @property
    def total(self) -> int:
        """The number of chunks; an empty log has one."""
        return _count(self.size, self.log_size)

    def plain_size(self, number: int) -> int:
        """Return the number of plain bytes of a chunk."""
        return min(self.size, self.log_size - number * self.size)

    def place(self, number: int) -> tuple[int, int]:
        """Return where a chunk begins and ends in the object."""
        if self.ends is not None:
            return (self.ends[number - 1] if number else 0), self.ends[number]
        start = number * self.stored
        return start, start + (self.last if number + 1 == self.total else self.stored)


class Encryption(NamedTuple):
    """The wrapped key of a segment, `KEYID:BASE64`, and the data that its tags cover as well."""

    data_key: str
    aad: bytes


class Manifest(NamedTuple):
    """A manifest.  *indexes*: position and size in the object `indexes` of each part that is not empty.

    *metadata*: the segment's metadata as the plugin got them, None in older manifests; not checked here.
    """

    chunks: Chunks
    indexes: dict[str, tuple[int, int]]
    is_compressed: bool
    encryption: Encryption | None
    metadata: dict[str, Any] | None


def read_manifest(content: bytes) -> Manifest:
    """Return the manifest in *content*.  Raises ManifestError."""
    if len(content) > MOST_MANIFEST_BYTES:
        raise ManifestError(f"more than {MOST_MANIFEST_BYTES >> 20} MiB")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ManifestError("no JSON") from error
    if not isinstance(found, dict) or found.get("version") != _VERSION:
        version = found.get("version") if isinstance(found, dict) else None
        raise ManifestError(f"version {version!r:.40}, expected {_VERSION}")
    encryption = _encryption(found.get("encryption"))
    is_compressed = _of_type(found, "compression", bool)
    chunks = _chunks(_of_type(found, "chunkIndex", dict), is_compressed, encryption is not None)
    indexes = _indexes(_of_type(found, "segmentIndexes", dict), encryption is not None)
    metadata = found.get("remoteLogSegmentMetadata")
    return Manifest(chunks, indexes, is_compressed, encryption, metadata if isinstance(metadata, dict) else None)


def _of_type(found: dict[str, Any], name: str, kind: type) -> Any:
    value = found.get(name)
    if type(value) is not kind:
        raise ManifestError(f"no {name}, or one that is no {kind.__name__}")
    return value


def _number(found: dict[str, Any], name: str, lowest: int, highest: int) -> int:
    value: int = _of_type(found, name, int)
    if not lowest <= value <= highest:
        raise ManifestError(f"{name} {value:.4g} is not between {lowest} and {highest}")
    return value


def _encryption(found: Any) -> Encryption | None:
    if found is None:
        return None
    if not isinstance(found, dict):
        raise ManifestError("encryption is no object")
    try:
        aad = binascii.a2b_base64(_of_type(found, "aad", str), strict_mode=True)
        return Encryption(_of_type(found, "dataKey", str), aad)
    except binascii.Error as error:
        raise ManifestError("encryption.aad is no base64") from error


def _count(chunk_size: int, log_size: int) -> int:
    return max(1, -(-log_size // chunk_size))


def _chunks(found: dict[str, Any], is_compressed: bool, is_encrypted: bool) -> Chunks:
    size = _number(found, "originalChunkSize", 1, MOST_CHUNK_BYTES)
    log_size = _number(found, "originalFileSize", 0, _MOST_SEGMENT_BYTES)
    count = _count(size, log_size)
    kind = found.get("type")
    if kind == "fixed":
        most = MOST_CHUNK_BYTES + _SEALED_BYTES
        stored = _number(found, "transformedChunkSize", 0, most)
        chunks = Chunks(size, log_size, None, stored, _number(found, "finalTransformedChunkSize", 0, most))
    elif kind == "variable":
        sizes = _sizes(_of_type(found, "transformedChunks", str), count)
        if max(sizes) > 2 * MOST_CHUNK_BYTES:
            raise ManifestError(f"a chunk of {max(sizes)} bytes")
        chunks = Chunks(size, log_size, array("q", accumulate(sizes)))
    else:
        raise ManifestError(f"chunkIndex.type {kind!r:.40}, expected fixed or variable")
    if not is_compressed:
        _check_sizes(chunks, _SEALED_BYTES if is_encrypted else 0)
    return chunks


def _check_sizes(chunks: Chunks, more: int) -> None:
    """Raise ManifestError unless each chunk is stored in its own size and *more* bytes."""
    for number in {0, chunks.total - 1} if chunks.ends is None else range(chunks.total):
        start, end = chunks.place(number)
        if end - start != chunks.plain_size(number) + more:
            sizes = f"{end - start} bytes stored, {chunks.plain_size(number)} plain"
            raise ManifestError(f"the sizes of chunk {number} contradict each other: {sizes}")


def _sizes(text: str, count: int) -> array[int]:
    """Return the stored size of each chunk: a base, and how much larger each is; the last one is written in full."""
    if count > _MOST_CHUNKS:
        raise ManifestError(f"{count} chunks, more than klog reads")
    try:
        packed = binascii.a2b_base64(text, strict_mode=True)
        data = decompressed(packed, 16 + 4 * count)
    except (binascii.Error, zstandard.ZstdError) as error:
        raise ManifestError("chunkIndex.transformedChunks is no base64 of a zstd frame") from error
    number = int.from_bytes(data[:4], "big", signed=True)
    if len(data) < 4 or number != count:
        raise ManifestError(f"{number} sizes for {count} chunks")
    if count == 1:
        differences, width, rest, base = b"", 1, data[4:], 0
    else:
        base, width = int.from_bytes(data[4:8], "big", signed=True), data[8] if len(data) > 8 else 0
        end = 9 + (count - 1) * width
        differences, rest = data[9:end], data[end:]
    if (count > 1 and width not in _WIDTHS) or len(rest) != 4 or base < 0:
        raise ManifestError("chunkIndex.transformedChunks has another length than its count says")
    sizes = array("q", bytes(8 * count))
    for i in range(count - 1):
        sizes[i] = base + int.from_bytes(differences[i * width : (i + 1) * width], "big")
    sizes[-1] = int.from_bytes(rest, "big", signed=True)
    if min(sizes) < 0:
        raise ManifestError(f"a chunk of {min(sizes)} bytes")
    return sizes


def decompressed(frame: bytes, most: int, span: tuple[int, int] | None = None) -> bytes:
    """Return the content of a zstd frame of at most *most* bytes.  Raises ZstdError, also for one that claims more.

    *span*: only the bytes from the first to below the second of these positions; those behind are not looked at.
    """
    claimed = zstandard.frame_content_size(frame)
    if claimed > most:
        raise zstandard.ZstdError(f"it claims {claimed} bytes where {most} are left")
    if span is not None:
        reader = zstandard.ZstdDecompressor().stream_reader(frame)
        reader.seek(span[0])
        return reader.read(span[1] - span[0])
    return zstandard.ZstdDecompressor().decompress(frame, max_output_size=max(most, 1))


def _indexes(found: dict[str, Any], is_encrypted: bool) -> dict[str, tuple[int, int]]:
    """Return the place of each index; those of no bytes are left out, but for a transaction index that exists."""
    places = {}
    for name, part in _INDEXES.items():
        place = found.get(name)
        if place is None and name == "transaction":
            continue
        if not isinstance(place, dict):
            raise ManifestError(f"no segmentIndexes.{name}")
        position = _number(place, "position", 0, _MOST_SEGMENT_BYTES)
        size = _number(place, "size", 0, MOST_CHUNK_BYTES)
        if is_encrypted and 0 < size < _SEALED_BYTES:
            raise ManifestError(f"segmentIndexes.{name} has {size} bytes, too few for an encrypted one")
        places[part] = (position, size)
    return places
