"""The log dir of a broker that has a partition according to the assignment, and whether it is among the given ones.

A partition in a log dir that is not given looks like a missing one.  A second directory for it would keep the broker
from starting ("Duplicate log directories").
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from klog.cluster.election import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from klog.data_dir.log_dir import LogDir
from klog.formats.names import PartitionState

_UNREPORTED: Final = (None, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)


class AssignedLogDir(NamedTuple):
    """The log dir that has a partition, or will have its directory.

    *number*: of the log dir among those given, None for one that is not given.  *absent*: the directory ids of those
    that are not given and may have it; LOST_DIRECTORY for one that failed before its id was known.
    """

    number: int | None
    absent: tuple[str, ...] = ()


def assigned_log_dir(
    assigned: str | None, log_dirs: Sequence[LogDir], registered: Collection[str] = ()
) -> AssignedLogDir:
    """Return the log dir of a broker that has, or will get, a partition of which no directory was found.

    *assigned*: the directory id in the assignment; None without one, as before 3.7.  *log_dirs*: those of the broker
    that are given.  *registered*: the ids of all its log dirs that the metadata log contains.
    """
    ids = [one.directory_id for one in log_dirs]
    if assigned is not None and assigned in ids:
        return AssignedLogDir(ids.index(assigned))
    unnamed = ids.index(None) if None in ids else None
    if assigned not in _UNREPORTED:
        # A log dir without an id may be the one that is meant.
        return AssignedLogDir(unnamed) if unnamed is not None else AssignedLogDir(None, (str(assigned),))
    others = sorted(set(registered) - {*ids, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY})
    if others and unnamed is None and assigned is not None:
        return AssignedLogDir(None, tuple(others))
    return AssignedLogDir(unnamed or 0)


def future_in_place(log_dir: LogDir, topic: str, number: int) -> str | None:
    """Return why a partition cannot be made in a log dir; None unless a copy between log dirs is beside its place.

    Kafka: LogManager.recoverAbandonedFutureLogs.
    """
    for one in log_dir.partitions:
        if (one.topic, one.number) == (topic, number) and one.state is PartitionState.FUTURE:
            return f"{one.path} becomes the partition at the next start, and a broker does not start with both"
    return None
