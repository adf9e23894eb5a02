"""Answers do not depend on how klog reads: on any file system, with or without the new calls, while files change."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.faults.lossy_mount import mounted
from tests.neighbour import older_kernel
from tests.neighbour.logs import make_log_dir
from tests.neighbour.pages import KLOG, MIB

COMMANDS = ("verify -o json", "dump -o jsonl", "audit headers -o json")
LACKING = ((), ("dontcache",), ("dontcache", "cachestat"))
_OVERLAY = 'mkdir w u && mount -t overlay -o lowerdir=data,upperdir=u,workdir=w none data && exec "$@"'


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions, one of them with a flipped bit behind the first steps of a reader."""
    data = make_log_dir(tmp_path_factory.mktemp("same") / "data", 40 * MIB, partitions=2)
    with (data / "big-1" / f"{0:020}.log").open("r+b") as file:
        file.seek(13 * MIB)
        byte = file.read(1)[0]
        file.seek(13 * MIB)
        file.write(bytes([byte ^ 0xFF]))
    return data


def answers(folder: Path, cache: str, *before: str) -> list[tuple[bytes, int]]:
    """Return the output and the exit code of each command over `data` in *folder*; *before*: words before klog's."""
    found = []
    for command in COMMANDS:
        words = [*before, *KLOG, *command.split(), "data", "--cache", cache]
        done = subprocess.run(words, cwd=folder, capture_output=True, check=False)
        assert b"Traceback" not in done.stderr
        found.append((done.stdout, done.returncode))
    return found


@pytest.fixture(scope="module")
def expected(source: Path) -> list[tuple[bytes, int]]:
    """The answers of plain reads."""
    found = answers(source.parent, "keep")
    assert [code for _, code in found] == [4, 4, 0]
    return found


@pytest.mark.parametrize("lacking", LACKING, ids=" ".join)
def test_a_disk(source: Path, expected: list[tuple[bytes, int]], on_disk: Path, lacking: tuple[str, ...]) -> None:
    folder = on_disk / "-".join(("same", *lacking))
    shutil.copytree(source, folder / "data")
    assert answers(folder, "drop", sys.executable, older_kernel.__file__, *lacking, "--") == expected


def test_a_file_system_in_memory(source: Path, expected: list[tuple[bytes, int]]) -> None:
    """It has no RWF_DONTCACHE, and its pages are the files."""
    with in_memory() as folder:
        shutil.copytree(source, folder / "data")
        assert answers(folder, "drop") == expected


@contextmanager
def in_memory() -> Iterator[Path]:
    folder = Path("/dev/shm/klog-same-answers")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.fuse
def test_fuse(source: Path, expected: list[tuple[bytes, int]], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with mounted(tmp_path / "data", source, tmp_path / "journal"):
        assert answers(tmp_path, "drop") == expected


@pytest.mark.fuse
def test_overlay(source: Path, expected: list[tuple[bytes, int]], on_disk: Path) -> None:
    """The file system of containers: its files are those of another one."""
    folder = on_disk / "overlay"
    shutil.copytree(source, folder / "data")
    inside = ("unshare", "--map-root-user", "--mount", "sh", "-ec", f"rm -rf w u; {_OVERLAY}", "sh")
    assert answers(folder, "drop", *inside) == expected


def shrink(log: Path) -> None:
    with log.open("r+b") as file:
        file.truncate(19 * MIB + 5000)


@pytest.fixture(scope="module")
def answer_meanwhile(source: Path, on_disk: Path) -> Callable[..., tuple[bytes, bytes, int]]:
    """Return a function that verifies a partition whose log is changed meanwhile; each answer is found once."""

    @functools.cache
    def answer(change: Callable[[Path], None], cache: str, *lacking: str) -> tuple[bytes, bytes, int]:
        with ExitStack() as stack:
            folder = on_disk / "changes"
            stack.callback(shutil.rmtree, folder)
            shutil.copytree(source / "big-0", folder / "big-0")
            log = folder / "big-0" / f"{0:020}.log"
            words = (*KLOG, "verify", "big-0", "-o", "json", "--cache", cache, "--rate", "16MiB")
            klog = subprocess.Popen(
                [sys.executable, older_kernel.__file__, *lacking, "--", *words],
                cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            wait_until_open(klog, log)
            change(log)
            stdout, stderr = klog.communicate(timeout=100)
            assert b"Traceback" not in stderr
            return stdout, stderr, klog.returncode

    return answer


@pytest.mark.parametrize("change", [shrink, Path.unlink], ids=["shrinks", "is deleted"])
@pytest.mark.parametrize("lacking", LACKING, ids=" ".join)
def test_a_file_that_changes_while_it_is_read(
    answer_meanwhile: Callable[..., tuple[bytes, bytes, int]],
    lacking: tuple[str, ...],
    change: Callable[[Path], None],
) -> None:
    """Retention deletes segments, and followers truncate them."""
    assert answer_meanwhile(change, "drop", *lacking) == answer_meanwhile(change, "keep")


def wait_until_open(klog: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a process has a file open; it reads 16 MiB a second, and needs more than one for the file."""
    until = time.monotonic() + 60
    while not any(each.resolve() == log for each in Path(f"/proc/{klog.pid}/fd").iterdir() if each.exists()):
        assert klog.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
