"""Transient `.swap` and `.cleaned` files, which replace several segments by one in a single step.

No order of puts and removals does that: a new log beside those that it replaces has offsets twice, and without them,
before it exists, records are missing.  A broker has the same difficulty, and its start finishes its unfinished work:
while `0.log.swap` exists, all files from its base offset up to its next offset are deleted, and every `.swap` is
renamed to its final name; if a `.cleaned` of that offset, or of a lower one, exists too, the `.swap` files are deleted,
and the `.cleaned` with them.  The order is

    put     0.log.cleaned                             from here on, a `.swap` means nothing
    put     0.log.swap 0.index.swap 0.timeindex.swap  the new content, under a second name
    remove  0.log.cleaned                             from here on, a start leaves the new log; until here, the old one
    remove  52.log 52.index … 100.log …
    put     0.log 0.index 0.timeindex
    remove  0.log.swap 0.index.swap 0.timeindex.swap  renaming the remaining ones would change nothing

and the undo has the same steps backwards.  Without the `.cleaned` there would be a moment with a `.log.swap` and no
`.index.swap`: a start then makes an index of ten megabytes of zeros, and an empty time index, by which retention
deletes too early.  In the other order, new indexes would be beside the old log.

In a plan such a file exists neither before nor after: it does not show the progress of the plan.  The actions between
its creation and its deletion show it, and `klog.change.plan.validation` requires at least one.  Kafka:
LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load.
"""

from __future__ import annotations

from collections.abc import Sequence

from klog.change.plan.model import FileState
from klog.formats.names import SEGMENT_KINDS, FileKind, Stage, parse_file

_LOG = f".{FileKind.LOG.value}"


def is_transient(states: Sequence[FileState | None]) -> bool:
    """Whether a file with these states, one before a plan and one after each of its actions, is transient."""
    return len(states) == 3 and states[0] is None and states[2] is None


def comes_back(file: str, states: Sequence[FileState | None]) -> bool:
    """Whether it is the clean-shutdown marker, which is deleted first and restored unchanged at the end."""
    is_marker = file == FileKind.CLEAN_SHUTDOWN.value
    return is_marker and len(states) == 3 and states[1] is None and states[0] == states[2] is not None


def stage_of(file: str) -> Stage | None:
    """Return SWAP or CLEANED for a file of a partition that may be transient, None for any other."""
    name = parse_file(file.rpartition("/")[2])
    if not name.canonical or name.kind not in SEGMENT_KINDS:
        return None
    if name.stage is Stage.SWAP or (name.stage is Stage.CLEANED and name.kind is FileKind.LOG):
        return name.stage
    return None


def final_name(file: str) -> str:
    """Return the file that has, before or after, the content of the transient *file*: its name without the stage."""
    return file.removesuffix(Stage.SWAP.value).removesuffix(Stage.CLEANED.value)


def log_of(file: str) -> str:
    """Return the log of the segment of the transient *file*."""
    return final_name(file).rpartition(".")[0] + _LOG


def witness_of(file: str) -> str:
    """Return the file whose state shows whether *file*, which does not exist, is a future or a deleted one.

    For a `.swap` it is the log, which changes while the `.swap` exists; for the `.cleaned` the log's `.swap`, which is
    created or deleted while the `.cleaned` exists.
    """
    return log_of(file) if file.endswith(Stage.SWAP.value) else f"{log_of(file)}{Stage.SWAP.value}"
