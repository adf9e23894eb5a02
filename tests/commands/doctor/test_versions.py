"""`klog doctor` for a broker that does not know the cluster's `metadata.version`: a downgrade, or too long a leap."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.conftest import Ran
from tests.support.metadata_logs import value
from tests.support.rolled_back import data, metadata, partition

Klog = Callable[..., Ran]


def ask(klog: Klog, log_dir: Path, version: str) -> tuple[str | None, str, int]:
    """Return the id of the failure, None if the broker starts; its message; the exit code."""
    done = klog("doctor", "--kafka-version", version, "--output", "json", log_dir)
    found = json.loads(done.stdout)
    if found["starts"]:
        return None, "", done.exit_code
    assert found["next"][0]["manual"].startswith("start a broker of a version")
    return found["fatal"]["id"], found["fatal"]["message"], done.exit_code


@pytest.mark.parametrize(
    ("level", "version", "starts"),
    [
        (30, "4.3", True),
        (30, "3.9", False),
        (22, "3.9", False),
        (21, "3.9", True),
        (21, "4.3", True),
        (7, "4.3", True),
        (6, "4.3", False),
        (6, "3.9", True),
    ],
)
def test_levels(level: int, version: str, starts: bool, klog: Klog, tmp_path: Path) -> None:
    log = metadata(tmp_path / "data", leader_epoch=0, next_producer_id=None)
    log.add(value("FeatureLevel", name="metadata.version", featureLevel=level))
    partition(tmp_path / "data", [data(0)], [(0, 0)])
    found, message, code = ask(klog, tmp_path / "data", version)
    assert (found, code) == ((None, 0) if starts else ("metadata-version-unsupported", 4))
    assert starts or f"which a broker {version} does not support" in message


@pytest.mark.kafka
def test_a_real_downgrade(klog: Klog, tmp_path: Path) -> None:
    with kafka.Cluster(kafka.NEWEST, tmp_path) as cluster:
        clients.create(cluster.bootstrap, {"orders": {}})
    assert ask(klog, tmp_path / "data", "4.3")[0] is None
    assert ask(klog, tmp_path / "data", "3.9")[0] == "metadata-version-unsupported"
    with pytest.raises(RuntimeError, match="stopped at its start"):
        kafka.Cluster(kafka.BEFORE, tmp_path).start()
