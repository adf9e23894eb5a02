"""What klog raises when it cannot answer.

Damage in a file's content is never raised while reading: it is a value (`klog.formats.damage.Damage`).
An exception means that there is no answer at all: not Kafka data, not supported, refused, unreadable.
"""

from __future__ import annotations

from collections.abc import Iterable


class KlogError(Exception):
    """The root of everything klog raises on purpose: one line that says what, where and what to do next."""

    exit_code = 8


class NotKafkaError(KlogError):
    """The path is there, but it holds nothing that klog knows."""


class UnsupportedError(KlogError):
    """The data is Kafka's, but klog will not or cannot handle it (too large, a newer version, …)."""


class UnreadableError(KlogError):
    """The operating system refused to open or read: permission, I/O error, vanished file."""


class UsageError(KlogError):
    """The caller asked for something that makes no sense: a wrong option, a path of the wrong kind."""

    exit_code = 16


class SparkError(KlogError):
    """Spark did not do it: its JVM did not start, nobody answers, a job failed."""


class DamagedError(KlogError):
    """What is to be kept is damaged, or an operation on the partition did not end: that comes first."""

    exit_code = 4


class PlanError(KlogError):
    """A plan that cannot be read, or that asks for what no plan may: paths outside of its log dirs, unknown actions."""


def near_misses(name: str, known: Iterable[str]) -> str:
    """Return what to append to a message about an unknown *name*: the nearest of those that are known."""
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
