"""`klog serve`: its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.remote_options import Remote, RemoteKeys, RemoteLayout, TierArguments, over_tiers
from klog_cli.units import parse_size, parse_time

if TYPE_CHECKING:
    from klog.commands.serve.serve_options import Missing as Absent
    from klog.commands.serve.serve_options import OpenTransactions as OpenTxns
    from klog.partition.fetch import Damaged

SERVE_OUTPUTS = ("text", "jsonl")
OPEN_TRANSACTIONS: tuple[OpenTxns, ...] = ("abort", "hide")
SERVE_DAMAGED: tuple[Damaged, ...] = ("skip", "stop", "serve")
MISSING: tuple[Absent, ...] = ("empty", "offline", "omit")
ServePaths = Annotated[
    list[str] | None, typer.Argument(metavar="PATH...", help="Log dirs of one cluster, or partition directories.")
]
Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 picks a free port.")]
Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="HOST[:PORT]", help="Address that klog gives to clients to connect to; default: that of --listen."
    ),
]
Expose = Annotated[
    bool,
    typer.Option(
        "--expose",
        help="Allow --listen on other interfaces than loopback: anyone who can connect can read everything.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--at-time",
        metavar="TIME",
        help="Serve the data as of TIME: hide everything from the first record with that timestamp or a later one.",
    ),
]
OpenTransactions = Annotated[
    str,
    typer.Option(
        metavar="|".join(OPEN_TRANSACTIONS),
        help="Treat open transactions as aborted, or hide all later records from read_committed clients.",
    ),
]
ServeDamaged = Annotated[
    str,
    typer.Option(
        "--damaged",
        metavar="|".join(SERVE_DAMAGED),
        help="Skip damaged batches, end the partition before the first one, or send them as they are.",
    ),
]
Missing = Annotated[
    str,
    typer.Option(
        metavar="|".join(MISSING), help="List partitions that are on other disks as empty, as offline, or not at all."
    ),
]
Internal = Annotated[bool, typer.Option("--internal", help="Also serve __consumer_offsets and __transaction_state.")]
Connections = Annotated[int, typer.Option(metavar="N", min=1, help="Maximum number of client connections.")]
SendBuffer = Annotated[
    str,
    typer.Option(
        metavar="SIZE", help="Send buffer of a connection; 0 leaves it to the kernel (for links with high latency)."
    ),
]
CacheSize = Annotated[
    str,
    typer.Option(
        "--cache-size",
        metavar="SIZE",
        help="Memory for parts of remote logs that clients read again (buckets, and logs that are compressed there).",
    ),
]
ServeOutput = Annotated[
    str,
    typer.Option(
        "-o", "--output", metavar="|".join(SERVE_OUTPUTS), help="jsonl prints one line per request on stdout."
    ),
]


def serve(
    paths: ServePaths = None,
    listen: Listen = "127.0.0.1:9092",
    advertise: Advertise = None,
    expose: Expose = False,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    end: options.FetchEnd = "log",
    until: Until = None,
    open_transactions: OpenTransactions = "abort",
    damaged: ServeDamaged = "skip",
    missing: Missing = "empty",
    internal: Internal = False,
    connections: Connections = 256,
    send_buffer: SendBuffer = "256KiB",
    form: ServeOutput = "text",
    remote: Remote = None,
    remote_layout: RemoteLayout = None,
    remote_keys: RemoteKeys = None,
    cache_size: CacheSize = "256MiB",
) -> int:
    """Serve the data of a disk to Kafka clients, read-only.

    Consumers, consumer groups, MirrorMaker and Spark can read; producers are refused. klog runs until ^C or
    SIGTERM.
    """
    from klog.commands.serve.view import ServeOptions

    from klog_cli.views.serve import ListenAddress
    from klog_cli.views.serve import serve as run

    options.known_form(form, SERVE_OUTPUTS)
    if not paths and remote is None:
        raise UsageError("nothing to serve: name a log dir, or several of one cluster")
    shown = ServeOptions(
        topics=tuple(topic or ()),
        numbers=tuple(partition or ()),
        end=options.known("--end", end, options.FETCH_ENDS),
        until_ms=None if until is None else parse_time(until, output.note),
        open_transactions=options.known("--open-transactions", open_transactions, OPEN_TRANSACTIONS),
        damaged=options.known("--damaged", damaged, SERVE_DAMAGED),
        missing=options.known("--missing", missing, MISSING),
        internal=internal,
        identity=options.identity_choice(cluster, topic_id, by_name),
    )
    place, buffer_bytes = ListenAddress(listen, advertise, expose), parse_size(send_buffer)
    given = TierArguments(remote, remote_layout, remote_keys, None)
    with over_tiers(paths or [], topic, partition, given, parse_size(cache_size), serves=True) as tiers:
        return run(tiers.paths, shown, place, connections, buffer_bytes, form == "jsonl", tiers.logs)
