"""`klog browse`: each screen shows what the command shows that it names, and the disk is only read."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from klog_cli.browse.app import BrowseApp
from klog_cli.browse.command_page import KEYS, CommandPage
from klog_cli.browse.command_run import CommandRun
from klog_cli.browse.lines_view import LinesView
from klog_cli.browse.page import shell_word
from klog_cli.browse.page_screen import PageScreen
from klog_cli.browse.partitions import Narrowing
from klog_cli.display import human_size, range_text
from klog_cli.style import without_marks

from tests.conftest import FIXTURES, Ran, run_klog, run_klog_process, writable_copy
from tests.support.power import tree
from tests.support.terminal import press_in_terminal

MODERN, TORN = FIXTURES / "modern", FIXTURES / "crash/flip-middle"
WIDE, NARROW = (200, 50), (80, 24)
PATIENCE_S = 30


class Walk:
    """An operator in front of the screen."""

    def __init__(self, app: BrowseApp, pilot: Any) -> None:
        self.app, self.pilot = app, pilot

    @property
    def screen(self) -> PageScreen:
        assert isinstance(self.app.screen, PageScreen)
        return self.app.screen

    @property
    def lines(self) -> list[str]:
        """The lines of the screen as a terminal has them."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def rows(self) -> list[str]:
        """All rows of the page, on the screen or not."""
        view = self.screen.query_one(LinesView)
        return [view.page.line(row, view.columns) for row in range(len(view.page))]

    @property
    def command(self) -> list[str]:
        """The arguments of the command that the screen names."""
        assert f"$ {self.screen.page.command}"[:60] in "\n".join(self.lines)
        return list(self.screen.page.words)

    async def until(self, seen: Callable[[], object]) -> None:
        """Wait until *seen* holds."""
        end = time.monotonic() + PATIENCE_S
        while not seen():
            assert time.monotonic() < end, "\n".join(self.lines)
            await self.pilot.pause(0.02)

    async def shows(self, *texts: str) -> None:
        """Wait until all of *texts* are on the screen."""
        await self.until(lambda: all(text in "\n".join(self.lines) for text in texts))

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, key: str, text: str) -> None:
        """Answer a prompt."""
        await self.press(key, *text, "enter")

    async def open(self, row: int) -> None:
        """Go into a row by two clicks of the mouse."""
        before = self.screen
        await self.until(lambda: len(before.page) > row)
        await self.pilot.pause()
        await self.pilot.click("#lines", offset=(5, row), times=2)
        await self.until(lambda: self.app.screen is not before)

    async def shows_below_title(self, lines: list[str]) -> None:
        """Wait until exactly these lines are below the title; empty ones do not count."""
        await self.until(lambda: [line for line in self.lines if line][1 : len(lines) + 1] == lines)

    async def has(self, count: int) -> None:
        """Wait until the page has so many rows."""
        await self.until(lambda: len(self.screen.page) >= count)

    async def ended(self) -> None:
        """Wait for the end of a command."""
        await self.until(lambda: self.screen.page.status.startswith("exit code"))


def walk(
    paths: list[Path],
    steps: Callable[[Walk], Awaitable[None]],
    size: tuple[int, int] = WIDE,
    chosen: Narrowing = Narrowing(),  # noqa: B008
) -> None:
    """Open the screen on *paths* and take *steps*."""

    async def run() -> None:
        app = BrowseApp([str(path) for path in paths], chosen)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await steps(Walk(app, pilot))

    asyncio.run(run())


def printed(words: list[str]) -> Any:
    """Return the JSON that the command prints."""
    ran = run_klog(*words, "-o", "json")
    return json.loads(ran.stdout)


