"""Does jobs on Spark: several units of work in a task, progress, and ^C that cancels the job."""

from __future__ import annotations

import os
import pickle
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from types import FrameType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from klog.base import errors
from klog.base.errors import ExitCode, KlogError, SparkError
from klog.base.progress import Sink
from klog.base.unusable import UNUSABLE
from klog.data_dir.read_options import requested
from klog.jobs.runner import Job, Take, TaskResult
from klog.jobs.slices import pack_tasks
from klog.spark import remote_call
from klog.spark.remote_tiers import mount_of_driver, read_over_tiers
from klog.spark.session import abandon_all, session
from klog.spark.shipping import SITE
from klog.spark.worker_reads import read_as_requested

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

U = TypeVar("U")
O = TypeVar("O")  # noqa: E741

_PAUSE_SECONDS = 0.1
_UNKNOWN_CORES = 8
_WAVE_RESULTS: Final = 256 << 20
"""The driver has the results of one wave in memory: a wave may have so many bytes of them, if they remain as dense."""
_GROWTH: Final = 8
"""How many times as large as the wave before a wave may be."""


class _Way(NamedTuple):
    """The way in which a job is started, its finished part of *total* bytes, and the way in which it is cancelled."""

    start: Callable[[], list[bytes]]
    done: Callable[[], int]
    cancel: Callable[[], None]


