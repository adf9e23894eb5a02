"""The output of `klog audit` and `klog audit misrouted`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from klog.base.errors import ExitCode, counted
from klog.commands.audit.audit import AuditOptions, HeaderReport, MisroutedReport, audit_headers, audit_misrouted
from klog.commands.audit.audited_partitions import AuditQuery
from klog.commands.audit.headers import AuditWorkers
from klog.commands.audit.misrouted import BatchPlace, MisroutedBatch
from klog.jobs.runner import Runner
from klog.partition.verify.verify import VerifyTotals

from klog_cli import output
from klog_cli.style import bad, good, strong, warning
from klog_cli.views.verify import FoundFindings, finish

_SHOWN_TOPICS = 5
_SHOWN_MISSING = 5
_SHOWN_TWINS = 3
_WHY = {
    "share": "one program writes both, or one is a copy of the other",
    "run": "runs of equal neighbours",
    "repeats": "the same batch many times",
}
_COLUMNS = ("confidence", "partition", "offsets", "records", "elsewhere", "reasons")
_HOME = ("home_topic", "home_partition", "home_first_offset")


def misrouted(
    query: AuditQuery,
    request: AuditOptions,
    form: str,
    runner: AbstractContextManager[Runner],
    memory: int,
    note: Callable[[str], object] = output.note,
) -> int:
    """Find misrouted batches, print them and return the exit code."""
    with runner as running, output.Results() as results:
        report = audit_misrouted(query, request, AuditWorkers(running, memory, results, note))
    return show(report, form)


def headers(
    query: AuditQuery,
    checks: Sequence[str],
    now_ms: int,
    request: AuditOptions,
    form: str,
    runner: AbstractContextManager[Runner],
    memory: int,
) -> int:
    """Make the checks of headers, print the results and return the exit code."""
    with runner as running, output.Results() as results:
        workers = AuditWorkers(running, memory, results, output.note)
        report = audit_headers(query, checks, now_ms, request, workers)
    return show_headers(report, form)


def show_headers(report: HeaderReport, form: str) -> int:
    """Print a report and return the exit code."""
    _tell(report)
    found = FoundFindings(form, everything=True)
    for partition, findings in report.partitions:
        directory = partition.directory
        counts = [one.batches for one in findings]
        cluster_id = directory.checkpoints.cluster_id
        found.take([one.finding for one in findings], directory.path, partition.topic_id, cluster_id, counts)
    totals = report.totals
    found.totals = VerifyTotals(totals.partitions, report.logs, totals.bytes, totals.batches, report.records)
    finish(found, form)
    problems = ExitCode.PROBLEMS_LEFT if report.damages else 0
    return found.exit_code | problems | (ExitCode.OPERATIONAL_ERROR if report.unreadable else 0)


def _tell(report: MisroutedReport | HeaderReport) -> None:
    """Print on stderr the unreadable logs, and those that are damaged or end early."""
    for line in (*report.unreadable, *report.damage):
        output.error(line)
    for line in report.tails:
        output.note(f"{line}; the partition is read up to there")


def show(report: MisroutedReport, form: str) -> int:
    """Print a report and return the exit code."""
    _tell(report)
    if form == "json":
        output.emit_json(_json(report))
    elif form == "jsonl":
        output.emit_jsonl(map(_row, report.rows))
    elif form == "csv":
        _csv(report.rows)
    else:
        _text(report)
    problems = ExitCode.PROBLEMS_LEFT if report.rows or report.damages else 0
    return problems | (ExitCode.OPERATIONAL_ERROR if report.unreadable else 0)


def _json(report: MisroutedReport) -> dict[str, object]:
    coverage = report.coverage
    return {
        **report.totals._asdict(),
        "coverage": {
            "partitions_known": coverage.known,
            "partitions_read": coverage.read,
            "missing": coverage.missing,
            "earliest_timestamp": coverage.earliest,
        },
        "misrouted": [_row(row) for row in report.rows],
        "legal_twins": [one._asdict() for one in report.legal_twins],
        "damage": report.damages,
    }


def _row(row: MisroutedBatch) -> dict[str, object]:
    home = row.home._asdict() if row.home is not None else None
    return {**row._asdict(), "home": home, "twins": [one._asdict() for one in row.twins]}


def _csv(rows: Sequence[MisroutedBatch]) -> None:
    header = [name for field in MisroutedBatch._fields for name in (_HOME if field == "home" else (field,))]
    output.emit_csv(None, header)
    for row in rows:
        home = row.home[:3] if row.home is not None else (None,) * len(_HOME)
        twins = " ".join(f"{one.topic}-{one.partition}@{one.first_offset}" for one in row.twins)
        facts = row._asdict() | {"twins": twins, "reasons": " ".join(row.reasons), "aborted": str(row.aborted).lower()}
        output.emit_csv(None, [cell for name in facts for cell in (home if name == "home" else (facts[name],))])


def _text(report: MisroutedReport) -> None:
    totals = report.totals
    looked_at = f"{counted(totals.partitions, 'partition')}, {counted(totals.batches, 'data batch', 'es')}"
    if not report.rows:
        output.lines([f"{good('no batch in the wrong partition')}: {looked_at}"])
    else:
        output.emit_table((_sum(report.rows), ""), _COLUMNS, list(_rows(report.rows)))
        output.text("\n")
    if report.legal_twins:
        output.lines([f"legal duplicates, not counted: {' · '.join(_legal(report))}"])
    if report.rows or not report.coverage.is_whole:
        output.lines(_coverage(report))


def _rows(rows: Sequence[MisroutedBatch]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        mark = bad if row.confidence == "confirmed" else warning
        records = counted(row.records, "record") + (" aborted" if row.aborted else "")
        offsets = output.range_text(row.first_offset, row.last_offset)
        name = strong(f"{row.topic}-{row.partition}")
        yield mark(row.confidence), name, offsets, records, _elsewhere(row), " ".join(row.reasons)


def _elsewhere(row: MisroutedBatch) -> str:
    if row.home is not None:
        return f"original {_place(row.home)}"
    more = len(row.twins) - _SHOWN_TWINS
    some = ", ".join(map(_place, row.twins[:_SHOWN_TWINS])) + (f" and {more} more" if more > 0 else "")
    return f"also {some}" if some else "no duplicate"


def _place(place: BatchPlace) -> str:
    return f"{place.topic}-{place.partition} {output.range_text(place.first_offset, place.last_offset)}"


def _sum(rows: Sequence[MisroutedBatch]) -> str:
    by_confidence = Counter(row.confidence for row in rows)
    parts = ", ".join(f"{count} {name}" for name, count in by_confidence.items())
    topics = list(dict.fromkeys(row.topic for row in rows))
    some = ", ".join(topics[:_SHOWN_TOPICS]) + (", …" if len(topics) > _SHOWN_TOPICS else "")
    batches, records = counted(len(rows), "batch", "es"), counted(sum(row.records for row in rows), "record")
    wrong = bad(f"{batches}, {records} in the wrong partition")
    return f"{wrong}: {parts}; consumers of {some} have read them"


def _legal(report: MisroutedReport) -> Iterator[str]:
    for one in report.legal_twins:
        topics = one.topics[0] if one.topics[0] == one.topics[1] else ", ".join(one.topics)
        yield f"{topics} {counted(one.groups, 'duplicate')} ({_WHY[one.why]})"


def _coverage(report: MisroutedReport) -> Iterator[str]:
    coverage, batches = report.coverage, counted(report.totals.batches, "data batch", "es")
    since = f", from {output.time_text(coverage.earliest)}" if coverage.earliest is not None else ""
    of = f" of {coverage.known}" if coverage.known is not None else ""
    ending = f"partition{'' if (coverage.known or coverage.read) == 1 else 's'}"
    scope = " of the cluster" if coverage.known is not None else ""
    yield f"read: {coverage.read}{of} {ending}{scope}, {batches}{since}"
    if coverage.missing:
        more = len(coverage.missing) - _SHOWN_MISSING
        some = ", ".join(coverage.missing[:_SHOWN_MISSING]) + (f" and {more} more" if more > 0 else "")
        yield f"{warning('not read')}: {some}; duplicates there are unknown, so the result is not conclusive"
    elif coverage.known is None:
        yield "the number of partitions of the cluster is unknown without a metadata log; give all its disks"
