"""The layout `aiven`: the objects of Aiven's plugin, with segment manifests of version 1.

    PREFIXorders-YdUsondnT3OqRYdpk5Bd4Q/0/00000000000000000012-3y6iIkCNQ-OpQqOAGEwzkg.log

The log is cut into chunks; each may be compressed, then encrypted.  The indexes are one object.  The manifest, stored
last, says where everything is.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from klog.tier.stores import Store
from klog.tier.tier_layout import ID, INDEXES, LOG, MANIFEST, TOPIC, Keys, ObjectName, TierSegment

if TYPE_CHECKING:
    from klog.tier.aiven_reader import AivenReader


@cache  # compiled when it is needed: a tier has one layout
def _key() -> re.Pattern[str]:
    return re.compile(rf"(?:.*/)?({TOPIC})-({ID})/([0-9]{{1,10}})/([0-9]{{20}})-({ID})\.(log|indexes|rsm-manifest)")


class AivenLayout:
    """Three objects a segment.  *keys*: private keys for encrypted ones."""

    name = "aiven"
    kinds = (LOG, INDEXES, MANIFEST)
    needed = (LOG, INDEXES, MANIFEST)

    def __init__(self, keys: Keys | None = None) -> None:
        self._keys = keys

    def parse(self, key: str) -> ObjectName | None:
        """Return the meaning of a key: see `TierLayout.parse`."""
        found = _key().fullmatch(key)
        if found is None:
            return None
        topic, topic_id, number, start, segment_id, kind = found.groups()
        return ObjectName(topic, int(number), topic_id, int(start), segment_id, kind)

    def reader(self, store: Store, segment: TierSegment) -> AivenReader:
        """Return a reader of a segment's objects."""
        from klog.tier.aiven_reader import AivenReader

        return AivenReader(store, segment, self._keys)
