"""`klog spark verify` says what `klog verify` says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.progress import Silence
from klog.data_dir.log_dir import LogDir
from klog.jobs.verify import verify_in_tasks
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.verify import PartitionResult, log_dir_facts
from klog.spark.run import SparkRunner
from pyspark.sql import SparkSession

from tests.conftest import FIXTURES, Ran
from tests.partition.verify.partitions import Damageable, flipped

pytestmark = pytest.mark.spark
Klog = Callable[..., Ran]
LOG = "idempotent-0/00000000000000000375.log"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A log dir with damage in one partition, a leftover in another, and a directory that is no partition."""
    damageable = Damageable(tmp_path, "idempotent-0", "zstd-0", "gzip-0")
    damageable.change(LOG, flipped(100))
    (tmp_path / "zstd-0" / f"{0:020}.log.cleaned").write_bytes(b"")
    (tmp_path / "elsewhere").mkdir()
    return tmp_path


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "csv"])
def test_output_and_exit_code_are_those_of_verify(spark: SparkSession, klog: Klog, damaged: Path, form: str) -> None:
    """Scripts move from one to the other by a word."""
    paths = (damaged, FIXTURES / "modern")
    alone = klog("verify", "--deep", "--output", form, *paths)
    assert klog("spark", "verify", "--deep", "--output", form, *paths) == alone
    assert alone.exit_code == 4


def test_partitions_and_files_can_be_named(spark: SparkSession, klog: Klog, damaged: Path) -> None:
    for arguments in ((damaged / "idempotent-0",), (damaged / LOG,), (damaged, "--topic", "z*")):
        assert klog("spark", "verify", *arguments) == klog("verify", *arguments)
    assert klog("spark", "verify", "--topic", "absent", damaged).exit_code == 16


def test_a_partition_that_vanishes_before_its_task_is_a_finding(spark: SparkSession, damaged: Path) -> None:
    """Retention and reassignment go on while thousands of partitions are checked: one is no reason to lose the rest."""
    log_dir = LogDir(str(damaged))
    around = log_dir_facts(log_dir)
    wanted = [(partition, around) for partition in log_dir.partitions]
    names = [partition.directory for partition, _ in wanted]
    assert [partition.size > 0 for partition, _ in wanted] == [True] * 3
    shutil.rmtree(damaged / "gzip-0")
    checked: list[PartitionResult] = []
    verify_in_tasks(SparkRunner(spark), wanted, SurveyOptions(), Silence(), checked.append)
    assert [one.partition.directory for one in checked] == names
    assert {one.partition.directory: [finding.id for finding in one.findings] for one in checked} == {
        "idempotent-0": ["bad-crc"],
        "gzip-0": ["unreadable", "metadata-missing"],
        "zstd-0": ["leftover"],
    }


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["crash/v4.3.1-kill", "crash/v3.9.1-kill"])
def test_after_a_crash_too(spark: SparkSession, klog: Klog, image: Callable[[str], Path], name: str) -> None:
    """Real log dirs of brokers that were killed."""
    paths = [path for path in image(f"{name}/before.tar.gz").iterdir() if path.is_dir()]
    alone = klog("verify", "--output", "json", *paths)
    assert klog("spark", "verify", "--output", "json", *paths) == alone


def test_settings_have_a_name_and_a_value(klog: Klog, damaged: Path) -> None:
    done = klog("spark", "verify", "--spark-conf", "spark.executor.memory", damaged)
    assert (done.exit_code, done.stderr.startswith(b"klog: --spark-conf spark.executor.memory: expected")) == (16, True)
    assert klog("spark", "verify").exit_code == 16
    assert klog("spark", "verify", "--output", "xml", damaged).exit_code == 16
