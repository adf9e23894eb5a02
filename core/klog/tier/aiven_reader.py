"""Reads the plain bytes of a segment that the plugin has stored: its log by chunks, and the parts of its indexes."""

from __future__ import annotations

import errno
from functools import cached_property
from typing import Final, NamedTuple

import zstandard

from klog.base.errors import KlogError
from klog.base.read_only import ReadableLog
from klog.tier.aiven_manifest import (
    MOST_MANIFEST_BYTES,
    Encryption,
    Manifest,
    ManifestError,
    decompressed,
    read_manifest,
)
from klog.tier.stores import MissingObjectError, Store
from klog.tier.tier_layout import INDEXES, LOG, MANIFEST, BadObjectError, EncryptedObjectError, Keys, TierSegment

_MOST_AT_ONCE: Final = 1 << 20
"""Chunks are fetched together up to so many stored bytes."""
_BEGINNING: Final = 32
"""A read of at most this part of a chunk, from its beginning on, decompresses little more of it than it needs."""
_AHEAD: Final = 16
"""It decompresses this part of that more: a lookup reads on a little."""
_LITTLE: Final = 1 << 14
"""A read of at most so many first bytes of a chunk takes only its first block: a log is opened, or a lookup goes on a
little behind a chunk."""
_BLOCK: Final = (1 << 17) + 64
"""The largest block of zstd, and the headers in front of it."""
_NONE: Final = -2
"""The number of no chunk, and of none before one."""


