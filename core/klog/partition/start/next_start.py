"""Plays a broker's next start for a partition, with the facts of the log dir around it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from klog.base.progress import Sink
from klog.data_dir.partition import Partition
from klog.formats.names import FileKind
from klog.kernel import Window
from klog.partition.start.intact_prefix import IntactPrefix
from klog.partition.start.log_loader import load
from klog.partition.start.producer_recovery import BrokerClock
from klog.partition.start.start_files import ReadSettings
from klog.partition.start.start_outcome import StartOutcome, StartState


def next_start(
    partition: Partition,
    clean: bool,
    settings: ReadSettings,
    clock: BrokerClock,
    sink: Sink | None = None,
    prefixes: Mapping[str, IntactPrefix] = MappingProxyType({}),
    window: Window | None = None,
) -> StartOutcome:
    """Play the next start; *clean*: the broker was stopped cleanly.  *prefixes*, *window*: see `load`.

    The recovery point and the log start offset come from the log dir's checkpoints.  Raises UnreadableError.
    """
    recovery_point = log_start = None
    if partition.name is not None:
        topic, number = partition.name.topic, partition.name.partition
        recovery_point = partition.checkpoints.offset(FileKind.RECOVERY_POINTS, topic, number)
        log_start = partition.checkpoints.offset(FileKind.LOG_STARTS, topic, number)
    state = StartState(clean, recovery_point or 0, log_start or 0)
    return load(partition, state, settings, clock, sink, prefixes, window)
