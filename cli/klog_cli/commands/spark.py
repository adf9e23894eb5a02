"""`klog spark VERB`: the options of the verbs."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.errors import UsageError

from klog_cli import options, output
from klog_cli.commands.spark_files import compact, export, search

STATS_OUTPUTS = ("text", "table", "json", "jsonl")
StatsOutput = Annotated[str, typer.Option("--output", metavar="|".join(STATS_OUTPUTS), help="Output form.")]


spark = typer.Typer(
    help="Run these jobs on Spark, over many data dirs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@spark.command("verify")
def verify(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    deep: options.Deep = False,
    form: options.VerifyOutput = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    master: options.Master = None,
    conf: options.SparkConf = None,
    ship: options.Ship = "archive",
    quiet: options.Quiet = False,
) -> int:
    """Check partitions as 'klog verify' does.

    The findings and the exit code are the same.
    """
    from klog.verify.segment import SurveyOptions

    from klog_cli.views.spark import Where
    from klog_cli.views.spark import verify as run

    output.Quiet.on = quiet
    options.known_form(form, options.VERIFY_OUTPUTS)
    if not paths:
        raise UsageError("nothing to verify: name log dirs or partition directories")
    request = SurveyOptions(deep, 1, options.batch_bytes(max_batch_bytes))
    where = Where(master, options.spark_settings(conf), ship)
    return run(paths, topic or (), partition or (), request, form, where)


@spark.command("stats")
def stats(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    form: StatsOutput = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    master: options.Master = None,
    conf: options.SparkConf = None,
    ship: options.Ship = "archive",
    quiet: options.Quiet = False,
) -> int:
    """Count records, bytes, keys and codecs of each partition.

    Also time ranges, nulls, the largest records and the most frequent keys. The number of distinct keys is estimated by
    HyperLogLog, to within about a percent.
    """
    from klog_cli.views.spark import Where
    from klog_cli.views.spark_stats import stats as run

    output.Quiet.on = quiet
    options.known_form(form, STATS_OUTPUTS)
    if not paths:
        raise UsageError("nothing to count: name log dirs or partition directories")
    where = Where(master, options.spark_settings(conf), ship)
    return run(paths, topic or (), partition or (), options.batch_bytes(max_batch_bytes), form, where)


for _command in (search, export, compact):
    spark.command(_command.__name__)(_command)
