"""The wrecks of the corpora through the jobs: whole records are there, the rest is reported, and no job ends for it."""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crc32c import crc32c
from klog.data_dir.log_dir import LogDir
from klog.jobs.slices import slice_partition
from klog.jobs.spark_rows import RowQuery, read
from klog.jobs.verify import VerifyOptions, VerifyTask, collect_results, verify
from klog.partition.verify.segment_pass import SurveyOptions
from klog.partition.verify.verify import log_dir_facts, verify_partition

from tests.conftest import FIXTURES, writable_copy
from tests.partition.verify.images import CRASHES
from tests.support.measure import measured

Image = Callable[[str], Path]
SPLITS = (4096, 10_000, 1 << 40)
COLUMNS = ("file", "position", "offset", "damage")


def log_dirs(image: Image, name: str) -> list[LogDir]:
    roots = {path.parent for path in image(f"crash/{name}/before.tar.gz").rglob("meta.properties")}
    return [LogDir(str(root)) for root in sorted(roots)]


def whole_batches(log: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield position, last offset and whether it has data of each batch (v2) that is whole, at any place."""
    for at in range(len(log) - 60):
        if log[at + 16] == 2 and 49 <= (size := int(struct.unpack_from(">i", log, at + 8)[0])) <= len(log) - at - 12:
            (stored, attributes, delta) = struct.unpack_from(">IhI", log, at + 17)
            if crc32c(log[at + 21 : at + 12 + size]) == stored:
                (records,) = struct.unpack_from(">i", log, at + 57)
                base = int(struct.unpack_from(">q", log, at)[0])
                yield at, base + delta, records > 0 and not attributes & 0x20


@pytest.mark.corpora
@pytest.mark.parametrize("name", [path.name for path in CRASHES])
def test_every_whole_batch_is_read_whatever_stands_around_it(image: Image, name: str) -> None:
    """Before damage and behind it, in slices of any size, found by trying each byte."""
    for partition in (one for log_dir in log_dirs(image, name) for one in log_dir.partitions):
        start = partition.log_start_offset or 0
        expected = {
            (str(log), at)
            for log in Path(partition.path).glob("*.log")
            if log.stem.isdigit()
            for at, last_offset, has_data in whole_batches(log.read_bytes())
            if has_data and last_offset >= start
        }
        for split in SPLITS:
            query = RowQuery(COLUMNS, damage="column")
            found = [row for made in read(slice_partition(partition, split), query) for row in made.to_pylist()]
            assert {(row["file"], row["position"]) for row in found if row["damage"] is None} == expected
            places = [(row["file"], row["offset"]) for row in found if row["damage"] is None]
            assert len(set(places)) == len(places)


@pytest.mark.corpora
@pytest.mark.parametrize("name", [path.name for path in CRASHES])
def test_findings_are_those_of_klog_verify(image: Image, name: str) -> None:
    for log_dir in log_dirs(image, name):
        found = log_dir.partitions
        around = log_dir_facts(log_dir)
        alone = [verify_partition(one, around, SurveyOptions(deep=True)) for one in found]
        parts = [VerifyTask(i, one.path, log_dir.path) for i, one in enumerate(found)]
        for size in (1, 3, len(parts)):
            units = [parts[at : at + size] for at in range(0, len(parts), size)]
            made = collect_results(
                (batch for unit in units for batch in verify(unit, VerifyOptions(SurveyOptions(deep=True)))), found
            )
            assert [(one.findings, one.totals) for one in made] == [(one.findings, one.totals) for one in alone]


def test_what_vanishes_or_shrinks_costs_its_partition_a_finding(tmp_path: Path) -> None:
    """A job of hours meets retention, and disks that die."""
    data = writable_copy(FIXTURES / "modern", tmp_path / "data")
    log_dir = LogDir(str(data))
    found = [log_dir.partition(name) for name in ("dense-0", "plain-2", "idempotent-0", "plain-1", "zstd-0")]
    planned = {one.directory: slice_partition(one, 4096) for one in found}
    (data / "dense-0" / f"{98:020}.log").unlink()
    os.truncate(data / "plain-2" / f"{0:020}.log", 4_000)
    for file in (data / "idempotent-0").iterdir():
        file.unlink()
    (data / "idempotent-0").rmdir()
    parts = [VerifyTask(i, one.path, log_dir.path) for i, one in enumerate(found)]
    checked = {
        one.partition.directory: one
        for one in collect_results(verify(parts, VerifyOptions(SurveyOptions(deep=True))), found)
    }
    assert checked.keys() == planned.keys()
    ids = {name: {finding.id for finding in one.findings} for name, one in checked.items()}
    assert ids["plain-1"] == ids["zstd-0"] == set()
    assert "unreadable" in ids["idempotent-0"]
    assert "orphan-index" in ids["dense-0"]
    assert "torn-tail" in ids["plain-2"]
    damage = {}
    for name, parts_of in planned.items():
        rows = [row for made in read(parts_of, RowQuery(COLUMNS, damage="column")) for row in made.to_pylist()]
        damage[name] = [row["damage"] for row in rows if row["damage"] is not None]
        assert len(rows) > len(damage[name]) or name == "idempotent-0"
    assert damage["plain-1"] == damage["zstd-0"] == []
    assert all("No such file" in text for text in damage["dense-0"] + damage["idempotent-0"])
    assert any("the log ends here; it had" in text for text in damage["plain-2"])


ASIDE = """
import json, sys
from klog.jobs.verify import VerifyOptions, VerifyTask, collect_results, verify
from klog.data_dir.log_dir import LogDir
from klog.jobs.spark_rows import RowQuery, read
from klog.jobs.slices import slice_partition
log_dir = LogDir(sys.argv[1])
found = log_dir.partitions
parts = [VerifyTask(i, one.path, log_dir.path) for i, one in enumerate(found)]
checked = collect_results(verify(parts, VerifyOptions()), found)
ids = {one.partition.directory: [finding.id for finding in one.findings] for one in checked}
query = RowQuery(("partition", "damage"), damage="column")
rows = {}
for one in found:
    every = [row["damage"] for made in read(slice_partition(one), query) for row in made.to_pylist()]
    rows[one.directory] = len(every), [text for text in every if text]
print(json.dumps([ids, rows]))
"""


def test_a_directory_without_permission_costs_its_partition_a_finding(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in ("plain-1", "plain-2"):
        writable_copy(FIXTURES / "modern" / name, data / name)
    (data / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (data / "plain-1").chmod(0)
    try:
        done = measured([sys.executable, "-c", ASIDE, str(data)], tmp_path, privileges=False)
    finally:
        (data / "plain-1").chmod(0o755)
    assert (done.exit_code, done.stderr) == (0, "")
    ids, rows = json.loads(done.stdout)
    assert "unreadable" in ids["plain-1"]
    assert "unreadable" not in ids["plain-2"]
    assert [rows["plain-1"][0], "Permission denied" in rows["plain-1"][1][0]] == [1, True]
    assert rows["plain-2"][0] > 10
    assert rows["plain-2"][1] == []
