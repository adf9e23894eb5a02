"""Gives a copy a history that its leader has.  All removed data is kept in the backup."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from klog.base.errors import DamagedError, ExitCode
from klog.cluster.leader_epoch_cache import UNDEFINED
from klog.commands.follow.cleaning_watch import ANEW
from klog.commands.follow.client.client_failures import ForeignAnswerError, LostConnectionError, RefusedRequestError
from klog.commands.follow.client.cluster import EARLIEST, LATEST, Cluster
from klog.commands.follow.copied_history import LeaderLog, find_parting
from klog.commands.follow.fetch_session import FollowedPlace
from klog.commands.follow.follow_options import FollowOptions
from klog.commands.follow.followed_partition import FollowedPartition, FollowReporter
from klog.commands.follow.reactions import (
    Cut,
    Decision,
    EpochEnd,
    Leave,
    Look,
    Part,
    Renew,
    Skip,
    Trust,
    Wait,
    locate,
    refusal,
)
from klog.formats.java_text import ZERO_UUID


def carry_out(
    partition: FollowedPartition,
    decision: Decision,
    cluster: Cluster,
    options: FollowOptions,
    reporter: FollowReporter,
) -> Wait | Leave | None:
    """Carry out *decision*; return the reason to wait, None when the partition can be fetched again.

    Raises KlogError, OSError.
    """
    if isinstance(decision, Look | Part):
        decision = _asked(partition, cluster, _located if isinstance(decision, Look) else _parted)
    if isinstance(decision, Cut):
        if options.trace and decision.epoch != UNDEFINED:
            reporter.trace(f"{partition.name} diverging epoch={decision.epoch} end={decision.end}")
        parted = decision.to, partition.leader_epoch
        if options.on_divergence == "stop" or parted in partition.parted:
            again = " again after a cut there" if parted in partition.parted else ""
            return Leave(f"{_parting(partition, decision)}{again}: it is left as it is", ExitCode.PROBLEMS_LEFT)
        partition.parted.add(parted)
        _cut(partition, decision, options, reporter)
    elif isinstance(decision, Skip):
        _skip(partition, decision, reporter)
    elif isinstance(decision, Trust):
        partition.is_trusted = True
    elif isinstance(decision, Renew):
        begin_anew(partition, reporter)
    elif isinstance(decision, Wait | Leave):
        return decision
    return None


def _asked(
    partition: FollowedPartition,
    cluster: Cluster,
    ask: Callable[[FollowedPartition, Cluster], Decision],
) -> Decision:
    try:
        return ask(partition, cluster)
    except RefusedRequestError as error:
        return refusal(error.code)
    except (LostConnectionError, ForeignAnswerError) as error:
        return Wait(str(error))


def _located(partition: FollowedPartition, cluster: Cluster) -> Cut | Skip | Trust | Wait:
    key = partition.place.topic, partition.place.number

    def epoch_end(epoch: int) -> EpochEnd:
        answer = cluster.epoch_ends({key: epoch})[key]
        if answer.error:
            raise RefusedRequestError(answer.error.name, answer.error)
        return answer.epoch, answer.end_offset

    last = partition.unseen.facts.last_offset if partition.unseen is not None else None
    bounds = partial(_bounds, partition, cluster)
    return locate(partition.copy.epochs, partition.copy.end, epoch_end, bounds, last)


def _bounds(partition: FollowedPartition, cluster: Cluster) -> tuple[int, int]:
    """Return the leader's log start and its high watermark."""
    key = partition.place.topic, partition.place.number
    start, end = (cluster.offsets([key], which)[key] for which in (EARLIEST, LATEST))
    for one in (start, end):
        if one.error:
            raise RefusedRequestError(one.error.name, one.error)
    return start.offset, end.offset


def _parted(partition: FollowedPartition, cluster: Cluster) -> Cut | Wait:
    """Find the first difference between the leader's batches and the copy's."""
    place, start = partition.place, _bounds(partition, cluster)[0]

    def fetch(offset: int) -> memoryview:
        return cluster.fetch(partition.leader, place.topic, place.topic_id, place.number, offset)

    try:
        to = find_parting(partition.copy, LeaderLog(start, fetch))
    except DamagedError as error:
        return Wait(str(error))
    return Cut(to, UNDEFINED, UNDEFINED, has_others=True) if to is not None else Wait("the leader's log has changed")


