"""Spoilt metadata logs and snapshots through everything that reads them; the fuzzer does the same under sanitizers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from klog.cluster.metadata.metadata_replay import read_records
from klog.formats.damage import Damage

from tests.fuzz.metadata import DISKS, MetadataLogs, spoilt


@pytest.mark.parametrize("rounds", [60, pytest.param(20_000, marks=pytest.mark.long)])
def test_a_spoilt_metadata_log_gives_an_answer_or_an_error_of_klogs(rounds: int, tmp_path: Path) -> None:
    """An operator has nothing else after an incident: no traceback, and nothing that was never written."""
    logs = MetadataLogs(Random(20261123), tmp_path)
    for _ in range(rounds):
        logs.spoil_and_read()


def test_most_of_what_is_spoilt_reaches_the_decoders(tmp_path: Path) -> None:
    """Else the rounds above would only ever see checksums that do not match."""
    logs = (DISKS / "broker-3" / "__cluster_metadata-0").glob("*.log")
    content = max((path.read_bytes() for path in logs), key=len)
    path, sound = tmp_path / "00000000000000000000.log", 0
    for seed in range(40):
        path.write_bytes(spoilt(content, Random(seed)))
        sound += not any(isinstance(found, Damage) for found in read_records(str(path), 0))
    assert 10 < sound < 40
