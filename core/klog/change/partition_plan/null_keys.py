"""Records without a key: the cleaner removes them from a compacted topic, and a broker takes none.

Control records are none of them.  Kafka: Cleaner.shouldRetainRecord, LogValidator.validateKey.
"""

from __future__ import annotations

from klog.base.errors import DamagedError
from klog.data_dir.partition import Partition
from klog.formats.batch import CONTROL_BIT
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage
from klog.kernel import Profile, Window
from klog.log.records import BatchRun, Codecs, decode_run
from klog.log.segment import Segment


def null_keys(window: Window, first: int, end: int, file: str, codecs: Codecs) -> dict[int, set[int]]:
    """Return the offsets of records without a key in intact batches *first* to *end*, by the rows of their batches.

    Raises DamagedError.
    """
    found: dict[int, set[int]] = {}
    counts = Profile(bytes(16))
    for damage in decode_run(BatchRun(window, first, end), codecs, file):
        if damage is not None:
            raise DamagedError(str(damage))
        before = counts.null_keys
        counts.add(window)
        if counts.null_keys > before:
            for i in range(window.records):
                offset, _, key, *_, row = window.record(i)
                if key is None and not window.batch(row).attributes & CONTROL_BIT:
                    found.setdefault(row, set()).add(offset)
    return found


def count_null_keys(partition: Partition, start: int, end: int) -> int:
    """Return how many records without a key *partition* has from offset *start* on and below *end*; not in damage.

    Raises UnreadableError.
    """
    counts, codecs, found = Profile(bytes(16)), Decompressor().functions, 0
    for files in partition.segments:
        for rows in Segment(partition.file(files.log), bounded=False).record_windows(start, codecs=codecs):
            if isinstance(rows, Damage):
                continue
            before = counts.null_keys
            counts.add(rows)
            if counts.null_keys > before:
                found += sum(
                    rows.record(i)[2] is None and start <= rows.record(i)[0] < end for i in range(rows.records)
                )
    return found
