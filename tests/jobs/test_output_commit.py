"""Many tasks, one directory: whatever is repeated, doubled or killed, there is one file set in the end."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from klog.base.errors import KlogError, UsageError
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.locks import LockedError
from klog.jobs.output_commit import JobOutput, OutputAttempt, lock_target

from tests.support.power import HastyDisk

JOB = {"job": "test", "version": 1}


def begin(to: Path, job: dict[str, object] | None = None) -> JobOutput:
    return JobOutput(str(to), job or JOB, HastyDisk())


def write(attempt: OutputAttempt, text: str) -> list[str]:
    path = os.path.join(attempt.path, "file")
    file = attempt.disk.create(path)
    attempt.disk.write(file, text.encode())
    attempt.disk.close(file)
    return [path]


def do(output: JobOutput, number: int, text: str = "content") -> None:
    with OutputAttempt(output.run, number) as attempt:
        attempt.commit(write(attempt, f"{text} {number}"), {"number": number})


def finish(output: JobOutput, pieces: int, last: dict[str, bytes] | None = None) -> None:
    output.results(pieces)
    output.finish([(os.path.join(output.piece(n), "file"), f"folder/{n}") for n in range(pieces)], last)


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


EXPECTED = {"folder/0": "content 0", "folder/1": "content 1"}


def test_pieces_become_files_and_nothing_else_is_left(tmp_path: Path) -> None:
    to = tmp_path / "new" / "out"
    output = begin(to)
    do(output, 1)
    do(output, 0)
    assert output.done == {0, 1}
    assert output.results(2) == [{"number": 0}, {"number": 1}]
    assert tree(to).keys() & EXPECTED.keys() == set()
    finish(output, 2, {"manifest.json": b"{}"})
    assert tree(to) == EXPECTED | {"manifest.json": "{}"}
    assert sorted(os.listdir(to)) == ["folder", "manifest.json"]


def test_of_two_attempts_at_a_piece_the_first_counts(tmp_path: Path) -> None:
    """Speculation has two tasks do the same at once; a lost executor has a third do it later."""
    output = begin(tmp_path / "out")
    with OutputAttempt(output.run, 0) as slow, OutputAttempt(output.run, 0) as fast:
        files = write(slow, "slow"), write(fast, "fast")
        fast.commit(files[1], {"who": "fast"})
        slow.commit(files[0], {"who": "slow"})
    with OutputAttempt(output.run, 0) as late:
        assert late.is_done
    assert output.results(1) == [{"who": "fast"}]
    assert sorted(os.listdir(output.run)) == ["job.json", "piece-000000"]


def test_a_killed_attempt_leaves_nothing_in_the_result(tmp_path: Path) -> None:
    output = begin(tmp_path / "out")
    killed = OutputAttempt(output.run, 0)
    killed.__enter__()
    write(killed, "half")
    do(output, 0)
    do(output, 1)
    finish(output, 2)
    assert tree(tmp_path / "out") == EXPECTED


def test_whoever_writes_on_after_the_end_leaves_no_trace(tmp_path: Path) -> None:
    """A worker that was given up may live for seconds: it must not make the hidden directory again."""
    output = begin(tmp_path / "out")
    zombie = OutputAttempt(output.run, 0)
    zombie.__enter__()
    do(output, 0)
    do(output, 1)
    finish(output, 2)
    with pytest.raises(FileNotFoundError):
        write(zombie, "late")
    with pytest.raises(FileNotFoundError):
        zombie.disk.make_directory(output.run)
    with pytest.raises(FileNotFoundError):
        zombie.commit([], {})
    zombie.__exit__(None, None, None)
    assert tree(tmp_path / "out") == EXPECTED
    assert os.listdir(tmp_path / "out") == ["folder"]


def test_the_same_run_again_does_the_rest(tmp_path: Path) -> None:
    output = begin(tmp_path / "out")
    do(output, 0)
    with pytest.raises(KlogError, match="1 of 2 pieces are not done"):
        output.results(2)
    again = begin(tmp_path / "out")
    assert again.done == {0}
    do(again, 1)
    finish(again, 2)
    assert tree(tmp_path / "out") == EXPECTED


def test_another_run_begins_anew(tmp_path: Path) -> None:
    """Pieces of other slices, or of other options, are no part of this one."""
    do(begin(tmp_path / "out"), 0, "old")
    output = begin(tmp_path / "out", {"job": "another"})
    assert output.done == frozenset()
    do(output, 0)
    do(output, 1)
    finish(output, 2)
    assert tree(tmp_path / "out") == EXPECTED


class _Stopping(HastyDisk):
    """Stops at a rename."""

    def __init__(self, renames: int) -> None:
        super().__init__()
        self.left = renames

    def rename(self, source: str, target: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        super().rename(source, target)


@pytest.mark.parametrize("renames", range(4))
def test_a_stop_while_files_get_their_names_is_made_up_for(tmp_path: Path, renames: int) -> None:
    output = JobOutput(str(tmp_path / "out"), JOB, _Stopping(renames))
    do(output, 0)
    do(output, 1)
    with pytest.raises(KeyboardInterrupt):
        finish(output, 2, {"manifest.json": b"{}"})
    with pytest.raises(UsageError, match="run its command again"):
        begin(tmp_path / "out", {"job": "another"})
    finish(begin(tmp_path / "out"), 2, {"manifest.json": b"{}"})
    assert tree(tmp_path / "out") == EXPECTED | {"manifest.json": "{}"}


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/own").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("out", "file"):
        with pytest.raises(UsageError, match="exists, and is not an empty directory"):
            begin(tmp_path / name)
    assert tree(tmp_path) == {"out/own": "mine", "file": "mine"}


HOLDER = """
import sys, time
from klog.data_dir.disk.disk_changes import Disk
from klog.jobs.output_commit import JobOutput, lock_target
with lock_target(sys.argv[1], Disk()):
    JobOutput(sys.argv[1], {"job": "first"}, Disk())
    print("begun", flush=True)
    time.sleep(600)
