"""The exceptions of klog, and its exit codes.

Damage in a file's content is never raised while reading: it is a value (`klog.formats.damage.Damage`).
An exception means that there is no answer at all: not Kafka data, not supported, refused, unreadable.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag


class ExitCode(IntFlag):
    """The exit codes of the command line, added up; those of fsck(8)."""

    CLEAN = 0
    CORRECTED = 1
    PROBLEMS_LEFT = 4
    OPERATIONAL_ERROR = 8
    """I/O, permission, not Kafka's data, a lock that is held."""
    USAGE = 16
    CANCELLED = 32


class KlogError(Exception):
    """The root of all exceptions that klog raises on purpose: one line that says what, where and what to do next."""

    exit_code: int = ExitCode.OPERATIONAL_ERROR

    @property
    def lines(self) -> tuple[str, ...]:
        """The message, a line for each thing that is wrong."""
        return (str(self),)


class NotKafkaError(KlogError):
    """The path exists, but it contains nothing that klog recognises."""


class UnsupportedError(KlogError):
    """The data is Kafka's, but klog will not or cannot handle it (too large, a newer version, …)."""


class UnreadableError(KlogError):
    """The operating system refused to open or read: permission, I/O error, vanished file."""


class UsageError(KlogError):
    """A wrong option, or a path of the wrong kind."""

    exit_code = ExitCode.USAGE


class SparkError(KlogError):
    """Spark failed: its JVM did not start, the connection broke, or a job failed."""


class DamagedError(KlogError):
    """Data that must be kept is damaged, or an operation on the partition is incomplete: repair that first."""

    exit_code = ExitCode.PROBLEMS_LEFT


class PlanError(KlogError):
    """A plan that cannot be read, or has invalid parts: paths outside of its log dirs, unknown actions."""


def near_misses(name: str, known: Iterable[str]) -> str:
    """Return a suffix for a message about an unknown *name*: the most similar of the *known* names, or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def counted(count: int, noun: str, ending: str = "s") -> str:
    """Return *count* with its noun: `1 batch`, `2 batches`; *ending*: of the plural."""
    return f"{count} {noun}{'' if count == 1 else ending}"


def range_text(first: int, last: int | None) -> str:
    """Return a range of offsets, both inclusive: `0–59`, `7`, and `40–` if the last one is not known."""
    if last is None:
        return f"{first}–"
    return str(first) if first == last else f"{first}–{last}"


def offsets_text(first: int, last: int) -> str:
    """Return a range of offsets with its noun: `offset 7`, `offsets 0–59`."""
    return f"offset{'' if first == last else 's'} {range_text(first, last)}"


def are(first: int, last: int) -> str:
    """Return the verb behind a range of offsets: `is` for a single one, else `are`."""
    return "is" if first == last else "are"


def time_text(timestamp: int) -> str:
    """Return ms since the epoch in UTC: `2025-06-15 15:06:40.300Z`; the number itself if it is beyond the calendar."""
    from datetime import UTC, datetime, timedelta

    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return time.isoformat(" ", "milliseconds").replace("+00:00", "Z")
