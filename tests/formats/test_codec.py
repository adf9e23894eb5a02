"""Compression: every framing that Kafka reads, and a limit that nothing gets past."""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
import time
import tracemalloc
import weakref
import zlib
from collections.abc import Callable
from random import Random

import lz4.block
import pytest
import snappy
import zstandard
from klog.formats.codec import MAX_OUTPUT, CodecError, Compressor, Decompressor

from tests.oracles.plain import compress, decompress, streams
from tests.oracles.plain.compress import gzip_stream, lz4_stream, snappy_stream, zstd_stream
from tests.oracles.plain.xxh32 import xxh32

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
TEXT = b"to be or not to be, that is the question. " * 50
NOISE = Random(6).randbytes(3000)


def undo(codec: int, stream: bytes, *, magic: int = 2, limit: int = MAX_OUTPUT) -> bytes:
    return bytes(Decompressor(limit).functions[codec](memoryview(stream), magic))


@pytest.fixture(params=["isal", "zlib"])
def gzip_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both libraries that gzip is read with: isal where it is installed, else Python's own."""
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "isal", None)
    else:
        pytest.importorskip("isal")
    return str(request.param)


# whole streams


def test_every_framing_that_kafka_reads_is_read() -> None:
    """The same bytes as an independent reader makes of them, whether they come as bytes or as a view of a window."""
    for stream in streams.whole_streams():
        expected = decompress.decompress(stream.codec, stream.data, magic=stream.magic)
        decompressor = Decompressor()
        for data in (stream.data, bytearray(stream.data), memoryview(stream.data)):
            assert decompressor.functions[stream.codec](data, stream.magic) == expected, stream.codec


def test_one_decompressor_serves_many_batches() -> None:
    """Contexts are used again; neither a large stream nor a broken one may leave anything behind."""
    decompressor = Decompressor(1 << 20)
    for _ in range(3):
        for codec, name in enumerate(compress.CODECS):
            for data in (TEXT, NOISE, b"", bytes(1 << 19)):
                if name == "snappy" and not data:
                    continue
                assert decompressor.functions[codec](compress.compress(name, data), 2) == data
            if codec:
                with pytest.raises(CodecError):
                    decompressor.functions[codec](compress.compress(name, NOISE)[:-1], 2)
                with pytest.raises(CodecError):
                    decompressor.functions[codec](compress.compress(name, bytes(1 << 22)), 2)


@pytest.mark.parametrize("make", [Decompressor, Compressor])
def test_contexts_go_with_the_last_reference(make: type[Decompressor] | type[Compressor]) -> None:
    """A server makes one for each search: until the collector looks at a hundred thousand objects they would stay."""
    functions = make().functions
    owner = weakref.ref(functions[LZ4].__self__)  # type: ignore[attr-defined]  # they are methods
    assert owner() is not None
    gc.disable()
    try:
        del functions
        assert owner() is None
    finally:
        gc.enable()


def test_codecs_that_do_not_exist_are_an_error() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(CodecError, match="no such codec"):
            undo(codec, b"anything")


def test_uncompressed_is_what_it_is() -> None:
    assert undo(0, TEXT) == TEXT


# broken streams


CODECS = [(GZIP, "isal"), (GZIP, "zlib"), (SNAPPY, "isal"), (LZ4, "isal"), (ZSTD, "isal")]


@pytest.mark.parametrize(("codec", "gzip_library"), CODECS, indirect=["gzip_library"])
@pytest.mark.usefixtures("gzip_library")
def test_a_stream_cut_anywhere_is_read_or_refused_as_kafka_does(codec: int) -> None:
    """Never with fewer bytes than were written, unless Kafka gives these too."""
    for stream in streams.whole_streams():
        if stream.codec != codec or len(stream.data) > 400:
            continue
        for cut in range(len(stream.data)):
            assert outcome(codec, stream.data[:cut], stream.magic) == plain_outcome(
                codec, stream.data[:cut], stream.magic
            ), cut


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_stream_with_any_bit_of_its_beginning_turned_over(codec: int) -> None:
    """The framing is there: versions, flags, sizes, checksums."""
    for stream in streams.whole_streams():
        if stream.codec != codec or len(stream.data) > 400:
            continue
        for at in range(min(24, len(stream.data))):
            for bit in range(8):
                data = stream.data[:at] + bytes((stream.data[at] ^ 1 << bit,)) + stream.data[at + 1 :]
                expected = plain_outcome(codec, data, stream.magic)
                # isal takes sets of codes that zlib refuses
                if codec != GZIP or expected is not None:
                    assert outcome(codec, data, stream.magic) == expected, (at, bit, stream)


