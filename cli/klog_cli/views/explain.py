"""`klog explain`: the tables of findings, reasons and events, by id."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from klog.base.errors import UsageError, near_misses
from klog.commands.audit.header_findings import HEADER_KINDS
from klog.commands.remote.remote_findings import REMOTE_KINDS
from klog.partition.start.start_reasons import REASONS
from klog.partition.verify.findings import KINDS, FindingKind

from klog_cli import output
from klog_cli.explanations import EVENTS, OUTCOMES, SCHEMAS, SEGMENTS
from klog_cli.style import bad, faint, strong, warning

COLUMNS = ("id", "command", "severity", "meaning", "broker", "cause", "fix")
Row = dict[str, str | None]


def explanations() -> Iterator[Row]:
    """Yield an explanation of each id, with the members of COLUMNS; None: the table has nothing about it."""
    for command, kinds in (("verify", KINDS), ("audit", HEADER_KINDS), ("remote verify", REMOTE_KINDS)):
        for kind in kinds.values():
            yield _row(kind.id, command, kind.severity.value, kind.meaning, kind.broker, fix=_fix(kind))
    for id_, (severity, text) in SCHEMAS.items():
        yield _row(id_, "schemas check", severity.partition(";")[0], text)
    for reason in REASONS.values():
        yield _row(reason.id, "doctor", None, None, reason.broker, reason.cause, reason.cure)
    for id_, text in OUTCOMES.items():
        yield _row(id_, "doctor", broker=text)
    for id_, text in SEGMENTS.items():
        yield _row(id_, "space", meaning=text)
    for id_, (text, clock) in EVENTS.items():
        yield _row(id_, "timeline", meaning=f"{text} (time: {clock})")


def explain_ids(ids: Sequence[str], form: str) -> int:
    """Print the explanations of *ids*, or of all; return the exit code.  Raises UsageError for an unknown one."""
    known = list(explanations())
    for id_ in ids:
        if not any(row["id"] == id_ for row in known):
            near = near_misses(id_, [str(row["id"]) for row in known])
            raise UsageError(f"{id_}: no such id{near or '; klog explain lists them'}")
    rows = [row for id_ in ids for row in known if row["id"] == id_] or known
    if form == "json":
        output.emit_json({"explanations": rows})
    elif form == "jsonl":
        output.emit_jsonl(rows)
    elif form == "csv":
        output.emit_csv_rows(rows, COLUMNS)
    elif ids:
        for number, row in enumerate(rows):
            output.lines([*([""] if number else []), *_paragraphs(row)])
    else:
        for row in rows:
            output.text(f"{row['id']:29} {row['command']:13} {_short(row)}\n")
    return 0


def _row(
    id_: str,
    command: str,
    severity: str | None = None,
    meaning: str | None = None,
    broker: str | None = None,
    cause: str | None = None,
    fix: str | None = None,
) -> Row:
    return dict(zip(COLUMNS, (id_, command, severity, meaning, broker, cause, fix), strict=True))


def _fix(kind: FindingKind) -> str | None:
    return kind.fix.format(partition="PARTITION", log_dir="LOG_DIR", path="it") or None


_MARKS = {"damage": bad, "warning": warning}


def _paragraphs(row: Row) -> Iterator[str]:
    """Yield an explanation for people, a fact to a paragraph."""
    severity = row["severity"]
    mark = _MARKS.get(severity or "", str)
    yield strong(str(row["id"])) + (f" ({mark(severity)})" if severity else "")
    facts = (
        ("found by", f"klog {row['command']}"),
        ("meaning", row["meaning"]),
        ("a broker at its next start", row["broker"]),
        ("comes from", row["cause"]),
        ("remedy", row["fix"]),
    )
    for name, text in facts:
        if text:
            yield f"  {faint(f'{name}:')} " + text.replace("`", "'")


def _short(row: Row) -> str:
    text = (row["meaning"] or row["cause"] or row["broker"] or "").replace("`", "'")
    return textwrap.shorten(text, output.width() - 40, placeholder=" …")
