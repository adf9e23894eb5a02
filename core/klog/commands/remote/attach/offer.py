"""The part of a partition in remote storage that can be attached: its segments in order, their history, their end.

A segment is known by an entry of `__remote_log_metadata`, of the cluster here or of a lost one, else by its objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from klog.base.errors import KlogError, counted, offsets_text
from klog.base.progress import Silence
from klog.cluster.remote_log.cache import RemoteLogCache
from klog.cluster.remote_log.events import RemoteSegment, TopicIdPartition
from klog.cluster.remote_log.lineage import ChainLink, chain
from klog.cluster.remote_log.object_facts import cache_of, epoch_history, log_fault, remote_segment
from klog.commands.remote.attach.refusal import NotAttachedError, refuse
from klog.commands.remote.segment_check import SegmentCheck
from klog.commands.remote.segment_checks import check_segment
from klog.formats.checkpoint import EpochEntry
from klog.formats.index import ABORTED_TXN, OFFSET_ENTRY, TIME_ENTRY
from klog.formats.java_integers import LONG_MAX
from klog.formats.producer_snapshot import Producer, read_snapshot
from klog.formats.remote_log import SegmentState
from klog.kernel import crc32c
from klog.partition.verify.findings import Severity
from klog.tier.local_layout import LocalLayout
from klog.tier.tier import Tier, TierPartition
from klog.tier.tier_layout import EPOCHS, INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX, EncryptedObjectError, TierSegment

_MOST_NAMED = 3


class KnownEntries(NamedTuple):
    """The entries of a partition: *here* in the cluster, *lost* in the one that is gone; None where there are none.

    *deleted*: ids of segments whose deletion the lost cluster had finished.
    """

    here: RemoteLogCache | None = None
    lost: RemoteLogCache | None = None
    deleted: frozenset[str] = frozenset()

    def of(self, segment_id: str) -> RemoteSegment | None:
        """Return the entry of a segment: that of the cluster here first."""
        found = (one.segments.get(segment_id) for one in (self.here, self.lost) if one is not None)
        return next((one for one in found if one is not None), None)


class RemoteOffer:
    """The segments of one partition.  *objects*: those in the tier.

    *history*: the partition's leader epochs if a local log has them, else the newest ones in the tier count.  *first*:
    the first offset that is wanted; None: the first one that is there.
    """

    def __init__(
        self,
        whose: TopicIdPartition,
        tier: Tier,
        objects: TierPartition,
        entries: KnownEntries,
        history: Sequence[EpochEntry] = (),
        first: int | None = None,
    ) -> None:
        self.whose, self._tier, self._objects, self._entries = whose, tier, objects.segments, entries
        self._first = first
        self.notes: list[str] = []
        self.known = self._known()
        newest = epoch_history(tier, self._objects.values(), self.known) if not history else ()
        self.epochs: Sequence[EpochEntry] = history or newest
        if not self.epochs:
            raise self._without_epochs()
        self.links = self._links()

    # the segments

    def _known(self) -> dict[str, RemoteSegment]:
        """Return the segments whose copies ended, by id."""
        found: dict[str, RemoteSegment] = {}
        without_entry = []
        for one in self._objects.values():
            entry = self._entries.of(one.segment_id)
            if entry is not None and entry.state is SegmentState.COPY_SEGMENT_FINISHED:
                found[one.segment_id] = entry
            elif entry is None and one.segment_id not in self._entries.deleted and one.start_offset < LONG_MAX:
                without_entry.append(one)
        whole = [one for one in without_entry if not self._lacks(one)]
        starts = {one.start_offset for one in whole}
        # A copy has ended if a later one began; if it was made again, that one counts.
        copied = [one for one in without_entry if self._lacks(one) == [SNAPSHOT] and one.start_offset not in starts]
        for one in (*whole, *(one for one in copied if one.start_offset < max(starts, default=0))):
            if (shown := remote_segment(self._tier, one)) is not None:
                found[one.segment_id] = shown
        self._unfinished = [one for one in without_entry if one.segment_id not in found]
        if self._unfinished and not found:
            raise self._unreadable(self._unfinished)
        if self._unfinished:
            names = ", ".join(one.segment_id for one in self._unfinished[:_MOST_NAMED])
            some = counted(len(self._unfinished), "segment")
            self.notes.append(f"{self.whose}: {some} without all of its objects, not attached: {names}")
        return found

    def _lacks(self, one: TierSegment) -> list[str]:
        """Return the kinds of objects that are missing, as the last ones of a copy that did not end."""
        assert self._tier.layout is not None
        kinds = self._tier.layout.kinds
        wanted = {*self._tier.layout.needed, *({EPOCHS, SNAPSHOT} & {*kinds})}
        return [kind for kind in kinds if kind in wanted and kind not in one.sizes]

    def _unreadable(self, segments: Sequence[TierSegment]) -> NotAttachedError:
        for one in segments:
            try:
                self._tier.reader(one).read(EPOCHS)
            except EncryptedObjectError:
                return self._encrypted()
            except KlogError:
                continue
        message = f"none of its {counted(len(segments), 'segment')} is complete"
        return refuse(self.whose, "damaged", message, "klog remote ls --segments shows the objects that are there")

    def _encrypted(self) -> NotAttachedError:
        message = "its objects are encrypted, and no key was given that decrypts them"
        return refuse(self.whose, "encrypted", message, "name the private key with --remote-keys KEYID=FILE")

    def _without_epochs(self) -> NotAttachedError:
        if not self.known:
            message = "no segment is complete"
            return refuse(self.whose, "damaged", message, "klog remote ls --segments shows the objects that are there")
        for segment_id in self.known:
            try:
                self._tier.reader(self._objects[segment_id]).read(EPOCHS)
            except EncryptedObjectError:
                return self._encrypted()
            except KlogError:
                continue
        message = "no segment has a leader_epoch_checkpoint that can be read: the history of the partition is unknown"
        return refuse(self.whose, "epochs-unknown", message, "name log dirs of the lost cluster with --from LOG_DIR")

    def _links(self) -> tuple[ChainLink, ...]:
        cache = cache_of(self.known)
        starts = [one.start_offset for one in self.known.values()]
        first = self._first if self._first is not None else min(starts)
        links = tuple(chain(cache, self.epochs, first))
        if not links:
            raise refuse(self.whose, "hole", f"no segment has offset {first} or one behind it", "--from-offset N")
        at = first if self._first is not None else links[0].first
        for one in links:
            if one.first > at:
                message = f"no segment has {offsets_text(at, one.first - 1)}{self._why(at, one.first)}"
                raise refuse(self.whose, "hole", message, self._behind_hole(at, one.first))
            at = one.last + 1
        return links

    def _behind_hole(self, start: int, end: int) -> str:
        """Return the way on.  Objects show no offsets behind a segment's last batch that compaction removed."""
        following = f"--from-offset {end} begins behind it"
        before = next((one for one in self.known.values() if one.end_offset == start - 1), None)
        if before is None or self._entries.of(before.segment_id) is not None:
            return following
        return (
            f"{following}; if compaction removed them before the topic was tiered, --from LOG_DIR (a log dir of the"
            " lost cluster with __remote_log_metadata) shows that segments end there, and without one"
            f" klog remote fetch --remote TIER -t {self.whose.topic} --to DIR saves all records, for klog adopt"
        )

    def _why(self, first: int, end: int) -> str:
        """Return the reason of a hole, if there are objects that begin in it."""
        found = next((one for one in self._unfinished if first <= one.start_offset < end), None)
        if found is None:
            return ""
        return f": {found.segment_id} lacks {', '.join(self._lacks(found)) or 'intact objects'}"

    @property
    def first(self) -> int:
        """The first offset."""
        return self.links[0].first

    @property
    def end(self) -> int:
        """The offset behind the last one."""
        return self.links[-1].last + 1

    @cached_property
    def segments(self) -> list[RemoteSegment]:
        """The segments to attach, each once, in the order of their offsets."""
        return list({one.segment.segment_id: one.segment for one in self.links}.values())

    @property
    def top_epoch(self) -> int:
        """The latest leader epoch in the tier, those of dead branches included."""
        every = [one.epochs[-1].epoch for one in self.known.values()]
        return max([*every, *(one.epoch for one in self.epochs if one.start_offset < self.end)])

    @property
    def local_epochs(self) -> list[EpochEntry]:
        """The history of a local log that begins where the remote part ends."""
        return [one for one in self.epochs if one.start_offset < self.end]

    def dead_tails(self) -> Iterator[str]:
        """Yield a sentence about each segment with batches behind its part of the history."""
        for one in self.links:
            if one.is_dead_tail:
                dead = offsets_text(one.last + 1, one.segment.end_offset)
                yield (
                    f"{self.whose}: segment {one.segment.segment_id} has {dead} of a dead branch as well, which a"
                    " broker hands out to consumers that read through"
                )

    # their content

    def check(self) -> None:
        """Raise NotAttachedError if an object that a broker needs is missing, or has another size than in its entry."""
        for segment in self.segments:
            objects = self._objects[segment.segment_id]
            check = SegmentCheck(self.whose, self._tier, segment, objects, segment.end_offset)
            found = [one for one in check_segment(check, None, Silence()).findings if one.severity is Severity.DAMAGE]
            if found:
                raise self._damaged(f"{found[0].file}: {found[0].message}", segment)
            for kind, size in self._entry_bytes.items():
                if objects.sizes.get(kind, 0) % size:
                    raise self._damaged(f"{objects.keys[kind]}: not a multiple of {size} bytes", segment)
            fault = log_fault(self._tier, objects) if self._entries.of(segment.segment_id) is None else None
            if fault is not None:
                raise self._damaged(f"the log of segment {segment.segment_id}: {fault}", segment)

    @property
    def _entry_bytes(self) -> dict[str, int]:
        """The sizes of entries by kind of index, if each index is an object: a broker reads no broken one."""
        is_local = self._tier.layout is not None and self._tier.layout.name == LocalLayout.name
        return {INDEX: OFFSET_ENTRY.size, TIME_INDEX: TIME_ENTRY.size, TXN_INDEX: ABORTED_TXN.size} if is_local else {}

    def _damaged(self, message: str, segment: RemoteSegment) -> NotAttachedError:
        behind = next((one.first for one in self.links if one.first > segment.end_offset), None)
        advice = "repair or restore the object"
        if behind is not None:
            advice += f", or begin behind the segment: --from-offset {behind}"
        return refuse(self.whose, "damaged", message, advice)

    def producers(self) -> Sequence[Producer]:
        """Return the producers at the remote end.  Raises NotAttachedError if the snapshot cannot be read."""
        last = self.links[-1]
        if last.is_dead_tail:
            self.notes.append(f"{self.whose}: no snapshot has the producers at {self.end}: they are unknown")
            return ()
        try:
            content = self._tier.reader(self._objects[last.segment.segment_id]).read(SNAPSHOT)
        except EncryptedObjectError:
            raise self._encrypted() from None
        except KlogError as error:
            raise self._damaged(str(error), last.segment) from error
        found = read_snapshot(content or b"", crc32c)
        if found.problem is not None:
            raise self._damaged(f"the snapshot of segment {last.segment.segment_id}: {found.problem}", last.segment)
        return found.producers


def entries_of(caches: Mapping[TopicIdPartition, RemoteLogCache], whose: TopicIdPartition) -> RemoteLogCache | None:
    """Return the entries of a partition, whatever the name of its topic was."""
    if whose in caches:
        return caches[whose]
    same = (one for one in caches if (one.topic_id, one.number) == (whose.topic_id, whose.number))
    return next((caches[one] for one in same), None)