def test_partitions_are_those_of_describe() -> None:
    async def steps(at: Walk) -> None:
        described = printed(at.command)["partitions"]
        await at.shows(described[0]["directory"])
        await at.until(lambda: all(range_text(0, 112) in row for row in at.rows if row.startswith("plain-1 ")))
        rows = {row.split()[0]: row for row in at.rows}
        assert set(rows) == {one["directory"] for one in described}
        for one in described:
            row = rows[one["directory"]]
            assert human_size(one["bytes"]) in row
            start, end = one["log_start_offset"], one["log_end_offset"]
            assert (range_text(start, end - 1) if end > start else "empty") in row
            assert f" {one['segments']} " in row
        sizes = [one["bytes"] for one in described]
        assert at.rows[0].split()[0] == described[sizes.index(max(sizes))]["directory"], "the largest is the first"

    walk([MODERN], steps)


@pytest.mark.parametrize("with_mouse", [False, True])
def test_the_way_down_to_the_records(with_mouse: bool) -> None:
    """Log dir, partition, segment, batch, records, and back: each is what its command prints."""

    async def enter(at: Walk, row: int) -> None:
        if with_mouse:
            await at.open(row)
        else:
            await at.until(lambda: len(at.screen.page) > row)
            await at.press("home", *["down"] * row, "enter")

    async def steps(at: Walk) -> None:
        await at.shows("torn-0")
        await enter(at, 0)
        await at.until(lambda: "364–409" in at.rows[5] if len(at.rows) > 5 else False)
        for one, row in zip(printed(at.command)["segment_list"], at.rows, strict=True):
            row = without_marks(row)
            assert row.startswith(one["file"])
            for part in (human_size(one["bytes"]), range_text(one["base_offset"], one["last_offset"])):
                assert part in row
            assert row.split()[4:6] == [str(one["batches"]), str(one["records"])] or one["batches"] is None
        await enter(at, 4)
        await at.until(lambda: at.screen.page.status.endswith("damaged place"))
        batches = [json.loads(line) for line in run_klog(*at.command).stdout.splitlines()]
        assert len(batches) == len(at.rows)
        for one, row in zip(batches, at.rows, strict=True):
            assert ("✗" in row) is not one["crc_holds"]
            row = without_marks(row).replace("✗", "")
            cells = [str(one["position"]), range_text(one["base_offset"], one["last_offset"]), str(one["records"])]
            assert row.split()[:3] == cells
            assert human_size(one["size"]) in row
            assert f" {one['codec']} " in row
        for row, least in ((1, 2), (2, 3)):  # an intact batch, and a damaged one
            await enter(at, row)
            await at.has(least)
            printed_lines = run_klog(*at.command).stdout.decode().splitlines()
            await at.shows_below_title(printed_lines[1:])
            await at.press("escape")
        for _ in range(2):
            await at.press("escape")
        assert "torn-0" in at.rows[0]
        assert "bad-crc @301" in at.rows[0], "the check ran where one went"

    walk([TORN], steps)


COMMANDS = {
    "d": "doctor", "s": "space", "G": "groups", "T": "transactions", "L": "timeline", "v": "verify",
}  # fmt: skip


def words_of(text: str) -> list[str]:
    return [word for word in text.split() if word != "\\"]


@pytest.mark.parametrize(("key", "name"), COMMANDS.items())
def test_keys_show_the_output_of_other_commands(key: str, name: str) -> None:
    async def steps(at: Walk) -> None:
        await at.shows("tx-0")
        await at.press(key)
        await at.ended()
        assert at.command[0] == name
        ran = run_klog_process(*at.command)
        shown = "\n".join(at.rows)
        shown = shown.encode().decode().replace("\x1b[0m", "")
        for code in ("1", "2", "31", "32", "33", "36"):
            shown = shown.replace(f"\x1b[{code}m", "")
        assert sorted(words_of(ran.stdout.decode())) == sorted(words_of(shown)) or name == "space"
        assert at.screen.page.status == f"exit code {ran.exit_code}"
        await at.press("escape")
        assert at.screen.page.words[0] == "describe"

    walk([MODERN], steps)


