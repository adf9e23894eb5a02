"""Input of an attacker, a dying disk or a mistyped path: klog reports it in a line and survives.

Each case is a process of its own, measured: not more than 200 MB, a few seconds of CPU, the exit code and one line that
the command line promises.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.oracles.plain import encode, shapes
from tests.support import bombs
from tests.support.measure import Measured, measured

MEMORY = 200_000_000
SECONDS = 30.0
PATIENCE = 300.0
"""The limit by the clock, if something only has to end: other work may share the machine."""
CLEAN, DAMAGED, FAILED, USAGE, CANCELLED = 0, 4, 8, 16, 32
LOG = "00000000000000000000.log"
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
KLOG = [sys.executable, "-m", "klog_cli.app"]

OUTPUTS = ("--output", "jsonl"), ("--output", "csv"), ("--print-data-log",)
outputs = pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output[-1])


def crossed(names: Iterable[str]) -> pytest.MarkDecorator:
    """Return each name with one of the outputs in its turn; with the others where all is run."""
    return pytest.mark.parametrize(
        ("name", "output"),
        [
            pytest.param(name, output, id=f"{name}-{output[-1]}", marks=[pytest.mark.long] * ((at + other) % 3 > 0))
            for at, name in enumerate(names)
            for other, output in enumerate(OUTPUTS)
        ],
    )


@pytest.fixture
def hostile(tmp_path: Path) -> Callable[..., Measured]:
    """Return a function that runs klog in *tmp_path*, measures it and holds it to the limits."""

    def run(
        *arguments: str | bytes, memory: int = MEMORY, seconds: float = SECONDS, privileges: bool = True
    ) -> Measured:
        done = measured([*KLOG, *arguments], tmp_path, seconds=seconds, privileges=privileges)
        assert done.exit_code >= 0, f"killed after {done.seconds} s of CPU, or crashed: {done}"
        assert "Traceback" not in done.stderr, done.stderr
        assert "\x1b" not in done.stderr
        assert done.rss < memory, f"{done.rss >> 20} MiB"
        return done

    return run


def put(folder: Path, data: bytes, partition: str = "orders-3", name: str = LOG) -> Path:
    """Write a log and return its path."""
    path = folder / partition / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def lines(done: Measured) -> list[str]:
    return done.stderr.splitlines()


# files that claim and grow


@crossed(bombs.claims())
def test_a_small_file_that_claims_much(
    hostile: Callable[..., Measured], tmp_path: Path, name: str, output: tuple[str, ...]
) -> None:
    """No number is believed before it is compared with the existing bytes: no memory is allocated for a claim."""
    put(tmp_path, bombs.claims()[name])
    done = hostile("dump", *output, "orders-3", memory=60_000_000, seconds=5)
    assert done.exit_code == DAMAGED
    # Kafka's tool treats a batch that is cut short as the end of the log; it prints the rest on stdout.
    silent = output == ("--print-data-log",) and b"invalid bytes at the end" in done.stdout
    assert len(lines(done)) == (0 if silent else 1), done.stderr


@crossed(bombs.BOMBS)
def test_a_compressed_bomb(
    hostile: Callable[..., Measured], tmp_path: Path, name: str, output: tuple[str, ...]
) -> None:
    """A megabyte that becomes a gigabyte stops at the limit, and so does one that needs a million steps."""
    put(tmp_path, bombs.bomb(name) + encode.batch(shapes.some_records(1)))
    done = hostile("dump", *output, "orders-3", seconds=15)
    assert done.exit_code == DAMAGED
    assert len(lines(done)) == 1, done.stderr
    assert "orders-3" in done.stderr
    if output[0] == "--output":
        assert b"value value" in done.stdout, "what follows the bomb is lost"


def test_many_bombs_are_not_defused_at_once(hostile: Callable[..., Measured], tmp_path: Path) -> None:
    """Memory must not grow with the number of threads."""
    bomb = bombs.bomb("gzip")
    put(tmp_path, b"".join(at.to_bytes(8, "big") + bomb[8:] for at in range(12)))
    done = hostile("dump", "--output", "jsonl", "--jobs", "8", "orders-3", memory=2 * MEMORY, seconds=60)
    assert done.exit_code == DAMAGED
    assert len(lines(done)) == 12


@outputs
def test_a_value_that_grows_when_it_is_written(
    hostile: Callable[..., Measured], tmp_path: Path, output: tuple[str, ...]
) -> None:
    """A control character becomes six characters in JSON, a wrong byte three in text: not all of them at once."""
    put(tmp_path, bombs.one_value(60, b"\1"))
    assert hostile("dump", *output, "orders-3", memory=2 * MEMORY).exit_code == CLEAN
    put(tmp_path, bombs.one_value(60, b"\xff"))
    assert hostile("dump", *output, "orders-3", memory=2 * MEMORY).exit_code == CLEAN


@pytest.mark.parametrize("claimed", [1000, 100_000, 7_000_000])
def test_a_search_among_false_headers_ends(hostile: Callable[..., Measured], tmp_path: Path, claimed: int) -> None:
    """After damage every byte is tried; a file full of what looks like messages must not make that quadratic."""
    put(tmp_path, bombs.false_headers(8, claimed) + encode.batch(shapes.some_records(9)))
    done = hostile("dump", "--output", "jsonl", "orders-3", seconds=60)
    assert done.exit_code == DAMAGED
    assert b'"offset":11,' in done.stdout, "the batch behind it is lost"


def test_ten_gigabytes_of_zeros(hostile: Callable[..., Measured], tmp_path: Path) -> None:
    """A preallocated or lost segment: one finding, and holes are not read byte by byte."""
    path = put(tmp_path, b"")
    os.truncate(path, 10 << 30)
    done = hostile("dump", "--output", "jsonl", "orders-3", memory=60_000_000, seconds=20)
    assert done.exit_code == DAMAGED
    assert "zeroed tail" in done.stderr
    assert len(lines(done)) == 1
    assert hostile("dump", "orders-3", memory=60_000_000, seconds=20).exit_code == DAMAGED
    assert hostile("describe", "orders-3", memory=60_000_000, seconds=20).exit_code in (CLEAN, DAMAGED)


# paths


def test_a_fifo_is_not_waited_for(hostile: Callable[..., Measured], tmp_path: Path) -> None:
    (tmp_path / "orders-3").mkdir()
    os.mkfifo(tmp_path / "orders-3" / LOG)
    for path in ("orders-3", f"orders-3/{LOG}"):
        done = hostile("dump", "--output", "jsonl", path, seconds=5)
        assert done.exit_code in (FAILED, USAGE)
        assert len(lines(done)) == 1, done.stderr
    assert "a FIFO" in done.stderr


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero"])
def test_a_device_is_refused(hostile: Callable[..., Measured], device: str) -> None:
    done = hostile("dump", "--output", "jsonl", "--as", "log", device, seconds=5)
    assert (done.exit_code, done.stdout) == (FAILED, b"")
    assert lines(done) == [f"{device}: a character device, where a regular file was expected"]
    assert hostile("dump", device, seconds=5).exit_code == FAILED


def test_an_empty_directory(hostile: Callable[..., Measured], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for command in ("dump", "describe"):
        done = hostile(command, "empty")
        assert (done.exit_code, done.stdout) == (8, b"")
        assert len(lines(done)) == 1, done.stderr
        assert "empty is not a Kafka log dir" in done.stderr


def test_a_path_that_is_not_there(hostile: Callable[..., Measured]) -> None:
    for command in ("dump", "describe"):
        done = hostile(command, "nowhere/orders-3")
        assert done.exit_code == USAGE
        assert len(lines(done)) == 1, done.stderr
        assert "nowhere/orders-3: no such file" in done.stderr.lower()


def test_a_directory_without_permission(hostile: Callable[..., Measured], tmp_path: Path) -> None:
    path = put(tmp_path, encode.batch(shapes.some_records(0)))
    path.parent.chmod(0)
    try:
        for command in ("dump", "describe"):
            done = hostile(command, "orders-3", privileges=False)
            assert done.exit_code == FAILED
            assert len(lines(done)) == 1, done.stderr
            assert "Permission denied" in done.stderr
    finally:
        path.parent.chmod(0o755)


def test_a_file_without_permission_does_not_hide_the_next(hostile: Callable[..., Measured], tmp_path: Path) -> None:
    put(tmp_path, encode.batch(shapes.some_records(0))).chmod(0)
    put(tmp_path, encode.batch(shapes.some_records(3)), name="00000000000000000003.log")
    done = hostile("dump", "--output", "jsonl", "orders-3", privileges=False)
    assert done.exit_code == FAILED
    assert lines(done) == [f"orders-3/{LOG}: cannot open: Permission denied"]
    assert b'"offset":3,' in done.stdout


def test_a_symlink_to_itself_does_not_hide_the_rest(hostile: Callable[..., Measured], tmp_path: Path) -> None:
    put(tmp_path, encode.batch(shapes.some_records(0)))
    (tmp_path / "orders-3" / "00000000000000000003.log").symlink_to("00000000000000000003.log")
    done = hostile("dump", "--output", "jsonl", "orders-3")
    assert done.exit_code == FAILED
    assert len(lines(done)) == 1, done.stderr
    assert "Too many levels of symbolic links" in done.stderr
    assert b'"offset":2,' in done.stdout


def test_a_directory_that_contains_itself(hostile: Callable[..., Measured], tmp_path: Path) -> None:
    """A log dir is two levels deep, for any links."""
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    put(log_dir, encode.batch(shapes.some_records(0)))
    (log_dir / "loop-0").symlink_to(log_dir)
    (log_dir / "orders-3" / "again-0").symlink_to("..")
    done = hostile("dump", "--output", "jsonl", "data")
    assert done.stdout.count(b'"offset":2,') == 1


# names


NAMES = {
    "German": "größe-0".encode(),
    "no UTF-8": b"\xff\xfe\x80-0",
    "255 bytes": b"n" * 253 + b"-0",
    "terminal": b"\x1b[2J\x1b]0;owned\x07\r\nklog: all is well-0",
    "blanks and quotes": b"a 'b' \"c\" \\ $(d)-0",
    "a dash": b"--output-0",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_strange_name(hostile: Callable[..., Measured], tmp_path: Path, name: str) -> None:
    """Names are bytes.  The message about them fits a terminal, and stays one line."""
    folder = os.path.join(os.fsencode(tmp_path), NAMES[name])
    os.mkdir(folder)
    with open(os.path.join(folder, LOG.encode()), "wb") as log:
        log.write(encode.batch(shapes.some_records(0)) + b"torn")
    done = hostile("dump", "--output", "jsonl", os.path.join(b".", NAMES[name]))
    assert done.exit_code == DAMAGED
    assert len(lines(done)) == 1, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.get("offset") for line in found[:3]] == [0, 1, 2]
    assert found[0]["topic"] == os.fsdecode(NAMES[name][:-2])
    described = hostile("describe", os.path.join(b".", NAMES[name]))
    assert described.exit_code in (CLEAN, DAMAGED)
    assert b"\x1b" not in described.stdout


# files that change while they are read, and readers that stop


def start(*arguments: str, cwd: Path) -> subprocess.Popen[bytes]:
    """Start klog with pipes.  It is not buffered: no byte read here is lost to `finish`."""
    command = [*KLOG, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=ENVIRONMENT, bufsize=0, stdout=pipe, stderr=pipe)


def finish(process: subprocess.Popen[bytes]) -> tuple[bytes, str]:
    """Read the rest of *process*'s output, and wait for it, but not for ever."""
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    stdout, stderr = process.communicate()
    watchdog.cancel()
    assert b"Traceback" not in stderr, stderr.decode()
    return stdout, stderr.decode()


