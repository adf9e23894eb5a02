"""Replaces several segments by one, or shortens one, in an order of actions that may stop anywhere.

    log = draft.prepare(f"orders-3/{base:020}.log", content)
    replace_segments(draft, "orders-3", [0, 52, 100], log, {FileKind.INDEX: entries, FileKind.TIME_INDEX: times})

No order of puts and removals does that in a single step: a new log beside those that it replaces has offsets twice, and
without them, before it exists, records are missing.  A broker has the same difficulty, and its start finishes its
unfinished work: while `0.log.swap` exists, all files from its base offset up to its next offset are deleted, and every
`.swap` is renamed to its final name; if a `.cleaned` of that offset, or of a lower one, exists too, the `.swap` files
are deleted, and the `.cleaned` with them.  The order is

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
its creation and its deletion show it, and `check_transient` requires at least one.

A broker that starts between two of the actions finds the log as it was or as it will be, indexes and all.  Only
segments that begin behind the end of the new log may still exist: the log then has its future content, and the end of
its old one.  Segments are therefore removed from the first to the last, and restored from the last to the first: as
long as a record exists, all later ones exist too, or it would outlive the tombstone that was written over it.

Kafka: LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from klog.change.plan.draft import Draft, StagedContent
from klog.change.plan.model import same_content
from klog.formats.names import SEGMENT_KINDS, FileKind, Stage, file_name

_INDEXES = SEGMENT_KINDS[1:]


def replace_segments(
    draft: Draft,
    directory: str,
    bases: Sequence[int],
    log: StagedContent,
    indexes: Mapping[FileKind, Iterable[bytes | bytearray | memoryview]],
) -> None:
    """Add to *draft* the merge of consecutive segments into one, with the base offset of the first.

    *bases*: their base offsets, ascending, without the active segment's.  *log*: the prepared log of the first; it may
    be empty, otherwise its offsets lie between that base and the base of the segment behind the last.  *indexes*: the
    content of its indexes; one that is not among them is deleted.  Producer snapshots at the base offsets of the others
    are deleted as well.  Raises StaleError, UnreadableError, OSError.
    """
    names = {kind: f"{directory}/{file_name(bases[0], kind)}" for kind in SEGMENT_KINDS}
    new = {kind: draft.prepare(names[kind], content, log.file) for kind, content in indexes.items()}
    changes = not same_content(draft.state(log.file), log.after)
    swaps = list(_stand_in(draft, names, log, new)) if changes else []
    for base in bases[1:]:
        # The log first: without it, a start takes the indexes away.
        for kind in SEGMENT_KINDS:
            draft.remove(f"{directory}/{file_name(base, kind)}")
    draft.put_prepared(log)
    for kind in _INDEXES:
        if kind in new:
            draft.put_prepared(new[kind])
        else:
            draft.remove(names[kind])
    for swap in swaps:
        draft.remove_transient(swap)
    for base in bases[1:]:
        draft.remove(f"{directory}/{file_name(base, FileKind.SNAPSHOT)}")


def _stand_in(
    draft: Draft, names: Mapping[FileKind, str], log: StagedContent, new: Mapping[FileKind, StagedContent]
) -> Iterator[str]:
    """Put the new files beside the old ones; yield their names, in the order in which they are removed again."""
    shield = f"{names[FileKind.LOG]}{Stage.CLEANED.value}"
    draft.put_transient(shield)
    for kind in SEGMENT_KINDS:
        content = log if kind is FileKind.LOG else new.get(kind)
        # A deleted index has to be written over if the new log is empty: a start then deletes nothing.
        if content is not None or draft.state(names[kind]) is not None:
            swap = f"{names[kind]}{Stage.SWAP.value}"
            draft.put_transient(swap, content)
            yield swap
    draft.remove_transient(shield)
