"""Compression: gzip, snappy, lz4 and zstd as Kafka frames them, each with a limit on what it may yield.

The work is done by the codecs' own libraries; here are Kafka's framings around them and the answers to odd input.
What a broker's Java accepts is accepted: several gzip members or zstd frames, garbage behind them (gzip, lz4), snappy
with and without its framing, the lz4 header checksum that Kafka 0.8 and 0.9 computed wrongly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Buffer = bytes | bytearray | memoryview

MAX_OUTPUT = 128 << 20
"""Bytes that a batch may have when decompressed, unless the caller says otherwise."""

_CHUNK = 1 << 20
_GZIP_BYTES_PER_BYTE = 1032  # the most that deflate can make of one byte
_GZIP_RESERVED = 0xE0
_SNAPPY_BYTES_PER_BYTE = 22  # a copy of 64 bytes takes three
_ZSTD_BYTES_PER_BYTE = 32768  # a repeated block of 128 KiB takes four
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_LZ4_MAGIC = b"\x04\x22\x4d\x18"


class CodecError(ValueError):
    """The compressed bytes are broken, or would yield more than the limit."""


class Decompressor:
    """Decompresses batches, one after another, for one thread: making a context costs more than using it.

    `functions` holds a function (compressed bytes, magic of the batch) → decompressed bytes for each codec number.
    """

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self.limit = limit
        self.functions: tuple[Callable[[Buffer, int], bytes | bytearray], ...] = (
            self._none,
            self._gzip,
            self._snappy,
            self._lz4,
            self._zstd,
            *(self._unknown,) * 3,
        )
        self._gzip_object: Callable[[], Any] | None = None
        self._gzip_error: type[BaseException] = CodecError
        self._lz4_context: Any = None
        self._lz4_headers: dict[bytes, int] = {}
        self._zstd_context: Any = None

    def _too_much(self) -> CodecError:
        return CodecError(f"more than {self.limit} bytes when decompressed (--max-batch-bytes raises the limit)")

    def _none(self, data: Buffer, magic: int) -> bytes:
        return bytes(data)

    def _unknown(self, data: Buffer, magic: int) -> bytes:
        raise CodecError("no such codec")

    def _gzip(self, data: Buffer, magic: int) -> bytes | bytearray:
        """Decompress all members; other bytes behind the last one are ignored.  Java: GZIPInputStream."""
        if self._gzip_object is None:
            self._open_gzip()
        assert self._gzip_object is not None
        whole: bytes | bytearray = b""
        rest: Buffer = data
        if len(data) > 3 and data[3] & _GZIP_RESERVED:  # Java ignores these flags
            rest = bytes(data[:3]) + bytes((data[3] & ~_GZIP_RESERVED,)) + bytes(data[4:])
        while True:
            member = self._gzip_object()
            try:
                made = self._inflate(member, rest, self.limit - len(whole))
            except self._gzip_error as error:
                raise CodecError(f"gzip: {error}") from None
            if not member.eof:
                raise CodecError("gzip: cut short")
            whole = whole + made if whole else made
            rest = member.unused_data
            if len(rest) < 18 or bytes(rest[:2]) != b"\x1f\x8b":
                return whole

    def _open_gzip(self) -> None:
        try:
            from isal import isal_zlib

            self._gzip_object = _gzip_of(isal_zlib.decompressobj)
            self._gzip_error = isal_zlib.IsalError  # type: ignore[assignment]  # its stub takes the class for an instance
        except ImportError:
            import zlib

            self._gzip_object = _gzip_of(zlib.decompressobj)
            self._gzip_error = zlib.error

    def _inflate(self, member: Any, data: Buffer, limit: int) -> bytes | bytearray:
        if len(data) * _GZIP_BYTES_PER_BYTE <= limit:
            made: bytes = member.decompress(data)
            return made
        whole = bytearray()
        while True:
            piece = member.decompress(data, _CHUNK)
            whole += piece
            if len(whole) > limit:
                raise self._too_much()
            data = member.unconsumed_tail
            if member.eof or (not piece and not data):
                return whole

    def _snappy(self, data: Buffer, magic: int) -> bytes:
        """Decompress blocks in xerial's framing, or one bare block.  snappy-java: SnappyInputStream."""
        if len(data) < _XERIAL_HEADER or bytes(data[:8]) != _XERIAL_MAGIC:
            return self._snappy_block(data)
        made: list[bytes] = []
        total = 0
        at = _XERIAL_HEADER
        while len(data) - at >= 4:
            if bytes(data[at : at + 8]) == _XERIAL_MAGIC and len(data) - at >= _XERIAL_HEADER:
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
            raise CodecError(f"snappy: {error}") from None
        return made

    def _lz4(self, data: Buffer, magic: int) -> bytes:
        """Decompress one frame; what follows it is ignored.  Kafka: Lz4BlockInputStream."""
        import lz4.frame

        if self._lz4_context is None:
            self._lz4_context = lz4.frame.create_decompression_context()
        if magic == 0:
            data = self._with_right_checksum(data)
        lz4.frame.reset_decompression_context(self._lz4_context)
        try:
            made, _, ended = lz4.frame.decompress_chunk(self._lz4_context, data, max_length=self._lz4_room(len(data)))
        except RuntimeError as error:
            raise CodecError(f"lz4: {error}") from None
        if len(made) > self.limit or (not ended and len(made) == self.limit):
            raise self._too_much()
        if not ended:
            raise CodecError("lz4: cut short")
        return bytes(made)

    def _lz4_room(self, length: int) -> int:
        """-1: no limit is needed, since lz4 makes at most 255 bytes of one."""
        return -1 if 255 * length <= self.limit else self.limit

    def _with_right_checksum(self, data: Buffer) -> Buffer:
        """Return *data* with the header checksum that is right: Kafka's readers ignore it in message sets v0."""
        header = bytes(data[:14])
        if len(header) < 7 or header[:4] != _LZ4_MAGIC:
            return data
        end = 14 if header[4] & 0x08 else 6
        if len(data) <= end:
            return data
        right = self._lz4_headers.get(header[4:end])
        if right is None:
            right = self._lz4_headers[header[4:end]] = _xxh32_short(header[4:end]) >> 8 & 0xFF
        return data if data[end] == right else bytes(data[:end]) + bytes((right,)) + bytes(data[end + 1 :])

    def _zstd(self, data: Buffer, magic: int) -> bytes | bytearray:
        """Decompress all frames.  Kafka writes them without their content's size."""
        import zstandard

        if self._zstd_context is None:
            self._zstd_context = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        try:
            if len(data) * _ZSTD_BYTES_PER_BYTE <= self.limit or _zstd_bound(data) <= self.limit:
                return self._zstd_frames(data)
            return self._zstd_carefully(data)
        except zstandard.ZstdError as error:
            raise CodecError(f"zstd: {error}") from None

    def _zstd_frames(self, data: Buffer) -> bytes:
        made: list[bytes] = []
        while len(data):
            frame = self._zstd_context.decompressobj()
            made.append(frame.decompress(data))
            if not frame.eof:
                raise CodecError("zstd: cut short")
            data = frame.unused_data
        return made[0] if len(made) == 1 else b"".join(made)

    def _zstd_carefully(self, data: Buffer) -> bytearray:
        whole = bytearray()
        with self._zstd_context.stream_reader(data, read_across_frames=True) as reader:
            while piece := reader.read(_CHUNK):
                whole += piece
                if len(whole) > self.limit:
                    raise self._too_much()
        return whole


def _gzip_of(decompressobj: Callable[[int], Any]) -> Callable[[], Any]:
    return lambda: decompressobj(31)  # 31: the gzip format, largest window


def _zstd_bound(data: Buffer) -> int:
    """Return how many bytes the frames of *data* can yield at most; a huge number where their structure is broken.

    Adds up the blocks (RFC 8878): a raw or repeated block says its size, a compressed one holds at most 128 KiB.
    """
    bound = at = 0
    try:
        while at < len(data):
            if data[at + 1 : at + 4] == b"\x2a\x4d\x18" and data[at] >> 4 == 5:  # a frame to skip
                at += 8 + int.from_bytes(data[at + 4 : at + 8], "little")
                continue
            flags = data[at + 4]
            at += (
                5
                + (flags & 0x20 == 0)
                + (0, 1, 2, 4)[flags & 3]
                + (0 if flags >> 6 else flags >> 5 & 1, 2, 4, 8)[flags >> 6]
            )
            last = 0
            while not last:
                block = int.from_bytes(data[at : at + 3], "little") if at + 3 <= len(data) else data[len(data)]
                last, kind, size = block & 1, block >> 1 & 3, block >> 3
                bound += size if kind < 2 else 1 << 17
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
