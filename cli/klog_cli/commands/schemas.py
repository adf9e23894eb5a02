"""`klog schemas VERB`: the options of the verbs."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, schema_options
from klog_cli.command_class import CommandGroup

schemas = typer.Typer(
    help="List, show, check and export the schemas of a registry.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=CommandGroup,
)

LIST_OUTPUTS = ("text", "json", "jsonl", "csv")
SHOW_OUTPUTS = ("text", "json")
CHECK_OUTPUTS = ("text", "json", "jsonl")
EXPORT_OUTPUTS = ("records", "requests", "files")
Context = Annotated[str | None, typer.Option(metavar="NAME", help="Only schemas of this context; the default is '.'.")]


@schemas.callback()
def _schemas() -> None:
    """List, show, check and export the schemas of a registry."""


@schemas.command("list")
def list_(
    paths: options.Paths = None,
    subject: Annotated[str | None, typer.Option(metavar="GLOB", help="Only subjects that match.")] = None,
    context: Context = None,
    deleted: Annotated[
        bool,
        typer.Option("--deleted", help="Also hard-deleted and replaced versions whose records are still in the log."),
    ] = False,
    schemas_topic: schema_options.SchemasTopic = "_schemas",
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    form: Annotated[str, options.output_form(LIST_OUTPUTS)] = "text",
) -> int:
    """List the versions of all subjects, as the registry's topic has them.

    The topic is _schemas of Confluent's registry or Karapace, the journal of Apicurio Registry 3, or a file of its
    records as JSON lines. No registry has to run. Exit code 4: a record or a schema cannot be read.
    """
    from klog.commands.schemas.schema_rows import SchemaChoice

    from klog_cli.views.schemas import list_schemas, sources

    options.known_form(form, LIST_OUTPUTS)
    found = sources(paths or (), schemas_topic, options.identity_choice(cluster, topic_id, by_name))
    return list_schemas(found, SchemaChoice(subject, context, deleted), form)


@schemas.command("show")
def show(
    paths: options.Paths = None,
    schema_id: Annotated[int | None, typer.Option("--id", metavar="N", help="The schema with this id.")] = None,
    guid: Annotated[str | None, typer.Option(metavar="GUID", help="The schema with this GUID.")] = None,
    subject: Annotated[str | None, typer.Option(metavar="NAME", help="The schema of this subject.")] = None,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="VERSION", help="Version of the subject, or latest, the default."),
    ] = None,
    context: Context = None,
    resolved: Annotated[bool, typer.Option("--resolved", help="Put in the schemas that it refers to.")] = False,
    schemas_topic: schema_options.SchemasTopic = "_schemas",
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    form: Annotated[str, options.output_form(SHOW_OUTPUTS)] = "text",
) -> int:
    """Show the text of a schema, by its id, its GUID or its subject.

    An id can stand for several schemas: in other contexts, or after a failover with two leaders. All are shown. Exit
    code 4: there is none, or there are several texts.
    """
    from klog_cli.views.schemas import SchemaQuery, show_schema, sources

    options.known_form(form, SHOW_OUTPUTS)
    if (schema_id is not None) + (guid is not None) + (subject is not None) != 1:
        raise UsageError("one of --id N, --guid GUID and --subject NAME is needed")
    if version is not None and subject is None:
        raise UsageError("--version is one of a subject: --subject NAME --version N")
    query = SchemaQuery(_identity(schema_id, guid), subject, _version(version), context)
    found = sources(paths or (), schemas_topic, options.identity_choice(cluster, topic_id, by_name))
    return show_schema(found, query, form, resolved)


@schemas.command("check")
def check(
    paths: options.Paths = None,
    schemas_path: Annotated[
        list[str] | None,
        typer.Option("--schemas", metavar="PATH", help="The log dir with the registry's topic; default: the PATHs."),
    ] = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    internal: Annotated[bool, typer.Option("--internal", help="Also topics of brokers and registries.")] = False,
    sample: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Decode only this share of the records: 0.05, 5% or 1/20.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="If an id is in several contexts, try this one first.")
    ] = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Validate the values of JSON Schemas; no reference is fetched.")
    ] = False,
    schemas_topic: schema_options.SchemasTopic = "_schemas",
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    form: Annotated[str, options.output_form(CHECK_OUTPUTS)] = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    jobs: options.Jobs = None,
) -> int:
    """Decode all keys and values, and report schemas that are missing, doubled, broken or unused.

    For each topic, side and id the number of records is counted, and the first one that does not decode is named.
    Exit code 4: a schema or a value is lost or in danger; notes alone are 0.
    """
    import os

    from klog_cli.units import parse_share
    from klog_cli.views.schema_check import SchemaCheckRequest
    from klog_cli.views.schema_check import check as run

    options.known_form(form, CHECK_OUTPUTS)
    if not paths:
        raise UsageError("nothing to check: name log dirs or partition directories")
    request = SchemaCheckRequest(
        paths,
        schemas_path or (),
        schemas_topic,
        topic or (),
        partition or (),
        options.identity_choice(cluster, topic_id, by_name),
        internal,
        max(round(1 / parse_share(sample)), 1) if sample is not None else 1,
        context,
        options.batch_bytes(max_batch_bytes),
        jobs or os.cpu_count() or 1,
        validate,
    )
    return run(request, form)


@schemas.command("export")
def export(
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="The file, the folder for files, or - for stdout.")],
    paths: options.Paths = None,
    subject: Annotated[str | None, typer.Option(metavar="GLOB", help="Only subjects that match.")] = None,
    context: Context = None,
    no_deleted: Annotated[bool, typer.Option("--no-deleted", help="Leave out soft-deleted versions.")] = False,
    hard_deleted: Annotated[
        bool, typer.Option("--hard-deleted", help="Also hard-deleted versions whose records are still in the log.")
    ] = False,
    choose: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID=SUBJECT:VERSION",
            help="Schema that keeps an id that several claim; default: the one that fits most records (repeatable).",
        ),
    ] = None,
    schemas_topic: schema_options.SchemasTopic = "_schemas",
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    form: Annotated[str, options.output_form(EXPORT_OUTPUTS)] = "records",
    jobs: options.Jobs = None,
) -> int:
    """Write the schemas of a registry, so that another registry can have them.

    records: JSON lines that 'klog write' makes a new _schemas of; requests: those that a Confluent registry takes in
    mode IMPORT; files: a folder of schema files. Exit code 4: a schema is left out, or several claim one id.
    """
    import os

    from klog.commands.schemas.state_records import ExportChoice

    from klog_cli.views.schema_export import ExportRequest
    from klog_cli.views.schema_export import export as run

    options.known_form(form, EXPORT_OUTPUTS)
    choice = ExportChoice(subject, context, not no_deleted, hard_deleted)
    identity = options.identity_choice(cluster, topic_id, by_name)
    chosen = dict(map(_claimant, choose or ()))
    return run(
        ExportRequest(paths or (), schemas_topic, identity, choice, chosen, to, jobs or os.cpu_count() or 1), form
    )


def _claimant(text: str) -> tuple[int, tuple[str, int]]:
    """Return the id, and the subject and version, that a value of --choose names."""
    number, _, schema = text.partition("=")
    subject, _, version = schema.rpartition(":")
    if not number.isdecimal() or not version.isdecimal() or not subject:
        raise UsageError(f"--choose {text}: expected an id and a version, such as 31=payments-value:4")
    return int(number), (subject, int(version))


def _identity(schema_id: int | None, guid: str | None) -> int | bytes | None:
    if guid is None:
        return schema_id
    from uuid import UUID

    try:
        return UUID(guid).bytes
    except ValueError:
        raise UsageError(f"--guid {guid}: expected a GUID, such as 0115cf37-f4c7-95ef-d6ba-4423751a48b9") from None


def _version(given: str | None) -> int | None:
    if given in (None, "latest"):
        return None
    try:
        return int(str(given))
    except ValueError:
        raise UsageError(f"--version {given}: expected a number, or latest") from None