"""


def test_two_runs_do_not_write_into_one_directory_at_once(tmp_path: Path) -> None:
    """The second would throw away the first one's work, and its tasks would treat the others' pieces as theirs."""
    to = tmp_path / "new" / "out"
    with subprocess.Popen([sys.executable, "-c", HOLDER, to], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "begun\n"
        before = tree(to)
        with pytest.raises(LockedError, match="out: another run writes there"), lock_target(str(to), Disk()):
            begin(to)
        assert tree(to) == before
        first.kill()
    with lock_target(str(to), Disk()):
        output = begin(to)
        with pytest.raises(LockedError, match="another run writes there"), lock_target(str(to), Disk()):
            begin(to)
        do(output, 0)
        do(output, 1)
        finish(output, 2)
    assert tree(to) == EXPECTED
    assert os.listdir(to) == ["folder"]


def test_a_file_system_without_locks_is_written_to_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mounted object stores have none."""

    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with lock_target(str(tmp_path / "out"), Disk()):
        output = begin(tmp_path / "out")
        do(output, 0)
        do(output, 1)
        finish(output, 2)
    assert os.listdir(tmp_path / "out") == ["folder"]


def test_a_failed_run_lets_go_of_its_directory(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KlogError, match="2 of 2 pieces"), lock_target(str(tmp_path / "out"), Disk()):
            begin(tmp_path / "out").results(2)


def test_files_are_for_others_unless_they_are_a_brokers(tmp_path: Path) -> None:
    """Tables are for everyone that the umask permits; a log dir is the broker's alone."""
    run = begin(tmp_path / "out").run
    before = os.umask(0o022)
    try:
        modes = []
        for number, shared in enumerate((True, False)):
            with OutputAttempt(run, number, shared=shared) as attempt:
                write(attempt, "")
                attempt.disk.make_directory(os.path.join(attempt.path, "folder"))
                paths = (os.path.join(attempt.path, name) for name in ("file", "folder"))
                modes.append([os.stat(path).st_mode & 0o777 for path in paths])
    finally:
        os.umask(before)
    assert modes == [[0o644, 0o755], [0o600, 0o700]]


def test_the_real_disk_does_it_too(tmp_path: Path) -> None:
    output = JobOutput(str(tmp_path / "out"), JOB, Disk())
    do(output, 0)
    do(output, 1)
    finish(output, 2)
    assert tree(tmp_path / "out") == EXPECTED
