"""Which settings a session gets, and which Spark; how klog is packed for executors."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.base.errors import UnsupportedError, UsageError
from klog.data_dir.disk.disk_changes import Scratch
from klog.spark import session as module
from klog.spark.session import Session, environment_conf, session
from klog.spark.shipping import write_archive
from pyspark.sql import SparkSession

from tests.conftest import FIXTURES, run_klog_process


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    made = Scratch()
    yield made
    made.remove()


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_PYTHON", "MASTER"):
        monkeypatch.delenv(name, raising=False)


def settings(scratch: Scratch, master: str | None = None, ship: str = "preinstalled", **conf: str) -> dict[str, str]:
    """Return the settings that a session would get, the workers' Python as `python`."""
    dotted = {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()}
    found, python = module._settings(master, dotted, ship, True, "/nowhere", scratch)
    return found | {"python": python}


@pytest.mark.parametrize(
    ("master", "used"),
    [
        (None, "local[*,3]"),
        ("local", "local[1,3]"),
        ("local[4]", "local[4,3]"),
        ("local[2,1]", "local[2,1]"),
        ("yarn", "yarn"),
    ],
)
def test_on_one_machine_a_task_is_tried_again(scratch: Scratch, master: str | None, used: str) -> None:
    """There Spark gives up at the first worker that dies; clusters have their own number of tries."""
    assert settings(scratch, master)["spark.master"] == used


def test_workers_keep_little_of_what_they_free(scratch: Scratch) -> None:
    """Arrow's own allocator would have 40 MB of each worker's 250."""
    name = "ARROW_DEFAULT_MEMORY_POOL"
    assert settings(scratch, "spark://here:7077")[f"spark.executorEnv.{name}"] == "system"
    assert module._environment("/usr/bin/java", "/nowhere", "local[2]")[name] == "system"


def test_sql_over_rows_is_spared_what_only_finds_mistakes_of_arrow(scratch: Scratch) -> None:
    """Bounds are looked at for each value of each row otherwise: a quarter of what the JVM does."""
    found, _ = module._settings("local[2]", {}, "preinstalled", False, "/nowhere", scratch)
    assert "-Darrow.enable_unsafe_memory_access=true" in found["spark.driver.extraJavaOptions"]
    theirs = {"spark.driver.extraJavaOptions": "-Xss4m"}
    found, _ = module._settings("local[2]", theirs, "preinstalled", False, "/nowhere", scratch)
    assert found["spark.driver.extraJavaOptions"] == "-Xss4m"


