"""Each flipped bit and each cut of a segment's objects is a finding of `klog remote verify`, or provably harmless."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from klog.base.progress import Silence
from klog.commands.remote import RemoteQuery
from klog.commands.remote.segment_check import SegmentCheck
from klog.commands.remote.segment_checks import check_segment
from klog.commands.remote.sources import RemoteSources
from klog.commands.remote.verify import _Partition
from klog.formats.checkpoint import read_epochs
from klog.partition.tiered.remote_files import BytesInMemory
from klog.partition.verify.segment_pass import SurveyOptions
from klog.tier.aiven_manifest import Manifest, read_manifest
from klog.tier.stores import MissingObjectError, StoredObject
from klog.tier.tier import Tier, open_tier
from klog.tier.tier_layout import LOG, PARTS

from tests.conftest import CORPORA
from tests.oracles.plain import decode
from tests.support.counts import count
from tests.support.samples import some_or_all
from tests.support.tiers import situation

KEY = {"key1": str(CORPORA / "tiered/aiven-encrypted/private.pem")}
CASES = [
    ("house", "tx-0", True),
    ("house", "plain-0", False),
    ("aiven-plain", "alpha-0", False),
    ("aiven-zstd", "alpha-0", False),
    ("aiven-encrypted", "alpha-0", False),
]
"""A situation, a partition, and whether the segment has aborted transactions."""


class MemoryStore:
    """Objects by key."""

    uri = "memory"

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents = contents

    def objects(self) -> Iterator[StoredObject]:
        yield from (StoredObject(key, len(content), 0) for key, content in self.contents.items())

    def open(self, key: str, size: int | None = None) -> BytesInMemory:
        return BytesInMemory(key, self.read(key, 1 << 30))

    def read(self, key: str, most: int) -> bytes:
        if key not in self.contents:
            raise MissingObjectError(f"no object {key}")
        return self.contents[key][: most + 1]


class Checked:
    """A segment, checked in memory again and again."""

    def __init__(self, place: Any, name: str, has_aborted: bool) -> None:
        disk = open_tier(str(place.tier), None, KEY)
        topic, _, number = name.rpartition("-")
        query = RemoteQuery(tuple(map(str, place.data)), disk, (topic,), (int(number),))
        sources = RemoteSources(query)
        (whose,) = sources.partitions()
        partition = _Partition(sources, whose, query)
        links = [(before, link) for before, link in zip([None, *partition._links()], partition._links(), strict=False)]
        found = ((before, partition._segment(link)) for before, link in links)
        before, self.check = next(
            one for one in found if one[1].objects and ("txnindex" in one[1].objects.sizes or not has_aborted)
        )
        assert self.check.objects is not None
        self.keys = self.check.objects.keys
        self.contents = {key: disk.store.read(key, 1 << 30) for key in self.keys.values()}
        self.before = None
        if before is not None:
            self.before = disk.reader(partition._segment(before).objects or self.check.objects).read("snapshot")
        self._layout = disk.layout
        log = disk.reader(self.check.objects).log()
        self.batches = [one for one in decode.scan(log.read(0, log.size)) if isinstance(one, decode.Batch)]

    def findings(self, kind: str, content: bytes) -> list[str]:
        contents = self.contents | {self.keys[kind]: content}
        tier = Tier(MemoryStore(contents), self._layout)
        objects = copy(self.check.objects)
        assert objects is not None
        objects.sizes = {**objects.sizes, kind: len(content)}
        check: SegmentCheck = self.check._replace(tier=tier, objects=objects)
        return [one.id for one in check_segment(check, SurveyOptions(), Silence(), self.before).findings]

    def is_harmless(self, kind: str, content: bytes) -> bool:
        """Whether a broker reads the same out of the objects, wherever a consumer starts."""
        before = self.contents[self.keys[kind]]
        if kind == "rsm-manifest":
            # Older ones have no segment metadata; nothing reads the time in them.
            old, new = read_manifest(before), read_manifest(content)
            times = ({**one.metadata, "eventTimestampMs": 0} if one.metadata else None for one in (old, new))
            if new.metadata is not None and len({json.dumps(one) for one in times}) > 1:
                return False
            if self._read(old) != self._read(new):
                return False
        old_parts, new_parts = self._parts(kind, before), self._parts(kind, content)
        differing = {part for part in old_parts if old_parts[part] != new_parts[part]}
        if "leader_epoch_checkpoint" in differing:
            stored = [self._epochs(parts["leader_epoch_checkpoint"]) for parts in (old_parts, new_parts)]
            differing -= {"leader_epoch_checkpoint"} if stored[0] == stored[1] else set()
        if differing & {"index", "timeindex"}:
            found = [
                self._lookups(parts["index"] or b"", parts["timeindex"] or b"") for parts in (old_parts, new_parts)
            ]
            differing -= {"index", "timeindex"} if found[0] == found[1] else set()
        return not differing

    def _lookups(self, index: bytes, times: bytes) -> list[object]:
        """Every answer of a broker for an offset or a time.  Kafka: LogSegment.read, findOffsetByTimestamp."""
        base, batches = self.check.entry.start_offset, self.batches
        offsets = [(base + relative, position) for relative, position in struct.iter_unpack(">ii", index)]
        pairs = [(timestamp, base + relative) for timestamp, relative in struct.iter_unpack(">qi", times)]

        def start(offset: int) -> int:
            return max((position for first, position in offsets if first <= offset), default=0)

        found: list[object] = []
        for offset in range(base, self.check.entry.end_offset + 1):
            walked = [one for one in batches if one.position >= start(offset)]
            is_batch = any(one.position == start(offset) for one in batches)
            found.append(is_batch and next((one.position for one in walked if one.last_offset >= offset), None))
        stamps = {record.timestamp for one in batches for record in one.records}
        for time in sorted(stamps | {stamp + 1 for stamp in stamps} | {0}):
            first = max((offset for stamp, offset in pairs if stamp <= time), default=base)
            walked = [one for one in batches if one.position >= start(max(first, base))]
            rows = (record for one in walked if one.max_timestamp >= time for record in one.records)
            found.append(next((record.offset for record in rows if record.timestamp >= time), None))
        return found

    @staticmethod
    def _epochs(content: bytes | None) -> object:
        found = read_epochs(content or b"")
        return found.entries, found.malformed

    @staticmethod
    def _read(found: Manifest) -> object:
        """The members that brokers read; the key is base64, whose last bits may be any."""
        name, _, wrapped = found.encryption.data_key.partition(":") if found.encryption else ("", "", "")
        key = name, b64decode(wrapped), found.encryption and found.encryption.aad
        chunks = found.chunks._replace(ends=None)
        return found._replace(metadata=None, indexes={}, chunks=chunks, encryption=None), found.chunks.ends, key

    def _parts(self, kind: str, content: bytes) -> dict[str, bytes | None]:
        """The plain parts beside the log, if an object had this content."""
        tier = Tier(MemoryStore(self.contents | {self.keys[kind]: content}), self._layout)
        reader = tier.reader(self.check.objects)  # type: ignore[arg-type]
        return {part: reader.read(part) for part in PARTS if part != LOG}


@pytest.mark.corpora
@some_or_all
@pytest.mark.parametrize(("name", "partition", "has_aborted"), CASES)
def test_each_flipped_bit_is_found(
    image: Callable[[str], Path], name: str, partition: str, has_aborted: bool, every: int
) -> None:
    one = Checked(situation(image, name), partition, has_aborted)
    missed, turn = [], 0
    for kind, key in one.keys.items():
        content = one.contents[key]
        assert one.findings(kind, content) == []
        for bit in range(len(content) * 8):
            turn += 1
            if turn % every:
                continue
            count("flipped bits of objects")
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            if not one.findings(kind, bytes(changed)) and not one.is_harmless(kind, bytes(changed)):
                missed.append((kind, bit // 8, bit % 8))
    assert missed == []


@pytest.mark.corpora
@some_or_all
@pytest.mark.parametrize(("name", "partition", "has_aborted"), CASES)
def test_each_cut_is_found(
    image: Callable[[str], Path], name: str, partition: str, has_aborted: bool, every: int
) -> None:
    one = Checked(situation(image, name), partition, has_aborted)
    missed = []
    for kind, key in one.keys.items():
        content = one.contents[key]
        for size in range(0, len(content), min(every, 3)):
            count("cuts of objects")
            if not one.findings(kind, content[:size]) and not one.is_harmless(kind, content[:size]):
                missed.append((kind, size, len(content)))
    assert missed == []
