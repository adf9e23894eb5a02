"""Completions and the manual page are made from the command line, current and complete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import klog
import pytest
from klog_cli.command_catalog import Command, Option, read
from klog_cli.completion_scripts import SHELLS

from tests.conftest import FIXTURES, run_klog, writable_copy
from tools import make_findings, make_man
from tools.make_completions import FILES

ROOT = Path(__file__).parent.parent
BASH = ROOT / "completions" / "klog.bash"
PRESS_TAB = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_klog
((${#COMPREPLY[@]} == 0)) || printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_completions_are_those_of_the_command_line(shell: str) -> None:
    """A script from yesterday offers options that are gone and hides those that came; `make completions` mends it."""
    script = (ROOT / "completions" / FILES[shell]).read_text(encoding="utf-8")
    assert script == SHELLS[shell](read())
    done = run_klog("completion", shell)
    assert (done.exit_code, done.stdout.decode()) == (0, script)


def test_the_manual_page_is_that_of_the_command_line() -> None:
    """The same for docs/klog.1."""
    assert (ROOT / "docs" / "klog.1").read_text(encoding="utf-8") == make_man.page(read(), klog.__version__)


def test_the_page_of_findings_is_that_of_the_table() -> None:
    """The same for docs/findings.md, and for the reasons in docs/doctor.md."""
    assert (ROOT / "docs" / "findings.md").read_text(encoding="utf-8") == make_findings.text()
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert page == make_findings.doctor_text(page)


def test_the_manual_page_names_every_command_and_every_option() -> None:
    """An option that the page omits does not exist for a user at a console without a network."""
    page = (ROOT / "docs" / "klog.1").read_text(encoding="utf-8").replace("\\", "")
    sections = {part.split(" [options]")[0]: part for part in page.split("\n.SS klog ")[1:]}
    leaves = [command for command in read().walk() if command.words and not command.children]
    assert sorted(sections) == sorted(command.name for command in leaves)
    for command in leaves:
        options = [name for option in command.options for name in option.names]
        assert [name for name in options if f"fB{name}fR" not in sections[command.name]] == []


def test_no_option_and_no_command_goes_without_help() -> None:
    """An option without an explanation is found by reading the source, at three in the morning."""
    commands = list(read().walk())
    bare = [
        f"{command.name} {option.names[0]}" for command in commands for option in command.options if not option.help
    ]
    assert bare + [command.name for command in commands if not command.help] == []


def press_tab(script: Path, *words: str) -> list[str]:
    """Return what bash offers for the last of *words*."""
    command = ["bash", "-uc", PRESS_TAB, "bash", str(script), *words]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    return done.stdout.splitlines()


def made_up() -> Command:
    """A command line with a group, a switch, a choice, a file and a free value."""
    output = Option(("--output",), "Form.", "text|json", ("text", "json"))
    leaf = Command(("dump",), "Dump.", ("PATH...",), (output, Option(("--to", "-t"), "File.", "FILE")), ())
    nested = Command(("spark", "dump"), "Dump on Spark.", ("PATH...",), (Option(("--master",), "Where.", "URL"),), ())
    group = Command(("spark",), "On Spark.", (), (), (nested,))
    return Command((), "klog", (), (Option(("--version",), "Versions."),), (leaf, group))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["klog", ""], ["dump", "spark", "--version"]),
        (["klog", "d"], ["dump"]),
        (["klog", "dump", "--"], ["--output", "--to"]),
        (["klog", "dump", "--output", ""], ["text", "json"]),
        (["klog", "dump", "--output", "=", "j"], ["json"]),
        (["klog", "dump", "--output", "="], ["text", "json"]),
        (["klog", "dump", "--to", "co"], []),  # nothing of its own: bash then offers files
        (["klog", "dump", "orders-3", "sp"], []),
        (["klog", "dump", "spark", "-"], ["--output", "--to", "-t"]),  # a path named like a command stays a path
        (["klog", "spark", ""], ["dump"]),
        (["klog", "spark", "dump", "--"], ["--master"]),
    ],
)
def test_bash_offers_what_fits(tmp_path: Path, words: list[str], offered: list[str]) -> None:
    """TAB offers what may stand there: commands, then options of that command, then their values."""
    script = tmp_path / "klog.bash"
    script.write_text(SHELLS["bash"](made_up()))
    assert press_tab(script, *words) == offered


def test_the_topics_of_the_paths_on_the_line_are_offered() -> None:
    """A path that is no log dir, or cannot be read, has none."""
    offered = press_tab(BASH, "klog", "verify", str(FIXTURES / "modern"), "-t", "z")
    assert offered == ["zstd"]
    offered = press_tab(BASH, "klog", "dump", "/nowhere", str(FIXTURES / "modern"), "--deep-iteration", "--topic", "")
    assert {"plain", "tx", "zstd"} <= set(offered)


def test_no_name_of_a_directory_is_run_by_the_shell(tmp_path: Path) -> None:
    """bash expands the words that it is offered: a hostile name must not be among them."""
    (tmp_path / f"$(touch${{IFS}}{tmp_path.name}-ran)-0").mkdir()
    (tmp_path / "good-0").mkdir()
    assert press_tab(BASH, "klog", "verify", str(tmp_path), "-t", "") == ["good"]
    assert not list(Path.cwd().glob("*-ran"))


def test_plans_are_offered_to_undo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writable_copy(FIXTURES / "crash" / "torn-in-batch", tmp_path / "data")
    assert run_klog("recover", tmp_path / "data", "--apply").exit_code == 1
    (plan,) = json.loads(run_klog("plans", tmp_path / "data", "-o", "json").stdout)["plans"]
    monkeypatch.chdir(tmp_path)
    assert {"latest", plan["id"]} <= set(press_tab(BASH, "klog", "undo", ""))  # others may lie above
    assert run_klog("undo", plan["id"]).exit_code == 0


def test_an_unknown_shell_is_16() -> None:
    done = run_klog("completion", "fsh")
    assert (done.exit_code, b"did you mean fish" in done.stderr) == (16, True)
