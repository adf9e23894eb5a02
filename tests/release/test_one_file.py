"""The one file, alone in a root, prints and does the same as the package."""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path

import pytest
from klog_cli import command_catalog

from tests.commands.serve.readers import READERS
from tests.commands.serve.serving import Serving
from tests.conftest import FIXTURES, run_klog
from tests.oracles.plain.encode import Record
from tests.release.root import WAY, Root, lay_fixtures, log_dirs, one_file
from tests.schemas.corpus import REGISTRIES, Image
from tests.schemas.random_avro import mutated
from tests.schemas.small_registry import ORDER, make, order
from tests.schemas.test_protobuf_values import ALL, field
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
DECODING = (
    "schemas list {} --deleted",
    "schemas list {} --output json",
    "schemas check {}",
    "schemas check {} --output json",
    "schemas export {} --to -",
    "dump {} --schemas auto --output jsonl",
    "dump {} --schemas auto --output jsonl --json-form canonical",
    "dump {} --schemas auto --output csv",
    "dump {} --schemas auto --output jsonl --reader-schema latest",
    "search {} --schemas auto --where value.id=7",
)
MESSAGE = field(1, 7) + field(3, b"text") + field(4, b"\1\2") + field(5, field(6, 1)) + field(20, field(1, 10**9))
STORED = {
    "AVRO": (ORDER, order(7, "a", "bc")),
    "PROTOBUF": (ALL, b"\0\0\0\0\7\0" + MESSAGE),
    "JSON": ('{"type":"object"}', b'\0\0\0\0\7{"id":7,"price":1.10}'),
}
"""A schema of each kind, and a value with its framing."""


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


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_topics_of_real_registries_are_decoded_the_same(root: Root, image: Image, name: str) -> None:
    folder = image(f"schemas/{name}.tar.gz")
    shutil.copytree(folder, root.folder / folder.relative_to("/"))
    decodes_the_same(root, folder / "data")


@pytest.mark.parametrize("kind", STORED)
def test_damaged_values_are_decoded_the_same(root: Root, tmp_path: Path, kind: str) -> None:
    """The libraries inside are as strict as those of the package."""
    lay_values(root, tmp_path, kind)
    decodes_the_same(root, tmp_path)
    errors = run_klog("dump", tmp_path / "orders-0", "--schemas", tmp_path, "--output", "jsonl").stdout
    assert 100 < errors.count(b'"value_error":') < 1000


def lay_values(root: Root, folder: Path, kind: str) -> None:
    """Write a value by a schema of a kind, and a thousand changed ones, to a log dir at the same path in the root."""
    text, value = STORED[kind]
    numbers = random.Random(11)
    values = [value, *(value[:5] + mutated(numbers, value[5:]) for _ in range(1000))]
    make(folder, [("orders-value", 1, 7, text)], [Record(at, value=one) for at, one in enumerate(values)], kind)
    shutil.copytree(folder, root.folder / folder.relative_to("/"))


def decodes_the_same(root: Root, log_dir: Path) -> None:
    """The log dir is at the same path in the root and outside of it.  A variable of protobuf's changes nothing."""
    other = WAY | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "cpp"}
    for line in DECODING:
        words = line.replace("{}", str(log_dir)).split()
        wanted = run_klog(*words)
        assert root.run(*words, environment=other) == wanted, line
        assert wanted.exit_code in (0, 4), line
        assert wanted.stdout or line.startswith("search"), line


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
