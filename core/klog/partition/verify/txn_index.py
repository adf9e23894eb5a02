"""Checks `.txnindex`: the aborted transactions that a read_committed consumer skips."""

from __future__ import annotations

from klog.base.errors import KlogError
from klog.formats.index import ABORTED_TXN
from klog.log.txn_index import AbortedTxn, read_txn_index
from klog.partition.verify.facts import Findings, PartitionFacts


def txn_index(facts: PartitionFacts) -> Findings:
    """What is wrong with transaction indexes by themselves, and with where their entries lie."""
    for segment in facts.segments:
        name = segment.files.txn_index
        if name is None:
            continue
        try:
            entries, size = read_txn_index(facts.partition.path, name)
        except KlogError as error:
            yield facts.finding("unreadable", str(error), name)
            continue
        if size % ABORTED_TXN.size:
            message = f"{size} bytes, not a multiple of {ABORTED_TXN.size}"
            yield facts.finding("txn-index-ragged", message, name, size - size % ABORTED_TXN.size)
        yield from _entries(facts, name, entries, segment.files.base_offset, segment.survey.next_base)


def _entries(facts: PartitionFacts, name: str, entries: list[AbortedTxn], base: int, next_base: int) -> Findings:
    last = base - 1
    for slot, entry in enumerate(entries):
        at = slot * ABORTED_TXN.size
        if entry.version != 0:
            yield facts.finding("txn-index-version", f"entry {slot} is of version {entry.version}", name, at)
            return
        inside = base <= entry.last_offset < next_base and 0 <= entry.first_offset <= entry.last_offset
        if not inside or entry.last_offset <= last:
            message = f"entry {slot} goes from offset {entry.first_offset} to {entry.last_offset}"
            yield facts.finding("txn-index-order", message, name, at, entry.last_offset)
        last = max(last, entry.last_offset)
