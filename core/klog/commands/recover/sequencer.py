"""Puts a segment's batches in order: keeps those that continue the log, repairs or drops the others.

1. The kernel finds the run of batches that continue the last kept one (`ascending_run`); they are kept.
2. A batch that does not continue is held until the next one is read: only with both neighbours known can `_settle`
   decide which of the three is wrong.
3. The batch before it is repaired, or no longer kept, if its offset or its epoch is the wrong one (`_settle_previous`).
4. Otherwise the held batch is kept in a segment of its own (`_goes_apart`), repaired if its neighbours prove its
   offset or epoch (`_put_right`), kept in place of older ones if a later leader wrote it (`_is_newer`), kept if only
   its epoch is odd, or dropped with the reason.
5. Damage is repaired where a flipped bit or a wrong header explains it, and left out otherwise; batches inside the
   proven extent of a damaged one do not belong to the log (`_cast_shadow`).
6. `finish` decides about the last held batch.
"""

from __future__ import annotations

from klog.base.read_only import ReadOnlyFile
from klog.commands.recover.header_repairs import (
    ClaimedExtent,
    DamagedBatches,
    has_own_offset,
    is_one_bit_off,
    proven_epoch,
    proven_offset,
    with_epoch,
    with_offset,
)
from klog.commands.recover.kept_batches import KeptBatches
from klog.commands.recover.kept_ranges import FreeOffsets
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage, DamageKind
from klog.formats.java_integers import LONG_MAX
from klog.kernel import Window, ascending_run
from klog.log.bit_flips import BitRepair
from klog.log.segment import MAX_RELATIVE_OFFSET
from klog.partition.repair.recover_outcome import MOST_PATCHES, NEIGHBOURS, SalvageOptions, key


