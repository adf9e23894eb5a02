"""Write the log dirs of the job about compaction: ``compactdirs.py CORPORA FOLDER``, run by the peers' interpreter.

    plain, single, gzip, snappy, lz4, zstd
                    one partition each of four closed segments, every one the corpus of that name with its offsets
                    moved on, and an active segment of one batch; plain: half a million keys
    start           the same of one batch a segment
    pair            two partitions, each as plain
    unique          as plain, but hardly two records have the same key
    transactions    as single, but all in transactions of twenty batches, of five producers
    small           five thousand partitions of four small segments

A batch's base offset is outside of its checksum, and indexes count from their segment's.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys
from collections.abc import Callable, Iterator

import crc32c
from logdirs import BASE, BATCH_HEAD, EPOCHS, LAST_DELTA, log_dir, moved

SEGMENTS = 4
PRODUCERS = 5
BATCHES = 20
HEADER_BYTES = 61
INDEX_INTERVAL_BYTES = 4096
TRANSACTIONAL, CONTROL = 0x10, 0x20
COMMIT = bytes((32, 0, 0, 0, 8)) + bytes((0, 0, 0, 1)) + bytes((12,)) + bytes(6) + bytes((0,))


def batches(log: bytearray) -> Iterator[memoryview]:
    """Yield the batches of *log*, writable."""
    view, position = memoryview(log), 0
    while position < len(log):
        size = BATCH_HEAD.size + BATCH_HEAD.unpack_from(log, position)[1]
        yield view[position : position + size]
        position += size


def seal(batch: memoryview) -> None:
    """Put the checksum of *batch* right."""
    struct.pack_into(">I", batch, 17, crc32c.crc32c(batch[21:]))


def same(log: bytearray) -> bytearray:
    """Leave *log* as it is."""
    return log


class Unique:
    """Gives the keys of each batch a beginning of their own; they are of 16 digits, ten of them zeros."""

    def __init__(self) -> None:
        self._number = 0

    def __call__(self, log: bytearray) -> bytearray:
        made = bytearray()
        for batch in batches(log):
            self._number += 1
            made += batch[:HEADER_BYTES]
            made += bytes(batch[HEADER_BYTES:]).replace(b"0" * 10, b"%010d" % (self._number + 10**9))
            seal(memoryview(made)[-len(batch) :])
        return made


def transactional(log: bytearray) -> bytearray:
    """Put all batches into transactions, which end with a marker each."""
    made, offset = bytearray(), 0
    for number, batch in enumerate(batches(log)):
        producer = number // BATCHES % PRODUCERS
        records = struct.unpack_from(">i", batch, 57)[0]
        struct.pack_into(">q", batch, 0, offset)
        struct.pack_into(">h", batch, 21, TRANSACTIONAL)
        struct.pack_into(">qhi", batch, 43, producer, 0, number)
        seal(batch)
        made += batch
        offset += records
        if number % BATCHES == BATCHES - 1:
            made += marker(bytes(batch[:HEADER_BYTES]), offset)
            offset += 1
    return made


def marker(header: bytes, offset: int) -> bytearray:
    """Return the marker that commits the transaction of the batch with this *header*."""
    batch = bytearray(header) + COMMIT
    struct.pack_into(">qi", batch, 0, offset, len(batch) - BATCH_HEAD.size)
    struct.pack_into(">hi", batch, 21, TRANSACTIONAL | CONTROL, 0)
    struct.pack_into(">ii", batch, 53, -1, 1)
    seal(memoryview(batch))
    return batch


def snapshot(folder: str) -> None:
    """Write the producers' state where the active segment begins, as a broker does when it rolls one."""
    base = int(max(name for name in os.listdir(folder) if name.endswith(".log"))[:20])
    entry = struct.Struct(">qhiqiqiq")
    entries = b"".join(entry.pack(one, 0, 0, base - 2, 0, 1_795_000_000_000, 0, -1) for one in range(PRODUCERS))
    content = struct.pack(">i", PRODUCERS) + entries
    with open(os.path.join(folder, f"{base:020}.snapshot"), "wb") as file:
        file.write(struct.pack(">hI", 1, crc32c.crc32c(content)) + content)


