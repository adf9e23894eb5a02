"""Many workers, one order of output, and one end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest
from klog.base.interruptible_threads import start
from klog.base.progress import Sink
from klog.base.read_only import ReadOnlyFile
from klog.kernel import Window
from klog.log.ordered_pipeline import OrderedOutput, Work, run
from klog.log.reader import LogReader, WindowResult

from tests.commands.dump.sinks import Kept
from tests.oracles.plain.encode import Record, batch
from tests.oracles.plain.shapes import MS

WORKERS = [1, 2, 5, 16]
WINDOWS = 40


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 24 MB: some thirty windows."""
    file = tmp_path_factory.mktemp("lanes") / f"{0:020}.log"
    noise = Random(1).randbytes(64 << 10)
    file.write_bytes(b"".join(batch([Record(i, MS, None, noise)]) for i in range(400)))
    return file


def carry_out(path: Path, work: Work | Callable[[], Work], sink: Sink, jobs: int, *, made: bool = False) -> None:
    """Run *work* over the log, and ensure that no worker outlives it.

    Python lists a thread for a moment after its end, and an interrupt may keep it from being waited for.
    """
    before = set(threading.enumerate())
    with ReadOnlyFile(str(path)) as source:
        try:
            run(LogReader(source), work if made else lambda: work, sink, jobs)  # type: ignore[arg-type, return-value]
        finally:
            until = time.monotonic() + 60
            while not (left := set(threading.enumerate())) <= before and time.monotonic() < until:
                time.sleep(0.001)
            assert left <= before


def offsets(window: Window) -> bytes:
    return b"".join(b"%d\n" % window.batch(i).base_offset for i in range(window.count))


@pytest.mark.parametrize("jobs", WORKERS)
def test_output_comes_in_the_order_of_the_log(path: Path, jobs: int) -> None:
    """However long each window takes, and whether it is written at once or in pieces."""
    chance = Random(jobs)

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        time.sleep(chance.random() / 200)
        text = offsets(window)
        half = len(text) // 2
        lane.write(text[:half])
        time.sleep(chance.random() / 500)
        lane.write(text[half:])
        return False

    sink = Kept()
    carry_out(path, work, sink, jobs)
    assert bytes(sink.data) == b"".join(b"%d\n" % i for i in range(400))


@pytest.mark.parametrize("jobs", WORKERS)
def test_progress_adds_up_to_the_whole_log(path: Path, jobs: int) -> None:
    """Else the bar is at its end long before the work is."""

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        return False

    sink = Kept()
    carry_out(path, work, sink, jobs)
    assert sink.expected == sink.advanced == path.stat().st_size


@pytest.mark.parametrize("jobs", WORKERS)
def test_what_waits_in_a_window_is_written_at_the_end_of_its_turn(path: Path, jobs: int) -> None:
    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        window.check(0, window.count)
        window.batch_lines(window.count)
        return False

    sink = Kept()
    carry_out(path, work, sink, jobs)
    lines = bytes(sink.data).splitlines()
    assert [int(line.split()[1]) for line in lines] == list(range(400))
    assert all(line.endswith(b" isvalid: true") for line in lines)


@pytest.mark.parametrize("jobs", WORKERS)
def test_reports_stand_between_the_lines_they_belong_to(path: Path, jobs: int) -> None:
    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        time.sleep((piece.number * 7 % 5) / 1000)
        lane.write(b"before %d" % piece.number)
        lane.report(f"report {piece.number}")
        lane.write(b"after %d" % piece.number)
        return False

    sink = Kept()
    carry_out(path, work, sink, jobs)
    count = len(sink.reports)
    assert count > 20
    assert sink.events == [event for i in range(count) for event in (b"before %d" % i, f"report {i}", b"after %d" % i)]


@pytest.mark.parametrize("jobs", WORKERS)
def test_a_report_alone_waits_for_its_turn_too(path: Path, jobs: int) -> None:
    """A stretch may have nothing but damage; its place among the others is half of the result."""

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        time.sleep((piece.number * 7 % 5) / 1000)
        lane.report(f"report {piece.number}")
        return False

    sink = Kept()
    carry_out(path, work, sink, jobs)
    assert sink.reports == [f"report {i}" for i in range(len(sink.reports))]


@pytest.mark.parametrize("last", [0, 1, 7])
@pytest.mark.parametrize("jobs", WORKERS)
def test_nothing_follows_the_last_that_is_wanted(path: Path, jobs: int, last: int) -> None:
    """A limit that is reached ends all workers, also those that are ahead; alone, none reads unneeded parts."""
    seen = []

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        seen.append(piece.number)
        lane.write(b"%d\n" % piece.number)
        return piece.number == last

    sink = Kept()
    carry_out(path, work, sink, jobs)
    assert bytes(sink.data) == b"".join(b"%d\n" % i for i in range(last + 1))
    if jobs == 1:
        assert seen == list(range(last + 1))


@pytest.mark.parametrize(
    "error", [OSError(5, "Input/output error"), ValueError("ours"), KeyboardInterrupt(), MemoryError()]
)
@pytest.mark.parametrize("jobs", WORKERS)
def test_what_a_worker_raises_ends_all_and_comes_out(path: Path, jobs: int, error: BaseException) -> None:
    """In any thread; the earlier output has been written, nothing after it."""

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        lane.write(b"%d\n" % piece.number)
        if piece.number == 5:
            raise error
        return False

    sink = Kept()
    with pytest.raises(type(error)) as raised:
        carry_out(path, work, sink, jobs)
    assert raised.value is error
    assert bytes(sink.data) == b"0\n1\n2\n3\n4\n5\n"


