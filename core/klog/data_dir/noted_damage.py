"""Damage in a log that a command can work around: the command names the log, and has 4 in its exit code."""

from __future__ import annotations

import os
from collections.abc import Callable

from klog.base.unusable import UNUSABLE, Unusable
from klog.data_dir.lock_state import lock_state
from klog.data_dir.partition import Partition
from klog.data_dir.preallocation import is_preallocated_tail
from klog.formats.damage import Damage
from klog.formats.names import FileKind


def note_damage(partition: Partition, path: str, damage: Damage, note: Callable[[str], object]) -> None:
    """Pass *note* a sentence about *damage* of the log at *path*, unless it is preallocated space.

    It is a problem unless a running broker may be writing that part just now.
    """
    if is_preallocated_tail(partition, damage):
        return
    note(str(damage))
    is_live = damage.is_unfinished and lock_state(os.path.join(partition.log_dir, FileKind.LOCK.value)).held
    if not is_live:
        UNUSABLE.note(Unusable(path, str(damage), is_unreadable=False))
