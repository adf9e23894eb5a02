"""The kernel's treatment of batches of transactions, against the rules in Python, one batch after another."""

from __future__ import annotations

import struct
from random import Random

import pytest
from klog.commands.compact.cleaned_segments import CleanedTransactions
from klog.formats.batch import Attributes
from klog.kernel import WITHOUT_DATA, OpenTransactions, Window
from klog.log.index import AbortedTxn
from klog.partition.transactions.markers import read_marker

from tests.kernel.windows import scanned
from tests.oracles.plain.encode import Record, batch, empty_batch, marker

NOW_MS = 1_000_000
CONTROL, HORIZON = int(Attributes.CONTROL), int(Attributes.DELETE_HORIZON)
COMMIT, EPOCH = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 3)


def odd_marker(offset: int, pid: int, draw: Random) -> bytes:
    """Return a control batch that is a marker in some ways only, or a COMMIT of another make."""
    key = draw.choice((COMMIT, COMMIT[:3], b"\xff\xff\0\1", b"\0\0\0\5", None, COMMIT + b"more"))
    value = draw.choice((EPOCH, EPOCH[:5], b"\xff\xff\0\0\0\0", None, EPOCH + b"more"))
    ends = [Record(offset + i, 5, key, value) for i in range(draw.choice((1, 1, 2)))]
    codec = draw.choice(("none", "none", "gzip"))
    return batch(ends, codec=codec, transactional=True, control=True, producer=(pid, 0, -1), last_offset=offset + 1)


def some_log(draw: Random) -> tuple[bytes, list[AbortedTxn]]:
    """Return batches, two offsets each, and the aborted transactions of their index."""
    log, entries, first = b"", list[AbortedTxn](), dict[int, int]()
    for number in range(draw.randrange(1, 120)):
        offset, pid = 2 * number, draw.randrange(4)
        kind = draw.random()
        if kind < 0.5:
            record = Record(offset, 7, b"k", b"v")
            log += batch([record], transactional=True, producer=(pid, 0, number), last_offset=offset + 1)
            first.setdefault(pid, offset)
        elif kind < 0.6:
            log += empty_batch(
                offset, offset + 1, producer=(pid, 0, 9), transactional=True, control=draw.random() < 0.5
            )
        elif kind < 0.7:
            log += batch([Record(offset, 7, b"k", b"v")], producer=(pid, 0, number))
        elif kind < 0.8:
            log += odd_marker(offset, pid, draw)
        else:
            commit = draw.random() < 0.6
            end = Record(offset, 7, struct.pack(">hh", 0, commit), EPOCH)
            horizon_ms = draw.choice((None, NOW_MS - 1, NOW_MS, NOW_MS + 1))
            flags = {"transactional": True, "control": True}
            log += batch([end], producer=(pid, 0, -1), delete_horizon_ms=horizon_ms, **flags)
            begun = first.pop(pid, None)
            if not commit and begun is not None:
                entries.append(AbortedTxn(0, pid, begun, offset, offset + 1))
    return log, entries


class Seen:
    """The treatment of the batches of a window: the skipped ones, the decisions, the remaining index entries."""

    def __init__(self, log: bytes, entries: list[AbortedTxn], special: set[int]) -> None:
        self.window = scanned(log)
        self.decisions = bytearray(self.window.count)
        self.kept: list[AbortedTxn | None] = []
        self.transactions = CleanedTransactions(special)
        self.transactions.add(entries)

    def one(self, at: int, *, mapping: bool) -> None:
        """Take batch *at* by the rules in Python."""
        facts = self.window.batch(at)
        if not facts.attributes & CONTROL:
            if self.transactions.data(facts.producer_id, facts.last_offset).discardable:
                self.window.skip(at)
            return
        fate = self.transactions.control(facts.producer_id, facts.last_offset, read_marker(self.window, at))
        self.kept.append(fate.kept_entry)
        if mapping:
            self.window.skip(at)
        elif fate.discardable:
            self.decisions[at] |= WITHOUT_DATA
            if facts.attributes & HORIZON and facts.base_timestamp <= NOW_MS:
                self.window.skip(at)

    def all(self) -> tuple[list[bool], bytes, list[AbortedTxn | None]]:
        """Return all of it."""
        window = self.window
        window.begin(0, window.count)
        return [is_skipped(window, i) for i in range(window.count)], bytes(self.decisions), [e for e in self.kept if e]


def is_skipped(window: Window, at: int) -> bool:
    """Whether batch *at* is left out: a batch that is skipped has no line."""
    before = window.out_used
    window.batch_rows(at, at + 1, False, b"")
    return window.out_used == before


@pytest.mark.parametrize("mapping", [False, True])
def test_what_is_taken_together_is_what_one_after_another_would_be(mapping: bool) -> None:
    """Whether data was aborted, and how long a marker stays, must not depend on which code has seen it."""
    draw, taken = Random(23 + mapping), 0
    for _ in range(300):
        log, entries = some_log(draw)
        special = {pid for pid in range(4) if draw.random() < 0.1}
        slow, fast = Seen(log, entries, special), Seen(log, entries, special)
        for at in slow.window.transactional(0, slow.window.count):
            slow.one(at, mapping=mapping)
        at = 0
        words = () if mapping else (fast.decisions, NOW_MS)
        while (at := fast.transactions.take(fast.window, at, *words)) < fast.window.count:
            fast.one(at, mapping=mapping)
            taken -= 1
            at += 1
        taken += fast.window.count
        assert fast.all() == slow.all()
    assert taken > 10_000, "most batches are taken together"


def test_markers_that_go_by_age_are_left_to_the_caller() -> None:
    """Releases up to 3.0 have no delete horizon: the segment's age decides, which the kernel does not know."""
    one = marker(3, commit=True, timestamp=1, producer_id=7, producer_epoch=0, coordinator_epoch=0)
    window, transactions = scanned(one), OpenTransactions({})
    assert transactions.take(window, 0, bytearray(1)) == 0
    assert transactions.take(window, 0, bytearray(1), NOW_MS) == 1


def test_a_decision_has_room() -> None:
    """The kernel writes there."""
    one = marker(3, commit=True, timestamp=1, producer_id=7, producer_epoch=0, coordinator_epoch=0)
    with pytest.raises(ValueError, match="room"):
        OpenTransactions({}).take(scanned(one), 0, bytearray(), NOW_MS)
    with pytest.raises(IndexError):
        OpenTransactions({}).take(scanned(one), 2)
