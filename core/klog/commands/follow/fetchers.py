"""The fetchers of a cluster: one for each leader, started with its first partition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event
from typing import Final, NamedTuple

from klog.base.interruptible_threads import start
from klog.base.rate_limit import RateLimit
from klog.commands.follow.client.broker_connection import BrokerConnection
from klog.commands.follow.follow_options import FollowOptions
from klog.commands.follow.followed_partition import FollowedPartition, FollowReporter
from klog.commands.follow.leader_fetcher import LeaderFetcher, Released

_ENDING_S: Final = 4.0


class _Running(NamedTuple):
    fetcher: LeaderFetcher
    thread: threading.Thread


class Fetchers:
    """The fetchers.  *connect* makes a connection to a node.

    *released*: see LeaderFetcher; it also receives the exception that ends everything.
    """

    def __init__(
        self,
        connect: Callable[[int], BrokerConnection],
        options: FollowOptions,
        released: SimpleQueue[Released | BaseException],
        reporter: FollowReporter,
        stop: Event,
    ) -> None:
        self._connect, self._options, self._released = connect, options, released
        self._reporter, self._stop = reporter, stop
        self._limit = RateLimit(options.rate)
        self._running: dict[int, _Running] = {}

    def assign(self, partition: FollowedPartition) -> None:
        """Fetch the partition from its leader.  Raises LostConnectionError if none is known."""
        there = self._running.get(partition.leader)
        if there is not None and there.fetcher.assign(partition):
            return
        fetcher = LeaderFetcher(
            self._connect(partition.leader), self._options, self._limit, self._released.put, self._reporter, self._stop
        )
        fetcher.assign(partition)
        self._running[partition.leader] = _Running(fetcher, start(fetcher.run, self._released.put))
        self._share_memory()

    @property
    def received_bytes(self) -> int:
        """The number of bytes of records received."""
        return self._limit.taken

    def _share_memory(self) -> None:
        """Limit all answers together to the size of one, and to the bytes of a second."""
        running = [one for one in self._running.values() if one.thread.is_alive()]
        together = min(self._options.fetch_bytes, self._options.rate or self._options.fetch_bytes)
        for one in running:
            one.fetcher.fetch_bytes = max(1, together // len(running))

    def revoke(self, partition: FollowedPartition) -> None:
        """Take the partition away from its fetcher, which releases it."""
        there = self._running.get(partition.leader)
        if there is not None:
            there.fetcher.revoke(partition.place)

    def end(self) -> bool:
        """Stop all fetchers; return whether they have ended."""
        self._stop.set()
        until = time.monotonic() + _ENDING_S
        for one in self._running.values():
            one.thread.join(max(0.0, until - time.monotonic()))
        return not any(one.thread.is_alive() for one in self._running.values())
