"""Options that several commands share, declared for Typer.  Others stand in the module of their command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from klog.errors import UsageError

if TYPE_CHECKING:
    from klog.serve.options import End

T = TypeVar("T")


def known_form(form: str, known: Sequence[str]) -> None:
    """Raise UsageError for an `--output` that is none of *known*, with near misses."""
    if form not in known:
        from klog.data_dir.log_dir import near_misses

        raise UsageError(f"--output {form}: expected one of {', '.join(known)}{near_misses(form, known)}")


def known(option: str, given: str, choices: Sequence[T]) -> T:
    """Return the one of *choices* that is *given*.  Raises UsageError where none is, with near misses."""
    for one in choices:
        if one == given:
            return one
    from klog.data_dir.log_dir import near_misses

    names = [str(one) for one in choices]
    raise UsageError(f"{option} {given}: expected one of {', '.join(names)}{near_misses(given, names)}")


def spark_settings(given: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of `--conf`.  Raises UsageError for one without a value."""
    for setting in given or ():
        if not setting.partition("=")[0] or "=" not in setting:
            raise UsageError(f"--conf {setting}: expected a name and a value, such as spark.executor.memory=2g")
    return {name: value for name, _, value in (setting.partition("=") for setting in given or ())}


Paths = Annotated[list[str] | None, typer.Argument(metavar="PATH...", help="Files, partition directories, log dirs.")]
Topics = Annotated[list[str] | None, typer.Option(help="Only these topics of a log dir (a name or a glob).")]
Partitions = Annotated[list[int] | None, typer.Option(help="Only these partition numbers of a log dir.")]
FromOffset = Annotated[int | None, typer.Option(help="From this offset on.")]
ToOffset = Annotated[int | None, typer.Option(help="Up to, not including, this offset.")]
FromTime = Annotated[str | None, typer.Option(metavar="TIME", help="From this time on (epoch ms, ISO 8601, '2h ago').")]
ToTime = Annotated[str | None, typer.Option(metavar="TIME", help="Up to, not including, this time.")]
Key = Annotated[
    list[str] | None, typer.Option(metavar="BYTES", help="Only records with this key; text, hex:… or base64:….")
]
KeysFrom = Annotated[
    str | None, typer.Option(metavar="FILE", help="Only records with one of the keys in FILE, one a line.")
]
Isolation = Annotated[
    str, typer.Option(metavar="read_uncommitted|read_committed", help="read_committed: as such a consumer sees it.")
]
Values = Annotated[str, typer.Option(metavar="text|base64|hex|redacted|none", help="How to show values (jsonl, csv).")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Threads; default: cores.")]
MaxBatchBytes = Annotated[str, typer.Option(metavar="SIZE", help="Largest batch to read into memory.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No notes, no bar.")]

# fetch, serve
FETCH_ENDS: tuple[End, ...] = ("log", "checkpoint")
FetchEnd = Annotated[
    str,
    typer.Option("--end", metavar="|".join(FETCH_ENDS), help="Up to where: the log's end, or the high watermark."),
]

# verify, spark verify
VERIFY_OUTPUTS = ("text", "json", "jsonl", "table")
VerifyOutput = Annotated[str, typer.Option("--output", metavar="|".join(VERIFY_OUTPUTS), help="How to show it.")]
Deep = Annotated[bool, typer.Option("--deep", help="Every record too, decompressed; snapshots against the log.")]

# apply, undo, plans
PLAN_OUTPUTS = ("text", "json")
PlanFile = Annotated[str, typer.Argument(metavar="PLAN", help="A plan's file, its backup directory or its id.")]
PlanOutput = Annotated[str, typer.Option("--output", metavar="|".join(PLAN_OUTPUTS), help="How to show it.")]
Apply = Annotated[bool, typer.Option("--apply", help="Do it; without, it is only shown.")]

# recover, truncate, compact
PlanTo = Annotated[str | None, typer.Option("--plan", metavar="FILE", help="Save the plan, for 'klog apply'.")]
BackupTo = Annotated[
    str | None, typer.Option("--backup", metavar="DIR", help="Where originals go; outside of log dirs.")
]
IndexInterval = Annotated[str | None, typer.Option(metavar="SIZE", help="index.interval.bytes; default: the topic's.")]
ProducerExpiration = Annotated[
    str, typer.Option(metavar="DURATION", help="producer.id.expiration.ms: producers idle for so long are forgotten.")
]
Now = Annotated[str | None, typer.Option(metavar="TIME", help="Take this for the time; default: the clock's.")]

# compact, spark compact
Policy = Annotated[
    str | None, typer.Option(metavar="compact", help="Compact topics that are not known to be compacted as well.")
]
MetadataDir = Annotated[
    str | None,
    typer.Option("--metadata", metavar="DIR", help="The log dir with the metadata log, where it is another."),
]
Everything = Annotated[
    bool,
    typer.Option(
        "--all", help="Once more from the log's start, whatever the dirty ratio and the cleaner's checkpoint say."
    ),
]
MinDirtyRatio = Annotated[
    str | None, typer.Option(metavar="RATIO", help="min.cleanable.dirty.ratio; default: the topic's.")
]
DeleteRetention = Annotated[
    str | None, typer.Option(metavar="DURATION", help="delete.retention.ms; default: the topic's.")
]
MinLag = Annotated[str | None, typer.Option(metavar="DURATION", help="min.compaction.lag.ms; default: the topic's.")]
SegmentSize = Annotated[str | None, typer.Option(metavar="SIZE", help="segment.bytes; default: the topic's.")]
IndexSize = Annotated[str | None, typer.Option(metavar="SIZE", help="segment.index.bytes; default: the topic's.")]
MaybeExpiration = Annotated[
    str | None, typer.Option(metavar="DURATION", help="producer.id.expiration.ms; default: the broker's.")
]
MapMemory = Annotated[
    str, typer.Option(metavar="SIZE", help="For the offset map of a partition; 24 bytes a key, and 10 %.")
]

# truncate, fetch
PartitionPath = Annotated[
    str, typer.Argument(metavar="PARTITION", help="A partition directory, or a log dir narrowed to one partition.")
]

# spark
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where to compute: local[*], spark://…, yarn, k8s://…, sc://…; default: the environment's, else local[*].",
    ),
]
SparkConf = Annotated[list[str] | None, typer.Option("--conf", metavar="K=V", help="A setting of Spark's.")]
Ship = Annotated[
    str,
    typer.Option(
        metavar="archive|preinstalled|FILE",
        help="How klog comes to executors: packed by itself, there already, or in an environment that venv-pack made.",
    ),
]


def batch_bytes(text: str) -> int:
    """Return the largest batch to read: no format has larger ones than an int says.  Raises UsageError."""
    from klog_cli.units import parse_size

    return min(parse_size(text), 2**31 - 1)
