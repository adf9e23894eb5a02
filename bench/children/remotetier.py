"""Lay a segment into remote storage: ``remotetier.py FOLDER LOG COUNT LIMIT [CHUNK]``.

Below FOLDER it makes ``tier`` with *COUNT* segments of partition ``topic-0``, which are LOG, or the batches that begin
in its first LIMIT bytes, again and again at later offsets; ``data``, the log dir of its broker, which has only
``__remote_log_metadata`` and an empty local log; and ``local/topic-0``, the same segments as a local log.  With CHUNK
(bytes) ``aiven`` is another tier, in chunks with zstd.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

from tests.oracles.plain.encode import Record, batch, snapshot
from tests.support.aiven_writer import segment as chunked
from tests.support.remote_log_values import Whose, started, updated, uuid

EPOCH = 4
WHOSE = Whose("topic", 0, uuid(7))


def copy_moved(log: Path, target: Path, base: int, limit: int) -> tuple[int, int]:
    """Copy a log with all of its offsets moved by *base*, which no checksum covers; return its end and largest time."""
    end, largest = base, -1
    with open(log, "rb") as source, open(target, "wb") as file:
        while file.tell() < limit and (header := source.read(61)):
            offset, length = struct.unpack_from(">qi", header)
            delta, _, timestamp = struct.unpack_from(">iqq", header, 23)
            file.write(struct.pack(">q", offset + base) + header[8:] + source.read(length + 12 - 61))
            end, largest = offset + base + delta + 1, max(largest, timestamp)
    return end, largest


def indexes(log: Path, size: int, offsets: int, largest: int) -> dict[str, bytes]:
    """Return the indexes of a log that has only *size* bytes and so many *offsets* of it."""
    entries = struct.iter_unpack(">ii", log.with_suffix(".index").read_bytes())
    times = struct.iter_unpack(">qi", log.with_suffix(".timeindex").read_bytes())
    kept = [entry for entry in times if entry[1] < offsets]
    kept += [(largest, offsets - 1)] if kept[-1][0] < largest else []
    return {
        "index": b"".join(struct.pack(">ii", *entry) for entry in entries if entry[1] < size),
        "timeindex": b"".join(struct.pack(">qi", *entry) for entry in kept),
    }


def main() -> None:
    """Make the directories."""
    folder, log, count, limit = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    chunk = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    objects = folder / f"tier/kafka-tiered-storage/topic-0-{WHOSE.topic_id}"
    plain, aiven = folder / "local/topic-0", folder / f"aiven/topic-{WHOSE.topic_id}/0"
    for place in (objects, plain, *([aiven] if chunk else [])):
        place.mkdir(parents=True)
    base, values = 0, []
    for number in range(count):
        segment_id = uuid(100 + number)
        stem = objects / f"{base:020}-{segment_id}"
        end, largest = copy_moved(log, Path(f"{stem}.log"), base, limit)
        parts = {
            **indexes(log, os.path.getsize(f"{stem}.log"), end - base, largest),
            "leader_epoch_checkpoint": f"0\n1\n{EPOCH} 0\n".encode(),
            "snapshot": snapshot(()),
        }
        for kind, content in parts.items():
            Path(f"{stem}.{kind}").write_bytes(content)
        for kind in ("log", "index", "timeindex"):
            os.link(f"{stem}.{kind}", plain / f"{base:020}.{kind}")
        size = os.path.getsize(f"{stem}.log")
        facts = (segment_id, base, end - 1, {EPOCH: base})
        values.append(started(*facts, whose=WHOSE, size=size, max_timestamp=largest))
        values.append(updated(segment_id, 1, whose=WHOSE))
        if chunk:
            _put_chunks(aiven / f"{base:020}-{segment_id}", Path(f"{stem}.log"), parts, chunk)
        base = end
    (plain / "leader-epoch-checkpoint").write_text(f"0\n1\n{EPOCH} 0\n")
    _log_dir(folder / "data", values, base)


def _put_chunks(stem: Path, log: Path, parts: dict[str, bytes], chunk: int) -> None:
    found = chunked(log.read_bytes(), parts, chunk, compressed=True)
    for kind, content in (("log", found.log), ("indexes", found.indexes), ("rsm-manifest", found.manifest)):
        Path(f"{stem}.{kind}").write_bytes(content)


def _log_dir(data: Path, values: list[bytes], end: int) -> None:
    records = [Record(number, 1, None, value) for number, value in enumerate(values)]
    for name, first, content in (
        ("__remote_log_metadata-0", 0, batch(records, base_offset=0, leader_epoch=0)),
        ("topic-0", end, b""),
    ):
        (data / name).mkdir(parents=True)
        (data / name / f"{first:020}.log").write_bytes(content)
    (data / "topic-0/leader-epoch-checkpoint").write_text(f"0\n1\n{EPOCH} 0\n")
    (data / "topic-0/partition.metadata").write_text(f"version: 0\ntopic_id: {WHOSE.topic_id}")
    (data / "log-start-offset-checkpoint").write_text("0\n1\ntopic 0 0\n")
    lines = f"__remote_log_metadata 0 {len(values)}\ntopic 0 {end}\n"
    (data / "recovery-point-offset-checkpoint").write_text(f"0\n2\n{lines}")


main()
