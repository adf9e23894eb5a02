"""Every command on screens of 60, 80 and 120 columns: nothing is broken over two lines, and nothing acts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog_cli.display import time_text

from tests.commands.groups.test_hostile import member
from tests.commands.serve.coordinator_logs import ONGOING, T, commit_of, state, write_batches
from tests.conftest import FIXTURES, run_klog
from tests.oracles.plain.encode import Record, batch
from tests.support import every_command
from tests.support.every_command import ON_ONE_DISK, ON_SEVERAL_DISKS, PASSING
from tests.support.terminal import COLOURS, on_screen

WIDTHS = (60, 80, 120)
ACTING = re.compile(r"[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that act on a terminal: control characters, and Unicode's marks that end lines or reverse them."""
HOSTILE = "\x1b[2J\x1b[35m\x07\x85\x9b2J\u202eevil\u2066\r\n\t"
"""It clears the screen, asks for a colour that klog never uses, rings, and turns the line around."""
TEXT = {
    name: words
    for name, words in {**ON_ONE_DISK, **ON_SEVERAL_DISKS}.items()
    if name != "serve" and "--output" not in words and " new" not in words and not name.startswith(("spark", "search"))
}
LOG_DIRS = (
    *("legacy", "v39/data", "v39/data1", "compaction/before", "compaction/after", "crash/flip-middle"),
    *("crash/torn-in-batch", "replicas/keys/broker-1", "replicas/quorum/broker-1", "replicas/split/broker-1"),
)
EVERYWHERE = (
    *("describe", "verify", "doctor", "space --now 2025-06-18T00:00:00Z", "stats", "groups", "transactions"),
    *("timeline --limit 50", "recover", "recover --salvage", "compact --policy compact", "keys check", "audit headers"),
    *("records --full -n 3", "metadata show", "metadata history --quorum", "plans"),
)
"""Commands that take a log dir and change nothing."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screens")
    every_command.disks(folder)
    every_command.several(folder)
    return folder


def tokens(document: object) -> Iterator[str]:
    """Yield the words of all values of a JSON document, and its times as people read them."""
    if isinstance(document, dict):
        for value in document.values():
            yield from tokens(value)
    elif isinstance(document, list):
        for value in document:
            yield from tokens(value)
    elif isinstance(document, str):
        yield from document.split()
    elif isinstance(document, int | float) and not isinstance(document, bool):
        yield str(document)
        if isinstance(document, int) and document > 10**12:
            yield time_text(document)


def words_of(text: str) -> set[str]:
    return set(text.split()) | set(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z", text))


@pytest.mark.parametrize("name", TEXT)
def test_no_token_is_broken_over_two_lines(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word that both the JSON output and a pipe have is in one piece on a screen, unless it is wider than that."""
    monkeypatch.chdir(place)
    check_tokens(TEXT[name].split())


@pytest.mark.parametrize("log_dir", LOG_DIRS)
@pytest.mark.parametrize("command", EVERYWHERE)
def test_no_token_of_another_fixture_is_broken(command: str, log_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FIXTURES)
    check_tokens(f"{command} {log_dir}".split())


def check_tokens(words: list[str]) -> None:
    """Compare what screens show with the words of a pipe and of JSON."""
    wanted = words_of(PASSING.sub(b"", run_klog(*words).stdout).decode())
    data = run_klog(*words, "--output", "json").stdout
    if data.startswith((b"{", b"[")):
        wanted &= set(tokens(json.loads(data)))
    for columns in WIDTHS:
        shown = on_screen(*words, columns=columns)
        assert not ACTING.search(COLOURS.sub("", shown.text))
        assert {word for word in wanted if len(word) < columns - 4} - words_of(shown.plain) == set()


@pytest.fixture(scope="module")
def hostile_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same disk, with records, groups and directories whose names and contents are hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    every_command.disks(folder)
    text = HOSTILE.encode()
    group = f"g{HOSTILE}"
    rows = [commit_of(1, 0, group=group, topic=f"t{HOSTILE}")[:2], member(group, f"client{HOSTILE}")]
    write_batches(folder / "data/t-0", batch([Record(0, T, text, text, ((text, text),))]))
    write_batches(folder / f"data/n{HOSTILE}-0", batch([Record(0, T, text, text)]), b"torn")
    write_batches(folder / "data/__consumer_offsets-7", *(batch([Record(at, T, *row)]) for at, row in enumerate(rows)))
    key, value, at = state(ONGOING, 0, named=[(f"t{HOSTILE}", 0)], name=f"txn{HOSTILE}")
    write_batches(folder / "data/__transaction_state-7", batch([Record(0, at, key, value)]))
    return folder


@pytest.mark.parametrize("name", [name for name in TEXT if name in ON_ONE_DISK])
def test_nothing_of_a_disk_acts_on_a_screen(name: str, hostile_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hostile_place)
    for columns in WIDTHS:
        shown = on_screen(*TEXT[name].split(), columns=columns)
        assert not ACTING.search(COLOURS.sub("", shown.text))
        assert "\x1b[35m" not in shown.text
