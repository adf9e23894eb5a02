"""Compression: gzip, snappy, lz4 and zstd as Kafka frames them, with a limit on the decompressed size.

The codecs' own libraries do the work; this module has Kafka's framings and the treatment of unusual input.
It accepts what a broker's Java accepts: several gzip members or zstd frames, garbage behind them (gzip, lz4), snappy
with and without its framing, the lz4 header checksum that Kafka 0.8 and 0.9 computed wrongly.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Buffer = bytes | bytearray | memoryview

MAX_OUTPUT = 128 << 20
"""Bytes that a batch may have when decompressed, unless the caller says otherwise."""

_CHUNK = 1 << 20
_PIECE = 1 << 16
_GZIP_BYTES_PER_BYTE = 1032  # the most that deflate can make of one byte
_GZIP_RESERVED = 0xE0
_LZ4_BYTES_PER_BYTE = 255
_LZ4_NO_ROOM, _ZSTD_NO_ROOM = "Failed to resize", "Allocation error"  # in messages of libraries without memory
_SNAPPY_BYTES_PER_BYTE = 22  # a copy of 64 bytes takes three
_ZSTD_BLOCK = 1 << 17  # the most that a block holds
_ZSTD_BYTES_PER_BYTE = 32768  # a repeated block of 128 KiB takes four
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_XERIAL_VERSIONS = bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK = 32 << 10
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_USUAL = (_LZ4_MAGIC + b"\x60", _LZ4_MAGIC + b"\x70")  # of Kafka's own writers; and with sums of blocks
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_HEADER = _GZIP_MAGIC + bytes(6) + b"\xff"  # no time, an unknown system: Java: GZIPOutputStream
_GZIP_SMALLEST = 19  # fewer bytes behind a member are not looked at
_MOST_FRAMES = 1024  # no writer makes more than one; each costs a copy of the rest

_one_at_a_time = _thread.allocate_lock()
"""Held during the decompression of a batch that may become large: the results of several threads add up."""


class CodecError(ValueError):
    """The compressed bytes are broken, or would yield more than the limit."""


class Decompressor:
    """Decompresses batches, one after another, for one thread: making a context costs more than using it.

    No reference cycle runs through it: contexts are large, and are freed with it.
    """

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self.limit = limit
        self.advice = "--max-batch-bytes raises the limit"
        self._gzip_object: Callable[[], Any] | None = None
        self._gzip_error: type[BaseException] = CodecError
        self._lz4_library: Any = None
        self._lz4_context: Any = None
        self._lz4_checksums: dict[bytes, int] = {}
        self._zstd_context: Any = None
        self._zstd_size: Callable[[Buffer], int] = len
        self._zstd_error: type[Exception] = CodecError

    @property
    def functions(self) -> tuple[Callable[[Buffer, int], bytes | bytearray], ...]:
        """A function (compressed bytes, magic of the batch) → decompressed bytes for each codec number."""
        own = (self._none, self._gzip, self._snappy, self._lz4, self._zstd)
        return *own, *(self._unknown,) * 3

    def _too_much(self) -> CodecError:
        return CodecError(f"more than {self.limit} bytes when decompressed ({self.advice})")

    def _none(self, data: Buffer, magic: int) -> bytes:
        return bytes(data)

    def _unknown(self, data: Buffer, magic: int) -> bytes:
        raise CodecError("no such codec")

    def _gzip(self, data: Buffer, magic: int) -> bytes | bytearray:
        """Decompress all members; other bytes behind the last one are ignored.  Java: GZIPInputStream."""
        if self._gzip_object is None:
            self._open_gzip()
        assert self._gzip_object is not None
        rest = memoryview(data)
        if len(data) > 3 and data[3] & _GZIP_RESERVED:  # Java ignores these flags
            rest = memoryview(bytes(data[:3]) + bytes((data[3] & ~_GZIP_RESERVED,)) + bytes(data[4:]))
        made: list[bytes | bytearray] = []
        total = 0
        while len(made) < _MOST_FRAMES:
            member = self._gzip_object()
            try:
                used = self._inflate(member, rest, self.limit - total, made)
            except self._gzip_error as error:
                raise CodecError(f"gzip: {error}") from None
            if not member.eof:
                raise CodecError("gzip: cut short")
            total += len(made[-1])
            rest = rest[used:]
            if len(rest) < _GZIP_SMALLEST or rest[:3] != _GZIP_MAGIC:
                return made[0] if len(made) == 1 else b"".join(made)
        raise CodecError(f"gzip: more than {_MOST_FRAMES} members")

    def _open_gzip(self) -> None:
        try:
            from isal import isal_zlib

            self._gzip_object = _gzip_of(isal_zlib.decompressobj)
            self._gzip_error = isal_zlib.IsalError  # type: ignore[assignment]  # its stub takes the class for an instance
        except ImportError:
            import zlib

            self._gzip_object = _gzip_of(zlib.decompressobj)
            self._gzip_error = zlib.error

    def _inflate(self, member: Any, data: memoryview, limit: int, made: list[bytes | bytearray]) -> int:
        """Add the content of the member at the beginning of *data*; return how many bytes it takes."""
        if not made and len(data) * _GZIP_BYTES_PER_BYTE <= limit:
            made.append(member.decompress(data))
            return len(data) - len(member.unused_data)
        whole, at = bytearray(), 0
        with _one_at_a_time:
            while not member.eof:
                fed = member.unconsumed_tail or data[at : at + _PIECE]  # each member copies the rest in here
                at += 0 if member.unconsumed_tail else len(fed)
                piece = member.decompress(fed, _CHUNK)
                whole += piece
                if len(whole) > limit:
                    raise self._too_much()
                if not piece and not fed:
                    break
        made.append(whole)
        return at - len(member.unused_data)

    def _snappy(self, data: Buffer, magic: int) -> bytes:
        """Decompress blocks in xerial's framing, or one bare block.  snappy-java: SnappyInputStream."""
        if len(data) < _XERIAL_HEADER or bytes(data[:8]) != _XERIAL_MAGIC:
            return self._snappy_block(data)
        made: list[bytes] = []
        total = 0
        at = _XERIAL_HEADER
        while len(data) - at >= 4:
            version = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
            if data[at : at + 4] == _XERIAL_MAGIC[:4] and version > 0:
                at += _XERIAL_HEADER  # streams that were joined
                continue
            length = int.from_bytes(data[at : at + 4], "big", signed=True)
            at += 4
            if not 0 < length <= len(data) - at:
                raise CodecError(f"snappy: a block claims {length} bytes, {len(data) - at} are there")
            made.append(self._snappy_block(data[at : at + length]))
            at += length
            total += len(made[-1])
            if total > self.limit:
                raise self._too_much()
        return made[0] if len(made) == 1 else b"".join(made)

    def _snappy_block(self, data: Buffer) -> bytes:
        import snappy

        length = shift = 0
        for byte in data[:5]:
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        else:
            raise CodecError("snappy: no length")
        if length > _SNAPPY_BYTES_PER_BYTE * len(data):
            raise CodecError(f"snappy: {len(data)} bytes claim to hold {length}")
        if length > self.limit:
            raise self._too_much()
        try:
            made: bytes = snappy.uncompress(data)
        except (snappy.UncompressError, ValueError) as error:
            raise CodecError(f"snappy: {str(error) or 'the block is broken'}") from None
        return made

    def _lz4(self, data: Buffer, magic: int) -> bytes | bytearray:
        """Decompress one frame; the bytes behind it are ignored.  Kafka: Lz4BlockInputStream."""
        if magic and bytes(data[:5]) in _LZ4_USUAL:
            try:
                return self._lz4_frame(data)
            except RuntimeError:
                pass
        try:
            return self._lz4_frame(self._lz4_usual(data, magic))
        except (RuntimeError, IndexError) as error:
            raise CodecError(f"lz4: {error}") from None

    def _lz4_frame(self, data: Buffer) -> bytes | bytearray:
        if self._lz4_context is None:
            from lz4 import frame

            self._lz4_library, self._lz4_context = frame, frame.create_decompression_context()
        library, context = self._lz4_library, self._lz4_context
        library.reset_decompression_context(context)
        if len(data) * _LZ4_BYTES_PER_BYTE <= self.limit:
            try:
                made: tuple[bytes, int, bool] = library.decompress_chunk(context, data)  # the last: the frame has ended
                if made[2]:
                    return made[0]
                raise RuntimeError("cut short")
            except RuntimeError as error:
                if _LZ4_NO_ROOM not in str(error):  # its buffer grows to several times of what it holds
                    raise
            library.reset_decompression_context(context)
        with _one_at_a_time:
            return self._lz4_carefully(data)

    def _lz4_carefully(self, data: Buffer) -> bytearray:
        whole = bytearray()
        at, ended = 0, False
        while not ended:
            piece, used, ended = self._lz4_library.decompress_chunk(self._lz4_context, data[at:], max_length=_CHUNK)
            whole += piece
            at += used
            if len(whole) > self.limit:
                raise self._too_much()
            if not ended and not piece and not used:
                raise RuntimeError("cut short")
        return whole

    def _lz4_usual(self, data: Buffer, magic: int) -> bytes:
        """Return the frame with a header that makes the library read it as Kafka does.

        Kafka requires independent blocks, ignores the content's size and checksum, in message sets v0 also the
        header's checksum (its first writers computed it wrongly), and treats any block without bytes as the end.
        """
        flags, sizes = data[4], data[5]
        if bytes(data[:4]) != _LZ4_MAGIC or flags & 0xE3 != 0x60 or sizes & 0x8F or sizes < 0x40:
            raise CodecError("lz4: not a frame that Kafka reads")
        at = 14 if flags & 0x08 else 6
        if magic and data[at] != self._lz4_header_checksum(bytes(data[4:at])):
            raise CodecError("lz4: the header's checksum does not match")
        start = at = at + 1
        largest, trailer = 1 << 2 * (sizes >> 4) + 8, 4 if flags & 0x10 else 0
        while size := int.from_bytes(data[at : at + 4], "little") & 0x7FFFFFFF:
            if size > largest:
                raise CodecError(f"lz4: a block of {size} bytes")
            at += 4 + size + trailer
        if len(data) - at < 4 + (4 if flags & 0x04 else 0):
            raise CodecError("lz4: cut short")
        descriptor = bytes((0x60 | flags & 0x10, sizes))
        checksum = bytes((self._lz4_header_checksum(descriptor),))
        return _LZ4_MAGIC + descriptor + checksum + bytes(data[start:at]) + bytes(4)

    def _lz4_header_checksum(self, descriptor: bytes) -> int:
        if descriptor not in self._lz4_checksums:
            self._lz4_checksums[descriptor] = _xxh32_short(descriptor) >> 8 & 0xFF
        return self._lz4_checksums[descriptor]

    def _zstd(self, data: Buffer, magic: int) -> bytes | bytearray:
        """Decompress all frames.  Kafka writes them without their content's size, other clients with it."""
        if self._zstd_context is None:
            import zstandard

            self._zstd_context = zstandard.ZstdDecompressor(max_window_size=1 << 27)
            self._zstd_size, self._zstd_error = zstandard.frame_content_size, zstandard.ZstdError
        try:
            if 0 < self._zstd_size(data) <= min(self.limit, _ZSTD_BLOCK):
                made: bytes = self._zstd_context.decompress(data, allow_extra_data=False)
                return made
        except self._zstd_error:
            pass  # several frames, or a broken one: the next lines find its fault
        try:
            if len(data) * _ZSTD_BYTES_PER_BYTE <= self.limit or _zstd_bound(data) <= self.limit:
                return self._zstd_frames(data, len(data), _PIECE)
            # A slice is so small that it cannot yield much more than the limit allows.
            step = max(64, self.limit // _ZSTD_BYTES_PER_BYTE // 32)
            with _one_at_a_time:
                return self._zstd_frames(data, step, step)
        except self._zstd_error as error:
            if _ZSTD_NO_ROOM in str(error):
                raise MemoryError from None
            raise CodecError(f"zstd: {error}") from None

    def _zstd_frames(self, data: Buffer, step: int, next_step: int) -> bytes | bytearray:
        """Decompress in slices of *next_step* bytes, but for the first: a frame copies the rest of its slice."""
        made: list[bytes] = []
        view, at, frames, total, frame = memoryview(data), 0, 0, 0, None
        while at < len(view):
            if frame is None or frame.eof:
                frame = self._zstd_context.decompressobj()
                frames += 1
            if frames > _MOST_FRAMES:
                raise CodecError(f"zstd: more than {_MOST_FRAMES} frames")
            piece = view[at : at + step]
            made.append(frame.decompress(piece))
            at += len(piece) - len(frame.unused_data)
            step = next_step
            total += len(made[-1])
            if total > self.limit:
                raise self._too_much()
        if frame is not None and not frame.eof:
            raise CodecError("zstd: cut short")
        return made[0] if len(made) == 1 else b"".join(made)


class Compressor:
    """Compresses batches as Kafka does, one after another, for one thread; *level* None: Kafka's default."""

    def __init__(self, level: int | None = None) -> None:
        self._level = level
        self._zstd_context: Any = None

    @property
    def functions(self) -> tuple[Callable[[Buffer, int], bytes], ...]:
        """A function (plain bytes, magic of the batch) → compressed bytes for each codec number."""
        return self._none, self._gzip, self._snappy, self._lz4, self._zstd

    def _none(self, data: Buffer, magic: int) -> bytes:
        return bytes(data)

    def _gzip(self, data: Buffer, magic: int) -> bytes:
        import zlib

        compressor = zlib.compressobj(-1 if self._level is None else self._level, wbits=-zlib.MAX_WBITS)
        trailer = zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
        return b"".join((_GZIP_HEADER, compressor.compress(data), compressor.flush(), trailer))

    def _snappy(self, data: Buffer, magic: int) -> bytes:
        """Compress in xerial's framing, block by block.  snappy-java: SnappyOutputStream."""
        import snappy

        made = [_XERIAL_MAGIC, _XERIAL_VERSIONS]
        for at in range(0, len(data), _XERIAL_BLOCK):
            block: bytes = snappy.compress(data[at : at + _XERIAL_BLOCK])
            made += [len(block).to_bytes(4, "big"), block]
        return b"".join(made)

    def _lz4(self, data: Buffer, magic: int) -> bytes:
        """Compress into one frame of independent blocks of 64 KB.  Kafka: Lz4BlockOutputStream."""
        import lz4.frame

        # Level 9, the default, is the fast compressor.  Kafka: Lz4Compression.
        level = 0 if self._level in (None, 9) else max(self._level or 0, 3)
        size = lz4.frame.BLOCKSIZE_MAX64KB
        frame: bytes = lz4.frame.compress(data, level, size, block_linked=False, store_size=False)
        if magic:
            return frame
        # Message sets v0 include the magic number in the checksum of the header, by an old mistake of Kafka.
        return frame[:6] + bytes((_xxh32_short(frame[:6]) >> 8 & 0xFF,)) + frame[7:]

    def _zstd(self, data: Buffer, magic: int) -> bytes:
        import zstandard

        if self._zstd_context is None:
            self._zstd_context = zstandard.ZstdCompressor(self._level or 3, write_content_size=False)
        frame = self._zstd_context.compressobj()
        made: bytes = frame.compress(data) + frame.flush()
        return made


def _gzip_of(decompressobj: Callable[[int], Any]) -> Callable[[], Any]:
    return lambda: decompressobj(31)  # 31: the gzip format, largest window


def _zstd_bound(data: Buffer) -> int:
    """Return the largest decompressed size that the frames of *data* allow; a huge number if their structure is broken.

    It adds up the blocks (RFC 8878): a raw or repeated block contains its size, a compressed one holds at most 128 KiB.
    """
    bound = at = 0
    try:
        while at < len(data):
            if data[at + 1 : at + 4] == b"\x2a\x4d\x18" and data[at] >> 4 == 5:  # a frame to skip
                at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
                continue
            flags = data[at + 4]
            content_size = (flags >> 5 & 1, 2, 4, 8)[flags >> 6]
            at += 5 + (flags & 0x20 == 0) + (0, 1, 2, 4)[flags & 3] + content_size
            last = 0
            while not last:
                block = int.from_bytes(data[at : at + 3], "little") if at + 3 <= len(data) else data[len(data)]
                last, kind, size = block & 1, block >> 1 & 3, block >> 3
                bound += size if kind < 2 else _ZSTD_BLOCK
                at += 3 + (1 if kind == 1 else size)
            at += 4 if flags & 4 else 0
    except IndexError:
        return 1 << 62
    return bound


def _xxh32_short(data: bytes) -> int:
    """Return the XXH32 digest (seed 0) of fewer than 16 bytes: the checksum of an lz4 frame's header."""
    prime1, prime2, prime3, prime4, prime5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    h = prime5 + len(data)
    at = 0
    while len(data) - at >= 4:
        h = (h + int.from_bytes(data[at : at + 4], "little") * prime3) & 0xFFFFFFFF
        h = ((h << 17 | h >> 15) * prime4) & 0xFFFFFFFF
        at += 4
    for byte in data[at:]:
        h = (h + byte * prime5) & 0xFFFFFFFF
        h = ((h << 11 | h >> 21) * prime1) & 0xFFFFFFFF
    h = ((h ^ h >> 15) * prime2) & 0xFFFFFFFF
    h = ((h ^ h >> 13) * prime3) & 0xFFFFFFFF
    return h ^ h >> 16
