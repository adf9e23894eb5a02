"""A tier of LocalTieredStorage, written by hand: as many segments and leader epochs as a test wants."""

from __future__ import annotations

import struct
from pathlib import Path

from klog.formats.producer_snapshot import write_snapshot
from klog.kernel import crc32c

from tests.oracles.plain.encode import Record, batch
from tests.support.remote_log_values import uuid

EACH = 3
"""The records of a segment."""
START_MS = 1_750_000_000_000
TOPIC_ID = uuid(0xABCDEF)


def make_tier(folder: Path, topic: str, segments: int, epochs: int) -> None:
    """Write the objects of partition 0, in equally many segments for each of *epochs* epochs."""
    place = folder / "kafka-tiered-storage" / f"{topic}-0-{TOPIC_ID}"
    place.mkdir(parents=True)
    history: list[tuple[int, int]] = []
    for number in range(segments):
        start, epoch = number * EACH, number * epochs // segments
        if not history or history[-1][0] != epoch:
            history.append((epoch, start))
        records = [Record(start + i, START_MS + start + i, b"key", b"value %d" % (start + i)) for i in range(EACH)]
        lines = [f"{one} {offset}" for one, offset in history]
        content = {
            "log": batch(records, leader_epoch=epoch),
            "index": b"",
            "timeindex": struct.pack(">qi", records[-1].timestamp, EACH - 1),
            "leader_epoch_checkpoint": "\n".join(["0", str(len(lines)), *lines, ""]).encode(),
            "snapshot": write_snapshot((), crc32c),
        }
        for kind, data in content.items():
            (place / f"{start:020}-{uuid(1000 + number)}.{kind}").write_bytes(data)
