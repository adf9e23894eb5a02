"""The faults that `klog verify` finds in a log, for the fields of its batches."""

from __future__ import annotations

import os

from klog.base.errors import KlogError
from klog.commands.bytes.log_context import LogContext
from klog.data_dir.partition import Partition
from klog.formats.names import FileName, Stage
from klog.partition.verify import log_checks
from klog.partition.verify.findings import KINDS, PartitionFacts, Severity
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.verify import facts_around, survey_partition


def segment_facts(path: str, name: FileName) -> PartitionFacts | None:
    """Return the facts of the one segment that the file at *path* belongs to; None if it is no partition's."""
    partition = Partition(os.path.dirname(path) or ".")
    own = [partition.file(files.log) for files in partition.segments if files.base_offset == name.offset]
    if not own or name.stage is not Stage.IN_USE:
        return None
    try:
        around = facts_around(partition)
        return survey_partition(partition, around, SurveyOptions(), chosen=lambda _, path: path == own[0])
    except KlogError:
        return None


def note_faults(log: LogContext, name: FileName) -> None:
    """Note the faults of a log's batches among its neighbours, and the damage that is none to repair."""
    facts = segment_facts(log.source.path, name)
    if facts is None or not facts.segments or facts.partition.file(facts.segments[0].files.log) != log.source.path:
        return
    for finding in log_checks.batches(facts):
        if finding.position is not None and finding.severity is not Severity.NOTE:
            log.problems.setdefault(finding.position, f"{finding.message} ({finding.id})")
    for stretch, kind, _ in log_checks.damaged_places(facts, facts.segments[0]):
        if KINDS[kind].severity is Severity.NOTE:
            log.harmless.add(stretch.damage.place.position or 0)
