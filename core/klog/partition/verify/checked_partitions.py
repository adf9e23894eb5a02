"""The partitions to check, with the facts of their log dirs that the checks need."""

from __future__ import annotations

import os
from collections.abc import Sequence

from klog.base.errors import UsageError
from klog.data_dir.log_dir import LogDir
from klog.data_dir.open_path import KafkaFile
from klog.data_dir.partition import Partition
from klog.data_dir.selection import select
from klog.partition.verify.facts import LogDirFacts
from klog.partition.verify.verify import Chosen, facts_around, log_dir_facts


def partitions_to_verify(
    opened: Sequence[LogDir | Partition | KafkaFile], topics: Sequence[str] = (), numbers: Sequence[int] = ()
) -> list[tuple[Partition, LogDirFacts]]:
    """Return the partitions to check, each with the facts of its log dir; *topics* and *numbers* narrow log dirs.

    Raises UsageError for a topic or number that nothing matches.
    """
    every = [partition for one in opened if isinstance(one, LogDir) for partition in one.partitions]
    selected = set(select(every, topics, numbers))
    found: list[tuple[Partition, LogDirFacts]] = []
    around: dict[str, LogDirFacts] = {}
    for one in opened:
        if isinstance(one, LogDir):
            facts = log_dir_facts(one)
            found += [(partition, facts) for partition in one.partitions if partition in selected]
        else:
            partition = one if isinstance(one, Partition) else Partition(os.path.dirname(one.path) or ".")
            parent = partition.log_dir
            if parent not in around:
                around[parent] = facts_around(partition)
            found.append((partition, around[parent]))
    return found


def segments_of_files(opened: Sequence[LogDir | Partition | KafkaFile]) -> Chosen | None:
    """Return which segments to look at when files are named: theirs.  Raises UsageError for a file of no segment."""
    files = [one for one in opened if isinstance(one, KafkaFile)]
    if not files:
        return None
    logs = set()
    for file in files:
        if file.name.offset is None:
            raise UsageError(f"{file.path}: this file belongs to no segment; name its directory")
        logs.add(os.path.join(os.path.dirname(file.path) or ".", f"{file.name.offset:020d}.log"))
    return lambda _, path: path in logs
