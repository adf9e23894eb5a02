"""The layout `local`: Kafka's own LocalTieredStorage, a file for each part of a segment, byte for byte.

kafka-tiered-storage/orders-0-YdUsondnT3OqRYdpk5Bd4Q/00000000000000000012-3y6iIkCNQ-OpQqOAGEwzkg.log
"""

from __future__ import annotations

import re
from functools import cache

from klog.base.read_only import ReadableLog
from klog.tier.stores import MissingObjectError, Store
from klog.tier.tier_layout import (
    ID,
    INDEX,
    LOG,
    MOST_PART_BYTES,
    PARTS,
    TIME_INDEX,
    TOPIC,
    TXN_INDEX,
    BadObjectError,
    ObjectName,
    TierSegment,
)


@cache  # compiled when it is needed: a tier has one layout
def _key() -> re.Pattern[str]:
    parts = "|".join(PARTS)
    return re.compile(rf"(?:kafka-tiered-storage/)?({TOPIC})-([0-9]{{1,10}})-({ID})/([0-9]{{20}})-({ID})\.({parts})")


class LocalLayout:
    """A file for each part.  Kafka: RemoteLogSegmentFileset."""

    name = "local"
    kinds = PARTS
    needed = (LOG, INDEX, TIME_INDEX)

    def parse(self, key: str) -> ObjectName | None:
        """Return the meaning of a key: see `TierLayout.parse`."""
        found = _key().fullmatch(key)
        if found is None:
            return None
        topic, number, topic_id, start, segment_id, kind = found.groups()
        return ObjectName(topic, int(number), topic_id, int(start), segment_id, kind)

    def reader(self, store: Store, segment: TierSegment) -> LocalReader:
        """Return a reader of a segment's files."""
        return LocalReader(store, segment)


class LocalReader:
    """The plain bytes of a segment are those of its objects.  See `SegmentReader`."""

    def __init__(self, store: Store, segment: TierSegment) -> None:
        self._store, self._segment = store, segment

    def _key(self, part: str) -> str:
        key = self._segment.keys.get(part)
        if key is None:
            raise MissingObjectError(f"segment {self._segment.segment_id} has no {part}")
        return key

    def log(self) -> ReadableLog:
        """Open the log."""
        return self._store.open(self._key(LOG), self._segment.sizes.get(LOG))

    def read(self, part: str) -> bytes | None:
        """Return another part; None for a transaction index that does not exist."""
        if part == TXN_INDEX and part not in self._segment.keys:
            return None
        key = self._key(part)
        data = self._store.read(key, MOST_PART_BYTES)
        if len(data) > MOST_PART_BYTES:
            raise BadObjectError(key, f"more than {MOST_PART_BYTES >> 20} MiB, too much for this kind of object")
        return data
