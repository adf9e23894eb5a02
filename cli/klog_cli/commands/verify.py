"""`klog verify`: its options."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.remote_options import Remote, RemoteKeys, RemoteLayout, named_tier
from klog_cli.units import parse_share, parse_time

if TYPE_CHECKING:
    from klog.data_dir.selection import PartitionQuery
    from klog.partition.verify.segment_pass import SurveyOptions
    from klog.partition.verify.verify import Chosen

    from klog_cli.views.verify import FoundFindings


FORMS = (*options.VERIFY_OUTPUTS, "prometheus")
Sample = Annotated[
    str | None, typer.Option(metavar="SHARE", help="Check only this share of the segments: 0.05, 5% or 1/20.")
]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Check only segments modified since TIME.")]


def verify(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    deep: options.Deep = False,
    sample: Sample = None,
    since: Since = None,
    everything: options.AllFindings = False,
    form: Annotated[str, options.output_form(FORMS)] = "text",
    to: options.PrometheusTo = None,
    jobs: options.Jobs = None,
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    remote: Remote = None,
    remote_layout: RemoteLayout = None,
    remote_keys: RemoteKeys = None,
) -> int:
    """Check all batches, indexes, snapshots and checkpoints.

    The result has the verdict, the findings of each partition, and for each kind of problem its meaning, a broker's
    reaction at its next start, and the command that repairs it.
    """
    from klog.data_dir.selection import PartitionQuery
    from klog.partition.verify.segment_pass import SurveyOptions

    from klog_cli.views.verify import verify as run

    options.known_form(form, FORMS)
    options.check_prometheus(form, to)
    if not paths:
        raise UsageError("nothing to verify: name log dirs, partition directories or files")
    request = SurveyOptions(deep, jobs or os.cpu_count() or 1, options.batch_bytes(max_batch_bytes))
    chosen = _chosen(sample, since)
    given = RemoteOptions(remote, remote_layout, remote_keys)
    then = behind(given, PartitionQuery(paths, topic or (), partition or ()), request, form, to)
    return run(paths, topic or (), partition or (), request, chosen, form, to=to, everything=everything, then=then)


class RemoteOptions(NamedTuple):
    """`--remote`, `--remote-layout` and `--remote-keys`, as they were given."""

    uri: str | None
    layout: str | None
    keys: list[str] | None


def behind(
    given: RemoteOptions, query: PartitionQuery, request: SurveyOptions, form: str, to: str | None = None
) -> Callable[[FoundFindings], None] | None:
    """Return the check of remote storage that follows that of the log dirs; None without `--remote`.

    Raises UsageError for paths that are no log dirs, KlogError for a tier that cannot be read.
    """
    if (tier := named_tier(*given, in_order=True)) is None:
        return None
    from klog.commands.remote import RemoteQuery
    from klog.data_dir.log_dir import LogDir
    from klog.data_dir.selection import open_path

    from klog_cli.views.remote.behind_local import verify_behind

    for path in query.paths:
        if not isinstance(open_path(path), LogDir):
            raise UsageError(f"{path}: --remote needs a log dir, for __remote_log_metadata is beside the partitions")

    wanted = RemoteQuery(tuple(query.paths), tier, tuple(query.topics), tuple(query.numbers))
    return partial(verify_behind, query=wanted, request=request, form=form, to=to)


def _chosen(sample: str | None, since: str | None) -> Chosen | None:
    """Return the question whether to look at a segment; None for all.  Raises UsageError."""
    if sample is None and since is None:
        return None
    step = max(round(1 / parse_share(sample)), 1) if sample is not None else 1
    changed_ms = 0 if since is None else parse_time(since, output.note)

    def chosen(at: int, path: str) -> bool:
        if at % step:
            return False
        try:
            return os.stat(path).st_mtime * 1000 >= changed_ms
        except OSError:
            return True  # opening it reports why it cannot be read

    return chosen
