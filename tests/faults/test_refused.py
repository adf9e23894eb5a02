"""Each command beside each directory, file and checkpoint that cannot be read: what cannot be read is not absent.

A command that asks for it names it, with 8 in its exit code; the others answer as if nothing was.  No answer is less
than a whole one without a line that says so.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from klog.base.errors import ExitCode

from tests.faults.lossy_mount import Unreadable, mounted
from tests.faults.refusing import AGAIN, Answer, answers
from tests.support import every_command
from tests.support.every_command import ON_ONE_DISK, ON_SEVERAL_DISKS, run

_NUMBERS = re.compile(r"\d{20}(-\d{10})?")
WITHOUT_ANSWER = ("serve",)
"""It runs until a signal; tests/commands/serve has its own."""


def paths_in(folder: Path, *disks: str) -> Iterator[Path]:
    """Yield each log dir and each path below it; of files of one kind in a directory the first."""
    seen: set[str] = set()
    for disk in disks:
        for path in (folder / disk, *sorted((folder / disk).rglob("*"))):
            kind = _NUMBERS.sub("N", str(path))
            if kind not in seen:
                seen.add(kind)
                yield path


def judge(found: Mapping[tuple[str, str], Answer], *, all_asked: bool = True) -> list[str]:
    """Return the faults.  *all_asked*: whoever asked for a path was refused it."""
    wrong = []
    for (path, words), answer in found.items():
        whole, again = found["", words], found[AGAIN, words]
        said = answer.stdout + answer.stderr
        is_told = bool(answer.exit_code & ExitCode.OPERATIONAL_ERROR) and path in said
        is_equal = answer.exit_code == whole.exit_code and answer.stdout == whole.stdout
        # Some answers contain random ids.
        is_whole = (is_equal or whole != again) and not (all_asked and answer.was_asked)
        if answer.exit_code & ExitCode.CORRECTED or "a bug in klog" in said or not (is_told or is_whole):
            wrong.append(f"{path}: klog {words}: {answer.exit_code}, asked: {answer.was_asked}: {answer.stderr[:300]}")
    return wrong


SAMPLE = (
    "data", "data/tx-0", "data/__consumer_offsets-2", "data/__cluster_metadata-0", "data/meta.properties",
    "data/log-start-offset-checkpoint", "data/tx-0/partition.metadata", "data/tx-0/leader-epoch-checkpoint",
)  # fmt: skip


def test_each_command_names_what_it_asks_for_and_may_not_read(tmp_path: Path) -> None:
    every_command.disks(tmp_path)
    commands = {name: words for name, words in ON_ONE_DISK.items() if name not in WITHOUT_ANSWER}
    found = answers(tmp_path, commands.values(), {path: path for path in SAMPLE})
    wrong = judge(found)
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.parametrize("several", [False, True], ids=["one disk", "several disks"])
def test_each_command_beside_each_path_that_may_not_be_read(several: bool, tmp_path: Path) -> None:
    (every_command.several if several else every_command.disks)(tmp_path)
    runs = ON_SEVERAL_DISKS if several else ON_ONE_DISK
    commands = {name: words for name, words in runs.items() if name not in WITHOUT_ANSWER}
    disks = ("b1", "b3", "c4") if several else ("data",)
    refused = [str(path.relative_to(tmp_path)) for path in paths_in(tmp_path, *disks)]
    found = answers(tmp_path, commands.values(), {path: path for path in refused})
    wrong = judge(found)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "mode", [pytest.param(0o444, id="its files"), pytest.param(0o111, id="its names", marks=pytest.mark.long)]
)
def test_a_directory_of_which_only_a_part_may_be_read(mode: int, tmp_path: Path) -> None:
    """Its names without its files, or its files for those with their names."""
    every_command.disks(tmp_path)
    (tmp_path / "data/lost+found").mkdir()
    (tmp_path / "data/lost+found/file").write_bytes(bytes(4096))
    commands = [words for name, words in ON_ONE_DISK.items() if name not in WITHOUT_ANSWER]
    paths = ("data", "data/tx-0", "data/__transaction_state-1", "data/lost+found")
    wrong = judge(answers(tmp_path, commands, {path: path for path in paths}, mode), all_asked=mode != 0o444)
    assert not wrong, "\n".join(wrong)


BAD_BLOCKS = ("tx-0/*.log", "log-start-offset-checkpoint")
MORE_BAD_BLOCKS = (
    "__consumer_offsets-2/*.log", "tx-0/*.snapshot",
    "__cluster_metadata-0/*433.log", "__transaction_state-0/*.log", "tx-0/*.index", "tx-0/*.timeindex",
    "tx-0/*.txnindex", "tx-0/leader-epoch-checkpoint", "tx-0/partition.metadata", "meta.properties",
    "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint",
)  # fmt: skip


@pytest.mark.fuse
@pytest.mark.parametrize(
    "pattern", [*BAD_BLOCKS, *(pytest.param(one, marks=pytest.mark.long) for one in MORE_BAD_BLOCKS)]
)
def test_each_command_names_a_block_that_the_disk_does_not_give(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EIO of the kernel, in the middle of a file: a partial answer is marked as one."""
    disk, place = tmp_path / "disk", tmp_path / "place"
    for folder in (disk, place):
        folder.mkdir()
    every_command.disks(disk)
    file = max((disk / "data").glob(pattern), key=lambda path: path.stat().st_size)
    name = str(file.relative_to(disk))
    commands = [words for key, words in ON_ONE_DISK.items() if key not in WITHOUT_ANSWER]
    monkeypatch.chdir(disk)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    whole, again = ({words: run(words) for words in commands} for _ in range(2))
    bad = [Unreadable(name, file.stat().st_size // 2, 1)]
    wrong = []
    with mounted(place, disk, tmp_path / "calls", unreadable=bad):
        monkeypatch.chdir(place)
        for words in commands:
            ran, before = run(words), whole[words]
            said = ran.stdout + ran.stderr
            answer = ran.exit_code, ran.stdout.replace(bytes(place), bytes(disk))
            is_told = ran.exit_code & ExitCode.OPERATIONAL_ERROR and file.name.encode() in said
            is_whole = answer == (before.exit_code, before.stdout) or before != again[words]
            if not is_told and (not is_whole or os.strerror(errno.EIO).encode() in said):
                wrong.append(f"klog {words}: {ran.exit_code}: {ran.stderr[:300]!r}")
        monkeypatch.chdir(tmp_path)
    assert not wrong, "\n".join(wrong)
