"""`klog compact`: its options."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from klog.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_duration, parse_size, parse_time


def compact(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    apply: options.Apply = False,
    plan: options.PlanTo = None,
    backup: options.BackupTo = None,
    to: options.CopyTo = None,
    estimate: options.Estimated = False,
    explain: options.Explain = False,
    policy: options.Policy = None,
    metadata: options.MetadataDir = None,
    everything: options.Everything = False,
    min_dirty_ratio: options.MinDirtyRatio = None,
    delete_retention: options.DeleteRetention = None,
    min_lag: options.MinLag = None,
    segment_size: options.SegmentSize = None,
    index_size: options.IndexSize = None,
    index_interval: options.IndexInterval = None,
    map_memory: options.MapMemory = "128MiB",
    like_broker: options.LikeCleaner = False,
    rules: options.Rules = "4.3",
    producer_expiration: options.MaybeExpiration = None,
    now: options.Now = None,
    form: options.PlanOutput = "text",
    jobs: options.CompactJobs = None,
    quiet: options.Quiet = False,
) -> int:
    """Key-based compaction, as the broker's cleaner does it. Nothing changes without --apply.

    Of each key the last value stays. Offsets, order, transactions and what producers need to go on stay as they are.
    """
    from klog.cleaner.cleaning import Wishes
    from klog.cleaner.compact import Choices
    from klog.cleaner.rewriting import Release

    from klog_cli.changing import Ways, one_way
    from klog_cli.compact import Asked
    from klog_cli.compact import compact as run

    output.Quiet.on = quiet
    options.known_form(form, options.PLAN_OUTPUTS)
    if not paths:
        raise UsageError("nothing to compact: name log dirs or partition directories")
    one_way(apply, plan)
    if [apply or plan is not None, to is not None, estimate].count(True) > 1:
        raise UsageError("--apply or --plan, --to, --estimate: one of them")
    if policy not in (None, "compact"):
        raise UsageError(f"--policy {policy}: only compact can be asked for")
    if rules not in [release.value for release in Release]:
        raise UsageError(f"--rules {rules}: one of {', '.join(release.value for release in Release)}")
    given = {
        "cleanup.policy": policy,
        "min.cleanable.dirty.ratio": min_dirty_ratio,
        "delete.retention.ms": _text(delete_retention, parse_duration),
        "min.compaction.lag.ms": _text(min_lag, parse_duration),
        "segment.bytes": _text(segment_size, parse_size),
        "segment.index.bytes": _text(index_size, parse_size),
        "index.interval.bytes": _text(index_interval, parse_size),
        "producer.id.expiration.ms": _text(producer_expiration, parse_duration),
    }
    wishes = Wishes(
        parse_time(now, output.note) if now is not None else int(time.time() * 1000),
        everything,
        Choices(parse_size(map_memory), like_broker, Release(rules)),
        jobs or os.cpu_count() or 1,
    )
    settings = {name: text for name, text in given.items() if text is not None}
    asked = Asked(tuple(paths), tuple(topic or ()), tuple(partition or ()), metadata, to, estimate, explain)
    return run(asked, settings, wishes, Ways("compact", apply, plan, backup), form)


def _text(given: str | None, parse: Callable[[str], int]) -> str | None:
    """Return an option in the notation of a topic's settings: bytes, ms."""
    return None if given is None else str(parse(given))