class BatchSequencer:
    """Receives the results of a walk over a segment, in order; `finish` ends it.

    *free*: the offsets that no later segment has.  *splits*: whether batches that the segment cannot hold are kept, in
    segments of their own.
    """

    def __init__(
        self,
        source: ReadOnlyFile,
        base_offset: int,
        free: FreeOffsets,
        request: SalvageOptions,
        splits: bool = True,
    ) -> None:
        self._source, self._request, self._splits = source, request, splits
        self._base, self._free = base_offset, free
        self.log = KeptBatches(base_offset, free, source)
        self._odd: BatchFacts | None = None
        self._shadow, self._behind = ClaimedExtent(0, 0), 0
        self._broken = DamagedBatches(source, request)

    # the results of the walk

    def rows(self, window: Window, first: int, end: int) -> None:
        """Take batches *first* to *end* of a window, whose checksums match."""
        first = self._out_of_shadow(window, first, end)
        while first < end:
            if self._odd is not None:
                self._settle(window.batch(first))
            good, records = ascending_run(window, first, end, self.log.last_offset, self.log.epoch, self.log.ceiling)
            if good > first:
                self.log.keep_rows(window, first, good, records)
            if good < end:
                self._odd = window.batch(good)
            first = good + 1

    def batch(self, facts: BatchFacts) -> None:
        """Take one batch whose checksum matches."""
        if self._odd is not None:
            self._settle(facts)
        if self.log.fits(facts):
            self.log.keep(facts)
        else:
            self._odd = facts

    def damage(self, damage: Damage, reason: str) -> None:
        """Take damage; the part that can be repaired is kept."""
        start = damage.place.position or 0
        end = start + (damage.size or 0)
        if start < self._shadow.end:
            return  # inside of damage anyway
        if damage.kind is DamageKind.UNREADABLE:
            self.log.leave(start, end, reason, damage.detail)
            return
        end = self._cast_shadow(start, end)
        while start < end:
            repaired = self._broken.repair(start, end) if len(self.log.patches) < MOST_PATCHES else None
            if repaired is not None and self._take(repaired):
                start += repaired.facts.size
                continue
            self.log.leave(start, end, reason, damage.detail)
            claimed = self._broken.claim(start)
            start = claimed.end if claimed is not None and claimed.end < end else end

    def finish(self) -> None:
        """End the segment."""
        if self._odd is not None:
            self._settle(None)

    # damage

    def _take(self, repaired: BitRepair) -> bool:
        """Keep a repaired batch, if the repair is sure and it continues the log."""
        if not repaired.patch.is_sure:
            self.log.unsure.append(repaired.patch)
            return False
        if self._odd is not None:
            self._settle(repaired.facts)
        if not self._has_place(repaired.facts, None):
            return False
        self.log.keep(repaired.facts, repaired.patch)
        return True

    def _cast_shadow(self, start: int, end: int) -> int:
        """Return the end of the damage at *start*: *end*, or the end in its header if that is proven.

        A record may contain a whole batch, as in backups of logs.  If an intact batch, or the end of the log, is at the
        claimed end of the damaged one, no batch in between belongs to this log, unless its offsets follow.
        """
        claimed = self._broken.claim(start)
        if claimed is None or not end < claimed.end <= self._source.size:
            return end
        behind: int | None = self.log.ceiling + 1
        if claimed.end < self._source.size:
            behind = self._broken.intact_offset(claimed.end)
        if behind is None:
            return end
        self._behind = behind
        self._shadow = claimed
        return claimed.end

    def _out_of_shadow(self, window: Window, first: int, end: int) -> int:
        """Skip batches that are inside a damaged one; return the first that is not."""
        while first < end and window.at(first) + window.position < self._shadow.end:
            facts = window.batch(first)
            if self._shadow.last_offset < facts.base_offset <= facts.last_offset < self._behind:
                self.batch(facts)
            first += 1
        return first

    # the odd one of three

    def _settle(self, following: BatchFacts | None) -> None:
        """Decide about the pending batch; *following*: the intact one behind it, None at the end."""
        odd, self._odd = self._odd, None
        assert odd is not None
        if self._settle_previous(odd, following) and self.log.fits(odd):
            self.log.keep(odd)
            return
        is_apart = self._goes_apart(odd, following)
        if is_apart and (following is not None or odd.last_offset < self._limit):
            self.log.keep(odd)
            return
        repaired = self._put_right(odd, following)
        if repaired is not None and self._has_place(repaired.facts, following):
            self.log.keep(repaired.facts, repaired.patch)
        elif is_apart or (self._is_newer(odd, following) and self.log.displace(self._source, odd)):
            self.log.keep(odd)
        elif self._only_epoch_is_odd(odd) and self._may_follow(odd, following):
            self.log.keep(odd)  # a broker keeps it: a leader's epoch falls where the metadata log was rolled back
        else:
            self.log.drop(odd, *self._why(odd, following))

    def _has_place(self, facts: BatchFacts, following: BatchFacts | None) -> bool:
        return self.log.fits(facts) or self._goes_apart(facts, following)

    @property
    def _limit(self) -> int:
        """The offset up to which no batch behind the kept ones is accepted."""
        return self._free.limit(self.log.last_offset)

    def _goes_apart(self, odd: BatchFacts, following: BatchFacts | None) -> bool:
        """Whether a batch begins a segment of its own, since its offsets are too far above the segment's, or behind
        those of a later one.

        Not when the batch after it continues below: then it is the odd one between its neighbours.
        """
        if not self._splits or not self.log.comes_behind(odd) or not self.log.agrees(odd):
            return False
        if odd.last_offset <= self.log.ceiling:
            return False
        return following is None or following.base_offset > odd.last_offset or not self.log.fits(following)

    def _only_epoch_is_odd(self, facts: BatchFacts) -> bool:
        is_near = facts.last_offset <= self.log.ceiling
        return (is_near or self._splits) and self.log.comes_behind(facts) and not self.log.agrees(facts)

    def _may_follow(self, odd: BatchFacts, following: BatchFacts | None) -> bool:
        """Whether the batch behind *odd* continues it, in its offsets or by the same leader."""
        if following is None or following.base_offset > odd.last_offset:
            return odd.last_offset <= self.log.ceiling
        return following.leader_epoch == odd.leader_epoch

    def _has_room(self, odd: BatchFacts) -> bool:
        """Whether a batch that belongs in front of the kept ones has offsets that no later segment has."""
        return odd.base_offset <= odd.last_offset and self._free.holds(odd)

    def _why(self, odd: BatchFacts, following: BatchFacts | None) -> tuple[str, str]:
        first, last = odd.base_offset, odd.last_offset
        if last < first:
            return "bad-counts", f"last offset delta {odd.last_offset_delta}"
        if self._only_epoch_is_odd(odd):
            return "odd-epoch", f"leader epoch {odd.leader_epoch} next to {self.log.epoch}"
        if last > self.log.ceiling and following is not None and following.base_offset <= last:
            return "odd-offset", f"base offset {first}, where {self.log.last_offset + 1} was expected"
        if first < self._base or last > self.log.parts[-1].base + MAX_RELATIVE_OFFSET:
            return "offset-overflow", f"offsets {first}–{last} are too far from the segment's base offset"
        if last > self.log.ceiling:
            return "segments-overlap", f"its last offset is {last}, the next segment begins at {self._limit}"
        return "offsets-backwards", f"base offset {first}, though offset {self.log.last_offset} precedes it"

    def _before_last(self, count: int) -> tuple[int, int] | None:
        """Return last offset and leader epoch before the last *count* batches; None if they are not known."""
        if len(self.log.tail) > count:
            return self.log.tail[-count - 1].last_offset, self.log.tail[-count - 1].leader_epoch
        return (self._base - 1, -1) if self.log.batches == count == len(self.log.tail) else None

    def _settle_previous(self, odd: BatchFacts, following: BatchFacts | None) -> bool:
        """Whether the batch before *odd* is the wrong one; then it has been repaired, or is no longer kept."""
        if self._only_epoch_is_odd(odd):
            return self._settle_epoch(odd, following)
        if len(self.log.tail) == NEIGHBOURS and self.log.tail[0].last_offset >= odd.base_offset:
            return False  # too many of them
        early = 0
        while early < len(self.log.tail) and self.log.tail[-early - 1].last_offset >= odd.base_offset:
            early += 1
        before = self._before_last(early)
        if not early or before is None or not (before[0] < odd.base_offset and self._has_room(odd)):
            return False
        if early == 1:
            return self._settle_offset(odd, following, before[0])
        return self._settle_run(odd, following, early)

    def _settle_offset(self, odd: BatchFacts, following: BatchFacts | None, before: int) -> bool:
        """Decide about the batch before *odd*, which would fit if that one were not there."""
        previous = self.log.tail[-1]
        goes_on = following is not None and odd.last_offset < following.base_offset <= previous.last_offset
        is_exact = odd.base_offset - before - 1 == previous.last_offset_delta + 1
        if following is None or goes_on or is_exact:
            repaired = self._with_offset(previous, before, odd.base_offset)
            if repaired is not None:
                self._replace_previous(repaired)
                return True
        if not goes_on or previous.base_offset <= odd.base_offset:
            return False
        detail = f"base offset {previous.base_offset}, where {before + 1} was expected"
        self.log.drop(self.log.unkeep(), "odd-offset", detail)
        return True

    def _settle_run(self, odd: BatchFacts, following: BatchFacts | None, early: int) -> bool:
        """Decide whether the last *early* batches are in front of batches that belong before them.

        They are if *odd* fits in front of them, and the batch after it continues there.
        """
        first, last = self.log.tail[-early], self.log.tail[-1]
        if following is None or not odd.last_offset < first.base_offset:
            return False
        if not following.base_offset == odd.last_offset + 1 <= last.last_offset:
            return False
        detail = f"offsets {first.base_offset}–{last.last_offset}, in front of offset {odd.base_offset}"
        for facts in reversed([self.log.unkeep() for _ in range(early)]):
            self.log.drop(facts, "offsets-backwards", detail)
        return True

    def _settle_epoch(self, odd: BatchFacts, following: BatchFacts | None) -> bool:
        """Decide whether it is the batch before *odd* whose leader epoch is odd."""
        known = self._before_last(1)
        if known is None:
            return False
        before, previous = known[1], self.log.tail[-1]
        if not before < previous.leader_epoch or not before <= odd.leader_epoch:
            return False
        if following is not None and following.leader_epoch >= previous.leader_epoch:
            return False
        if len(self.log.tail) < 2:  # no batch before it shows that it is the odd one, unless the two behind it agree
            if following is None or following.leader_epoch != odd.leader_epoch:
                return False
            if not is_one_bit_off(previous.leader_epoch, odd.leader_epoch):
                return False
            before = odd.leader_epoch
        value = proven_epoch(previous.leader_epoch, before, odd.leader_epoch)
        repaired = None if value is None else self._with_epoch(previous, value)
        if repaired is not None:
            self._replace_previous(repaired)
        return repaired is not None

    def _replace_previous(self, repaired: BitRepair) -> None:
        self.log.unkeep()
        self.log.keep(repaired.facts, repaired.patch)

    def _put_right(self, odd: BatchFacts, following: BatchFacts | None) -> BitRepair | None:
        """Return *odd* with the offset or the leader epoch that its neighbours prove; None if they do not."""
        if self._only_epoch_is_odd(odd):
            epoch = self.log.epoch
            value = None if following is None else proven_epoch(odd.leader_epoch, epoch, following.leader_epoch)
            return None if value is None else self._with_epoch(odd, value)
        after = following.base_offset if following is not None else self._limit
        repaired = self._with_offset(odd, self.log.last_offset, after) if after < LONG_MAX else None
        if repaired is None:
            return None
        # A copy of another batch can happen to have the size of its gap; and with more than one wrong bit, an offset at
        # which another batch begins is hardly chance.
        is_one_bit = is_one_bit_off(odd.base_offset, repaired.facts.base_offset)
        if self.log.is_searched_out:
            return repaired if is_one_bit else None
        other = self.log.beginning_at(self._source, odd.base_offset)
        return repaired if other is None or (is_one_bit and key(other) != key(odd)) else None

    def _with_epoch(self, facts: BatchFacts, epoch: int) -> BitRepair | None:
        if facts.magic < 2 or len(self.log.patches) >= MOST_PATCHES or self.log.is_patched_from(facts.position):
            return None
        return with_epoch(self._source, facts, epoch, self._request.max_batch_bytes)

    def _with_offset(self, facts: BatchFacts, before: int, after: int) -> BitRepair | None:
        """Return a batch with the base offset that is proven between *before* and *after*."""
        if (
            not has_own_offset(facts)
            or len(self.log.patches) >= MOST_PATCHES
            or self.log.is_patched_from(facts.position)
        ):
            return None
        value = proven_offset(facts.base_offset, facts.last_offset_delta, before, after)
        if value is None or value == facts.base_offset:
            return None
        return with_offset(self._source, facts, value, self._request.max_batch_bytes)

    # the same offsets twice

    def _is_newer(self, odd: BatchFacts, following: BatchFacts | None) -> bool:
        """Whether *odd* begins a later leader's batches over the end of the kept ones.

        A new leader's log counts from its first offset on, and followers cut their older batches there.  Two batches
        have to agree: one flipped bit must not cost the end of a log.  Without a newer epoch the first batch is kept:
        readers that scan from below have received it.  Kafka: LeaderEpochFileCache.assign, Partition.makeFollower.
        """
        if following is None or not 0 <= self.log.epoch < odd.leader_epoch <= following.leader_epoch:
            return False
        if not self._base <= odd.base_offset <= self.log.last_offset:
            return False
        return self._has_room(odd) and following.base_offset == odd.last_offset + 1
