"""`klog recover`: its options."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer
from klog.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_duration, parse_size, parse_time

LikeBroker = Annotated[bool, typer.Option("--like-broker", help="Exactly what a broker of 4.x does at its next start.")]
Salvage = Annotated[bool, typer.Option("--salvage", help="Keep every intact batch, before and after damage.")]
IndexesOnly = Annotated[bool, typer.Option("--indexes-only", help="Only indexes; logs stay as they are.")]
FromRecoveryPoint = Annotated[
    bool,
    typer.Option("--from-recovery-point", help="Look only at what may not have reached the disk, as a broker does."),
]
RepairBits = Annotated[
    bool,
    typer.Option(
        "--repair-bits",
        help="Put right a batch in which one bit is flipped, if it is small enough to tell that from other damage.",
    ),
]
RescueRecords = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Records of damaged batches that decode all the same, as JSON lines."),
]
MarkClean = Annotated[
    bool,
    typer.Option(
        "--mark-clean", help="Do the whole of a broker's recovery, and write the marker that spares the broker its own."
    ),
]
BrokerEpoch = Annotated[
    str | None,
    typer.Option(
        metavar="none|registered",
        help="What the marker claims (with --mark-clean): nothing, or that no record was lost since the broker ran.",
    ),
]
SegmentIndexBytes = Annotated[
    str | None, typer.Option(metavar="SIZE", help="segment.index.bytes; default: the topic's.")
]


def recover(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    like_broker: LikeBroker = False,
    salvage: Salvage = False,
    apply: options.Apply = False,
    plan: options.PlanTo = None,
    backup: options.BackupTo = None,
    indexes_only: IndexesOnly = False,
    from_recovery_point: FromRecoveryPoint = False,
    repair_bits: RepairBits = False,
    mark_clean: MarkClean = False,
    broker_epoch: BrokerEpoch = None,
    rescue_records: RescueRecords = None,
    index_interval: options.IndexInterval = None,
    segment_index_bytes: SegmentIndexBytes = None,
    producer_expiration: options.ProducerExpiration = "24h",
    now: options.Now = None,
    form: options.PlanOutput = "text",
    jobs: options.Jobs = None,
    quiet: options.Quiet = False,
) -> int:
    """Repair: make indexes, snapshots and epochs anew, cut torn tails. Nothing changes without --apply.

    Where damage has intact batches behind it, nothing is cut: --like-broker and --salvage say what each would cost.
    """
    from klog.recover.outcome import RecoverMode, RecoverOptions

    from klog_cli.changing import Ways, one_way
    from klog_cli.views.recover import recover as run

    output.Quiet.on = quiet
    options.known_form(form, options.PLAN_OUTPUTS)
    if not paths:
        raise UsageError("nothing to recover: name log dirs or partition directories")
    if like_broker and salvage:
        raise UsageError("--like-broker and --salvage: one of them")
    if mark_clean:
        others = {"like-broker": like_broker, "salvage": salvage, "indexes-only": indexes_only}
        others |= {"repair-bits": repair_bits, "rescue-records": rescue_records is not None}
        _refuse_beside_mark_clean(others, bool(topic or partition))
    if broker_epoch is not None and (not mark_clean or broker_epoch not in ("none", "registered")):
        raise UsageError("--broker-epoch is none or registered, and goes with --mark-clean")
    one_way(apply, plan)
    mode = RecoverMode.LIKE_BROKER if like_broker else RecoverMode.SALVAGE if salvage else RecoverMode.DEFAULT
    settings = RecoverOptions(
        mode,
        parse_time(now, output.note) if now is not None else int(time.time() * 1000),
        parse_duration(producer_expiration),
        from_recovery_point=from_recovery_point,
        indexes_only=indexes_only,
        repair_bits=repair_bits,
        jobs=jobs or os.cpu_count() or 1,
        mark_clean=mark_clean,
        registered=broker_epoch == "registered",
    )
    given = {"index.interval.bytes": index_interval, "segment.index.bytes": segment_index_bytes}
    sizes = {name: str(parse_size(text)) for name, text in given.items() if text is not None}
    ways = Ways("recover", apply, plan, backup)
    return run(paths, topic or (), partition or (), settings, sizes, ways, form, rescue_records)


def _refuse_beside_mark_clean(others: dict[str, bool], is_narrowed: bool) -> None:
    """Raise UsageError for what would leave a part of a log dir out, or decide about damage in the same breath."""
    other = next((f"--{name}" for name, is_given in others.items() if is_given), None)
    if other is not None:
        raise UsageError(f"--mark-clean and {other}: first recover with {other} --apply, then with --mark-clean")
    if is_narrowed:
        raise UsageError("--mark-clean is about whole log dirs: leave out --topic and --partition")
