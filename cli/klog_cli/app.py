"""The command line of a process: runs it, and turns what it raises into a line and an exit code.

Typer is most of what a start costs, so it is imported only when there are options to parse.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

from klog.errors import ExitCode, KlogError

from klog_cli import output

_TYPER_INTERRUPTED = 130  # what Typer makes of ^C


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        from klog_cli.version import version_line

        output.text(version_line())
        return 0
    gc.disable()  # until everything is imported: none of it is garbage, and to look through it again and again costs
    from klog_cli.command_tree import COMMANDS, parse_and_run

    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    names: tuple[str, ...] = (wanted,) if wanted in COMMANDS else COMMANDS
    if arguments[:1] == ["--version"]:
        names = ()
    if wanted == "lookup":
        arguments = _bare_timestamp(arguments)
    code = parse_and_run(arguments, names)
    if code == _TYPER_INTERRUPTED:
        raise KeyboardInterrupt
    return code


def _bare_timestamp(arguments: list[str]) -> list[str]:
    """Give `--timestamp` beside `--batch` an empty value: the values are in the file, and Typer insists on one."""
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
    _occupy_standard_descriptors()
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        return _guarded(sys.argv[1:])
    finally:
        signal.signal(signal.SIGINT, before)


def _occupy_standard_descriptors() -> None:
    """Open what the caller has closed (`2>&-`): otherwise the next opened file would receive the output for stderr."""
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
        for line in error.lines:
            output.error(line)
        return error.exit_code
    except KeyboardInterrupt:
        output.error("cancelled")
        return ExitCode.CANCELLED
    except output.ClosedPipeError:
        _silence_stdout()
        return 0
    except OSError as error:
        if os.environ.get("KLOG_TRACEBACK"):
            raise
        output.error(_one_line(error))
        return ExitCode.OPERATIONAL_ERROR
    except Exception as error:  # Typer's own: its class has moved from release to release
        if os.environ.get("KLOG_TRACEBACK") or not hasattr(error, "format_message"):
            raise
        if "\n" in error.format_message():  # no command was given: this is the help
            output.plain(error.format_message())
            return ExitCode.USAGE
        context = getattr(error, "ctx", None)
        hint = f" ('{context.command_path} --help' shows what there is)" if context is not None else ""
        output.error(f"{error.format_message()}{hint}")
        return ExitCode.USAGE


def _silence_stdout() -> None:
    """Keep the interpreter from reporting a closed stdout at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output.STDOUT)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
