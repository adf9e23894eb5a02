"""The output of `klog transactions`: each transaction as soon as it is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from klog.base.errors import ExitCode, UsageError, counted, offsets_text
from klog.commands.transactions.transaction_details import (
    TransactionDetail,
    TransactionPart,
    TransactionQuery,
    describe_transactions,
)

from klog_cli import output
from klog_cli.style import bad, command, good, strong, warning
from klog_cli.views.nothing_found import nothing_found, where

_CSV = (
    "transactional_id",
    "producer_id",
    "producer_epoch",
    "state",
    "began",
    "ended",
    "duration",
    "records",
    "partitions",
    "coordinator_state",
    "abort",
)


def transactions(paths: Sequence[str], query: TransactionQuery, form: str) -> int:
    """Print the transactions and return the exit code.  Raises UsageError, KlogError."""
    if not paths:
        raise UsageError("no transactions: name log dirs or partition directories")
    hangs, shown = False, 0

    def found() -> Iterator[TransactionDetail]:
        nonlocal hangs, shown
        # A hanging transaction decides about the exit code, even if it is not shown.
        wanted = (*query.states, "hanging") if query.states else ()
        for one in describe_transactions(paths, query._replace(states=wanted), output.error):
            hangs |= one.state == "hanging"
            if not query.states or one.state in query.states:
                shown += 1
                yield one

    if form == "text":
        _text(found(), shows_hanging=not query.states or "hanging" in query.states)
    else:
        {"json": _json, "jsonl": _jsonl, "csv": _csv}[form](found())
    if not shown:
        code = nothing_found(f"no {_words(query)} {where(paths, query.topics, query.numbers)}")
        if set(query.states) == {"hanging"}:  # a check, which found no problem
            return ExitCode.CLEAN
        return code
    return ExitCode.PROBLEMS_LEFT if hangs else ExitCode.CLEAN


def _words(query: TransactionQuery) -> str:
    """Return the conditions: `open transactions of tx-one`."""
    parts = [" or ".join(query.states)] if query.states else []
    parts += ["transactions"]
    parts += [f"of {' or '.join(query.ids)}"] if query.ids else []
    parts += [f"of producer {' or '.join(map(str, query.producer_ids))}"] if query.producer_ids else []
    parts += [] if query.longer_than is None else [f"of at least {_span(query.longer_than)}"]
    return " ".join(parts)


# ---------------------------------------------------------------- json


def _json(found: Iterator[TransactionDetail]) -> None:
    import json

    before = '{"transactions": ['
    for one in found:
        output.text(f"{before}\n  {json.dumps(transaction_json(one))}")
        before = ","
    output.text("\n]}\n" if before == "," else f"{before}]}}\n")


def _jsonl(found: Iterator[TransactionDetail]) -> None:
    output.emit_jsonl(map(transaction_json, found))


def transaction_json(one: TransactionDetail) -> dict[str, object]:
    """Return a transaction as the members of a JSON object."""
    told = one.coordinator
    coordinator = None
    if told is not None:
        coordinator = {
            "state": _status(one),
            "began": told.started if told.started >= 0 else None,
            "updated": told.updated,
            "timeout": told.timeout_ms,
        }
    names = ("transactional_id", "producer_id", "producer_epoch", "state", "began", "ended", "duration", "records")
    return {
        **{name: getattr(one, name) for name in names},
        "partitions": [part._asdict() for part in one.partitions],
        "coordinator": coordinator,
        "abort": one.abort,
    }


def _status(one: TransactionDetail) -> str | None:
    """Return the state as Kafka's tools spell it: PrepareCommit."""
    if one.coordinator is None:
        return None
    return "".join(word.capitalize() for word in one.coordinator.status.name.split("_"))


# ---------------------------------------------------------------- csv


def _csv(found: Iterator[TransactionDetail]) -> None:
    output.emit_csv(None, _CSV)
    for one in found:
        parts = " ".join(f"{part.topic}-{part.partition}" for part in one.partitions)
        facts = (getattr(one, name) for name in _CSV[:8])
        output.emit_csv(None, (*facts, parts, _status(one), one.abort))


