"""Write the log dirs of the job about recovery: ``logdirs.py CORPORA FOLDER SCALE``.

    plain, single   one partition each of four segments, every one the corpus of that name with its offsets moved on
    bare            the segments of plain by a second name, without an index
    thousands       one partition of ten thousand segments: wrong offset indexes, no time indexes, and five thousand
                    offset indexes of no log

None has the marker of a clean stop.  A batch's base offset is outside of its checksum, and indexes count from their
segment's: so a segment can be used again.
"""

from __future__ import annotations

import os
import shutil
import struct
import sys

SEGMENTS = 4
THOUSANDS = 10_000
BASE = "0" * 20
BATCH_HEAD = struct.Struct(">qi")
LAST_DELTA = struct.Struct(">i")
EPOCHS = "leader-epoch-checkpoint"


def log_dir(path: str, partition: str) -> str:
    """Make a log dir that no broker has stopped cleanly; return the directory of its one partition."""
    folder = os.path.join(path, partition)
    os.makedirs(folder)
    with open(os.path.join(path, "meta.properties"), "w", encoding="ascii") as file:
        file.write("version=0\nbroker.id=1\n")
    return folder


def moved(log: bytearray, by: int) -> int:
    """Add *by* to the base offset of every batch; return the offset after the last."""
    position = offset = 0
    while position < len(log):
        base, length = BATCH_HEAD.unpack_from(log, position)
        struct.pack_into(">q", log, position, base + by)
        offset = base + by + LAST_DELTA.unpack_from(log, position + 23)[0] + 1
        position += BATCH_HEAD.size + length
    return offset


def repeat(source: str, folder: str) -> None:
    """Write *SEGMENTS* segments with the content of *source*."""
    shutil.copy(os.path.join(source, EPOCHS), folder)
    with open(os.path.join(source, f"{BASE}.log"), "rb") as file:
        log = bytearray(file.read())
    base = by = 0
    for _ in range(SEGMENTS):
        end = moved(log, by)
        with open(os.path.join(folder, f"{base:020}.log"), "wb") as file:
            file.write(log)
        for ending in ("index", "timeindex"):
            shutil.copy(os.path.join(source, f"{BASE}.{ending}"), os.path.join(folder, f"{base:020}.{ending}"))
        by, base = end - base, end


def without_indexes(source: str, folder: str) -> None:
    """Give the logs of *source* second names, so that both are read from the same pages."""
    shutil.copy(os.path.join(source, EPOCHS), folder)
    for name in os.listdir(source):
        if name.endswith(".log"):
            os.link(os.path.join(source, name), os.path.join(folder, name))


def thousands(source: str, folder: str, count: int) -> None:
    """Write *count* segments of two batches, with faults of their indexes."""
    shutil.copy(os.path.join(source, EPOCHS), folder)
    with open(os.path.join(source, f"{BASE}.log"), "rb") as file:
        log = bytearray(file.read(1 << 16))
    size = 0
    for _ in range(2):
        size += BATCH_HEAD.size + BATCH_HEAD.unpack_from(log, size)[1]
    del log[size:]
    base = by = 0
    for number in range(count):
        end = moved(log, by)
        stem = os.path.join(folder, f"{base:020}")
        with open(f"{stem}.log", "wb") as file:
            file.write(log)
        with open(f"{stem}.index", "wb") as file:
            file.write(struct.pack(">ii", 1, size + 1))
        if number % 2:
            with open(os.path.join(folder, f"{base + 1:020}.index"), "wb") as file:
                file.write(struct.pack(">ii", 1, 1))
        by, base = end - base, end


def make(corpora: str, root: str, scale: int) -> None:
    """Write every log dir under *root*."""
    for name in ("plain", "single"):
        repeat(os.path.join(corpora, f"{name}-0"), log_dir(os.path.join(root, name), f"{name}-0"))
    without_indexes(os.path.join(root, "plain/plain-0"), log_dir(os.path.join(root, "bare"), "plain-0"))
    folder = log_dir(os.path.join(root, "thousands"), "thousands-0")
    thousands(os.path.join(corpora, "plain-0"), folder, THOUSANDS // scale)


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2], int(sys.argv[3]))
