"""A peer's work over a segment: ``peer.py aiokafka|kafka-python crc|deep FILE [windows]``; prints batches and records.

Without ``windows`` the file is read whole and passed on, the obvious way to use these libraries on a file.  With it the
library is fed the file in windows of about 4 MiB, cut at batch boundaries that the corpus' maker noted: kinder to the
peer, for it never touches fresh memory, and need not find the boundaries.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator


def chunks(path: str, in_windows: bool) -> Iterator[bytes]:
    with open(path, "rb") as file:
        if not in_windows:
            yield file.read()
            return
        with open(os.path.join(os.path.dirname(path), "windows"), encoding="ascii") as noted:
            cuts = [int(word) for word in noted.read().split()]
        for start, end in itertools.pairwise(cuts):
            yield file.read(end - start)


def main(peer: str, job: str, path: str, in_windows: bool) -> None:
    if peer == "aiokafka":
        from aiokafka.record.memory_records import MemoryRecords
    else:
        from kafka.record import MemoryRecords
    batches = records = 0
    for chunk in chunks(path, in_windows):
        walk = MemoryRecords(chunk)
        while (batch := walk.next_batch()) is not None:
            if not batch.validate_crc():
                raise SystemExit(f"{path}: batch {batches} fails its CRC")
            batches += 1
            if job == "deep":
                for _ in batch:
                    records += 1
    print(batches, records)


main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:] == ["windows"])
