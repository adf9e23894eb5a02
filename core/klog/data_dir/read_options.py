"""How a command reads whole logs beside a running broker: what it leaves in the page cache, how fast, how urgently.

    with reading(["data"], ReadOptions(rate=100 << 20), print):
        ...

Without a choice of the user's the lock of the log dir decides: a broker holds it from start to stop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final, Literal, NamedTuple, TypeAlias

from klog.base.page_cache import POLICY
from klog.base.rate_limit import RateLimit
from klog.data_dir.log_dir import lock_state
from klog.data_dir.priority import low_priority
from klog.formats.names import FileKind

Cache: TypeAlias = Literal["drop", "keep"]
Priority: TypeAlias = Literal["normal", "low"]
CACHES: Final[tuple[Cache, ...]] = ("drop", "keep")
PRIORITIES: Final[tuple[Priority, ...]] = ("normal", "low")


class ReadOptions(NamedTuple):
    """The choices of the user, None where the lock decides.  *rate*: bytes a second of this process."""

    cache: Cache | None = None
    rate: int | None = None
    priority: Priority | None = None


class ReadRequest(NamedTuple):
    """The paths that a command reads, and its options."""

    paths: tuple[str, ...]
    options: ReadOptions


_requests: Final[list[ReadRequest]] = []


def requested() -> ReadRequest | None:
    """Return the request of the running command, for workers that do a part of it; None outside of `reading`."""
    return _requests[-1] if _requests else None


@contextmanager
def reading(paths: Iterable[str], settings: ReadOptions, note: Callable[[str], object]) -> Iterator[None]:
    """Read logs in this way until the block ends; *note* is told what a running broker changes.

    *paths*: log dirs, partitions or files.  Threads keep the priority with which they were started.
    """
    request = ReadRequest(tuple(paths), settings)
    holder = (
        holder_of(request.paths) if None in (settings.cache, settings.priority) or settings.cache == "drop" else None
    )
    drops = settings.cache == "drop" or (settings.cache is None and holder is not None)
    is_low = settings.priority == "low" or (settings.priority is None and holder is not None)
    begin(drops=drops, beside_broker=holder is not None, rate=settings.rate)
    _requests.append(request)
    try:
        with low_priority() if is_low else nullcontext():
            if holder is not None and (settings.cache is None or settings.priority is None) and (drops or is_low):
                note(_explained(holder, drops, is_low))
            yield
    finally:
        _requests.pop()
        POLICY.reset()


def begin(*, drops: bool, beside_broker: bool, rate: int | None) -> None:
    """Set the policy of this process."""
    POLICY.reset()
    POLICY.drops, POLICY.beside_broker = drops, beside_broker
    POLICY.rate = RateLimit(rate) if rate is not None else None
    if drops:
        from klog.kernel import cached_pages

        POLICY.cached_pages = cached_pages


def _explained(holder: str, drops: bool, is_low: bool) -> str:
    """Return the consequences of a lock that is held, in words."""
    how = ["reads with low priority (--priority normal changes that)"] if is_low else []
    how += ["leaves the page cache as it was (--cache keep changes that)"] if drops else []
    return f"{holder}: klog {' and '.join(how)}"


def holder_of(paths: Iterable[str]) -> str | None:
    """Return the holder of the lock of a log dir around *paths*, in words; None if there is none."""
    for log_dir in dict.fromkeys(place for path in paths for place in _around(path)):
        lock = lock_state(os.path.join(log_dir, FileKind.LOCK.value))
        if lock.held:
            return lock.of(log_dir)
    return None


def _around(path: str) -> Iterator[str]:
    """Yield the directories that may be the log dir of *path*, which may begin with the number of a node."""
    node, _, rest = path.partition("=")
    path = os.path.abspath(rest if node.isdigit() and rest else path)
    for place in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
        if os.path.lexists(os.path.join(place, FileKind.LOCK.value)):
            yield place
