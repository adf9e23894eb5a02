"""The input of a broker's start, and its result for a partition, clean stop included."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from klog.change.partition_plan.contents import Content, FileRange

NOTHING: Mapping[str, Any] = MappingProxyType({})


class StartState(NamedTuple):
    """The facts that a broker has before it opens the partition.

    *clean*: it was stopped cleanly.  *recovery_point*, *log_start*: from the checkpoints, 0 without an entry.
    """

    clean: bool = False
    recovery_point: int = 0
    log_start: int = 0


class SegmentCut(NamedTuple):
    """A segment that lost its end: its base offset, the offset that becomes its end, the bytes it has then and had."""

    base: int
    offset: int
    size: int
    before: int


class StartOutcome(NamedTuple):
    """The result of a start and a clean stop for a partition.

    *fails*: the reason why the broker does not complete the start; the other fields are then invalid except *reason*
    and *offline*, which are those of the FailsError.  *logs*: the pieces of each log, *files*: every other file of the
    log (none, if the settings do not ask for them), both by name.  *epochs*: the new `leader-epoch-checkpoint`, None if
    it is unchanged.  *cuts*, *dropped*: the lost parts, by base offset.  *recovered*: base offsets of the segments that
    were read.
    """

    fails: str | None = None
    logs: Mapping[str, tuple[FileRange, ...]] = NOTHING
    files: Mapping[str, Content] = NOTHING
    epochs: bytes | None = None
    cuts: tuple[SegmentCut, ...] = ()
    dropped: tuple[int, ...] = ()
    recovered: tuple[int, ...] = ()
    log_start: int = 0
    log_end: int = 0
    reason: str | None = None
    offline: bool = False
