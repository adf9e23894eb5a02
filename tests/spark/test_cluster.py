"""A cluster whose machines have Python and PyArrow, and no klog: it is shipped, and a lost machine costs nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from klog.data_dir.log_dir import LogDir
from klog.jobs.export import MANIFEST, plan_tasks
from klog.log.records import RecordFilter

from tests.commands.compact.compacting import NOW_MS, ORIGINAL
from tests.conftest import Ran, writable_copy
from tests.jobs.pieces import dumped, folder_of, lines, partitions
from tests.partition.verify.partitions import Damageable, flipped
from tests.spark import class_data
from tests.spark.cluster import Cluster, bare_python

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVER = """
import sys
from pathlib import Path
from klog.partition.verify.verify import log_dir_facts
from klog.jobs.verify import VerifyOptions, VerifyTask, collect_results
from klog.data_dir.log_dir import LogDir
from klog.base.progress import Silence
from klog.jobs.runner import Job, collect
from klog.jobs.stats import count_records
from klog.log.reader import MAX_BATCH_BYTES
from klog.spark.run import SparkRunner
from klog.spark.session import session
from pyspark import cloudpickle
from tests.spark import tasks

cloudpickle.register_pickle_by_value(tasks)
master, python, data, marks, *settings = sys.argv[1:]
partitions = LogDir(data).partitions
units = [[VerifyTask(i, partition.path, data)] for i, partition in enumerate(partitions)]
conf = {"spark.pyspark.python": python, **dict(setting.split("=", 1) for setting in settings)}
with session(master, conf, brief=True) as ours:
    runner, options = SparkRunner(ours.spark), (VerifyOptions(), marks)
    results = collect(runner, Job(tasks.verified_slowly, units, options, [1] * len(units)), Silence())
    counted = count_records(partitions, MAX_BATCH_BYTES, runner, Silence(), split_bytes=4096)
print(sum(one.records + one.markers for one in counted))
for checked in collect_results(results, partitions):
    print(checked.partition.directory, *checked.totals, *(finding.id for finding in checked.findings), flush=True)
"""

WRITER = """
import sys
from functools import partial
from klog.commands.compact import job as compact
from klog.jobs import export
from klog_cli.app import main
from pyspark import cloudpickle
from tests.spark import tasks

cloudpickle.register_pickle_by_value(tasks)
marks, *arguments = sys.argv[1:]
export.plan_tasks = partial(export.plan_tasks, split_bytes=4096, piece_bytes=600_000)
export.export = partial(tasks.committed_slowly, export.export, marks)
compact.compact = partial(tasks.committed_slowly, compact.compact, marks)
sys.argv = ["klog", "spark", *arguments]
sys.exit(main())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log dir with every codec, and damage."""
    names = ("idempotent-0", "zstd-0", "gzip-0", "snappy-1", "lz4-broker-0", "plain-1", "plain-2", "tx-0")
    damageable = Damageable(tmp_path / "data", *names)
    damageable.change("idempotent-0/00000000000000000375.log", flipped(100))
    return tmp_path / "data"


def settings() -> tuple[str, ...]:
    """Return the settings of small drivers and executors."""
    executor = " ".join((*class_data.BRIEF, *class_data.options()))
    return "spark.executor.memory=512m", "spark.driver.memory=512m", f"spark.executor.extraJavaOptions={executor}"


ALONE = "spark.cores.max=1"
"""One executor; two start two JVMs for what one shows."""


def given(*settings: str) -> list[str]:
    """Return *settings* as options of klog."""
    return [word for setting in settings for word in ("--spark-conf", setting)]


def written_with_a_loss(cluster: Cluster, marks: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command of `klog spark` that writes; kill a worker that has written a piece which is not there yet."""
    marks.mkdir()
    command = [sys.executable, "-c", WRITER, marks, *arguments, "--master", cluster.url]
    command += given(f"spark.pyspark.python={cluster.python}", *settings())
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=class_data.environment(), text=True
    ) as driver:
        lost = busy_worker(marks, driver)
        cluster.kill_worker(lost)
        output, errors = driver.communicate(timeout=240)
    cluster.replace_worker(lost)
    return subprocess.CompletedProcess(command, driver.returncode, output, errors)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def busy_worker(marks: Path, driver: subprocess.Popen[str]) -> int:
    """Wait until a task reports its worker's copy of klog, and return that worker."""
    end = time.monotonic() + 180
    while time.monotonic() < end and driver.poll() is None:
        for mark in marks.iterdir():
            found = re.search(r"/work(\d)/.*/klogsite/klog/", mark.read_text())
            if found:
                return int(found[1])
        time.sleep(0.05)
    raise AssertionError(f"no task began: {driver.communicate(timeout=5)}")


def test_the_workers_python_has_no_klog(cluster: Cluster) -> None:
    """Else the tests here would show nothing."""
    code = "import pyarrow, importlib.util as u; print([u.find_spec(name) for name in ('klog', 'lz4', 'zstandard')])"
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([cluster.python, "-c", code], capture_output=True, env=plain, check=True, cwd=cluster.folder)
    assert done.stdout == b"[None, None, None]\n"


