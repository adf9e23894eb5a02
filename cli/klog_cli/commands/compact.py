"""`klog compact`: its options."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_duration, parse_now, parse_size

LikeCleaner = Annotated[
    bool, typer.Option("--like-broker", help="Use a broker's digests, formats and indexes, byte for byte.")
]
Rules = Annotated[
    str,
    typer.Option(
        "--kafka-version",
        metavar="4.3|3.9|2.8",
        help="Rules of this version: 4.3 keeps an empty last batch, 3.9 (3.1 and later) does not; 2.8 (up to 3.0)"
        " removes tombstones and markers by the age of segments.",
    ),
]
CopyTo = Annotated[
    str | None, typer.Option("--to", metavar="DIR", help="Write compacted copies to DIR; the log dir stays as it is.")
]
Estimated = Annotated[bool, typer.Option("--estimate", help="Only estimate how much space would be gained.")]
Explain = Annotated[bool, typer.Option("--explain", help="Show for each partition why it is compacted or skipped.")]


def compact(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    apply: options.Apply = False,
    plan: options.PlanTo = None,
    backup: options.BackupTo = None,
    to: CopyTo = None,
    estimate: Estimated = False,
    explain: Explain = False,
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
    like_broker: LikeCleaner = False,
    rules: Rules = "4.3",
    producer_expiration: options.MaybeExpiration = None,
    now: options.Now = None,
    form: options.PlanOutput = "text",
    jobs: options.Jobs = None,
) -> int:
    """Compact topics by key, as the broker's log cleaner does. Nothing changes without --apply.

    The last value of each key is retained. Offsets, order, transactions and the state that producers need to continue
    are preserved.
    """
    from klog.commands.compact.compaction import CompactOptions
    from klog.commands.compact.log_cleaner import CleanerOptions
    from klog.commands.compact.record_retention import CleanerRelease
    from klog.data_dir.selection import PartitionQuery

    from klog_cli.command_line import check_exclusive, plan_options
    from klog_cli.views.compact.compact import CompactArguments
    from klog_cli.views.compact.compact import compact as run

    options.known_form(form, options.PLAN_OUTPUTS)
    if not paths:
        raise UsageError("nothing to compact: name log dirs or partition directories")
    check_exclusive(apply, plan)
    if [apply or plan is not None, to is not None, estimate].count(True) > 1:
        raise UsageError("--apply or --save-plan, --to, --estimate: one of them")
    wishes = CompactOptions(
        parse_now(now, output.note),
        everything,
        CleanerOptions(parse_size(map_memory), like_broker, CleanerRelease.of(rules)),
        jobs or os.cpu_count() or 1,
    )
    durations = delete_retention, min_lag, producer_expiration
    given = settings((policy, min_dirty_ratio), durations, (segment_size, index_size, index_interval))
    query = PartitionQuery(paths, topic or (), partition or ())
    asked = CompactArguments(query, metadata, to, estimate, explain)
    return run(asked, given, wishes, plan_options("compact", apply, plan, backup), form)


_WORDS = ("cleanup.policy", "min.cleanable.dirty.ratio")
_DURATIONS = ("delete.retention.ms", "min.compaction.lag.ms", "producer.id.expiration.ms")
_SIZES = ("segment.bytes", "segment.index.bytes", "index.interval.bytes")


def settings(
    words: Sequence[str | None], durations: Sequence[str | None], sizes: Sequence[str | None]
) -> dict[str, str]:
    """Return the settings of topics that options give: policy and dirty ratio; then times; then sizes.

    Raises UsageError.
    """
    if words[0] not in (None, "compact"):
        raise UsageError(f"--policy {words[0]}: only compact can be asked for")
    found = _texts(_WORDS, words, str)
    found |= _texts(_DURATIONS, durations, parse_duration)
    return found | _texts(_SIZES, sizes, parse_size)


def _texts(names: Sequence[str], given: Sequence[str | None], parse: Callable[[str], object]) -> dict[str, str]:
    """Return the options that are given, by the names of settings and in the notation that those have: bytes, ms."""
    return {name: str(parse(text)) for name, text in zip(names, given, strict=True) if text is not None}