def test_the_bytes_of_a_damaged_batch() -> None:
    async def steps(at: Walk) -> None:
        await at.press("b")
        await at.shows("choose a batch first")
        await at.type("g", "301")
        view = at.screen.query_one(LinesView)
        await at.until(lambda: len(at.rows) and "301–303" in at.rows[view.cursor])
        await at.press("b")
        await at.ended()
        log = TORN / "torn-0/00000000000000000296.log"
        assert at.command == ["bytes", str(log), "--position", "818"]
        await at.shows("CRC DOES NOT MATCH")

    walk([TORN], steps)


def test_several_disks_begin_with_a_list_and_show_the_fork() -> None:
    disks = [FIXTURES / f"replicas/split/broker-{node}" for node in (1, 2, 3)]

    async def steps(at: Walk) -> None:
        await at.until(lambda: "KiB" in at.rows[2])
        for disk, row in zip(disks, at.rows, strict=True):
            facts = printed(["describe", str(disk)])
            assert row.split() == [
                str(disk), str(facts["node_id"]), str(len(facts["partitions"])),
                *human_size(sum(one["bytes"] for one in facts["partitions"])).split(),
            ]  # fmt: skip
        await at.press("r")
        await at.ended()
        assert at.command == ["replicas", "diff", *map(str, disks)]
        assert "orders-0" in "\n".join(at.rows)
        await at.press("escape", "down", "enter")
        await at.until(lambda: at.screen.page.watched == str(disks[1]))

    walk(disks, steps)


def test_topics_and_partitions_narrow_the_list() -> None:
    async def steps(at: Walk) -> None:
        await at.until(lambda: len(at.screen.page) > 0)
        assert at.command == ["describe", str(MODERN), "-t", "plain*", "-p", "plain-1"]
        assert [row.split()[0] for row in at.rows] == [
            one["directory"] for one in printed(list(at.command))["partitions"]
        ]
        await at.press("R")
        await at.until(lambda: [row.split()[0] for row in at.rows] == ["plain-1"])

    walk([MODERN], steps, chosen=Narrowing(["plain*"], [("plain", 1)]))
    ran = run_klog("browse", MODERN, "-t", "plian")
    assert ran.exit_code == 16
    assert b"no topic plian" in ran.stderr


def test_a_partition_or_a_file_can_be_the_first_screen() -> None:
    async def partition(at: Walk) -> None:
        await at.shows("00000000000000000000.log")
        assert at.command == ["describe", str(MODERN / "plain-1")]

    async def log(at: Walk) -> None:
        await at.shows("intact batch")

    async def index(at: Walk) -> None:
        await at.ended()
        assert at.command[0] == "describe"

    walk([MODERN / "plain-1"], partition)
    walk([MODERN / "plain-1/00000000000000000000.log"], log)
    walk([MODERN / "plain-1/00000000000000000000.index"], index)


def test_prompts_go_to_an_offset_a_time_and_a_text() -> None:
    async def steps(at: Walk) -> None:
        await at.shows("torn-0")
        await at.type("g", "301")
        await at.until(lambda: at.screen.page.watched.endswith("00000000000000000296.log"))
        view = at.screen.query_one(LinesView)
        await at.until(lambda: at.screen.page.status.endswith("damaged place") and view.cursor > 0)
        assert "301–303" in at.rows[view.cursor]
        await at.type("g", "-1")
        await at.until(lambda: at.screen.page.watched.endswith("00000000000000000364.log"))
        await at.type("g", "99999")
        await at.shows("99999")
        await at.press("escape", "escape")
        await at.type("t", "2025-06-15T15:06:40Z")
        await at.until(lambda: at.screen.page.watched.endswith("00000000000000000000.log"))
        await at.until(lambda: at.screen.page.status.endswith("es"))
        await at.type("slash", "11981")
        view = at.screen.query_one(LinesView)
        await at.until(lambda: "11981" in at.rows[view.cursor])
        await at.type("slash", "nothing has this")
        await at.shows("no row has nothing has this")
        await at.type("g", "x")
        await at.shows("x is no offset")

    walk([TORN], steps, NARROW)


