"""Write the benchmark's segments: ``generate.py FOLDER SCALE``, run by the peers' interpreter.

The batches are encoded by aiokafka, which shares no code with klog.  Encoding all of it would take minutes.  For
each corpus one piece of 64 MiB (about 32 MiB of single-record and of compressed batches) is therefore encoded, and the
file is that piece over and over with offsets and timestamps moved on and the CRC put right.  A piece is far larger than
the view of a branch predictor or a codec (a batch is compressed on its own), and neither finds the repetition.

Beside each segment are the indexes that a broker would have written (one entry after more than 4096 bytes), and
``first/NAME-0`` holds its first batch alone: enough for a program to start.  SCALE divides all sizes.
"""

from __future__ import annotations

import os
import random
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder

MIB = 1 << 20
FIRST_TIMESTAMP_MS = 1_795_000_000_000
INDEX_INTERVAL_BYTES = 4096
LEADER_EPOCH = 4  # a broker stamps one on every batch; aiokafka, being a client, leaves -1
FILE_NAME = "0" * 20
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
EVENTS = (b"click", b"view", b"purchase", b"scroll", b"login", b"logout", b"search")

Record = tuple[int, bytes, bytes]  # timestamp in ms, key, value


@dataclass(frozen=True)
class Batch:
    """An encoded batch whose offsets count from the start of its piece."""

    data: bytes
    first_offset: int
    records: int


def small_records(seed: int) -> Iterator[Record]:
    """Yield records of about 97 bytes on disk: a key of 16 digits, a value of JSON."""
    draw = random.Random(seed)
    timestamp_ms = FIRST_TIMESTAMP_MS
    for number in range(1 << 40):
        bits = draw.getrandbits(84)
        timestamp_ms += bits & 3
        value = b'{"user":%d,"e":"%s","p":"/p/%d","ms":%d,"s":"%06x"}' % (
            (bits >> 2 & 0xFFFFF) % 1_000_000,
            EVENTS[number % 7],
            (bits >> 22 & 0x3FF) % 500,
            timestamp_ms,
            bits >> 60,
        )
        yield timestamp_ms, b"%016d" % ((bits >> 32 & 0xFFFFF) % 1_000_000), value


def large_records(seed: int) -> Iterator[Record]:
    """Yield records with a value of 1000 bytes of JSON: some forty short fields, so quotes are dense."""
    draw = random.Random(seed)
    timestamp_ms = FIRST_TIMESTAMP_MS
    while True:
        digits = b"%0640x" % draw.getrandbits(40 * 64)
        fields = b",".join(b'"f%d":"%s"' % (i, digits[16 * i : 16 * i + 16]) for i in range(40))
        timestamp_ms += 1
        yield timestamp_ms, b"%016d" % draw.randrange(1_000_000), b"{" + fields[:998] + b"}"


