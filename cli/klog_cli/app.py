"""The command line of a process: runs it, and turns exceptions into a line and an exit code.

Typer takes most of the time of a start; it is imported only when there are options to parse.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from types import TracebackType

from klog.base.errors import ExitCode, KlogError, counted
from klog.base.unusable import UNUSABLE

from klog_cli import output

TYPE_CHECKING = False  # as in klog
if TYPE_CHECKING:
    from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that cancel a command."""


def _run(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        from klog_cli.version import version_line

        output.text(version_line())
        return 0
    gc.disable()  # until everything is imported: none of it is garbage, and to look through it again and again costs
    from klog_cli.command_tree import COMMANDS, parse_and_run

    if not arguments or arguments[0] == "help":
        arguments = [*arguments[1:], "--help"]
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    names: tuple[str, ...] = (wanted,) if wanted in COMMANDS else COMMANDS
    if arguments[:1] in (["--version"], ["-V"]):
        names = ()
    if wanted == "lookup":
        arguments = _bare_timestamp(arguments)
    return parse_and_run(arguments, names)


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
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> int:
    """Run the command line of this process; return its exit code."""
    _occupy_standard_descriptors()
    output.Stderr.is_incomplete = False
    UNUSABLE.clear()
    # nohup ignores SIGHUP, and klog then does as well.  A shell makes background jobs ignore SIGINT.
    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if number == signal.SIGINT or handler is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        return _guarded(sys.argv[1:])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _occupy_standard_descriptors() -> None:
    """Open descriptors that the caller has closed (`2>&-`): the next file would get the output for stderr."""
    for descriptor in (0, output.STDOUT, output.STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _guarded(arguments: list[str]) -> int:
    """Run the command line, and turn exceptions into a line and an exit code, never into 1."""
    try:
        code = _run(arguments)
    except (Exception, KeyboardInterrupt, SystemExit) as error:  # a bug and a library's sys.exit as well
        if _has_no_reader(error):
            _silence_stdout()
            return 0
        code = ExitCode.OPERATIONAL_ERROR
        with suppress(Exception):  # no memory is left for a message, for example
            code = _explain(error)
    code |= _name_unusable()
    return code | (ExitCode.OPERATIONAL_ERROR if output.Stderr.is_incomplete else 0)


def _name_unusable() -> int:
    """Name the unusable files and directories that the command has not named; return the exit code that they add."""
    for one in UNUSABLE.unnamed():
        output.error(one.message)
    if UNUSABLE.more:
        output.error(f"and {counted(UNUSABLE.more, 'more file')} that could not be read, or are malformed")
    found = UNUSABLE.named()
    code = ExitCode.OPERATIONAL_ERROR if any(one.is_unreadable for one in found) else 0
    return code | (ExitCode.PROBLEMS_LEFT if any(not one.is_unreadable for one in found) else 0)


def _explain(error: BaseException) -> int:
    """Print why a command ended early, with a traceback if KLOG_TRACEBACK is set; return the exit code."""
    _silence_stdout()
    if os.environ.get("KLOG_TRACEBACK"):
        from traceback import format_exception

        output.plain("".join(format_exception(error)).rstrip())
    if isinstance(error, KlogError):
        lines, code = error.lines, error.exit_code
    elif isinstance(error, KeyboardInterrupt):
        lines, code = ("cancelled",), ExitCode.CANCELLED
    elif isinstance(error, OSError):
        lines, code = (_one_line(error),), ExitCode.OPERATIONAL_ERROR
    elif hasattr(error, "format_message"):  # Typer's own: its class has moved from release to release
        return _explain_usage(error, getattr(error, "ctx", None))
    elif isinstance(error, MemoryError):
        error.__traceback__ = None  # it refers to the data that filled the memory
        lines, code = ("not enough memory",), ExitCode.OPERATIONAL_ERROR
    else:
        lines, code = (_bug(error),), ExitCode.OPERATIONAL_ERROR
    for line in lines:
        output.error(line)
    return code


def _explain_usage(error: Any, context: object) -> int:
    message, path = error.format_message(), getattr(context, "command_path", None)
    if "\n" in message:  # a verb is missing: this is the help
        output.plain(message)
        return ExitCode.USAGE
    missing = getattr(error, "param", None) if "Missing" in message else None
    if missing is not None:
        from klog_cli.command_class import name_of

        message = f"{path}: needs {name_of(missing)}"
    output.error(f"{message} ('{path} --help' shows what there is)" if path is not None else message)
    return ExitCode.USAGE


def _bug(error: BaseException) -> str:
    """Return a line about a mistake of klog's own, with the place that raised it."""
    trace = _innermost(error)
    place = f" at {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace is not None else ""
    return f"a bug in klog: {type(error).__name__}: {error}{place}; please report it (KLOG_TRACEBACK=1 prints more)"


def _innermost(error: BaseException) -> TracebackType | None:
    """Return where *error* was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _has_no_reader(error: BaseException) -> bool:
    """Whether stdout has lost its reader; Typer's echo writes help there without klog's output."""
    if isinstance(error, BrokenPipeError):
        trace = _innermost(error)
        return trace is not None and trace.tb_frame.f_code.co_name == "echo"
    return isinstance(error, output.ClosedPipeError)


def _silence_stdout() -> None:
    """Keep the interpreter from reporting a closed stdout at its end, as far as there is a /dev/null."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
    except OSError:  # a root without devices, or no descriptor is left: the message matters more
        return
    os.dup2(nowhere, output.STDOUT)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