@pytest.mark.parametrize("jobs", WORKERS)
def test_a_closed_pipe_ends_all_and_comes_out(path: Path, jobs: int) -> None:
    """`| head` must not leave workers reading a hundred gigabytes."""

    class Pipe(Kept):
        def write(self, data: bytes | memoryview) -> None:
            super().write(data)
            if len(self.events) == 3:
                raise BrokenPipeError(32, "Broken pipe")

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        lane.write(b"%d\n" % piece.number)
        return False

    sink = Pipe()
    with pytest.raises(BrokenPipeError):
        carry_out(path, work, sink, jobs)
    assert bytes(sink.data) == b"0\n1\n2\n"
    assert sink.advanced < path.stat().st_size


@pytest.mark.parametrize("jobs", WORKERS)
def test_a_worker_that_cannot_begin_ends_all(path: Path, jobs: int) -> None:
    """Out of memory for its buffers, for example."""

    def make() -> Work:
        raise MemoryError

    with pytest.raises(MemoryError):
        carry_out(path, make, Kept(), jobs, made=True)


def test_of_several_errors_the_first_comes_out(path: Path) -> None:
    """The others may be its consequences."""
    barrier = threading.Barrier(4, timeout=60)

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        barrier.wait()
        time.sleep(piece.number / 5)
        raise ValueError(piece.number)

    with pytest.raises(ValueError, match=r"^0$"):
        carry_out(path, work, Kept(), 4)


@pytest.mark.parametrize("jobs", WORKERS)
def test_progress_is_told_in_turn(path: Path, jobs: int) -> None:
    """A bar is not for several threads at once, and shows the finished part, not the future one."""
    sink = Kept()
    ahead: list[int] = []

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        if piece.number == 3:
            before = sink.advanced
            time.sleep(0.1)
            ahead.append(sink.advanced - before)
        return False

    carry_out(path, work, sink, jobs)
    assert ahead[0] <= 3 << 20, "no more than the windows before it"
    assert sink.advanced == path.stat().st_size


@pytest.mark.parametrize("jobs", WORKERS)
def test_each_worker_has_a_work_of_its_own(path: Path, jobs: int) -> None:
    """Decompression contexts are for one thread."""
    users: list[set[int]] = []

    def make() -> Work:
        mine: set[int] = set()
        users.append(mine)  # in one step: several threads do so at once

        def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
            mine.add(threading.get_ident())
            return False

        return work

    carry_out(path, make, Kept(), jobs, made=True)
    assert len(users) == jobs
    assert all(len(threads) <= 1 for threads in users)


def test_one_worker_is_the_caller_s_own_thread(path: Path) -> None:
    """^C reaches the main thread."""
    seen = set()

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        seen.add(threading.get_ident())
        return False

    carry_out(path, work, Kept(), 1)
    assert seen == {threading.get_ident()}


def test_of_several_workers_none_is_the_caller_s_own_thread(path: Path) -> None:
    """A handler that raises in the middle of a turn would leave the others waiting for ever."""
    seen = set()

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        seen.add(threading.get_ident())
        lane.write(b"x")
        return False

    carry_out(path, work, Kept(), 3)
    assert threading.get_ident() not in seen


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_an_interrupt_at_any_moment_ends_all(path: Path, jobs: int) -> None:
    chance = Random(jobs)

    def interrupt(delay: float) -> None:
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGINT)

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        lane.write(b"x")
        return False

    def interrupted() -> None:
        start(partial(interrupt, chance.random() / 100))
        carry_out(path, work, Kept(), jobs)
        time.sleep(60)  # done before the interrupt arrived: on a busy machine it may take long

    for _ in range(100):
        with pytest.raises(KeyboardInterrupt):
            interrupted()


def test_an_interrupt_ends_it_though_nobody_reads_what_is_written(path: Path) -> None:
    """`klog dump | something that hangs`."""
    stuck, nobody_will = threading.Event(), threading.Event()

    class Stuck(Kept):
        def write(self, data: bytes | memoryview) -> None:
            stuck.set()
            nobody_will.wait(300)

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        lane.write(b"x")
        return False

    def interrupt() -> None:
        stuck.wait(300)
        os.kill(os.getpid(), signal.SIGINT)

    began = time.monotonic()
    start(interrupt)
    with ReadOnlyFile(str(path)) as source, pytest.raises(KeyboardInterrupt):
        run(LogReader(source), lambda: work, Stuck(), 2)
    nobody_will.set()
    assert time.monotonic() - began < 100


def test_an_empty_log_is_done_at_once(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.touch()

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        raise AssertionError("there is nothing to work on")

    sink = Kept()
    for jobs in WORKERS:
        carry_out(path, work, sink, jobs)
    assert (sink.events, sink.expected, sink.advanced) == ([], 0, 0)


def test_nothing_is_written_for_nothing(path: Path) -> None:
    """An empty piece need not wait for its turn."""

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        lane.write(b"")
        return False

    sink = Kept()
    carry_out(path, work, sink, 3)
    assert sink.events == []
