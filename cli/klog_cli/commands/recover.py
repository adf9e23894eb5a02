"""`klog recover`: its options."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_duration, parse_now, parse_size

LikeBroker = Annotated[
    bool, typer.Option("--like-broker", help="Do exactly the same as a 4.x broker at its next start.")
]
Salvage = Annotated[
    bool, typer.Option("--salvage", help="Keep every intact batch, before and after damage; cut the damage out.")
]
IndexesOnly = Annotated[
    bool, typer.Option("--indexes-only", help="Rebuild only indexes; leave everything else as it is.")
]
FromRecoveryPoint = Annotated[
    bool,
    typer.Option("--from-recovery-point", help="Start at the recovery point, as a broker does."),
]
RepairBits = Annotated[
    bool,
    typer.Option(
        "--repair-bits",
        help="Repair a batch with one flipped bit, if the batch is small enough to exclude other damage.",
    ),
]
RescueRecords = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write records of damaged batches that still decode to FILE, as JSON lines."),
]
MarkClean = Annotated[
    bool,
    typer.Option(
        "--mark-clean",
        help="Do a broker's complete recovery and write the clean-shutdown marker, so that the broker skips its own.",
    ),
]
BrokerEpoch = Annotated[
    str | None,
    typer.Option(
        metavar="none|registered",
        help="Broker epoch in the clean-shutdown marker: none; or registered, which claims that no record was lost.",
    ),
]
SegmentIndexBytes = Annotated[
    str | None, typer.Option(metavar="SIZE", help="segment.index.bytes; default: the topic's setting.")
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
    everything: options.AllFindings = False,
    form: options.PlanOutput = "text",
    jobs: options.Jobs = None,
) -> int:
    """Rebuild indexes, snapshots and epochs; truncate torn tails. Nothing changes without --apply.

    klog does not truncate damage with intact batches behind it: it shows the losses of --like-broker and of
    --salvage.
    """
    from klog.data_dir.selection import PartitionQuery
    from klog.partition.repair.recover_outcome import RecoverMode, RecoverOptions

    from klog_cli.command_line import check_exclusive, plan_options
    from klog_cli.views.recover import recover as run

    options.known_form(form, options.PLAN_OUTPUTS)
    if not paths:
        raise UsageError("nothing to recover: name log dirs or partition directories")
    if like_broker and salvage:
        raise UsageError("--like-broker and --salvage: one of them")
    others = {"like-broker": like_broker, "salvage": salvage, "indexes-only": indexes_only}
    others |= {"repair-bits": repair_bits, "rescue-records": rescue_records is not None}
    _check_mark_clean(mark_clean, broker_epoch, others, bool(topic or partition))
    check_exclusive(apply, plan)
    mode = RecoverMode.LIKE_BROKER if like_broker else RecoverMode.SALVAGE if salvage else RecoverMode.DEFAULT
    settings = RecoverOptions(
        mode,
        parse_now(now, output.note),
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
    query = PartitionQuery(paths, topic or (), partition or ())
    return run(query, settings, sizes, plan_options("recover", apply, plan, backup), form, rescue_records, everything)


def _check_mark_clean(mark_clean: bool, broker_epoch: str | None, others: dict[str, bool], is_narrowed: bool) -> None:
    """Raise UsageError for `--broker-epoch` alone, and for options that `--mark-clean` excludes.

    Excluded are *others*, which decide about damage, and the choice of a part of a log dir.
    """
    other = next((f"--{name}" for name, is_given in others.items() if is_given), None)
    if mark_clean and other is not None:
        raise UsageError(f"--mark-clean and {other}: first recover with {other} --apply, then with --mark-clean")
    if mark_clean and is_narrowed:
        raise UsageError("--mark-clean needs complete log dirs: leave out --topic and --partition")
    if broker_epoch is not None and (not mark_clean or broker_epoch not in ("none", "registered")):
        raise UsageError("--broker-epoch is none or registered, and goes with --mark-clean")
