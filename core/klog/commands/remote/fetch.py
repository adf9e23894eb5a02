"""Fetches partitions out of remote storage into one local log dir: `klog remote fetch`.

fetched = fetch_remote(RemoteQuery(["b1/data"], open_tier("tier", in_order=True)), FetchOptions("back"), Silence())
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from klog.base.errors import KlogError, UsageError, are, offsets_text
from klog.base.interruptible_threads import run_all
from klog.base.progress import Sink
from klog.commands.remote.fetch_dir import FetchDir, check_place, fetch_dir
from klog.commands.remote.fetch_end import complete_partition, first_offset, write_root
from klog.commands.remote.fetch_options import CopiedSegment, FetchedPartition, FetchOptions, LostSegment
from klog.commands.remote.fetch_plan import PartitionToFetch, SegmentToFetch, plan_fetch
from klog.commands.remote.segment_copy import SegmentCopier
from klog.commands.remote.sources import RemoteQuery, RemoteSources
from klog.data_dir.disk.directory_tree import remove_tree
from klog.data_dir.disk.disk_changes import Disk
from klog.formats.checkpoint import OffsetEntry
from klog.partition.verify.segment_pass import SurveyOptions
from klog.tier.tier import Tier, is_url

_KEPT_BYTES: Final = 256 << 20
_KEPT_SEGMENTS: Final = 64
"""After so much the segments are synced and listed."""
_PATIENCE_S: Final = 1.0
_Task = tuple[PartitionToFetch, SegmentToFetch]


def fetch_remote(
    query: RemoteQuery, options: FetchOptions, sink: Sink, disk: Disk | None = None
) -> list[FetchedPartition]:
    """Fetch what the query selects; return the partitions, none if no segment serves.

    Raises UsageError without a tier, for a directory that is not empty; KlogError if the tier cannot be read, or with
    *strict* if anything is damaged; OSError.  Except for *strict*, the next run goes on.
    """
    if query.tier is None:
        raise UsageError("fetch copies out of remote storage: name --remote TIER")
    disk = disk or Disk()
    path = check_place(options.to, [*query.paths, query.tier.uri])
    sources = RemoteSources(query)
    planned = plan_fetch(sources, query.tier, options)
    cluster_id = _cluster_id(sources)
    del sources  # the plan has what the run needs
    if not planned:
        return []
    with fetch_dir(path, disk, options.now_ms) as made:
        made.begin(_asked(query, options))
        run = _Fetch(query.tier, made, options, sink, disk)
        run.copy(planned)
        if options.strict and (problem := run.problem(planned)):
            made.remove()
            raise KlogError(f"{problem}; with --strict nothing is left")
        return run.complete(planned, cluster_id)


def _asked(query: RemoteQuery, options: FetchOptions) -> dict[str, Any]:
    """Return all that decides about the content, as JSON has it."""
    assert query.tier is not None
    own = options._asdict()
    for name in ("to", "strict", "jobs", "now_ms", "deep"):
        del own[name]
    own["segment_ids"] = list(options.segment_ids)
    paths = [os.path.realpath(path) for path in query.paths]
    numbers = [str(one) for one in query.numbers]
    chosen = [list(query.topics), numbers, list(query.clusters), list(query.topic_ids), query.node, query.until_ms]
    tier = query.tier.uri if is_url(query.tier.uri) else os.path.realpath(query.tier.uri)
    return {"tier": tier, "log_dirs": paths, "chosen": chosen, **own}


def _cluster_id(sources: RemoteSources) -> str | None:
    return next((one.cluster_id for one in sources.log_dirs if one.cluster_id is not None), None)


class _Fetch:
    """One run into a directory."""

    def __init__(self, tier: Tier, made: FetchDir, options: FetchOptions, sink: Sink, disk: Disk) -> None:
        self._tier, self._made, self._options, self._sink, self._disk = tier, made, options, sink, disk
        self._lost: list[LostSegment] = []
        self._waiting: list[CopiedSegment] = []
        self._lock, self._keeping = threading.Lock(), threading.Lock()
        self._is_stopped = False

    # segments

    def copy(self, planned: Sequence[PartitionToFetch]) -> None:
        """Copy the segments that are not there, several at once.  Raises KlogError, OSError."""
        sizes = [segment.size for _, segment in self._missing(planned)]
        self._sink.expect(sum(sizes))
        for folder in dict.fromkeys(one.folder for one, _ in self._missing(planned)):
            self._made.folder(folder)
        queue = self._missing(planned)
        jobs = max(1, min(self._options.jobs, len(sizes)))
        try:
            run_all([partial(self._work, queue) for _ in range(jobs)], self._stop, _PATIENCE_S)
        except Exception:
            with suppress(OSError):
                self._keep()
            raise
        self._keep()

    def _missing(self, planned: Sequence[PartitionToFetch]) -> Iterator[_Task]:
        for one in planned:
            for segment in one.segments:
                if segment.base not in self._made.done.get(one.folder, {}):
                    yield one, segment

    def _stop(self) -> None:
        self._is_stopped = True

    def _work(self, queue: Iterator[_Task]) -> None:
        survey = SurveyOptions(deep=self._options.deep)
        while not self._is_stopped:
            with self._lock:
                task = next(queue, None)
            if task is None:
                return
            planned, segment = task
            path = os.path.join(self._made.path, planned.folder)
            found = SegmentCopier(self._tier, planned, path, survey, self._disk).copy(segment, self._sink)
            self._take(found)

    def _take(self, found: CopiedSegment | LostSegment) -> None:
        with self._lock:
            if isinstance(found, LostSegment):
                self._lost.append(found)
                return
            self._waiting.append(found)
            is_due = len(self._waiting) >= _KEPT_SEGMENTS or sum(one.size for one in self._waiting) >= _KEPT_BYTES
        if is_due:
            self._keep()

    def _keep(self) -> None:
        """Sync and list the segments that are complete; others are copied meanwhile."""
        with self._keeping:
            with self._lock:
                waiting, self._waiting = self._waiting, []
            if waiting:
                self._made.keep(waiting)

    def problem(self, planned: Sequence[PartitionToFetch]) -> str | None:
        """Return the first thing that is missing or damaged; None if all is there."""
        for one in self._lost:
            return f"{one.file}: {one.message}"
        if (lacking := next((one for one in planned if one.holes), None)) is None:
            return None
        first, last = lacking.holes[0]
        lost = next(iter(lacking.lost_entries), None)
        return f"{lacking.whose}: {lost or f'{offsets_text(first, last)} {are(first, last)} in neither tier'}"

    # the end

    def complete(self, planned: Sequence[PartitionToFetch], cluster_id: str | None) -> list[FetchedPartition]:
        """Write all other files.  Raises KlogError, OSError."""
        found: list[FetchedPartition] = []
        written: list[str] = []
        roots: dict[str, dict[str, tuple[OffsetEntry, int]]] = {}
        for one in planned:
            done = self._made.done.get(one.folder, {})
            copied = [done[each.base] for each in one.segments if each.base in done]
            lost = tuple(each for each in self._lost if each.folder == one.folder)
            if not copied:
                remove_tree(os.path.join(self._made.path, one.folder), self._disk)
                found.append(self._result(one, copied, lost, []))
                continue
            names, rebuilt = complete_partition(self._made, one, copied, self._disk)
            written += names
            entry = OffsetEntry(one.whose.topic, one.whose.number, copied[-1].log_end)
            roots.setdefault(one.root, {})[str(one.whose)] = entry, first_offset(one, copied)
            found.append(self._result(one, copied, lost, rebuilt))
        for root, entries in roots.items():
            written += write_root(self._made, root, entries, cluster_id)
        self._made.finish(written)
        return found

    def _result(
        self,
        planned: PartitionToFetch,
        copied: Sequence[CopiedSegment],
        lost: tuple[LostSegment, ...],
        rebuilt: Sequence[str],
    ) -> FetchedPartition:
        first, end = (
            (first_offset(planned, copied), copied[-1].log_end) if copied else (planned.log_start, planned.log_start)
        )
        remote = sum(one.is_remote for one in copied)
        return FetchedPartition(
            planned.whose,
            os.path.join(self._made.path, planned.folder),
            sum(one.size for one in copied),
            sum(one.records for one in copied),
            remote,
            len(copied) - remote,
            first,
            end,
            tuple(_merged([*planned.holes, *((one.first, one.last) for one in lost)])),
            lost,
            tuple(rebuilt),
            (*planned.lost_entries, *(one.note for one in copied if one.note is not None)),
        )


def _merged(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield ranges, both ends inclusive, in order; neighbours as one."""
    before: tuple[int, int] | None = None
    for first, last in sorted(ranges):
        if before is not None and first <= before[1] + 1:
            before = before[0], max(before[1], last)
            continue
        if before is not None:
            yield before
        before = first, last
    if before is not None:
        yield before
