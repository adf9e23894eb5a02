"""`klog write`: its options."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_duration, parse_size, parse_time

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...", help="Files of records, - for stdin (jsonl), partition directories or log dirs."
    ),
]
WriteTo = Annotated[str, typer.Option("--to", metavar="LOGDIR", help="A new log dir, or one whose broker is stopped.")]
InputFormat = Annotated[
    str | None,
    typer.Option("--input-format", metavar="jsonl|csv|parquet|log", help="Form of the inputs; default: by name."),
]
ToTopic = Annotated[str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Write everything to this topic.")]
KeepOffsets = Annotated[bool, typer.Option("--keep-offsets", help="Keep the offsets of the input, including gaps.")]
Batches = Annotated[
    str | None, typer.Option(metavar="fill|keep", help="Fill batches to --batch-size, or keep those of the input.")
]
BatchSize = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Fill batches to SIZE before compression; default: 16384.")
]
Linger = Annotated[
    str | None, typer.Option(metavar="DURATION", help="A batch spans no more than this, by the records' timestamps.")
]
CodecName = Annotated[
    str | None,
    typer.Option(
        "--codec", metavar="none|gzip|snappy|lz4|zstd", help="Default: the topic's compression.type, or none."
    ),
]
Level = Annotated[int | None, typer.Option(metavar="N", help="Compression level; default: Kafka's.")]
NewPartitions = Annotated[
    int | None,
    typer.Option("--partitions", metavar="N", min=1, help="Partitions of a new topic; default: as the records name."),
]
Partitioner = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="For records without a partition: java (default), round_robin, consistent_random, consistent,"
        " murmur2_random, murmur2, fnv1a_random, fnv1a or random.",
    ),
]
Seed = Annotated[
    int, typer.Option(metavar="N", min=0, help="Seed of random partitions: the same seed gives the same files.")
]
Repartition = Annotated[bool, typer.Option("--repartition", help="Ignore the partitions that records name.")]
Idempotent = Annotated[
    bool, typer.Option("--idempotent", help="Give records without a producer one producer per partition.")
]
Producers = Annotated[
    str | None,
    typer.Option(
        metavar="shift|keep|drop",
        help="Add 2^62 to producer ids (default in a broker's log dir), so that no new producer gets the same id; keep"
        " them; or write committed data only, without producers.",
    ),
]
TimestampType = Annotated[
    str | None,
    typer.Option(metavar="CreateTime|LogAppendTime", help="Default: the topic's, or the record's."),
]
LeaderEpoch = Annotated[
    str | None,
    typer.Option(metavar="N|keep", help="Default: the partition's in the metadata log; otherwise that of the records."),
]
Config = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A topic setting (repeatable).")]
TopicId = Annotated[str | None, typer.Option("--topic-id", metavar="ID", help="Id of a new topic; default: random.")]
OneReplica = Annotated[
    bool, typer.Option("--one-replica", help="Write to this log dir although other brokers have replicas too.")
]
EndTransactions = Annotated[
    str | None, typer.Option(metavar="ACTION", help="With abort: abort transactions that are open at the end.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip records that cannot be written, and report them.")]


def write(
    inputs: Inputs,
    to: WriteTo,
    form_of_input: InputFormat = None,
    topic: ToTopic = None,
    keep_offsets: KeepOffsets = False,
    batches: Batches = None,
    batch_size: BatchSize = None,
    linger: Linger = None,
    codec: CodecName = None,
    level: Level = None,
    partitions: NewPartitions = None,
    partitioner: Partitioner = None,
    seed: Seed = 0,
    repartition: Repartition = False,
    idempotent: Idempotent = False,
    producers: Producers = None,
    timestamp_type: TimestampType = None,
    leader_epoch: LeaderEpoch = None,
    config: Config = None,
    topic_id: TopicId = None,
    metadata: options.MetadataDir = None,
    one_replica: OneReplica = False,
    end_transactions: EndTransactions = None,
    skip_bad: SkipBad = False,
    apply: options.Apply = False,
    plan: options.PlanTo = None,
    backup: options.BackupTo = None,
    now: options.Now = None,
    form: options.PlanOutput = "text",
) -> int:
    """Write records into partitions, from files or another log.

    In an existing log dir nothing changes without --apply; its broker must be stopped, and the topic must exist.
    """
    from klog.cluster.metadata.topic_config import parse_settings
    from klog.commands.write.write import WriteInput, check_record_options
    from klog.commands.write.write_destination import WRITE_SETTINGS, WriteOptions, check_level, check_topic

    from klog_cli.command_line import check_exclusive, plan_options
    from klog_cli.views import write as view

    check_exclusive(apply, plan)
    _check_choices(form, form_of_input, batches, partitioner, producers, timestamp_type, end_transactions)
    check_topic(topic, topic_id)
    check_level(codec, level)
    found = [WriteInput.of(path, form_of_input) for path in inputs]
    of_records = batches, batch_size, linger, codec, level, partitioner, timestamp_type, repartition, idempotent
    check_record_options(found, of_records)
    wishes = WriteOptions(
        parse_time(now, output.note) if now is not None else int(time.time() * 1000), topic, keep_offsets,
        batches == "keep", parse_size(batch_size or "16384"), None if linger is None else parse_duration(linger),
        codec, level, partitions, partitioner or "java", seed, repartition, idempotent, producers, timestamp_type,
        _epoch(leader_epoch), topic_id, one_replica, bool(end_transactions), skip_bad,
        parse_settings(config or (), WRITE_SETTINGS),
    )  # fmt: skip
    asked = view.WriteArguments(found, to, metadata)
    return view.write(asked, wishes, plan_options("write", apply, plan, backup), form)


def _check_choices(*given: str | None) -> None:
    """Raise UsageError for an unknown word of an option."""
    from klog.commands.write.write import FORMATS
    from klog.commands.write.write_destination import PARTITIONER_NAMES, PRODUCERS

    choices = (
        options.PLAN_OUTPUTS,
        FORMATS,
        ("fill", "keep"),
        PARTITIONER_NAMES,
        PRODUCERS,
        ("CreateTime", "LogAppendTime"),
        ("abort",),
    )
    names = (
        "--output",
        "--input-format",
        "--batches",
        "--partitioner",
        "--producers",
        "--timestamp-type",
        "--end-transactions",
    )
    for name, word, known in zip(names, given, choices, strict=True):
        if word is not None:
            options.known(name, word, known)


def _epoch(text: str | None) -> int | None:
    """Return the leader epoch to stamp, -1 for that of the records, None without the option.  Raises UsageError."""
    if text is None or text == "keep":
        return None if text is None else -1
    if not text.isascii() or not text.isdecimal() or int(text) > 2**31 - 1:
        raise UsageError(f"--leader-epoch {text}: expected a number or keep")
    return int(text)
