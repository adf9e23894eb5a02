"""`klog recover`: a repair from its plan to its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klog.base.errors import UsageError
from klog.base.progress import Sink
from klog.change.plan.session import PlanOptions, PlanSession
from klog.commands.recover.recovery import Recovery, recover_log_dirs
from klog.data_dir.disk.refused_outputs import check_output
from klog.data_dir.selection import PartitionQuery
from klog.partition.repair.recover_outcome import RecoverOptions

from klog_cli import output
from klog_cli.views.recover_report import RecoveryReport, findings_of
from klog_cli.views.recover_text import RecoverText

if TYPE_CHECKING:
    from klog.commands.recover.mark_clean import MarkCleanResult


def recover(
    query: PartitionQuery,
    settings: RecoverOptions,
    options: Mapping[str, str],
    plan_options: PlanOptions,
    form: str,
    rescue_to: str | None = None,
    everything: bool = False,
) -> int:
    """Plan a repair, carry it out if requested, and return the exit code.  Raises KlogError.

    *rescue_to*: a file for the records of damaged batches that still decode.  *everything*: text has each finding.
    """
    if rescue_to is not None:
        check_output(rescue_to, query.paths)
    if settings.mark_clean:
        part = next((one.log_dir.path for one in query.selections() if not one.whole), None)
        if part is not None:
            raise UsageError(f"--mark-clean needs complete log dirs: name {output.printable(part)}")
    with PlanSession(query, plan_options, reporter=output.TerminalReporter()) as session:
        with output.Results() as results:
            recovery, marking = _recovered(session, settings, options, results)
        if rescue_to is not None:
            _rescue(recovery, rescue_to)
        result = session.finish(
            recovery.drafts,
            findings=[finding.json() for finding in (*recovery.findings, *findings_of(recovery.results))],
            losses=recovery.losses,
            kept=recovery.kept,
            broker_would_keep=recovery.broker_would_keep,
        )
    shown = RecoveryReport(recovery, marking, settings, result)
    if form == "json":
        output.emit_json(shown.json())
    else:
        for partition in recovery.skipped:
            output.note(f"{partition.path} is not touched")
        output.lines(RecoverText(shown, plan_options, everything).lines())
    return shown.exit_code


def _recovered(
    session: PlanSession, settings: RecoverOptions, options: Mapping[str, str], results: Sink
) -> tuple[Recovery, MarkCleanResult | None]:
    """Draft the repair; the modules for marking log dirs are loaded only if some are to be marked."""
    if not settings.mark_clean:
        return recover_log_dirs(session.selections, settings, session.staging, options, results), None
    from klog.commands.recover.mark_clean import mark_clean

    marking = mark_clean(session.selections, settings, session.staging, options, results)
    return marking.recovery, marking


def _rescue(recovery: Recovery, path: str) -> None:
    """Write the rescued records, before any change."""
    with output.Results(path) as results:
        records = recovery.rescue(results)
    output.note(f"{records} records of damaged batches are in {output.printable(path)}: they may contain errors")
