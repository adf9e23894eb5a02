"""The options of the commands, as Typer wants them declared; the command line's own tests hold them to the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from klog.errors import UsageError

if TYPE_CHECKING:
    from klog.fetch import Damaged
    from klog.jobs.output_files import Format
    from klog.serve.options import End
    from klog.serve.options import Missing as Absent
    from klog.serve.options import OpenTransactions as OpenTxns
    from klog.transactions.isolation import Isolation as Level

T = TypeVar("T")

DUMP_OUTPUTS = ("text", "jsonl", "csv", "parquet")
LOOKUP_OUTPUTS = ("text", "json", "jsonl")


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
Files = Annotated[str | None, typer.Option(help="Files, separated by commas, as for Kafka's tool.")]
Topics = Annotated[list[str] | None, typer.Option(help="Only these topics of a log dir (a name or a glob).")]
Partitions = Annotated[list[int] | None, typer.Option(help="Only these partition numbers of a log dir.")]
DumpOutput = Annotated[
    str, typer.Option("--output", metavar="|".join(DUMP_OUTPUTS), help="How to show it; text is Kafka's own.")
]
To = Annotated[str | None, typer.Option(metavar="FILE", help="Write there instead of stdout; whole or not at all.")]
DeepIteration = Annotated[bool, typer.Option("--deep-iteration", help="Records, not only batches (text).")]
PrintDataLog = Annotated[bool, typer.Option("--print-data-log", help="Records with keys and payloads (text).")]
SkipRecordMetadata = Annotated[
    bool, typer.Option("--skip-record-metadata", help="Record lines without metadata (text).")
]
VerifyIndexOnly = Annotated[
    bool, typer.Option("--verify-index-only", help="Check indexes against the log, do not list them.")
]
IndexSanityCheck = Annotated[bool, typer.Option("--index-sanity-check", help="Only the check that a broker makes.")]
MaxBytes = Annotated[str | None, typer.Option(metavar="SIZE", help="Look only at so many bytes of each log.")]
MaxMessageSize = Annotated[str, typer.Option(metavar="SIZE", help="How far to look behind an index entry.")]
OffsetsDecoder = Annotated[bool, typer.Option("--offsets-decoder", help="Decode __consumer_offsets.")]
TransactionLogDecoder = Annotated[bool, typer.Option("--transaction-log-decoder", help="Decode __transaction_state.")]
ClusterMetadataDecoder = Annotated[bool, typer.Option("--cluster-metadata-decoder", help="Decode __cluster_metadata.")]
RemoteLogMetadataDecoder = Annotated[
    bool, typer.Option("--remote-log-metadata-decoder", help="Decode __remote_log_metadata.")
]
ShareGroupStateDecoder = Annotated[
    bool, typer.Option("--share-group-state-decoder", help="Decode __share_group_state.")
]
WithIndexes = Annotated[bool, typer.Option("--with-indexes", help="Of a directory, its indexes and snapshots too.")]
As = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="log|index|timeindex|txnindex|snapshot", help="What a file is whose name does not tell."
    ),
]
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
Limit = Annotated[int | None, typer.Option(min=1, help="At most so many records (batches with --batches).")]
Isolation = Annotated[
    str, typer.Option(metavar="read_uncommitted|read_committed", help="read_committed: as such a consumer sees it.")
]
Tail = Annotated[bool, typer.Option("--tail", help="Only the newest batches of each partition.")]
NoControl = Annotated[bool, typer.Option("--no-control", help="Without control records.")]
Batches = Annotated[bool, typer.Option("--batches", help="A row a batch instead of a record.")]
Values = Annotated[str, typer.Option(metavar="text|base64|hex|redacted|none", help="How to show values (jsonl, csv).")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Threads; default: cores.")]
MaxBatchBytes = Annotated[str, typer.Option(metavar="SIZE", help="Largest batch to read into memory.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No notes, no bar.")]

# lookup
LookupPath = Annotated[
    str, typer.Argument(metavar="PARTITION", help="A partition directory, a .log in it, or a log dir narrowed to one.")
]
LookupOutput = Annotated[str, typer.Option("--output", metavar="|".join(LOOKUP_OUTPUTS), help="How to show it.")]
Offset = Annotated[int | None, typer.Option(help="Where is this offset?")]
Timestamp = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Which is the first record as late (epoch ms, ISO 8601, '2h ago')? With --batch, without a value: times.",
    ),
]
BatchFile = Annotated[
    str | None, typer.Option("--batch", metavar="FILE", help="Look up each number in FILE, one a line; -: stdin.")
]
PositionOnly = Annotated[bool, typer.Option("--position-only", help="Print just the position of the batch.")]

# fetch
FETCH_OUTPUTS = ("text", "json")
FETCH_ISOLATIONS = ("read_uncommitted", "read_committed", "log_end")
FETCH_ENDS: tuple[End, ...] = ("log", "checkpoint")
FetchOutput = Annotated[str, typer.Option("--output", metavar="|".join(FETCH_OUTPUTS), help="How to show it.")]
FetchOffset = Annotated[int | None, typer.Option("--offset", help="From which offset on.")]
FetchBytes = Annotated[
    str, typer.Option("--max-bytes", metavar="SIZE", help="At most so much; the first batch always.")
]
FetchMinBytes = Annotated[str, typer.Option("--min-bytes", metavar="SIZE", help="Say so when there is less.")]
FetchIsolation = Annotated[
    str,
    typer.Option(
        "--isolation", metavar="|".join(FETCH_ISOLATIONS), help="Who asks: a consumer of either kind, or a follower."
    ),
]
Partial = Annotated[bool, typer.Option("--partial", help="Cut the last batch at the limit, as a broker does.")]
FetchEnd = Annotated[
    str,
    typer.Option("--end", metavar="|".join(FETCH_ENDS), help="Up to where: the log's end, or the high watermark."),
]

# serve
SERVE_OUTPUTS = ("text", "jsonl")
OPEN_TRANSACTIONS: tuple[OpenTxns, ...] = ("abort", "hide")
SERVE_DAMAGED: tuple[Damaged, ...] = ("skip", "stop", "serve")
MISSING: tuple[Absent, ...] = ("empty", "offline", "omit")
ServePaths = Annotated[
    list[str] | None, typer.Argument(metavar="PATH...", help="Log dirs of one cluster, or partition directories.")
]
Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")]
Advertise = Annotated[
    str | None, typer.Option(metavar="HOST[:PORT]", help="Where clients are told to come; default: where it listens.")
]
Expose = Annotated[
    bool,
    typer.Option("--expose", help="Listen beyond this machine: whoever reaches the port can read everything."),
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="As it was then: nothing from the first record on that is as late.")
]
OpenTransactions = Annotated[
    str,
    typer.Option(
        metavar="|".join(OPEN_TRANSACTIONS),
        help="Transactions without an end count as aborted, or hide what follows from read_committed clients.",
    ),
]
ServeDamaged = Annotated[
    str,
    typer.Option(
        "--damaged",
        metavar="|".join(SERVE_DAMAGED),
        help="Damaged batches are left out, end their partition, or are handed out as they are.",
    ),
]
Missing = Annotated[
    str,
    typer.Option(
        metavar="|".join(MISSING), help="Partitions that are on other disks are shown as empty, as offline, or not."
    ),
]
Internal = Annotated[bool, typer.Option("--internal", help="Serve __consumer_offsets and __transaction_state as well.")]
Connections = Annotated[int, typer.Option(min=1, help="At most so many clients at once.")]
SendBuffer = Annotated[
    str, typer.Option(metavar="SIZE", help="A connection's send buffer; 0: the kernel's, for long lines.")
]
ServeOutput = Annotated[
    str, typer.Option("--output", metavar="|".join(SERVE_OUTPUTS), help="jsonl: a line on stdout for each request.")
]

# verify
VERIFY_OUTPUTS = ("text", "json", "jsonl", "table")
VerifyOutput = Annotated[str, typer.Option("--output", metavar="|".join(VERIFY_OUTPUTS), help="How to show it.")]
Deep = Annotated[bool, typer.Option("--deep", help="Every record too, decompressed; snapshots against the log.")]
Sample = Annotated[str | None, typer.Option(metavar="1/N", help="Only every Nth segment of each partition.")]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Only segments changed since then ('2h ago', '2h').")]

# apply, undo, plans
PLAN_OUTPUTS = ("text", "json")
PLANS_OUTPUTS = ("text", "table", "json")
PlanFile = Annotated[str, typer.Argument(metavar="PLAN", help="A plan's file, its backup directory or its id.")]
LogDirPath = Annotated[str, typer.Argument(metavar="DIR", help="A log dir, or a partition directory in it.")]
PlanOutput = Annotated[str, typer.Option("--output", metavar="|".join(PLAN_OUTPUTS), help="How to show it.")]
PlansOutput = Annotated[str, typer.Option("--output", metavar="|".join(PLANS_OUTPUTS), help="How to show it.")]
Apply = Annotated[bool, typer.Option("--apply", help="Do it; without, it is only shown.")]
BackupsIn = Annotated[str | None, typer.Option("--backup", metavar="DIR", help="Where the backup is to be looked for.")]
UndoBackupTo = Annotated[
    str | None,
    typer.Option("--backup", metavar="DIR", help="Where its own originals go; an id is looked for there, too."),
]

# recover, truncate, compact
PlanTo = Annotated[str | None, typer.Option("--plan", metavar="FILE", help="Save the plan, for 'klog apply'.")]
BackupTo = Annotated[
    str | None, typer.Option("--backup", metavar="DIR", help="Where originals go; outside of log dirs.")
]
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
IndexInterval = Annotated[str | None, typer.Option(metavar="SIZE", help="index.interval.bytes; default: the topic's.")]
SegmentIndexBytes = Annotated[
    str | None, typer.Option(metavar="SIZE", help="segment.index.bytes; default: the topic's.")
]
ProducerExpiration = Annotated[
    str, typer.Option(metavar="DURATION", help="producer.id.expiration.ms: producers idle for so long are forgotten.")
]
Now = Annotated[str | None, typer.Option(metavar="TIME", help="Take this for the time; default: the clock's.")]

# compact
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
LikeCleaner = Annotated[
    bool, typer.Option("--like-broker", help="A broker's digests, formats and indexes, byte for byte.")
]
Rules = Annotated[
    str,
    typer.Option(
        metavar="4.3|3.9|2.8",
        help="Whose rules: 4.3 keeps an empty last batch, 3.9 (from 3.1 on) not; 2.8 (up to 3.0) has tombstones and"
        " markers go by the age of segments.",
    ),
]
CopyTo = Annotated[
    str | None, typer.Option("--to", metavar="DIR", help="Write compacted copies there; the log dir stays as it is.")
]
Estimated = Annotated[bool, typer.Option("--estimate", help="Only reckon what would be gained.")]
Explain = Annotated[bool, typer.Option("--explain", help="For each partition, why it is compacted or is not.")]
CompactJobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Partitions at a time; default: cores.")]

# truncate
PartitionPath = Annotated[
    str, typer.Argument(metavar="PARTITION", help="A partition directory, or a log dir narrowed to one partition.")
]
CutTo = Annotated[int | None, typer.Option("--to-offset", help="The first offset to drop.")]
CutToTimestamp = Annotated[
    str | None, typer.Option("--to-timestamp", metavar="TIME", help="Drop everything from the first record as late on.")
]
CutToLogStart = Annotated[bool, typer.Option("--to-log-start", help="Drop everything.")]

# spark
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where to compute: local[*], spark://…, yarn, k8s://…, sc://…; default: the environment's, else local[*].",
    ),
]
SparkConf = Annotated[list[str] | None, typer.Option("--conf", metavar="K=V", help="A setting of Spark's.")]
STATS_OUTPUTS = ("text", "table", "json", "jsonl")
StatsOutput = Annotated[str, typer.Option("--output", metavar="|".join(STATS_OUTPUTS), help="How to show it.")]
Ship = Annotated[
    str,
    typer.Option(
        metavar="archive|preinstalled|FILE",
        help="How klog comes to executors: packed by itself, there already, or in an environment that venv-pack made.",
    ),
]
ISOLATIONS: tuple[Level, ...] = ("read_uncommitted", "read_committed")
FILE_FORMATS: tuple[Format, ...] = ("parquet", "jsonl")
REPLICAS = ("longest", "leader-epoch", "all")
ExportFormat = Annotated[str, typer.Option("--format", metavar="|".join(FILE_FORMATS), help="What files to write.")]
CompactFormat = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="|".join((*FILE_FORMATS, "log")),
        help="A table of the latest values, or (log) compacted partitions.",
    ),
]
OutputPath = Annotated[
    str | None, typer.Option("--output-path", metavar="DIR", help="Where to write: a new or an empty directory.")
]
FileSize = Annotated[str, typer.Option(metavar="SIZE", help="A file ends when it is larger.")]
Replicas = Annotated[
    str, typer.Option(metavar="|".join(REPLICAS), help="Which copy counts where a partition is there several times.")
]
Header = Annotated[
    str | None,
    typer.Option(metavar="NAME[=VALUE]", help="Only records with this header; a value may be hex:… or base64:…."),
]
Regex = Annotated[
    str | None, typer.Option(metavar="REGEX", help="Only records in whose value, as bytes, this is found.")
]
RecordLimit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many records.")]


def batch_bytes(text: str) -> int:
    """Return the largest batch to read: no format has larger ones than an int says.  Raises UsageError."""
    from klog_cli.units import parse_size

    return min(parse_size(text), 2**31 - 1)
