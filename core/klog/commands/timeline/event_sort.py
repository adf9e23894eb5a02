"""Sorts events by their time in little memory: the excess is written to unnamed temporary files.

The timestamps of a log are not in its order, and no bound on the disorder is known before its end: a producer that was
cut off for a day delivers yesterday's records behind today's.  Events are therefore sorted as a whole, in runs.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import itemgetter
from typing import BinaryIO, Final, TypeAlias

from klog.commands.timeline.timeline_event import EventOrder, TimelineEvent
from klog.data_dir.disk.disk import Disk

RUN_EVENTS: Final = 1 << 15
"""Events that are kept in memory, at about 1 KiB each."""
_CHUNK_EVENTS: Final = 256
_ORDER = itemgetter(0)

_Ordered: TypeAlias = "tuple[EventOrder, TimelineEvent]"


class EventSort:
    """Receives events in any order by `add`, and yields them sorted, each once; *most*: no more than the first of them.

    In memory are *room* events, and 256 of each run on disk.  Close it to free the runs before the process ends.
    """

    def __init__(self, disk: Disk, most: int | None = None, room: int = RUN_EVENTS) -> None:
        self._disk, self._most, self._room = disk, most, room
        self._events: list[_Ordered] = []
        self._file: BinaryIO | None = None
        self._runs: list[list[tuple[int, int]]] = []  # of each run its chunks: position and size in bytes

    def add(self, event: TimelineEvent) -> None:
        """Take an event.  Raises OSError if there is no room for temporary files."""
        self._events.append((event.order, event))
        if len(self._events) >= self._room:
            self._shrink()

    def _shrink(self) -> None:
        self._events.sort(key=_ORDER)
        if self._most is not None:
            # The same event may be there once for each disk.
            kept = list(_without_copies(self._events))
            if len(kept) > self._most or len(kept) <= self._room // 2:
                self._events = kept[: self._most]
        if len(self._events) > self._room // 2:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = self._disk.unnamed_file()
        chunks = []
        for at in range(0, len(self._events), _CHUNK_EVENTS):
            content = marshal.dumps([(order, tuple(event)) for order, event in self._events[at : at + _CHUNK_EVENTS]])
            chunks.append((self._file.seek(0, 2), len(content)))
            self._file.write(content)
        self._runs.append(chunks)
        self._events = []

    def _run(self, chunks: list[tuple[int, int]]) -> Iterator[_Ordered]:
        assert self._file is not None
        for position, size in chunks:
            self._file.seek(position)
            for order, fields in marshal.loads(self._file.read(size)):
                yield order, TimelineEvent(*fields)

    def __iter__(self) -> Iterator[TimelineEvent]:
        self._events.sort(key=_ORDER)
        runs = [iter(self._events), *map(self._run, self._runs)]
        for told, (_, event) in enumerate(_without_copies(merge(*runs, key=_ORDER))):
            if told == self._most:
                return
            yield event

    def close(self) -> None:
        """Give back the temporary files."""
        if self._file is not None:
            self._file.close()


def _without_copies(events: Iterable[_Ordered]) -> Iterator[_Ordered]:
    """Yield each of sorted events once: the same event on three replicas is one."""
    before = None
    for one in events:
        if one[0][0] != before:
            yield one
        before = one[0][0]
