"""The forms of a step on the way to a start that loses nothing."""

from __future__ import annotations

import shlex

from klog.commands.doctor.diagnosis import NextStep


def manual_step(sentence: str, why: str) -> NextStep:
    """Return a step outside of klog."""
    return NextStep(None, sentence, why)


def move_step(path: str, why: str) -> NextStep:
    """Return the step that moves a directory away."""
    return manual_step(f"move {path} out of every log dir", why)


def command_step(*words: str, why: str) -> NextStep:
    """Return the step that a command of klog does."""
    return NextStep(shlex.join(words), None, why)
