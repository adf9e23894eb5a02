"""How the start would continue after the steps so far; a start that stops at its first fault hides the later ones.

`diagnose` plays such a start again on a disk without the faults that it has a step for, until nothing is hidden.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from klog.commands.doctor.meta_properties_check import FormattedDir
from klog.commands.doctor.partition_loader import LoadedPartition
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import PartitionName
from klog.formats.properties import MetaProperties
from klog.partition.start.metadata_log import RecoveredMetadata
from klog.partition.start.start_files import StartOutcome


@dataclass
class AssumedRepairs:
    """Faults that count as repaired; all but *quorum_state* by path.

    *metas*: the contents of `meta.properties` by log dir.  *taken*: log dirs that were removed from `log.dirs`.
    *foreign*: log dirs whose foreign directories were moved away.  *recovered*: log dirs whose checkpoints are as a
    broker writes them.  *moved*: directories that were moved away.  *loadable*: partitions that load.  *is_blocked*:
    there is a fault that hides the later ones.
    """

    metas: dict[str, MetaProperties] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    recovered: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    loadable: set[str] = field(default_factory=set)
    quorum_state: bool = False
    is_blocked: bool = False
    metadata: RecoveredMetadata | None = None
    loaded: dict[str, LoadedPartition] = field(default_factory=dict)
    """The metadata and the partitions by path, as a play before has found them: no cure changes them."""

    @property
    def count(self) -> int:
        """How many there are."""
        sets = (self.metas, self.taken, self.foreign, self.recovered, self.moved, self.loadable)
        return sum(map(len, sets)) + self.quorum_state

    def formats(self, found: Iterable[FormattedDir]) -> list[FormattedDir]:
        """Return the remaining log dirs, with their files after the repairs; never none."""
        every = list(found)
        left = [one for one in every if one.path not in self.taken] or every
        return [one._replace(meta=self.metas.get(one.path, one.meta)) for one in left]

    def keeps(self, log_dir: str, name: PartitionName) -> bool:
        """Whether a directory is still there."""
        return os.path.join(log_dir, name.name) not in self.moved

    def load(self, one: LoadedPartition, topic_id: str | None) -> LoadedPartition:
        """Return how a partition loads then.  *topic_id*: the cluster's, for a `partition.metadata` without one."""
        if one.path not in self.loadable:
            return one
        outcome = StartOutcome(log_end=LONG_MAX)
        return LoadedPartition(one.name, one.log_dir, one.topic_id or topic_id, outcome, used=one.used)
