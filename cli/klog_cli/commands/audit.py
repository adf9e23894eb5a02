"""`klog audit` and `klog audit misrouted`: their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.command_class import CommandGroup
from klog_cli.units import parse_now, parse_size

if TYPE_CHECKING:
    from klog.commands.audit.audit import AuditOptions
    from klog.commands.audit.audited_partitions import AuditQuery


class _PathsOrVerb(CommandGroup):
    """A word that is not a subcommand is a PATH or an option of `headers`: `klog audit PATH…`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the verb in front that the user need not write."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["headers", *args]
        return super().parse_args(ctx, args)


audit = typer.Typer(
    cls=_PathsOrVerb,
    help="Check batch headers: misplaced batches, gaps, waste.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

MISROUTED_OUTPUTS = ("text", "json", "jsonl", "csv")
CONFIDENCES = ("confirmed", "likely", "possible")

Check = Annotated[
    list[str] | None, typer.Option("--check", metavar="ID", help="Only this check (an id; repeatable); default: all.")
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="DISK", help="Another disk of the cluster, read only to find duplicates (repeatable)."
    ),
]
Deep = Annotated[bool, typer.Option("--deep", help="Also read records, to find batches without a duplicate.")]
Confidence = Annotated[
    str, typer.Option("--min-confidence", metavar="|".join(CONFIDENCES), help="Leave out rows of weaker confidence.")
]
Memory = Annotated[str, typer.Option(metavar="SIZE", help="Memory for the table of batches; the rest goes to $TMPDIR.")]
Internal = Annotated[bool, typer.Option("--internal", help="Also the topics that brokers write themselves (__…).")]
MisroutedOutput = Annotated[str, options.output_form(MISROUTED_OUTPUTS)]


@audit.callback()
def _audit() -> None:
    """Check batch headers: misplaced batches, gaps, waste."""


@audit.command("headers")
def headers(
    paths: options.Paths = None,
    check: Check = None,
    now: options.Now = None,
    others: With = None,
    memory: Memory = "256MiB",
    topic: options.Topics = None,
    partition: options.Partitions = None,
    internal: Internal = False,
    form: options.VerifyOutput = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    jobs: options.Jobs = None,
) -> int:
    """Make all checks of batch headers, without reading records.

    'klog audit PATH...' is the same. It finds misplaced batches, repeated batches, gaps in sequences, wrong times,
    batches that are too large or too small, old formats and mixed codecs.
    """
    from klog.commands.audit.audit import AuditOptions
    from klog.commands.audit.audited_partitions import AuditQuery
    from klog.commands.audit.header_findings import HEADER_KINDS

    from klog_cli.views.audit import headers as run

    options.known_form(form, options.VERIFY_OUTPUTS)
    if not paths:
        raise UsageError("nothing to audit: name log dirs or partition directories")
    checks = [options.known("--check", one, list(HEADER_KINDS)) for one in check or HEADER_KINDS]
    query = AuditQuery(paths, others or (), topic or (), partition or (), internal)
    request = AuditOptions(max_batch_bytes=options.batch_bytes(max_batch_bytes))
    now_ms = parse_now(now, output.note)
    return run(query, checks, now_ms, request, form, options.on_threads(jobs), parse_size(memory))


@audit.command("misrouted")
def misrouted(
    paths: options.Paths = None,
    others: With = None,
    deep: Deep = False,
    least: Confidence = "possible",
    memory: Memory = "256MiB",
    topic: options.Topics = None,
    partition: options.Partitions = None,
    internal: Internal = False,
    form: MisroutedOutput = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    jobs: options.Jobs = None,
) -> int:
    """Find batches that a producer put into the wrong partition.

    Java producers had a fault (KAFKA-19012). Such a batch is also in its own partition, byte for byte. Give all disks
    of a cluster: one disk alone lacks many of the duplicates. Exit code 4: batches are misplaced, or data is damaged.
    """
    from klog_cli.views.audit import misrouted as run

    query, request = misrouted_request((paths, others, topic, partition, internal), deep, least, form, max_batch_bytes)
    return run(query, request, form, options.on_threads(jobs), parse_size(memory))


def misrouted_request(
    what: tuple[list[str] | None, list[str] | None, list[str] | None, list[int] | None, bool],
    deep: bool,
    least: str,
    form: str,
    max_batch_bytes: str,
) -> tuple[AuditQuery, AuditOptions]:
    """Return the query and the options of `misrouted`; *what*: as in AuditQuery.  Raises UsageError."""
    from klog.commands.audit.audit import AuditOptions
    from klog.commands.audit.audited_partitions import AuditQuery

    options.known_form(form, MISROUTED_OUTPUTS)
    options.known("--min-confidence", least, CONFIDENCES)
    paths, others, topics, numbers, internal = what
    if not paths:
        raise UsageError("nothing to audit: name log dirs or partition directories")
    query = AuditQuery(paths, others or (), topics or (), numbers or (), internal)
    return query, AuditOptions(deep, least, options.batch_bytes(max_batch_bytes))
