"""`klog spark VERB`: the options of the verbs."""

from __future__ import annotations

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.commands import audit as audit_options
from klog_cli.commands.export import write
from klog_cli.commands.search import find
from klog_cli.commands.spark_files import compact
from klog_cli.commands.stats import count
from klog_cli.engines import on_spark
from klog_cli.units import parse_size

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
    from klog.partition.verify.segment import SurveyOptions

    from klog_cli.views.spark.jobs import SparkEngine
    from klog_cli.views.spark.jobs import verify as run

    output.Quiet.on = quiet
    options.known_form(form, options.VERIFY_OUTPUTS)
    if not paths:
        raise UsageError("nothing to verify: name log dirs or partition directories")
    request = SurveyOptions(deep, 1, options.batch_bytes(max_batch_bytes))
    where = SparkEngine(master, options.spark_settings(conf), ship)
    return run(paths, topic or (), partition or (), request, form, where)


@spark.command("audit")
def audit(
    paths: options.Paths = None,
    others: audit_options.With = None,
    deep: audit_options.Deep = False,
    least: audit_options.Confidence = "possible",
    memory: audit_options.Memory = "256MiB",
    topic: options.Topics = None,
    partition: options.Partitions = None,
    internal: audit_options.Internal = False,
    form: audit_options.MisroutedOutput = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    master: options.Master = None,
    conf: options.SparkConf = None,
    ship: options.Ship = "archive",
    quiet: options.Quiet = False,
) -> int:
    """Find misrouted batches as 'klog audit misrouted' does.

    The rows and the exit code are the same.
    """
    from klog_cli.views.spark.jobs import SparkEngine
    from klog_cli.views.spark.jobs import audit as run

    output.Quiet.on = quiet
    query, request = audit_options.misrouted_request(
        (paths, others, topic, partition, internal), deep, least, form, max_batch_bytes
    )
    where = SparkEngine(master, options.spark_settings(conf), ship)
    return run(query, request, form, parse_size(memory), where)


_COMMANDS = {"stats": on_spark(count), "search": on_spark(find), "export": on_spark(write), "compact": compact}
for _name, _command in _COMMANDS.items():
    spark.command(_name)(_command)
