"""The options of commands that read whole logs: --cache, --rate and --priority."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from klog.base.errors import UsageError
from typer.core import TyperOption

CACHES = ("drop", "keep")
PRIORITIES = ("normal", "low")
READERS = (
    *("verify.verify", "recover.recover", "describe.describe", "dump.dump", "records.records", "search.search"),
    *("stats.stats", "timeline.timeline", "groups.groups", "transactions.transactions", "report.report", "space.space"),
    *("compact.compact", "replicas.diff", "replicas.plan", "replicas.rescue", "adopt.adopt", "keys.check"),
    *("audit.headers", "audit.misrouted", "schemas.check", "export.export", "write.write", "follow.follow"),
    *("spark.verify", "spark.audit", "spark.stats", "spark.search", "spark.export", "spark.compact"),
)
"""The commands that read whole logs, as `module.function`."""
_SELDOM = ("records.records", "groups.groups", "space.space")
"""Those of them that usually read a little: what a running broker changes is not told for that."""
_PLACES = ("DISK", "DISK...")
"""The metavars of options that name log dirs to read; arguments do so as well."""


def reads_whole_logs(command: Any) -> bool:
    """Whether a command is among READERS."""
    return _name(command) in READERS


def _name(command: Any) -> str:
    return f"{command.callback.__module__.rpartition('.')[2]}.{command.callback.__name__}"


def declarations() -> list[TyperOption]:
    """Return the options."""
    return [
        TyperOption(
            param_decls=["--cache"], metavar="|".join(CACHES), default=None,
            help="drop: leave the page cache as it was; default: drop beside a running broker, else keep.",
        ),
        TyperOption(
            param_decls=["--rate"], metavar="SIZE", default=None,
            help="Read at most SIZE per second, for example 100MiB.",
        ),
        TyperOption(
            param_decls=["--priority"], metavar="|".join(PRIORITIES), default=None,
            help="low: idle I/O priority and nice value 10; default: low beside a running broker, else normal.",
        ),
    ]  # fmt: skip


def reading(command: Any, ctx: Any, added: Iterable[str]) -> AbstractContextManager[None]:
    """Return how logs are read while the command runs; takes the options that were *added* out of its parameters.

    Raises UsageError.
    """
    from klog.data_dir.read_options import ReadOptions
    from klog.data_dir.read_options import reading as run

    from klog_cli import options, output

    given = {name: ctx.params.pop(name) for name in added}
    cache, rate, priority = given["cache"], given.get("rate"), given["priority"]
    if cache is not None:
        options.known("--cache", cache, CACHES)
    if priority is not None:
        options.known("--priority", priority, PRIORITIES)
    settings = ReadOptions(cache, None if rate is None else _rate(rate), priority)
    note = (lambda _: None) if _name(command) in _SELDOM else output.note
    return run(list(_places(command, ctx)), settings, note)


def _rate(text: str) -> int:
    from klog_cli.units import parse_size

    rate = parse_size(text)
    if not rate:
        raise UsageError(f"--rate {text}: expected at least one byte a second")
    return rate


def _places(command: Any, ctx: Any) -> Iterator[str]:
    """Yield the log dirs, partitions and files that the command reads."""
    for parameter in command.params:
        if parameter.param_type_name == "argument" or parameter.metavar in _PLACES:
            given = ctx.params.get(parameter.name)
            yield from (one for one in ([given] if isinstance(given, str) else given or ()) if isinstance(one, str))
