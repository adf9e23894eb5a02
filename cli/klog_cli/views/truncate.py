"""The output of `klog truncate`: the batches that it has dropped, or would drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from klog.change.partition_plan import checkpoints
from klog.change.plan.draft import Draft
from klog.change.plan.plan_document import plan_json
from klog.change.plan.session import PlanOptions, PlanResult, PlanSession
from klog.cluster.metadata.topic_config import Setting, TopicConfig
from klog.data_dir.selection import PartitionQuery, only
from klog.partition.truncate import TruncateOptions, TruncateTarget, Truncation, plan

from klog_cli import output, style
from klog_cli.command_line import next_step
from klog_cli.views.losses import kept, loses
from klog_cli.views.plan_lines import action_lines, make_indexes
from klog_cli.views.topic_settings import settings_json, settings_text

_INTERVAL = "index.interval.bytes"
_RISK = (
    "If this copy becomes the leader, the other replicas truncate their logs to it; consumers that had read further"
    " will see other records under the offsets they know."
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
        output.lines(_lines(cut, {_INTERVAL: interval}, result, plan_options))
    return 0


def _json(cut: Truncation, interval: Mapping[str, Setting], result: PlanResult) -> dict[str, object]:
    return {
        **plan_json(result.plan),
        "applied": result.is_applied,
        "to_offset": cut.to_offset,
        "log_end_offset": cut.log_end,
        "kept": cut.kept._asdict(),
        "lost": [loss._asdict() for loss in cut.losses],
        "settings": settings_json(interval),
    }


def _lines(cut: Truncation, interval: Mapping[str, Setting], result: PlanResult, options: PlanOptions) -> Iterator[str]:
    made = result.plan
    if made is None:
        yield f"nothing to do: the log ends at {cut.log_end}"
        return
    yield _verdict(cut, result.is_applied)
    lost = loses(cut.losses, "lost" if result.is_applied else "loses")
    yield f"{lost}; {'kept' if result.is_applied else 'keeps'} {style.good(kept(cut.kept))}"
    yield ""
    yield from action_lines(made, made.actions)
    if make_indexes(made.actions):
        yield style.faint(settings_text(interval))
    yield ""
    yield _RISK
    yield ""
    if result.is_applied:
        yield f"backup: {style.faint(made.backups[0])}"
    yield from next_step(result, options)


def _verdict(cut: Truncation, is_applied: bool) -> str:
    """Return the offset at which the log is really cut."""
    verb, be = ("cut", "was") if is_applied else ("cuts", "is")
    if cut.inside is not None and cut.log_end < cut.to_offset:
        batch = output.range_text(*cut.inside)
        told = f"{cut.inside[0]}, not {cut.to_offset}: {cut.to_offset} {be} inside the batch {batch}"
        return f"{verb} at {style.strong(told)}"
    ends = "" if cut.log_end == cut.to_offset else f": the log then ends at {cut.log_end}, behind its last batch"
    return f"{verb} at {style.strong(str(cut.to_offset))}{ends}"
