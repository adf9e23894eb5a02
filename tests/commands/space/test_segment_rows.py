"""The rows of all fixtures' segments, beside those that a second implementation (in C, until it was removed) gave."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from klog.commands.space.disk_usage import DiskUsage, SpaceSettings
from klog.data_dir.selection import PartitionQuery

from tests.conftest import FIXTURES

GOLDEN = Path(__file__).with_name("segment_rows.gz")
WRITTEN_MS = 1_750_000_000_000
SETTINGS: list[dict[str, str]] = [
    {},
    {"retention.ms": "86400000", "retention.bytes": "9000"},
    {"retention.ms": "-1", "retention.bytes": "20000"},
]


def rows(scratch: Path) -> Iterator[str]:
    """Yield a line for each segment of the fixtures and each of SETTINGS; all logs were written at WRITTEN_MS."""
    holders = (path for path in FIXTURES.rglob("*-[0-9]*") if path.is_dir() and any(path.glob("*.log")))
    folders = sorted({path.parent for path in holders})
    for at, folder in enumerate(folders):
        data = Path(shutil.copytree(folder, scratch / str(at), symlinks=True))
        for log in data.rglob("*.log"):
            os.utime(log, ns=(WRITTEN_MS * 10**6, WRITTEN_MS * 10**6))
        for settings in SETTINGS:
            for now in (WRITTEN_MS - 1, WRITTEN_MS + 90 * 86_400_000):
                usage = DiskUsage(PartitionQuery([str(data)]), SpaceSettings(settings, None, {}), now)
                for one in sorted(usage.segments(), key=lambda row: (row.directory, row.base_offset)):
                    values = [one.directory, one.base_offset, one.bytes, one.index_bytes, one.last_timestamp]
                    told = re.sub(re.escape(str(data)), "DATA", str(one.because))
                    yield json.dumps([folder.relative_to(FIXTURES).as_posix(), *values, one.reason, one.due, told])


def test_each_segment_has_the_row_that_two_implementations_gave(tmp_path: Path) -> None:
    """Sizes, largest timestamp, reason and date; also of damaged logs, and of odd names."""
    golden = gzip.decompress(GOLDEN.read_bytes()).decode().splitlines()
    assert len(golden) > 1000
    assert list(rows(tmp_path)) == golden