def is_connect(spark: SparkSession) -> bool:
    """Whether *spark* is a session of Spark Connect, which has neither RDDs nor a status tracker."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


class SparkRunner:
    """Does jobs on Spark: see `klog.jobs.runner.Runner`.  *name*: of its jobs, in Spark's own user interface.

    Tasks find a job by its name; its units, options and results are pickled.
    """

    def __init__(self, spark: SparkSession, name: str = "klog") -> None:
        self._spark, self._name = spark, name
        self._way = _connect if is_connect(spark) else _classic

    @property
    def workers(self) -> int:
        """How many tasks there should be at least, if there is enough for them to do."""
        return _UNKNOWN_CORES if is_connect(self._spark) else max(1, self._spark.sparkContext.defaultParallelism)

    def run(self, job: Job[U, O], sink: Sink, take: Take, first_bytes: int | None = None) -> None:
        """Do *job* in waves of tasks; the first wave reads about *first_bytes*, None: all.

        In the main thread a ^C cancels the job and raises KeyboardInterrupt, a second one ends the process.  Notes
        the paths that tasks could not use.  Raises the exception that klog raised in a task, SparkError for any other
        failure of the job.
        """
        from pyspark import cloudpickle

        cloudpickle.register_pickle_by_value(remote_call)  # type: ignore[no-untyped-call]  # it has no types
        request = requested()
        function = job.function if request is None else partial(read_as_requested, job.function, request)
        mount = mount_of_driver()
        function = function if mount is None else partial(read_over_tiers, function, mount)
        pickled: bytes = cloudpickle.dumps((function, job.options))  # type: ignore[no-untyped-call]  # as above
        units, sizes = job.units, job.sizes
        sink.expect(sum(sizes))
        first, most = 0, sum(sizes) if first_bytes is None else first_bytes
        while first < len(units):
            end = load = 0
            for end in range(first, len(units)):
                if end > first and load + sizes[end] > most:
                    break
                load += sizes[end]
            else:
                end = len(units)
            held = 0
            for _, result in self._wave(pickled, range(first, end), job, sink):
                held += len(result.content)
                if take(result):
                    return
            first, most = end, max(first_bytes or 0, min(_GROWTH * load, _WAVE_RESULTS * load // max(held, 1)))

    def _wave(self, pickled: bytes, numbers: range, job: Job[U, O], sink: Sink) -> list[tuple[int, TaskResult]]:
        """Do the units of these *numbers*; return the results of each unit, in their order."""
        units, sizes = job.units, job.sizes
        packs = pack_tasks([sizes[i] for i in numbers], least=self.workers)
        tasks = [pickle.dumps([(numbers[at], units[numbers[at]]) for at in pack]) for pack in packs]
        loads = [sum(sizes[numbers[at]] for at in pack) for pack in packs]
        streams = _watch(self._way(self._spark, pickled, tasks, loads, self._name), sum(loads), sink)
        found: list[tuple[int, TaskResult]] = []
        for results, unusable in map(pickle.loads, streams):
            found += results
            for one in unusable:
                UNUSABLE.note(one)
        found.sort(key=itemgetter(0))
        return found


@contextmanager
def spark_runner(master: str | None, conf: Mapping[str, str], ship: str, name: str) -> Iterator[SparkRunner]:
    """Yield the runner of one command, in a session that lasts as long; see `klog.spark.session.session`."""
    with session(master, conf, ship, brief=True) as ours:
        yield SparkRunner(ours.spark, name)


def _home() -> remote_call.DriverPlaces:
    return remote_call.DriverPlaces(SITE, os.getcwd())


def _classic(spark: SparkSession, job: bytes, tasks: list[bytes], sizes: Sequence[int], name: str) -> _Way:
    """The way through an RDD: 12 ms of CPU a task instead of 44."""
    context = spark.sparkContext
    group = f"klog-{os.urandom(4).hex()}"
    done = context.accumulator(0)
    home = _home()

    def start() -> list[bytes]:
        context.setJobGroup(group, name, True)
        rdd = context.parallelize(list(zip(tasks, sizes, strict=True)), len(tasks))
        return rdd.mapPartitions(remote_call.of_partition(job, home, done)).collect()

    return _Way(start, lambda: done.value, lambda: context.cancelJobGroup(group))


def _connect(spark: SparkSession, job: bytes, tasks: list[bytes], sizes: Sequence[int], name: str) -> _Way:
    """The way through Arrow, which Spark Connect has too."""
    tag = f"{name}-{os.urandom(4).hex()}"
    total, seen = sum(sizes), [0]
    frame = arrow_frame(spark, job, tasks)

    def progress(stages: Sequence[object], inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        counts = [(getattr(stage, "num_completed_tasks", 0), getattr(stage, "num_tasks", 0)) for stage in stages]
        every = sum(count for _, count in counts)
        seen[0] = total * sum(ended for ended, _ in counts) // every if every else 0

    def start() -> list[bytes]:
        spark.addTag(tag)
        spark.registerProgressHandler(progress)  # type: ignore[arg-type]  # the protocol takes its keywords apart
        try:
            return [bytes(row[0]) for row in frame.collect()]
        finally:
            spark.removeProgressHandler(progress)  # type: ignore[arg-type]  # as above
            spark.removeTag(tag)

    def cancel() -> None:
        spark.interruptTag(tag)

    return _Way(start, lambda: seen[0], cancel)


def arrow_frame(spark: SparkSession, job: bytes, tasks: list[bytes]) -> DataFrame:
    """Return the DataFrame, lazy as all are, whose rows are pickled lists of results."""
    work = remote_call.of_batches(job, _home(), tasks)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(work, "results binary")


def _watch(way: _Way, total: int, sink: Sink) -> list[bytes]:
    """Start a job and wait for it, in small steps, so that the main thread reacts to ^C."""
    told = cancelled = 0
    with _interrupts() as wanted:
        pool = ThreadPoolExecutor(1)
        job = pool.submit(way.start)
        pool.shutdown(wait=False)
        while wait((job,), _PAUSE_SECONDS).not_done:
            if wanted.is_set() and not cancelled:
                cancelled = 1
                way.cancel()
            now = way.done()
            sink.advance(now - told)
            told = now
    if wanted.is_set():
        raise KeyboardInterrupt
    error = job.exception()
    if error is not None:
        raise _explained(error) from error
    sink.advance(max(0, total - told))
    return job.result()


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Yield an event that ^C sets; the second ^C ends the process with everything it started."""
    wanted = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if wanted.is_set():
            abandon_all()
            os._exit(ExitCode.CANCELLED)
        wanted.set()

    if threading.current_thread() is not threading.main_thread():
        yield wanted
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield wanted
    finally:
        signal.signal(signal.SIGINT, before)


_OURS = re.compile(r"^klog\.base\.errors\.(\w+): (.*)$", re.MULTILINE)
_RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(.+)$", re.MULTILINE)


def _explained(error: BaseException) -> BaseException:
    """Return one line with the reason of a job's failure: klog's exception in the task, else any other."""
    if isinstance(error, KlogError | KeyboardInterrupt | MemoryError):
        return error
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        kind = getattr(errors, ours[1], SparkError)
        return kind(ours[2]) if issubclass(kind, KlogError) else SparkError(ours[2])
    raised = _RAISED.findall(text)
    lines = raised[-1:] or [line for line in text.splitlines() if line.strip()]
    return SparkError(f"the job failed: {lines[0].strip() if lines else type(error).__name__}")
