"""Rebuilds transaction indexes and producer snapshots from the log."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from klog.base.errors import KlogError
from klog.data_dir.partition import SegmentFiles
from klog.formats.damage import Damage
from klog.formats.producer_snapshot import Producer
from klog.log.index import AbortedTxn, read_txn_index, txn_index_content
from klog.partition.repair.recover_outcome import RecoverOptions
from klog.partition.verify.findings import PartitionFacts
from klog.partition.verify.segment_pass import SegmentFacts


def txn_index(facts: PartitionFacts, segment: SegmentFacts, end: int | None) -> bytes:
    """Return the transaction index of a segment from its markers below offset *end* (None: all).

    If damage, or cleaning, has removed markers from the log, an old entry is the only evidence that their data was
    aborted: it is kept, unless the log contradicts it.
    """
    limit = segment.survey.next_base if end is None else end
    entries: dict[int, AbortedTxn] = {}
    for entry in _witnesses(facts, segment):
        if segment.files.base_offset <= entry.last_offset < limit:
            entries.setdefault(entry.last_offset, entry)
    for txn in facts.replay.ended.of(segment.files.log) if facts.replay is not None else ():
        entries.pop(txn.last_offset, None)
        if txn.index_entry is not None:
            entries[txn.last_offset] = txn.index_entry
    return txn_index_content(entries[offset] for offset in sorted(entries))


def _witnesses(facts: PartitionFacts, segment: SegmentFacts) -> list[AbortedTxn]:
    """Return the entries of the old index that may be such evidence."""
    may_lack = facts.is_compacted or facts.replay is None or facts.replay.is_guess
    if segment.files.txn_index is None:
        return []
    try:
        entries, _ = read_txn_index(facts.partition.path, segment.files.txn_index)
    except KlogError:
        return []
    start = facts.segments[0].files.base_offset
    sane = [entry for entry in entries if entry.version == 0 and 0 <= entry.first_offset <= entry.last_offset]
    return [
        one for one in sane if may_lack or one.first_offset < start or facts.has_gap(one.first_offset, one.last_offset)
    ]


class RebuiltSnapshots:
    """The producers' state at some offsets.  *is_guess*: damage in between leaves it uncertain."""

    def __init__(self, facts: PartitionFacts, settings: RecoverOptions) -> None:
        self._facts = facts
        self._settings = settings
        self.is_guess = False

    def at(self, offsets: Iterable[int], wrong: Collection[int]) -> dict[int, tuple[Producer, ...]]:
        """Return the state at each of *offsets*, from the newest snapshot on that is not above any and not in *wrong*.

        Raises UnreadableError.
        """
        from klog.partition.transactions.producer_replay import nearest_state, replay

        wanted = sorted(offsets)
        partition = self._facts.partition
        state = nearest_state(partition, min(wanted, default=0), wrong)
        state.expire(self._settings.now_ms, self._settings.expiration_ms)
        found: dict[int, tuple[Producer, ...]] = {}
        segments = self._segments_with_producers()
        for offset in wanted:
            for event in replay(state, partition.path, segments, end=offset):
                self.is_guess |= isinstance(event, Damage) and (event.place.offset or 0) < offset
            found[offset] = state.snapshot()
        return found

    def _segments_with_producers(self) -> list[SegmentFiles]:
        """Return the segments with producers, as far as the pass has shown them."""
        silent = {
            segment.files.base_offset
            for segment in self._facts.segments
            if not segment.survey.producer_batches and not segment.is_broken and segment.unreadable is None
        }
        return [files for files in self._facts.partition.segments if files.base_offset not in silent]