def _parting(partition: FollowedPartition, cut: Cut) -> str:
    if cut.has_others:
        why = f"the leader has other batches from {cut.to} on under the same leader epochs, as after a roll-back"
    elif cut.epoch != UNDEFINED:
        why = f"leader epoch {cut.epoch} ended at {cut.end}"
    elif cut.end != UNDEFINED:
        why = f"the leader's log ends at {cut.end}"
    else:
        why = "the leader knows no leader epoch of the copy"
    return f"{partition.name}: {why}, and the copy goes on to {partition.copy.end - 1}"


def _cut(partition: FollowedPartition, cut: Cut, options: FollowOptions, reporter: FollowReporter) -> None:
    said, start, end = _parting(partition, cut), partition.copy.log_start, partition.copy.end
    with partition.lock:
        partition.keep(partition.copy.cut(cut.to))
    # If nothing was left, the copy starts over, at the leader's log start.
    partition.is_new = not partition.copy.end
    if partition.is_new:
        partition.cleaning = partition.cleaning.begun(time.time_ns() // 1_000_000)
    now = max(start, partition.copy.end)
    if options.trace:
        reporter.trace(f"{partition.name} truncate LEO={now} kept={end - now}")
    if now < end:
        reporter.error(f"{said}: offsets {now} to {end - 1} were cut; they are in {partition.backups[-1]}")
        partition.cut.append((now, end - 1))
        partition.first_offset = min(partition.first_offset, now)
        partition.exit_code |= ExitCode.CORRECTED
        if not partition.is_new and partition.cleaning.note_cut(partition.copy):
            reporter.error(
                f"{partition.name}: compaction has removed records below {now} that later ones replaced, and of those"
                f" some were cut: keys may be missing in the copy; {ANEW}"
            )
            partition.exit_code |= ExitCode.PROBLEMS_LEFT


def _skip(partition: FollowedPartition, skip: Skip, reporter: FollowReporter) -> None:
    first, last = partition.copy.end, skip.to - 1
    with partition.lock:
        partition.copy.skip_to(skip.to)
    reporter.error(f"{partition.name}: offsets {first} to {last} were deleted before they were copied")
    partition.is_trusted, partition.skipped_to = True, skip.to
    partition.missed.append((first, last))
    partition.exit_code |= ExitCode.PROBLEMS_LEFT


def begin_anew(partition: FollowedPartition, reporter: FollowReporter) -> None:
    """Start the copy over: deletions may be missing in it.  Raises KlogError, OSError."""
    first, end = partition.copy.log_start, partition.copy.end
    with partition.lock:
        partition.keep(partition.copy.replace(partition.copy.topic_id))
    reporter.error(
        f"{partition.name}: it is copied anew; the copy, which ended at {end}, is in {partition.backups[-1]}"
    )
    partition.cut.append((first, end - 1))
    partition.first_offset, partition.is_new = 0, True
    partition.cleaning = partition.cleaning.begun(time.time_ns() // 1_000_000)
    partition.exit_code = partition.exit_code & ~ExitCode.PROBLEMS_LEFT | ExitCode.CORRECTED


def replace(partition: FollowedPartition, place: FollowedPlace, reporter: FollowReporter) -> None:
    """Start the copy over: the topic was deleted, and made again with another id.  Raises KlogError, OSError."""
    before, end = partition.copy.topic_id, partition.copy.end
    with partition.lock:
        partition.keep(partition.copy.replace(place.topic_id if place.topic_id != ZERO_UUID else None))
    said = f"{partition.name}: the topic was created again, {place.topic_id} after {before}"
    kept = f"is in {partition.backups[-1]}" if end else "was empty"
    reporter.error(f"{said}: the old copy, which ended at {end}, {kept}")
    partition.place, partition.is_new = place, True
    partition.cleaning = partition.cleaning.begun(time.time_ns() // 1_000_000)
    partition.exit_code |= ExitCode.CORRECTED
