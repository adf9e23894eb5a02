"""The help of every command: its groups of options, and its examples, which run as they are typed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from klog_cli.command_class import OPTION_GROUPS
from klog_cli.examples import EXAMPLES

from tests.cli.test_vocabulary import EVERY
from tests.conftest import FIXTURES, Ran
from tools.example_runs import NOT_RUN, make_place, prepare, words_of

Klog = Callable[..., Ran]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for what the examples name: /data, /old, /b1 to /b3 and files."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", EVERY)
def test_each_command_has_examples(name: str, klog: Klog) -> None:
    """In its help, after its options, whose groups have headings."""
    shown = klog(*name.split(), "--help").stdout.decode()
    assert EXAMPLES[name]
    for about, line in EXAMPLES[name]:
        assert f"  # {about}\n  {line}\n" in shown
        assert line.startswith(f"klog {name} ")
        assert len(line) + 2 <= 100
    assert "\nEvery command:\n" in shown
    assert {line.rstrip(":") for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")} <= {
        *OPTION_GROUPS, "Arguments", "Options", "Examples", "Partitioners",
    }  # fmt: skip


EVERY_EXAMPLE = [(name, line) for name, some in EXAMPLES.items() for _, line in some if name not in NOT_RUN]


@pytest.mark.parametrize(("name", "line"), EVERY_EXAMPLE)
def test_examples_run(name: str, line: str, klog: Klog, place: Path) -> None:
    """No example is a mistake in usage, or fails; some find nothing, or damage."""
    make_place(str(place), name)
    prepare(name, str(place))
    words = words_of(line, str(place))
    done = klog(*words)
    assert done.exit_code in (0, 1, 4), (line, done.stderr.decode())


def test_help_about_a_command_is_its_help(klog: Klog) -> None:
    assert klog("help", "replicas", "diff") == klog("replicas", "diff", "--help")
    assert klog() == klog("--help") == klog("help")
    assert (klog().exit_code, klog().stderr) == (0, b"")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_fits_the_screen(width: int, klog: Klog, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example is one line, to be copied; nothing else is longer than the screen."""
    monkeypatch.setitem(os.environ, "COLUMNS", str(width))
    for name in ("", *EVERY):
        shown = (
            klog(*name.split(), "--help").stdout.decode().partition("\nExamples:\n")[0].partition("Partitioners:")[0]
        )
        assert [line for line in shown.splitlines() if len(line) > width and "|" not in line] == [], name


def test_what_is_missing_is_named_as_it_is_typed(klog: Klog) -> None:
    done = klog("fetch", FIXTURES / "modern/plain-1")
    assert (done.exit_code, done.stderr) == (
        16,
        b"klog: klog fetch: needs --offset N ('klog fetch --help' shows what there is)\n",
    )
    assert b"needs DISK..." in klog("replicas", "diff").stderr


def test_dry_run_is_what_happens_without_apply(klog: Klog, place: Path) -> None:
    make_place(str(place), "recover")
    next((place / "data/plain-1").glob("*.index")).unlink()
    words = ("recover", place / "data", "--now", "0")
    assert klog(*words, "--dry-run").stdout == klog(*words).stdout
    done = klog(*words, "--apply", "--dry-run")
    assert (done.exit_code, done.stderr) == (16, b"klog: --apply and --dry-run: one of them\n")
