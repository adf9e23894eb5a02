"""The worth of `klog verify` and `klog recover` after one fault in one file; docs/faults.md has the results."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from klog.base.errors import ExitCode

from tests.conftest import FIXTURES
from tests.faults.single_faults import FAULTS, FILES, STOPS, UNREADABLE, play
from tests.support.samples import sampled
from tools.make_faults import text

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("hasty")]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("pattern", FILES)
def test_after_recover_kafka_has_what_it_would_have_had(pattern: str, fault: str, stop: str, tmp_path: Path) -> None:
    """`klog verify` has reported the records that Kafka alone loses, or does not start with."""
    cell = play(tmp_path, pattern, fault, stop)
    assert not cell.recovered.exit_code & ExitCode.OPERATIONAL_ERROR, cell
    if not cell.did.ok or cell.alone < cell.whole or cell.is_set_aside[0]:
        assert cell.verified.exit_code == ExitCode.PROBLEMS_LEFT, cell
    assert cell.helped >= cell.alone, cell
    # The metadata log, which has the topic's identity as well, is not in this log dir: `klog recover` leaves the file.
    is_left = cell.file == "partition.metadata" and bool(cell.recovered.exit_code & ExitCode.PROBLEMS_LEFT)
    assert cell.did_helped.ok or is_left, cell
    assert not cell.is_set_aside[1], cell


@pytest.mark.fuse
@pytest.mark.parametrize(("pattern", "stop"), sampled(((file, stop) for file in FILES for stop in STOPS), 3))
def test_what_cannot_be_read_is_told_and_replaced_from_the_logs(pattern: str, stop: str, tmp_path: Path) -> None:
    cell = play(tmp_path, pattern, UNREADABLE, stop)
    why = os.strerror(errno.EIO).encode()
    assert cell.verified.exit_code & ExitCode.PROBLEMS_LEFT, cell
    assert why in cell.verified.stdout, cell
    assert why in cell.planned.stdout, cell
    assert cell.helped == cell.alone, cell
    if pattern.endswith((".log", "partition.metadata")):
        assert cell.recovered.exit_code == ExitCode.PROBLEMS_LEFT | ExitCode.OPERATIONAL_ERROR, cell
        assert cell.did_helped.state == cell.did.state, cell
    else:
        assert cell.recovered.exit_code == ExitCode.CORRECTED, cell
        assert cell.did_helped.ok, cell


@pytest.mark.fuse
@pytest.mark.long
def test_the_page_says_what_is_found(tmp_path: Path) -> None:
    assert (FIXTURES.parent / "docs/faults.md").read_text() == text(tmp_path)
