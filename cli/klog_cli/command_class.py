"""The class of every command: the options that all of them have, and its help, in groups and with examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from klog.base.errors import UsageError
from typer.core import TyperCommand, TyperGroup, TyperOption

from klog_cli import output
from klog_cli.read_options import declarations, reading, reads_whole_logs

PURPOSES = {
    "First aid": ("doctor", "verify", "recover", "apply", "undo", "plans", "explain"),
    "Look": (
        *("browse", "describe", "records", "dump", "lookup", "search", "stats", "timeline", "groups"),
        *("transactions", "metadata", "schemas", "fetch", "bytes", "report"),
    ),
    "Space": ("space", "compact", "truncate"),
    "Cluster": ("replicas", "remote", "adopt", "keys", "partition", "assign", "audit"),
    "In and out": ("serve", "export", "write", "follow"),
    "At scale": ("spark",),
    "Shell": ("completion",),
}
"""The commands, by purpose, in the order of the help."""
OPTION_GROUPS = {
    "Select": "topic partition cluster topic-id by-name replicas from-offset to-offset from-time to-time key keys-from"
    " header regex where isolation limit sample since state transactional-id producer-id longer-than group type kind"
    " around window at-time at-offset offset position entry timestamp batch broker quorum check min-confidence internal"
    " no-control tail up if-leads head follow key-as remote remote-layout remote-keys tier node segment remote-only"
    " subject deleted no-deleted hard-deleted id guid schemas schemas-topic decode",
    "Result": "output to segments values deep context format value-as pretty full raw resolved json-form reader-schema",
    "Change": "apply dry-run save-plan backup now",
    "Kafka's own": "files deep-iteration print-data-log skip-record-metadata verify-index-only index-sanity-check"
    " max-bytes max-message-size offsets-decoder transaction-log-decoder cluster-metadata-decoder"
    " remote-log-metadata-decoder share-group-state-decoder",
    "Tuning": "jobs max-batch-bytes memory map-memory connections send-buffer fetch-bytes partition-bytes max-wait"
    " min-bytes cache rate priority flush file-size master spark-conf ship",
    "Every command": "quiet color help",
}
"""The options of each group, in the order of the help; others belong to the command itself."""

_GROUP_OF = {f"--{name}": group for group, names in OPTION_GROUPS.items() for name in names.split()}
_OWN = "Options"
GROUP_ORDER = ("Select", _OWN, "Result", "Change", "Kafka's own", "Tuning", "Every command")
_COLOURS = ("auto", "always", "never")


def _quiet(_context: object, _parameter: object, given: bool) -> None:
    output.Quiet.on = bool(given)


def _color(_context: object, _parameter: object, given: str) -> None:
    if given not in _COLOURS:
        raise UsageError(f"--color {given}: expected one of {', '.join(_COLOURS)}")
    output.Colour.when = given


def _common() -> list[TyperOption]:
    """Return the options of every command."""
    return [
        TyperOption(
            param_decls=["-q", "--quiet"], is_flag=True, default=False, expose_value=False, callback=_quiet,
            help="Print no notes and no progress.",
        ),
        TyperOption(
            param_decls=["--color"], metavar="|".join(_COLOURS), default="auto", expose_value=False, callback=_color,
            help="Use colours: auto, on a terminal unless NO_COLOR is set.",
        ),
    ]  # fmt: skip


class Command(TyperCommand):
    """A command.  Options that change something are accepted with --dry-run, which is what happens without --apply."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        names = {name for param in self.params for name in param.opts}
        if "--apply" in names:
            self.params.append(
                TyperOption(
                    param_decls=["--dry-run"], is_flag=True, default=False,
                    help="Only show the changes: the same as leaving out --apply.",
                )
            )  # fmt: skip
        if "--jobs" not in names:
            self.params.append(_jobs())
        self._read_options: list[str] = []
        if reads_whole_logs(self):
            added = [one for one in declarations() if not names & set(one.opts)]
            self._read_options = [one.name for one in added if one.name]
            self.params += added
        self.params += _common()

    def invoke(self, ctx: Any) -> Any:
        """Run the command.  Raises UsageError for --apply with --dry-run."""
        if ctx.params.pop("dry_run", False) and ctx.params.get("apply"):
            raise UsageError("--apply and --dry-run: one of them")
        if not self._read_options:
            return super().invoke(ctx)
        with reading(self, ctx, self._read_options):
            return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and groups of options."""
        write_parameters(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        from klog_cli.examples import EXAMPLES

        examples = EXAMPLES.get(ctx.command_path.removeprefix("klog "), ())
        if examples:
            with formatter.section("Examples"):
                for about, line in examples:
                    formatter.write(f"{'':{formatter.current_indent}}# {about}\n")
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _jobs() -> TyperOption:
    """Return --jobs of a command that has one thread: it never takes more than N."""
    return TyperOption(
        param_decls=["-j", "--jobs"], metavar="N", default=None, expose_value=False,
        callback=_positive, help="At most N threads; this command uses one.",
    )  # fmt: skip


def _positive(_context: object, _parameter: object, given: str | None) -> None:
    if given is not None and (not given.isascii() or not given.isdecimal() or int(given) < 1):
        raise UsageError(f"--jobs {given}: expected a number of at least 1")


def name_of(parameter: Any) -> str:
    """Return the parameter as it is typed: `--offset N`, `PATH...`."""
    metavar = parameter.metavar or parameter.name.upper()
    if parameter.param_type_name == "argument":
        return str(metavar)
    return " ".join([max(parameter.opts, key=len), *([] if parameter.is_flag else [metavar])])


def write_parameters(parameters: Sequence[Any], ctx: Any, formatter: Any) -> None:
    """Write the help of arguments, then of each group of options."""
    arguments = [
        record for one in parameters if one.param_type_name == "argument" if (record := one.get_help_record(ctx))
    ]
    if arguments:
        with formatter.section("Arguments"):
            formatter.write_dl(arguments)
    grouped: dict[str, list[Any]] = {}
    for one in parameters:
        if one.param_type_name == "option":
            grouped.setdefault(group_of(one.opts), []).append(one)
    for group in GROUP_ORDER:
        records = [record for one in grouped.get(group, ()) if (record := one.get_help_record(ctx)) is not None]
        if records:
            with formatter.section(group):
                formatter.write_dl(records)


def group_of(names: Sequence[str]) -> str:
    """Return the group of the option with *names*."""
    return next((_GROUP_OF[name] for name in names if name in _GROUP_OF), _OWN)


class CommandGroup(TyperGroup):
    """A command with verbs, such as `klog replicas`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs, then the options."""
        self.format_commands(ctx, formatter)
        write_parameters(self.get_params(ctx), ctx, formatter)


class Root(CommandGroup):
    """`klog` itself: its commands are listed by purpose."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each purpose."""
        width = max(map(len, self.commands), default=0)
        for purpose, names in PURPOSES.items():
            rows = list(self._rows(ctx, names, formatter.width - 6 - width))
            if rows:
                with formatter.section(purpose):
                    formatter.write_dl([(f"{name:{width}}", about) for name, about in rows])

    def _rows(self, ctx: Any, names: Sequence[str], room: int) -> Iterator[tuple[str, str]]:
        for name in names:
            command = self.get_command(ctx, name)
            if command is not None:
                yield name, command.get_short_help_str(room)
