"""A real broker under load notices nothing of `klog verify`: `python -m tests.neighbour broker` prints the figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from tests.neighbour.load import ALONE, BROKER_SIZES, beside
from tests.neighbour.pages import KLOG, MIB

pytestmark = [pytest.mark.long, pytest.mark.kafka, pytest.mark.usefixtures("memory_cgroup")]


def test_a_broker_reads_no_more_from_its_disk_and_answers_as_fast(
    on_disk: Path, locked_log_dir: Callable[[int], Path]
) -> None:
    """20 MB/s are produced, and fetched 512 MiB behind; klog reads 6 GiB again and again."""
    data = locked_log_dir(BROKER_SIZES.data)
    phases = beside(on_disk / "broker", data, {"klog": [*KLOG, "verify", data]})
    alone, with_klog = ([median(values) for values in zip(*phases[name], strict=True)] for name in (ALONE, "klog"))
    assert with_klog[-1] >= 1
    assert with_klog[0] <= 1.1 * alone[0] + 8 * MIB, phases  # of nothing, a few files of the JVM are many times as much
    assert with_klog[1] <= 1.25 * alone[1], phases
    assert with_klog[2] <= 1.25 * alone[2], phases