def outcome(codec: int, data: bytes, magic: int) -> bytes | None:
    try:
        return undo(codec, data, magic=magic)
    except CodecError:
        return None


def plain_outcome(codec: int, data: bytes, magic: int) -> bytes | None:
    try:
        return decompress.decompress(codec, data, magic=magic)
    except (decompress.BadStreamError, decompress.TooLargeError):
        return None


@pytest.mark.parametrize(("codec", "gzip_library"), CODECS[:-1], indirect=["gzip_library"])
@pytest.mark.usefixtures("gzip_library")
def test_nothing_at_all_is_no_stream(codec: int) -> None:
    with pytest.raises(CodecError):
        undo(codec, b"")


# limits

MAKERS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "gzip": (GZIP, gzip_stream),
    "gzip members": (GZIP, lambda data: gzip_stream(data, members=3)),
    "snappy": (SNAPPY, snappy_stream),
    "snappy raw": (SNAPPY, lambda data: snappy_stream(data, framed=False)),
    "lz4": (LZ4, lz4_stream),
    "lz4 4M": (LZ4, lambda data: lz4_stream(data, block_code=7)),
    "lz4 odd": (LZ4, lambda data: lz4_stream(data, content_size=True)),
    "zstd": (ZSTD, zstd_stream),
    "zstd sized": (ZSTD, lambda data: zstd_stream(data, content_size=True)),
    "zstd frames": (ZSTD, lambda data: zstd_stream(data, frames=3)),
}
# every maker, and those of gzip with either library
CASES = [(name, library) for name in MAKERS for library in ("isal", "zlib")[: 1 + name.startswith("gzip")]]