@pytest.mark.parametrize("output", ["jsonl", "csv", "text"])
def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path, output: str) -> None:
    """A broker truncates, a log rotates: the deleted part is not read, and nothing dies of it."""
    path = put(tmp_path, bombs.healthy(40))
    process = start("dump", "--output", output, "--deep-iteration", "orders-3", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.read(100_000)
    os.truncate(path, (20 << 20) + 7)
    _, stderr = finish(process)
    assert process.returncode in (CLEAN, DAMAGED)
    assert len(stderr.splitlines()) <= 1


def test_a_file_that_shrinks_all_the_time(tmp_path: Path) -> None:
    path = put(tmp_path, bombs.healthy(20))
    process = start("dump", "--output", "jsonl", "orders-3", cwd=tmp_path)

    def shrink() -> None:
        for size in range(20 << 20, 0, -(1 << 18)):
            os.truncate(path, size)
            time.sleep(0.001)

    thread = threading.Thread(target=shrink)
    thread.start()
    finish(process)
    thread.join()
    assert process.returncode in (CLEAN, DAMAGED)


def test_a_file_that_is_replaced_is_read_as_it_was(tmp_path: Path) -> None:
    data = bombs.healthy(20)
    records = 20 * (len(data) // (12 + int.from_bytes(data[8:12], "big")))
    path = put(tmp_path, data)
    process = start("dump", "--output", "jsonl", "orders-3", cwd=tmp_path)
    assert process.stdout is not None
    head = process.stdout.read(100_000)
    other = tmp_path / "other"
    other.write_bytes(b"something else")
    other.rename(path)
    stdout, stderr = finish(process)
    assert (process.returncode, stderr) == (CLEAN, "")
    assert (head + stdout).count(b"\n") == records


def test_a_file_that_vanishes_before_its_turn(tmp_path: Path) -> None:
    """Retention deletes segments at any time."""
    put(tmp_path, bombs.healthy(20))
    last = put(tmp_path, encode.batch(shapes.some_records(10**9)), name=f"{10**9:020}.log")
    process = start("dump", "--output", "jsonl", "orders-3", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.read(100_000)
    last.unlink()
    _, stderr = finish(process)
    assert process.returncode in (FAILED, USAGE)
    assert len(stderr.splitlines()) == 1, stderr
    assert last.name in stderr


@pytest.mark.parametrize("output", ["jsonl", "csv", "text"])
def test_head_ends_it_at_once_and_quietly(tmp_path: Path, output: str) -> None:
    put(tmp_path, bombs.healthy(60))
    command = '"$@" | head -1; echo "${PIPESTATUS[0]}" >&2'
    began = os.times()
    arguments = [*KLOG, "dump", "--output", output, "--deep-iteration", "orders-3"]
    done = subprocess.run(
        ["bash", "-c", command, "klog", *arguments], cwd=tmp_path, env=ENVIRONMENT, capture_output=True
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == b"0\n"
    ended = os.times()
    assert ended.children_user + ended.children_system - began.children_user - began.children_system < 5


def test_control_c_cancels(tmp_path: Path) -> None:
    put(tmp_path, bombs.healthy(60))
    process = start("dump", "--output", "jsonl", "orders-3", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, stderr = finish(process)
    assert (process.returncode, stderr) == (CANCELLED, "klog: cancelled\n")


def test_control_c_cancels_though_nobody_reads(tmp_path: Path) -> None:
    put(tmp_path, bombs.healthy(60))
    process = start("dump", "--output", "jsonl", "orders-3", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.read(1)
    time.sleep(1)  # the pipe is full by now
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == CANCELLED
    assert finish(process)[1] == "klog: cancelled\n"


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    put(tmp_path, bombs.healthy(1))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*KLOG, "dump", "orders-3"], cwd=tmp_path, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == FAILED
    assert done.stderr.decode().splitlines() == ["klog: standard output: No space left on device"]


# verify


@pytest.mark.parametrize("deep", [(), ("--deep",)], ids=["", "deep"])
@pytest.mark.parametrize("name", [*bombs.claims(), *bombs.BOMBS])
def test_verify_of_hostile_files(
    hostile: Callable[..., Measured], tmp_path: Path, name: str, deep: tuple[str, ...]
) -> None:
    """Only with --deep is anything decompressed, within the limit; the later batches are always reached."""
    is_bomb = name in bombs.BOMBS
    data = bombs.bomb(name) + encode.batch(shapes.some_records(1)) if is_bomb else bombs.claims()[name]
    put(tmp_path, data)
    done = hostile("verify", *deep, "orders-3", memory=MEMORY if is_bomb and deep else 100_000_000, seconds=15)
    assert done.exit_code == DAMAGED
    assert done.stderr == ""


@pytest.mark.parametrize("claimed", [1000, 100_000, 7_000_000])
def test_verify_among_false_headers_ends(hostile: Callable[..., Measured], tmp_path: Path, claimed: int) -> None:
    """Linear in the file: two seconds a megabyte would be far too slow."""
    put(tmp_path, bombs.false_headers(8, claimed) + encode.batch(shapes.some_records(9)))
    done = hostile("verify", "--deep", "orders-3", memory=150_000_000, seconds=16)
    assert done.exit_code == DAMAGED


def test_verify_of_a_log_that_is_all_damage(hostile: Callable[..., Measured], tmp_path: Path) -> None:
    """Every second batch is broken: the first thousand are reported, the others counted, and memory does not grow."""
    good = encode.batch(shapes.some_records(0))
    bad = good[:-1] + bytes([good[-1] ^ 0xFF])
    pairs = ((3 * at).to_bytes(8, "big") + (good if at % 2 else bad)[8:] for at in range(100_000))
    put(tmp_path, b"".join(pairs))
    done = hostile("verify", "orders-3", memory=100_000_000, seconds=60)
    assert done.exit_code == DAMAGED
    assert re.search(r"  damage   bad-crc ×1000 +  e\.g\. ", done.stdout.decode())
    assert b"49000 more damaged places" in done.stdout


def test_verify_of_ten_gigabytes_of_zeros(hostile: Callable[..., Measured], tmp_path: Path) -> None:
    path = put(tmp_path, encode.batch(shapes.some_records(0)))
    os.truncate(path, 10 << 30)
    done = hostile("verify", "--deep", "orders-3", memory=100_000_000, seconds=10)
    assert b"zero-tail" in done.stdout
    assert b"oversized-log" in done.stdout
