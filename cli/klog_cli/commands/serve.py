"""`klog serve`: its options."""

from __future__ import annotations

from klog.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_size, parse_time


def serve(
    paths: options.ServePaths = None,
    listen: options.Listen = "127.0.0.1:9092",
    advertise: options.Advertise = None,
    expose: options.Expose = False,
    topic: options.Topics = None,
    end: options.FetchEnd = "log",
    until: options.Until = None,
    open_transactions: options.OpenTransactions = "abort",
    damaged: options.ServeDamaged = "skip",
    missing: options.Missing = "empty",
    internal: options.Internal = False,
    connections: options.Connections = 256,
    send_buffer: options.SendBuffer = "256KiB",
    form: options.ServeOutput = "text",
    quiet: options.Quiet = False,
) -> int:
    """Let clients read from a disk as from a broker: a Kafka endpoint that writes nothing.

    Consumers, groups included, mirrors and Spark read it; producers are refused. It runs until ^C or SIGTERM.
    """
    from klog.serve.view import ServeOptions

    from klog_cli.views.serve import ListenAddress
    from klog_cli.views.serve import serve as run

    output.Quiet.on = quiet
    options.known_form(form, options.SERVE_OUTPUTS)
    if not paths:
        raise UsageError("what is to be served? Name a log dir, or several of one cluster")
    shown = ServeOptions(
        topics=tuple(topic or ()),
        end=options.known("--end", end, options.FETCH_ENDS),
        until_ms=None if until is None else parse_time(until, output.note),
        open_transactions=options.known("--open-transactions", open_transactions, options.OPEN_TRANSACTIONS),
        damaged=options.known("--damaged", damaged, options.SERVE_DAMAGED),
        missing=options.known("--missing", missing, options.MISSING),
        internal=internal,
    )
    return run(
        paths, shown, ListenAddress(listen, advertise, expose), connections, parse_size(send_buffer), form == "jsonl"
    )
