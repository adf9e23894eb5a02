"""`klog follow`: its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options
from klog_cli.units import parse_duration, parse_size

if TYPE_CHECKING:
    from klog.commands.follow.follow_options import OnCleaned, OnDivergence

FOLLOW_OUTPUTS = ("text", "json", "jsonl")
ON_DIVERGENCE: tuple[OnDivergence, ...] = ("cut", "stop")
ON_CLEANED: tuple[OnCleaned, ...] = ("say", "anew")
_DURATION_UNITS = ("", "ms", "s", "m", "h", "d", "w")
_INT_MAX = 2**31 - 1

Bootstrap = Annotated[str, typer.Argument(metavar="BOOTSTRAP", help="Brokers as HOST:PORT, with commas between them.")]
CopyTo = Annotated[
    str, typer.Option("--to", metavar="DIR", help="The copy: a new directory, or that of an earlier run.")
]
FollowInternal = Annotated[bool, typer.Option("--internal", help="Also copy internal topics.")]
UntilCaughtUp = Annotated[
    bool,
    typer.Option("--until-caught-up", help="End when each partition has reached its high watermark (the default)."),
]
Continuous = Annotated[bool, typer.Option("--continuous", help="Run until ^C or SIGTERM.")]
Rate = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Limit the transfer rate, for example 20MiB (per second).")
]
MaxWait = Annotated[str, typer.Option(metavar="DURATION", help="Time that a leader may wait for more data.")]
MinBytes = Annotated[str, typer.Option(metavar="SIZE", help="Bytes that a leader waits for.")]
FetchBytes = Annotated[str, typer.Option(metavar="SIZE", help="Maximum size of one answer, of all leaders together.")]
PartitionBytes = Annotated[
    str, typer.Option(metavar="SIZE", help="Maximum size for one partition; a larger batch is still sent.")
]
Flush = Annotated[
    str,
    typer.Option(metavar="DURATION|SIZE", help="fsync this often; a power cut can lose up to this much."),
]
CopyConfig = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting by which segments roll (repeatable).")
]
Prune = Annotated[
    bool, typer.Option("--prune", help="Remove segments that are completely below the leader's log start.")
]
Divergence = Annotated[
    str,
    typer.Option(
        "--on-divergence",
        metavar="|".join(ON_DIVERGENCE),
        help="If copy and cluster have diverged: truncate the copy, with a backup, or leave that partition.",
    ),
]
Cleaned = Annotated[
    str,
    typer.Option(
        "--on-cleaned",
        metavar="|".join(ON_CLEANED),
        help="If deletions were compacted away before they were copied: report it, or copy the partition again.",
    ),
]
SecurityConfig = Annotated[
    str | None, typer.Option("--security-config", metavar="FILE", help="Java client properties: TLS, SASL, client.id.")
]
Timeout = Annotated[
    str,
    typer.Option(
        metavar="DURATION", help="Give up a partition after this time without a leader (not with --continuous)."
    ),
]
Trace = Annotated[bool, typer.Option("--trace", help="Print a line for each event of the protocol.")]
FollowOutput = Annotated[
    str,
    typer.Option(
        "-o", "--output", metavar="|".join(FOLLOW_OUTPUTS), help="Form of the result; jsonl: a partition a line."
    ),
]


def follow(
    bootstrap: Bootstrap,
    to: CopyTo,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    internal: FollowInternal = False,
    until_caught_up: UntilCaughtUp = False,
    continuous: Continuous = False,
    rate: Rate = None,
    max_wait: MaxWait = "500ms",
    min_bytes: MinBytes = "1",
    fetch_bytes: FetchBytes = "10MiB",
    partition_bytes: PartitionBytes = "1MiB",
    flush: Flush = "1s",
    config: CopyConfig = None,
    prune: Prune = False,
    on_divergence: Divergence = "cut",
    on_cleaned: Cleaned = "say",
    security_config: SecurityConfig = None,
    timeout: Timeout = "60s",
    trace: Trace = False,
    form: FollowOutput = "text",
) -> int:
    """Copy partitions of a live cluster as they are, and keep up.

    Each run continues where the last one ended. If copy and cluster have diverged, the copy is truncated; a backup
    keeps the removed data.
    """
    from klog.cluster.metadata.topic_config import parse_settings
    from klog.commands.follow.follow_options import COPY_SETTINGS, FollowOptions

    from klog_cli.views.follow import follow as run

    options.known_form(form, FOLLOW_OUTPUTS)
    if until_caught_up and continuous:
        raise UsageError("--until-caught-up and --continuous: one of them")
    flush_ms, flush_bytes = _flush(flush)
    wishes = FollowOptions(
        topics=tuple(topic or ()),
        numbers=tuple(partition or ()),
        internal=internal,
        continuous=continuous,
        rate=None if rate is None else _positive("--rate", parse_size(rate)),
        max_wait_ms=min(parse_duration(max_wait), _INT_MAX),
        min_bytes=min(parse_size(min_bytes), _INT_MAX),
        fetch_bytes=_positive("--fetch-bytes", parse_size(fetch_bytes)),
        partition_bytes=_positive("--partition-bytes", parse_size(partition_bytes)),
        flush_ms=flush_ms,
        flush_bytes=flush_bytes,
        timeout_ms=parse_duration(timeout),
        prune=prune,
        on_divergence=options.known("--on-divergence", on_divergence, ON_DIVERGENCE),
        on_cleaned=options.known("--on-cleaned", on_cleaned, ON_CLEANED),
        trace=trace,
        config=parse_settings(config or (), COPY_SETTINGS),
    )
    return run(bootstrap, to, wishes, security_config, form)


def _positive(option: str, size: int) -> int:
    """Return a size as a request has it.  Raises UsageError for 0."""
    if not size:
        raise UsageError(f"{option} 0: nothing would ever come")
    return min(size, _INT_MAX)


def _flush(text: str) -> tuple[int | None, int | None]:
    """Return ms or bytes: `5m` are minutes, `5M` and `5MiB` bytes.  Raises UsageError."""
    if text.strip().lstrip("0123456789.").strip() in _DURATION_UNITS:
        return parse_duration(text), None
    return None, parse_size(text)
