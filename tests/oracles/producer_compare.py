"""Compares snapshots and transaction indexes of a broker with the result of a replay of its log.

A difference has a rule that explains it, or it is `unexplained`:

    expired     only the replay has the producer, idle for a day when the snapshot was written
    cleaned     the partition was compacted since: the replay sees less, never more
    log start   the snapshot lies at or below it, so nothing is left to replay
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from pathlib import Path

from klog.data_dir.partition import Partition
from klog.data_dir.root_files import read_small
from klog.formats.damage import Damage
from klog.formats.index import ABORTED_TXN
from klog.formats.names import CLUSTER_METADATA
from klog.formats.producer_snapshot import Producer, read_snapshot
from klog.kernel import crc32c
from klog.partition.transactions.markers import STOPS_BROKER, CompletedTxn, ProducerAnomaly
from klog.partition.transactions.producer_replay import replay
from klog.partition.transactions.producer_state import PRODUCER_ID_EXPIRATION_MS, ProducerState, differences

Entry = tuple[int, ...]


class Comparison:
    """The comparison of some folders, and its result."""

    def __init__(self) -> None:
        self.snapshots = self.indexes = self.entries = self.damaged = 0
        self.equal_snapshots = self.equal_indexes = 0
        self.explained: Counter[str] = Counter()
        self.irregular: Counter[str] = Counter()
        self.unexplained: list[str] = []

    def tree(self, root: Path) -> None:
        """Compare every partition under *root*."""
        for folder, _, files in sorted(os.walk(root)):
            partition = Partition(folder)
            known = partition.name is not None and partition.topic != CLUSTER_METADATA
            if known and any(name.endswith(".log") for name in files):
                self.partition(partition)

    def partition(self, partition: Partition) -> None:
        """Replay from the log start to each snapshot in turn, and from each to the next."""
        log_end = partition.log_end
        assert log_end is not None
        assert partition.log_start_offset is not None
        state = loaded = ProducerState(partition.log_start_offset)
        aborted: dict[str, list[Entry]] = defaultdict(list)
        for file in partition.snapshots:
            path = os.path.join(partition.path, file.name)
            content = read_small(path)
            assert isinstance(content, bytes)
            assert file.offset is not None
            snapshot = read_snapshot(content, crc32c)
            if snapshot.problem or file.offset <= partition.log_start_offset:
                self.explained["corrupt" if snapshot.problem else "log start"] += 1
                continue
            self._run(partition, state, file.offset, aborted)
            cleaned = partition.cleaner_offset is not None and file.offset < log_end.offset
            written_ms = os.stat(path).st_mtime_ns // 1_000_000
            self._compare(path, snapshot.producers, state, written_ms, cleaned)
            if loaded is not state:
                list(replay(loaded, partition.path, partition.segments, file.offset))
                self._compare(path, snapshot.producers, loaded, written_ms, cleaned)
            loaded = ProducerState.load(snapshot, file.offset)
        self._run(partition, state, None, aborted)
        for segment in partition.segments:
            if segment.txn_index or aborted[segment.log]:
                self._compare_index(partition, segment.log, segment.txn_index, aborted[segment.log])

    def _run(
        self, partition: Partition, state: ProducerState, end: int | None, aborted: dict[str, list[Entry]]
    ) -> None:
        for event in replay(state, partition.path, partition.segments, end):
            if isinstance(event, Damage):
                self.damaged += 1
            elif isinstance(event, ProducerAnomaly):
                self.irregular[event.kind.name] += 1
                if event.kind in STOPS_BROKER:
                    self.unexplained.append(str(event))
            elif isinstance(event, CompletedTxn) and event.index_entry:
                aborted[os.path.basename(event.place.file)].append(event.index_entry)

    def _compare(
        self, path: str, written: tuple[Producer, ...], state: ProducerState, written_ms: int, cleaned: bool
    ) -> None:
        self.snapshots += 1
        differing = differences(written, state.snapshot())
        self.equal_snapshots += not differing
        for theirs, ours in differing:
            reason = _reason(theirs, ours, written_ms, cleaned)
            if reason:
                self.explained[reason] += 1
            else:
                self.unexplained.append(f"{path}: broker {theirs}, replay {ours}")

    def _compare_index(self, partition: Partition, log: str, index: str | None, ours: list[Entry]) -> None:
        self.indexes += 1
        content = read_small(os.path.join(partition.path, index)) if index else b""
        assert isinstance(content, bytes)
        theirs = list(ABORTED_TXN.read_all(content))
        self.entries += len(theirs)
        self.equal_indexes += theirs == ours
        if theirs == ours:
            return
        # producer id and offset of the marker: of what cleaning left of a transaction, the first offset may be higher
        firsts = {(entry[1], entry[3]): entry[2] for entry in theirs}
        less = all(firsts.get((entry[1], entry[3]), 2**63) <= entry[2] for entry in ours)
        if partition.cleaner_offset is not None and less:
            self.explained["index of a cleaned log"] += 1
        else:
            self.unexplained.append(f"{partition.path}/{index or log}: broker {theirs}, replay {ours}")


def _reason(theirs: Producer | None, ours: Producer | None, written_ms: int, cleaned: bool) -> str:
    """Return the rule that allows the difference between the broker's file and the replay, empty if there is none."""
    if theirs is None and ours is not None:
        idle_ms = written_ms - ours.timestamp
        expired = ours.current_txn_first_offset == -1 and idle_ms >= PRODUCER_ID_EXPIRATION_MS
        return "expired" if expired else ""
    if theirs is None or not cleaned:
        return ""
    if ours is None:
        return "cleaned"
    less = (
        ours.producer_epoch <= theirs.producer_epoch
        and ours.last_offset <= theirs.last_offset
        and ours.coordinator_epoch <= theirs.coordinator_epoch
        and (ours.current_txn_first_offset == -1) >= (theirs.current_txn_first_offset == -1)
    )
    return "cleaned" if less else ""
