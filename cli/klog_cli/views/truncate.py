"""The output of `klog truncate`: the batches that it has dropped, or would drop."""

from __future__ import annotations

from collections.abc import Mapping

from klog.change.partition_plan import checkpoints
from klog.change.plan.draft import Draft
from klog.change.plan.plan_document import plan_json
from klog.change.plan.session import PlanOptions, PlanResult, PlanSession
from klog.cluster.metadata.topic_config import Setting, TopicConfig
from klog.data_dir.selection import PartitionQuery, only
from klog.partition.truncate import TruncateOptions, TruncateTarget, Truncation, plan

from klog_cli import output
from klog_cli.command_line import next_step
from klog_cli.views.plan_lines import action_lines, changes, make_indexes
from klog_cli.views.topic_settings import settings_json, settings_text

_INTERVAL = "index.interval.bytes"
_RISK = (
    "if this copy becomes the leader, the other replicas cut their logs to it; consumers that had read further"
    " will see other records under the offsets they know"
)


def truncate(
    query: PartitionQuery,
    to: TruncateTarget,
    settings: TruncateOptions,
    options: Mapping[str, str],
    plan_options: PlanOptions,
    form: str,
) -> int:
    """Plan a cut, apply it if requested, and return the exit code.  Raises KlogError."""
    with PlanSession(query, plan_options, reporter=output.TerminalReporter()) as session:
        partition = only(query.paths[0], [part for one in session.selections for part in one.partitions])
        log_dir = next(one.log_dir for one in session.selections if partition in one.partitions)
        interval = TopicConfig(log_dir, options).value(partition.topic, _INTERVAL)
        drafts = [Draft(log_dir.path, 0, session.staging[0]), Draft(log_dir.path, 0, session.staging[0])]
        cut = plan(partition, to.offset_in(partition), settings._replace(interval=interval.number), drafts[0])
        key = (partition.topic or "", partition.number or 0)
        checkpoints.plan(log_dir, {kind: {key: offset} for kind, offset in cut.offsets.items()}, drafts[1], mend=False)
        result = session.finish(drafts, losses=cut.losses, kept=cut.kept)
    if form == "json":
        output.emit_json(_json(cut, {_INTERVAL: interval}, result))
    else:
        _show(cut, {_INTERVAL: interval}, result, plan_options)
    return 0


def _json(cut: Truncation, interval: Mapping[str, Setting], result: PlanResult) -> dict[str, object]:
    made = result.plan
    members: dict[str, object] = plan_json(made) if made is not None else {"id": None, "actions": []}
    return {
        **members,
        "applied": result.is_applied,
        "to_offset": cut.to_offset,
        "log_end_offset": cut.log_end,
        "kept": cut.kept._asdict(),
        "lost": [loss._asdict() for loss in cut.losses],
        "settings": settings_json(interval),
    }


def _show(cut: Truncation, interval: Mapping[str, Setting], result: PlanResult, plan_options: PlanOptions) -> None:
    made = result.plan
    if made is None:
        output.text(f"nothing to do: the log ends at {cut.log_end}\n")
        return
    for line in action_lines(made, made.actions):
        output.text(f"{line}\n")
    if make_indexes(made.actions):
        output.text(f"{settings_text(interval)}\n")
    if cut.inside is not None:
        output.text(f"offset {cut.to_offset} is inside of a batch, which goes from its base offset {cut.inside} on\n")
    done = "made" if result.is_applied else "planned"
    output.text(f"{changes(len(made.actions))} {done}; the log ends at {cut.log_end}\n")
    records, size = sum(loss.records or 0 for loss in cut.losses), sum(loss.bytes for loss in cut.losses)
    counted = "" if cut.kept.records is None else f"{cut.kept.records} records, "
    output.text(f"lost: {records} records, {size} bytes; kept: {counted}{cut.kept.bytes} bytes\n")
    if result.is_applied:
        output.text(f"backup: {output.printable(made.backups[0])}\n")
    output.note(_RISK)
    output.lines(next_step(result, plan_options))