def test_orders_keys_copy_and_the_first_screen() -> None:
    async def steps(at: Walk) -> None:
        await at.shows("tx-0")
        sizes = list(at.rows)
        for name in ("damage", "age", "name", "size"):
            await at.press("o")
            await at.shows(f"(by {name})")
            if name == "name":
                names = [row.split()[0] for row in at.rows]
                assert names == sorted(names)
        assert [row.split()[0] for row in at.rows] == [row.split()[0] for row in sizes]
        await at.press("y")
        assert at.app.clipboard == at.screen.page.command
        await at.press("escape")
        await at.shows("this is the first screen: q quits")
        await at.press("question_mark")
        await at.shows("consumer groups")
        row = [one[0] for one in KEYS].index("verify")
        await at.pilot.click("#lines", offset=(5, row), times=2)
        await at.ended()
        assert at.command[0] == "verify"
        await at.press("q")
        assert at.app.return_value == 0

    walk([MODERN], steps, NARROW)


HOSTILE = "[red]x[/] \x1b[31mred\x1b[0m \u202eright\u202c é\u0301 東京 שלום [@click=app.quit]q[/]\x07"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A log dir with markup and control characters in records and in the name of a partition."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"topic": "calm", "partition": 0, "key": HOSTILE, "value": HOSTILE}) + "\n")
    assert run_klog("write", rows, "--to", tmp_path / "data").exit_code == 0
    shutil.copytree(tmp_path / "data/calm-0", tmp_path / "data" / "[red]東京\u202e\x1b[31m[b]-1")
    return tmp_path / "data"


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_hostile_names_and_values_are_text(hostile: Path, size: tuple[int, int]) -> None:
    """Nothing from a disk is markup or a control character, and lines are as wide as the screen."""

    def check(at: Walk) -> None:
        for line in at.lines:
            assert line.isprintable(), line
        strips = at.app.screen._compositor.render_strips()
        assert {sum(segment.cell_length for segment in strip) for strip in strips} == {size[0]}

    async def steps(at: Walk) -> None:
        await at.shows("[red]東京\\u202e\\x1b[31"[:12])
        check(at)
        await at.type("slash", "[red]")
        await at.until(lambda: "[red]" in at.rows[at.screen.query_one(LinesView).cursor])
        await at.press("enter")
        await at.shows("00000000000000000000")
        check(at)
        await at.shows("$'")
        await at.press("enter")
        await at.shows("intact batch")
        await at.press("enter")
        await at.shows("[red]x[/] \\x1b[31mred")
        check(at)

    walk([hostile], steps, size)


def test_commands_of_hostile_paths_can_be_pasted() -> None:
    for text in ("plain/tx-0", "it's", "a b", "\x1b[31m", "\udcff", "東京", "\u202e'\\"):
        word = shell_word(text)
        assert word.isprintable()
        said = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
        assert said.stdout == os.fsencode(text)


def test_a_disk_that_changes_or_vanishes_is_said(tmp_path: Path) -> None:
    data = writable_copy(TORN, tmp_path / "data")

    async def steps(at: Walk) -> None:
        await at.shows("torn-0")
        (data / "new-0").mkdir()
        await at.shows("has changed: R reads it again")
        await at.press("R")
        await at.shows("new-0")
        await at.press("home", "enter")
        await at.until(lambda: at.screen.page.status.startswith("✗"))
        await at.press("enter")
        await at.shows("intact batch")
        shutil.rmtree(data)
        await at.shows("is gone")
        await at.press("enter")
        await at.shows("cannot be listed")
        await at.press("escape", "escape", "escape", "home", "enter")
        await at.shows("cannot be listed")
        await at.press("R", "escape")
        await at.press("d")
        await at.shows("no such directory")

    walk([data], steps)


def test_nothing_on_the_disk_changes(tmp_path: Path) -> None:
    data = writable_copy(TORN, tmp_path / "data")
    before = tree(data)

    async def steps(at: Walk) -> None:
        await at.shows("torn-0")
        await at.press("enter")
        await at.until(lambda: at.screen.page.status.startswith("✗"))
        await at.press("enter")
        await at.shows("intact batch")
        await at.press("enter", "d")
        await at.ended()

    walk([data], steps)
    assert tree(data) == before


