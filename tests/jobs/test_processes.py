"""Many small partitions in several processes: the findings are those of one process."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.base.progress import Silence
from klog.base.unusable import UNUSABLE
from klog.jobs.runner import FEWEST, Job, Processes, TaskResult, pickled_result

from tests.conftest import FIXTURES, run_klog_process

PARTITIONS = FEWEST + 10


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir of many small partitions, three of which are damaged."""
    log_dir = tmp_path_factory.mktemp("many")
    source = FIXTURES / "modern" / "logappend-0"
    for number in range(PARTITIONS):
        shutil.copytree(source, log_dir / f"many-{number}")
    for number in (0, 100, PARTITIONS - 1):
        log = sorted((log_dir / f"many-{number}").glob("*.log"))[0]
        content = bytearray(log.read_bytes())
        content[70] ^= 0xFF
        log.write_bytes(content)
    return log_dir


@pytest.mark.parametrize("form", ["text", "json"])
def test_processes_find_what_one_finds_and_in_the_same_order(many: Path, form: str) -> None:
    """Otherwise a script would see another result on a machine with more cores."""
    one, two = (run_klog_process("verify", many, "--output", form, "--jobs", jobs) for jobs in ("1", "3"))
    assert one == two
    assert one.exit_code == 4
    if form == "json":
        found = {finding["file"].split("/")[0] for finding in json.loads(one.stdout)["findings"]}
        assert {"many-0", "many-100", f"many-{PARTITIONS - 1}"} <= found


COUNTED = """
import os, sys
from klog_cli import app
forks = []
os.fork = lambda fork=os.fork: forks.append(1) or fork()
sys.argv = ["klog", *sys.argv[1:]]
app.main()
print(len(forks))
"""


def test_processes_are_started_for_many_partitions_only(many: Path) -> None:
    """Each costs some milliseconds, and large segments are shared by threads."""

    def forks(*words: object) -> int:
        command = [sys.executable, "-c", COUNTED, "verify", *map(str, words)]
        done = subprocess.run(command, env=_environment(), capture_output=True, check=True, timeout=120)
        return int(done.stdout.split()[-1])

    assert forks(many, "--jobs", 2) == 2
    assert forks(many, "--jobs", 1) == 0
    assert forks(many / "many-1", "--jobs", 2) == 0


def test_an_interrupt_ends_the_processes_too(many: Path) -> None:
    """Started processes must not continue to read disks after ^C."""
    code = "import time; from klog.jobs import verify; verify.verify_partition = lambda *_: time.sleep(60)"
    run = "import sys; from klog_cli import app; sys.argv[0] = 'klog'; sys.exit(app.main())"
    command = [sys.executable, "-c", f"{code}; {run}", "verify", str(many), "--jobs", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=_environment())
    children: list[int] = []
    until = time.monotonic() + 60
    while len(children) < 2 and time.monotonic() < until:
        children = [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (32, b"klog: cancelled\n")
    assert [child for child in children if Path(f"/proc/{child}").exists()] == []


RAISED = """
import os, signal, sys
from klog.data_dir.log_dir import LogDir
from klog.base.errors import KlogError, UnreadableError
from klog.base.progress import Silence
from klog.jobs import verify
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.verify import log_dir_facts

def fail(*_):
    {}

verify.verify_partition = fail
found = LogDir(sys.argv[1])
wanted = [(partition, log_dir_facts(found)) for partition in found.partitions]
try:
    verify.verify_partitions(wanted, SurveyOptions(jobs=2), Silence(), print, None)
except (KlogError, OSError, MemoryError) as error:
    print(type(error).__name__, error, sep=": ")
"""


@pytest.mark.parametrize(
    ("fails", "raised"),
    [
        ("raise UnreadableError('data: Input/output error')", "UnreadableError: data: Input/output error"),
        ("raise MemoryError('no more')", "MemoryError: no more"),
        ("raise OSError(5, 'Input/output error')", "OSError: [Errno 5] Input/output error"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "KlogError: a process that did part of the work was killed"),
    ],
    ids=["unreadable", "memory", "system", "killed"],
)
def test_what_a_process_raises_is_raised(many: Path, fails: str, raised: str) -> None:
    """Otherwise the partitions that it should have checked would count as clean."""
    command = [sys.executable, "-c", RAISED.format(fails), str(many)]
    done = subprocess.run(command, env=_environment(), capture_output=True, check=True, timeout=120)
    assert done.stdout.decode().startswith(raised)


SLOW = """
import os, signal, sys, time
from klog.base.progress import Silence
from klog.jobs.runner import pickled_result
from klog.jobs.runner import Job, Processes

def work(number, options):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60 if number >= 32 else 0)
    yield pickled_result("number", number)

Processes(2).run(Job(work, range(64), None, [0] * 64), Silence(), lambda result: print(result.value, flush=True))
"""


def test_results_come_as_soon_as_they_are_there_and_an_interrupt_is_for_the_first_process() -> None:
    """A ^C in a terminal reaches all processes: the first one ends the others, and reports it."""
    command = [sys.executable, "-c", SLOW]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment())
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(32)] == [b"%d\n" % number for number in range(32)]
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == b""


def test_processes_hand_back_what_they_could_not_use() -> None:
    UNUSABLE.clear()

    def work(number: int, _options: None) -> Iterator[TaskResult]:
        if number % 10 == 3:
            UNUSABLE.refuse(f"a/{number}", OSError(errno.EIO, os.strerror(errno.EIO)), "open")
        yield pickled_result("number", number)

    found: list[int] = []
    Processes(2).run(Job(work, range(40), None, [0] * 40), Silence(), lambda result: found.append(result.value))
    assert found == list(range(40))
    assert sorted(one.path for one in UNUSABLE.named()) == ["a/13", "a/23", "a/3", "a/33"]
    UNUSABLE.clear()


def test_nothing_is_forked_beside_a_thread(many: Path) -> None:
    """In the copy only one thread would continue, and locks of the others would be held for ever."""
    thread = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    command = [sys.executable, "-c", thread + COUNTED, "verify", str(many), "--jobs", "2"]
    done = subprocess.run(command, env=_environment(), capture_output=True, check=True, timeout=120)
    assert done.stdout.split()[-1] == b"0"


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