def grouped(records: Iterable[Record], batch_bytes: int, total_bytes: int) -> Iterator[list[Record]]:
    """Yield the records of one batch after another until *total_bytes* of plain batches are full."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, batch_bytes)
    group: list[Record] = []
    written = 0
    for record in records:
        if builder.append(len(group), *record, []) is None:
            written += builder.size()
            yield group
            if written >= total_bytes:
                return
            builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, batch_bytes)
            builder.append(0, *record, [])
            group = []
        group.append(record)


def encoded(groups: Iterable[list[Record]], codec: int) -> Iterator[Batch]:
    """Yield each group as a batch that aiokafka encoded."""
    offset = 0
    for group in groups:
        builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 30)
        for delta, record in enumerate(group):
            builder.append(delta, *record, [])
        yield Batch(bytes(builder.build()), offset, len(group))
        offset += len(group)


class Partition:
    """A partition directory with one segment, appended to as a broker does.  Kafka: LogSegment.append."""

    def __init__(self, folder: str) -> None:
        os.makedirs(folder)
        with open(os.path.join(folder, "leader-epoch-checkpoint"), "w", encoding="ascii") as file:
            file.write(f"0\n1\n{LEADER_EPOCH} 0\n")
        self._base = os.path.join(folder, FILE_NAME)
        self._log = open(self._base + ".log", "wb", buffering=MIB)  # noqa: SIM115 - closed in close()
        self._offsets = bytearray()
        self._times = bytearray()
        self._since_entry = 0
        self._newest = (-1, 0)
        self._last_time_entry_ms = -1
        self.position = 0
        self.cuts = [0]

    def append(self, data: memoryview, last_offset: int, max_timestamp_ms: int) -> None:
        """Write one batch and, if it is due, the index entries before it."""
        self._newest = max(self._newest, (max_timestamp_ms, last_offset))
        if self._since_entry > INDEX_INTERVAL_BYTES:
            self._offsets += struct.pack(">ii", last_offset, self.position)
            self._add_time_entry()
            self._since_entry = 0
        self._log.write(data)
        self.position += len(data)
        self._since_entry += len(data)
        if self.position - self.cuts[-1] >= 4 * MIB:
            self.cuts.append(self.position)

    def _add_time_entry(self) -> None:
        timestamp_ms, offset = self._newest
        if timestamp_ms > self._last_time_entry_ms:
            self._times += struct.pack(">qi", timestamp_ms, offset)
            self._last_time_entry_ms = timestamp_ms

    def close(self) -> None:
        """Write the indexes, and the positions at which the file may be cut into windows of about 4 MiB."""
        self._log.close()
        self._add_time_entry()
        for ending, content in ((".index", self._offsets), (".timeindex", self._times)):
            with open(self._base + ending, "wb") as file:
                file.write(content)
        if self.cuts[-1] != self.position:
            self.cuts.append(self.position)
        with open(os.path.join(os.path.dirname(self._base), "windows"), "w", encoding="ascii") as file:
            file.write(" ".join(map(str, self.cuts)))


def write(folder: str, piece: list[Batch], total_bytes: int) -> None:
    """Write a partition of at least *total_bytes* by repeating *piece* with everything that counts moved on."""
    partition = Partition(folder)
    batches = [(bytearray(batch.data), batch.first_offset, batch.records) for batch in piece]
    records = piece[-1].first_offset + piece[-1].records
    first_ms, max_ms = struct.unpack_from(">qq", piece[-1].data, 27)
    span_ms = max_ms + 1 - FIRST_TIMESTAMP_MS
    turn = 0
    while partition.position < total_bytes:
        for data, first_offset, count in batches:
            base_offset = turn * records + first_offset
            first_ms, max_ms = struct.unpack_from(">qq", data, 27)
            if turn:
                first_ms, max_ms = first_ms + span_ms, max_ms + span_ms
                struct.pack_into(">qq", data, 27, first_ms, max_ms)
            struct.pack_into(">q", data, 0, base_offset)
            struct.pack_into(">i", data, 12, LEADER_EPOCH)
            view = memoryview(data)
            struct.pack_into(">I", data, 17, crc32c.crc32c(view[21:]))
            partition.append(view, base_offset + count - 1, max_ms)
            if partition.position >= total_bytes:
                break
        turn += 1
    partition.close()


def write_many(root: str, partitions: int, piece: list[Batch]) -> None:
    """Write a log dir of so many partitions, each of four small segments with their indexes."""
    os.makedirs(root)
    with open(os.path.join(root, "meta.properties"), "w", encoding="ascii") as file:
        file.write("version=0\nbroker.id=1\n")
    with open(os.path.join(root, ".kafka_cleanshutdown"), "w", encoding="ascii"):
        pass
    files: dict[str, bytes] = {"leader-epoch-checkpoint": f"0\n1\n{LEADER_EPOCH} 0\n".encode()}
    for start in range(0, 40, 10):
        log = b""
        for offset in range(start, start + 10):
            data = bytearray(piece[offset].data)
            struct.pack_into(">q", data, 0, offset)
            struct.pack_into(">i", data, 12, LEADER_EPOCH)
            log += data
        newest = max(
            (struct.unpack_from(">q", piece[offset].data, 35)[0], start - offset) for offset in range(start, start + 10)
        )
        files[f"{start:020}.log"] = log
        files[f"{start:020}.index"] = b""
        files[f"{start:020}.timeindex"] = struct.pack(">qi", newest[0], -newest[1])
    for number in range(partitions):
        folder = os.path.join(root, f"topic{number // 50}-{number % 50}")
        os.mkdir(folder)
        for name, content in files.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)


def make(root: str, scale: int) -> None:
    """Write every corpus under *root*."""
    piece_bytes = 64 * MIB // min(scale, 4)
    groups = list(grouped(small_records(1), 16384, piece_bytes))
    plain = list(encoded(groups, 0))
    write(f"{root}/plain-0", plain, 256 * MIB // scale)
    write(f"{root}/first/plain-0", plain[:1], 1)
    write(f"{root}/topic-0", plain, 1024 * MIB // scale)
    compressed_groups = groups[: len(groups) // 2]
    for name, codec in CODECS.items():
        piece = list(encoded(compressed_groups, codec))
        share = sum(len(batch.data) for batch in piece) / sum(len(batch.data) for batch in plain[: len(piece)])
        write(f"{root}/{name}-0", piece, int(256 * MIB * share) // scale)
        write(f"{root}/first/{name}-0", piece[:1], 1)
    large = list(encoded(grouped(large_records(2), MIB, piece_bytes), 0))
    write(f"{root}/large-0", large, 256 * MIB // scale)
    write(f"{root}/first/large-0", large[:1], 1)
    singles = ([record] for group in grouped(small_records(3), 16384, piece_bytes // 3) for record in group)
    single = list(encoded(singles, 0))
    write(f"{root}/single-0", single, 256 * MIB // scale)
    write(f"{root}/quarter-0", single, 64 * MIB // scale)
    write(f"{root}/first/single-0", single[:1], 1)
    write_many(f"{root}/many", 5000 // scale, single)
    # Kafka's own check of a time index is quadratic: at the size of the others it would take an hour.
    write(f"{root}/tiny-0", single, MIB)
    write(f"{root}/tiny-1", single, 4 * MIB)


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]))
