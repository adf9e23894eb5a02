"""Options that several commands share, declared for Typer.  Others are in the module of their command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from klog.base.errors import UsageError

from klog_cli.units import parse_partition

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from klog.commands.serve.serve_options import End
    from klog.data_dir.partition import Partition
    from klog.data_dir.partition_identity import IdentityChoice
    from klog.data_dir.selection import PartitionChoice
    from klog.jobs.output_files import Format
    from klog.jobs.runner import Runner
    from klog.partition.transactions.isolation import Isolation as Level

T = TypeVar("T")

ENDINGS = ("json", "jsonl", "csv", "parquet")
"""Endings of `--to` that choose the form of the output."""


def known_form(form: str, forms: Sequence[str]) -> None:
    """Raise UsageError for an `--output` that is none of *forms*, with near misses."""
    known("--output", form, forms)


def chosen_form(form: str | None, to: str | None, forms: Sequence[str], default: str) -> str:
    """Return the form of `--output`, else that of the ending of `--to`, else *default*.

    Raises UsageError for a form that is none of *forms*, and for two different ones.
    """
    import os

    ending = os.path.splitext(to or "")[1].removeprefix(".").lower()
    by_name = ending if ending in ENDINGS else None
    if form is not None:
        known_form(form, forms)
    if by_name is None:
        return form or default
    if by_name not in forms:
        raise UsageError(f"--to {to}: the forms of the output are {', '.join(forms)}")
    if form not in (None, by_name):
        raise UsageError(f"--output {form} and --to {to}: the name says {by_name}")
    return by_name


def known(option: str, given: str, choices: Sequence[T]) -> T:
    """Return the one of *choices* that equals *given*.  Raises UsageError if none does, with near misses."""
    for one in choices:
        if one == given:
            return one
    from klog.base.errors import near_misses

    names = [str(one) for one in choices]
    raise UsageError(f"{option} {given}: expected one of {', '.join(names)}{near_misses(given, names)}")


def on_threads(jobs: int | None) -> AbstractContextManager[Runner]:
    """Return the runner of `--jobs`: threads of this machine, as many as it has cores where None is given."""
    import os
    from contextlib import nullcontext

    from klog.jobs.runner import Threads

    return nullcontext(Threads(jobs or os.cpu_count() or 1))


@contextmanager
def in_processes(jobs: int | None) -> Iterator[Runner]:
    """Yield the runner of `--jobs` for work in Python: processes, because threads would wait for each other."""
    import os

    from klog.jobs.runner import Processes, Threads, may_fork

    workers = jobs or os.cpu_count() or 1
    yield Processes(workers) if workers > 1 and may_fork() else Threads(1)


def on_spark(name: str, master: str | None, conf: Sequence[str] | None, ship: str) -> AbstractContextManager[Runner]:
    """Return the runner of `--master`, `--spark-conf` and `--ship`; Spark starts when it is used.

    *name*: of the jobs.  Raises UsageError for a setting without a value.
    """
    from klog.spark.run import spark_runner

    for setting in conf or ():
        if not setting.partition("=")[0] or "=" not in setting:
            raise UsageError(f"--spark-conf {setting}: expected a name and a value, such as spark.executor.memory=2g")
    return spark_runner(master, dict(setting.split("=", 1) for setting in conf or ()), ship, name)


def output_form(forms: Sequence[str]) -> Any:
    """Return the declaration of `--output` with these forms."""
    return typer.Option("-o", "--output", metavar="|".join(forms), help="Form of the output.")


Paths = Annotated[list[str] | None, typer.Argument(metavar="PATH...", help="Log dirs, partition directories or files.")]
Topics = Annotated[
    list[str] | None, typer.Option("-t", "--topic", metavar="GLOB", help="Only these topics (repeatable).")
]
Partitions = Annotated[
    list[Any] | None,
    typer.Option(
        "-p", "--partition", metavar="N|TOPIC-N", parser=parse_partition, help="Only these partitions (repeatable)."
    ),
]
FromOffset = Annotated[
    int | None, typer.Option(metavar="N", help="First offset to include; -10: the tenth before the log end.")
]
ToOffset = Annotated[int | None, typer.Option(metavar="N", help="First offset to exclude.")]
FromTime = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="First timestamp to include: ms since the epoch, ISO 8601, an age (2h), 14:03, yesterday 14:03; UTC.",
    ),
]
ToTime = Annotated[str | None, typer.Option(metavar="TIME", help="First timestamp to exclude.")]
Key = Annotated[
    list[str] | None,
    typer.Option(metavar="BYTES", help="Only records with this key (text, hex:… or base64:…; repeatable)."),
]
KeysFrom = Annotated[
    str | None, typer.Option(metavar="FILE", help="Only records with one of the keys in FILE (one per line).")
]
VALUE_FORMS = ("auto", "text", "json", "hex", "int32", "int64", "float64", "uuid", "schema")
KeyAs = Annotated[
    str,
    typer.Option("--key-as", metavar="|".join(VALUE_FORMS), help="Form of keys, in --key and in text output."),
]
Isolation = Annotated[
    str,
    typer.Option(metavar="read_uncommitted|read_committed", help="read_committed omits aborted and open transactions."),
]
Values = Annotated[
    str, typer.Option(metavar="text|base64|hex|redacted|none", help="Form of record values (jsonl, csv).")
]
Jobs = Annotated[
    int | None, typer.Option("-j", "--jobs", metavar="N", min=1, help="At most N threads; default: one per core.")
]
Limit = Annotated[int | None, typer.Option("-n", "--limit", metavar="N", min=1, help="At most N rows.")]
MaxBatchBytes = Annotated[str, typer.Option(metavar="SIZE", help="Largest batch to read or decompress.")]

# fetch, serve
FETCH_ENDS: tuple[End, ...] = ("log", "checkpoint")
FetchEnd = Annotated[
    str,
    typer.Option(
        "--end", metavar="|".join(FETCH_ENDS), help="Read up to the log end, or up to the high watermark checkpoint."
    ),
]

# verify, spark verify
VERIFY_OUTPUTS = ("text", "json", "jsonl", "csv")
VerifyOutput = Annotated[str, output_form(VERIFY_OUTPUTS)]
Deep = Annotated[
    bool, typer.Option("--deep", help="Also decompress and read every record, and compare snapshots with the log.")
]

AllFindings = Annotated[
    bool, typer.Option("--all", help="List every finding; text shows the first of each kind in a partition otherwise.")
]

# apply, undo, plans
PLAN_OUTPUTS = ("text", "json")
PlanFile = Annotated[
    str,
    typer.Argument(
        metavar="PLAN", help="A plan file, a backup directory, an id, a part of its beginning or end, or latest."
    ),
]
PlanOutput = Annotated[str, output_form(PLAN_OUTPUTS)]
Apply = Annotated[bool, typer.Option("--apply", help="Make the changes; without it klog only shows them.")]

# recover, truncate, compact
PlanTo = Annotated[
    str | None, typer.Option("--save-plan", metavar="FILE", help="Write the plan to FILE, for 'klog apply', and stop.")
]
BackupTo = Annotated[
    str | None, typer.Option("--backup", metavar="DIR", help="Directory for the original files; outside of log dirs.")
]
IndexInterval = Annotated[
    str | None, typer.Option(metavar="SIZE", help="index.interval.bytes; default: the topic's setting.")
]
ProducerExpiration = Annotated[
    str, typer.Option(metavar="DURATION", help="producer.id.expiration.ms: producers idle for longer are removed.")
]
Now = Annotated[str | None, typer.Option(metavar="TIME", help="Use TIME as the current time; default: the clock.")]

# compact, spark compact
Policy = Annotated[
    str | None,
    typer.Option(metavar="POLICY", help="compact: also topics whose cleanup.policy is unknown."),
]
MetadataDir = Annotated[
    str | None,
    typer.Option("--metadata", metavar="DIR", help="Log dir with the metadata log, if it is a different one."),
]
Everything = Annotated[
    bool,
    typer.Option("--all", help="Compact from the log start; ignore the dirty ratio and the cleaner checkpoint."),
]
MinDirtyRatio = Annotated[
    str | None, typer.Option(metavar="RATIO", help="min.cleanable.dirty.ratio; default: the topic's setting.")
]
DeleteRetention = Annotated[
    str | None, typer.Option(metavar="DURATION", help="delete.retention.ms; default: the topic's setting.")
]
MinLag = Annotated[
    str | None, typer.Option(metavar="DURATION", help="min.compaction.lag.ms; default: the topic's setting.")
]
SegmentSize = Annotated[str | None, typer.Option(metavar="SIZE", help="segment.bytes; default: the topic's setting.")]
IndexSize = Annotated[
    str | None, typer.Option(metavar="SIZE", help="segment.index.bytes; default: the topic's setting.")
]
MaybeExpiration = Annotated[
    str | None, typer.Option(metavar="DURATION", help="producer.id.expiration.ms; default: the broker's setting.")
]
MapMemory = Annotated[
    str, typer.Option(metavar="SIZE", help="Memory for a partition's offset map: 24 bytes per key, plus 10 %.")
]

# space, doctor
ServerProperties = Annotated[
    str | None, typer.Option("--server-properties", metavar="FILE", help="The broker's server.properties.")
]

# space, verify
PrometheusTo = Annotated[
    str | None,
    typer.Option("--to", metavar="FILE", help="With --output prometheus: write the metrics to FILE (atomically)."),
]


def check_prometheus(form: str, to: str | None) -> None:
    """Raise UsageError for a `--to` with another form of output."""
    if to is not None and form != "prometheus":
        raise UsageError("--to goes with --output prometheus; redirect other forms with > FILE")


# truncate, fetch
PartitionPath = Annotated[
    str, typer.Argument(metavar="PARTITION", help="A partition directory, or a log dir with --topic and --partition.")
]

# spark
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Spark master: local[*], spark://…, yarn, k8s://…, sc://…; default: the environment's or local[*].",
    ),
]
SparkConf = Annotated[
    list[str] | None, typer.Option("--spark-conf", metavar="NAME=VALUE", help="A Spark setting (repeatable).")
]
Ship = Annotated[
    str,
    typer.Option(
        metavar="archive|preinstalled|FILE",
        help="How executors get klog: packed by this command, already installed, or from a venv-pack archive.",
    ),
]

# search, export, spark compact
ISOLATIONS: tuple[Level, ...] = ("read_uncommitted", "read_committed")
FILE_FORMATS: tuple[Format, ...] = ("jsonl", "parquet")
REPLICAS = ("longest", "leader-epoch", "all")
OutputPath = Annotated[str, typer.Option("--to", metavar="DIR", help="Directory to write to; new or empty.")]
FileSize = Annotated[str, typer.Option(metavar="SIZE", help="Start a new file when one is larger than SIZE.")]
Replicas = Annotated[
    str, typer.Option(metavar="|".join(REPLICAS), help="The replica to read if several log dirs have a partition.")
]

# replicas, metadata
Disks = Annotated[
    list[str],
    typer.Argument(metavar="DISK...", help="Brokers' log dirs; N=DIR: DIR belongs to node N."),
]

# search, export, stats, serve, spark, replicas
Clusters = Annotated[
    list[str] | None, typer.Option("--cluster", metavar="ID", help="Only log dirs of this cluster (repeatable).")
]
TopicIds = Annotated[
    list[str] | None, typer.Option("--topic-id", metavar="ID", help="Only topics with this id (repeatable).")
]
ByName = Annotated[
    bool,
    typer.Option(
        "--by-name",
        help="Treat directories with the same name as copies of one partition if they have no topic or cluster id.",
    ),
]


def identity_choice(
    clusters: Sequence[str] | None, topic_ids: Sequence[str] | None, by_name: bool = False
) -> IdentityChoice:
    """Return the choice of `--cluster`, `--topic-id` and `--by-name`."""
    from klog.data_dir.partition_identity import IdentityChoice

    return IdentityChoice(tuple(clusters or ()), tuple(topic_ids or ()), by_name)


def selected_replicas(
    paths: Sequence[str] | None,
    topics: Sequence[str] | None,
    numbers: Sequence[PartitionChoice] | None,
    replicas: str,
    choice: IdentityChoice,
) -> list[Partition]:
    """Return the partitions to read, and print those that *choice* leaves out.  Raises UsageError, IdentityError."""
    from klog.partition.start.replica_choice import select_replicas

    from klog_cli import output

    rule = known("--replicas", replicas, REPLICAS)
    return select_replicas(paths or (), topics or (), numbers or (), rule, choice, output.note)


def batch_bytes(text: str) -> int:
    """Return the largest batch to read: a batch's size is an int32 in every format.  Raises UsageError."""
    from klog_cli.units import parse_size

    return min(parse_size(text), 2**31 - 1)
