"""Compares the doctor's answer about a disk with the actions of a broker's start."""

from __future__ import annotations

from klog.commands.doctor.diagnosis import Diagnosis, Fate, LogDirState, PartitionFate
from klog.commands.doctor.partition_fates import MAY_HAVE_NO_LEADER, MAY_LOAD_FIRST, MAY_RENAME_FIRST, NO_WATERMARKS

from tests.commands.doctor.broker import Started

AFTER = {
    Fate.SERVES: {"stays"},
    Fate.LEADERLESS: {"stays"},
    Fate.EMPTIES: {"stays", "promoted", "future"},
    Fate.STRAYS: {"stray"},
    Fate.PROMOTES: {"promoted"},
    Fate.REPLACED: {"gone", "delete"},
    Fate.DELETES: {"gone"},
    Fate.KEEPS: {"stays"},
    Fate.MOVES: {"future", "stays", "promoted"},
}
"""The state of a directory some seconds after the start.  A small log that moves may have arrived by then."""


def differences(told: Diagnosis, did: Started) -> list[str]:
    """Return a sentence for each difference between the doctor's answer and the broker's action."""
    if _was_first(told, did):
        return []
    if told.starts != did.starts:
        return [f"starts: told {told.starts} ({told.failure}), did {did.starts} ({sorted(did.fatal)})\n{did.errors}"]
    if not told.starts:
        assert told.failure is not None
        refusing = {told.failure.id, *(row.reason for row in told.partitions if row.fate is Fate.REFUSES)}
        if told.failure.id == "log-dirs-offline":
            refusing.add("metadata-dir-offline")  # whichever the broker receives first
        return [] if did.fatal & refusing else [f"fatal: told {refusing}, did {sorted(did.fatal)}\n{did.errors}"]
    moving = {(row.topic, row.partition) for row in told.partitions if row.fate is Fate.MOVES}
    found = []
    offline = {one.path for one in told.log_dirs if one.fate is LogDirState.OFFLINE}
    if offline != did.offline:
        found.append(f"offline: told {offline}, did {did.offline}")
    for row in told.partitions:
        found += _row(row, did, (row.topic, row.partition) in moving, told.version.is_kraft)
    named = {f"{row.log_dir}/{row.directory}" for row in told.partitions if row.directory}
    others = ("__cluster_metadata-0", "meta.properties")
    return found + [f"{path}: no row" for path in did.fates if path not in named and not path.endswith(others)]


def _row(row: PartitionFate, did: Started, is_moving: bool, is_kraft: bool) -> list[str]:
    where = f"{row.topic}-{row.partition} ({row.directory}) told {row.fate.value} {row.reason}"
    found = []
    if row.fate is Fate.OFFLINE:
        return []
    if row.directory is not None:
        fate = did.fates.get(f"{row.log_dir}/{row.directory}", "stays")
        if fate not in AFTER[row.fate] and not (is_moving and fate in AFTER[Fate.REPLACED]):
            found.append(f"{where}: did {fate}")
    is_unknown = not is_kraft and (row.topic, row.partition) not in did.served  # ZooKeeper alone has the assignments
    if row.topic.startswith("__") or is_unknown:
        return found
    served = did.served.get((row.topic, row.partition))
    if row.fate in (Fate.SERVES, Fate.EMPTIES, Fate.PROMOTES):
        wanted = (row.log_start, row.log_end, 0 if row.fate is Fate.EMPTIES else row.records)
        is_unled = served is None and row.fate is Fate.EMPTIES and MAY_HAVE_NO_LEADER in row.message
        if served != wanted and not _is_more(served, wanted) and not is_unled:
            found.append(f"{where}: told {wanted}, did {served}")
    elif row.fate is Fate.CREATES or row.becomes == "empty":
        may_be_unled = MAY_HAVE_NO_LEADER in row.message or NO_WATERMARKS in row.message
        if served != (0, 0, 0) and not (served is None and may_be_unled):
            found.append(f"{where}: told an empty one, did {served}")
    elif row.fate is Fate.LEADERLESS and served not in (None, (row.log_start, row.log_end, row.records)):
        found.append(f"{where}: told {row.log_start} to {row.log_end}, did {served}")
    return found


def _was_first(told: Diagnosis, did: Started) -> bool:
    """Whether a broker loaded or renamed a directory before its log dir went offline, a race that the doctor names."""
    failure = told.failure
    if failure is None or not did.starts or did.offline != {failure.log_dir}:
        return False
    if MAY_RENAME_FIRST in failure.message:
        return did.fates[f"{failure.log_dir}/{failure.directory}"] == "promoted"
    return MAY_LOAD_FIRST in failure.message


def _is_more(served: tuple[int, int, int] | None, wanted: tuple[int | None, int | None, int | None]) -> bool:
    """Whether a client was also handed a damaged batch, which klog does not count: librdkafka checks no checksum."""
    start, end, records = wanted
    if served is None or start is None or end is None or records is None:
        return False
    return served[:2] == (start, end) and records < served[2] <= end - start
