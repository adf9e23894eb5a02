"""One session for all tests: its JVM takes seconds to start, and a process can have but one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.conftest import ROOT

SMALL = {
    "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.worker.faulthandler.enabled": "true",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of klog's own making on two cores; the active one, which the command line then finds."""
    from klog.spark.session import session

    with pytest.MonkeyPatch.context() as patch:
        for name in ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_PYTHON", "MASTER"):
            patch.delenv(name, raising=False)
        # Functions of tests run in tasks as well.
        patch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))))
        with session("local[2]", SMALL, brief=True) as ours:
            yield ours.spark
