"""Manners: exit codes, one-line errors, near misses, closed pipes, whole files."""

from __future__ import annotations

import errno
import os
import platform
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import klog as library
import pytest
from klog.base.errors import DamagedError, KlogError, UsageError
from klog.kernel import hardware_crc
from klog_cli import app, command_tree, output

from tests.conftest import FIXTURES, Ran
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS, some_records
from tests.support.bad_sectors import spoil

Klog = Callable[..., Ran]
A, B, C = (batch(some_records(3 * i)) for i in range(3))
COMMANDS = command_tree.COMMANDS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "orders-3"
    path.mkdir()
    (path / f"{0:020}.log").write_bytes(A + B + C)
    return path


@pytest.fixture
def log(folder: Path) -> Path:
    return folder / f"{0:020}.log"


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | more


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "klog_cli.app", *map(str, arguments)]


# help


def test_the_version_names_klog_python_and_kernel_and_the_crc_in_use(klog: Klog) -> None:
    done = klog("--version")
    assert done.exit_code == 0
    assert done.stderr == b""
    crc = "hardware" if hardware_crc() else "portable"
    versions = f"klog {library.__version__}, Python {platform.python_version()}, kernel {library.__version__}"
    assert done.stdout.decode() == f"{versions} with {crc} CRC-32C\n"


def test_the_version_is_printed_without_a_parser_of_options() -> None:
    """Loops over thousands of files and health checks pay for the start: Typer is two thirds of it, typing the next."""
    code = "import sys; from klog_cli.app import main; main(); print({'typer', 'typing', 'json'} & {*sys.modules})"
    command = [sys.executable, "-S", "-c", code, "--version"]
    done = subprocess.run(command, env=environment(), capture_output=True, check=True)
    assert done.stdout.splitlines()[-1] == b"set()"


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"], []], ids=" ".join)
def test_help_shows_the_exit_codes(klog: Klog, arguments: list[str]) -> None:
    """Scripts are written by them."""
    done = klog(*arguments)
    text = " ".join(done.stdout.decode().split())
    assert (done.exit_code, done.stderr) == (0, b"")
    assert " ".join(command_tree.EXIT_CODES.split()) in text
    for code in (0, 1, 4, 8, 16, 32):
        assert f" {code} " in command_tree.EXIT_CODES


