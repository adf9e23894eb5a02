"""The options that decode keys and values by the schemas of a registry, the same for every command that has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer
from klog.base.errors import ExitCode, UsageError

from klog_cli import options, output

if TYPE_CHECKING:
    from klog.jobs.schema_output import ExportSchemas
    from klog.schemas.decoded_rows import SchemaStyle
    from klog.schemas.registry import Registry

AUTO: Final = "auto"
JSON_FORMS: Final = ("plain", "canonical")
SIDES: Final = ("key", "value", "both")
Schemas = Annotated[
    list[str] | None,
    typer.Option(
        "--schemas",
        metavar="PATH",
        help="Decode keys and values by the schemas in PATH: a log dir, _schemas-0 or a file of its records; 'auto':"
        " the log dirs of the command (repeatable).",
    ),
]
SchemasTopic = Annotated[str, typer.Option("--schemas-topic", metavar="NAME", help="Name of the topic _schemas here.")]
JsonForm = Annotated[
    str,
    typer.Option(metavar="|".join(JSON_FORMS), help="Form of decoded values; canonical: as the formats' own tools."),
]
Decode = Annotated[str, typer.Option(metavar="|".join(SIDES), help="Sides of a record to decode.")]
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context of schemas that is tried first.")
]
ReaderSchema = Annotated[
    str | None,
    typer.Option(
        "--reader-schema",
        metavar="latest|each|ID|SUBJECT:VERSION",
        help="Schema that Avro values are resolved to; default: latest in Parquet, else each value's own.",
    ),
]


def schema_style(
    schemas: Sequence[str] | None,
    paths: Sequence[str],
    given: tuple[str, str, str, str | None],
    reader: str | None = None,
    output_form: str = "jsonl",
) -> SchemaStyle | None:
    """Return how keys and values are decoded, None without --schemas; name the damage in the registry's topic.

    *paths*: those of the command, for `auto`; *given*: the values of the four other options, in the order above.
    *reader*: of --reader-schema.  Raises UsageError, NoRegistryError and other errors of the sources.
    """
    topic, form, decode, context = given
    options.known("--json-form", form, JSON_FORMS)
    options.known("--decode", decode, SIDES)
    if not schemas:
        return None
    from klog.schemas.decoded_rows import SchemaStyle
    from klog.schemas.error_tally import ErrorTally
    from klog.schemas.side_decoder import SchemaDecoders

    is_table = output_form == "parquet"
    reader = reader or ("latest" if is_table else "each")
    if is_table and reader == "each":
        raise UsageError("--reader-schema each goes without Parquet: its columns are those of one schema")
    if is_table and form != "plain":
        raise UsageError("--json-form goes without Parquet, which has typed columns")
    registries = _registries(schemas, paths, topic)
    sides = ("key", "value") if decode == "both" else (decode,)
    make = None
    if not is_table and reader != "each":
        from klog.schemas.resolved_values import resolving

        make = resolving(registries, reader, form == "canonical", context)
    decoders = SchemaDecoders(registries, form == "canonical", context, make)
    return SchemaStyle(decoders, sides, ErrorTally(), any(one.notes for one in registries), reader)


def export_schemas(
    schemas: Sequence[str] | None,
    paths: Sequence[str],
    given: tuple[str, str, str, str | None],
    reader: str | None,
    output_form: str,
) -> ExportSchemas | None:
    """Return how an export decodes keys and values: see `schema_style`."""
    style = schema_style(schemas, paths, given, reader, output_form)
    if style is None:
        return None
    from klog.jobs.schema_output import ExportSchemas

    registries = tuple(style.decoders.registries)
    return ExportSchemas(registries, style.sides, given[1] == "canonical", given[3], style.reader, style.is_damaged)


def styles_at_hand(
    schemas: Sequence[str] | None,
    paths: Sequence[str],
    given: tuple[str, str, str, str | None],
    by_itself: bool,
    reader: str | None = None,
) -> SchemaStyle | None:
    """Return how keys and values are decoded; *by_itself*: by a registry's topic beside them, if there is one.

    A registry that cannot be used is then a note.  Raises as `schema_style`.
    """
    if not by_itself:
        return schema_style(schemas, paths, given, reader)
    from klog.base.errors import KlogError
    from klog.jobs.schema_sources import topics_beside

    if not topics_beside(paths, given[0]):
        return None
    try:
        _check_libraries()
        return schema_style([AUTO], paths, given, reader)
    except KlogError as error:
        output.note(f"keys and values are shown without their schemas: {error}")
        return None


def _check_libraries() -> None:
    """Raise UnsupportedError without klog[schemas]."""
    from importlib.util import find_spec

    from klog.base.errors import UnsupportedError
    from klog.schemas.side_decoder import NEEDED

    try:
        missing = next((name for name in ("fastavro", "google.protobuf") if find_spec(name) is None), None)
    except ModuleNotFoundError as error:
        missing = error.name
    if missing is not None:
        raise UnsupportedError(f"schemas need {missing}: {NEEDED}")


def _registries(schemas: Sequence[str], paths: Sequence[str], topic: str) -> list[Registry]:
    from klog.jobs.schema_sources import find_registries, topics_beside

    named = [path for path in schemas if path != AUTO]
    beside = topics_beside(paths, topic) if AUTO in schemas else []
    if not named and not beside:
        from klog.jobs.schema_sources import NoRegistryError

        raise NoRegistryError(f"{', '.join(paths)}: no {topic} beside the data; --schemas PATH names where it is")
    found = find_registries([*named, *beside], topic)
    for line in (line for one in found for line in one.notes):
        output.error(line)
    return found


def tell_errors(style: SchemaStyle | None, *, is_failure: bool = True) -> int:
    """Print a line for each kind of key and value that was not decoded; return the exit code.

    *is_failure*: somebody has asked for decoded ones.
    """
    if style is None:
        return ExitCode.CLEAN
    for line in style.tally.lines():
        output.error(line)
    return ExitCode.PROBLEMS_LEFT if is_failure and (style.tally or style.is_damaged) else ExitCode.CLEAN


def check_schemas(form: str, values: str, is_of_batches: bool, forms: Sequence[str] = ("jsonl",)) -> None:
    """Raise UsageError for options that cannot be with --schemas; *forms*: those of the output that can."""
    if form not in forms:
        raise UsageError(f"--schemas goes with --output {' or '.join(forms)}")
    if values != "text":
        raise UsageError("--values goes without --schemas")
    if is_of_batches:
        raise UsageError("--batches goes without --schemas")
