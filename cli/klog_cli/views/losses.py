"""Lost records in words: how many, of which partition, at which offsets."""

from __future__ import annotations

from collections.abc import Sequence

from klog.base.errors import counted
from klog.change.plan.model import Amount, Loss

from klog_cli import output, style


def lost_records(losses: Sequence[Loss]) -> str:
    """Return the number of records of *losses*, as far as it is known, in words."""
    known = sum(loss.records or 0 for loss in losses)
    if all(loss.records is not None for loss in losses):
        return counted(known, "record")
    return f"at least {counted(known, 'record')}" if known else "an unknown number of records"


def loses(losses: Sequence[Loss], verb: str = "loses") -> str:
    """Return *verb* and the sum of *losses*, with their place; nothing at all is good."""
    return (
        style.bad(f"{verb} {lost_records(losses)}") + f" ({_places(losses)})"
        if losses
        else style.good(f"{verb} nothing")
    )


def kept(amount: Amount) -> str:
    """Return an amount of log data in words."""
    size = output.human_size(amount.bytes)
    return size if amount.records is None else f"{counted(amount.records, 'record')} ({size})"


def _places(losses: Sequence[Loss]) -> str:
    partitions = {(loss.topic, loss.partition) for loss in losses}
    size = output.human_size(sum(loss.bytes for loss in losses))
    if len(partitions) > 1:
        return f"{len(partitions)} partitions, {size}"
    topic, number = next(iter(partitions))
    return ", ".join(filter(None, [f"{topic}-{number}" if topic else "", offsets_text(losses), size]))


def offsets_text(losses: Sequence[Loss]) -> str:
    """Return the offsets of *losses*, which are of one partition: `offsets 93–112`; empty if they are not known."""
    bounded = [loss for loss in losses if loss.first_offset is not None]
    if not bounded:
        return ""
    lasts = [loss.last_offset for loss in bounded]
    last = None if None in lasts else max(one for one in lasts if one is not None)
    first = min(loss.first_offset for loss in bounded if loss.first_offset is not None)
    return f"{'offset' if first == last else 'offsets'} {output.range_text(first, last)}"


def losses_line(loss: Loss, verb: str) -> str:
    """Return one loss as a line below its partition, with the reason."""
    where = ", ".join(filter(None, [offsets_text([loss]), output.human_size(loss.bytes)]))
    return f"{style.bad(f'{verb} {lost_records([loss])}')}, {where} ({loss.reason})"