def test_klog_ships_itself(
    cluster: Cluster, klog: Callable[..., Ran], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No one installs anything on a hundred machines for a check; nor need paths be whole there."""
    monkeypatch.chdir(data.parent)
    command = [sys.executable, "-m", "klog_cli.app", "spark", "verify", "--deep", "--output", "json", data.name]
    command += ["--master", cluster.url, *given(f"spark.pyspark.python={cluster.python}", ALONE, *settings())]
    done = subprocess.run(command, capture_output=True, env=class_data.environment(), check=False, timeout=240)
    alone = klog("verify", "--deep", "--output", "json", data.name)
    assert (done.stdout, done.stderr, done.returncode) == (alone.stdout, b"", 4)
    assert {finding["id"] for finding in json.loads(done.stdout)["findings"]} == {"bad-crc"}


def test_an_export_is_whole_when_a_machine_is_lost(cluster: Cluster, data: Path, tmp_path: Path) -> None:
    """Each record once, each file in the manifest, and nothing of the pieces that were half done."""
    out = tmp_path / "out"
    done = written_with_a_loss(cluster, tmp_path / "marks", "export", data, "--to", out, "--output", "jsonl")
    assert done.returncode == 4, done.stderr
    assert done.stderr.count("\n") == 1
    found = partitions(data)
    assert [lines(folder_of(out, one)) for one in found] == [dumped(one) for one in found]
    manifest = json.loads((out / MANIFEST).read_text())
    assert sorted([MANIFEST, *(one["file"] for one in manifest["files"])]) == sorted(contents(out))
    assert (
        len(list((tmp_path / "marks").iterdir()))
        > len(plan_tasks(found, RecordFilter(), "read_uncommitted", 4096, 600_000))
        > 4
    )
    assert sorted(os.listdir(out)) == sorted({MANIFEST, *(f"topic={one.topic}" for one in found)})


@pytest.mark.long
def test_a_compaction_is_whole_when_a_machine_is_lost(
    cluster: Cluster, klog: Callable[..., Ran], tmp_path: Path
) -> None:
    """Byte for byte what `klog compact --to` makes alone."""
    data = writable_copy(ORIGINAL, tmp_path / "data")
    how = ("--policy", "compact", "--segment-size", "8700", "--now", str(NOW_MS), "--map-memory", "1000")
    out, marks = tmp_path / "out", tmp_path / "marks"
    done = written_with_a_loss(cluster, marks, "compact", data, "--output", "log", "--to", out, *how)
    assert (done.returncode, done.stderr) == (0, "")
    assert klog("compact", data, "--to", tmp_path / "alone", *how).exit_code == 0
    assert contents(out) == contents(tmp_path / "alone")
    assert len(list(marks.iterdir())) > len(LogDir(str(data)).partitions)


def test_a_packed_environment_is_unpacked_where_tasks_run(
    cluster: Cluster, klog: Callable[..., Ran], data: Path, tmp_path: Path
) -> None:
    """Then the machines need no more than an interpreter: this is what venv-pack makes, but for copies of the files."""
    python = bare_python(tmp_path / "env")
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    for name in ("klog", "pyspark_klog", "lz4", "snappy", "cramjam", "zstandard", "isal"):
        for folder in getattr(find_spec(name), "submodule_search_locations", None) or ():
            (site / name).symlink_to(folder)
    packed = tmp_path / "env.tar.gz"
    subprocess.run(["tar", "-czf", packed, "-C", python.parent.parent, "."], check=True)
    command = [sys.executable, "-m", "klog_cli.app", "spark", "verify", "--output", "json", data, "--ship", packed]
    command += ["--master", cluster.url, *given(ALONE, *settings())]
    done = subprocess.run(command, capture_output=True, env=class_data.environment(), check=False, timeout=240)
    alone = klog("verify", "--output", "json", data)
    assert (done.stdout, done.stderr, done.returncode) == (alone.stdout, b"", 4)


@pytest.mark.long
def test_a_machine_that_is_lost_in_the_middle_costs_no_result(
    cluster: Cluster, klog: Callable[..., Ran], data: Path, tmp_path: Path
) -> None:
    """Its tasks are done again elsewhere, its finished ones count, and nothing counts twice."""
    marks = tmp_path / "marks"
    marks.mkdir()
    command = [sys.executable, "-c", DRIVER, cluster.url, cluster.python, data, marks, *settings()]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=class_data.environment(), text=True
    ) as driver:
        cluster.kill_worker(busy_worker(marks, driver))
        output, errors = driver.communicate(timeout=240)
    assert (driver.returncode, errors) == (0, "")
    counted, *lines = output.splitlines()
    rows = [line.split() for line in lines]
    assert [row[0] for row in rows] == sorted(path.name for path in data.iterdir() if path.is_dir())
    whole = json.loads(klog("verify", "--output", "json", data).stdout)
    names = ("partitions", "segments", "bytes", "batches", "records")
    assert [sum(int(row[i + 1]) for row in rows) for i in range(5)] == [whole[name] for name in names]
    assert [finding for row in rows for finding in row[6:]] == ["bad-crc"]
    assert int(counted) == whole["records"]
