"""`klog completion`: the script of a shell, and what the script asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from klog.base.errors import KlogError, UsageError, near_misses

from klog_cli import output

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Legal names of topics.  The shell expands its list of words, so no other text from a disk may be in it."""


def complete(kind: str, words: Sequence[str]) -> int:
    """Print the script of the shell *kind*, or the `topics` or `plans` for a line with *words*; return the exit code.

    Raises UsageError for an unknown shell.
    """
    from klog_cli.completion_scripts import SHELLS

    if kind == "topics":
        _show(_topics(words))
    elif kind == "plans":
        _show(_plans())
    elif kind in SHELLS:
        from klog_cli.command_catalog import read

        output.text(SHELLS[kind](read()))
    else:
        raise UsageError(f"{kind}: no such shell, expected one of {', '.join(SHELLS)}{near_misses(kind, SHELLS)}")
    return 0


def _show(words: Iterable[str]) -> None:
    for word in sorted(set(words)):
        if _LEGAL.fullmatch(word):
            output.text(f"{word}\n")


def _topics(words: Sequence[str]) -> Iterator[str]:
    """Yield the topics of the log dirs among *words*; a path that cannot be read has none to offer."""
    from klog.data_dir.log_dir import LogDir

    for path in map(os.path.expanduser, words):
        if os.path.isdir(path):
            with suppress(KlogError, OSError):
                yield from (partition.topic for partition in LogDir(path).partitions if partition.topic is not None)


def _plans() -> Iterator[str]:
    from klog.change.plan.find_plans import plans_near

    yield "latest"
    with suppress(KlogError, OSError):
        yield from (kept.plan.id for kept in plans_near(os.getcwd()))