# ---------------------------------------------------------------- text


_MOST_KEPT: Final = 10_000
"""The transactions that are kept in memory, so that the hanging ones can be shown first."""
_MARKS: Final[Mapping[str, Callable[[str], str]]] = {"committed": good, "aborted": str, "open": warning, "hanging": bad}
_INDENT: Final = " " * 26


def _text(found: Iterator[TransactionDetail], *, shows_hanging: bool) -> None:
    """Print the transactions below the verdict; above it if they are too many to keep.

    *shows_hanging*: hanging ones would be among them.
    """
    first = list(islice(found, _MOST_KEPT))
    counts: Counter[str] = Counter(one.state for one in first)
    if len(first) < _MOST_KEPT:
        if first:
            output.lines([_verdict(counts, shows_hanging)])
        first.sort(key=lambda one: one.state != "hanging")
        _print(first)
        return
    _print(first)
    for one in found:
        counts[one.state] += 1
        _print([one])
    output.lines([_verdict(counts, shows_hanging)])


def _verdict(counts: Mapping[str, int], shows_hanging: bool) -> str:
    """Return the number of transactions by state, the hanging ones first."""
    total = counted(sum(counts.values()), "transaction")
    parts = [f"{counts[state]} {state}" for state in ("committed", "aborted", "open") if counts.get(state)]
    hanging = counts.get("hanging", 0)
    if not hanging:
        none_hangs = good("none hangs") + ": " if shows_hanging else ""
        return f"{none_hangs}{total}, {', '.join(parts)}"
    hangs = bad(f"{counted(hanging, 'transaction')} {'hangs' if hanging == 1 else 'hang'}")
    waits = f"{hangs}: consumers that read committed records wait behind it; end it with its command below"
    return waits if not parts else f"{waits}; others: {', '.join(parts)}"


def _print(found: Iterable[TransactionDetail]) -> None:
    for one in found:
        first, *others = _lines(one)
        output.lines([first], hang=len(_INDENT))
        output.lines(others)


def _lines(one: TransactionDetail) -> Iterator[str]:
    began = "-" if one.began is None else output.time_text(one.began)
    name = "unknown id" if one.transactional_id is None else one.transactional_id
    facts = [f"producer {one.producer_id} epoch {one.producer_epoch}", counted(one.records, "record")]
    facts += [] if one.duration is None else [f"{'for' if one.ended is None else 'took'} {_span(one.duration)}"]
    told = _status(one)
    facts += [f"coordinator {told}"] if told is not None and one.state == "open" else []
    state = _MARKS[one.state](one.state) + " " * (9 - len(one.state))
    yield f"{began:<24}  {state}  {strong(name)}  {', '.join(facts)}"
    for part in one.partitions:
        yield f"{_INDENT}{_part(part)}"
    if one.abort is not None:
        yield f"  {command(one.abort)}"


def _part(part: TransactionPart) -> str:
    name = f"{part.topic}-{part.partition}"
    if part.first_offset is None or part.last_offset is None:
        return f"{name} marker {part.marker_offset}" if part.marker_offset is not None else f"{name} not here"
    end = "no marker" if part.marker_offset is None else f"marker {part.marker_offset}"
    offsets = offsets_text(part.first_offset, part.last_offset)
    return f"{name} {offsets}, {counted(part.records, 'record')}, {end}"


def _span(ms: int) -> str:
    """Return a duration as people read it: 12 ms, 3.4 s, 5 min, 2.1 h, 3.0 d."""
    if abs(ms) < 1000:
        return f"{ms} ms"
    for unit, size, most in (("s", 1000, 120), ("min", 60_000, 120), ("h", 3_600_000, 48)):
        if abs(ms) < most * size:
            return f"{ms / size:.1f} {unit}"
    return f"{ms / 86_400_000:.1f} d"