class AivenReader:
    """The plain bytes of a segment, out of its three objects.  See `SegmentReader`."""

    def __init__(self, store: Store, segment: TierSegment, keys: Keys | None) -> None:
        self._store, self._segment, self._keys = store, segment, keys

    def _key(self, kind: str) -> str:
        key = self._segment.keys.get(kind)
        if key is None:
            raise MissingObjectError(f"segment {self._segment.segment_id} has no {kind}")
        return key

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest.  Raises BadObjectError, MissingObjectError, UnreadableError."""
        key = self._key(MANIFEST)
        try:
            return read_manifest(self._store.read(key, MOST_MANIFEST_BYTES))
        except ManifestError as error:
            raise BadObjectError(key, str(error)) from error

    def plain(self, kind: str, data: bytes) -> bytes:
        """Return *data*, a chunk of the object *kind*, as it was before it was encrypted.  Raises BadObjectError."""
        encryption = self.manifest.encryption
        return data if encryption is None else self._decrypted(self._key(kind), data, encryption)

    def _decrypted(self, key: str, data: bytes, encryption: Encryption) -> bytes:
        try:
            data_key = None if self._keys is None else self._keys.data_key(encryption.data_key)
            if data_key is None:
                key_id = encryption.data_key.partition(":")[0]
                raise EncryptedObjectError(key, f"encrypted: --remote-keys {key_id}=FILE gives the private key")
            return data_key.decrypt(data, encryption.aad)
        except ValueError as error:
            raise BadObjectError(key, str(error)) from error

    def log(self) -> ReadableLog:
        """Open the log; the manifest is read, but no chunk."""
        stored = self._store.open(self._key(LOG), self._segment.sizes.get(LOG))
        return ChunkedLog(self, stored, self._key(LOG))

    def read(self, part: str) -> bytes | None:
        """Return a part of `indexes`: see `SegmentReader.read`."""
        place = self.manifest.indexes.get(part)
        if place is None:
            return None
        position, size = place
        if not size:
            return b""
        key = self._key(INDEXES)
        stored = self._store.open(key, self._segment.sizes.get(INDEXES))
        try:
            data = stored.read(position, size)
        finally:
            stored.close()
        if len(data) < size:
            raise BadObjectError(key, f"{part} ends at byte {position + size}, the object at {position + len(data)}")
        return self.plain(INDEXES, data)


class _Kept(NamedTuple):
    """The bytes of chunk *number* from *start* on."""

    number: int
    start: int
    data: bytes

    def has(self, number: int, start: int, end: int) -> bool:
        """Whether the bytes *start* to *end* of a chunk are among them."""
        return number == self.number and self.start <= start and end <= self.start + len(self.data)


class ChunkedLog:
    """The plain bytes of a chunked log by position; the last chunk is kept.  See `klog.base.read_only.ReadableLog`.

    A read of a chunk's first bytes, as at the opening of a log, or one that jumps into a chunk, as a lookup does,
    decompresses little behind what it needs, and keeps nothing before that.  *is_malformed*: a chunk that was read is
    missing, is not what the manifest says, or its key does not decrypt it.
    """

    def __init__(self, reader: AivenReader, stored: ReadableLog, key: str) -> None:
        self._reader, self._stored, self._key = reader, stored, key
        self._chunks = reader.manifest.chunks
        self.path, self.size = stored.path, self._chunks.log_size
        self._kept = _Kept(_NONE, 0, b"")
        self._begun: tuple[int, bytes] = (_NONE, b"")  # that chunk as it is stored, if not all of it is kept
        self._bad: dict[int, BadObjectError] = {}
        self.is_malformed = False

    def close(self) -> None:
        """Close the object."""
        self._stored.close()

    def next_data(self, position: int) -> int:
        """Return *position*: chunks have no holes."""
        return position

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on; fewer only at the end.

        Raises BadObjectError, UnreadableError.
        """
        data = bytearray(max(0, min(size, self.size - position)))
        self._fill(position, memoryview(data))
        return bytes(data)

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes, fewer only at the end.  Raises OSError."""
        count = max(0, min(len(view), self.size - position))
        try:
            self._fill(position, view[:count])
        except KlogError as error:
            raise OSError(errno.EIO, getattr(error, "reason", str(error))) from error
        return count

    def _fill(self, position: int, view: memoryview) -> None:
        done, chunk_size = 0, self._chunks.size
        last = (position + len(view) - 1) // chunk_size
        stored: dict[int, bytes] = dict([self._begun])
        kept = self._kept  # other threads may replace it meanwhile
        while done < len(view):
            number, within = divmod(position + done, chunk_size)
            size = self._chunks.plain_size(number)
            end = min(within + len(view) - done, size)
            if number in self._bad:  # a reader looks for the next batch behind it, position by position
                raise self._bad[number]
            if not kept.has(number, within, end) and number not in stored:
                kept = self._first_bytes(number, end) or kept
            if not kept.has(number, within, end):
                if number not in stored:
                    stored = self._fetch(number, last)
                jumps = within > 0 and number not in (kept.number, kept.number + 1)
                is_part = jumps or end <= size // _BEGINNING
                span = (within, min(end + end // _AHEAD, size)) if is_part else (0, size)
                try:
                    kept = self._kept = self._plain(number, stored[number], *span)
                except BadObjectError as error:
                    self._bad[number], self.is_malformed = error, True
                    raise
                data = stored.pop(number)
                self._begun = (number, data) if len(kept.data) < size else (_NONE, b"")
            piece = kept.data[within - kept.start : end - kept.start]
            view[done : done + len(piece)] = piece
            done += len(piece)

    def _first_bytes(self, number: int, end: int) -> _Kept | None:
        """Return the first *end* bytes of a chunk, out of the first block of the stored one.

        None if these are too many, or if that block does not have them.
        """
        (start, stop), size = self._chunks.place(number), self._chunks.plain_size(number)
        manifest = self._reader.manifest
        is_zstd = manifest.is_compressed and manifest.encryption is None
        if not is_zstd or end > min(_LITTLE, size // _BEGINNING) or stop - start < 2 * _BLOCK:
            return None
        try:
            data = decompressed(self._stored.read(start, _BLOCK), size, (0, end))
        except zstandard.ZstdError:
            return None  # a read of the whole chunk reports it
        return _Kept(number, 0, data)

    def _fetch(self, first: int, last: int) -> dict[int, bytes]:
        """Return the stored bytes of chunk *first*, and of those behind it up to *last* that fit into one request."""
        start, end = self._chunks.place(first)
        until = first
        while until < last and self._chunks.place(until + 1)[1] - start <= _MOST_AT_ONCE:
            until += 1
            end = self._chunks.place(until)[1]
        data = self._stored.read(start, end - start)
        if len(data) < end - start:
            self.is_malformed = True
            raise BadObjectError(self._key, f"chunk {until} ends at byte {end}, the object at {start + len(data)}")
        places = ((number, self._chunks.place(number)) for number in range(first, until + 1))
        return {number: data[low - start : high - start] for number, (low, high) in places}

    def _plain(self, number: int, stored: bytes, start: int, end: int) -> _Kept:
        """Return at least the bytes *start* to *end* of a chunk.  Raises BadObjectError."""
        data, size = self._reader.plain(LOG, stored), self._chunks.plain_size(number)
        if not self._reader.manifest.is_compressed:
            start, end = 0, size
        else:
            try:
                data = decompressed(data, size, (start, end) if end - start < size else None)
            except zstandard.ZstdError as error:
                raise BadObjectError(self._key, f"chunk {number}: {error}") from error
        if len(data) != end - start:
            raise BadObjectError(self._key, f"chunk {number} has {start + len(data)} bytes, {size} in the manifest")
        return _Kept(number, start, data)