def test_help_names_every_command(klog: Klog) -> None:
    text = klog("--help").stdout.decode()
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", text, re.MULTILINE)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], *([group, "--help"] for group in ("spark", "replicas", "metadata", "keys", "audit"))],
    ids=" ".join,
)
def test_each_command_has_a_summary_that_fits_80_columns(
    klog: Klog, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence that ends in three dots is less useful than a shorter one."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = klog(*arguments).stdout.decode().partition("\nOptions:\n")[0].split("\n\n")
    headings = ("Commands", *command_tree.PURPOSES)
    summaries = [line for part in shown if part.split(":")[0] in headings for line in part.splitlines()[1:]]
    assert len(summaries) >= (len(COMMANDS) if arguments == ["--help"] else 1)
    assert [line for line in summaries if not re.fullmatch(r"  [a-z]+ +[A-Z].*[^.]\.", line)] == []


def test_nothing_at_all_shows_the_help(klog: Klog) -> None:
    """It is readable text, not one line full of backslashes: newcomers see it first."""
    done = klog()
    shown = (done.stdout + done.stderr).decode()
    assert "\\n" not in shown
    assert "Usage: klog" in shown
    assert any(line.strip().startswith("dump ") for line in shown.splitlines())


# usage


@pytest.mark.parametrize(
    ("arguments", "suggested"),
    [
        (["dmup"], "dump"),
        (["dump", "--outptu", "jsonl", "x"], "--output"),
        (["dump", "--from-ofset", "5", "x"], "--from-offset"),
        (["dump", "--output", "jsnl", "x"], "jsonl"),
        (["dump", "--as", "indx", "x"], "index"),
        (["dump", "--isolation", "read_comitted", "x"], "read_committed"),
        (["dump", "--output", "csv", "--values", "base46", "x"], "base64"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else given,
)
def test_near_misses_are_suggested(klog: Klog, arguments: list[str], suggested: str) -> None:
    done = klog(*arguments)
    assert (done.exit_code, done.stdout) == (16, b"")
    said = done.stderr.decode()
    for typed in arguments:
        said = said.replace(f"{typed}:", "")
    assert suggested in said
    assert done.stderr.count(b"\n") == 1
    assert done.stderr.startswith(b"klog: ")


def test_a_topic_that_is_not_there_is_answered_with_near_misses(klog: Klog, folder: Path) -> None:
    (folder.parent / "meta.properties").write_bytes(b"version=1\nnode.id=1\ncluster.id=abc\n")
    done = klog("dump", "--topic", "ordres", folder.parent)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert b"orders" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["dump"],
        ["dump", "--nope"],
        ["dump", "--limit", "0", "x"],
        ["dump", "--limit", "many", "x"],
        ["dump", "--jobs", "0", "x"],
        ["dump", "--max-bytes", "lots", "x"],
        ["dump", "--from-time", "tomorrow", "x"],
        ["dump", "--key", "hex:zz", "x"],
        ["dump", "--offsets-decoder", "--output", "jsonl", "x"],
        ["dump", "--values", "hex", "x"],
        ["--nope"],
        ["nothing"],
    ],
    ids=" ".join,
)
def test_a_mistake_in_usage_is_one_line_and_16(klog: Klog, arguments: list[str]) -> None:
    done = klog(*arguments)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert done.stderr.startswith(b"klog: ")
    assert done.stderr.count(b"\n") == 1


def test_a_message_needs_no_dev_null(klog: Klog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root may have no devices."""
    wanted = klog("dump", "--nope")
    monkeypatch.setattr(os, "devnull", "/nowhere/null")
    assert klog("dump", "--nope") == wanted


VERBS = {
    "spark": ["verify"],
    "replicas": ["simulate"],
    "remote": ["ls"],
    "metadata": ["show"],
    "keys": ["check"],
    "schemas": ["list"],
    "audit": ["misrouted"],
    "write": ["--to", "out", "--input-format", "log"],
    "assign": ["--check"],
    "adopt": ["--to", str(FIXTURES / "modern")],
    "report": ["--to", "out.html"],
    "fetch": ["--offset", "0"],
}
WITHOUT_PATHS = ("partition", "follow", "explain", "completion")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT_PATHS])
def test_a_path_that_is_not_there_says_what_was_expected(klog: Klog, tmp_path: Path, name: str) -> None:
    more = ["--to", tmp_path / "out"] if name == "export" else VERBS.get(name, ())
    done = klog(name, *more, tmp_path / "nowhere")
    assert done.exit_code == 16
    plan = "a plan's file"
    others = {"apply": plan, "undo": plan, "replicas": "a file of events", "write": "a file of records, or a log dir"}
    expected = others.get(name, "a log dir")
    assert f"expected {expected}" in done.stderr.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from-offset", str(10**30)],
        ["--to-offset", str(-(10**30))],
        ["--limit", str(10**30)],
        ["--from-time", str(10**30)],
        ["--to-time", f"{10**30}h ago"],
        ["--max-bytes", str(10**30)],
        ["--max-batch-bytes", str(10**30)],
        ["--max-batch-bytes", "0"],
        ["--jobs", str(10**30)],
    ],
    ids=lambda given: given[0] if isinstance(given, list) else given,
)
@pytest.mark.parametrize("form", ["text", "jsonl"])
def test_numbers_beyond_64_bits_are_no_crash(klog: Klog, log: Path, arguments: list[str], form: str) -> None:
    done = klog("dump", "--output", form, *arguments, log)
    assert done.exit_code in (0, 4, 16)
    assert b"Traceback" not in done.stderr


# exit codes


def test_a_whole_file_is_0(klog: Klog, log: Path) -> None:
    assert klog("dump", log).exit_code == klog("dump", "--output", "jsonl", log).exit_code == 0


def test_damage_is_4(klog: Klog, log: Path) -> None:
    damage(log)
    assert klog("dump", log).exit_code == klog("dump", "--output", "jsonl", log).exit_code == 4


def test_exit_codes_add_up(klog: Klog, log: Path, tmp_path: Path) -> None:
    """Damage, a file that is none, a file that is not there: each is counted once."""
    damage(log)
    pipe, missing = tmp_path / f"{6:020}.log", tmp_path / f"{9:020}.log"
    os.mkfifo(pipe)
    for form in ("text", "jsonl"):
        assert klog("dump", "--output", form, log, pipe).exit_code == 12
        assert klog("dump", "--output", form, log, missing).exit_code == 20
        assert klog("dump", "--output", form, log, missing, missing, pipe).exit_code == 28


def test_a_disk_that_fails_is_8_and_one_line(klog: Klog, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's own text ends there; data follows."""
    log.write_bytes(b"".join(batch([Record(i, MS, None, bytes(1000))]) for i in range(100)))
    spoil(monkeypatch, range(20_480, 24_576))
    done = klog("dump", log)
    assert done.exit_code & 8
    assert b"Input/output error" in done.stderr
    assert b"Traceback" not in done.stderr
    done = klog("dump", "--output", "jsonl", log)
    assert done.exit_code == 12
    assert b"unreadable" in done.stdout
    assert f"{log} @ 20330: unreadable".encode() in done.stderr
    assert done.stdout.count(b"\n") > 90


def test_a_file_that_may_not_be_read_is_8(klog: Klog, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: str, flags: int, *rest: int) -> int:
        if str(path).endswith(".log"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    done = klog("dump", "--output", "jsonl", log)
    assert (done.exit_code, done.stdout) == (8, b"")
    assert done.stderr.decode() == f"{log}: cannot open: Permission denied\n"


def test_what_the_system_refuses_is_one_line_with_the_file(klog: Klog, log: Path) -> None:
    done = klog("dump", "--keys-from", "/nowhere/keys", log)
    assert (done.exit_code, done.stdout) == (8, b"")
    assert done.stderr == b"klog: /nowhere/keys: No such file or directory\n"


def raises(error: BaseException) -> Callable[..., int]:
    def fail(*arguments: object) -> int:
        raise error

    return fail


def test_an_interrupt_is_32(klog: Klog, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klog.commands.dump.dump_files.dump_text", raises(KeyboardInterrupt()))
    done = klog("dump", log)
    assert (done.exit_code, done.stderr) == (32, b"klog: cancelled\n")


def test_an_interrupt_from_the_keyboard_is_32(log: Path) -> None:
    """In a real process, in the middle of its work."""
    one = batch([Record(0, MS, None, bytes(60_000))], codec="zstd")
    log.write_bytes(b"".join(struct.pack(">q", offset) + one[8:] for offset in range(40_000)))
    process = subprocess.Popen(
        command("dump", "--output", "jsonl", log), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (32, b"klog: cancelled\n")


def test_a_second_interrupt_does_not_disturb_the_ending() -> None:
    """Impatience, or one ^C sent to the whole group: a half-written file is still to be removed."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        with pytest.raises(KeyboardInterrupt):
            app._interrupt(signal.SIGINT, None)
        assert all(signal.getsignal(number) is signal.SIG_IGN for number in numbers)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_our_own_mistakes_are_not_hidden(klog: Klog, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has to mend them: the line has the place.  Python's own exit code would be 1, "problems corrected"."""
    monkeypatch.setattr("klog.commands.dump.dump_files.dump_text", raises(ZeroDivisionError("ours")))
    done = klog("dump", log)
    assert (done.exit_code, done.stdout) == (8, b"")
    assert done.stderr.startswith(b"klog: a bug in klog: ZeroDivisionError: ours at test_app.py:")
    assert done.stderr.count(b"\n") == 1


def _too_deep() -> None:
    _too_deep()


def test_memory_and_stack_that_end_are_8(klog: Klog, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("klog.commands.dump.dump_files.dump_text", raises(MemoryError()))
    done = klog("dump", log)
    assert (done.exit_code, done.stderr) == (8, b"klog: not enough memory\n")
    monkeypatch.setattr("klog.commands.dump.dump_files.dump_text", lambda *_: _too_deep())
    done = klog("dump", log)
    assert done.exit_code == 8
    assert b"RecursionError" in done.stderr


@pytest.mark.parametrize(
    "error", [SystemExit(1), SystemExit(0), BrokenPipeError(errno.EPIPE, "Broken pipe"), EOFError()]
)
def test_what_libraries_end_a_process_with_is_8(
    klog: Klog, log: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Typer takes any broken pipe for stdout's, exits with 1, and takes the end of any file for ^C."""
    monkeypatch.setattr("klog.commands.dump.dump_files.dump_text", raises(error))
    assert klog("dump", log).exit_code == 8


def test_a_message_that_cannot_be_made_is_no_other_exit_code(
    klog: Klog, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise MemoryError

    monkeypatch.setattr("klog.commands.dump.dump_files.dump_text", raises(BrokenError()))
    assert klog("dump", log).exit_code == 8


@pytest.mark.parametrize(
    "error",
    [
        KlogError("one line"),
        UsageError("one line"),
        DamagedError("one line"),
        OSError(errno.EIO, "one line"),
        MemoryError(),
        KeyError("one line"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_traceback_is_there_for_the_asking_with_the_same_exit_code(
    klog: Klog, log: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr("klog.commands.dump.dump_files.dump_text", raises(error))
    plain = klog("dump", log)
    assert plain.stderr.count(b"\n") == 1
    monkeypatch.setenv("KLOG_TRACEBACK", "1")
    traced = klog("dump", log)
    assert traced.exit_code == plain.exit_code
    assert traced.stderr.startswith(b"Traceback (most recent call last)")
    assert traced.stderr.count(b"Traceback") == 1
    assert traced.stderr.splitlines()[-1].startswith(plain.stderr.split(b"(")[0].split(b" at ")[0].rstrip())


@pytest.mark.parametrize(
    "words", [("verify", "nowhere"), ("dump", "--nope"), ("verify", "."), ("--help",), ("nothing",)]
)
def test_the_wish_for_a_traceback_changes_no_exit_code(
    klog: Klog, folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(folder)
    plain = klog(*words)
    monkeypatch.setenv("KLOG_TRACEBACK", "1")
    traced = klog(*words)
    assert (traced.exit_code, traced.stdout) == (plain.exit_code, plain.stdout)


# pipes and terminals


def test_a_closed_pipe_ends_quietly(log: Path) -> None:
    """`| head -1`: no traceback, no error text, and an end."""
    log.write_bytes(b"".join(batch(some_records(3 * i)) for i in range(30_000)))
    for arguments in (["--output", "jsonl"], ["--print-data-log"], ["--output", "csv", "--jobs", "4"]):
        process = subprocess.Popen(
            command("dump", *arguments, log), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=120) == 0
        assert process.stderr.read() == b""
        process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "code"), [(["lookup", ".", "--batch", "-"], 0), (["replicas", "simulate", "-"], 16)]
)
def test_a_closed_stdin_is_an_empty_one(folder: Path, arguments: list[str], code: int) -> None:
    """As of some service managers: Python has no sys.stdin then."""
    done = subprocess.run(
        ["bash", "-c", 'exec "$@" <&-', "-", *command(*arguments)],
        capture_output=True,
        env=environment(),
        cwd=folder,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, b"")
    assert done.stderr.count(b"\n") <= 1


def test_help_into_a_closed_pipe_ends_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command("--version"), stdout=writing, stderr=subprocess.PIPE, env=environment(), check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "words", [("--help",), ("dump", "--help"), ("verify", "."), ("verify", "nowhere")], ids=" ".join
)
@pytest.mark.parametrize("what", ["full", "abandoned"])
def test_an_output_that_takes_nothing(folder: Path, words: tuple[str, ...], what: str) -> None:
    """A closed reader has its part; the part that a full disk refuses is lost."""
    reading, writing = os.pipe()
    os.close(reading)
    with open("/dev/full", "wb") as full:
        place = full.fileno() if what == "full" else writing
        done = subprocess.run(
            command(*words), stdout=place, stderr=subprocess.PIPE, env=environment(), cwd=folder, check=False
        )
    os.close(writing)
    usage = 16 if words[-1] == "nowhere" else 0
    assert done.returncode == (usage or (8 if what == "full" else 0)), done
    assert done.stderr.count(b"\n") == (1 if done.returncode else 0), done


@pytest.mark.parametrize(
    ("words", "code"),
    [(("verify", "nowhere"), 24), (("verify", "."), 4), (("dump", "--offset-decoder", "."), 24), (("apply", "x"), 24)],
    ids=str,
)
@pytest.mark.parametrize("what", ["full", "abandoned"])
def test_lines_that_stderr_does_not_take_add_8(folder: Path, words: tuple[str, ...], code: int, what: str) -> None:
    """The user has not seen them, and the exit code reports that; the command continues."""
    reading, writing = os.pipe()
    os.close(reading)
    with open("/dev/full", "wb") as full:
        place = full.fileno() if what == "full" else writing
        done = subprocess.run(
            command(*words), stdout=subprocess.PIPE, stderr=place, env=environment(), cwd=folder, check=False
        )
    os.close(writing)
    assert done.returncode == code, done


_SIGNALLED = """
import os, sys
place, number = sys.argv.pop(1), int(sys.argv.pop(1))
def hook(event, about):
    if event == "open" and str(about[0]).startswith(place) and about[2] & os.O_CREAT:
        os.kill(os.getpid(), number)  # the handler runs as soon as the file is there
sys.addaudithook(hook)
from klog_cli.app import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize(
    "words",
    [
        ("dump", "--output", "jsonl", "--to"),
        ("dump", "--output", "parquet", "--to"),
        ("export", "--to"),
        ("report", "--to"),
        ("verify", "--output", "prometheus", "--to"),
        ("write", "--topic", "new", "--to"),
        ("compact", "--policy", "compact", "--to"),
    ],
    ids=lambda words: words[0],
)
def test_a_signal_leaves_no_unfinished_output(
    folder: Path, tmp_path: Path, words: tuple[str, ...], number: signal.Signals
) -> None:
    """A service manager stops with SIGTERM, a closed terminal with SIGHUP; both as soon as there is a file."""
    (tmp_path / "out").mkdir()
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    arguments = [*words[:-1], folder, words[-1], tmp_path / "out" / "of.html"]
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALLED, tmp_path / "out", str(int(number)), *arguments],
        capture_output=True,
        env=environment(),
        cwd=tmp_path,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (32, b"klog: cancelled\n")
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_nohup_keeps_its_word(log: Path) -> None:
    """A signal that whoever started klog has ignored stays ignored."""
    code = "import signal,os,sys; signal.signal(signal.SIGHUP,signal.SIG_IGN); os.execv(sys.executable,sys.argv[1:])"
    one = batch([Record(0, MS, None, bytes(60_000))], codec="zstd")
    log.write_bytes(b"".join(struct.pack(">q", offset) + one[8:] for offset in range(2000)))
    process = subprocess.Popen(
        [sys.executable, "-c", code, *command("dump", "--output", "jsonl", log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout
    process.stdout.read(1)
    process.send_signal(signal.SIGHUP)
    _, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, b"")


def on_a_terminal(*arguments: str | Path, **more: str) -> bytes:
    """Return the output for a person: stdout and stderr on a terminal."""
    process, terminal = pty.fork()
    if process == 0:
        os.execve(sys.executable, command(*arguments), environment(**({"TERM": "xterm-256color"} | more)))
    seen, until = b"", time.monotonic() + 120
    while time.monotonic() < until:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side has closed it
            break
        if not piece:
            break
        seen += piece
    os.waitpid(process, 0)
    os.close(terminal)
    return seen


COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-9]|4[0-9]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")


@pytest.mark.parametrize("arguments", [["verify"], ["recover"]], ids=" ".join)
def test_severities_are_coloured_on_a_terminal_alone(
    klog_process: Klog, folder: Path, log: Path, arguments: list[str]
) -> None:
    """Damage has to catch the eye; in a pipe, under NO_COLOR and on a dumb terminal there is no escape sequence."""
    damage(log)
    seen = on_a_terminal(*arguments, folder)
    assert b"  \x1b[31mdamage \x1b[0m  bad-crc" in seen
    if arguments == ["verify"]:
        assert b"  \x1b[33mwarning\x1b[0m  index-missing" in seen
    for plain in (on_a_terminal(*arguments, folder, NO_COLOR="1"), on_a_terminal(*arguments, folder, TERM="dumb")):
        assert b"damage   bad-crc" in plain
        assert not COLOUR.search(plain)
    piped = klog_process(*arguments, folder)
    assert b"  damage   bad-crc" in piped.stdout
    assert b"\x1b" not in piped.stdout + piped.stderr


def test_no_color_holds(folder: Path, log: Path) -> None:
    assert COLOUR.search(b"\x1b[1;31mred\x1b[0m")
    damage(log)
    for arguments in (
        *(["describe", folder], ["verify", folder], ["recover", folder]),
        *(["--help"], ["dump", "--help"], ["dump", "--output", "jsnl", folder]),
    ):
        seen = on_a_terminal(*arguments, NO_COLOR="1")
        assert len(seen) > 50
        assert not COLOUR.search(seen)


def test_parquet_is_nothing_for_a_terminal(log: Path) -> None:
    assert b"Parquet cannot be printed on a terminal: --to FILE" in on_a_terminal("dump", "--output", "parquet", log)


def test_in_a_pipe_nothing_is_coloured_or_drawn(klog_process: Klog, folder: Path) -> None:
    for arguments in (["describe", folder], ["verify", folder], ["--help"], ["dump", folder]):
        done = klog_process(*arguments)
        assert b"\x1b" not in done.stdout + done.stderr
        assert not re.search("[━│┃─┏╭]", done.stdout.decode())


def test_quiet_silences_notes_and_never_errors(klog: Klog, log: Path) -> None:
    arguments = ["dump", "--from-time", "2026-11-21", log]
    assert b"UTC is assumed" in klog(*arguments).stderr
    assert klog(*arguments, "--quiet").stderr == b""
    assert b"UTC is assumed" in klog(*arguments).stderr, "the next call is not quiet"
    damage(log)
    assert klog("dump", "--output", "jsonl", "--quiet", log).stderr.count(b"bad CRC") == 1
    assert klog("dump", "--quiet", log.with_name("nowhere.log")).stderr.count(b"nowhere.log") == 1


def test_a_hostile_file_name_does_not_reach_the_terminal_raw(klog: Klog, tmp_path: Path) -> None:
    path = tmp_path / "evil\x1b[2J\n.log"
    path.write_bytes(b"garbage of some length, in any case more than an entry's head")
    for form in ("text", "jsonl"):
        done = klog("dump", "--output", form, path)
        assert b"\x1b" not in done.stderr
        assert done.stderr.count(b"\n") == 1
    assert b"\x1b" not in klog("dump", "--output", "parquet", path.with_suffix(".bin")).stderr


def test_names_that_are_no_utf_8_are_found(klog_process: Klog, tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff-3"
    os.mkdir(folder)
    path = folder + b"/00000000000000000000.log"
    with open(path, "wb") as file:
        file.write(A)
    done = klog_process("dump", os.fsdecode(path))
    assert done.exit_code == 0
    assert done.stdout.startswith(b"Dumping " + path + b"\n")


# --to


@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
def test_to_a_file_goes_what_would_go_to_stdout(klog: Klog, log: Path, tmp_path: Path, form: str) -> None:
    there = tmp_path / "out"
    done = klog("dump", "--output", form, "--to", there, log)
    assert (done.exit_code, done.stdout) == (0, b"")
    assert done.stderr.decode().startswith(f"wrote {there} (")
    assert there.read_bytes() == klog("dump", "--output", form, log).stdout
    assert sorted(os.listdir(tmp_path)) == ["orders-3", "out"]


def test_to_a_file_goes_parquet(klog: Klog, log: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    assert klog("dump", "--output", "parquet", "--to", tmp_path / "out", log).exit_code == 0
    assert pq.read_table(tmp_path / "out")["offset"].to_pylist() == list(range(9))
    done = klog("dump", "--output", "parquet", log)
    assert done.stdout[:4] == done.stdout[-4:] == b"PAR1", "a pipe takes it as well"


def test_damage_leaves_a_whole_file_and_says_4(klog: Klog, log: Path, tmp_path: Path) -> None:
    damage(log)
    done = klog("dump", "--output", "jsonl", "--to", tmp_path / "out", log)
    assert done.exit_code == 4
    assert done.stderr.count(b"\n") == 2
    assert (tmp_path / "out").read_bytes().count(b"\n") == 7


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device"), ZeroDivisionError()]
)
def test_half_a_file_never_has_the_name(
    klog: Klog, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The old one stays, and nothing lies beside it."""
    there = tmp_path / "out"
    there.write_bytes(b"old")
    monkeypatch.setattr("klog.commands.dump.dump_files._log_lines", raises(error))
    try:
        done = klog("dump", "--output", "jsonl", "--to", there, log)
        assert done.exit_code == (32 if isinstance(error, KeyboardInterrupt) else 8)
    except ZeroDivisionError:
        pass
    assert there.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["orders-3", "out"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_is_full_at_the_end_leaves_nothing(
    klog: Klog, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(os, call, raises(OSError(errno.ENOSPC, "No space left on device")))
    done = klog("dump", "--to", tmp_path / "out", log)
    assert done.exit_code == 8
    assert b"No space left on device" in done.stderr
    assert os.listdir(tmp_path) == ["orders-3"]


def test_to_a_place_where_no_file_can_be(klog: Klog, log: Path, tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    for there in (tmp_path / "nowhere" / "out", tmp_path / "directory"):
        done = klog("dump", "--to", there, log)
        assert done.exit_code in (8, 16)
        assert done.stderr.count(b"\n") == 1
        assert there.name.encode() in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["directory", "orders-3"]
    assert os.listdir(tmp_path / "directory") == []


def test_a_log_is_not_overwritten_by_its_own_dump(klog: Klog, log: Path, tmp_path: Path) -> None:
    """A slip of the keyboard would delete the only copy; also if its directory was named."""
    before = log.read_bytes()
    for path in (log, log.parent, tmp_path):
        done = klog("dump", "--output", "jsonl", "--to", log, path)
        assert log.read_bytes() == before
        assert done.exit_code in (8, 16)


def test_a_usage_error_makes_no_file(klog: Klog, folder: Path, tmp_path: Path) -> None:
    assert klog("dump", "--to", tmp_path / "out", "--output", "jsnl", folder).exit_code == 16
    assert klog("dump", "--to", tmp_path / "out", "--topic", "nope", tmp_path).exit_code == 16
    assert "out" not in os.listdir(tmp_path)


def test_without_a_stderr_results_stay_clean(log: Path, tmp_path: Path) -> None:
    """`2>&-` leaves descriptor 2 free, and the next file opened would get it."""
    damage(log)
    shell = 'exec "$@" 2>&-'
    there = tmp_path / "out"
    arguments = command("dump", "--output", "jsonl", "--to", there, log)
    subprocess.run(["sh", "-c", shell, "sh", *arguments], env=environment(), check=False)
    assert not there.exists() or all(line.startswith(b"{") for line in there.read_bytes().splitlines())


def test_the_app_can_be_built_for_tools() -> None:
    """Completions and the manual page are generated from the same declarations."""
    from typer.main import get_command

    assert set(get_command(command_tree.build()).commands) == set(COMMANDS)  # type: ignore[attr-defined]
    assert output.STDOUT == 1