def indexes(log: bytearray, base: int) -> tuple[bytes, bytes]:
    """Return the offset and time index of *log*, whose timestamps ascend: an entry after more than 4096 bytes."""
    offsets, times, position, entered, timed, newest = bytearray(), bytearray(), 0, 0, -1, (-1, 0)
    for batch in batches(log):
        offset = BATCH_HEAD.unpack_from(batch)[0] + LAST_DELTA.unpack_from(batch, 23)[0] - base
        newest = max(newest, (struct.unpack_from(">q", batch, 35)[0], -offset))
        if position - entered > INDEX_INTERVAL_BYTES:
            offsets += struct.pack(">ii", offset, position)
            if newest[0] > timed:
                times += struct.pack(">qi", newest[0], -newest[1])
                timed = newest[0]
            entered = position
        position += len(batch)
    if newest[0] > timed:
        times += struct.pack(">qi", newest[0], -newest[1])
    return bytes(offsets), bytes(times)


def closed_and_active(source: str, folder: str, change: Callable[[bytearray], bytearray] = same) -> None:
    """Write *SEGMENTS* segments with the content of *source*, and one of a single batch."""
    shutil.copy(os.path.join(source, EPOCHS), folder)
    with open(os.path.join(source, f"{BASE}.log"), "rb") as file:
        log = bytearray(file.read())
    base = 0
    for number in range(SEGMENTS + 1):
        segment = change(bytearray(log))
        if number == SEGMENTS:
            segment = segment[: len(next(batches(segment)))]
        end = moved(segment, base)
        with open(os.path.join(folder, f"{base:020}.log"), "wb") as file:
            file.write(segment)
        for ending, content in zip(("index", "timeindex"), indexes(segment, base), strict=True):
            with open(os.path.join(folder, f"{base:020}.{ending}"), "wb") as file:
                file.write(content)
        base = end


def finish(path: str) -> None:
    """Record a clean stop of the broker, and complete replication: high watermarks are the ends.

    A broker treats a partition without its topic id as a stray one.
    """
    ends = {}
    for entry in os.scandir(path):
        if entry.is_dir():
            with open(os.path.join(entry.path, "partition.metadata"), "w", encoding="ascii") as file:
                file.write("version: 0\ntopic_id: abcdefghijklmnopqrstuw\n")
            last = max(name for name in os.listdir(entry.path) if name.endswith(".log"))
            with open(os.path.join(entry.path, last), "rb") as file:
                ends[entry.name] = moved(bytearray(file.read()), 0)
    lines = [f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} {end}\n" for name, end in sorted(ends.items())]
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        with open(os.path.join(path, name), "w", encoding="ascii") as file:
            file.write(f"0\n{len(lines)}\n{''.join(lines)}")
    with open(os.path.join(path, ".kafka_cleanshutdown"), "w", encoding="ascii"):
        pass


def make(corpora: str, root: str) -> None:
    """Write every log dir under *root*."""
    for name in ("plain", "single", "gzip", "snappy", "lz4", "zstd"):
        closed_and_active(os.path.join(corpora, f"{name}-0"), log_dir(os.path.join(root, name), f"{name}-0"))
    closed_and_active(os.path.join(corpora, "first", "plain-0"), log_dir(os.path.join(root, "start"), "start-0"))
    for number in range(2):
        folder = os.path.join(root, "pair", f"pair-{number}")
        shutil.copytree(os.path.join(root, "plain", "plain-0"), folder, copy_function=os.link)
    shutil.copy(os.path.join(root, "plain", "meta.properties"), os.path.join(root, "pair"))
    closed_and_active(os.path.join(corpora, "plain-0"), log_dir(os.path.join(root, "unique"), "unique-0"), Unique())
    folder = log_dir(os.path.join(root, "transactions"), "transactions-0")
    closed_and_active(os.path.join(corpora, "single-0"), folder, transactional)
    snapshot(folder)
    shutil.copytree(os.path.join(corpora, "many"), os.path.join(root, "small"), copy_function=os.link)
    for name in os.listdir(root):
        finish(os.path.join(root, name))


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2])
