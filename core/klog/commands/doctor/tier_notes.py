"""Notes about a tier beside a start: objects that a broker will miss, and index files that it will believe."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klog.base.errors import KlogError, counted, offsets_text
from klog.base.read_only import list_directory
from klog.cluster.remote_log.cache import RemoteLogCache
from klog.cluster.remote_log.events import TopicIdPartition
from klog.cluster.remote_log.lineage import chain
from klog.cluster.remote_log.object_facts import remote_segment
from klog.data_dir.log_dir import LogDir
from klog.data_dir.root_files import read_small
from klog.formats.checkpoint import EpochEntry
from klog.partition.start.start_reasons import StartNote
from klog.tier.tier import Tier, TierListing
from klog.tier.tier_layout import LOG, TierSegment

CACHE: Final = "remote-log-index-cache"
_CACHED: Final = re.compile(r"[0-9]{1,19}_([A-Za-z0-9_-]{22})\.(index|timeindex|txnindex)")
_MOST_NAMED = 3


class ObjectSpan(NamedTuple):
    """The offsets *first* to *last*, both inclusive, of a partition's objects; *bytes*: of its logs, as stored."""

    first: int
    last: int
    bytes: int


class TierNotes:
    """The tier of a start, and its content."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._listing: TierListing = tier.list_segments()

    def part(self, topic_id: str, number: int) -> ObjectSpan | None:
        """Return the part of a partition that its objects show; None without any log."""
        found = self._listing.partitions.get((topic_id, number))
        segments = [one for one in found.segments.values() if LOG in one.sizes] if found is not None else []
        if not segments:
            return None
        last = max(segments, key=lambda one: one.start_offset)
        shown = remote_segment(self._tier, last)
        first = min(one.start_offset for one in segments)
        end = last.start_offset if shown is None else shown.end_offset
        return ObjectSpan(first, end, sum(one.sizes[LOG] for one in segments))

    def missing(
        self, whose: TopicIdPartition, cache: RemoteLogCache, epochs: Sequence[EpochEntry], start: int, end: int
    ) -> Iterator[StartNote]:
        """Yield a note if segments that a broker reads between two offsets lack objects."""
        needed = self._tier.layout.needed if self._tier.layout is not None else ("log",)
        lacking = []
        for link in chain(cache, epochs, start, end) if epochs else ():
            found = self._listing.segment(whose.topic_id, whose.number, link.segment.segment_id)
            if found is None or any(kind not in found.sizes for kind in needed):
                lacking.append(link)
        if lacking:
            some, first = counted(len(lacking), "segment"), lacking[0]
            message = (
                f"{whose}: {some} without objects in {self._tier.uri}: consumers stop at offset {first.first} for ever"
                f" ({offsets_text(first.first, lacking[-1].last)})"
            )
            yield StartNote("remote-objects-missing", message)

    def stale(self, log_dir: LogDir) -> Iterator[StartNote]:
        """Yield a note if a log dir has copies of index files that are not those of the tier."""
        folder = os.path.join(log_dir.path, CACHE)
        by_id = {
            segment_id: segment
            for partition in self._listing.partitions.values()
            for segment_id, segment in partition.segments.items()
        }
        names = [name for name in sorted(_names(folder)) if self._is_stale(folder, name, by_id.get(_id(name)))]
        if names:
            shown = ", ".join(names[:_MOST_NAMED]) + (" …" if len(names) > _MOST_NAMED else "")
            files = counted(len(names), "file")
            yield StartNote("stale-index-cache", f"{folder}: {files} with other content than the tier: {shown}")

    def _is_stale(self, folder: str, name: str, objects: TierSegment | None) -> bool:
        if objects is None or (found := _CACHED.fullmatch(name)) is None:
            return False
        here = read_small(os.path.join(folder, name))
        try:
            there = self._tier.reader(objects).read(found[2])
        except KlogError:
            return False  # it is missing there, or cannot be read
        return isinstance(here, bytes) and here != (there or b"")


def _id(name: str) -> str:
    found = _CACHED.fullmatch(name)
    return found[1] if found is not None else ""


def _names(folder: str) -> list[str]:
    try:
        return list(list_directory(folder).files)
    except OSError:
        return []
