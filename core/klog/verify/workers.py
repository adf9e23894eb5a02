"""Verifies many small partitions in several processes.

Of a small segment most of the work is Python's, so threads would only wait for the interpreter's lock.  Processes are
forked: they have all partitions already, and hand back what they found.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import BinaryIO

from klog.data_dir.partition import Partition
from klog.errors import KlogError
from klog.progress import Silence, Sink
from klog.verify.facts import LogDirFacts
from klog.verify.findings import Finding
from klog.verify.segment import SurveyOptions
from klog.verify.verify import Chosen, PartitionResult, VerifyTotals, verify_partition

Wanted = Sequence[tuple[Partition, LogDirFacts]]
"""The partitions to check, each with what it has to know of its log dir."""

FEWEST = 256
"""With fewer partitions to start processes is not worth while."""
_CHUNK = 16
_SAMPLE = 32
_SMALL_BYTES = 8 << 20


def verify_partitions(
    wanted: Wanted, request: SurveyOptions, sink: Sink, chosen: Chosen | None
) -> Iterator[PartitionResult]:
    """Check one partition after the other, in their order; many small ones in *request.jobs* processes.

    The threads of large segments share one process, which also reports progress as it is made.
    """
    if request.jobs > 1 and len(wanted) >= FEWEST and _may_fork() and _are_small(wanted):
        yield from _by_processes(wanted, request, sink, chosen)
    else:
        for partition, around in wanted:
            yield verify_partition(partition, around, request, sink, chosen)


def _may_fork() -> bool:
    """Whether a copy of this process would be whole: of several threads only one would go on in it."""
    return hasattr(os, "fork") and threading.active_count() == 1


def _are_small(wanted: Wanted) -> bool:
    """Whether the partitions, judged by a few of them, have little in each segment."""
    segments = size = 0
    for partition, _ in islice(wanted, 0, None, max(1, len(wanted) // _SAMPLE)):
        for files in partition.segments:
            try:
                size += os.stat(os.path.join(partition.path, files.log)).st_size
            except OSError:
                continue  # the pass says why
            segments += 1
    return size <= segments * _SMALL_BYTES


def _by_processes(
    wanted: Wanted, request: SurveyOptions, sink: Sink, chosen: Chosen | None
) -> Iterator[PartitionResult]:
    workers: list[tuple[int, BinaryIO]] = []
    try:
        workers.extend(_started(wanted, request, chosen, number) for number in range(request.jobs))
        for start in range(0, len(wanted), _CHUNK):
            results = _results(workers[start // _CHUNK % request.jobs][1])
            for (partition, _), (findings, totals) in zip(wanted[start : start + _CHUNK], results, strict=True):
                sink.expect(totals.bytes)
                sink.advance(totals.bytes)
                yield PartitionResult(partition, findings, totals)
    finally:
        for process, pipe in workers:
            pipe.close()
            os.kill(process, signal.SIGKILL)  # it has ended, or the rest is not needed
            os.waitpid(process, 0)


def _results(pipe: BinaryIO) -> list[tuple[list[Finding], VerifyTotals]]:
    """Return what came of the next chunk of a process.  Raises what was raised there, KlogError when it was killed."""
    try:
        results: list[tuple[list[Finding], VerifyTotals]] | Exception = pickle.load(pipe)
    except EOFError:
        raise KlogError("a process that checked partitions was killed") from None
    if isinstance(results, Exception):
        raise results
    return results


def _started(wanted: Wanted, request: SurveyOptions, chosen: Chosen | None, number: int) -> tuple[int, BinaryIO]:
    """Start a process that checks every *request.jobs*-th chunk, from chunk *number* on; return its id and results."""
    read_end, write_end = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process hears of it, and ends this one
            os.close(read_end)
            with os.fdopen(write_end, "wb") as pipe:
                _work(wanted, request._replace(jobs=1), chosen, number, request.jobs, pipe)
        finally:
            os._exit(0)
    os.close(write_end)
    return process, os.fdopen(read_end, "rb")


def _work(
    wanted: Wanted, request: SurveyOptions, chosen: Chosen | None, number: int, jobs: int, pipe: BinaryIO
) -> None:
    """Check the chunks of one process; write for each a list of findings and totals, or what was raised."""
    try:
        for start in range(number * _CHUNK, len(wanted), jobs * _CHUNK):
            results = [
                verify_partition(partition, around, request, Silence(), chosen)[1:]
                for partition, around in wanted[start : start + _CHUNK]
            ]
            pickle.dump(results, pipe, pickle.HIGHEST_PROTOCOL)
            pipe.flush()
    except (KlogError, OSError, MemoryError) as error:  # the first process raises it, as if it had done the work itself
        pickle.dump(error, pipe)
