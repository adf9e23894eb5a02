"""The load of each partition, as `klog.partition.start` plays it; a shortcut after a clean stop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from klog.base.errors import KlogError
from klog.base.progress import Sink
from klog.change.partition_plan.contents import FileRange
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.doctor.aborted_records import CheckedIndex, TxnIndexCheck
from klog.data_dir.partition import Partition
from klog.data_dir.root_files import RootFiles
from klog.formats.names import PartitionName, PartitionState
from klog.kernel import Window
from klog.log.log_end import LogEnd
from klog.partition.start.kept_log import usual_end
from klog.partition.start.log_loader import load, next_start
from klog.partition.start.metadata_behind import UsedNumbers, used_numbers
from klog.partition.start.producer_recovery import BrokerClock
from klog.partition.start.start_files import ReadSettings, StartOutcome, StartState


class LoadedPartition(NamedTuple):
    """A partition directory after its load.

    *size*: bytes of its logs; *recovered*: segments and bytes that the load read to recover them.  *pieces*: the
    remaining parts of the logs, None: all of them.  *torn*: the bytes that the load leaves behind the last batch, in
    words.  *used*: its leader epoch and producer ids, if a metadata log assigns them.  *txn_index*: the faults of its
    transaction indexes, in words.  *is_compared*: they were compared with the logs.
    """

    name: PartitionName
    log_dir: str
    topic_id: str | None
    outcome: StartOutcome
    size: int = 0
    recovered: tuple[int, int] = (0, 0)
    pieces: Mapping[str, tuple[FileRange, ...]] | None = None
    emptied: bool = False
    torn: str | None = None
    used: UsedNumbers = UsedNumbers()
    txn_index: str | None = None
    is_compared: bool = True

    @property
    def path(self) -> str:
        """The path of the directory."""
        return os.path.join(self.log_dir, self.name.name)

    @property
    def is_cut(self) -> bool:
        """Whether recovery removes something from the logs."""
        return bool(self.outcome.cuts or self.outcome.dropped) and not self.emptied

    def read_again(self) -> Partition:
        """Return the directory; nothing of it is kept in memory between the steps."""
        return Partition(self.path, name=self.name)


class PartitionLoader:
    """Loads the partitions of one log dir.

    *cluster*: has the settings of topics; None: Kafka's defaults.  *compare_all*: see `TxnIndexCheck`.
    """

    def __init__(
        self,
        root: RootFiles,
        clean: bool,
        cluster: ClusterMetadata | None,
        clock: BrokerClock,
        compare_all: bool,
        sink: Sink | None,
    ) -> None:
        self._root, self._clean, self._cluster, self._sink = root, clean, cluster, sink
        self._settings: dict[str, ReadSettings] = {}
        self._window = Window(output=0)
        self._clock, self._check = clock, TxnIndexCheck(cluster, compare_all)

    def load(self, name: PartitionName) -> LoadedPartition:
        """Play the load of one directory."""
        partition = Partition(os.path.join(self._root.log_dir, name.name), self._root, name)
        if partition.unreadable is not None:
            failure = f"{partition.path}: {partition.unreadable}"
            outcome = StartOutcome(failure, reason="unreadable", offline=True)
            return LoadedPartition(name, self._root.log_dir, None, outcome)
        used, txn_index = UsedNumbers(), CheckedIndex()
        try:
            outcome, torn = self._play(partition)
            if self._cluster is not None and outcome.fails is None and name.state is PartitionState.CURRENT:
                used = used_numbers(partition, outcome.log_end, self._clock)
            if outcome.fails is None and name.state is PartitionState.CURRENT:
                txn_index = self._check.of(partition, outcome)
        except KlogError as error:
            outcome, torn = StartOutcome(str(error), reason="unreadable", offline=True), None
        bases = {files.base_offset: files.size for files in partition.segments}
        read = [base for base in outcome.recovered if base in bases]
        emptied = bool(outcome.dropped) and outcome.log_start == outcome.log_end and set(bases) <= set(outcome.dropped)
        return LoadedPartition(
            name,
            self._root.log_dir,
            partition.topic_id,
            outcome._replace(logs={}, files={}, epochs=None, recovered=()),
            partition.size,
            (len(read), sum(bases[base] for base in read)),
            outcome.logs if outcome.cuts or outcome.dropped else None,
            emptied,
            torn,
            used,
            *txn_index,
        )

    def _play(self, partition: Partition) -> tuple[StartOutcome, str | None]:
        if partition.state is PartitionState.DELETE:
            # It is opened, and neither recovered nor emptied.  Kafka: LogLoader.load.
            return load(partition, StartState(clean=True), self._settings_of(partition.topic or ""), self._clock), None
        end = partition.log_end if self._clean else None
        usual = usual_end(partition) if self._clean else None
        if usual is not None:
            return StartOutcome(log_start=partition.log_start_offset or 0, log_end=usual.offset), None
        outcome = self._next_start(partition)
        return outcome, None if end is None or outcome.cuts or outcome.dropped else _torn(outcome, end)

    def _next_start(self, partition: Partition) -> StartOutcome:
        settings = self._settings_of(partition.topic or "")
        return next_start(partition, self._clean, settings, self._clock, self._sink, window=self._window)

    def _settings_of(self, topic: str) -> ReadSettings:
        if topic not in self._settings:
            config = {} if self._cluster is None else self._cluster.topic_config(topic)
            usual = ReadSettings()
            interval, index_bytes = config.get("index.interval.bytes", ""), config.get("segment.index.bytes", "")
            self._settings[topic] = ReadSettings(
                int(interval) if interval.isdecimal() else usual.interval,
                int(index_bytes) if index_bytes.isdecimal() else usual.index_bytes,
                with_files=False,
            )
        return self._settings[topic]


def _torn(outcome: StartOutcome, end: LogEnd) -> str | None:
    """Return a description of the bytes behind the end that the load finds in a log without recovery; None for none."""
    if outcome.fails is None and outcome.log_end < end.offset:
        return f"its index leads behind the last batch: {outcome.log_end} counts as the end, batches reach {end.offset}"
    return None if end.damage is None else f"{end.damage}; these bytes stay, and new batches go behind them"
