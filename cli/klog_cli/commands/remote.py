"""`klog remote VERB`: the options of the verbs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from klog_cli import options
from klog_cli.command_class import CommandGroup
from klog_cli.commands.remote_attach import attach
from klog_cli.remote_options import Remote, RemoteKeys, RemoteLayout

if TYPE_CHECKING:
    from klog.commands.remote import RemoteQuery
    from klog.data_dir.selection import PartitionChoice
    from klog.tier.tier import Tier

remote = typer.Typer(
    help="Show remote storage, and attach it to a cluster.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=CommandGroup,
)

_FROM_BUCKET = 8
LogDirs = Annotated[
    list[str] | None,
    typer.Argument(metavar="LOG_DIR...", help="Log dirs of one or several brokers of one cluster."),
]
Node = Annotated[
    int | None,
    typer.Option("--node", metavar="N", help="Use the local logs of this node; default: those that reach farthest."),
]
AtTime = Annotated[
    str | None,
    typer.Option("--at-time", metavar="TIME", help="Only records of __remote_log_metadata up to this time."),
]


def _time(text: str | None) -> int | None:
    from klog_cli import output
    from klog_cli.units import parse_time

    return None if text is None else parse_time(text, output.note)


def _at_once(jobs: int | None, tier: str | None) -> int:
    """Return how many segments are read at once: of a bucket more than there are cores, for each waits for it."""
    from klog.tier.tier import is_url

    return jobs or (_FROM_BUCKET if tier is not None and is_url(tier) else os.cpu_count() or 1)


def _query(
    log_dirs: Sequence[str] | None,
    tier: Tier | None,
    topics: Sequence[str] | None,
    numbers: Sequence[PartitionChoice] | None,
    clusters: Sequence[str] | None,
    topic_ids: Sequence[str] | None,
    node: int | None = None,
    at: str | None = None,
) -> RemoteQuery:
    """Return the question that options ask."""
    from klog.commands.remote import RemoteQuery

    chosen = tuple(topics or ()), tuple(numbers or ())
    return RemoteQuery(
        tuple(log_dirs or ()), tier, *chosen, tuple(clusters or ()), tuple(topic_ids or ()), node, _time(at)
    )


LS_OUTPUTS = ("text", "json", "jsonl", "csv")


@remote.command("ls")
def ls(
    log_dirs: LogDirs = None,
    tier: Remote = None,
    layout: RemoteLayout = None,
    keys: RemoteKeys = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    node: Node = None,
    at: AtTime = None,
    segments: Annotated[bool, typer.Option("--segments", help="A row for each segment.")] = False,
    form: Annotated[str, options.output_form(LS_OUTPUTS)] = "text",
) -> int:
    """List partitions in remote storage: which offsets are there, and whether the objects are.

    With log dirs alone klog shows what __remote_log_metadata and the local logs say, with a TIER alone what its objects
    show, with both whether they agree. Nothing is written to either. Exit code 4: objects that are needed are missing
    or have another size, no segment has some of the offsets, or there are objects without an entry.
    """
    from klog_cli.views.remote.ls import ls as run
    from klog_cli.views.remote.tier_option import tier_of

    options.known_form(form, LS_OUTPUTS)
    place = tier_of(tier, layout, keys or ())
    query = _query(log_dirs, place, topic, partition, cluster, topic_id, node, at)
    return run(query, segments, form)


ORPHANS_OUTPUTS = ("text", "json", "jsonl", "csv", "keys")


@remote.command("orphans")
def orphans(
    log_dirs: LogDirs = None,
    tier: Remote = None,
    layout: RemoteLayout = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    older: Annotated[
        str, typer.Option("--older-than", metavar="DURATION", help="Only objects that were stored before: 1h, 7d.")
    ] = "1h",
    now: options.Now = None,
    form: Annotated[str, options.output_form(ORPHANS_OUTPUTS)] = "text",
) -> int:
    """List objects in remote storage that nothing owns.

    Brokers never delete objects of a segment without an entry in __remote_log_metadata. The log dirs must have all of
    that topic, and the metadata log. klog deletes nothing: --output keys prints one object key a line, for other tools.
    Exit code 4: there are some.
    """
    from klog_cli import output
    from klog_cli.units import parse_duration, parse_now
    from klog_cli.views.remote.orphans import orphans as run
    from klog_cli.views.remote.tier_option import tier_of

    options.known_form(form, ORPHANS_OUTPUTS)
    query = _query(log_dirs, tier_of(tier, layout, ()), topic, partition, cluster, topic_id)
    return run(query, parse_now(now, output.note) - parse_duration(older), form)


@remote.command("verify")
def verify(
    log_dirs: LogDirs = None,
    tier: Remote = None,
    layout: RemoteLayout = None,
    keys: RemoteKeys = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    node: Node = None,
    at: AtTime = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only names and sizes: nothing is read.")] = False,
    deep: options.Deep = False,
    jobs: options.Jobs = None,
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    everything: options.AllFindings = False,
    form: Annotated[str, options.output_form(LS_OUTPUTS)] = "text",
) -> int:
    """Check remote storage against its metadata and the local log.

    Every object of the segments that a broker reads is read: batches with their checksums, offsets and epochs, indexes,
    snapshots and epoch checkpoints. --deep also decodes every record, and compares the bytes with the local log where
    both have a segment. Nothing is changed. Exit code 4: there is damage, or a warning.
    """
    from klog.base.errors import UsageError
    from klog.partition.verify.segment_pass import SurveyOptions

    from klog_cli.views.remote.tier_option import tier_of
    from klog_cli.views.remote.verify import verify as run

    options.known_form(form, LS_OUTPUTS)
    if quick and deep:
        raise UsageError("--quick and --deep: one of them")
    place = tier_of(tier, layout, keys or (), in_order=True)
    query = _query(log_dirs, place, topic, partition, cluster, topic_id, node, at)
    survey = SurveyOptions(deep, _at_once(jobs, tier), options.batch_bytes(max_batch_bytes))
    return run(query, None if quick else survey, form, everything)


FETCH_OUTPUTS = ("text", "json", "jsonl")


@remote.command("fetch")
def fetch(
    to: Annotated[
        str, typer.Option("--to", metavar="DIR", help="Directory to fill: new, empty, or an unfinished fetch.")
    ],
    log_dirs: LogDirs = None,
    tier: Remote = None,
    layout: RemoteLayout = None,
    keys: RemoteKeys = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    node: Node = None,
    at: AtTime = None,
    from_offset: options.FromOffset = None,
    to_offset: options.ToOffset = None,
    from_time: options.FromTime = None,
    to_time: options.ToTime = None,
    segment: Annotated[
        list[str] | None,
        typer.Option(
            "--segment",
            metavar="ID",
            help="This segment alone, into DIR/ID (repeatable); also one that serves no reader.",
        ),
    ] = None,
    remote_only: Annotated[bool, typer.Option("--remote-only", help="Without the local log.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Damage is a failure: keep nothing then.")] = False,
    deep: options.Deep = False,
    jobs: options.Jobs = None,
    now: options.Now = None,
    form: Annotated[str, options.output_form(FETCH_OUTPUTS)] = "text",
) -> int:
    """Copy partitions out of remote storage into one local log dir.

    The segments that a broker would serve, byte for byte, with their indexes and snapshots, and behind them the local
    log. A range takes complete segments. Indexes that are missing or wrong are rebuilt. A damaged segment is left out
    and named, everything else is fetched. If the command is interrupted, run it again: it continues. Nothing is written
    to TIER or to LOG_DIR. Exit code 4: some offsets are missing.
    """
    from klog.commands.remote.fetch_options import FetchOptions

    from klog_cli import output
    from klog_cli.units import parse_now
    from klog_cli.views.remote.fetch import fetch as run
    from klog_cli.views.remote.tier_option import tier_of

    options.known_form(form, FETCH_OUTPUTS)
    place = tier_of(tier, layout, keys or (), in_order=True)
    query = _query(log_dirs, place, topic, partition, cluster, topic_id, node, at)
    span = from_offset, to_offset, _time(from_time), _time(to_time)
    amount = remote_only, deep, strict
    found = FetchOptions(to, *span, tuple(segment or ()), *amount, _at_once(jobs, tier), parse_now(now, output.note))
    return run(query, found, form)


remote.command("attach")(attach)