OPENED: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and OPENED is not None:
        OPENED.append(os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes) else "")


sys.addaudithook(_note)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The paths of the files that are opened in the block."""
    global OPENED
    OPENED = found = []
    try:
        yield found
    finally:
        OPENED = None


def test_thousands_of_partitions_open_a_screen_of_files(tmp_path: Path) -> None:
    """Names and sizes are there at once; only the partitions on the screen have their files opened."""
    data = tmp_path / "data"
    data.mkdir()
    log = (MODERN / "plain-1/00000000000000000000.log").read_bytes()
    for number in range(5000):
        (data / f"orders-{number}").mkdir()
        (data / f"orders-{number}/00000000000000000000.log").write_bytes(log if number % 50 == 0 else b"")

    async def steps(at: Walk) -> None:
        await at.until(lambda: len(at.screen.page) == 5000)
        await at.until(lambda: "0–112" in at.rows[0])
        await at.press("end")
        await at.until(lambda: "5000/5000" in at.lines[0])
        await at.until(lambda: "empty" in at.rows[-1])

    with opened() as files:
        walk([data], steps)
    logs = {path for path in files if path.endswith(".log") and str(data) in path}
    assert 2 <= len(logs) <= 4 * WIDE[1], len(logs)


def test_escape_ends_a_command_at_once(tmp_path: Path) -> None:
    run = CommandRun(["serve", "--listen", "127.0.0.1:0", str(MODERN)])
    page = CommandPage(["serve"], str(MODERN), (str(MODERN), str(MODERN)))
    page._run = run

    async def steps(at: Walk) -> None:
        await at.shows("tx-0")
        at.app.push_screen(PageScreen(page))
        await at.shows("running; Esc cancels")
        await at.until(lambda: run._process is not None)
        begin = time.monotonic()
        await at.press("escape")
        await at.until(lambda: run._process is not None and run._process.poll() is not None)
        assert time.monotonic() - begin < 5
        assert run._process is not None
        assert run._process.returncode == -signal.SIGKILL

    walk([MODERN], steps)


# in a terminal


def in_terminal(size: tuple[int, int], keys: list[tuple[bytes, bytes]], *program: str) -> tuple[bytes, int]:
    """Run klog in a terminal; press a key when its text has been seen.  Return the output and the exit code."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return press_in_terminal([sys.executable, *program], keys, environment, size)


@pytest.mark.parametrize("size", [NARROW, WIDE])
def test_in_a_real_terminal(size: tuple[int, int]) -> None:
    keys = [(b"torn-0", b"\r"), (b"00000000000000000364", b"q")]
    seen, code = in_terminal(size, keys, "-m", "klog_cli.app", "browse", str(TORN))
    assert code == 0
    assert seen.rindex(b"\x1b[?1049l") > seen.index(b"\x1b[?1049h"), "the screen of before is back"
    assert b"Traceback" not in seen


def test_interrupting_restores_the_terminal() -> None:
    seen, code = in_terminal(NARROW, [(b"torn-0", b"\x03")], "-m", "klog_cli.app", "browse", str(TORN))
    assert code == 32
    assert b"\x1b[?1049l" in seen


def test_without_textual_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['textual'] = None; sys.argv = ['klog', *sys.argv[1:]]\n"
        "from klog_cli.app import main; sys.exit(main())"
    )
    seen, code = in_terminal(NARROW, [], "-c", program, "browse", str(TORN))
    assert b"klog: browse needs Textual: pip install 'klog[tui]'" in seen
    assert code == 8


def test_without_a_terminal_it_is_a_usage_error() -> None:
    ran: Ran = run_klog_process("browse", MODERN)
    assert ran.exit_code == 16
    assert ran.stdout == b""
    assert b"browse needs a terminal" in ran.stderr
    assert run_klog("browse").exit_code == 16
