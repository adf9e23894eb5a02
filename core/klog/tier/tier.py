"""A tier: a store whose objects have a layout.

tier = open_tier("house/tier")
listing = tier.list_segments()
for (topic_id, number), partition in listing.partitions.items():
    for segment in partition.segments.values():
        print(tier.reader(segment).log().size)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from klog.base.errors import UnreadableError, UsageError
from klog.tier.aiven_layout import AivenLayout
from klog.tier.directory_store import DirectoryStore
from klog.tier.local_layout import LocalLayout
from klog.tier.stores import Store, StoredObject
from klog.tier.tier_address import TierAddress
from klog.tier.tier_layout import Keys, ObjectName, SegmentReader, TierLayout, TierSegment

LAYOUTS: Final = (LocalLayout.name, AivenLayout.name)
_URLS: Final = ("s3://", "gs://", "az://")
MOST_NAMED: Final = 1000
"""The most foreign objects that are kept with their keys; the others are counted."""
EXPECTED: Final = (
    "expected LocalTieredStorage's directory (kafka-tiered-storage/TOPIC-PARTITION-ID/OFFSET-ID.log) or a bucket of"
    " Aiven's plugin (TOPIC-ID/PARTITION/OFFSET-ID.rsm-manifest)"
)


class TierPartition:
    """The segments of a partition that have objects, by id.  *topic*: as the first key has it."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.segments: dict[str, TierSegment] = {}


class TierListing:
    """All objects of a tier, by the topic's id and the partition's number.

    *foreign*: keys that are not of the layout, or twice the same part of one segment; *foreign_count*: of all of them.
    """

    def __init__(self) -> None:
        self.objects, self.bytes = 0, 0
        self.partitions: dict[tuple[str, int], TierPartition] = {}
        self.foreign: list[str] = []
        self.foreign_count = 0

    def add(self, found: StoredObject, name: ObjectName | None) -> None:
        """Add an object; *name*: the meaning of its key, None if it has none."""
        self.objects += 1
        self.bytes += found.size or 0
        if name is None or found.size is None:
            self._add_foreign(found.key)
            return
        partition = self.partitions.setdefault((name.topic_id, name.number), TierPartition(name.topic))
        segment = partition.segments.setdefault(name.segment_id, TierSegment(name.segment_id, name.start_offset))
        if name.kind in segment.sizes or segment.start_offset != name.start_offset:
            self._add_foreign(found.key)
            return
        segment.add(name.kind, found.key, found.size, found.modified_ms)

    def _add_foreign(self, key: str) -> None:
        self.foreign_count += 1
        if len(self.foreign) < MOST_NAMED:
            self.foreign.append(key)

    def ids(self) -> set[str]:
        """Return the ids of all segments."""
        return {segment_id for partition in self.partitions.values() for segment_id in partition.segments}

    def segment(self, topic_id: str, number: int, segment_id: str) -> TierSegment | None:
        """Return the objects of a segment; None if there are none."""
        partition = self.partitions.get((topic_id, number))
        return None if partition is None else partition.segments.get(segment_id)


class Tier:
    """A store, and the layout of its objects; None if the store is empty and none was given.

    *address*: the way in which it was opened.
    """

    def __init__(self, store: Store, layout: TierLayout | None, listing: TierListing | None = None) -> None:
        """*listing*: of the objects, by which the layout was recognized: the first question for one gets it."""
        self.store, self.layout, self._listing = store, layout, listing
        self.address = TierAddress(store.uri)

    @property
    def uri(self) -> str:
        """The place, as the user gave it."""
        return self.store.uri

    @property
    def has_plain_files(self) -> bool:
        """Whether its logs are files of a broker's own bytes, which the page cache keeps."""
        return isinstance(self.layout, LocalLayout) and not is_url(self.uri)

    def list_segments(self) -> TierListing:
        """List all objects.  Raises KlogError if the store cannot be listed."""
        if self._listing is not None:
            listing, self._listing = self._listing, None
            return listing
        listing = TierListing()
        if self.layout is not None:
            for found in self.store.objects():
                listing.add(found, self.layout.parse(found.key))
        return listing

    def reader(self, segment: TierSegment) -> SegmentReader:
        """Return a reader of a segment; it finds nothing in a tier that is empty, whatever its layout would be."""
        return (self.layout or LocalLayout()).reader(self.store, segment)


def open_tier(
    uri: str, layout: str | None = None, key_files: Mapping[str, str] | None = None, *, in_order: bool = False
) -> Tier:
    """Return the tier at *uri*.  *layout*: one of LAYOUTS, None: as its keys show.  *key_files*: PEM files by key id.

    *in_order*: logs are read from their starts to their ends.  Raises UsageError for a place with other things in it,
    KlogError for one that cannot be read.
    """
    keys = _private_keys(key_files) if key_files else None
    layouts: Sequence[TierLayout] = (LocalLayout(), AivenLayout(keys))
    store = open_store(uri, in_order=in_order)
    tier = _recognized(store, layouts) if layout is None else Tier(store, layouts[LAYOUTS.index(layout)])
    tier.address = TierAddress(uri, layout, tuple((key_files or {}).items()))
    return tier


def _private_keys(files: Mapping[str, str]) -> Keys:
    from klog.tier.aiven_decryption import PrivateKeys

    return PrivateKeys(files)


def _recognized(store: Store, layouts: Sequence[TierLayout]) -> Tier:
    """Return the tier with the layout of the first object that has one; without objects it has none."""
    listing, layout = TierListing(), None
    for found in store.objects():
        layout = layout or next((one for one in layouts if one.parse(found.key)), None)
        listing.add(found, None if layout is None else layout.parse(found.key))
    if layout is None and listing.objects:
        raise UsageError(f"{store.uri}: no tier: it has {listing.foreign[0]!r}; {EXPECTED}")
    return Tier(store, layout, listing)


def is_url(uri: str) -> bool:
    """Whether *uri* names a bucket, not a directory."""
    return uri.startswith(_URLS)


def open_store(uri: str, *, in_order: bool = False) -> Store:
    """Return the store at *uri*: a directory, `s3://BUCKET/PREFIX`, `gs://…` or `az://…`.

    *in_order*: its objects are mostly read from their starts to their ends.  Raises UsageError for another kind of URL,
    UnreadableError for a path that is no directory, KlogError without the package for URLs.
    """
    if is_url(uri):
        from klog.tier.object_store import ObjectStore

        return ObjectStore(uri, in_order=in_order)
    if "://" in uri:
        raise UsageError(f"{uri}: expected a directory, or a URL that begins with {', '.join(_URLS)}")
    try:
        is_directory = os.path.isdir(uri)
        if not is_directory:
            os.stat(uri)
    except OSError as error:
        raise UnreadableError(f"{uri}: {error.strerror}; name the directory or the bucket with the objects") from error
    if not is_directory:
        raise UnreadableError(f"{uri}: a file; name the directory or the bucket with the objects")
    return DirectoryStore(uri)
