"""aiokafka's compiled encoder alone: ``encode.py COUNT``; keys of 10 and values of 90 bytes, no file is written."""

from __future__ import annotations

import sys

from aiokafka.record.default_records import DefaultRecordBatchBuilder


def main(count: int) -> None:
    value, made, size = b"x" * 90, 0, 0
    batch = None
    at = 0
    for number in range(count):
        key = b"key-%06d" % (number % 100_000)
        if batch is None or batch.append(at, 1_700_000_000_000 + number, key, value, []) is None:
            if batch is not None:
                size += len(batch.build())
                made += 1
            batch = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 16384)
            batch.append(0, 1_700_000_000_000 + number, key, value, [])
            at = 0
        at += 1
    if batch is not None:
        size += len(batch.build())
        made += 1
    print(count, made, size)


main(int(sys.argv[1]))
