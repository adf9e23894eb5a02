"""Facts about a segment from its objects alone, for a tier without metadata: its manifest has them, or its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from klog.base.errors import KlogError
from klog.base.read_only import ReadableLog
from klog.cluster.remote_log.cache import RemoteLogCache
from klog.cluster.remote_log.events import RemoteSegment
from klog.formats.batch import BatchFacts
from klog.formats.checkpoint import EpochEntry, epochs_in_force, read_epochs
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout
from klog.formats.remote_log import SegmentState
from klog.log.header_walk import walk_headers
from klog.tier.aiven_layout import AivenLayout
from klog.tier.tier import Tier
from klog.tier.tier_layout import EPOCHS, INDEX, TIME_INDEX, TXN_INDEX, SegmentReader, TierSegment

if TYPE_CHECKING:
    from klog.tier.aiven_reader import AivenReader


def remote_segment(tier: Tier, objects: TierSegment) -> RemoteSegment | None:
    """Return the facts about a segment; None if its objects do not show them, or are not all there."""
    assert tier.layout is not None
    if any(kind not in objects.keys for kind in tier.layout.needed):
        return None
    try:
        if isinstance(tier.layout, AivenLayout):
            found = _of_manifest(tier.layout.reader(tier.store, objects), objects)
            if found is not None:
                return found
        return _of_log(tier.reader(objects), objects)
    except (KlogError, OSError):
        return None


def log_fault(tier: Tier, objects: TierSegment) -> str | None:
    """Return the fault of a segment's log at its beginning or its end, in words; None if both are as they should be.

    The first batch has the segment's offset, unless the topic was once compacted.
    """
    reader = tier.reader(objects)
    try:
        log = reader.log()
        try:
            first = next((one for one in walk_headers(log, 0)), None)
            last = _last_batch(log, _last_entry(reader, INDEX, OFFSET_ENTRY, 1))
            size = log.size
        finally:
            log.close()
    except (KlogError, OSError) as error:
        return str(error)
    if last is None or not isinstance(first, BatchFacts):
        return None if not size else "no batch is at its beginning"
    if first.base_offset != objects.start_offset:
        return f"it begins with offset {first.base_offset}"
    return "it ends inside of a batch" if last.position + last.size < size else None


def cache_of(known: Mapping[str, RemoteSegment]) -> RemoteLogCache:
    """Return a cache with segments that no metadata name: a later and longer copy supersedes others."""
    cache = RemoteLogCache()
    for one in sorted(known.values(), key=lambda one: (one.epochs[-1].epoch, one.end_offset, one.event_timestamp)):
        cache.add(one)
    return cache


def epoch_history(tier: Tier, segments: Iterable[TierSegment], known: dict[str, RemoteSegment]) -> list[EpochEntry]:
    """Return the newest epoch history in a partition's `leader_epoch_checkpoint` objects; empty without one.

    It is that of the segment with the latest epoch, and of those the one with the latest end.
    """
    last = [known[one.segment_id] for one in segments if one.segment_id in known]
    by_id = {one.segment_id: one for one in segments}
    for newest in sorted(last, key=lambda one: (one.epochs[-1].epoch, one.end_offset), reverse=True):
        epochs = _epochs(tier.reader(by_id[newest.segment_id]))
        if epochs:
            return epochs
    return []


def _epochs(reader: SegmentReader) -> list[EpochEntry]:
    try:
        return epochs_in_force(read_epochs(reader.read(EPOCHS) or b"").entries)
    except KlogError:
        return []


def _of_manifest(reader: AivenReader, objects: TierSegment) -> RemoteSegment | None:
    """Return the facts in a manifest; None if an older plugin wrote it, or if they are malformed."""
    found = reader.manifest.metadata or {}
    names = ("startOffset", "endOffset", "maxTimestampMs", "brokerId", "eventTimestampMs")
    numbers = [found.get(name) for name in names]
    epochs = _epoch_map(found.get("segmentLeaderEpochs"))
    if not epochs or any(type(one) is not int for one in numbers):
        return None
    start, end, max_timestamp, broker, event_timestamp = (one for one in numbers if one is not None)
    if not 0 <= start <= end:
        return None
    return RemoteSegment(
        *(objects.segment_id, start, end, epochs, reader.manifest.chunks.log_size, max_timestamp, broker),
        *(event_timestamp, SegmentState.COPY_SEGMENT_FINISHED, None, found.get("txnIdxEmpty") is True),
    )


def _epoch_map(found: Any) -> tuple[EpochEntry, ...]:
    if not isinstance(found, dict) or len(found) > 1 << 16:
        return ()
    pairs = [(epoch, start) for epoch, start in found.items() if epoch.isdecimal() and type(start) is int]
    return tuple(sorted(EpochEntry(int(epoch), start) for epoch, start in pairs if len(epoch) < 11))


def _of_log(reader: SegmentReader, objects: TierSegment) -> RemoteSegment | None:
    log = reader.log()
    try:
        last = _last_batch(log, _last_entry(reader, INDEX, OFFSET_ENTRY, 1))
        size = log.size
    finally:
        log.close()
    start = objects.start_offset
    end = start if last is None else last.last_offset
    epochs = _within(_epochs(reader), start, end)
    if not epochs:
        epoch = -1 if last is None else last.leader_epoch
        epochs = (EpochEntry(epoch, start),)
    return RemoteSegment(
        *(objects.segment_id, start, max(end, start), epochs, size, _last_entry(reader, TIME_INDEX, TIME_ENTRY, 0)),
        *(-1, objects.modified_ms, SegmentState.COPY_SEGMENT_FINISHED, None, not _has_aborted(reader)),
    )


def _has_aborted(reader: SegmentReader) -> bool:
    return bool(reader.read(TXN_INDEX))


def _last_entry(reader: SegmentReader, part: str, layout: Layout, column: int) -> int:
    """Return a column of the last entry of an index, 0 if it has none."""
    content = reader.read(part) or b""
    whole = len(content) // layout.size * layout.size
    return layout.read(content, whole - layout.size)[column] if whole else 0


def _last_batch(log: ReadableLog, position: int) -> BatchFacts | None:
    """Return the last batch of a log, found from *position* on; from the start if no batch begins there."""
    for start in dict.fromkeys((position if 0 <= position < log.size else 0, 0)):
        last = None
        for found in walk_headers(log, start):
            if isinstance(found, BatchFacts):
                last = found
        if last is not None:
            return last
    return None


def _within(epochs: list[EpochEntry], start: int, end: int) -> tuple[EpochEntry, ...]:
    """Return the epochs with offsets from *start* to *end*, the first one cut to *start*."""
    last = [one for one in epochs if one.start_offset <= start][-1:]
    inside = [*last, *(one for one in epochs if start < one.start_offset <= end)]
    return tuple(EpochEntry(one.epoch, max(one.start_offset, start)) for one in inside)
