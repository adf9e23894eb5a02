"""The output of `klog transactions`: each transaction as soon as it is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from klog.base.errors import ExitCode, UsageError, counted
from klog.commands.transactions.transaction_details import (
    TransactionDetail,
    TransactionPart,
    TransactionQuery,
    describe_transactions,
)

from klog_cli import output
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
    say = {"json": _json, "jsonl": _jsonl, "csv": _csv, "text": _text}[form]

    def found() -> Iterator[TransactionDetail]:
        nonlocal hangs, shown
        # A hanging transaction decides about the exit code, even if it is not shown.
        wanted = (*query.states, "hanging") if query.states else ()
        for one in describe_transactions(paths, query._replace(states=wanted), output.error):
            hangs |= one.state == "hanging"
            if not query.states or one.state in query.states:
                shown += 1
                yield one

    say(found())
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


def _text(found: Iterator[TransactionDetail]) -> None:
    for one in found:
        output.lines(_lines(one))


def _lines(one: TransactionDetail) -> Iterator[str]:
    began = "-" if one.began is None else output.time_text(one.began)
    name = "unknown id" if one.transactional_id is None else one.transactional_id
    facts = [f"producer {one.producer_id} epoch {one.producer_epoch}", counted(one.records, "record")]
    facts += [] if one.duration is None else [f"{'for' if one.ended is None else 'took'} {_span(one.duration)}"]
    told = _status(one)
    facts += [f"coordinator {told}"] if told is not None and one.state == "open" else []
    yield f"{began:<24}  {one.state:<9}  {name}  {', '.join(facts)}"
    for part in one.partitions:
        yield f"{'':<24}  {_part(part)}"
    if one.abort is not None:
        yield f"{'':<24}  {one.abort}"


def _part(part: TransactionPart) -> str:
    name = f"{part.topic}-{part.partition}"
    if part.first_offset is None:
        return f"{name} marker {part.marker_offset}" if part.marker_offset is not None else f"{name} not here"
    end = "no marker" if part.marker_offset is None else f"marker {part.marker_offset}"
    return f"{name} {part.first_offset} to {part.last_offset}, {counted(part.records, 'record')}, {end}"


def _span(ms: int) -> str:
    """Return a duration as people read it: 12 ms, 3.4 s, 5 min, 2.1 h, 3.0 d."""
    if abs(ms) < 1000:
        return f"{ms} ms"
    for unit, size, most in (("s", 1000, 120), ("min", 60_000, 120), ("h", 3_600_000, 48)):
        if abs(ms) < most * size:
            return f"{ms / size:.1f} {unit}"
    return f"{ms / 86_400_000:.1f} d"
