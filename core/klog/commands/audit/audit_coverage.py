"""The part of a cluster that an audit has seen: the weight of "none"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from klog.base.errors import UnsupportedError
from klog.cluster.keyed_topics import newest_metadata, topics_by
from klog.commands.audit.audited_partitions import INTERNAL, AuditPartition, AuditQuery
from klog.commands.audit.header_survey import HeaderSurvey
from klog.data_dir.log_dir import LogDir


class Coverage(NamedTuple):
    """*known*: partitions of the cluster as its metadata log has them, None without one; *read*: those that were read.

    *missing*: names of those that are known, or must be there by their numbers, and were not read.  *earliest*:
    timestamp (ms) of the first batch that is still there, None without batches.
    """

    known: int | None
    read: int
    missing: tuple[str, ...]
    earliest: int | None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is known to be missing."""
        return self.known is not None and not self.missing


class TopicCounts(NamedTuple):
    """The known topics around an audit.

    *counts*: partitions of each topic, by name and id.  *known*: by topic the numbers in the metadata log, None without
    one.
    """

    counts: Mapping[tuple[str, str | None], int]
    known: Mapping[str, frozenset[int]] | None


def cluster_topics(partitions: Sequence[AuditPartition], log_dirs: Sequence[LogDir]) -> TopicCounts:
    """Return the partition counts in *log_dirs* for the topics of *partitions*.  Raises UnreadableError."""
    state = newest_metadata(log_dirs)
    try:
        topics = topics_by([copy for one in partitions for copy in one.copies], log_dirs, None, state)
    except UnsupportedError:
        topics = []  # too many partitions for evidence by keys
    counts = {(one.name, one.topic_id): one.partition_count for one in topics}
    if state is None:
        return TopicCounts(counts, None)
    return TopicCounts(
        counts, {name: frozenset(state.partitions.get(id_, ())) for name, id_ in state.topic_ids.items()}
    )


def coverage_of(survey: HeaderSurvey, topics: TopicCounts, query: AuditQuery) -> Coverage:
    """Return how much of the cluster a survey has seen."""
    read = {(one.topic, one.number) for one in survey.partitions}
    known = topics.known
    if known is not None:
        every = {
            (name, number) for name, numbers in known.items() for number in numbers if _is_meant(name, number, query)
        }
    else:
        counts = {(one.topic, topics.counts.get((one.topic, one.topic_id), 0)) for one in survey.partitions}
        every = {(name, number) for name, count in counts for number in range(count) if _is_meant(name, number, query)}
    missing = tuple(f"{name}-{number}" for name, number in sorted(every - read))
    earliest = [report.facts.earliest for report in survey.reports if report.facts.earliest >= 0]
    return Coverage(len(every) if known is not None else None, len(read), missing, min(earliest, default=None))


def _is_meant(name: str, number: int, query: AuditQuery) -> bool:
    if not query.internal and name.startswith(INTERNAL):
        return False
    by_name = not query.topics or any(fnmatchcase(name, glob) for glob in query.topics)
    return by_name and (not query.numbers or number in query.numbers)