@pytest.mark.parametrize(("name", "gzip_library"), CASES, indirect=["gzip_library"])
@pytest.mark.usefixtures("gzip_library")
@pytest.mark.parametrize("size", [1000, 70_000, 300_000])
def test_the_limit_is_exact(name: str, size: int) -> None:
    """As many bytes as the limit are given, one more is refused; also of what hardly compresses."""
    codec, make = MAKERS[name]
    for data in (
        bytes(size),
        (NOISE * (size // len(NOISE) + 1))[:size],
        TEXT * (size // len(TEXT)) + bytes(size % len(TEXT)),
    ):
        stream = make(data)
        assert undo(codec, stream, limit=size) == data
        assert undo(codec, stream, limit=size + 1) == data
        for limit in (size - 1, size // 2, 1, 0):
            with pytest.raises(CodecError):
                undo(codec, stream, limit=limit)


@pytest.mark.parametrize(("name", "gzip_library"), CASES, indirect=["gzip_library"])
@pytest.mark.usefixtures("gzip_library")
def test_a_bomb_takes_little_memory_and_time(name: str) -> None:
    """32 MiB in some KiB, read with a limit of 1 MiB: no input may eat the machine."""
    codec, make = MAKERS[name]
    stream = make(bytes(32 << 20))
    tracemalloc.start()
    try:
        began = time.process_time()
        with pytest.raises(CodecError, match=r"max-batch-bytes|claim"):
            undo(codec, stream, limit=1 << 20)
        took = time.process_time() - began
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    assert took < 1


WITH_LITTLE_MEMORY = """
import os, resource, sys
from klog.formats.codec import Compressor, Decompressor
codec, size = int(sys.argv[1]), 96 << 20
packed = Compressor().functions[codec](bytes(size), 2)
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for more in (1, 2, 4, 16, 64, 100, 150, 200, 300):
    if not os.fork():
        resource.setrlimit(resource.RLIMIT_AS, (taken + (more << 20),) * 2)
        try:
            said = len(Decompressor().functions[codec](packed, 2)) == size
        except BaseException as error:
            said = type(error).__name__
        os.write(1, f"{said} ".encode())
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_without_memory_no_stream_is_called_broken(codec: int) -> None:
    """Some three times the content is enough, although the buffer of one library grows to many times of it."""
    run = [sys.executable, "-c", WITH_LITTLE_MEMORY, str(codec)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    said = subprocess.run(run, stdout=subprocess.PIPE, check=True, env=environment, timeout=120).stdout.split()
    assert len(said) == 9
    assert (said[0], said[-1]) == (b"MemoryError", b"True")
    assert set(said) == {b"MemoryError", b"True"}


def test_the_message_says_which_option_raises_the_limit() -> None:
    with pytest.raises(
        CodecError, match=r"more than 100 bytes when decompressed \(--max-batch-bytes raises the limit\)"
    ):
        undo(GZIP, gzip_stream(bytes(1000)), limit=100)


# gzip


@pytest.mark.usefixtures("gzip_library")
def test_gzip_members_without_end_are_refused_in_time() -> None:
    """Each costs a copy of the bytes behind it, and their number has a limit; no writer makes more than one."""
    empty = gzip_stream(b"")
    assert undo(GZIP, gzip_stream(b"first") + empty * 1023) == b"first"
    began = time.process_time()
    with pytest.raises(CodecError, match="members"):
        undo(GZIP, empty * 100_000)
    assert time.process_time() - began < 3


@pytest.mark.usefixtures("gzip_library")
@pytest.mark.parametrize(
    "tail", [b"\0", b"x" * 17, b"x" * 100, b"\x1f\x8b", b"\x1f\x8b\x08" + b"\0" * 7, b"\x1f\x8b\x07" + b"\0" * 40]
)
def test_garbage_behind_a_whole_gzip_member_is_ignored(tail: bytes) -> None:
    """Java's GZIPInputStream does; brokers have accepted such batches."""
    assert undo(GZIP, gzip_stream(TEXT) + tail) == TEXT


@pytest.mark.usefixtures("gzip_library")
def test_the_optional_parts_of_a_gzip_header_are_passed_over() -> None:
    body = gzip_stream(TEXT)[10:]
    extra = struct.pack("<H", 5) + b"extra"
    for flags, parts in (
        (4, extra),
        (8, b"name\0"),
        (16, b"comment\0"),
        (28, extra + b"name\0comment\0"),
        (1, b""),
        (0xE0, b""),
    ):
        head = b"\x1f\x8b\x08" + bytes((flags,)) + bytes(6) + parts
        assert undo(GZIP, head + body) == TEXT, flags
    head = b"\x1f\x8b\x08\x02" + bytes(6)
    good = struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    assert undo(GZIP, head + good + body) == TEXT


@pytest.mark.usefixtures("gzip_library")
@pytest.mark.parametrize("at", [-1, -5, -8, 20])
def test_gzip_content_that_does_not_fit_its_trailer_is_refused(at: int) -> None:
    stream = bytearray(gzip_stream(TEXT))
    stream[at] ^= 0xFF
    with pytest.raises(CodecError, match="gzip"):
        undo(GZIP, bytes(stream))


# snappy


def test_snappy_joined_streams_are_read_as_one() -> None:
    assert undo(SNAPPY, snappy_stream(TEXT) + snappy_stream(NOISE)) == TEXT + NOISE


def test_snappy_versions_mean_nothing_in_front_and_something_later() -> None:
    """snappy-java looks at the version only of a header that it meets on the way."""
    first, later = snappy_stream(TEXT), snappy_stream(NOISE)
    odd = first[:8] + struct.pack(">ii", 0, -1) + first[16:]
    assert undo(SNAPPY, odd) == TEXT
    with pytest.raises(CodecError, match="snappy"):
        undo(SNAPPY, first + later[:8] + struct.pack(">ii", 0, 1) + later[16:])


@pytest.mark.parametrize("length", [0, -1, -(2**31), 2**31 - 1, 10_000])
def test_snappy_block_lengths_that_cannot_be_are_refused(length: int) -> None:
    with pytest.raises(CodecError, match="snappy"):
        undo(SNAPPY, compress.XERIAL_MAGIC + struct.pack(">iii", 1, 1, length) + bytes(50))


def test_snappy_blocks_that_claim_what_no_block_can_hold_are_refused() -> None:
    """Before memory is allocated for them."""
    tracemalloc.start()
    try:
        for claim in (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"):
            with pytest.raises(CodecError, match="claim"):
                undo(SNAPPY, claim + b"\0" * 100)
        with pytest.raises(CodecError, match="no length"):
            undo(SNAPPY, b"\x80" * 100)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_three_bytes_behind_the_last_snappy_block_are_ignored() -> None:
    """Fewer than a length: the reader is at its end."""
    for tail in (b"", b"\0", b"\0\0\0"):
        assert undo(SNAPPY, snappy_stream(TEXT) + tail) == TEXT


def test_a_snappy_stream_shorter_than_its_header_is_a_raw_block() -> None:
    block = bytes(snappy.compress(b"raw"))
    assert undo(SNAPPY, block) == b"raw"
    with pytest.raises(CodecError):
        undo(SNAPPY, snappy_stream(b"")[:15])


# lz4


def frame(
    flags: int, *, sizes: int = 0x40, extra: bytes = b"", blocks: bytes | None = None, end: bytes = bytes(4)
) -> bytes:
    """Return an lz4 frame with a header of any kind whose checksum holds, by default around one block of TEXT."""
    head = bytes((flags, sizes)) + extra
    packed = lz4.block.compress(TEXT, store_size=False)
    content = struct.pack("<I", len(packed)) + packed if blocks is None else blocks
    return compress.LZ4_MAGIC + head + bytes((xxh32(head) >> 8 & 0xFF,)) + content + end


@pytest.mark.parametrize("flags", [0x40, 0x61, 0x62, 0x20, 0xA0, 0xE0])
def test_lz4_frames_of_a_kind_that_kafka_refuses_are_refused(flags: int) -> None:
    """Linked blocks, a dictionary, reserved bits, another version: the library would take some of them."""
    with pytest.raises(CodecError):
        undo(LZ4, frame(flags, extra=bytes(4) if flags & 1 else b""))


@pytest.mark.parametrize("sizes", [0x00, 0x30, 0x41, 0x4F, 0xC0])
def test_lz4_block_sizes_that_do_not_exist_are_refused(sizes: int) -> None:
    with pytest.raises(CodecError):
        undo(LZ4, frame(0x60, sizes=sizes))


def test_lz4_checks_of_the_content_are_not_made() -> None:
    """Kafka reads past the content's size and checksum, right or wrong; it needs the checksum's bytes."""
    assert undo(LZ4, frame(0x68, extra=struct.pack("<Q", 5))) == TEXT
    assert undo(LZ4, frame(0x64, end=bytes(4) + b"\xde\xad\xbe\xef")) == TEXT
    with pytest.raises(CodecError):
        undo(LZ4, frame(0x64, end=bytes(7)))


def test_lz4_an_empty_block_of_either_kind_ends_the_frame() -> None:
    """The bytes behind the end are not read, even if they are another frame."""
    assert undo(LZ4, frame(0x60, end=struct.pack("<I", 0x80000000))) == TEXT
    assert undo(LZ4, frame(0x60) + b"anything") == TEXT
    assert undo(LZ4, frame(0x60) + frame(0x60)) == TEXT


def test_lz4_block_checksums_must_hold() -> None:
    good = lz4_stream(TEXT, block_checksum=True)
    assert undo(LZ4, good) == TEXT
    bad = bytearray(good)
    bad[-8] ^= 1
    with pytest.raises(CodecError, match="lz4"):
        undo(LZ4, bytes(bad))


@pytest.mark.parametrize("name", ["usual", "odd"])
def test_lz4_a_wrong_header_checksum_counts_except_in_the_oldest_format(name: str) -> None:
    """Kafka 0.8 and 0.9 computed it over the wrong bytes; their messages, of magic 0, are on disks still."""
    right, wrong = (
        lz4_stream(TEXT, broken_header_checksum=broken, content_size=name == "odd") for broken in (False, True)
    )
    for stream in (right, wrong):
        assert undo(LZ4, stream, magic=0) == TEXT
    for magic in (1, 2):
        assert undo(LZ4, right, magic=magic) == TEXT
        with pytest.raises(CodecError):
            undo(LZ4, wrong, magic=magic)


def test_lz4_a_block_may_not_be_larger_than_its_frame_says() -> None:
    big = bytes(70_000)
    raw = struct.pack("<I", len(big) | 1 << 31) + big
    assert undo(LZ4, frame(0x60, sizes=0x50, blocks=raw)) == big
    with pytest.raises(CodecError):
        undo(LZ4, frame(0x60, blocks=raw))
    packed = lz4.block.compress(big, store_size=False)
    with pytest.raises(CodecError):
        undo(LZ4, frame(0x60, blocks=struct.pack("<I", len(packed)) + packed))


def test_lz4_stored_blocks_are_read() -> None:
    assert undo(LZ4, frame(0x60, blocks=struct.pack("<I", 5 | 1 << 31) + b"plain")) == b"plain"


# zstd


def test_zstd_frames_and_skippable_frames_are_read_in_a_row() -> None:
    skip = struct.pack("<II", 0x184D2A5F, 3) + b"xyz"
    assert undo(ZSTD, zstd_stream(TEXT) + skip + zstd_stream(NOISE) + skip) == TEXT + NOISE
    assert undo(ZSTD, b"") == b""


@pytest.mark.parametrize("limit", [MAX_OUTPUT, 10_000])
@pytest.mark.parametrize("tail", [b"\0", b"garbage", b"\x28\xb5\x2f\xfd"])
def test_zstd_nothing_else_may_follow(tail: bytes, limit: int) -> None:
    with pytest.raises(CodecError, match="zstd"):
        undo(ZSTD, zstd_stream(TEXT) + tail, limit=limit)


@pytest.mark.parametrize("limit", [MAX_OUTPUT, 4000])
def test_zstd_content_that_does_not_fit_its_checksum_is_refused(limit: int) -> None:
    stream = bytearray(zstd_stream(TEXT, checksum=True))
    assert undo(ZSTD, bytes(stream), limit=limit) == TEXT
    stream[-1] ^= 1
    with pytest.raises(CodecError, match="zstd"):
        undo(ZSTD, bytes(stream), limit=limit)


@pytest.mark.parametrize("size", [len(TEXT), 0, 1, len(TEXT) - 1, len(TEXT) + 1, 1 << 17, 1 << 40])
def test_zstd_the_size_that_a_frame_says_is_no_reason_to_trust_it(size: int) -> None:
    """A frame with its size is decompressed at once into so much memory: no byte more, and none is made up."""
    stream = zstd_stream(TEXT)
    flags, blocks = stream[4], stream[6:]
    assert flags >> 5 == 0, "this frame has a window and no size"
    told = stream[:4] + bytes((flags | 0xC0,)) + stream[5:6] + size.to_bytes(8, "little") + blocks
    if size == len(TEXT):
        assert undo(ZSTD, told) == TEXT
        assert undo(ZSTD, told + told) == TEXT + TEXT
    else:
        with pytest.raises(CodecError, match="zstd"):
            undo(ZSTD, told)
    with pytest.raises(CodecError, match=r"more than|zstd"):
        undo(ZSTD, told, limit=len(TEXT) - 1)


def test_zstd_a_window_beyond_128_mib_is_refused() -> None:
    """Its memory would be taken before the first byte is made."""
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=28, write_content_size=0)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    stream = packer.compress(TEXT) + packer.flush()
    with pytest.raises(CodecError, match="zstd"):
        undo(ZSTD, stream)


def test_zstd_frames_without_end_are_refused_in_time() -> None:
    frames = zstd_stream(b"") * 100_000
    began = time.process_time()
    with pytest.raises(CodecError, match="frames"):
        undo(ZSTD, frames)
    assert time.process_time() - began < 3


@pytest.mark.parametrize("limit", [1, 3000, 100_000])
def test_zstd_in_slices_reads_what_it_reads_at_once(limit: int) -> None:
    """The careful way is taken where little input could make much; it must not lose or double anything at its seams."""
    for data in (TEXT, NOISE, bytes(90_000), TEXT * 40):
        for stream in (
            zstd_stream(data),
            zstd_stream(data, frames=5, skippable=b"s" * 300),
            zstd_stream(data, checksum=True),
        ):
            if len(data) <= limit:
                assert undo(ZSTD, stream, limit=limit) == data
            else:
                with pytest.raises(CodecError, match="more than"):
                    undo(ZSTD, stream, limit=limit)


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_thousand_small_frames_cost_no_copies_of_what_follows(codec: int) -> None:
    """A batch of 120 MB took a minute: each of its members copied the rest."""
    large = bytes(48 << 20)
    if codec == GZIP:
        stream = gzip_stream(b"") * 1000 + gzip_stream(b"x") + large
    else:
        stream = zstd_stream(b"") * 1000 + zstd_stream(b"x") + struct.pack("<II", 0x184D2A50, len(large)) + large
    start = time.process_time()
    assert undo(codec, stream) == b"x"
    assert time.process_time() - start < 1.5


@pytest.mark.parametrize("limit", [1000, MAX_OUTPUT])
def test_members_of_any_size_follow_one_another(gzip_library: str, limit: int) -> None:
    """Later members are read in pieces, which end anywhere."""
    parts = [NOISE[:size] for size in (0, 1, 300)] + [NOISE * 60, bytes(3 << 20), b"", TEXT]
    stream = b"".join(gzip_stream(part) for part in parts)
    if limit == MAX_OUTPUT:
        assert undo(GZIP, stream) == b"".join(parts)
        assert undo(GZIP, stream + b"\x1f\x8bgarbage") == b"".join(parts)
        with pytest.raises(CodecError, match="cut short"):
            undo(GZIP, stream[:-9])
    else:
        with pytest.raises(CodecError, match="more than 1000 bytes"):
            undo(GZIP, stream, limit=limit)
