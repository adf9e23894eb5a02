"""The results of `klog replicas diff` as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from klog.commands.replicas.copy_state import CopyState
from klog.commands.replicas.diff import LostRecords, Outcome, PartitionDiff
from klog.commands.replicas.disks import BrokerDisk, MetadataLog

from klog_cli.views.replicas.advice import advice


def disk_json(disk: BrokerDisk) -> dict[str, object]:
    """Return a disk."""
    marker = disk.log_dir.clean_shutdown
    return {
        "node": disk.node,
        "dir": disk.log_dir.path,
        "directory_id": disk.log_dir.directory_id,
        "clean_marker": marker is not None,
        "broker_epoch": marker.broker_epoch if marker is not None else None,
    }


def metadata_json(metadata: MetadataLog | None) -> dict[str, object] | None:
    """Return the metadata log that was read, None without one."""
    if metadata is None:
        return None
    return {
        "dir": metadata.path,
        "node": metadata.node,
        "offset": metadata.state.end_offset,
        "epoch": metadata.epoch,
    }


def partition_json(diff: PartitionDiff, given: Sequence[str]) -> dict[str, object]:
    """Return a partition; *given*: the disks as they were typed."""
    registration = diff.registration
    row: dict[str, object] = {
        "topic": diff.topic,
        "partition": diff.number,
        "topic_id": diff.topic_id,
        "compacted": diff.is_compacted,
        "verdict": diff.verdict.value,
        "common_prefix_end": diff.common_prefix_end,
        "replicas": list(registration.replicas) if registration is not None else None,
        "isr": list(registration.isr) if registration is not None else None,
        "elr": list(registration.elr) if registration is not None else None,
        "last_known_elr": list(registration.last_known_elr) if registration is not None else None,
        "leader_epoch": diff.leader_epoch,
        "unclean": diff.unclean,
        "copies": {str(node): _copy_json(copy, diff) for node, copy in diff.copies.items()},
        "missing": list(diff.missing),
        "not_given": list(diff.not_given),
        "absent_log_dirs": {str(node): list(ids) for node, ids in diff.absent_log_dirs.items()},
        "leader_if_all_back": diff.leader,
        "because": diff.because.value if diff.because is not None else "no metadata",
        "lost_if_leads": {str(node): _lost_json(lost) for node, lost in diff.lost_if_leads.items()},
        "acks_all_safe": diff.acks_all_safe,
        "advice": advice(diff, given),
    }
    if diff.problem is not None:
        row["problem"] = diff.problem
    if diff.what_if is not None:
        row["what_if"] = {
            "up": [list(group) for group in diff.what_if.up],
            "set": dict(diff.what_if.settings),
            "outcomes": [_outcome_json(outcome) for outcome in diff.what_if.outcomes],
        }
    return row


def _copy_json(copy: CopyState, diff: PartitionDiff) -> dict[str, object]:
    facts = copy.facts
    row: dict[str, object] = {
        "dir": copy.partition.path,
        "log_start": copy.log_start,
        "log_end": copy.log_end,
        "expected_from": copy.expected_from,
        "last_epoch": copy.last_epoch,
        "epochs": [list(run) for run in facts.epochs] if facts is not None else [],
        "high_watermark": copy.partition.high_watermark,
        "cleaner_offset": copy.partition.cleaner_offset,
        "batches": facts.batches if facts is not None else None,
        "bad_batches": facts.bad_batches if facts is not None else [],
        "only_here": [list(one) for one in facts.only_here.ranges] if facts is not None else [],
        "records_only_here": facts.only_here.count if facts is not None else 0,
        "first_difference": {str(node): offset for node, offset in copy.first_difference.items()},
        "cut_if_leads": {str(node): offset for node, offset in copy.cut_if_leads.items()},
        "clean_marker": copy.is_clean,
        "truncated_at_start": copy.is_cut,
        "start_fails": copy.kept.fails,
        "directory_known": copy.directory_known,
        "open_transactions": copy.open_transactions,
    }
    if copy.node in diff.holes:
        explained, unexplained = diff.holes[copy.node]
        row["holes"] = {"explained": explained, "unexplained": [list(one) for one in unexplained]}
    return row


def _lost_json(lost: LostRecords) -> dict[str, object]:
    return {
        "records": lost.records,
        "ranges": [list(one) for one in lost.ranges],
        "committed_below": lost.committed_below,
    }


def _outcome_json(outcome: Outcome) -> dict[str, object]:
    return {
        "leader": outcome.leader,
        "because": outcome.because.value,
        "log_end": outcome.log_end,
        "cuts": {str(node): offset for node, offset in outcome.cuts.items()},
        "lost": {"records": outcome.lost.records, "ranges": [list(one) for one in outcome.lost.ranges]},
    }
