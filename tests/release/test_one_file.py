"""The one file, alone in a root, prints and does the same as the package."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
from klog_cli import command_catalog

from tests.commands.serve.readers import READERS
from tests.commands.serve.serving import Serving
from tests.conftest import FIXTURES, run_klog
from tests.release.root import WAY, Root, lay_fixtures, log_dirs, one_file
from tests.support.insight import unpack
from tests.support.terminal import press_in_terminal

pytestmark = pytest.mark.release
LARGEST = 35 << 20
COMMANDS = {command.name: command.words for command in command_catalog.read().walk()}
LOG_DIRS = sorted({*map(str, log_dirs(FIXTURES)), "insight/data"})
READING = (
    "describe {}",
    "describe {} --output json",
    "dump {} --deep-iteration --print-data-log",
    "dump {} --output jsonl",
    "verify {} --deep",
    "verify {} --output json",
    "lookup {} --offset 3",
    "fetch {} --offset 0",
    "search {} --value-contains a",
    "stats {}",
    "stats {} --output jsonl",
    "space {} --by segment --output csv --now 2026-01-01T00:00:00Z",
    "timeline {}",
    "doctor {}",
    "groups {}",
    "transactions {}",
    "metadata show {}",
    "recover {}",
    "keys check {} --partitions 3",
    "audit misrouted {}",
    "replicas diff {} {}",
    "plans {}",
    "export {}",
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    return Root(tmp_path_factory.mktemp("root"))


def test_it_is_small() -> None:
    assert one_file().stat().st_size <= LARGEST


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_that_of_the_package(root: Root, name: str) -> None:
    words = (*COMMANDS[name], "--help")
    wanted = run_klog(*words)
    assert wanted.exit_code == 0
    assert root.run(*words) == wanted


@pytest.fixture(scope="module")
def data(root: Root, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixtures, at the same path in the root and outside of it: that path is in klog's output."""
    folder = tmp_path_factory.mktemp("data") / "fixtures"
    lay_fixtures(folder)
    shutil.copytree(folder, root.folder / folder.relative_to("/"))
    return folder


@pytest.mark.parametrize("log_dir", LOG_DIRS)
def test_what_reads_says_the_same(root: Root, data: Path, log_dir: str) -> None:
    """Damaged and old logs among them.  How codecs name damage is theirs: it is the same codecs, isal among them."""
    answered = 0
    for line in READING:
        words = line.replace("{}", str(data / log_dir)).split()
        found, wanted = root.run(*words), run_klog(*words)
        assert found.exit_code == wanted.exit_code, line
        assert found.stdout == wanted.stdout, line
        assert found.stderr == wanted.stderr, line
        answered += wanted.exit_code in (0, 4) and bool(wanted.stdout)
    assert answered >= len(READING) // 2


@pytest.mark.parametrize("words", [["recover"], ["compact", "--policy", "compact"]])
def test_what_changes_changes_the_same(root: Root, tmp_path: Path, words: list[str]) -> None:
    """Same files with the same bytes; plans and backups are left out, for they have names of their own."""
    source = unpack(tmp_path) if words[0] == "compact" else FIXTURES / "crash" / "torn-in-batch"
    ours, theirs = tmp_path / "ours", root.folder / words[0]
    for folder in (ours, theirs):
        shutil.copytree(source, folder)
    before = files(ours)
    wanted, found = (
        run_klog(*words, ours, "--apply", "--quiet"),
        root.run(*words, root.inside(theirs), "--apply", "--quiet"),
    )
    assert (found.exit_code, found.stderr) == (wanted.exit_code, wanted.stderr)
    assert files(theirs) == files(ours) != before


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*-*/*") if path.is_file()}


@pytest.mark.parametrize("client", READERS)
def test_real_clients_are_served_what_the_package_serves(root: Root, data: Path, client: str) -> None:
    """The clients are outside of the root: they share only a port with it."""
    log_dir = data / "insight" / "data"
    start = f"import os, sys; os.execvp('chroot', {root.command()!r} + sys.argv[1:])"
    read = partial(READERS[client], topics=["clicks", "ledger", "state"], isolation="read_committed", group="readers")
    with Serving(log_dir, start=start) as ours, Serving(log_dir) as theirs:
        found, wanted = read(ours.bootstrap), read(theirs.bootstrap)
    assert found == wanted
    assert {row[0] for row in found} == {"clicks", "ledger", "state"}


def test_browse_needs_no_file_of_its_own(root: Root) -> None:
    """A partition is listed and entered in the root, and `q` brings the terminal back."""
    shutil.copytree(FIXTURES / "crash" / "flip-middle", root.folder / "browsed")
    keys = [(b"torn-0", b"\r"), (b"00000000000000000364", b"q")]
    seen, exit_code = press_in_terminal(root.command("browse", "/browsed"), keys, WAY)
    assert exit_code == 0, seen.decode()
    assert seen.rindex(b"\x1b[?1049l") > seen.index(b"00000000000000000364")
    assert b"Traceback" not in seen


def test_browse_checks_and_runs_commands_with_the_same_file() -> None:
    """The partition is checked when it is entered, and `v` shows the output of `klog verify`."""
    keys = [(b"torn-0", b"\r"), (b"bad-crc @301", b"v"), (b"exit code 4", b"q")]
    command = [str(one_file()), "browse", str(FIXTURES / "crash" / "flip-middle")]
    seen, exit_code = press_in_terminal(command, keys, WAY, (120, 40))
    assert exit_code == 0, seen.decode()
    assert b"truncates the log here, at offset 301" in seen


@pytest.mark.parametrize("where", [["export", "{}", "--to", "/rows"], ["spark", "verify", "{}"]])
def test_what_is_not_inside_is_said_in_one_line(root: Root, where: list[str]) -> None:
    """The line names the package to install, without a traceback."""
    log_dir = unpack(root.folder / where[0])
    found = root.run(*(word.replace("{}", root.inside(log_dir)) for word in where))
    assert (found.exit_code, found.stdout, found.stderr.count(b"\n")) == (8, b"", 1)
    assert b"pip install" in found.stderr
