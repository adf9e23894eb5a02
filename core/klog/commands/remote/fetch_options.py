"""The options and the results of `klog remote fetch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from klog.cluster.remote_log.events import TopicIdPartition


class FetchOptions(NamedTuple):
    """The range of a fetch, and its place.

    *to*: the directory.  Segments with an offset from *from_offset* to below *to_offset* are fetched as a whole; an
    offset below 0 counts from the log end.  *from_time*, *to_time* (ms): from the first segment with such a record up
    to that one.  *segment_ids*: these segments, each by itself, in place of those that serve.  *remote_only*: without
    the local log.  *deep*: decode each record.  *strict*: damage is a failure, and nothing remains.  *jobs*: segments
    at once.  *now_ms*: the time of new files.
    """

    to: str
    from_offset: int | None = None
    to_offset: int | None = None
    from_time: int | None = None
    to_time: int | None = None
    segment_ids: Sequence[str] = ()
    remote_only: bool = False
    deep: bool = False
    strict: bool = False
    jobs: int = 1
    now_ms: int = 0


class CopiedSegment(NamedTuple):
    """A segment that is in the directory.

    *folder*: of its partition, below the directory.  *end*: the offset behind it; *log_end*: that behind its last
    batch.  *lacks*: the kinds of its files that have to be built.  *note*: what was odd about it.
    """

    folder: str
    base: int
    end: int
    log_end: int
    size: int
    records: int
    is_remote: bool
    has_producers: bool
    lacks: tuple[str, ...] = ()
    note: str | None = None


class LostSegment(NamedTuple):
    """A segment that could not be fetched: its offsets, both inclusive, and the fault of its object *file*."""

    folder: str
    first: int
    last: int
    segment_id: str
    file: str
    message: str


@dataclass(frozen=True)
class FetchedPartition:
    """A partition in the directory *path*, with the offsets from *first_offset* to below *log_end_offset*.

    *holes*: ranges, with both ends, that it lacks.  *lost*: the damaged segments among them.  *rebuilt*: files that the
    tier lacks, or has with other content.  *notes*: sentences about segments.
    """

    whose: TopicIdPartition
    path: str
    bytes: int
    records: int
    remote_segments: int
    local_segments: int
    first_offset: int
    log_end_offset: int
    holes: tuple[tuple[int, int], ...] = ()
    lost: tuple[LostSegment, ...] = ()
    rebuilt: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def segments(self) -> int:
        """The number of segments."""
        return self.remote_segments + self.local_segments
