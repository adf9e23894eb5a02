"""Every topic of five generations of brokers, through every form and every codec, is the same afterwards."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby, product
from pathlib import Path
from typing import Any

import pytest

from tests.commands.write.sources import lines
from tests.conftest import Ran, run_klog

pytestmark = pytest.mark.corpora
Klog = Callable[..., Ran]
ROOTS = (
    "modern/data",
    "legacy/data",
    *(f"compaction/v{version}/after.tar.gz" for version in ("2.8.2", "3.9.1", "4.3.1")),
)
FORMS = ("jsonl", "csv", "parquet")
PAIRS = [*product(FORMS, ("none", "gzip", "snappy", "lz4", "zstd"))]
SOME = [
    ("jsonl", "none"),
    ("csv", "gzip"),
    ("parquet", "snappy"),
    ("jsonl", "lz4"),
    ("csv", "none"),
    ("parquet", "zstd"),
]
LONG = [pytest.param(*pair, marks=pytest.mark.long) for pair in PAIRS if pair not in SOME]


class Dumped:
    """The content of a log dir of the corpora: *partitions* without the controllers' own, and *records* of each."""

    def __init__(self, root: Path, folder: Path) -> None:
        found = sorted({path.parent for path in root.rglob("*.log") if not path.parent.name.startswith("__cluster")})
        self.partitions = [one for one in found if lines(run_klog, [one], "--limit", "1")]
        self.records = {one.name: lines(run_klog, [one]) for one in self.partitions}
        self.count = 1 + max(int(one.name.rpartition("-")[2]) for one in self.partitions)
        self._folder = folder

    def file(self, form: str) -> Path:
        """Return all of them in a file, which is made once."""
        file = self._folder / f"records.{form}"
        if not file.exists():
            done = run_klog("dump", *self.partitions, "--output", form, "--to", file)
            assert done.exit_code == 0, done.stderr
        return file


@pytest.fixture(scope="module", params=ROOTS)
def dumped(
    request: pytest.FixtureRequest,
    corpora: Path,
    image: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Dumped:
    root = image(request.param) if request.param.endswith(".gz") else corpora / request.param
    return Dumped(root, tmp_path_factory.mktemp("dumped"))


def same(record: dict[str, Any], *without: str) -> dict[str, Any]:
    """Return the required content of a record: all but the place of its batch.  Message sets have no leader epoch."""
    return {"leader_epoch": 0} | {name: value for name, value in record.items() if name not in ("position", *without)}


def written(dumped: Dumped, to: Path, *words: str) -> dict[str, list[dict[str, Any]]]:
    """Write everything; return the records that are there then, by partition."""
    done = run_klog("write", *words, "--to", to, "--partitions", str(dumped.count))
    assert done.exit_code == 0, done.stderr
    found = lines(run_klog, [to])
    return {name: list(rows) for name, rows in groupby(found, lambda one: f"{one['topic']}-{one['partition']}")}


@pytest.mark.parametrize(("form", "codec"), [*SOME, *LONG])
def test_every_topic_comes_back_with_its_offsets(form: str, codec: str, dumped: Dumped, tmp_path: Path) -> None:
    """Old message formats become record batches, compacted logs keep their gaps, transactions their ends."""
    found = written(dumped, tmp_path / "out", str(dumped.file(form)), "--keep-offsets", "--codec", codec)
    assert found.keys() == dumped.records.keys()
    for name, rows in dumped.records.items():
        assert [same(one) for one in found[name]] == [same(one) for one in rows], name
    heads = lines(run_klog, [tmp_path / "out"], "--batches")
    assert {one["magic"] for one in heads} == {2}
    assert {one["codec"] for one in heads if not one["control"]} == {codec}


@pytest.mark.parametrize("form", FORMS)
def test_every_topic_comes_back_with_offsets_from_0(form: str, dumped: Dumped, tmp_path: Path) -> None:
    """A producer would write the same: counted one by one; without a gap there is nothing at all to find fault with."""
    found = written(dumped, tmp_path / "out", str(dumped.file(form)))
    assert found.keys() == dumped.records.keys()
    for name, rows in dumped.records.items():
        assert [same(one, "offset") for one in found[name]] == [same(one, "offset") for one in rows], name
        assert [one["offset"] for one in found[name]] == list(range(len(rows))), name
