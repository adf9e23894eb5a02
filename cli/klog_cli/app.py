"""The Typer app: which command, and what becomes of its exceptions.

A command's module is imported when that command is called (all of them for help), so that each start loads little.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from importlib import import_module

import typer
from klog.errors import KlogError, UsageError

from klog_cli import output

COMMANDS = (
    "describe",
    "dump",
    "lookup",
    "fetch",
    "serve",
    "verify",
    "recover",
    "truncate",
    "compact",
    "apply",
    "undo",
    "plans",
    "spark",
)
EXIT_CODES = (
    "Exit codes, added up: 0 clean · 1 problems corrected · 4 problems left · "
    "8 could not do it (I/O, permission, not Kafka data, lock held) · 16 usage · 32 cancelled (^C)."
)
_USAGE, _CANCELLED, _FAILED = 16, 32, 8
_TYPER_INTERRUPTED = 130  # what Typer makes of ^C


def _version(wanted: bool) -> None:
    if wanted:
        import platform

        from klog import __version__
        from klog.kernel import hardware_crc

        crc = "hardware CRC-32C" if hardware_crc() else "portable CRC-32C"
        output.text(f"klog {__version__}, Python {platform.python_version()}, kernel {__version__} with {crc}\n")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show versions and leave."),
) -> None:
    """Read, explain, check, repair and compact Kafka broker data directories with no broker running."""


def build(names: tuple[str, ...] = COMMANDS) -> typer.Typer:
    """Return the app with the commands *names*."""
    app = typer.Typer(
        name="klog",
        add_completion=False,
        no_args_is_help=True,
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
                verb.epilog = EXIT_CODES
            app.add_typer(command, name=name, epilog=EXIT_CODES)
        else:
            app.command(name, epilog=EXIT_CODES)(command)
    return app


def _run(arguments: list[str]) -> int:
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    names: tuple[str, ...] = (wanted,) if wanted in COMMANDS else COMMANDS
    if arguments[:1] == ["--version"]:
        names = ()
    if wanted == "lookup":
        arguments = _bare_timestamp(arguments)
    command = typer.main.get_command(build(names))
    code = command.main(arguments, prog_name="klog", standalone_mode=False)
    if code == _TYPER_INTERRUPTED:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _bare_timestamp(arguments: list[str]) -> list[str]:
    """Give `--timestamp` beside `--batch` an empty value: the values stand in the file, and Typer insists on one."""
    if not any(argument.partition("=")[0] == "--batch" for argument in arguments):
        return arguments
    return ["--timestamp=" if argument == "--timestamp" else argument for argument in arguments]


def _one_line(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _interrupt(_number: int, _frame: object) -> None:
    """Cancel once: a second ^C (or the same one, sent to the whole group) must not disturb the ending."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Run the command line of this process; return its exit code."""
    _spare_the_collector()
    _occupy_standard_descriptors()
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        return _guarded(sys.argv[1:])
    finally:
        signal.signal(signal.SIGINT, before)


def _spare_the_collector() -> None:
    """What has been imported is no garbage, nor is what ends with the process: looking costs a sixth of a short run."""
    gc.freeze()
    atexit.register(gc.freeze)


def _occupy_standard_descriptors() -> None:
    """Open what the caller has closed (`2>&-`): else the next file opened would receive what is meant for stderr."""
    for descriptor in (0, output.STDOUT, output.STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _guarded(arguments: list[str]) -> int:
    """Run the command line, and turn what it raises into a line and an exit code."""
    try:
        return _run(arguments)
    except KlogError as error:
        if os.environ.get("KLOG_TRACEBACK"):
            raise
        output.error(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        output.error("cancelled")
        return _CANCELLED
    except output.ClosedPipeError:
        _silence_stdout()
        return 0
    except OSError as error:
        if os.environ.get("KLOG_TRACEBACK"):
            raise
        output.error(_one_line(error))
        return _FAILED
    except Exception as error:  # Typer's own: its class has moved from release to release
        if os.environ.get("KLOG_TRACEBACK") or not hasattr(error, "format_message"):
            raise
        if "\n" in error.format_message():  # nothing was asked for: this is the help
            output.plain(error.format_message())
            return _USAGE
        context = getattr(error, "ctx", None)
        hint = f" ('{context.command_path} --help' shows what there is)" if context is not None else ""
        output.error(f"{error.format_message()}{hint}")
        return _USAGE


def _silence_stdout() -> None:
    """Keep the interpreter from complaining at its end that nobody reads stdout any more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output.STDOUT)
    os.close(nowhere)


__all__ = ["UsageError", "build", "main"]

if __name__ == "__main__":
    sys.exit(main())