def test_what_the_environment_says_goes_before_what_klog_would_have(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Sites have their reasons; Spark reads that file by itself, if only klog does not say otherwise."""
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\nspark.master  spark://here:7077\nspark.ui.enabled=true\nspark.pyspark.python: /usr/bin/python3 \n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    found = settings(scratch)
    assert found["spark.master"] == "spark://here:7077"
    assert "spark.ui.enabled" not in found
    assert "spark.driver.extraJavaOptions" not in found
    assert found["python"] == "/usr/bin/python3"
    assert settings(scratch, "local[2]", ui_enabled="maybe")["spark.master"] == "local[2,3]"
    assert settings(scratch, ui_enabled="maybe")["spark.ui.enabled"] == "maybe"


def test_defaults_that_cannot_be_read_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert environment_conf("/nowhere") == {}
    (tmp_path / "spark-defaults.conf").mkdir()
    with pytest.raises(UsageError, match=r"spark-defaults.conf: Is a directory"):
        environment_conf("/nowhere")


def test_klog_is_shipped_beside_what_is_shipped_already(scratch: Scratch) -> None:
    """A job may bring archives of its own, and a site a PYTHONPATH."""
    found = settings(scratch, "yarn", "archive", archives="a.zip#a", executorEnv_PYTHONPATH="/site")
    assert found["spark.archives"] == f"{scratch.path}/klog.zip#klogsite,a.zip#a"
    assert found["spark.executorEnv.PYTHONPATH"] == "klogsite:/site"
    assert "spark.local.dir" not in found
    assert not [
        name for name in settings(scratch, "local[2]", "archive") if "archives" in name or "executorEnv" in name
    ]


def test_a_packed_environment_brings_its_python(scratch: Scratch, tmp_path: Path) -> None:
    packed = tmp_path / "klog.tar.gz"
    packed.write_bytes(b"")
    found = settings(scratch, "yarn", str(packed))
    assert found["spark.archives"] == f"{packed}#environment"
    assert found["python"] == "./environment/bin/python"


def test_an_unknown_way_to_ship_is_named(scratch: Scratch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--ship pigeon: expected archive, preinstalled or an environment"):
        settings(scratch, "yarn", "pigeon")


def test_the_archive_is_all_that_a_bare_python_needs_to_verify(tmp_path: Path) -> None:
    """Executors have Python and PyArrow; a codec that is forgotten here is damage that there is not, there."""
    with (tmp_path / "klog.zip").open("wb") as file:
        write_archive(file)
    with zipfile.ZipFile(tmp_path / "klog.zip") as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from klog.partition.verify.segment_pass import SurveyOptions\n"
        "from klog.partition.verify.verify import verify_partition\n"
        "from klog.data_dir.partition import Partition\n"
        "import klog.kernel._window as kernel\n"
        "assert kernel.__file__.startswith(sys.argv[1])\n"
        "from klog.schemas.avro import AvroSchema\n"
        "from klog.schemas.protobuf import ProtobufSchema\n"
        "assert AvroSchema('\"int\"', {}).decode(b'\\x02').value == 1\n"
        "message = ProtobufSchema('message A { optional int32 a = 1; }', {}).decode(b'\\0\\x08\\x07')\n"
        "assert message.value == {'a': 7}\n"
        "assert sys.modules['fastavro'].__file__.startswith(sys.argv[1])\n"
        "assert sys.modules['google.protobuf'].__file__.startswith(sys.argv[1])\n"
        "for path in sys.argv[2:]:\n"
        "    checked = verify_partition(Partition(path), request=SurveyOptions(deep=True))\n"
        "    print(checked.totals.records, [finding.id for finding in checked.findings])\n"
    )
    paths = [FIXTURES / "modern" / name for name in ("gzip-0", "lz4-broker-0", "snappy-1", "zstd-0")]
    command = [sys.executable, "-I", "-S", "-c", code, tmp_path / "site", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert [line for line in lines if line.startswith("0 ") or not line.endswith("[]")] == []


def test_without_pyspark_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(UnsupportedError, match=r"needs PySpark: pip install 'klog\[spark\]'"):
        session()


def test_for_spark_connect_more_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark's own message names a package of many."""
    monkeypatch.setitem(sys.modules, "grpc", None)
    # The workers of a parallel run have a main module without a file, which PySpark takes for its own doctests.
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    with pytest.raises(UnsupportedError, match=r"Spark Connect needs more: pip install 'pyspark\[connect\]'"):
        module._connect("sc://127.0.0.1:1", {}, "preinstalled")


@pytest.mark.spark
def test_a_session_that_is_there_is_adopted_and_left(spark: SparkSession) -> None:
    """In a notebook the session is everybody's."""
    with session("local[1]") as ours:
        assert ours.spark is spark
        assert not ours.is_ours
    assert spark.range(3).count() == 3
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.spark
def test_nothing_but_the_result_is_printed_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark greets with a dozen lines; in a cron job each is a mail."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = run_klog_process("spark", "verify", FIXTURES / "modern", "--master", "local[1]", "--spark-conf", "spark.x=y")
    assert (done.exit_code, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"clean: 23 partitions, ")
    assert [name for name in os.listdir(tmp_path) if name.startswith(("klog", "spark", "pyspark"))] == []


@pytest.mark.spark
def test_a_master_that_spark_does_not_know_is_a_line() -> None:
    """Spark's own words for it are a stack trace of the JVM below one of Python."""
    done = run_klog_process("spark", "verify", FIXTURES / "modern" / "zstd-0", "--master", "local-nonsense")
    assert (done.exit_code, done.stdout, done.stderr.count(b"\n")) == (8, b"", 1)
    assert done.stderr.startswith(b"klog: local-nonsense: Spark did not start: Could not parse Master URL")


def test_a_session_of_others_is_not_closed() -> None:
    class Theirs:
        def stop(self) -> None:
            raise AssertionError("stopped")

    Session(Theirs()).close()  # type: ignore[arg-type]  # nothing of it may be used
