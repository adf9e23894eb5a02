"""The tree of commands for Typer.

The module of a command is imported when that command is called (all of them for help), to keep each start small.
"""

from __future__ import annotations

import atexit
import gc
from importlib import import_module

import typer

from klog_cli import output
from klog_cli.command_class import PURPOSES, Command, Root

COMMANDS = tuple(name for names in PURPOSES.values() for name in names)
EXIT_CODES = (
    "Exit codes, added up: 0 clean · 1 problems corrected · 4 problems left, or nothing found · "
    "8 could not do it (I/O, permission, not Kafka data, lock held) · 16 usage · 32 cancelled (^C)."
)


def _version(wanted: bool) -> None:
    if wanted:
        from klog_cli.version import version_line

        output.text(version_line())
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "-V", "--version", callback=_version, is_eager=True, help="Show the versions and exit."
    ),
) -> None:
    """Read, explain, check, repair and compact Kafka broker data directories with no broker running."""


def build(names: tuple[str, ...] = COMMANDS) -> typer.Typer:
    """Return the app with the commands *names*."""
    app = typer.Typer(
        name="klog",
        cls=Root,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog=EXIT_CODES,
    )
    app.callback(epilog=EXIT_CODES)(_root)
    for name in names:
        module = import_module(f"klog_cli.commands.{name}")
        command = getattr(module, name)
        if isinstance(command, typer.Typer):
            for verb in command.registered_commands:
                verb.cls = Command
            app.add_typer(command, name=name)
        else:
            app.command(name, cls=Command)(command)
    return app


def _spare_the_collector() -> None:
    """Exempt imported modules, and at the exit all objects, from collection: it costs a sixth of a short run.

    The modules that the command itself imports make thousands of objects, too: the first collection is after these.
    """
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()
    atexit.register(gc.freeze)


def parse_and_run(arguments: list[str], names: tuple[str, ...]) -> int:
    """Run one of the commands *names*; return its exit code.  Raises its exceptions, and Typer's errors."""
    command = typer.main.get_command(build(names))
    _spare_the_collector()
    try:
        # Not command.main: it treats a broken pipe of any file as stdout's, and exits with 1.
        with command.make_context("klog", arguments) as context:
            code = command.invoke(context)
    except typer.Exit as done:
        code = done.exit_code
    return code if isinstance(code, int) else 0
