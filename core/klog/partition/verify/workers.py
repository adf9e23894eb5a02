"""Verifies partitions one after the other, many small ones in several processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice

from klog.base.processes import FEWEST, map_in_processes, may_fork
from klog.base.progress import Silence, Sink
from klog.data_dir.partition import Partition
from klog.partition.verify.facts import LogDirFacts
from klog.partition.verify.findings import Finding
from klog.partition.verify.segment import SurveyOptions
from klog.partition.verify.verify import Chosen, Observe, PartitionResult, VerifyTotals, verify_partition

Wanted = Sequence[tuple[Partition, LogDirFacts]]
"""The partitions to check, each with the facts of its log dir."""

_SAMPLE = 32
_SMALL_BYTES = 8 << 20


def verify_partitions(
    wanted: Wanted, request: SurveyOptions, sink: Sink, chosen: Chosen | None, observe: Observe | None = None
) -> Iterator[PartitionResult]:
    """Check one partition after the other, in their order; many small ones in *request.jobs* processes.

    A summary is then returned by another process, and must be plain data. The threads of large segments share one
    process, which also reports progress immediately.
    """
    if request.jobs > 1 and len(wanted) >= FEWEST and may_fork() and _are_small(wanted):
        yield from _by_processes(wanted, request, sink, chosen, observe)
    else:
        for partition, around in wanted:
            yield verify_partition(partition, around, request, sink, chosen, observe)


def _are_small(wanted: Wanted) -> bool:
    """Whether the partitions, judged by a few of them, have little in each segment."""
    segments = size = 0
    for partition, _ in islice(wanted, 0, None, max(1, len(wanted) // _SAMPLE)):
        for files in partition.segments:
            try:
                size += os.stat(os.path.join(partition.path, files.log)).st_size
            except OSError:
                continue  # the pass reports the reason
            segments += 1
    return size <= segments * _SMALL_BYTES


def _by_processes(
    wanted: Wanted, request: SurveyOptions, sink: Sink, chosen: Chosen | None, observe: Observe | None
) -> Iterator[PartitionResult]:
    alone = request._replace(jobs=1)

    def verify(number: int) -> tuple[list[Finding], VerifyTotals, object]:
        partition, around = wanted[number]
        found = verify_partition(partition, around, alone, Silence(), chosen, observe)
        return found.findings, found.totals, found.summary

    results = map_in_processes(verify, len(wanted), request.jobs)
    for (partition, _), (findings, totals, summary) in zip(wanted, results, strict=True):
        sink.expect(totals.bytes)
        sink.advance(totals.bytes)
        yield PartitionResult(partition, findings, totals, summary)
