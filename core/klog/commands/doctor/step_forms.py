"""The forms of a step on the way to a start that loses nothing."""

from __future__ import annotations

import os
import shlex

from klog.commands.doctor.diagnosis import NextStep, PartitionFate
from klog.formats.names import FileKind


def manual_step(sentence: str, why: str) -> NextStep:
    """Return a step outside of klog."""
    return NextStep(None, sentence, why)


def move_step(path: str, why: str) -> NextStep:
    """Return the step that moves a directory away."""
    return manual_step(f"move {path} out of every log dir", why)


def command_step(*words: str, why: str) -> NextStep:
    """Return the step that a command of klog does."""
    return NextStep(shlex.join(words), None, why)


def log_start_step(row: PartitionFate) -> NextStep:
    """Return the step that lowers the log start of a partition in the checkpoint of its log dir."""
    file = os.path.join(row.log_dir or "", FileKind.LOG_STARTS.value)
    line = f"the line `{row.topic} {row.partition} {row.log_start}` of {file}"
    sentence = f"unless the records below it were deleted on purpose, lower the log start in {line} to the start of the"
    return manual_step(f"{sentence} leader epochs", row.message)
