"""Damage of a log or a small file, in the commands that look at it: 4 and its name; and what only looks like damage."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.errors import ExitCode

from tests.conftest import FIXTURES, Ran, writable_copy

Klog = Callable[..., Ran]
COMMANDS = ("groups", "transactions", "timeline", "keys check", "stats", "search", "audit misrouted")
LOOKS_AT = {
    "tx-0": {"transactions", "timeline", "keys check", "stats", "search", "audit misrouted"},
    "__consumer_offsets-2": {"groups", "transactions", "timeline", "stats", "search"},
    "__transaction_state-1": {"transactions", "timeline", "stats", "search"},
    "__share_group_state-1": {"groups", "timeline", "stats", "search"},
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return writable_copy(FIXTURES / "modern", tmp_path / "data")


def last_log(data: Path, partition: str) -> Path:
    return sorted((data / partition).glob("*.log"))[-1]


@pytest.mark.parametrize("partition", LOOKS_AT)
def test_a_batch_without_a_size_is_told_by_who_reads_it(partition: str, data: Path, klog: Klog) -> None:
    log = max((data / partition).glob("*.log"), key=lambda path: path.stat().st_size)
    content, at = bytearray(log.read_bytes()), 0
    struct.pack_into(">i", content, at + 8, -5)
    log.write_bytes(content)
    told = {command for command in COMMANDS if klog(*command.split(), data).exit_code & ExitCode.PROBLEMS_LEFT}
    assert told >= LOOKS_AT[partition]
    for command in ("groups", "transactions"):
        assert (str(log).encode() in klog(command, data).stderr) == (command in told)


@pytest.mark.parametrize("name", ["log-start-offset-checkpoint", "tx-0/partition.metadata"])
@pytest.mark.parametrize(
    "words", ["dump --output jsonl data/tx-0", "search data", "keys check data", "write data --to new"]
)
def test_a_malformed_small_file_is_told(
    name: str, words: str, data: Path, klog: Klog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the checkpoint deleted records are among those that are shown."""
    monkeypatch.chdir(data.parent)
    before = klog(*words.split())
    Path("data", name).write_bytes(b"7\nnonsense\n")
    ran = klog(*[word.replace("new", "new2") for word in words.split()])
    if f"data/{name}".encode() in ran.stderr:
        assert ran.exit_code & (ExitCode.PROBLEMS_LEFT | ExitCode.OPERATIONAL_ERROR), ran
    else:
        assert ran.stdout.replace(b"new2", b"new") == before.stdout, ran


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("partition", LOOKS_AT)
def test_preallocated_space_is_no_damage(partition: str, command: str, data: Path, klog: Klog) -> None:
    whole = klog(*command.split(), data)
    with open(last_log(data, partition), "ab") as log:
        log.truncate(log.tell() + 8192)
    ran = klog(*command.split(), data)
    assert ran.exit_code == whole.exit_code
    if command != "stats":  # it has the size of the log, and orders equally frequent keys by it
        assert ran.stdout == whole.stdout


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize(("command", "partition"), [("groups", "__consumer_offsets-2"), ("transactions", "tx-0")])
def test_a_batch_that_a_broker_is_writing_is_no_damage(
    command: str, partition: str, is_running: bool, data: Path, klog: Klog
) -> None:
    """Its first half is there; of a broker that was killed it stays so."""
    log = last_log(data, partition)
    batch = log.read_bytes()
    (size,) = struct.unpack_from(">i", batch, 8)
    half = bytearray(batch[: (size + 12) // 2])
    with open(log, "ab") as file:
        file.write(half)
    holder = None
    if is_running:
        (data / ".lock").touch()
        code = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
        holder = subprocess.Popen(
            [sys.executable, "-c", code, data / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
    try:
        ran = klog(command, data)
    finally:
        if holder is not None:
            holder.communicate(b"\n")
    assert ran.exit_code == (ExitCode.CLEAN if is_running else ExitCode.PROBLEMS_LEFT), ran
