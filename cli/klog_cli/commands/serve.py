"""`klog serve`: its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from klog.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_size, parse_time

if TYPE_CHECKING:
    from klog.fetch import Damaged
    from klog.serve.options import Missing as Absent
    from klog.serve.options import OpenTransactions as OpenTxns

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


def serve(
    paths: ServePaths = None,
    listen: Listen = "127.0.0.1:9092",
    advertise: Advertise = None,
    expose: Expose = False,
    topic: options.Topics = None,
    end: options.FetchEnd = "log",
    until: Until = None,
    open_transactions: OpenTransactions = "abort",
    damaged: ServeDamaged = "skip",
    missing: Missing = "empty",
    internal: Internal = False,
    connections: Connections = 256,
    send_buffer: SendBuffer = "256KiB",
    form: ServeOutput = "text",
    quiet: options.Quiet = False,
) -> int:
    """Let clients read from a disk as from a broker: a Kafka endpoint that writes nothing.

    Consumers, groups included, mirrors and Spark read it; producers are refused. It runs until ^C or SIGTERM.
    """
    from klog.serve.view import ServeOptions

    from klog_cli.views.serve import ListenAddress
    from klog_cli.views.serve import serve as run

    output.Quiet.on = quiet
    options.known_form(form, SERVE_OUTPUTS)
    if not paths:
        raise UsageError("what is to be served? Name a log dir, or several of one cluster")
    shown = ServeOptions(
        topics=tuple(topic or ()),
        end=options.known("--end", end, options.FETCH_ENDS),
        until_ms=None if until is None else parse_time(until, output.note),
        open_transactions=options.known("--open-transactions", open_transactions, OPEN_TRANSACTIONS),
        damaged=options.known("--damaged", damaged, SERVE_DAMAGED),
        missing=options.known("--missing", missing, MISSING),
        internal=internal,
    )
    return run(
        paths, shown, ListenAddress(listen, advertise, expose), connections, parse_size(send_buffer), form == "jsonl"
    )
