"""The copies of a partition compared batch by batch, in one pass over all of them.

As long as all copies agree, their headers are compared, a window at a time.  If they differ, batches without an overlap
are counted by their headers; only overlapping batches are decoded, and their records compared one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from klog.commands.replicas.copy_reader import IDENTITY, IDENTITY_BYTES, BatchIdentity, CopyReader, DataRecord
from klog.data_dir.partition import Partition
from klog.formats.batch import TRANSACTIONAL_BIT
from klog.partition.start.kept_log import KeptLog


class OffsetRanges:
    """Ascending offsets; *ranges* are [first, last], inclusive, and *count* is how many records were added."""

    def __init__(self) -> None:
        self.count = 0
        self.ranges: list[tuple[int, int]] = []

    def add(self, first: int, last: int, records: int) -> None:
        """Add *records* from offset *first* to *last*; *first* is not below the range added last."""
        self.count += records
        if self.ranges and first <= self.ranges[-1][1] + 1:
            begins, ends = self.ranges[-1]
            self.ranges[-1] = begins, max(ends, last)
        else:
            self.ranges.append((first, last))


class ComparedCopy(NamedTuple):
    """The input of a comparison for a copy; *partition* is None if a broker has no directory for it.

    *from_offset*: below it nothing is compared, since the copies are known to agree; *epoch*: the last leader epoch
    there.  *kept*: the broker's log after its next start; None: all of it.  *expected_from*: the offset from which on a
    missing record is unexplained, below the log start if the copy has lost its first records; None: the log start.
    """

    node: int
    partition: Partition | None
    log_start: int
    log_end: int
    from_offset: int = 0
    epoch: int = -1
    kept: KeptLog | None = None
    expected_from: int | None = None

    @property
    def due_from(self) -> int:
        """The first offset at which a missing record counts as lost."""
        return max(self.log_start if self.expected_from is None else self.expected_from, self.from_offset)

    @property
    def start(self) -> int:
        """The first offset that is compared."""
        return max(self.log_start, self.from_offset)


class HeldRecord(NamedTuple):
    """A record and the nodes whose copies have it; *producer_id*: of a transaction, else -1.

    *keepers*: those of them whose next start leaves it.  *line*: as JSON has it, empty if it is not shown.
    """

    record: DataRecord
    nodes: set[int]
    keepers: set[int]
    producer_id: int
    line: bytes = b""


class LostRecordSink(NamedTuple):
    """The receiver of the records that are lost if *leader* leads, in the order of their offsets.

    *origin*: see `klog.log.json_lines.record_lines`.
    """

    leader: int
    origin: bytes
    take: Callable[[int, HeldRecord], None]


class EpochRun(NamedTuple):
    """Batches of one leader epoch behind one another: the offsets of the first and of the last record."""

    epoch: int
    first: int
    last: int


class CopyFacts:
    """The results of the pass for one copy.

    *batches*: the intact ones that its next start keeps; *leaving*: the number of intact ones that it removes.  *lost*:
    data records of other copies that this one will lack, from the offset on from which it should have all.
    *only_here*: its records that no other copy has, though one could.  *has_transactions*: some batch is
    transactional.  *misleading*: see `CopyReader`.
    """

    def __init__(self) -> None:
        self.batches = self.leaving = 0
        self.epochs: list[EpochRun] = []
        self.bad_batches: list[int] = []
        self.only_here = OffsetRanges()
        self.lost = OffsetRanges()
        self.lost_below: int = 0
        self.has_transactions = False
        self.misleading: Mapping[int, str] = {}

    def add_batches(self, identities: memoryview) -> None:
        """Add the next intact batches."""
        self.batches += len(identities) // IDENTITY_BYTES
        attributes = set(identities.cast("h")[14 :: IDENTITY_BYTES // 2].tolist())
        self.has_transactions |= any(each & TRANSACTIONAL_BIT for each in attributes)
        epochs = identities.cast("i")[4 :: IDENTITY_BYTES // 4].tolist()
        starts = [0, *(i for i in range(1, len(epochs)) if epochs[i] != epochs[i - 1])] if len(set(epochs)) > 1 else [0]
        for start, end in zip(starts, [*starts[1:], len(epochs)], strict=True):
            first = IDENTITY.unpack_from(identities, start * IDENTITY_BYTES)[0]
            last = IDENTITY.unpack_from(identities, (end - 1) * IDENTITY_BYTES)[1]
            if self.epochs and self.epochs[-1].epoch == epochs[start]:
                self.epochs[-1] = self.epochs[-1]._replace(last=last)
            else:
                self.epochs.append(EpochRun(epochs[start], first, last))


class Comparison:
    """One pass over copies of one partition.  After `run`: *facts* by node, *first_differences* by pair of nodes.

    A copy whose next start removes a batch contains it, but does not keep it: if its node leads, the batch is lost.  A
    first difference is the base offset of the first batch that one of the two keeps and the other does not, within the
    range that both could have; the lower log end without one.  *shared_ends*, by pair: below them no record is in a
    batch of only one of the two.  *committed*: offsets below it are known to be committed.  *sink*: receives the
    records that are lost if one of the nodes leads.  *is_deep*: compare also the bytes of batches that look equal.
    """

    def __init__(
        self,
        copies: Sequence[ComparedCopy],
        committed: int = 0,
        sink: LostRecordSink | None = None,
        is_deep: bool = False,
    ) -> None:
        self.copies = copies
        self._is_deep = is_deep
        self._sink = sink
        self.facts: dict[int, CopyFacts] = {copy.node: CopyFacts() for copy in copies}
        self.first_differences: dict[tuple[int, int], int] = {}
        self.shared_ends: dict[tuple[int, int], int] = {}
        self._committed = committed
        self._readers: dict[int, CopyReader] = {}
        self._starts = {copy.node: copy.start for copy in copies}
        self._due = {copy.node: copy.due_from for copy in copies}
        self._ends = {copy.node: copy.log_end for copy in copies}
        self._pending: dict[int, list[HeldRecord]] = {}
        self._reach = -1

    def run(self) -> Comparison:
        """Read all copies.  Raises UnreadableError."""
        self._readers = {
            copy.node: CopyReader(
                copy.partition, copy.log_start, copy.from_offset, copy.epoch, copy.kept, with_indexes=True
            )
            for copy in self.copies
            if copy.partition is not None and copy.partition.segments
        }
        while self._step():
            pass
        self._flush(None)
        for node, reader in self._readers.items():
            self.facts[node].bad_batches = sorted(set(reader.bad_batches))
            self.facts[node].misleading = reader.misleading
        for one, other in combinations(sorted(self.facts), 2):
            least = min(self._ends[one], self._ends[other])
            self.first_differences[one, other] = min(self.first_differences.get((one, other), least), least)
            self.shared_ends[one, other] = min(self.shared_ends.get((one, other), least), least)
        return self

    def first_difference(self, one: int, other: int) -> int:
        """Return the offset at which the copies of two nodes diverge."""
        return self.first_differences[min(one, other), max(one, other)]

    def shared_end(self, one: int, other: int) -> int:
        """Return the offset below which no batch is in only one of the copies of two nodes."""
        return self.shared_ends[min(one, other), max(one, other)]

    def _step(self) -> bool:
        """Take the next batches; False when no copy has any."""
        live = {node: reader for node, reader in self._readers.items() if reader.identities}
        if not live:
            return False
        if not self._pending and self._skip_equal(live):
            return True
        node = min(live, key=lambda each: (live[each].first_possible, each))
        head = live[node].head
        assert head is not None
        start = live[node].first_possible
        first = live[node]
        holders = [each for each, reader in live.items() if reader.head == head and self._same_bytes(first, reader)]
        keepers = [each for each in holders if live[each].stays]
        self._note_differences(head, keepers, start)
        others = [reader.first_possible for each, reader in live.items() if each not in holders]
        stands_alone = start > self._reach and all(first > head.last_offset for first in others)
        if stands_alone and self._counts_whole(head, keepers):
            self._flush(None)
            self._count(head, set(holders), keepers)
        else:
            self._take_records(live[node], holders, keepers)
        self._reach = max(self._reach, head.last_offset)
        for each in holders:
            if each in keepers:
                self.facts[each].add_batches(live[each].identities[:IDENTITY_BYTES])
            else:
                self.facts[each].leaving += 1
            live[each].skip(1)
        self._flush(min((reader.first_possible for reader in live.values() if reader.identities), default=None))
        return True

    def _skip_equal(self, live: Mapping[int, CopyReader]) -> bool:
        """Skip the common part of all copies; False when the next batches differ, or a copy is at its end."""
        if len(live) < len(self.copies) or not all(reader.stays for reader in live.values()):
            return False
        first, *others = live.values()
        count = min((_equal_batches(first.identities, other.identities) for other in others), default=None)
        if count is None:
            count = len(first.identities) // IDENTITY_BYTES
        if not count or not all(self._same_bytes(first, other, count) for other in others):
            return False
        self._reach = IDENTITY.unpack_from(first.identities, (count - 1) * IDENTITY_BYTES)[1]
        for node, reader in live.items():
            self.facts[node].add_batches(reader.identities[: count * IDENTITY_BYTES])
            reader.skip(count)
        return True

    def _same_bytes(self, one: CopyReader, other: CopyReader, count: int = 1) -> bool:
        """Whether the next *count* batches, which look equal, are; only a deep comparison looks."""
        return not self._is_deep or one is other or one.content(count) == other.content(count)

    def _note_differences(self, head: BatchIdentity, keepers: Sequence[int], start: int) -> None:
        for other in self._starts:
            if other in keepers or self._starts[other] > head.last_offset:
                continue
            for node in keepers:
                pair = min(node, other), max(node, other)
                self.first_differences.setdefault(pair, head.base_offset)
                self.shared_ends.setdefault(pair, start)

    def _counts_whole(self, head: BatchIdentity, keepers: Sequence[int]) -> bool:
        """Whether the header is enough: the number of data records, and their offsets."""
        if head.data_records is None or (head.data_records and not head.is_dense):
            return False
        if self._sink is not None and self._sink.leader not in keepers and head.data_records:
            return False
        starts = (*self._starts.values(), *self._due.values())
        return not any(head.base_offset < start <= head.last_offset for start in starts)

    def _take_records(self, reader: CopyReader, holders: Sequence[int], keepers: Sequence[int]) -> None:
        wanted = self._sink.origin if self._sink is not None and self._sink.leader not in keepers else None
        for offset, record, line in reader.records(wanted):
            nodes = {node for node in holders if self._starts[node] <= offset}
            if not nodes:
                continue  # in a batch that contains a log start
            held = self._pending.setdefault(offset, [])
            for one in held:
                if one.record == record:
                    one.nodes.update(nodes)
                    one.keepers.update(nodes.intersection(keepers))
                    break
            else:
                held.append(HeldRecord(record, nodes, nodes.intersection(keepers), reader.producer_id, line))

    def _flush(self, end: int | None) -> None:
        """Count the records whose offsets no further batch can have: those below *end*, all for None."""
        ready = sorted(offset for offset in self._pending if end is None or offset < end)
        for offset in ready:
            self._settle(offset, self._pending.pop(offset))

    def _settle(self, offset: int, held: Sequence[HeldRecord]) -> None:
        """Count the records that copies have at one offset."""
        for one in held:
            lacking = [node for node, start in self._due.items() if node not in one.keepers and start <= offset]
            self._lose(offset, one, lacking)

    def _lose(self, offset: int, held: HeldRecord, nodes: Sequence[int]) -> None:
        """Count a record that is lost if one of *nodes* leads."""
        self._count_for(offset, offset, 1, held.nodes, nodes)
        if self._sink is not None and self._sink.leader in nodes:
            self._sink.take(offset, held)

    def _count(self, head: BatchIdentity, holders: set[int], keepers: Sequence[int]) -> None:
        """Count the data records of a batch that *holders* have for those that lack them."""
        first, records = head.base_offset, head.data_records or 0
        if not records:
            return
        lacking = [node for node, start in self._due.items() if node not in keepers and start <= first]
        self._count_for(first, head.last_offset, records, holders, lacking)

    def _count_for(self, first: int, last: int, records: int, holders: set[int], lacking: Sequence[int]) -> None:
        for node in lacking:
            facts = self.facts[node]
            facts.lost.add(first, last, records)
            if first < self._committed:
                facts.lost_below += records if last < self._committed else self._committed - first
        if len(holders) == 1 and lacking:
            self.facts[next(iter(holders))].only_here.add(first, last, records)


def _equal_batches(one: memoryview, other: memoryview) -> int:
    """Return how many batches at the front are the same in both."""
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size // IDENTITY_BYTES
    low, high = 0, size // IDENTITY_BYTES  # of the first *low* batches all are equal, of the first *high* not
    while high - low > 1:
        middle = (low + high) // 2
        if one[low * IDENTITY_BYTES : middle * IDENTITY_BYTES] == other[low * IDENTITY_BYTES : middle * IDENTITY_BYTES]:
            low = middle
        else:
            high = middle
    return low
