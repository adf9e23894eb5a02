"""The faults that `klog verify` finds in a file of a partition, for the fields at their positions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

from klog.base.errors import KlogError
from klog.commands.bytes.log_context import LogContext
from klog.data_dir.partition import Partition
from klog.formats.names import FileKind, FileName, Stage
from klog.partition.verify import index_checks, log_checks, producer_checks
from klog.partition.verify.findings import KINDS, Findings, PartitionFacts, Severity
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.verify import facts_around, survey_partition

_CHECKS: Final[dict[FileKind, tuple[Callable[[PartitionFacts], Findings], ...]]] = {
    FileKind.LOG: (log_checks.batches, log_checks.gaps, producer_checks.transactions, producer_checks.sequences),
    FileKind.INDEX: (index_checks.offset_index,),
    FileKind.TIME_INDEX: (index_checks.time_index,),
    FileKind.TXN_INDEX: (index_checks.txn_index, producer_checks.transactions),
}
"""The checks whose findings have positions in a file of each kind; a log's damage is a fault of its own bytes."""
_WHOLE_BYTES: Final = 64 << 20
"""The logs of a partition are all read up to this size, for transactions and sequences begin in earlier segments."""


def segment_facts(path: str, name: FileName, *, small_only: bool = False) -> PartitionFacts | None:
    """Return the facts of the partition of the file at *path*, or of the file's segment if the partition is large.

    None if the file is no partition's; with *small_only*, also if the partition is large.
    """
    partition = Partition(os.path.dirname(path) or ".")
    own = [partition.file(files.log) for files in partition.segments if files.base_offset == name.offset]
    if not own or name.stage is not Stage.IN_USE:
        return None
    try:
        sizes = sum(os.path.getsize(partition.file(files.log)) for files in partition.segments)
        if small_only and sizes > _WHOLE_BYTES:
            return None
        chosen = None if sizes <= _WHOLE_BYTES else lambda _, log: log == own[0]
        return survey_partition(partition, facts_around(partition), SurveyOptions(), chosen=chosen)
    except (KlogError, OSError):
        return None


def faults(facts: PartitionFacts, name: FileName) -> Iterator[tuple[int, str]]:
    """Yield the position and the text of each fault that `klog verify` finds in the file called *name*, but notes."""
    for check in _CHECKS[name.kind]:
        for finding in check(facts):
            is_here = os.path.basename(finding.file) == name.name and finding.position is not None
            if is_here and finding.severity is not Severity.NOTE:
                yield finding.position or 0, f"{finding.message} ({finding.id})"


def note_faults(log: LogContext, name: FileName, *, small_only: bool) -> None:
    """Note the faults of a log's batches among the others, and the damage that is none to repair.

    *small_only*: nothing is noted of a large partition, whose segment would be read for it.
    """
    facts = segment_facts(log.source.path, name, small_only=small_only)
    if facts is None:
        return
    for position, fault in faults(facts, name):
        log.problems.setdefault(position, fault)
    for segment in facts.segments:
        if segment.files.base_offset == name.offset:
            for stretch, kind, _ in log_checks.damaged_places(facts, segment):
                if KINDS[kind].severity is Severity.NOTE:
                    log.harmless.add(stretch.damage.place.position or 0)
