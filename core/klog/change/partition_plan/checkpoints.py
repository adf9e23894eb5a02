"""The checkpoint files of a log dir: which lines change with a partition, and which files a broker would refuse."""

from __future__ import annotations

import os
from collections.abc import Mapping
from shlex import quote

from klog.base.errors import KlogError
from klog.change.plan.draft import Draft
from klog.data_dir.log_dir import LogDir
from klog.data_dir.root_files import read_small
from klog.formats.checkpoint import OffsetEntry, offset_entries, write_offsets
from klog.formats.names import ROOT_CHECKPOINTS, FileKind

Changes = Mapping[tuple[str, int], int | None]
"""New offsets by topic and partition; None takes the line out."""


def check_legible(log_dir: LogDir) -> None:
    """Check that a broker takes every checkpoint: a new line would go into one that it refuses.  Raises KlogError."""
    for kind in ROOT_CHECKPOINTS:
        found = log_dir.checkpoints.file(kind)
        if found is not None and found.malformed is not None:
            path = os.path.join(log_dir.path, kind.value)
            raise KlogError(f"{path}: {found.malformed}; first: klog recover {quote(log_dir.path)} --apply")


def plan(log_dir: LogDir, changes: Mapping[FileKind, Changes], draft: Draft, *, mend: bool) -> None:
    """Add to *draft* the changed checkpoints; with *mend* also those that a broker refuses.

    Every valid line of a bad checkpoint counts.  Raises OSError (staging).
    """
    for kind in ROOT_CHECKPOINTS:
        found = log_dir.checkpoints.file(kind)
        is_refused = found is not None and found.malformed is not None
        wanted = changes.get(kind, {})
        if not (mend if is_refused else wanted):
            continue
        entries = list(found.entries) if found is not None and not is_refused else _lines(log_dir, kind)
        draft.put(kind.value, [write_offsets(_changed(entries, wanted))])


def plan_around(
    log_dir: LogDir, lower: Mapping[FileKind, Changes], final: Mapping[FileKind, Changes], before: Draft, after: Draft
) -> None:
    """Add to *before* the checkpoints with lower offsets, and to *after*, at the end, those with higher ones.

    Raises OSError (staging).
    """
    plan(log_dir, lower, before, mend=False)
    lowered = list(before.actions)
    plan(log_dir, final, before, mend=False)
    # A file that is lowered and raised at the end has one history, in two places of the plan.
    after.actions = [action for action in before.actions if action not in lowered]
    before.actions = [action for action in before.actions if action in lowered]


def by_file(
    offsets: Mapping[tuple[str, int], Mapping[FileKind, int | None]],
) -> dict[FileKind, dict[tuple[str, int], int | None]]:
    """Return the changes of many partitions by checkpoint file."""
    found: dict[FileKind, dict[tuple[str, int], int | None]] = {}
    for key, values in offsets.items():
        for kind, value in values.items():
            found.setdefault(kind, {})[key] = value
    return found


def _lines(log_dir: LogDir, kind: FileKind) -> list[OffsetEntry]:
    """Return the lines of a refused file that are entries; none when there is no such file."""
    content = read_small(os.path.join(log_dir.path, kind.value))
    return offset_entries(content) if isinstance(content, bytes) else []


def _changed(entries: list[OffsetEntry], changes: Changes) -> list[OffsetEntry]:
    """Return *entries* with the changed ones in their places; of several for one partition the last counts."""
    by_key = {(entry.topic, entry.partition): entry.offset for entry in entries}
    for key, offset in changes.items():
        if offset is None:
            by_key.pop(key, None)
        else:
            by_key[key] = offset
    return [OffsetEntry(topic, partition, offset) for (topic, partition), offset in by_key.items()]
