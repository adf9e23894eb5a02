"""`klog verify --remote`: the findings in remote storage behind those of the log dirs."""

from __future__ import annotations

from dataclasses import asdict

from klog.commands.remote.sources import RemoteQuery
from klog.commands.remote.verify import verify_remote
from klog.partition.verify.segment_pass import SurveyOptions

from klog_cli import output
from klog_cli.views.remote.verify import finding_row, report
from klog_cli.views.verify import FINDING_COLUMNS, FoundFindings, finish

_ADDED = ("tier", "segment_id")


def verify_behind(
    found: FoundFindings, *, query: RemoteQuery, request: SurveyOptions, form: str, to: str | None
) -> None:
    """Check remote storage, and print all findings.  Raises UsageError, KlogError."""
    is_text = form == "text"
    if is_text:
        finish(found, form)
    with output.Results() as results:
        every, totals = verify_remote(query, request, results)
        remote = [one for one in every if not one.is_of_log_dir]
        results.found(len(remote))
    empty = dict.fromkeys(FINDING_COLUMNS)
    for row in found.rows:
        row |= {"tier": "local", "segment_id": None}
    for one in remote:
        found.take_remote(one.severity, one.id, empty | finding_row(one))
    if is_text:
        output.lines(["", *report(remote, totals)])
    else:
        finish(found, form, to, {"remote": asdict(totals)}, _ADDED)
