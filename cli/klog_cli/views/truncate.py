"""What `klog truncate` is going to drop, or has dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.errors import DamagedError, KlogError, UsageError
from klog.formats.names import CLUSTER_METADATA
from klog.lookup import Lookup, TrailDetail
from klog.metadata.topic_config import Setting, TopicConfig
from klog.partition_plan import checkpoints
from klog.plan.draft import Draft
from klog.plan.json_file import plan_json
from klog.plan.staging import Staging
from klog.truncate import TruncateOptions, Truncation, plan

from klog_cli import output
from klog_cli.changing import Changed, Chosen, Drafted, Ways, change, choose, next_step, settings_json, settings_text
from klog_cli.views.plan_lines import action_lines, changes, make_indexes

_INTERVAL = "index.interval.bytes"
_RISK = (
    "if this copy becomes the leader, the other replicas cut their logs to it; consumers that had read further"
    " will see other records under the offsets they know"
)


class TruncateTarget(NamedTuple):
    """Where to cut: an offset, a time (ms), or with neither the start of the log."""

    offset: int | None
    timestamp_ms: int | None


def truncate(
    path: str,
    topics: Sequence[str],
    numbers: Sequence[int],
    to: TruncateTarget,
    settings: TruncateOptions,
    options: Mapping[str, str],
    ways: Ways,
    form: str,
) -> int:
    """Plan a cut, carry it out where that is wanted, and return the exit code.  Raises KlogError."""
    found: list[tuple[Truncation, Mapping[str, Setting]]] = []

    def draft(chosen: list[Chosen], staging: Sequence[Staging]) -> Drafted:
        log_dir, partition = _one(path, chosen)
        interval = TopicConfig(log_dir, options).value(partition.topic, _INTERVAL)
        drafts = [Draft(log_dir.path, 0, staging[0]), Draft(log_dir.path, 0, staging[0])]
        cut = plan(partition, _offset(partition, to), settings._replace(interval=interval.number), drafts[0])
        key = (partition.topic or "", partition.number or 0)
        checkpoints.plan(log_dir, {kind: {key: offset} for kind, offset in cut.offsets.items()}, drafts[1], mend=False)
        found.append((cut, {_INTERVAL: interval}))
        return Drafted(drafts, (), cut.losses, cut.kept, None)

    changed = change(lambda: choose([path], topics, numbers), ways, draft)
    if form == "json":
        output.emit_json(_json(*found[0], changed))
    else:
        _show(*found[0], changed, ways)
    return 0


def _one(path: str, chosen: list[Chosen]) -> tuple[LogDir, Partition]:
    partitions = [(one.log_dir, partition) for one in chosen for partition in one.partitions]
    if len(partitions) != 1:
        raise UsageError(f"{path}: {len(partitions)} partitions; name one, or narrow with --topic and --partition")
    log_dir, partition = partitions[0]
    if partition.topic == CLUSTER_METADATA:
        raise KlogError(f"{partition.path}: the metadata log is not cut; a node without it gets it from the others")
    return log_dir, partition


def _offset(partition: Partition, to: TruncateTarget) -> int:
    """Return the first offset to drop."""
    if to.offset is not None:
        return to.offset
    if to.timestamp_ms is None:
        return partition.log_start_offset or 0
    with Lookup(partition, wanted=TrailDetail()) as lookup:
        trail = lookup.timestamp(to.timestamp_ms)
    if trail.problems:
        raise DamagedError(f"{trail.problems[0]}; first: klog recover {quote(partition.path)}")
    if trail.offset is None:
        # Everything is earlier and stays, as after a first run.
        return partition.log_end.offset if partition.log_end is not None else 0
    return trail.offset


def _json(cut: Truncation, interval: Mapping[str, Setting], changed: Changed) -> dict[str, object]:
    made = changed.plan
    members: dict[str, object] = plan_json(made) if made is not None else {"id": None, "actions": []}
    return {
        **members,
        "applied": changed.is_applied,
        "to_offset": cut.to_offset,
        "log_end_offset": cut.log_end,
        "kept": cut.kept._asdict(),
        "lost": [loss._asdict() for loss in cut.losses],
        "settings": settings_json(interval),
    }


def _show(cut: Truncation, interval: Mapping[str, Setting], changed: Changed, ways: Ways) -> None:
    made = changed.plan
    if made is None:
        output.text(f"nothing to do: the log ends at {cut.log_end}\n")
        return
    for line in action_lines(made, made.actions):
        output.text(f"{line}\n")
    if make_indexes(made.actions):
        output.text(f"{settings_text(interval)}\n")
    if cut.inside is not None:
        output.text(f"offset {cut.to_offset} is inside of a batch, which goes from its base offset {cut.inside} on\n")
    done = "made" if changed.is_applied else "planned"
    output.text(f"{changes(len(made.actions))} {done}; the log ends at {cut.log_end}\n")
    records, size = sum(loss.records or 0 for loss in cut.losses), sum(loss.bytes for loss in cut.losses)
    counted = "" if cut.kept.records is None else f"{cut.kept.records} records, "
    output.text(f"lost: {records} records, {size} bytes; kept: {counted}{cut.kept.bytes} bytes\n")
    if changed.is_applied:
        output.text(f"backup: {output.printable(made.backups[0])}\n")
    output.note(_RISK)
    output.note(next_step(changed, ways))
