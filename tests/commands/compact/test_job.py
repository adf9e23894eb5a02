"""Compaction of many partitions by many tasks: what `klog compact --to` makes, whatever becomes of the tasks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from klog.base.errors import DamagedError, KlogError, UnreadableError, UsageError
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.compact import job as job
from klog.commands.compact.compaction import CompactionRun, CompactOptions, copy
from klog.commands.compact.log_cleaner import CleanerOptions
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import Selection
from klog.jobs.output_commit import Facts, JobOutput, OutputAttempt

from tests.commands.compact.compacting import NOW_MS, ORIGINAL, SETTINGS, SEVERAL_ROUNDS
from tests.conftest import writable_copy
from tests.support.power import HastyDisk

DISK = HastyDisk()


class Run:
    """A job over log dirs, step by step."""

    def __init__(self, to: Path, *log_dirs: Path, settings: dict[str, str] | None = None) -> None:
        self.log_dirs = [LogDir(str(path)) for path in log_dirs]
        targets = [Selection(one, one.partitions) for one in self.log_dirs]
        topics = [TopicConfig(one, SETTINGS if settings is None else settings) for one in self.log_dirs]
        self.pieces = job.plan_tasks(targets, topics)
        options = job.CompactJobOptions("", NOW_MS, False, SEVERAL_ROUNDS)
        self.output = job.begin(str(to), self.pieces, options, DISK)
        self.options = options._replace(run=self.output.run)

    def do(self, pieces: Sequence[job.CompactTask] | None = None) -> list[int]:
        """Do *pieces*, as one task; return the numbers in its results."""
        return [answer.number for answer in job.compact(self.pieces if pieces is None else pieces, self.options)]

    def finish(self) -> list[Facts]:
        return job.finish(self.output, self.pieces, self.log_dirs, DISK)


def copied(to: Path, *log_dirs: Path) -> dict[str, tuple[int, bytes]]:
    """Return what `klog compact --to` makes of log dirs."""
    targets = [Selection(one, one.partitions) for one in (LogDir(str(path)) for path in log_dirs)]
    topics = [TopicConfig(target.log_dir, SETTINGS) for target in targets]
    wishes = CompactOptions(NOW_MS, False, SEVERAL_ROUNDS)
    copy(str(to), lambda staging: CompactionRun(targets, staging, topics, wishes, DISK), len(targets), DISK)
    return tree(to)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the mode and the content of each file and directory."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return writable_copy(ORIGINAL, tmp_path / "data")


def test_the_result_is_what_compact_to_makes(data: Path, tmp_path: Path) -> None:
    """The same code, so the same bytes and modes; checkpoints and identity beside them."""
    run = Run(tmp_path / "out", data)
    assert run.do() == list(range(len(run.pieces)))
    results = run.finish()
    assert tree(tmp_path / "out") == copied(tmp_path / "expected", data)
    by_result = {one["result"] for one in results}
    assert "compacted" in by_result
    idempotent = next(one for one in results if one["topic"] == "idempotent")
    assert idempotent["rounds"] > 1
    assert idempotent["records_in"] > idempotent["records_out"] > 0


def test_two_log_dirs_become_one(data: Path, tmp_path: Path) -> None:
    other = writable_copy(data, tmp_path / "other")
    names = sorted(path.name for path in data.iterdir() if path.is_dir())
    for at, name in enumerate(names):
        gone = (data if at % 2 else other) / name
        gone.rename(tmp_path / f"gone-{name}")
    run = Run(tmp_path / "out", data, other)
    run.do()
    run.finish()
    assert tree(tmp_path / "out") == copied(tmp_path / "expected", data, other)


def test_replicas_of_a_partition_are_refused_before_anything_is_done(data: Path, tmp_path: Path) -> None:
    other = writable_copy(data, tmp_path / "other")
    with pytest.raises(UsageError, match="two copies of one partition"):
        Run(tmp_path / "out", data, other)
    assert not (tmp_path / "out").exists()


def test_tasks_done_twice_and_killed_leave_one_file_set(data: Path, tmp_path: Path) -> None:
    run = Run(tmp_path / "out", data)
    run.do(run.pieces[:2])
    killed = job.compact(run.pieces[1:], run.options)
    next(killed)
    next(killed)
    killed.close()
    left = OutputAttempt(run.output.run, 0)
    left.__enter__()  # of a worker that was shot
    with pytest.raises(KlogError, match="not done"):
        run.finish()
    again = Run(tmp_path / "out", data)
    assert again.output.done == {0, 1, 2}
    again.do(again.pieces[2:])
    again.do()
    again.finish()
    assert tree(tmp_path / "out") == copied(tmp_path / "expected", data)


def test_a_partition_that_changed_since_the_first_run_is_done_again(data: Path, tmp_path: Path) -> None:
    run = Run(tmp_path / "out", data)
    run.do()
    log = max(data.glob("*-0/*.log"), key=lambda path: path.stat().st_size)
    log.write_bytes(log.read_bytes() + b"\0" * 100)
    assert Run(tmp_path / "out", data).output.done == frozenset()


def test_damage_costs_its_own_partition(data: Path, tmp_path: Path) -> None:
    """The others are there, and the first missing one is named."""
    run = Run(tmp_path / "out", data)
    victim = next(piece for piece in run.pieces if Path(piece.path).name == "idempotent-0")
    log = min(Path(victim.path).glob("*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    status = log.stat()
    log.write_bytes(content)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    run.do()
    results = run.finish()
    failed = [one for one in results if one["result"] == "failed"]
    assert [one["topic"] for one in failed] == ["idempotent"]
    outcome = job.collect_failures(results, run.pieces)[victim.number]
    assert isinstance(outcome.failed, DamagedError)
    assert outcome.is_damaged
    assert tree(tmp_path / "out") == copied(tmp_path / "expected", data)
    assert not (tmp_path / "out/idempotent-0").exists()


def test_a_vanished_partition_is_told_and_not_raised(data: Path, tmp_path: Path) -> None:
    run = Run(tmp_path / "out", data)
    piece = run.pieces[0]
    Path(piece.path).rename(tmp_path / "gone")
    run.do()
    results = run.finish()
    assert results[0]["result"] == "failed"
    assert isinstance(job.collect_failures(results, run.pieces)[0].failed, UnreadableError)
    assert not (tmp_path / "out" / Path(piece.path).name).exists()
    assert len(os.listdir(tmp_path / "out")) > 3


def test_what_is_not_compacted_is_refused_and_said(data: Path, tmp_path: Path) -> None:
    run = Run(tmp_path / "out", data, settings={"cleanup.policy": "delete"})
    run.do()
    results = run.finish()
    assert {(one["result"], one["ground"]) for one in results} == {("refused", "policy")}
    assert all("cleanup.policy=delete" in str(one.refused) for one in job.collect_failures(results, run.pieces))
    assert os.listdir(tmp_path / "out") == ["meta.properties"]


def test_a_disk_that_is_full_is_no_finding(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the source is excused; what cannot be written fails the task, which is tried again."""
    run = Run(tmp_path / "out", data)

    def full(self: object, file: object, content: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "out"))

    monkeypatch.setattr("klog.data_dir.disk.disk_changes.Disk.write", full)
    with pytest.raises(OSError, match="No space left"):
        run.do()
    assert run.output.done == frozenset()
    assert sorted(os.listdir(run.output.run)) == ["job.json"]


def test_units_and_options_can_be_sent(data: Path, tmp_path: Path) -> None:
    """They go to other machines: nothing in them may hold a file or a lock."""
    import pickle

    run = Run(tmp_path / "out", data)
    assert pickle.loads(pickle.dumps((run.pieces, run.options))) == (run.pieces, run.options)
    assert isinstance(run.output, JobOutput)
    assert run.options.choices == CleanerOptions(map_memory=1000)
