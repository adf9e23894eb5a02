"""`klog dump` against Kafka 4.3.1's tool, run here and now: every file of the corpora under every set of flags."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import kafka
from tests.conftest import CORPORA, extract, run_klog, writable_copy
from tests.oracles.dump_compare import Comparison
from tests.support import goldens
from tests.support.samples import sampled

pytestmark = [pytest.mark.corpora, pytest.mark.kafka]

FOLDERS = ("modern/data", "legacy/data", "v39/data", "v39/data1")
PUBLIC = ("public/kafkalite", "public/kafka-3.0.0-three-brokers")
# A third of the time that all these and the sampled archives take; its files are no other kinds than theirs.
LARGE = pytest.param("public/pinterest-tiered-storage", marks=pytest.mark.long)
ARCHIVES = sorted(
    str(path.relative_to(CORPORA)) for kind in ("compaction", "crash") for path in CORPORA.glob(f"{kind}/*/*.gz")
)
# Whole clusters: three disks each, much alike. These hold what differs: flipped batches, diverged copies, killed
# brokers, compacted copies, a quorum of three.
REPLICAS = tuple(
    f"replicas/{name}.tar.xz" for name in ("damage", "split", "compacted", "three-combined-static", "killed")
)


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    """One JVM and one memory of comparisons: most archives hold the same files."""
    with kafka.DumpTool() as tool:
        yield Comparison(tool, run_klog)


def check(comparison: Comparison, root: Path) -> None:
    comparison.runs, comparison.differences = 0, []
    comparison.tree(root)
    assert not comparison.differences, comparison.report()


@pytest.mark.parametrize("name", [*FOLDERS, *PUBLIC, LARGE])
def test_every_file_of_a_log_dir_is_dumped_as_kafka_does(name: str, comparison: Comparison, tmp_path: Path) -> None:
    check(comparison, writable_copy(CORPORA / name, tmp_path / "image"))
    assert comparison.runs > 10


@pytest.mark.parametrize("name", [*sampled(ARCHIVES, 5), *sampled(REPLICAS, 3)])
def test_every_file_of_an_image_is_dumped_as_kafka_does(name: str, comparison: Comparison, tmp_path: Path) -> None:
    extract(CORPORA / name, tmp_path)
    check(comparison, tmp_path)


def test_the_images_hold_dead_and_damaged_files() -> None:
    """The comparison is worth little if nothing in it is broken; the archive list must not be empty by accident."""
    assert sum("crash/" in name for name in ARCHIVES) > 80
    assert sum("compaction/" in name for name in ARCHIVES) == 18


@pytest.mark.parametrize("name", ["modern/data", "v39/data"])
def test_reports_of_many_files_come_in_kafkas_order(name: str, comparison: Comparison, tmp_path: Path) -> None:
    """Kafka keeps its reports in a Java HashMap over absolute paths: the order looks random, and scripts compare it."""
    root = writable_copy(CORPORA / name, tmp_path / "data")
    logs = sorted(root.glob("*/*.log"))
    indexes = sorted(root.glob("*/*.index")) + sorted(root.glob("*/*.timeindex"))
    comparison.runs, comparison.differences = 0, []
    for count in (2, 3, 12, 13, 25, len(logs)):  # around 12 and 24 the map grows
        comparison.once(logs[-count:], ("--deep-iteration",))
        comparison.once(logs[:count], ("--print-data-log", "--skip-record-metadata"))
    for index in indexes:  # entries that disagree with the log, so that every index is reported
        content = bytearray(index.read_bytes())
        if len(content) >= 12:
            content[-9 if index.suffix == ".timeindex" else -5] ^= 0x01
            index.write_bytes(content)
    healthy = [index for index in indexes if index.suffix == ".timeindex"]
    comparison.once(healthy, ())
    comparison.once(healthy[::2] + logs[:5], ("--deep-iteration",))
    assert not comparison.differences, comparison.report()


def test_decoders_on_files_that_are_not_theirs(comparison: Comparison, tmp_path: Path) -> None:
    """Operators pick the wrong decoder; what Kafka then prints is an error in place of the payload, or its death."""
    comparison.runs, comparison.differences = 0, []
    root = writable_copy(CORPORA / "modern/data", tmp_path / "data")
    files = sorted(root.glob("__*/*.log")) + sorted(root.glob("plain-*/*.log")) + sorted(root.glob("tx-open-0/*.log"))
    for file in files:
        for decoder in goldens.DECODERS.values():
            comparison.once([file], (decoder,))
    decoders = tuple(goldens.DECODERS.values())
    for file in files[:4]:  # several at once: a fixed order of priority
        comparison.once([file], decoders[::-1])
        comparison.once([file], decoders[1:])
    assert not comparison.differences, comparison.report()


@pytest.mark.parametrize("name", ["legacy/data", "v39/data"])
def test_index_options_together(name: str, comparison: Comparison, tmp_path: Path) -> None:
    """The sanity check wins over the verification; flags for logs mean nothing to an index."""
    comparison.runs, comparison.differences = 0, []
    root = writable_copy(CORPORA / name, tmp_path / "data")
    for file in sorted(path for path in root.glob("*/*") if path.suffix in (".index", ".timeindex"))[:60]:
        comparison.once([file], ("--index-sanity-check", "--verify-index-only"))
        comparison.once([file], ("--verify-index-only", "--deep-iteration", "--max-bytes", "10"))
    assert not comparison.differences, comparison.report()
