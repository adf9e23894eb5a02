"""`klog keys VERB`: the options of the verbs."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options
from klog_cli.command_class import CommandGroup

keys = typer.Typer(
    help="Find keys stored in the wrong partition.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=CommandGroup,
)

CHECK_OUTPUTS = ("text", "json", "jsonl", "csv")


@keys.callback()
def _keys() -> None:
    """Find keys stored in the wrong partition."""


@keys.command("check")
def check(
    paths: options.Paths = None,
    partitions: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=65536, help="Partitions of each topic; default: as in the metadata log."),
    ] = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    min_keys: Annotated[
        int, typer.Option("--min-keys", metavar="N", min=1, help="With fewer distinct keys a topic is not judged.")
    ] = 200,
    most_listed: Annotated[
        int,
        typer.Option("--list", metavar="N", min=0, max=1000, help="List at most N misplaced keys of each topic."),
    ] = 20,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    form: Annotated[str, options.output_form(CHECK_OUTPUTS)] = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    jobs: options.Jobs = None,
) -> int:
    """Find each topic's partitioner, and the misplaced keys.

    For each misplaced key klog names the possible reason: an earlier number of partitions, another client, a key
    hashed without its schema id, or none. Exit code 4: keys are misplaced, or data is damaged.
    """
    from klog.commands.keys.key_check import KeyCheckOptions

    from klog_cli.views.keys import KeyCheckRequest
    from klog_cli.views.keys import check as run

    options.known_form(form, CHECK_OUTPUTS)
    if not paths:
        raise UsageError("nothing to check: name log dirs or partition directories")
    choice = options.identity_choice(cluster, topic_id, by_name)
    request = KeyCheckRequest(paths, topic or (), partition or (), choice, partitions)
    workers = jobs or os.cpu_count() or 1
    return run(request, KeyCheckOptions(min_keys, most_listed, workers, options.batch_bytes(max_batch_bytes)), form)
